package link

import (
	"math/bits"

	"softib/proto/ib"
)

// Enqueue takes a packet to be sent on lane vl. After OK the port is to be polled;
// Behind is as good, but the packet stands behind another of its lane, so that
// there is nothing new to poll for. Anything else is a drop that has been
// counted; the frame is the caller's again.
func (p *Port) Enqueue(now ib.Time, f *Frame, vl ib.VL) Reason {
	if p.Sends(vl) != OK {
		return p.Count(Inactive)
	}
	if f.LRH.Length > p.txWords {
		return p.Count(NeighborMTU)
	}
	if p.has(flagWatched) {
		if p.cold.stalled>>vl&1 != 0 {
			if now < p.cold.stallUntil[vl] {
				return p.Count(VLStalled)
			}
			p.unstall(int(vl))
		}
		if p.flow != Credits {
			if r := p.join(f, vl); r != OK {
				return p.Count(r)
			}
		}
		p.mark(now, f, vl)
	}
	f.LRH.VL = vl
	tx := p.tx(int(vl))
	tx.n++
	f.next = nil
	if tx.q.head != nil {
		tx.q.tail.next = f
		tx.q.tail = f
		return Behind
	}
	tx.q.head, tx.q.tail = f, f
	tx.headSince = now
	p.queued |= 1 << vl
	return OK
}

// Sends is what Enqueue says of a packet on lane vl for the port's state and lanes alone. It counts nothing.
func (p *Port) Sends(vl ib.VL) Reason {
	if p.state != ib.PortActive && (vl != ib.VLMgmt || p.state < ib.PortInit) || p.oper>>(vl&15)&1 == 0 {
		return Inactive
	}
	return OK
}

// Depart is the lane of a packet that the port's own node sends, or why it does not leave: the link is not Active, or
// the level has no lane (IBA 7.6.6). It counts nothing.
func (p *Port) Depart(sl ib.SL) (ib.VL, Reason) {
	vl := p.SL2VL(sl)
	switch {
	case p.state != ib.PortActive:
		return vl, Inactive
	case vl >= ib.VLMgmt || !p.IsOperVL(vl):
		return vl, BadVLMap
	}
	return vl, OK
}

// Queued counts the packets that wait on a lane.
func (p *Port) Queued(vl ib.VL) int { return int(p.tx(int(vl & 15)).n) }

// Backlog is what a packet for lane vl would wait for: twice the packets of that lane that wait, and one for a packet
// that is being sent.
func (p *Port) Backlog(now ib.Time, vl ib.VL) int {
	n := 2 * p.Queued(vl)
	if p.busyUntil > now {
		n++
	}
	return n
}

// Pending reports whether there is anything that the transmitter could do
// once it is free, credits permitting.
func (p *Port) Pending() bool { return p.queued|p.fcNeed != 0 }

// BusyUntil is when the transmitter is free.
func (p *Port) BusyUntil() ib.Time { return p.busyUntil }

// Occupy is for a driver that keeps the time of its cables itself: the transmitter is
// free at t, whatever the link's rate says.
func (p *Port) Occupy(t ib.Time) { p.busyUntil, p.burstAt = t, -1 }

// popHead takes the first packet of a lane, or nil.
func (p *Port) popHead(now ib.Time, vl int) *Frame {
	tx := p.tx(vl)
	f := tx.q.head
	if f == nil {
		return nil
	}
	tx.q.head = f.next
	tx.n--
	if p.flow != Credits {
		p.cold.eth.lanes[vl].queued -= uint32(f.Blocks)
	}
	tx.headSince = now
	if tx.q.head == nil {
		p.queued &^= 1 << vl
	}
	f.next = nil
	return f
}

// PollTx starts sending the packet that arbitration chooses among those that have
// credit. It is on the wire from start to start+dur; the transmitter is
// busy until then. nil means that nothing can be sent now.
func (p *Port) PollTx(now ib.Time) (f *Frame, start, dur ib.Time) {
	if p.queued == 0 || now < p.busyUntil && p.burstAt != now {
		return nil, 0, 0
	}
	var vl int
	if p.queued>>ib.VLMgmt != 0 {
		vl = int(ib.VLMgmt) // before all others and without credit (IBA 7.6.9)
	} else {
		can := p.queued
		for m := can; m != 0 && p.flow == Credits; m &= m - 1 {
			i := bits.TrailingZeros16(m)
			tx := p.tx(i)
			if !maySend(tx.fccl, tx.fctbs, tx.q.head.Blocks) {
				can &^= 1 << i
			}
		}
		if p.flow == Pause {
			can &^= p.cold.eth.paused
		}
		if can != p.queued || p.has(flagsLacking) {
			p.noteLacking(now, can)
		}
		switch {
		case can == 0:
			if !p.has(flagWaiting) {
				p.flags |= flagWaiting
				p.waitSince = now
			}
			return nil, 0, 0
		case p.queued&(p.queued-1) == 0:
			vl = bits.TrailingZeros16(can) // nothing to arbitrate
		default:
			vl = int(p.cold.arb.pick(can, p))
		}
	}
	if p.has(flagWaiting) {
		p.stopWait(now)
	}
	f = p.popHead(now, vl)
	l := p.lane(vl)
	tx := &l.tx
	if l.rx.txSL != f.LRH.SL {
		p.relevel(vl, f.LRH.SL, l.rx.sl)
	}
	tx.pkts++
	if tx.words += uint32(f.LRH.Length); tx.words >= foldAt {
		p.fold(vl)
	}
	if vl != int(ib.VLMgmt) {
		tx.fctbs = (tx.fctbs + uint16(f.Blocks)) & fcMask
	}
	if f.LRH.DLID >= ib.LIDMulticastMin && f.LRH.DLID.IsMulticast() {
		p.cold.mcastTx++
	}
	if p.has(flagWatched) {
		p.cold.expired[vl] = 0
		if k := p.cold.marks; k != nil {
			k.relieve(now, vl, tx.n)
		}
	}
	start = max(now, p.busyUntil)
	dur = p.byteTime(f.Bytes)
	p.busyUntil, p.burstAt = start+dur, -1
	return f, start, dur
}

