// Package agent is what every node answers and tells: the subnet management interface's
// hop rules, the subnet management agent (SMA), the performance management
// agent (PMA), congestion control, the vendor classes that common tools use, and traps, all over the small Node
// interface that HCAs and switches implement.
//
// An Agent keeps only what belongs to management itself: the M_Key of
// each end port with its protection level, lease and violations; notices and traps; a sampling of
// counters; the congestion control that a manager has set up. All other
// state is the node's, read and written through Node by value. The agent checks
// every request (version, method, attribute, modifier, values, state
// transitions), so that a node sees only what it can do.
//
// # Driving it
//
//	a := agent.New(node)
//
// For a packet to QP0 (VL15, UD SEND Only, 256 bytes of payload), whether it
// came in by a link or the node's own manager sends it:
//
//	v := a.DeliverFrom(now, inPort, slid, fromHere, payload)
//	switch v.Do {
//	case agent.Discard:     // nothing
//	case agent.SendPort:    // payload out of v.Port, SLID and DLID permissive
//	case agent.SendLID:     // payload to v.DLID through the forwarding table, SLID our own
//	case agent.AsAddressed: // a request from here: to the DLID that its sender chose;
//	                        // now a response: back to the SLID that it came from
//	case agent.ToManager:   // payload is for the subnet manager of this node, if any
//	}
//
// DeliverFrom works in place and covers LID-routed, directed and combined routes; Deliver is the same for a driver
// that does not know the SLID. At a channel adapter the driver passes every SMP to it; at a switch every SMP
// that is directed-route or addressed to port 0.
//
// For a packet to QP1, or to skip the hop rules:
//
//	n, ok := a.HandleFrom(now, inPort, slid, request, response)
//
// where a false ok means no answer: not a request, not of these classes
// (the driver may have other consumers for it), or an M_Key that does
// not fit. The classes of ibping and ibsysstat are answered too: a driver whose hosts run programs of their own
// offers those datagrams to them first.
//
// # Traps
//
// The node notes what happens to it: links of a switch that go up or down, errors, packets with a wrong
// P_Key or Q_Key. The agent itself notes wrong M_Keys and what SetDescription, SetCapability and
// NotifySystemGUID change. PollTrap turns both into datagrams:
//
//	for {
//		to, ok := a.PollTrap(now, buf)
//		if !ok {
//			break
//		}
//		// buf, 256 bytes, from QP0 to QP0 on VL15, from to.SLID to to.DLID at to.SL: at a channel adapter
//		// out of to.Port, at a switch by its forwarding table. Where to.DLID is the node's
//		// own LID it is for the manager here.
//	}
//	wakeAt(a.NextDeadline())
//
// The driver does this
//
//   - when a link of the node went up or down by itself, or a packet was dropped for its keys;
//   - after a Deliver or HandleMAD that left NextDeadline at or before now;
//   - after SetDescription and its like;
//   - when NextDeadline has come, after a.HandleTimer(now).
//
// PollTrap looks at every port of a switch, so it is not for every packet. A trap that has been sent comes
// again, no faster than the port's SubnetTimeOut lets it, until its TrapRepress arrives by DeliverFrom. While the
// port has no manager (MasterSMLID is 0) there are no traps; the Notice attribute shows the first notices anyway.
//
// The package does not know about packets, links or queues.
package agent
