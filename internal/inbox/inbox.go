package inbox

import (
	"context"
	"sync"

	"softib/node/madrpc"
)

// Inbox is one. The zero value is not ready: see New.
type Inbox struct {
	mu     sync.Mutex
	in     []madrpc.Delivery
	closed bool
	bell   chan struct{}
}

// New makes an empty one.
func New() Inbox { return Inbox{bell: make(chan struct{}, 1)} }

// most bounds what waits for who does not look: management datagrams may be lost, memory may not.
const most = 1 << 16

// Put adds a delivery, whose data is the taker's from now on.
func (b *Inbox) Put(d madrpc.Delivery) {
	b.mu.Lock()
	if !b.closed && len(b.in) < most {
		b.in = append(b.in, d)
	}
	b.mu.Unlock()
	b.Ring()
}

// TakeAll empties it.
func (b *Inbox) TakeAll() []madrpc.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.in
	b.in = nil
	return in
}

// Bell is sent to when something has come. One value may stand for many.
func (b *Inbox) Bell() <-chan struct{} { return b.bell }

// Ring makes who waits look, if not now then when it next waits.
func (b *Inbox) Ring() {
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// Close has what is there dropped, and nothing kept from now on. It reports whether that was news.
func (b *Inbox) Close() bool {
	b.mu.Lock()
	was := b.closed
	b.closed, b.in = true, nil
	b.mu.Unlock()
	b.Ring()
	return !was
}

// Recv waits for the next delivery, until the inbox is closed or over is; ended is the error of both.
func (b *Inbox) Recv(ctx context.Context, over <-chan struct{}, ended func() error) (madrpc.Delivery, error) {
	for {
		b.mu.Lock()
		if len(b.in) > 0 {
			d := b.in[0]
			b.in = b.in[1:]
			b.mu.Unlock()
			return d, nil
		}
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return madrpc.Delivery{}, ended()
		}
		select {
		case <-b.bell:
		case <-ctx.Done():
			return madrpc.Delivery{}, ctx.Err()
		case <-over:
			return madrpc.Delivery{}, ended()
		}
	}
}
