package link

import (
	"math/bits"

	"softib/proto/ib"
	"softib/proto/wire"
)

// symbolsPerRefresh is the longest silence between two flow-control packets of one
// lane, in symbol times (IBA 7.9.4.2).
const symbolsPerRefresh = 65536

// RefreshInterval is how often credits are told anew, whether or not they changed:
// what a lost packet took is given back by then. A symbol is a byte of
// one physical lane.
func (p *Port) RefreshInterval() ib.Time {
	return ib.LinkRate{Width: ib.Width1x, Speed: p.cold.cfg.Rate.Speed}.ByteTime(symbolsPerRefresh)
}

// SetRefresh turns the refresh timer on or off. A driver that knows that
// nothing was lost on the cable may leave it off: a refresh would tell
// the peer what it knows.
func (p *Port) SetRefresh(now ib.Time, on bool) {
	p.set(flagRefresh, on && p.flow == Credits)
	p.cold.refreshAt = now + p.RefreshInterval()
}

// Refreshing reports whether the refresh timer is on.
func (p *Port) Refreshing() bool { return p.has(flagRefresh) }

func (p *Port) refreshNow(now ib.Time) {
	p.fcNeed = p.oper &^ (1 << ib.VLMgmt)
	p.cold.refreshAt = now + p.RefreshInterval()
}

// WantsFC reports whether PollFC has something to send.
func (p *Port) WantsFC() bool { return p.fcNeed != 0 }

// PollFC sends a flow-control packet if a lane wants one; at is when its
// last byte leaves. Several may follow one another at the same now, and
// then one PollTx.
func (p *Port) PollFC(now ib.Time) (fc wire.LinkPacket, at ib.Time, ok bool) {
	if p.fcNeed == 0 || now < p.busyUntil && p.burstAt != now {
		return wire.LinkPacket{}, 0, false
	}
	vl := bits.TrailingZeros16(p.fcNeed)
	p.fcNeed &= p.fcNeed - 1
	l := p.lane(vl)
	rx := &l.rx
	rx.adv = limit(rx.abr, rx.size-rx.occ)
	fc = wire.LinkPacket{VL: ib.VL(vl), FCTBS: l.tx.fctbs, FCCL: rx.adv}
	if p.state == ib.PortInit {
		fc.Op = wire.LinkInit
	}
	p.busyUntil, p.burstAt = max(now, p.busyUntil)+ib.Time(p.fcDur), now
	p.fcSent++
	return fc, p.busyUntil, true
}

// HandleFC takes a flow-control packet. It reports whether the port may have
// something to send because of it.
//
// The peer's count of what it sent replaces what was counted here, so that
// the credits of packets lost on the way return (IBA 7.9.4.4).
func (p *Port) HandleFC(now ib.Time, fc wire.LinkPacket) bool {
	if p.state < ib.PortInit || p.flow != Credits {
		return false
	}
	if fc.Op > wire.LinkInit || fc.VL >= ib.VLMgmt || p.oper>>fc.VL&1 == 0 {
		p.Count(Malformed)
		return false
	}
	p.overrunsRun = 0
	l := p.lane(int(fc.VL))
	tx, rx := &l.tx, &l.rx
	l.fcRcvd++
	tx.fccl = fc.FCCL & fcMask
	told := false
	if rx.abr != fc.FCTBS {
		rx.abr = fc.FCTBS & fcMask
		told = p.wantFC(fc.VL, rx)
	}
	return told || p.queued>>fc.VL&1 != 0
}

// Credit is one lane's flow-control state, for a check that credits are
// conserved.
type Credit struct {
	// Sender's side: blocks sent and the peer's limit, modulo 4096.
	FCTBS, FCCL uint16
	// Receiver's side: blocks received, limit last advertised, both modulo
	// 4096; size and occupancy of the buffer.
	ABR, Advertised uint16
	Size, Occupied  uint16
}

// Credit reads a lane's state.
func (p *Port) Credit(vl ib.VL) Credit {
	tx, rx := p.tx(int(vl&15)), p.rx(int(vl&15))
	return Credit{tx.fctbs, tx.fccl, rx.abr, rx.adv, rx.size, rx.occ}
}

// Available is how many blocks the lane may send now.
func (c Credit) Available() int {
	if d := (c.FCCL - c.FCTBS) & fcMask; d <= fcHalf {
		return int(d)
	}
	return 0
}

// Limit is the limit that the receiver would advertise now.
func (c Credit) Limit() uint16 { return limit(c.ABR, c.Size-c.Occupied) }

// AppendQueued lists the packets queued to be sent, for a check that counts
// them.
func (p *Port) AppendQueued(list []*Frame) []*Frame {
	for m := p.queued; m != 0; m &= m - 1 {
		for f := p.tx(bits.TrailingZeros16(m)).q.head; f != nil; f = f.next {
			list = append(list, f)
		}
	}
	return list
}

// TouchRx reads what Receive and Release will read for a lane; see
// ibswitch.Switch.Touch.
func (p *Port) TouchRx(vl ib.VL) uint64 { return uint64(p.rx(int(vl&15)).occ) + uint64(p.state) }

// TouchTx reads what Enqueue and PollTx will read for a lane.
func (p *Port) TouchTx(vl ib.VL) uint64 { return uint64(p.tx(int(vl&15)).n) + uint64(p.queued) }

// TouchHead reads what PollTx will read when the transmitter is free: the lane that
// has something to send, and the packet at its head.
func (p *Port) TouchHead() uint64 {
	if p.queued == 0 {
		return 0
	}
	return uint64(p.tx(bits.TrailingZeros16(p.queued)).q.head.Blocks)
}
