// Package manager is the management service of one running fabric: what the page, the metrics, the REST interface and
// the commands all ask, so that they agree.
//
// A Manager samples every port's state and counters, keeps their history, ranks cables, raises and clears alarms, keeps
// a journal of events, sets and lifts faults for rehearsals, finds routes, and owns the tenants. It speaks to the
// fabric through the Fabric interface and to the subnet manager through a Subnet; both are declared here, in terms of
// package inspect, and *live.Fabric, *remote.Fabric and *smrun.Runner fill them.
//
// It knows no HTTP and prints nothing. Everything it hands out is a value or an immutable snapshot; any number of
// goroutines may ask.
//
//	m, err := manager.New(manager.Options{Fabric: f, Subnet: runner, Dir: dir})
//	defer m.Close()
//	s := m.Sample()              // all ports, as they were at one moment
//	for range m.Samples(ctx) {}  // rings whenever there is a new one
package manager
