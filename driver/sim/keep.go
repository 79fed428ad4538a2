package sim

import (
	"softib/fabric"
	"softib/node/link"
	"softib/proto/ib"
)

// Keeper is a Host that may have no room for a packet. The packet then keeps its place in the port's receive buffer, so
// that its senders run out of credit, until there is.
type Keeper interface {
	Host
	// Keep takes in a packet that is not of management, at a port at a place of the fabric. Taken ends it, at once or
	// later.
	Keep(at uint32, num ib.PortNum, f *link.Frame)
	// AppendKept appends what was kept and not taken.
	AppendKept([]fabric.Kept) []fabric.Kept
}

// Taken says that a keeper has a packet, or that nobody wants it. Its place in the buffer is free.
func (s *Sim) Taken(at uint32, f *link.Frame) {
	s.Take(at, f)
	s.mixPacket(at, f.Packet)
	s.pool.Put(f)
}

// Audit checks that credits are conserved; see fabric.Engine.
func (s *Sim) Audit() error {
	var kept []fabric.Kept
	for i := range s.hosts {
		if k := s.hosts[i].keeper; k != nil {
			kept = k.AppendKept(kept)
		}
	}
	return s.Engine.Audit(kept...)
}
