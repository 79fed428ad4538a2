package smrun

import (
	"slices"
	"sync"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// The mover is the goroutine that owns the transport while a manager runs: it sends and receives while the manager
// thinks, so that the start of a large subnet takes two cores. Datagrams cross in batches, each way in order.

// parcel is a datagram on its way between the manager and the mover.
type parcel struct {
	kind    madrpc.Kind // why the mover brings it
	class   mad.Class   // whose agent sends it
	retries int
	env     mad.Envelope
	timeout ib.Time
	cookie  uint64
	data    []byte // in buf, unless it is longer
	buf     [mad.Size]byte
}

// pack copies data, which is its owner's, into the parcel.
func (p *parcel) pack(data []byte) {
	switch {
	case data == nil:
		p.data = nil
	case len(data) <= len(p.buf):
		p.data = p.buf[:copy(p.buf[:], data)]
	default:
		p.data = slices.Clone(data)
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

// move is the mover's life. A transport that can say that it has failed ends it, and with it the runner.
func (r *Runner) move(stop <-chan struct{}) {
	var now ib.Time
	in := r.in.blank()
	receive := func(d madrpc.Delivery) {
		p := in.next()
		p.kind, p.env, p.cookie = d.Kind, d.Env, d.Cookie
		p.pack(d.Data)
		if in.n == batchMax {
			r.in.put(in)
			in = r.in.blank()
		}
	}
	send := func(p *parcel) {
		err := r.t.Queue(now, r.agents[p.class], madrpc.Message{Env: p.env, Data: p.data, Timeout: p.timeout,
			Retries: p.retries, Cookie: p.cookie})
		if err != nil && p.timeout > 0 {
			receive(madrpc.Delivery{Kind: madrpc.Canceled, Cookie: p.cookie})
		}
	}
	failing, _ := r.t.(interface{ Err() error })
	for {
		if failing != nil {
			if err := failing.Err(); err != nil {
				r.dead <- err
				return
			}
		}
		now = r.t.Now()
		moved := r.out.take(send)
		if r.t.Poll(receive) {
			moved = true
		}
		if in.n > 0 {
			r.in.put(in)
			in = r.in.blank()
			moved = true
		}
		if moved {
			select {
			case <-stop:
				return
			default:
			}
			continue
		}
		select {
		case <-stop:
			return
		case <-r.out.bell:
		case <-r.t.Bell():
		}
	}
}
