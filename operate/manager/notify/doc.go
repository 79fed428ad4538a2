// Package notify sends a fabric's alarms on: to an Alertmanager, or to whatever takes what an Alertmanager sends to its
// webhooks.
//
// Which of the two is seen by the address: one that ends in /api/v2/alerts is an Alertmanager's, which gets the alarms
// that stand again and again, as it wants it; any other gets each alarm when it is raised, gets worse or is over, in
// the form of version 4 of Alertmanager's webhooks. Alarms that are muted are not sent, and one that is muted later is
// over for who was told.
//
// The package asks a *manager.Manager what stands and keeps what it has told, nothing else: a receiver that is away for
// an hour hears, when it is back, how things are then. It must not know what alarms are about.
//
//	n, err := notify.Start(m, notify.Options{URL: "http://alertmanager:9093/api/v2/alerts"})
//	defer n.Close()
package notify
