// Package ibrouter is a router as an engine: packets that have a global route header and are for another subnet leave
// by a port of that subnet, or towards the next router, with a local route header of that subnet and a hop less (IBA
// volume 1, chapter 19). What the ICRC covers stays as it was: the local route header, the hop limit, the traffic class
// and the flow label are no part of that (IBA 7.8.1).
//
// A router's ports are end ports, each in a subnet of its own, with a LID, a GID and a manager there. The standard does
// not say how a router knows where a GID is. Here the manager of each subnet tells it: which port has which LID, and
// what other routers of the subnet reach. From that follow the next hops, which managers read in turn, so that what is
// told in one subnet comes to the routers of all.
//
// The package does not know how its ports are cabled, and has no time of its own. Packets for the router itself are
// left to the driver: they are management, of whose attributes Node has those that only routers have. All else about
// the ports is as an adapter has it, and what shows that to the agent is given to NewNode.
//
// What it does with a packet is decided by Decide, which changes nothing, so that others who move packets may ask as
// well. How it is driven, for each packet that has been received at port in:
//
//	r := router.Handle(now, in, f)
//	r.Here             it is for the router itself
//	r.Reason.IsDrop()  it was dropped and counted; its receive buffer is to be given back
//	r.Outs             poll these ports to transmit; the packet, or what it was copied to, holds its receive buffer until
//	                   Left says that it is free
package ibrouter
