// Package etcd runs a machine's part in a cluster (package cluster) in real time, on etcd.
//
//	at, err := etcd.ParseURL("etcds://etcd1:2379,etcd2:2379/lab?ca=ca.pem&cert=me.pem&key=me.key")
//	store, err := etcd.Connect(ctx, at)           // is it etcd, does it answer, what version is it
//	m := etcd.Start(store, cluster.Info{Name: "m1", Control: "10.0.0.1:7000"}, tell)
//	err = m.Joined(ctx)                           // or who else has the name, and since when
//	revision, err := m.Change(ctx, cluster.Change{Base: m.Revision(), Put: sections})
//	m.Leave(ctx)
//
// A Store carries requests of an engine to etcd and says what became of each: done, certainly not done, or unknown. A
// Member gives an engine time and a store. The clock is the one that goes on while the machine sleeps
// (CLOCK_BOOTTIME), so that a master that was suspended does not wake up believing its lease. Keys is a part of the
// store for values that only the master writes: the book of tenants is kept there.
//
// Errors have what to do next (Next), as package control's have.
package etcd
