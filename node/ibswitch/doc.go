// Package ibswitch is a switch as an engine: it forwards by linear and multicast
// tables, enforces partitions in and out, maps service levels to lanes by port
// pair, and keeps every packet accounted to the receive buffer that it came in
// by until it leaves, so that with credits everywhere nothing is lost
// (IBA volume 1, chapter 18).
//
// It does not know how its ports are cabled, what a management datagram
// says, or what time it is. Packets for the switch itself (port 0) are handed
// out through PollMgmt, and answers come back through SendMgmt.
//
// What it does with a packet is decided by Decide, Fan and Leave, which change nothing, so that others who move packets
// may ask as well.
//
// Each output port has one queue for each lane, in order of arrival from all inputs.
// A packet that waits there holds credit of its own input and lane only, so no
// input blocks another.
//
// How it is driven: the driver owns the cables and the time. For each packet that
// reaches port in:
//
//	r := sw.Handle(now, in, f)
//	r.Out != 0        poll that port to transmit
//	r.Reason != OK    the packet was dropped and counted; recycle the frame
//	r.Multicast       poll PollOut until it has no more ports
//	r.Mgmt            PollMgmt has a packet
//
// When a port's PollTx or PollDropped hands out a frame, the driver calls
// Left(f), which gives back the receive buffer, and then polls that input port
// for the flow-control packet that tells the neighbour.
package ibswitch
