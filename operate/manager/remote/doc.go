// Package remote is a fabric that is not ours, as package manager wants it: known from one port, by management
// datagrams alone. So the page, the metrics and the REST interface show ibsim's fabric, hardware, or one of softib's
// that runs in another process, whoever manages it.
//
//	f, err := remote.Open(ctx, transport, remote.Options{Interval: 5 * time.Second})
//	defer f.Close()
//	m, err := manager.New(manager.Options{Fabric: f, Journal: f.Journal(), …})
//	<-f.Grown()                 // a node or a cable is new: a Manager has the graph of its beginning, so make another
//
// # How it is read
//
// Counters are read every Interval, the fabric as a whole (discovery, tables, partitions, managers) every Survey, and
// at once when a counter says that a link went down or a node is silent. At no time are more than Window datagrams on
// their way, whoever asks: agents of real switches are slow. See reader.go.
//
// # What is remembered
//
// Nodes and cables that were seen once stay, as down, until the process ends: a link that is down has no far end to be
// discovered, and is what people look for. The graph only ever grows; a cable that is found elsewhere has moved. See
// shape.go.
//
// Counters go on where nodes' own begin anew: somebody resets them, a switch restarts. Those of 32 bits and fewer stop
// at the most that their fields hold (IBA 16.1.3.5), and whoever wants them to go on has to clear them in time, which
// is a change. See totals.go.
//
// # What it changes
//
// Nothing, unless AllowChanges: then SetLink disables and enables ports, and counters that are about to stop are
// cleared.
//
// It must not know what anybody does with what it reads, nor read anything by other means than datagrams.
package remote
