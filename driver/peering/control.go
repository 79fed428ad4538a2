package peering

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"softib/internal/patience"
)

// frame is what goes over TLS: its length in four bytes, and JSON.
type frame struct {
	Kind   string          `json:"kind"`
	ID     uint64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
	Error  string          `json:"error,omitempty"`
	Hello  *hello          `json:"hello,omitempty"`
}

const (
	kindHello  = "hello"
	kindGo     = "go"
	kindAlive  = "alive"
	kindCall   = "call"
	kindAnswer = "answer"
	kindBye    = "bye"

	frameMax = 1 << 20
	helloMax = 4 << 10
	callsMax = 64 // of one peer that are being answered

	sessionMax = 90 * 24 * time.Hour // ib.Time has 106 days
	writeWait  = 5 * time.Second
	callWait   = 10 * time.Second // if nobody says
	methodPing = "ping"
)

// Method answers a question. What it returns goes back as JSON.
type Method func(ctx context.Context, peer string, in json.RawMessage) (out any, err error)

func ping(context.Context, string, json.RawMessage) (any, error) { return struct{}{}, nil }

// control is the TLS connection to a peer.
type control struct {
	c *tls.Conn
	r *bufio.Reader

	writing sync.Mutex

	mu    sync.Mutex
	calls map[uint64]chan frame
	next  uint64
	gone  error // set when it has ended
}

func newControl(c *tls.Conn, r *bufio.Reader) *control {
	return &control{c: c, r: r, calls: map[uint64]chan frame{}}
}

func (c *control) write(f frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if len(b) > frameMax {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, len(b), frameMax)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.c.SetWriteDeadline(time.Now().Add(patience.For(writeWait))); err != nil {
		return err
	}
	_, err = c.c.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...))
	return err
}

func (c *control) read(most int) (f frame, err error) {
	var h [4]byte
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return f, err
	}
	n := binary.BigEndian.Uint32(h[:])
	if uint64(n) > uint64(most) {
		return f, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, n, most)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return f, err
	}
	return f, json.Unmarshal(b, &f)
}

// silence is how long TCP may be silent.
func (p *Peer) silence() time.Duration { return p.m.cfg.DeadAfter * 5 / 2 }

// serve reads from TCP until it ends, and says why.
func (p *Peer) serve() {
	c := p.control
	busy := make(chan struct{}, callsMax)
	ctx, cancel := context.WithCancel(p.m.stopped)
	defer cancel()
	for {
		if err := c.c.SetReadDeadline(time.Now().Add(p.silence())); err != nil {
			p.end(ErrEnded, false)
			return
		}
		f, err := c.read(frameMax)
		if err != nil {
			p.end(p.whyEnded(err), false)
			return
		}
		switch f.Kind {
		case kindBye:
			why := ErrClosed
			if f.Error != "" {
				why = fmt.Errorf("%w, it says; next: %s", ErrNoDatagrams, p.letPass())
			}
			p.end(why, false)
			return
		case kindAnswer:
			c.mu.Lock()
			if ch := c.calls[f.ID]; ch != nil {
				delete(c.calls, f.ID)
				ch <- f // of one element, which is its own
			}
			c.mu.Unlock()
		case kindCall:
			select {
			case busy <- struct{}{}:
				p.m.running.Go(func() {
					defer func() { <-busy }()
					_ = c.write(p.answer(ctx, f)) // who cannot be written to is noticed by serve
				})
			default:
				_ = c.write(frame{Kind: kindAnswer, ID: f.ID, Error: "too many questions at once"})
			}
		}
	}
}

// whyEnded says what a connection's end means.
func (p *Peer) whyEnded(err error) error {
	heard := p.heardAgo()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w; datagrams were heard %v before", ErrEnded, err, heard.Round(time.Millisecond))
	}
	if heard < p.m.cfg.DeadAfter {
		return fmt.Errorf("%w for %v; next: look for what stops TCP at port %d on the way to %v", ErrNoControl,
			p.silence(), p.m.port, p.addr.Addr().Unmap())
	}
	return ErrSilent
}

// answer answers a question.
func (p *Peer) answer(ctx context.Context, f frame) frame {
	out := frame{Kind: kindAnswer, ID: f.ID}
	p.m.mu.Lock()
	h := p.m.methods[f.Method]
	p.m.mu.Unlock()
	if h == nil {
		out.Error = fmt.Sprintf("%v: %q", ErrMethod, f.Method)
		return out
	}
	v, err := h(ctx, p.name, f.Body)
	if err == nil {
		out.Body, err = json.Marshal(v)
	}
	if err == nil && len(out.Body) > frameMax-200 {
		err = fmt.Errorf("%w: an answer of %d bytes", ErrTooLong, len(out.Body))
	}
	if err != nil {
		out.Body, out.Error = nil, err.Error()
		if out.Error == "" {
			out.Error = "an error without words"
		}
	}
	return out
}

// alive says something over TCP now and then.
func (p *Peer) alive() {
	t := time.NewTicker(p.m.cfg.DeadAfter / 2)
	defer t.Stop()
	for {
		select {
		case <-p.ended:
			return
		case <-t.C:
			if time.Since(p.epoch) > sessionMax {
				p.end(ErrRenewed, true)
				return
			}
			if p.control.write(frame{Kind: kindAlive}) != nil {
				return // serve says why
			}
		}
	}
}

// close ends it; calls that are under way fail. With a bye the peer learns that it is on purpose, or for want of
// datagrams, which it may not have noticed yet.
func (c *control) close(why error, bye bool) {
	if bye {
		f := frame{Kind: kindBye}
		if errors.Is(why, ErrNoDatagrams) {
			f.Error = ErrNoDatagrams.Error()
		}
		_ = c.write(f)
	}
	c.mu.Lock()
	c.gone = why
	for id, ch := range c.calls {
		delete(c.calls, id)
		close(ch)
	}
	c.mu.Unlock()
	c.c.Close()
}

// call asks a question.
func (c *control) call(ctx context.Context, peer, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if _, has := ctx.Deadline(); !has && !patience.Has(ctx) {
		var cancel context.CancelFunc
		ctx, cancel = patience.Context(ctx, callWait)
		defer cancel()
	}
	ch := make(chan frame, 1)
	c.mu.Lock()
	if c.gone != nil {
		defer c.mu.Unlock()
		return c.gone
	}
	c.next++
	id := c.next
	c.calls[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}()
	if err := c.write(frame{Kind: kindCall, ID: id, Method: method, Body: body}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s of %s: %w", method, peer, context.Cause(ctx))
	case f, ok := <-ch:
		switch {
		case !ok:
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.gone
		case f.Error != "":
			return &Remote{Peer: peer, Method: method, Text: f.Error}
		case out == nil:
			return nil
		}
		return json.Unmarshal(f.Body, out)
	}
}

// Answer has questions of a name answered.
func (m *Machine) Answer(method string, h Method) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.methods[method] = h
}

// Call asks a peer a question, in as JSON, and waits for the answer, which goes to out. Without a deadline of the
// context it waits for ten seconds, longer where this machine is busy.
func (m *Machine) Call(ctx context.Context, peer, method string, in, out any) error {
	p := m.Peer(peer)
	if p == nil {
		return fmt.Errorf("peering: %s: %w; next: see whether it runs and can be reached", peer, ErrUnknown)
	}
	if err := p.control.call(ctx, peer, method, in, out); err != nil {
		return fmt.Errorf("peering: %w", err)
	}
	return nil
}
