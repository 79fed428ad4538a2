package fabric

import (
	"softib/node/link"
	"softib/proto/ib"
)

// Ethernet in place of credits: pause frames on the cables, and the room that buffers keep for what is still on its way
// when one was sent.

func packPause(f link.PauseFrame) uint32 { return uint32(f.VL)<<16 | uint32(f.Quanta) }

func unpackPause(a uint32) link.PauseFrame {
	return link.PauseFrame{VL: ib.VL(a >> 16 & 15), Quanta: uint16(a)}
}

// pause tells a port's peer to stop if what has come has nearly filled a buffer.
func (e *Engine) pause(at uint32, p *link.Port) {
	if p.Flow() == link.Pause && p.WantsFC() {
		e.kickFC(at)
	}
}

// sendPauses puts the pause frames that are due on the cable.
func (e *Engine) sendPauses(at uint32, p *link.Port) {
	for p.WantsFC() {
		f, t, ok := p.PollPause(e.now)
		if !ok {
			break
		}
		if p.Site.Flags&endFaulty != 0 && e.harmFC(at, p, &t) || p.Site.Peer == NoEnd {
			continue
		}
		e.pushFar(p, t+p.Site.Delay, code(evPause, p.Site.Peer, packPause(f)))
	}
	e.armPause(at, p)
}

// arrivePause handles a pause frame that has reached a port.
func (e *Engine) arrivePause(at, arg uint32) {
	p := e.ports[at]
	if p.Site.Flags&endStopped != 0 {
		return
	}
	e.Mix(at, uint64(evPause)<<56|uint64(arg))
	if p.HandlePause(e.now, unpackPause(arg)) {
		e.kick(at)
	}
	e.armPause(at, p)
}

// armPause makes sure that what pauses have to be done with time will be.
func (e *Engine) armPause(at uint32, p *link.Port) {
	if t, ok := p.ArmPause(); ok {
		e.q.push(max(t, e.now), code(evPauseTimer, at, 0))
	}
}

func (e *Engine) pauseTimeout(at uint32) {
	p := e.ports[at]
	if p.Site.Flags&endStopped != 0 {
		return
	}
	if p.HandlePauseTimer(e.now) {
		e.flush(at, p)
		e.kick(at)
	}
	e.armPause(at, p)
}

// Break makes a port pause its peer for ever.
func (e *Engine) Break(at uint32, vl ib.VL) {
	e.ports[at].Break(vl)
	e.kick(at)
}

// makeHeadroom sizes the receive buffers at both ends of a node's cables.
func (e *Engine) makeHeadroom(ports []*link.Port) {
	for _, p := range ports {
		if p.Flow() == link.Pause && p.Site.Peer != NoEnd {
			q := e.ports[p.Site.Peer]
			p.SetHeadroom(headroom(p, q))
			q.SetHeadroom(headroom(q, p))
		}
	}
}

// headroom is how many bytes may come to p after its buffer has passed the threshold. A packet may just have begun to
// leave p, so that the pause frames of all lanes wait for it; they take the way to the peer, which may just have begun
// a packet; and what the peer has sent by then takes the way back. A packet counts when its last byte comes where the
// node waits for that, so that one more may be on its way.
func headroom(p, q *link.Port) int {
	mbps := p.Rate().Mbps()
	flight := p.Site.Delay + q.Site.Delay
	bytes := int(flight*ib.Time(mbps)/8_000_000) + 1
	return bytes + 3*p.LongestFrame() + int(p.VLCap())*link.PauseBytes
}
