// Package sa is the subnet administrator: it answers what hosts ask about their
// subnet (nodes, ports, tables, paths), keeps what they tell it (memberships in multicast groups, services,
// subscriptions, GUIDs that their ports should have), and reports events to whoever subscribed.
//
// An Admin is an engine like all others: no I/O, no clock, no goroutine. It
// answers from the last subnet.Subnet that the manager published, which nobody
// changes, and from its own tables. Its driver is the subnet manager:
//
//	a := sa.New(sa.Config{SMKey: key})
//	a.Import(now, db)             // what a former life or a former master knew
//	a.SetSubnet(s)                // after each sweep
//	resp, ok := a.Handle(now, from, req)
//	for { env, msg, wish, ok := a.PollSend() … }   // reports to subscribers
//	for { e, ok := a.PollEvent() … }               // what changed: groups, see Members, program trees; ports' GUIDs, see EachGUIDs
//	a.HandleTimer(now)            // at a.NextDeadline(): leases of services
//
// A response is one message, however long: the headers of a datagram, 56 bytes, and
// then all records, each padded to whole units of 8 bytes. Whoever sends
// it cuts it into segments if its RMPP header says active (package madrpc does). The bytes
// are the Admin's own and hold until the next call of Handle.
//
// # Trust
//
// A request that carries the manager's SM_Key is trusted. All others see only ports that share a partition with theirs,
// and no keys: M_Key, SM_Key, ServiceKey, the partition tables of others, members of groups, subscriptions of others
// (IBA 15.4.1); and a port's GUIDs are for its own node to change. A request with a wrong SM_Key, or from a port that
// the manager does not know, is not answered at all, as hosts expect from OpenSM.
//
// The package does not know how datagrams travel, how the subnet was found, or what
// programs multicast tables; policy beyond partitions comes in through the QoS interface.
package sa
