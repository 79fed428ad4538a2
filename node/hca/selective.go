package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// Selective is how adapters recover from losses in a network that loses packets: Mittal et al., "Revisiting network
// support for RDMA" (IRN), SIGCOMM 2018. The responder keeps packets that come before their turn (early.go) and
// answers each by a NAK that names the PSN that it expects and the one that came. The requester sends again what is
// missing before one that came, and no other; and it has no more packets under way than Window. It is for SENDs and
// WRITEs. A lost response to a READ is asked for again with what follows it, as without.
type Selective struct {
	On bool
	// Window is how many packets may be without acknowledgement: as many as the longest way holds (BDP-FC).
	Window int
	// RTOLow is how long an acknowledgement is waited for while at most Few packets are without one, and RTOHigh while
	// more are: those may wait in queues, and a NAK tells of their loss (100 us, 3, 320 us).
	RTOLow, RTOHigh ib.Time
	Few             int
}

func (s *Selective) setDefaults() {
	if s.Window == 0 {
		s.Window = 128
	}
	s.Window = min(s.Window, selectiveBits/2)
	if s.RTOLow == 0 {
		s.RTOLow = 100 * ib.Microsecond
	}
	if s.RTOHigh == 0 {
		s.RTOHigh = 320 * ib.Microsecond
	}
	if s.Few == 0 {
		s.Few = 3
	}
}

// selectiveBits is how many PSNs ahead of the oldest are told apart.
const selectiveBits = 4096

// selective is what a requester knows of what has come and what is lost.
type selective struct {
	recovering bool
	aimed      bool    // the cursor is on a packet that is sent again
	astray     bool    // the cursor may be elsewhere than on the first packet that was never sent
	force      bool    // next is sent whatever is known of it
	next       ib.PSN  // what is missing before it was sent again
	until      ib.PSN  // recovery is over when all before it is acknowledged
	high       ib.PSN  // one past the highest PSN that has come out of turn
	base       ib.PSN  // the bitmap begins here
	since      ib.Time // when the timer was started
	some       bool    // some bit is set
	came       [selectiveBits / 64]uint64
}

// selects is the requester's part if the queue pair repeats selectively, else nil.
func (q *QP) selects() *selective {
	if q.roce == nil || !q.h.cfg.RoCE.Selective.On || !q.isRC() {
		return nil
	}
	return &q.roce.sel
}

// move lets the bitmap begin at psn.
func (s *selective) move(psn ib.PSN) {
	d := psn.Sub(s.base)
	if s.some && d > 0 {
		if d >= selectiveBits {
			clear(s.came[:])
		}
		for i := 0; i < min(d, selectiveBits); i++ {
			n := uint32(s.base.Add(i)) % selectiveBits
			s.came[n/64] &^= 1 << (n % 64)
		}
	}
	s.base = psn
	if !s.high.After(psn) {
		s.high, s.some = psn, false
	}
}

// note keeps that a packet has come out of turn.
func (s *selective) note(psn ib.PSN) {
	if d := psn.Sub(s.base); d < 0 || d >= selectiveBits {
		return
	}
	n := uint32(psn) % selectiveBits
	s.came[n/64] |= 1 << (n % 64)
	s.some = true
	if !psn.Before(s.high) {
		s.high = psn.Add(1)
	}
}

func (s *selective) has(psn ib.PSN) bool {
	if d := psn.Sub(s.base); d < 0 || d >= selectiveBits {
		return false
	}
	n := uint32(psn) % selectiveBits
	return s.came[n/64]>>(n%64)&1 != 0
}

// holder is the request that holds psn and is not done, and its place; nil if none does.
func (q *QP) holder(psn ib.PSN) (*sendWQE, uint32) {
	for i := q.sqOldest; i != q.sqNext; i++ {
		w := &q.sq[i&q.sqMask]
		if !w.started {
			break
		}
		if !w.done && w.kind != kindLocal && !psn.After(w.last()) {
			return w, i
		}
	}
	return nil, 0
}

