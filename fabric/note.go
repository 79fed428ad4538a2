package fabric

import (
	"softib/node/link"
	"softib/proto/ib"
)

// Kind says what a Note is about. Kinds from Own on are the driver's.
type Kind uint8

// Kinds of notes.
const (
	// Arrived: a host's port has received the frame Arg. It keeps its buffer until Take.
	Arrived Kind = iota + 1
	// Served: TakeMgmt has a packet for the switch of the port.
	Served
	// Room: a packet of lane Arg has left a host's port, or one of a switch's own is no more there; see TellRoom.
	Room
	// Trained: both ends of a cable have trained, and wait for LinkUp.
	Trained
	// Changed: the port went down.
	Changed
	// Refused: a packet was dropped where it came in, which an agent may have to tell of.
	Refused
	// Ended: a packet is no more; Place is SLID and DLID, Arg the queue pair that it was for. See Config.TellDrops.
	Ended
	// Own is the first kind of the driver's own events, which Schedule has set.
	Own Kind = 64
)

// Note is something that is left to the driver.
type Note struct {
	Kind  Kind
	Place uint32
	Arg   uint32
}

func (e *Engine) note(k Kind, place, arg uint32) { e.notes.Push(Note{k, place, arg}) }

// Poll is the next note.
func (e *Engine) Poll() (Note, bool) { return e.notes.Pop() }

// Schedule makes a note of the driver's own kind at t, in order with all else that happens.
func (e *Engine) Schedule(t ib.Time, k Kind, place, arg uint32) {
	e.q.push(max(t, e.now), code(k, place, arg))
}

// Frame is the packet of a note whose argument is one.
func (e *Engine) Frame(n Note) *link.Frame { return e.pool.At(n.Arg) }

// Take gives back the receive buffer of a packet that a host has taken in.
func (e *Engine) Take(at uint32, f *link.Frame) {
	if e.ports[at].Release(f.InVL, f.Blocks) {
		e.kickFC(at)
	}
}

// Send queues a packet of a host at its port. A packet that cannot leave is dropped and counted.
func (e *Engine) Send(at uint32, f *link.Frame, vl ib.VL) {
	f.InPort, f.Arrived = 0, e.now
	switch r := e.ports[at].Enqueue(e.now, f, vl); {
	case r == link.OK:
		e.kick(at)
	case r.IsDrop():
		e.Drop(at, f, r)
	}
}

// TakeMgmt is a packet that came for a switch itself, whose buffer is free again; nil if there is none.
func (e *Engine) TakeMgmt(node int) *link.Frame {
	sw := e.switches[node]
	f := sw.PollMgmt()
	if f != nil {
		if fc := sw.Left(f); fc != 0 {
			e.kickFC(e.first[node] + uint32(fc))
		}
	}
	return f
}

// SendSwitch sends a packet of a switch's own, by a port or, if that is 0, by its LIDs. It reports whether the packet
// was not dropped at once.
func (e *Engine) SendSwitch(node int, out ib.PortNum, f *link.Frame) bool {
	first, sw := e.first[node], e.switches[node]
	r := sw.SendMgmt(e.now, out, f)
	switch {
	case r.Reason.IsDrop():
		e.Drop(first, f, r.Reason)
	case r.Out != 0:
		e.kick(first + uint32(r.Out))
	case r.Multicast:
		e.kickOuts(first, sw)
	case r.Mgmt:
		e.q.push(e.now+e.cfg.AgentTime, code(Served, first, 0)) // to itself
	}
	return !r.Reason.IsDrop()
}
