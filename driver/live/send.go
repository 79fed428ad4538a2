package live

import (
	"sync"

	"softib/node/hca"
	"softib/proto/ib"
)

// send puts packets on their way as long as there is room for them.
func (h *Host) send() {
	s, ok := h.eng.NextSend()
	if !ok {
		return
	}
	if h.buf == nil {
		h.buf = make([]byte, bufBytes)
	}
	now := h.about()
	epoch := h.f.epoch.Load()
	for ; ok; s, ok = h.eng.NextSend() {
		if s.Loopback {
			if h.eng.Emit(now, s, &h.scratch, h.buf) {
				h.eng.HandlePacket(now, s.Port, &h.scratch)
			}
			continue
		}
		rt := h.routeFor(s, epoch)
		switch len(rt.rings) {
		case 1:
			r := rt.rings[0]
			c := r.reserve()
			if c == nil {
				h.park(r, s)
				continue
			}
			if !h.eng.Emit(now, s, &h.scratch, c.copyTo(s.Copied, h.buf)) {
				continue
			}
			c.put(&h.scratch, h.buf)
			rt.pkts++
			rt.words += uint64(h.scratch.LRH.Length)
			if !h.owes {
				h.owe()
			}
			r.publish(c)
			if !r.dst.attended.Load() {
				r.dst.ring()
			}
		case 0:
			if h.eng.Emit(now, s, &h.scratch, h.buf) {
				h.vanish(rt)
			}
		default:
			h.sendMany(now, s, rt)
		}
	}
}

// sendMany copies a multicast packet to every ring of its route.
func (h *Host) sendMany(now ib.Time, s hca.Send, rt *route) {
	for _, r := range rt.rings {
		if !r.room() {
			h.park(r, s)
			return
		}
	}
	if !h.eng.Emit(now, s, &h.scratch, h.buf) {
		return
	}
	rt.pkts++
	rt.words += uint64(h.scratch.LRH.Length)
	if !h.owes {
		h.owe()
	}
	for _, r := range rt.rings {
		c := r.reserve()
		c.put(&h.scratch, h.buf)
		r.publish(c)
		if !r.dst.attended.Load() {
			r.dst.ring()
		}
	}
}

// vanish counts a packet that has no way.
func (h *Host) vanish(rt *route) {
	rt.pkts++
	rt.words += uint64(h.scratch.LRH.Length)
	if !h.owes {
		h.owe()
	}
	if rt.lost != nil {
		h.f.mu.Lock()
		rt.countLost(1)
		h.f.mu.Unlock()
	}
}

// routeFor is the way of the next packet of a queue pair.
func (h *Host) routeFor(s hca.Send, epoch uint64) *route {
	rt, ok := s.QP.Owner.(*route)
	if ok && rt.epoch == epoch && rt.key.dlid == s.DLID && rt.key.sl == s.SL && rt.key.pkey == s.PKey &&
		rt.key.port == s.Port {
		return rt
	}
	key := routeKey{s.Port, s.DLID, s.SL, s.PKey}
	rt = h.routes[key]
	if rt == nil || rt.epoch != epoch {
		h.f.mu.Lock()
		if rt != nil {
			rt.attribute()
		}
		rt = h.f.resolve(h, key)
		h.f.mu.Unlock()
		h.routes[key] = rt
	}
	s.QP.Owner = rt
	return rt
}

// attribute adds the route's traffic to the ports on its way. The fabric's
// lock is held.
func (rt *route) attribute() {
	for _, hp := range rt.hops {
		c := hp.p.counters()
		pkts, data, uni, multi := ib.PortRcvPkts, ib.PortRcvData, ib.PortUnicastRcvPkts, ib.PortMulticastRcvPkts
		if hp.out {
			pkts, data, uni, multi = ib.PortXmitPkts, ib.PortXmitData, ib.PortUnicastXmitPkts, ib.PortMulticastXmitPkts
		}
		c[pkts] += rt.pkts
		c[data] += rt.words
		hp.p.countLane(hp.out, hp.vl, rt.key.sl, rt.pkts, rt.words)
		if rt.key.dlid.IsMulticast() {
			c[multi] += rt.pkts
		} else {
			c[uni] += rt.pkts
		}
	}
	rt.pkts, rt.words = 0, 0
}

// settle attributes what the host has sent so far.
func (h *Host) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.owes = false
	for _, rt := range h.routes {
		rt.attribute()
	}
}

// debtors are the hosts that have sent something since they were settled. Performance management is asked port by port,
// and most hosts of a large fabric send nothing in between.
type debtors struct {
	settling sync.Mutex // held until all are settled: who asks meanwhile waits for it
	mu       sync.Mutex // guards the list; taken after all others
	list     []*Host
}

// owe notes that the host has sent something. Its lock is held.
func (h *Host) owe() {
	h.owes = true
	d := &h.f.debtors
	d.mu.Lock()
	d.list = append(d.list, h)
	d.mu.Unlock()
}

// settleHosts attributes what all hosts have sent so far. No lock of the fabric or of a host is held.
func (f *Fabric) settleHosts() {
	d := &f.debtors
	d.settling.Lock()
	defer d.settling.Unlock()
	d.mu.Lock()
	list := d.list
	d.list = nil
	d.mu.Unlock()
	for _, h := range list {
		h.settle()
	}
}

// park keeps a queue pair until a ring has room again.
func (h *Host) park(r *ring, s hca.Send) {
	h.eng.Park(s)
	if len(r.parked) == 0 {
		h.waiting++
	}
	r.parked = append(r.parked, s.QP)
	r.wants.Store(true)
	if r.room() { // it came while we were asking
		h.unparkRing(r)
	}
}

func (h *Host) unpark() {
	for _, r := range h.outRings {
		if len(r.parked) > 0 && r.room() {
			h.unparkRing(r)
		}
	}
}

func (h *Host) unparkRing(r *ring) {
	r.wants.Store(false)
	for _, q := range r.parked {
		h.eng.Unpark(q)
	}
	clear(r.parked)
	r.parked = r.parked[:0]
	h.waiting--
}
