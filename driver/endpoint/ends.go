package endpoint

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// What a fabric has of the rings between it and processes, whose packets it switches: the daemon's and one in virtual
// time have the same.

// Inlet is a ring that a process sends into, packet by packet.
type Inlet struct {
	*In
	// Cur is the packet, or bundle, that is being taken.
	Cur    wire.Packet
	at, of int // at how many packets of its count were
}

// Next makes sure that Cur is the ring's next, if there is one. Fresh says that nobody has seen it before.
func (i *Inlet) Next() (is, fresh bool) {
	if i.of == 0 && i.Poll(&i.Cur) {
		i.at, i.of, fresh = 0, i.Cur.Packets(), true
	}
	return i.of > 0, fresh
}

// Packet is the next packet by itself. Its payload lies in the ring until Took.
func (i *Inlet) Packet() wire.Packet { return i.Cur.Single(i.at) }

// Took goes on to the packet behind it.
func (i *Inlet) Took() {
	if i.at++; i.at == i.of {
		i.of = 0
		i.Done()
	}
}

// Drained reports whether everything was taken that was sent so far.
func (i *Inlet) Drained() bool { return i.of == 0 && !i.Ready() }

// Outlet is a ring to a process.
type Outlet struct {
	*Out
	since ib.Time // when the ring was first found full; 0 if it is not
	stuck bool
	// knocks counts how often the receiver was woken without need of its own; lookAt is when to see whether it has
	// looked.
	knocks int
	lookAt ib.Time
}

const (
	// StuckAfter is how long a process may leave its ring full before packets to it are dropped instead of filling the
	// fabric's buffers: a program that is stopped is no reason to stop the others.
	StuckAfter = 500 * ib.Millisecond
	// fullLook is how often to look at a ring that is full, besides when its receiver says that it has room.
	fullLook = ib.Millisecond
)

// knockDelays is after how long a receiver that has not looked is woken, once, twice and a third time.
var knockDelays = [...]ib.Time{100 * ib.Microsecond, ib.Millisecond, 10 * ib.Millisecond}

// NewOutlet is a ring to a process in which nothing is yet.
func NewOutlet(o *Out) Outlet { return Outlet{Out: o, lookAt: ib.Never} }

// Fate is what became of a packet for a process.
type Fate uint8

// Fates.
const (
	Waits Fate = iota // there is no room for it
	Taken             // it is there, or its process is gone
	Lost              // its process has taken nothing for too long
)

// Put puts a packet into the ring.
func (o *Outlet) Put(now ib.Time, p *wire.Packet) Fate {
	p.Count, p.Far, p.FarLen = 0, nil, 0
	switch {
	case o.Gone():
		return Taken
	case o.TryPut(p):
		o.since, o.stuck = 0, false
		o.knocks, o.lookAt = 0, now+knockDelays[0]
		return Taken
	case o.since == 0:
		o.since = now
	}
	if o.stuck = o.stuck || now-o.since > StuckAfter; o.stuck {
		return Lost
	}
	return Waits
}

// Look wakes a receiver that has not looked. It returns when to look again; full says that packets wait for room.
func (o *Outlet) Look(now ib.Time, full bool) ib.Time {
	if now >= o.lookAt {
		o.lookAt = ib.Never
		if o.Knock() && o.knocks < len(knockDelays)-1 {
			o.knocks++
			o.lookAt = now + knockDelays[o.knocks]
		}
	}
	if full {
		return min(o.lookAt, now+fullLook)
	}
	return o.lookAt
}
