// Package link is one port of a node as an engine: the physical and logical
// state machine, the virtual lanes with their transmit queues, credit-based
// flow control in 64-byte blocks, arbitration between lanes, head-of-queue life
// time, and every counter of a port (IBA volume 1, chapters 7 and 18.2.5). A
// port may be one of Ethernet instead, with pauses or with no flow control
// (Config.Flow).
//
// It does not know what is on the other end of the cable, how long the
// cable is, what a switch or an adapter does with a packet, nor what a
// management datagram looks like. It reads no clock: the driver hands in
// the time.
//
// A packet is a Frame, which the driver takes from a Pool. One Frame crosses
// the whole fabric; engines only pass it on, so that a hop copies nothing and
// allocates nothing.
//
// How it is driven, at each moment at which something happened to a port:
//
//	p.Receive(now, f)       a data packet has arrived
//	p.HandleFC(now, fc)     a flow-control packet has arrived (HandlePause on Ethernet)
//	p.Release(vl, blocks)   a received packet has left its buffer
//	p.Enqueue(now, f, vl)   a packet is to leave by this port
//	p.HandleTimeout(now)    NextDeadline has come
//
// and then, while the transmitter is free:
//
//	p.PollFC(now)           flow-control packets first: they unblock the peer (PollPause on Ethernet)
//	p.PollTx(now)           then the packet that arbitration and credits allow
//	p.PollDropped()         what expired or was flushed, to be recycled
//
// The transmitter is busy until BusyUntil; the driver polls again then if
// Pending says that there is a reason to.
package link
