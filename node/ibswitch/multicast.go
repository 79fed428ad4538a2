package ibswitch

import (
	"softib/node/link"
	"softib/proto/ib"
)

// multicast queues a copy of f at each of its ways out. The last copy is f itself.
func (s *Switch) multicast(now ib.Time, f *link.Frame) Result {
	mask, why := s.Fan(f.InPort, f.LRH.DLID)
	if why != link.OK {
		return s.drop(f, drop(why, f.InPort))
	}
	id, ok := s.copies.Begin()
	if !ok {
		return s.drop(f, drop(link.Overrun, f.InPort))
	}
	reason := link.OK
	res := Result{}
	for out, ok := mask.Pop(); ok; out, ok = mask.Pop() {
		d := Decision{}
		if out != 0 {
			d = s.Leave(f.InPort, out, f)
		}
		if d.Reason != link.OK {
			s.refuse(d.At, f, d.Reason)
			reason = s.ports[d.At].Count(d.Reason)
			continue
		}
		c := s.pool.Get()
		c.CopyFrom(f)
		c.Group = id
		if out == 0 {
			s.mgmt.Push(c)
			s.copies.Add(id)
			res.Mgmt = true
			continue
		}
		if r := s.ports[out].Enqueue(now, c, d.VL); r.IsDrop() {
			reason = r
			s.pool.Put(c)
			continue
		}
		s.copies.Add(id)
		s.outs.Set(out)
		res.Multicast = true
	}
	// The original is not needed any more; its buffer stays occupied while
	// copies do.
	f.Group = id
	if s.copies.End(f) {
		return s.discard(f, reason)
	}
	s.pool.Put(f)
	return res
}

// PollOut names a port to which a multicast packet was queued.
func (s *Switch) PollOut() (ib.PortNum, bool) { return s.outs.Pop() }
