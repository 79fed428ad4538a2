package ibswitch

import (
	"math"

	"softib/node/link"
	"softib/proto/ib"
)

// multicast queues a copy of f at each port of its group but the one it
// came in by (IBA 18.2.4.3.3). The last copy is f itself.
func (s *Switch) multicast(now ib.Time, p *link.Port, f *link.Frame) Result {
	in := f.InPort
	mask := s.MulticastPorts(f.LRH.DLID)
	if mask.Empty() {
		// No entry: the default multicast ports (IBA 18.2.4.3.4).
		def := s.info.DefaultMcastPrimary
		if in == def {
			def = s.info.DefaultMcastNotPrimary
		}
		if int(def) >= len(s.ports) {
			return s.dropMcast(p, f, p.Count(link.UnknownDLID))
		}
		mask.Set(def)
	}
	mask.Clear(in)

	id, ok := s.newGroup()
	if !ok {
		return s.dropMcast(p, f, p.Count(link.Overrun))
	}
	g := &s.groups[id]
	g.copies = 1 // f itself, until it is passed on below
	reason := link.OK
	res := Result{}
	for out, ok := mask.Pop(); ok; out, ok = mask.Pop() {
		if int(out) >= len(s.ports) {
			break
		}
		c := s.pool.Get()
		c.CopyFrom(f)
		c.Group = id
		if out == 0 {
			s.mgmt.Push(c)
			g.copies++
			res.Mgmt = true
			continue
		}
		if r := s.forward(now, p, out, c); r.IsDrop() {
			reason = r
			s.pool.Put(c)
			continue
		}
		g.copies++
		s.outs.Set(out)
		res.Multicast = true
	}
	// The original is not needed any more; its buffer stays occupied while
	// copies do.
	f.Group = id
	if s.ungroup(f) {
		return s.dropMcast(p, f, reason)
	}
	s.pool.Put(f)
	return res
}

// dropMcast ends a packet of which no copy went anywhere.
func (s *Switch) dropMcast(p *link.Port, f *link.Frame, r link.Reason) Result {
	if r == link.OK {
		r = p.Count(link.NoMember) // the only port is the one it came in by
	}
	if f.InPort == 0 {
		return Result{Reason: r}
	}
	return s.discard(p, f, r)
}

// newGroup reports false when more packets are being multiplied than a frame
// can number, which takes a switch full of minimal multicast packets.
func (s *Switch) newGroup() (uint16, bool) {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id, true
	}
	if len(s.groups) > math.MaxUint16 {
		return 0, false
	}
	s.groups = append(s.groups, group{})
	return uint16(len(s.groups) - 1), true
}

// PollOut names a port to which a multicast packet was queued.
func (s *Switch) PollOut() (ib.PortNum, bool) { return s.outs.Pop() }
