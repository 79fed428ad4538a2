package peering

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"softib/node/tunnel"
	"softib/proto/ib"
)

// Peer is another machine, from when it comes up until it is down.
type Peer struct {
	m        *Machine
	name     string
	instance string
	addr     netip.AddrPort // for datagrams
	index    uint32
	mtu      int
	control  *control
	epoch    time.Time

	mu      sync.Mutex // of the session
	s       *tunnel.Session
	timer   *time.Timer
	armed   ib.Time // when timer fires; Never if it does not
	late    bool    // the timer was late, and waits for what has come to be read
	started bool
	over    bool
	full    bool // Send has refused something
	heard   ib.Time

	sending sync.Mutex // of out
	again   atomic.Bool
	out     *outgoing

	delivering sync.Mutex // what has come is handed over by one at a time; taken before mu
	batch      []Message
	up, down   bool // have been told

	isUp  atomic.Bool
	since atomic.Pointer[time.Time]
	once  sync.Once
	ended chan struct{}

	passage passage
}

// Name is the peer's.
func (p *Peer) Name() string { return p.name }

// Addr is where its datagrams go.
func (p *Peer) Addr() netip.AddrPort { return p.addr }

// now is the session's time.
func (p *Peer) now() ib.Time { return ib.Time(time.Since(p.epoch)) * ib.Nanosecond }

// prepare makes what a session in real time needs.
func (p *Peer) prepare() (err error) {
	p.ended = make(chan struct{})
	p.armed = ib.Never
	p.timer = time.AfterFunc(time.Hour, p.tick)
	p.timer.Stop()
	p.out, err = newOutgoing(p.addr, p.mtu, p.m.udp.cuts)
	return err
}

// start lets it speak.
func (p *Peer) start() error {
	if err := p.control.c.SetDeadline(time.Time{}); err != nil {
		p.end(ErrEnded, false)
		return err
	}
	p.mu.Lock()
	p.started = true
	p.mu.Unlock()
	p.m.running.Go(p.serve)
	p.m.running.Go(p.alive)
	p.deliver()
	p.Flush()
	return nil
}

// Send queues a message, which is copied. It goes with the next Flush. The error is tunnel.ErrFull if there is no room;
// the handler is told when there is again.
func (p *Peer) Send(stream uint32, message []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return fmt.Errorf("peering: %s: %w", p.name, ErrClosed)
	}
	err := p.s.Send(0, stream, message)
	if errors.Is(err, tunnel.ErrFull) {
		p.full = true
	}
	return err
}

// Flush sends what is queued, as far as the network and the peer let it; the rest goes by itself.
func (p *Peer) Flush() {
	// One sends at a time, and goes on for those who came meanwhile.
	p.again.Store(true)
	for p.again.Load() && p.sending.TryLock() {
		p.again.Store(false)
		for p.fill() {
			p.m.udp.send(p.out)
		}
		p.sending.Unlock()
	}
}

// fill takes the next datagrams from the session, and reports whether there are any.
func (p *Peer) fill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || !p.started {
		return false
	}
	now := p.now()
	some := p.out.Fill(func(buf []byte) (int, bool) { return p.s.PollDatagram(now, buf) })
	if d := p.s.NextDeadline(); d < p.armed {
		p.armed = d
		p.timer.Reset(time.Duration(max(0, d-now) / ib.Nanosecond))
	}
	return some
}

// heldUp is how late a timer has to be to say that it was this process that stood still, and not the peer.
const heldUp = 100 * ib.Millisecond

// tick is what the timer does.
func (p *Peer) tick() {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	now := p.now()
	if now-p.armed > heldUp && !p.late {
		p.late = true // what has come meanwhile is read first
		p.armed = now + heldUp/2
		p.timer.Reset(time.Duration(heldUp / 2 / ib.Nanosecond))
		p.mu.Unlock()
		return
	}
	p.armed, p.late = ib.Never, false
	p.s.HandleTimer(now)
	dead := p.s.Dead(now)
	p.mu.Unlock()
	if dead {
		go p.dead()
		return
	}
	p.Flush()
}

// dead finds out why the session is, and ends it.
func (p *Peer) dead() {
	if p.Stats().Malformed > 0 {
		p.end(tunnel.ErrMalformed, false)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.m.cfg.DeadAfter/4)
	defer cancel()
	if err := p.control.call(ctx, p.name, methodPing, nil, nil); err != nil {
		p.end(fmt.Errorf("%w for %v", ErrSilent, p.heardAgo().Round(time.Millisecond)), false)
		return
	}
	kernel := ""
	if err := p.m.udp.lastError(); err != nil {
		kernel = fmt.Sprintf(", and the kernel said %q of some", err)
	}
	p.end(fmt.Errorf("%w for %v%s; next: %s", ErrNoDatagrams, p.heardAgo().Round(time.Millisecond), kernel,
		p.letPass()), true)
}

// letPass is what to do where datagrams do not pass.
func (p *Peer) letPass() string {
	return fmt.Sprintf("let UDP of %d bytes pass between port %d here and %v, or set a smaller MTU", p.mtu, p.m.port,
		p.addr)
}

// heardAgo is how long ago a datagram came.
func (p *Peer) heardAgo() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration((p.now() - p.heard) / ib.Nanosecond)
}

// end ends it, once.
func (p *Peer) end(why error, bye bool) {
	p.once.Do(func() {
		p.mu.Lock()
		p.over = true
		p.timer.Stop()
		p.mu.Unlock()
		p.isUp.Store(false)
		close(p.ended)
		p.control.close(why, bye)
		again := p.m.removed(p, why)
		p.delivering.Lock()
		defer p.delivering.Unlock()
		p.down = true
		if p.up {
			p.m.cfg.Handler.Down(p, why)
		} else if !again && !errors.Is(why, ErrClosed) {
			p.m.cfg.Handler.Trouble(p.name, why)
		}
	})
}

// handle takes datagrams that have come: consecutive ones of a buffer, each of so many bytes but for the last.
func (p *Peer) handle(data []byte, each int) {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	p.mu.Lock()
	now := p.now()
	for len(data) > 0 && !p.over {
		n := min(each, len(data))
		if err := p.s.HandleDatagram(now, data[:n]); err == nil {
			p.heard = now
		} else if errors.Is(err, tunnel.ErrMalformed) {
			go p.dead()
			break
		}
		data = data[n:]
	}
	p.mu.Unlock()
	p.hand()
}

// deliver hands over what has come.
func (p *Peer) deliver() {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	p.hand()
}

// hand hands over what has come; delivering is held. Nothing is handed over before the peer is up.
func (p *Peer) hand() {
	p.mu.Lock()
	if p.down || p.over || !p.started || !p.s.Answered() {
		p.mu.Unlock()
		return
	}
	p.batch = p.batch[:0]
	for {
		stream, data, ok := p.s.PollMessage()
		if !ok {
			break
		}
		p.batch = append(p.batch, Message{stream, data})
	}
	// A sender who has filled the queue is told to go on when it is half empty.
	room := p.full && p.s.Queued() <= p.m.cfg.Window/2
	if room {
		p.full = false
	}
	p.mu.Unlock()
	if !p.up {
		p.up = true
		p.since.Store(ptr(time.Now()))
		p.isUp.Store(true)
		p.m.cameUp(p)
		p.m.cfg.Handler.Up(p)
	}
	if len(p.batch) > 0 {
		p.m.cfg.Handler.Messages(p, p.batch)
	}
	if room {
		p.m.cfg.Handler.Room(p)
	}
}

// Stats is what the tunnel has counted.
func (p *Peer) Stats() tunnel.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s.Stats()
}
