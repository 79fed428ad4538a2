package endpoint

import (
	"sync/atomic"

	"softib/internal/cacheline"
	"softib/proto/ib"
	"softib/proto/wire"
)

// The ends of rings for a driver that has no engine: one that takes packets from endpoints and hands them on to others.
// Payloads go through such rings, since nobody lets it read, or write to, a program's memory: its ends are made with
// process 0, and it gives no grants.

// Poll is the oldest packet, if there is one. It has to be followed by Done, and its payload lies in the ring until
// then. It may be a bundle, and then it is one that wire.Packet.Single can take apart.
func (r *In) Poll(p *wire.Packet) bool {
	for c := r.ready(); c != nil; c = r.ready() {
		if r.get(c, p) && p.Far == nil && whole(p) {
			return true
		}
		r.Done()
	}
	r.tell()
	return false
}

// Orphan is for a ring whose sender is gone, and its page with it: what it has sent can still be taken.
func (r *In) Orphan() { r.src = &Page{h: new(pageHead)} }

// Ready reports whether Poll would show something.
func (r *In) Ready() bool { return r.ready() != nil }

// whole reports whether a packet that another process has written is as long as it says.
func whole(p *wire.Packet) bool {
	k, n := p.Packets(), len(p.Payload)
	if !p.BTH.Opcode.Info().Valid() || k > bundleMax {
		return false
	}
	if k == 1 {
		return n <= ib.MTU4096.Bytes()
	}
	for m := ib.MTU256; m <= ib.MTU4096; m++ {
		if (k-1)*m.Bytes() < n && n <= k*m.Bytes() {
			return true
		}
	}
	return false
}

// TryPut hands a packet to the receiver, payload and all. False means that there is no room: the receiver wakes the
// sender's page when there is.
func (r *Out) TryPut(p *wire.Packet) bool {
	if !r.room(len(p.Payload)) {
		cacheline.StoreFence(&r.head.wants, 1)
		r.peer.wake()
		if !r.room(len(p.Payload)) {
			return false
		}
		cacheline.StoreFence(&r.head.wants, 0)
	}
	r.publish(p, false)
	r.rouse()
	return true
}

// Knock wakes the receiver if it has packets to take in, whoever claims to look there, and reports whether it has.
func (r *Out) Knock() bool {
	if !r.Unseen() {
		return false
	}
	r.peer.Knock()
	return true
}

// Taken is how many packets the receiver has taken, ever, as far as it has told.
func (r *Out) Taken() uint32 { return atomic.LoadUint32(&r.head.taken) }

// Drained reports whether the receiver of the ring in mem has taken all that was sent. It is for who only looks on.
func Drained(mem []byte) bool {
	r, err := mapRing(mem)
	if err != nil {
		return true
	}
	t := atomic.LoadUint32(&r.head.taken)
	return atomic.LoadUint32(&r.cell(t).seq) != t+1
}

// Rest says that nobody looks at the rings from now on: who sends wakes the page.
// It is for one caller at a time; a bell that says so already is left to those who wake it.
func (p *Page) Rest() {
	if b := p.bell(); b&asleep == 0 {
		cacheline.StoreFence(&p.h.bell, b+1)
	}
	if p.onRest != nil {
		p.onRest()
	}
}

// OnRest has f called whenever nobody looks from now on. F must not wait. It is for who wakes the page when something
// comes by another way than a ring.
func (p *Page) OnRest(f func()) { p.onRest = f }

// Wake wakes whoever sleeps there, if nobody looks.
func (p *Page) Wake() { p.wake() }

// Attend says that somebody does, and reports whether that was news.
func (p *Page) Attend() bool {
	b := p.bell()
	return b&asleep != 0 && atomic.CompareAndSwapUint32(&p.h.bell, b, b+1)
}

// Attended reports whether somebody does.
func (p *Page) Attended() bool { return p.bell()&asleep == 0 }

func (p *Page) bell() uint32 { return atomic.LoadUint32(&p.h.bell) }

// Wait sleeps until the page is woken, for at most d, after Rest; ib.Never is for ever. A wake-up may be missed if it
// comes in the moment of Rest, because rings are written without fences: the first sleep should be a short one.
func (p *Page) Wait(d ib.Time) {
	if ns, b := nanoseconds(max(d, 0)), p.bell(); ns != 0 && b&asleep != 0 {
		p.sleep(b, ns)
	}
}
