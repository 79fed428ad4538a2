package link

import (
	"math/bits"

	"softib/proto/ib"
)

// PauseFrame tells the peer to stop a priority, or with 0 Quanta to go on. A frame of 802.1Qbb may speak of eight
// priorities; this one speaks of one.
type PauseFrame struct {
	VL     ib.VL
	Quanta uint16 // for how long, in units of 512 bit times
}

// stopPeer has the peer told to stop, since the buffer of a lane is nearly full.
func (p *Port) stopPeer(vl ib.VL) {
	e := p.cold.eth
	e.count.Most = max(e.count.Most, p.rx(int(vl)).occ)
	if e.pausing>>vl&1 == 0 {
		e.pausing |= 1 << vl
		p.fcNeed |= 1 << vl
	}
}

// letPeer has the peer told to go on, if it was stopped and there is room again. It reports whether there is something
// to tell.
func (p *Port) letPeer(vl ib.VL, rx *rxVL) bool {
	e := p.cold.eth
	if e.pausing>>vl&1 == 0 || rx.occ > e.xon || e.broken>>vl&1 != 0 {
		return false
	}
	e.pausing &^= 1 << vl
	p.fcNeed |= 1 << vl
	return true
}

// Break makes the port tell its peer to stop a lane for ever, as adapters have done whose receivers hung (Guo et al.,
// "RDMA over commodity Ethernet at scale", SIGCOMM 2016, 4.3).
func (p *Port) Break(vl ib.VL) {
	if p.flow == Credits {
		return
	}
	e := p.cold.eth
	e.broken |= 1 << vl
	e.pausing |= 1 << vl
	p.fcNeed |= 1 << vl
}

// quanta is how long so many quanta last.
func (p *Port) quanta(n uint16) ib.Time {
	if p.mbps == 0 {
		return ib.Never
	}
	return ib.Time(n) * 512 * 1_000_000 / ib.Time(p.mbps)
}

// PollPause sends a pause frame if a lane wants one; at is when its last byte leaves. Several may follow one another at
// the same now, and then one PollTx.
func (p *Port) PollPause(now ib.Time) (f PauseFrame, at ib.Time, ok bool) {
	if p.fcNeed == 0 || p.state < ib.PortInit || now < p.busyUntil && p.burstAt != now {
		return PauseFrame{}, 0, false
	}
	vl := bits.TrailingZeros16(p.fcNeed)
	p.fcNeed &= p.fcNeed - 1
	e := p.cold.eth
	f.VL = ib.VL(vl)
	p.busyUntil, p.burstAt = max(now, p.busyUntil)+ib.Time(p.fcDur), now
	if e.pausing>>vl&1 != 0 {
		f.Quanta = e.Quanta
		// It is renewed when half of it is over, so that one that is lost does no harm.
		e.lanes[vl].refreshAt = p.busyUntil + p.quanta(e.Quanta)/2
	}
	e.count.Sent++
	p.fcSent++
	return f, p.busyUntil, true
}

// HandlePause takes a pause frame. It reports whether the port may have something to send because of it.
func (p *Port) HandlePause(now ib.Time, f PauseFrame) bool {
	if p.state < ib.PortInit || p.flow != Pause || p.oper>>f.VL&1 == 0 {
		return false
	}
	e := p.cold.eth
	e.count.Rcvd++
	p.lane(int(f.VL)).fcRcvd++
	l := &e.lanes[f.VL]
	switch {
	case f.Quanta == 0:
		return p.goOn(now, int(f.VL))
	case e.ignoring>>f.VL&1 != 0:
		l.heard = true
		return false
	case e.paused>>f.VL&1 == 0:
		e.paused |= 1 << f.VL
		l.since = now
	}
	l.until = now + p.quanta(f.Quanta)
	return false
}

// goOn ends a pause. It reports whether there is something to send.
func (p *Port) goOn(now ib.Time, vl int) bool {
	e := p.cold.eth
	if e.paused>>vl&1 == 0 {
		return false
	}
	e.paused &^= 1 << vl
	e.count.Paused += now - e.lanes[vl].since
	return p.queued>>vl&1 != 0
}

// NextPause is when HandlePauseTimer wants to be called: pauses end, are told again, or have lasted too long.
func (p *Port) NextPause() ib.Time {
	if p.flow != Pause || p.state < ib.PortInit {
		return ib.Never
	}
	e := p.cold.eth
	t := ib.Never
	for m := (e.pausing | e.paused | e.ignoring) &^ p.fcNeed; m != 0; m &= m - 1 {
		vl := bits.TrailingZeros16(m)
		l := &e.lanes[vl]
		if e.pausing>>vl&1 != 0 {
			t = min(t, l.refreshAt)
		}
		if e.paused>>vl&1 != 0 {
			t = min(t, l.until)
			if e.Watchdog > 0 {
				t = min(t, l.since+e.Watchdog)
			}
		}
		if e.ignoring>>vl&1 != 0 {
			t = min(t, l.ignoreTo)
		}
	}
	return t
}

// ArmPause is NextPause for a driver that keeps one event for it: false if the one that it has is early enough.
func (p *Port) ArmPause() (ib.Time, bool) {
	t := p.NextPause()
	if t >= p.cold.eth.timerAt {
		return t, false
	}
	p.cold.eth.timerAt = t
	return t, true
}

// HandlePauseTimer does what is due at now. It reports whether the port may have something to send or has given
// something up.
func (p *Port) HandlePauseTimer(now ib.Time) bool {
	e := p.cold.eth
	if e.timerAt > now {
		return false // an earlier one has done it
	}
	e.timerAt = ib.Never
	if p.state < ib.PortInit {
		return false
	}
	did := false
	for m := e.pausing | e.paused | e.ignoring; m != 0; m &= m - 1 {
		vl := bits.TrailingZeros16(m)
		l := &e.lanes[vl]
		if e.pausing>>vl&1 != 0 && now >= l.refreshAt {
			p.fcNeed |= 1 << vl
			did = true
		}
		if e.paused>>vl&1 != 0 {
			switch {
			case e.Watchdog > 0 && now >= l.since+e.Watchdog:
				p.giveUp(now, vl)
				did = true
			case now >= l.until:
				did = p.goOn(now, vl) || did
			}
		}
		if e.ignoring>>vl&1 != 0 && now >= l.ignoreTo {
			p.lookAgain(now, vl)
		}
	}
	return did
}

// giveUp takes the peer for broken: what waits for it is dropped, so that it stops nobody else.
func (p *Port) giveUp(now ib.Time, vl int) {
	e := p.cold.eth
	p.goOn(now, vl)
	e.ignoring |= 1 << vl
	e.count.Storms++
	e.lanes[vl].ignoreTo, e.lanes[vl].heard = now+p.restore(), false
	for f := p.popHead(now, vl); f != nil; f = p.popHead(now, vl) {
		p.drop(f, PauseStorm)
	}
	p.stopWait(now)
	p.noteLacking(now, p.queued)
}

// restore is for how long no pause may come from a peer that is no longer broken: at least for as long as one lasts,
// since that is how often they are renewed.
func (p *Port) restore() ib.Time { return max(p.cold.eth.Restore, p.quanta(defaultQuanta)) }

// lookAgain ends the watchdog's doing if the peer has not paused for a while.
func (p *Port) lookAgain(now ib.Time, vl int) {
	e := p.cold.eth
	l := &e.lanes[vl]
	if l.heard {
		l.heard, l.ignoreTo = false, now+p.restore()
		return
	}
	e.ignoring &^= 1 << vl
	e.count.Restored++
}
