// Package agent is what every node answers: the subnet management interface's
// hop rules, the subnet management agent (SMA) and the performance management
// agent (PMA), over the small Node interface that HCAs and switches implement.
//
// An Agent keeps only what belongs to management itself: the M_Key of
// each end port with its protection level, lease and violations. All other
// state is the node's, read and written through Node by value. The agent checks
// every request (version, method, attribute, modifier, values, state
// transitions), so that a node sees only what it can do.
//
// # Driving it
//
// The agent has no timers and makes no packets of its own: each call is a
// request that is answered at once. Leases are measured by the now of the next
// call.
//
//	a := agent.New(node)
//
// For a packet to QP0 (VL15, UD SEND Only, 256 bytes of payload), whether it
// came in by a link or the node's own manager sends it:
//
//	v := a.Deliver(now, inPort, fromHere, payload)
//	switch v.Do {
//	case agent.Discard:     // nothing
//	case agent.SendPort:    // payload out of v.Port, SLID and DLID permissive
//	case agent.SendLID:     // payload to v.DLID through the forwarding table, SLID our own
//	case agent.AsAddressed: // a request from here: to the DLID that its sender chose;
//	                        // now a response: back to the SLID that it came from
//	case agent.ToManager:   // payload is for the subnet manager of this node, if any
//	}
//
// Deliver works in place and covers LID-routed, directed and combined routes.
// At a channel adapter the driver passes every SMP to it; at a switch every SMP
// that is directed-route or addressed to port 0.
//
// For a packet to QP1, or to skip the hop rules:
//
//	n, ok := a.HandleMAD(now, inPort, request, response)
//
// where a false ok means no answer: not a request, not of these classes
// (the driver may have other consumers for it), or an M_Key that does
// not fit.
//
// The package does not know about packets, links or queues; traps and the
// management of other classes belong above it.
package agent
