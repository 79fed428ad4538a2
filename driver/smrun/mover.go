package smrun

import (
	"context"
	"slices"
	"sync"

	"softib/driver/madloop"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// The mover is the goroutine that owns the transport while a manager runs: it sends and receives while the manager
// thinks, so that the start of a large subnet takes two cores. Datagrams cross in batches, each way in order.

// parcel is a datagram on its way between the manager and the mover.
type parcel struct {
	madrpc.Message             // its Data in buf, unless they are longer
	kind           madrpc.Kind // why the mover brings it
	buf            [mad.Size]byte
}

// pack copies the data, which are their owner's, into the parcel.
func (p *parcel) pack() {
	switch {
	case p.Data == nil:
	case len(p.Data) <= len(p.buf):
		p.Data = p.buf[:copy(p.buf[:], p.Data)]
	default:
		p.Data = slices.Clone(p.Data)
	}
}

// batchMax is how many parcels cross at once: enough that waking the other side costs little for each, few
// enough that a window of requests makes several, and both sides are busy.
const batchMax = 64

type batch struct {
	n       int
	parcels [batchMax]parcel
}

// next is a parcel to fill in.
func (b *batch) next() *parcel {
	b.n++
	return &b.parcels[b.n-1]
}

// crossing takes batches from one goroutine to another. It never makes anybody wait.
type crossing struct {
	mu   sync.Mutex
	full []*batch
	free []*batch
	bell chan struct{} // sent to when there is something
}

func newCrossing() *crossing { return &crossing{bell: make(chan struct{}, 1)} }

// blank is a batch to fill.
func (c *crossing) blank() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.free)
	if n == 0 {
		return &batch{}
	}
	b := c.free[n-1]
	c.free = c.free[:n-1]
	return b
}

// put sends a batch across, or gives an empty one back.
func (c *crossing) put(b *batch) {
	c.mu.Lock()
	if b.n == 0 {
		c.free = append(c.free, b)
		c.mu.Unlock()
		return
	}
	c.full = append(c.full, b)
	c.mu.Unlock()
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// freeMax bounds the batches that are kept for later.
const freeMax = 64

// take hands all parcels of the next batch to f, and reports whether there was one.
func (c *crossing) take(f func(*parcel)) bool {
	c.mu.Lock()
	if len(c.full) == 0 {
		c.mu.Unlock()
		return false
	}
	b := c.full[0]
	c.full = c.full[1:]
	c.mu.Unlock()
	for i := range b.parcels[:b.n] {
		f(&b.parcels[i])
	}
	b.n = 0
	c.mu.Lock()
	if len(c.free) < freeMax {
		c.free = append(c.free, b)
	}
	c.mu.Unlock()
	return true
}

// move is the mover's life. A transport that has failed ends it, and with it the runner.
func (r *Runner) move(ctx context.Context) {
	in := r.in.blank()
	put := func() {
		r.in.put(in)
		in = r.in.blank()
	}
	receive := func(d madrpc.Delivery) {
		p := in.next()
		p.kind, p.Message = d.Kind, madrpc.Message{Env: d.Env, Data: d.Data, Cookie: d.Cookie}
		p.pack()
		if in.n == batchMax {
			put()
		}
	}
	l := madloop.Loop{Port: r.t, Take: receive, Wake: r.out.bell}
	l.Send = func(now ib.Time) (moved bool) {
		if in.n > 0 {
			put() // what came in the last round
			moved = true
		}
		return r.out.take(func(p *parcel) {
			if err := r.t.Queue(now, r.agents.Of(&p.Message), p.Message); err != nil && p.Timeout > 0 {
				receive(madrpc.Delivery{Kind: madrpc.Canceled, Cookie: p.Cookie})
			}
		}) || moved
	}
	if err := l.Run(ctx); ctx.Err() == nil {
		r.dead <- err
	}
}
