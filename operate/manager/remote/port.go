package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"softib/driver/madloop"
	"softib/internal/inbox"
	"softib/node/inspect"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// ErrClosed is what is left of a fabric that is watched no more.
var ErrClosed = errors.New("remote: closed")

// port shares one transport among sessions: one goroutine has the transport, each class is registered once, and no more
// than window requests are on their way, whoever sent them.
type port struct {
	t      madrpc.Transport
	window int
	mkey   uint64
	agents madrpc.Agents

	mu      sync.Mutex
	queue   []madrpc.Message // requests that wait to be sent
	waiting madrpc.Asked[waiting]
	err     error // why it has ended

	bell chan struct{} // there is something to send
	done chan struct{} // it has ended
}

// waiting is whose a request is.
type waiting struct {
	s      *session
	agent  madrpc.AgentID
	cookie uint64
}

// classes are what can be asked, and how that is registered: only to ask.
var classes = []madrpc.Registration{
	{Class: mad.ClassSMDirect, ClassVersion: 1, Name: "softib watch"},
	{Class: mad.ClassSMLID, ClassVersion: 1, Name: "softib watch"},
	{Class: mad.ClassPerf, ClassVersion: 1, Name: "softib watch"},
	{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true, Name: "softib watch"},
}

// openPort registers at a transport.
func openPort(t madrpc.Transport, window int, mkey uint64) (*port, error) {
	agents, err := madrpc.RegisterAll(classes, t.Register)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	return &port{t: t, window: window, mkey: mkey, agents: agents, bell: make(chan struct{}, 1),
		done: make(chan struct{})}, nil
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// run has the transport until ctx ends or the transport fails.
func (p *port) run(ctx context.Context) {
	l := madloop.Loop{Port: p.t, Send: p.send, Take: p.take, Wake: p.bell}
	if err := l.Run(ctx); ctx.Err() == nil {
		p.end(fmt.Errorf("remote: %w", err))
		return
	}
	p.end(ErrClosed)
}

// end gives all requests back.
func (p *port) end(err error) {
	p.mu.Lock()
	p.err = err
	left := p.waiting
	p.waiting, p.queue = madrpc.Asked[waiting]{}, nil
	p.mu.Unlock()
	close(p.done)
	for w := range left.All() {
		w.s.box.Put(madrpc.Delivery{Agent: w.agent, Kind: madrpc.Canceled, Cookie: w.cookie})
	}
}

// send sends what the window lets through, and reports whether that was anything.
func (p *port) send(now ib.Time) (moved bool) {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 || p.waiting.Len()-len(p.queue) >= p.window {
			p.mu.Unlock()
			return moved
		}
		m := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		moved = true
		if err := p.t.Queue(now, p.agents.Of(&m), m); err != nil {
			p.take(madrpc.Delivery{Kind: madrpc.Canceled, Cookie: m.Cookie})
		}
	}
}

// take hands an answer to whoever waits for it.
func (p *port) take(d madrpc.Delivery) {
	if d.Kind == madrpc.Unsolicited {
		return
	}
	p.mu.Lock()
	w, ok := p.waiting.Take(d.Cookie)
	p.mu.Unlock()
	if !ok {
		return
	}
	d.Agent, d.Cookie = w.agent, w.cookie
	d.Data = append([]byte(nil), d.Data...)
	w.s.box.Put(d)
}

// session is one use of the port.
type session struct {
	p *port

	box inbox.Inbox

	mu     sync.Mutex
	agents []mad.Class // by agent, from 1 on
	closed bool
}

var _ inspect.Session = (*session)(nil)

func (p *port) open() *session { return &session{p: p, box: inbox.New()} }

// Now is the transport's time.
func (s *session) Now() ib.Time { return s.p.t.Now() }

// Register makes an agent that asks; nobody is told what others ask of this port.
func (s *session) Register(r madrpc.Registration) (madrpc.AgentID, error) {
	known := slices.ContainsFunc(classes, func(c madrpc.Registration) bool { return c.Class == r.Class })
	if !known || r.Methods != (madrpc.Methods{}) {
		return 0, fmt.Errorf("remote: class %s: want one of SMLID, SMDirect, SA and Perf, to ask and not to answer",
			r.Class)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents = append(s.agents, r.Class)
	return madrpc.AgentID(len(s.agents)), nil
}

// Send takes a request. It leaves when the window has room.
func (s *session) Send(id madrpc.AgentID, m madrpc.Message) error {
	if len(m.Data) < mad.HeaderSize || m.Timeout <= 0 {
		return fmt.Errorf("remote: %d bytes and a timeout of %d: want a request of at least %d bytes that waits "+
			"for its answer", len(m.Data), m.Timeout, mad.HeaderSize)
	}
	s.mu.Lock()
	if s.closed || id < 1 || int(id) > len(s.agents) {
		s.mu.Unlock()
		return fmt.Errorf("remote: agent %d is not this session's: %w", id, ErrClosed)
	}
	class := s.agents[id-1]
	s.mu.Unlock()

	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if got := mad.View(m.Data).Class(); got != class {
		return fmt.Errorf("remote: agent %d is asked to send a datagram of class %s: want %s", id, got, class)
	}
	m.Cookie = p.waiting.Put(waiting{s, id, m.Cookie})
	m.Data = append([]byte(nil), m.Data...)
	v := mad.View(m.Data)
	v.SetTID(madrpc.TransactionOf(m.Cookie)) // sessions share an agent, and must not share transactions
	if class.IsSubnet() && len(m.Data) >= mad.Size && v.MKey() == 0 {
		v.SetMKey(p.mkey)
	}
	p.queue = append(p.queue, m)
	ring(p.bell)
	return nil
}

// Queue is Send: it never waits either.
func (s *session) Queue(_ ib.Time, id madrpc.AgentID, m madrpc.Message) error { return s.Send(id, m) }

// Poll hands over what has come.
func (s *session) Poll(take func(madrpc.Delivery)) bool {
	in := s.box.TakeAll()
	for _, d := range in {
		take(d)
	}
	return len(in) > 0
}

// Bell is sent to when something has come for the session. One value may stand for many.
func (s *session) Bell() <-chan struct{} { return s.box.Bell() }

// Recv waits for the next delivery.
func (s *session) Recv(ctx context.Context) (madrpc.Delivery, error) {
	return s.box.Recv(ctx, s.p.done, func() error {
		if err := s.p.failure(); err != nil {
			return err
		}
		return ErrClosed
	})
}

// Err is why the port has ended; nil while it works.
func (s *session) Err() error { return s.p.failure() }

func (p *port) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// SetIsSM does nothing: who watches manages nothing.
func (s *session) SetIsSM(bool) {}

// Close ends the session. Answers to what it asked are dropped.
func (s *session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.box.Close()
	return nil
}
