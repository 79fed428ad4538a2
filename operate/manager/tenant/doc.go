// Package tenant keeps the tenants of a fabric: who they are, which ports are theirs, and that nobody else's packets
// reach them.
//
// A Tenant is a name, a partition key and members. A Book has all of them and is the only way to change them. Each
// change is a whole: it is checked, written down as an intent, put in force in adapters and switches, proved there,
// written down as done, and only then acknowledged. Where anything on the way refuses, everything is as it was before
// the call, and the error says who refused.
//
//	store, err := tenant.OpenStore(dir)                // what was acknowledged is here, whatever happened to the last process
//	cfg.Partitions, err = store.State().Merge(theirs)  // ... and the subnet comes up with it
//	book, err := tenant.Open(ctx, store, fabric)
//	red, err := book.Create(ctx, tenant.Tenant{Name: "red", Members: members})
//
// # Killed at any moment
//
// A store is a file, and a change is two transactions in it. The first has the intent alone; the second has the
// tenant as it is now, and takes the intent away. So a process that is killed leaves either the state before the change
// with an intent, or the state after it. An intent that is found is given up: the call was never acknowledged, the
// subnet comes up with the state before, and the store forgets the intent. A caller that has no answer has one question
// to ask, which is what the tenant is now; it is never something in between.
//
// # Damaged, or older than it was
//
// Who starts with other members than those that were acknowledged serves somebody who should not be, which is worse
// than not to start. So every page is looked at before the file is used, every tenant has a sum, and a second file
// (LastName) says which transaction was acknowledged last and what it left. A store that is older, because a first page
// of bbolt's is damaged, a page was never written or somebody put an old copy there, is refused as a damaged one is
// (ErrCorrupt). Without the second file, which older versions did not write and a copy need not have, a store is taken
// if it is whole.
//
// # Several machines
//
// A fabric that spans machines keeps its store where all of them see it (OpenKeys): the same values, in etcd, where
// only the master writes. There is no second file then, since etcd does not go back.
//
// # The default partition
//
// A member of a tenant is a limited member of the default partition (0x7fff), so that it reaches the subnet manager,
// which is a full one, and no other tenant's host. Without a partitions.conf that holds for all hosts from the first
// tenant on, since full members reach limited ones; those without a tenant get a partition of their own (RestName), at
// the first place of their tables, in which everything goes on as before. With a partitions.conf, a host in no tenant
// is what that says: who wants all of them apart says so there (Default=0x7fff,ipoib : ALL=limited, SELF=full;).
//
// The manager's own port is a full member always. Softib's manager is in a switch, so that it is no host's way around
// the tenants.
//
// The package knows neither datagrams nor fabrics: whoever enforces is behind the Fabric interface, which package
// manager fills.
package tenant
