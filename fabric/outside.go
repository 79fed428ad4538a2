package fabric

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Crossing is a packet, or a flow-control packet, that has left by a cable which ends outside.
type Crossing struct {
	// At is the port that it left by.
	At uint32
	// Start is when its first byte left, faults included, and Took how long it was until the last.
	Start, Took ib.Time
	// Frame is the packet, the driver's from now on; nil for flow control, which is FC.
	Frame *link.Frame
	FC    wire.LinkPacket
}

// outside is what the engine keeps of cables that end outside.
type outside struct {
	gates map[uint32]gate
	out   ib.Queue[Crossing]
}

// gate is what Retime has found for what comes in by a cable from outside: how long it takes besides, and whether it
// counts as arrived with its last byte.
type gate struct {
	delay ib.Time
	tail  bool
	told  uint64 // what rested has seen
}

// JoinOutside puts a cable at a port whose far end is elsewhere, on which light takes so long. Its link is brought up
// by StartTraining and LinkUp, like any other; the far end's driver does the same there.
func (e *Engine) JoinOutside(at uint32, length ib.Time) {
	if e.outside.gates == nil {
		e.outside.gates = map[uint32]gate{}
	}
	e.ports[at].Site.Flags |= endOutside
	e.plug(at, length)
	e.ports[at].Site.Flags &^= endFresh // the far end cannot be asked to begin
	e.used = append(e.used, at)
	e.outside.gates[at] = gate{delay: length, tail: true}
}

// outsideRefresh is how far apart credits are told anew over a cable that takes no time by itself and ends outside,
// while something moves there.
const outsideRefresh = 2 * ib.Millisecond

// moved notes that something has gone over a cable that ends outside. Nothing is lost on it, but its far end may have
// refused a packet that was sent before it was ready, and counted it as little as it would one that got lost. Whether
// it has cannot be seen from here, so that credits are told once more after the last packet.
func (e *Engine) moved(at uint32) {
	if p := e.ports[at]; e.cfg.Instant && !p.Refreshing() {
		p.SetRefresh(e.now, true)
		p.Site.Flags |= endRefresh
		e.q.push(e.now+outsideRefresh, code(evRefresh, at, 0))
	}
}

// rested reports whether nothing has moved at the end of a cable to the outside since it was last asked.
func (e *Engine) rested(at uint32) bool {
	g, sum := e.outside.gates[at], uint64(0)
	for vl := ib.VL(0); vl < ib.VLMgmt; vl++ {
		c := e.ports[at].Credit(vl)
		sum += uint64(c.FCTBS) + uint64(c.ABR)
	}
	was := g.told
	g.told = sum
	e.outside.gates[at] = g
	return was == sum
}

// cross puts what leaves by a cable that ends outside where PollOutside finds it.
//
//go:noinline
func (e *Engine) cross(at uint32, start, took ib.Time, f *link.Frame, fc wire.LinkPacket) {
	e.outside.out.Push(Crossing{At: at, Start: start, Took: took, Frame: f, FC: fc})
	if f != nil {
		e.moved(at)
	}
}

// PollOutside is the next packet that has left by a cable which ends outside.
func (e *Engine) PollOutside() (Crossing, bool) { return e.outside.out.Pop() }

// HandleOutside takes in what has come to a port from outside: c is as it left the far end, with a frame of this
// engine's pool. It arrives when the cable and the node have had their time, which must not be over.
func (e *Engine) HandleOutside(at uint32, c Crossing) {
	g := e.outside.gates[at]
	t := c.Start + g.delay
	if c.Frame == nil {
		e.q.push(max(t, e.now), code(evFC, at, packFC(c.FC)))
		return
	}
	if g.tail {
		t += c.Took
	}
	e.moved(at)
	e.q.push(max(t, e.now), code(evArrive, at, c.Frame.Index()))
}
