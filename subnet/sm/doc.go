// Package sm is the subnet manager: it discovers a subnet by directed routes,
// gives addresses, computes routes, programs every table that differs, makes
// links Active, and stays to mend what breaks. Beside it package sa answers
// the subnet's hosts.
//
// A Manager is an engine: it knows only what datagrams told it, has no clock
// and starts nothing. So it runs unchanged on every fabric that somebody can
// carry datagrams to: in real time (smrun), in virtual time (sim), or at once
// (BringUp).
//
// # Driving it
//
//	m := sm.New(sm.Config{})
//	m.Start(now)
//	for {
//		for m.PollSend(now, &send) { … }      // to the wire, with retries (madrpc)
//		if j, ok := m.PollJob(); ok {          // routing: here, or beside everything else
//			j.Run()
//			m.HandleJob(now, j)
//		}
//		for { e, ok := m.PollEvent() … }       // the operator's log
//		// sleep until something comes or m.NextDeadline() is there
//		m.HandleDelivery(now, delivery)        // answers, traps, other managers, clients of administration
//		m.HandleTimer(now)
//	}
//
// What should outlive a restart comes from TakeMemory and goes in again as
// Config.Memory.
//
// # A sweep
//
// A sweep is a list of phases (sweep.go), each of which sends requests and takes answers; a phase is over when it has
// nothing more to ask. The sweep works on a copy of the last subnet.Subnet, or
// from nothing, and publishes its own at the end; what has not changed is
// shared. A trap starts the same phases with one switch to look at.
//
//	discover.go, settle.go   what is there, who is master
//	takeover.go              what hosts had registered with a former master
//	read.go, addresses.go    tables that are not known; LIDs
//	partition.go, keys.go    who may talk to whom
//	compute.go               a network for package route, and its result
//	lanes.go, qos*.go        service levels, lanes, arbitration
//	tables.go                forwarding tables, in rounds that never loop
//	multicast.go             trees of the groups, which package route grows
//	links.go                 Armed, then Active
//	publish.go               the new subnet
//	guids.go, cc.go, inventory.go   aliases, congestion control, what only administration shows
//
// Around it: light.go (between sweeps), traps.go, election.go (other managers), cutoff.go (the manager's own link),
// mkey.go, failing.go (what does not do as it is told), admin.go (package sa).
//
// A switch is *cold* while nothing can pass through it: its tables are written whole. One *in doubt* may hold other
// tables than the last subnet says: they are read before anything is written, because what is written must fit what is
// there.
package sm