// noteLacking keeps the clocks of lanes whose head has no credit.
func (p *Port) noteLacking(now ib.Time, can uint16) {
	lacks := p.queued &^ can &^ (1 << ib.VLMgmt)
	for m := lacks ^ p.lacking; m != 0; m &= m - 1 {
		t := p.total(bits.TrailingZeros16(m))
		if lacks&m&-m != 0 {
			t.waitSince = now
		} else {
			t.waited += now - t.waitSince
		}
	}
	p.lacking = lacks
	p.set(flagsLacking, lacks != 0)
}

func (p *Port) stopWait(now ib.Time) {
	if p.has(flagWaiting) {
		p.flags &^= flagWaiting
		p.cold.waited += now - p.waitSince
	}
}

// Blocked reports whether packets are queued and none of them has credit.
func (p *Port) Blocked() bool { return p.has(flagWaiting) }

// drop counts a queued packet that will not be sent and hands it to PollDropped.
func (p *Port) drop(f *Frame, r Reason) {
	p.Count(r)
	p.cold.dropped.Push(Drop{f, r})
}

// Drop is a packet that a port has given up.
type Drop struct {
	Frame  *Frame
	Reason Reason
}

// PollDropped hands out the packets that expired or were flushed, one by
// one. The caller releases the receive buffers that they occupy.
func (p *Port) PollDropped() (Drop, bool) { return p.cold.dropped.Pop() }

// NextDeadline is when HandleTimeout wants to be called: a life time that expires
// or the flow-control refresh.
func (p *Port) NextDeadline() ib.Time { return ib.Earlier(p.NextExpiry(), p.NextRefresh()) }

// NextRefresh is when credits are told anew; Never while the refresh timer is off.
func (p *Port) NextRefresh() ib.Time {
	if p.has(flagRefresh) && p.state >= ib.PortInit {
		return p.cold.refreshAt
	}
	return ib.Never
}

// NextExpiry is when the first queued packet has lived too long.
func (p *Port) NextExpiry() ib.Time {
	t := ib.Never
	if !p.has(flagWatched) {
		return t
	}
	for m := p.queued &^ (1 << ib.VLMgmt); m != 0; m &= m - 1 {
		t = ib.Earlier(t, p.expiry(bits.TrailingZeros16(m)))
	}
	return t
}

// expiry is when the head packet of a lane has lived too long.
func (p *Port) expiry(vl int) ib.Time {
	tx := p.tx(vl)
	t := ib.Never
	if p.cold.hoqLife != ib.Never {
		t = tx.headSince + p.cold.hoqLife
	}
	if p.cold.switchLife != ib.Never {
		t = ib.Earlier(t, tx.q.head.Arrived+p.cold.switchLife)
	}
	return t
}

// HandleTimeout drops packets whose time is over and renews credits when that is
// due. A lane whose packets expired VLStallCount times in a row, with none
// sent between, is stalled for eight life times: what it holds and what comes
// to it is discarded (IBA 18.2.5.4).
func (p *Port) HandleTimeout(now ib.Time) {
	if p.has(flagRefresh) && p.state >= ib.PortInit && now >= p.cold.refreshAt {
		p.refreshNow(now)
	}
	if !p.has(flagWatched) {
		return
	}
	for m := p.queued &^ (1 << ib.VLMgmt); m != 0; m &= m - 1 {
		vl := bits.TrailingZeros16(m)
		tx := p.tx(vl)
		for tx.q.head != nil && now >= p.expiry(vl) {
			reason := SwitchLife
			if p.cold.hoqLife != ib.Never && now >= tx.headSince+p.cold.hoqLife {
				reason = HOQLife
			}
			p.drop(p.popHead(now, vl), reason)
			if reason != HOQLife || p.cold.stallCount == 0 {
				continue
			}
			if p.cold.expired[vl]++; p.cold.expired[vl] >= p.cold.stallCount {
				p.stall(now, vl)
			}
		}
	}
	if p.queued == 0 {
		p.stopWait(now)
		p.noteLacking(now, 0)
	}
}

func (p *Port) stall(now ib.Time, vl int) {
	p.cold.expired[vl] = 0
	p.cold.stalled |= 1 << vl
	if p.cold.stallUntil == nil {
		p.cold.stallUntil = new([ib.NumVL]ib.Time)
	}
	p.cold.stallUntil[vl] = now + 8*p.cold.hoqLife
	for f := p.popHead(now, vl); f != nil; f = p.popHead(now, vl) {
		p.drop(f, VLStalled)
	}
}

func (p *Port) unstall(vl int) { p.cold.stalled &^= 1 << vl }