// nextLost is the next packet to send again, if there is one: the one that recovery begins with, then all that have not
// come though later ones have. READs and atomics are sent again only if the responder asks for them, or nobody answers.
func (q *QP) nextLost(s *selective) (ib.PSN, bool) {
	s.move(q.ackPSN)
	if s.recovering && !q.ackPSN.Before(s.until) {
		s.recovering, s.force = false, false
	}
	if !s.recovering {
		return 0, false
	}
	if s.next.Before(q.ackPSN) {
		s.next, s.force = q.ackPSN, false
	}
	if s.force {
		return s.next, true
	}
	for psn := s.next; psn.Before(s.high); psn = psn.Add(1) {
		s.next = psn
		if s.has(psn) {
			continue
		}
		w, _ := q.holder(psn)
		if w == nil {
			return 0, false
		}
		if w.kind == kindSend || w.kind == kindWrite {
			return psn, true
		}
		psn = w.last()
	}
	return 0, false
}

// aim puts the cursor on what is to be sent next: a packet that is lost, else the first that was never sent.
func (q *QP) aim(s *selective) {
	if !s.recovering && !s.astray {
		return
	}
	psn, lost := q.nextLost(s)
	if !lost {
		psn = q.sentPSN
	}
	s.aimed, s.astray = lost, lost
	if w, i := q.holder(psn); w != nil {
		q.seek(i, psn)
		return
	}
	// All that was started was sent.
	for i := q.sqOldest; ; i++ {
		if i == q.sqNext || !q.sq[i&q.sqMask].started {
			q.sqCursor, q.sqPkt, q.seg, q.segOff = i, 0, 0, 0
			return
		}
	}
}

// recover begins to send again what is lost, with psn.
func (q *QP) recover(s *selective, psn ib.PSN) {
	s.recovering, s.force, s.next, s.until = true, true, psn, q.sentPSN
	q.aim(s)
	q.markReady()
}

// repeated notes that a request packet was sent, whose successor's PSN is end.
func (q *QP) repeated(s *selective, end ib.PSN) {
	if s.aimed {
		s.force = false
		s.next = end
	}
	q.aim(s)
}

// handleSelective handles a NAK of the PSN that the responder expects, and that tells which one has come.
func (q *QP) handleSelective(now ib.Time, s *selective, expected, came ib.PSN) {
	q.h.Stats.SeqNAKsRcvd++
	s.move(q.ackPSN)
	if came.After(expected) && came.Before(q.sentPSN) {
		s.note(came)
		if plantSack {
			expected = came
		}
	}
	before := q.ackPSN
	if !q.ackTo(now, expected.Add(-1)) {
		return
	}
	if q.state != StateRTS && q.state != StateSQD || !expected.Before(q.sentPSN) {
		return
	}
	if !s.recovering || !q.ackPSN.Before(s.until) {
		q.recover(s, expected)
		q.startAckTimer(now)
	} else if !expected.Before(s.next) && !s.force {
		s.next, s.force = expected, true
	}
	if q.ackPSN != before {
		q.progress(now)
	}
	q.aim(s)
	if q.sqCursor != q.sqNext {
		q.markReady()
	}
}

// mayGo reports whether the packet at the cursor is sent again or there is room for it in the window.
func (q *QP) mayGo(s *selective) bool {
	return s.aimed || q.sentPSN.Sub(q.ackPSN) < q.h.cfg.RoCE.Selective.Window
}

// selectiveWait is how long an acknowledgement is waited for.
func (q *QP) selectiveWait() ib.Time {
	c := &q.h.cfg.RoCE.Selective
	if q.sentPSN.Sub(q.ackPSN) <= c.Few {
		return c.RTOLow
	}
	return c.RTOHigh
}

// isEarlyTimeout reports whether the timer was started while few packets were under way, and more are by now: it is
// started anew for the rest of the longer time.
func (q *QP) isEarlyTimeout(now ib.Time) bool {
	s := q.selects()
	if s == nil || now >= s.since+q.selectiveWait() {
		return false
	}
	q.ackDue = s.since + q.selectiveWait()
	q.armTimer(q.ackDue)
	return true
}

// nakSelective answers a packet that came before its turn.
func (q *QP) nakSelective(p *wire.Packet, kept bool) {
	q.h.Stats.SeqNAKsSent++
	it := q.pushResp(respAck, q.ePSN)
	if it == nil {
		return // as good as lost: the requester's timer will tell it
	}
	it.syn, it.msn = wire.NAKSeq, uint32(q.ePSN)
	if kept {
		it.msn = uint32(p.BTH.PSN)
	}
}
