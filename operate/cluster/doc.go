// Package cluster is one machine's part in a fabric that spans machines: who the others are, what the fabric is, and
// who is the master that may change it.
//
// What they agree on lies in a store with etcd's promises: keys with revisions, transactions, leases, watches. An
// Engine is a value that is driven as all engines here are; it asks for operations of the store as data (Request) and
// takes answers as data, so the code that runs on etcd (package etcd below) is the code that torture runs on a model of
// it (package model below) in virtual time.
//
//	e := cluster.New(now, cluster.Config{Info: who})
//	for {
//		r, ok := e.PollRequest()      // to the store; its answer goes to HandleAnswer, what a watch tells to HandleBatch
//		ev, ok := e.PollEvent()       // to whoever builds the fabric
//		e.HandleDeadline(now)         // at NextDeadline
//	}
//
// # Keys
//
//	now/members/NAME    an Info, under the machine's lease
//	now/master          who is the master, under that machine's lease
//	now/head            a Head: the newest revision of what the fabric is
//	now/sections/NAME   what the fabric is: topology and options, placement, and whatever else all have to know
//	history/NUMBER      a Change: who made that revision, when and why; the last thousand
//
// # Changes
//
// What the fabric is changes as a whole, by one transaction that makes the next revision. It holds the head against the
// revision that the change was made for, and the master's key against the one who decided it: a change that was made
// for something else, or by a master that is none any more, is not made. Acknowledged (EventMade) means in the store. A
// transaction without an answer is repeated until the store has said what became of it.
//
// # Cut off
//
// A machine that does not reach the store keeps all that it has heard, changes nothing, and comes back by itself. If
// its lease has ended meanwhile it joins anew. The master acts on its lease for less than a second after it was last
// renewed (master.go says why two never act at one moment), and another is there before two seconds have passed.
//
// The package knows neither time nor sockets nor etcd, and nothing of what sections are for.
package cluster
