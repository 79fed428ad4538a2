package endpoint

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// Ways to processes on other machines. Packets for one go into a ring like all others, which lies in this process's own
// memory: the endpoint takes them out again itself, into the tunnel that leads there, for as long as that has room. So
// queue pairs wait for a tunnel as they wait for a peer, and hear as they do when there is room again.

// Lines is a process's tunnels. The endpoint's lock is held in all calls, and none waits.
type Lines interface {
	// Receive takes in what has come, and reports whether something has; Next is the next packet of it, and to which
	// port of the adapter it has come. It is good until Receive. Ready reports whether Next may have one.
	Receive(now ib.Time) bool
	Next(*wire.Packet) (ib.PortNum, bool)
	Ready() bool
	// Flush sends what was put.
	Flush(now ib.Time)
	// Unheard reports whether a peer has not said yet that it got what it was sent.
	Unheard() bool
	NextDeadline() ib.Time
	HandleTimer(now ib.Time)
}

// Line is one tunnel to send by.
type Line interface {
	// Room reports whether a bundle of packets can be put; Put copies one packet.
	Room() bool
	Put(now ib.Time, p *wire.Packet)
}

// lineRing is a ring into a tunnel.
type lineRing struct {
	out *Out
	in  *In
	to  Line
}

// nobodyThere is the page of who need not be woken.
func nobodyThere() *Page { return &Page{h: new(pageHead)} }

// SetLines gives the endpoint its tunnels, which a watcher waits for while nobody looks. The endpoint is locked.
func (e *Endpoint) SetLines(net Lines, w *Watcher) {
	e.net, e.watcher = net, w
	w.Start()
	e.hintAll()
	e.call()
}

// newLineOut makes the ring into a tunnel.
func newLineOut(to Line) (*Out, error) {
	mem, err := NewLocalRing()
	if err != nil {
		return nil, err
	}
	out, err := NewLocalOut(mem, nobodyThere(), OtherUser)
	if err != nil {
		return nil, err
	}
	in, err := NewLocalIn(mem, nobodyThere(), OtherUser, 0)
	if err != nil {
		return nil, err
	}
	out.line = &lineRing{out, in, to}
	return out, nil
}

// pump takes packets from the rings into the tunnels and has them sent. It reports whether queue pairs can go on that
// waited for room.
func (e *Endpoint) pump() bool {
	now := e.refresh() // tunnels measure round trips
	for _, r := range e.lines {
		r.line.pump(now)
	}
	e.net.Flush(now)
	waited := e.waiting
	if waited > 0 {
		e.unpark()
	}
	return e.waiting < waited
}

// pump takes as much as there is room for.
func (l *lineRing) pump(now ib.Time) {
	var p wire.Packet
	for l.in.Ready() && l.to.Room() && l.in.Poll(&p) {
		for i := range p.Packets() {
			single := p.Single(i)
			l.to.Put(now, &single)
		}
		l.in.Done()
	}
	l.in.tell()
}

// drainLines takes in packets that have come from other machines.
func (e *Endpoint) drainLines() int {
	now := e.refresh()
	if !e.net.Ready() && !e.net.Receive(now) {
		return 0
	}
	e.takeStaged()
	n := 0
	for n < drainMax {
		port, ok := e.net.Next(&e.rx)
		if !ok {
			break
		}
		e.eng.HandlePacket(now, port, &e.rx)
		n++
	}
	e.eng.TakeGrant() // which nobody could use
	e.watcher.Leaves(e.net.Ready())
	if e.awaited.qp != nil {
		e.hear()
	}
	if e.pump() {
		e.owed = true
	}
	return n
}

// deadline is when something is due.
func (e *Endpoint) deadline() ib.Time {
	if e.net == nil {
		return e.eng.NextDeadline()
	}
	return ib.Earlier(e.eng.NextDeadline(), e.net.NextDeadline())
}

// lineTimers runs what is due of tunnels.
func (e *Endpoint) lineTimers() {
	if e.clock >= e.net.NextDeadline() {
		e.net.HandleTimer(e.clock)
		e.pump()
	}
}
