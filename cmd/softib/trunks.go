package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"sync"

	"softib/driver/peering"
	"softib/driver/span"
)

// trunks are this machine's connections to the others of a fabric, as the fabric uses them and as they tell it what
// comes.
type trunks struct {
	at      *peering.Machine
	reached netip.Addr // by which others reach this machine
	log     func(format string, v ...any)

	// turn is held while the fabric is told who is reached, and taken before its lock: a machine that comes back at
	// once would else be told of before that it had gone, and stay out of reach for ever.
	turn sync.Mutex
	tell func(machine string, is bool) // tells the fabric; nil before there is one

	mu    sync.Mutex // taken after the fabric's lock
	f     *span.Fabric
	peers map[string]*peering.Peer
	dirty []*peering.Peer
	came  func()            // is told that a machine has come, if there is somebody to tell
	why   map[string]string // machines are not reached
}

func newTrunks(log func(string, ...any)) *trunks {
	return &trunks{log: log, peers: map[string]*peering.Peer{}, why: map[string]string{}}
}

// serve gives a fabric to the trunks: what comes from now on is for it.
func (t *trunks) serve(f *span.Fabric) {
	for _, method := range span.Methods() {
		t.at.Answer(method, func(ctx context.Context, peer string, in json.RawMessage) (any, error) {
			out, err := f.Answer(ctx, peer, method, in)
			return json.RawMessage(out), err
		})
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	t.mu.Lock()
	t.f, t.tell = f, f.Reached
	var up []string
	for name := range t.peers {
		up = append(up, name)
	}
	t.mu.Unlock()
	for _, name := range up {
		f.Reached(name, true)
	}
}

// fabric is whom it serves; nil before there is one.
func (t *trunks) fabric() *span.Fabric {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.f
}

// reaches reports whether a machine is reached, and if not what was last heard of why.
func (t *trunks) reaches(machine string) (bool, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[machine] != nil, t.why[machine]
}

// Send takes a message to the far end of a cable.
func (t *trunks) Send(machine string, cable int, msg []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[machine]
	if p == nil || p.Send(uint32(cable), msg) != nil {
		return // its cables go down, or their credits are told anew
	}
	if len(t.dirty) == 0 || t.dirty[len(t.dirty)-1] != p {
		t.dirty = append(t.dirty, p)
	}
}

// Flush puts all that was sent on its way.
func (t *trunks) Flush() {
	t.mu.Lock()
	dirty := t.dirty
	t.dirty = nil
	t.mu.Unlock()
	for _, p := range dirty {
		p.Flush()
	}
}

// Call asks a machine.
func (t *trunks) Call(ctx context.Context, machine, method string, in []byte) (out []byte, err error) {
	err = t.at.Call(ctx, machine, method, json.RawMessage(in), (*json.RawMessage)(&out))
	return out, err
}

// Socket makes a socket for a program, and says how other machines reach it.
func (t *trunks) Socket() (fd int, at netip.AddrPort, mtu int, err error) {
	fd, port, mtu, err := t.at.Socket()
	return fd, netip.AddrPortFrom(t.reached, port), mtu, err
}

// Passes reports whether datagrams of programs pass to a machine.
func (t *trunks) Passes(ctx context.Context, machine string) bool { return t.at.Passes(ctx, machine) }

// Up is for a machine that is reached.
func (t *trunks) Up(p *peering.Peer) {
	t.turn.Lock()
	defer t.turn.Unlock()
	t.mu.Lock()
	t.peers[p.Name()] = p
	delete(t.why, p.Name())
	tell := t.tell
	t.mu.Unlock()
	t.log("machine %s is reached at %v", p.Name(), p.Addr())
	if tell != nil {
		tell(p.Name(), true)
		if t.came != nil {
			go t.came()
		}
	}
}

// Down is for one that is not any more.
func (t *trunks) Down(p *peering.Peer, why error) {
	t.turn.Lock()
	defer t.turn.Unlock()
	t.mu.Lock()
	was := t.peers[p.Name()] == p
	if was {
		delete(t.peers, p.Name())
		t.why[p.Name()] = why.Error()
	}
	tell := t.tell
	t.mu.Unlock()
	if !was {
		return
	}
	t.log("machine %s is not reached: %v", p.Name(), why)
	if tell != nil {
		tell(p.Name(), false)
	}
}

// Messages takes in what has come from a machine.
func (t *trunks) Messages(p *peering.Peer, batch []peering.Message) {
	f := t.fabric()
	if f == nil {
		return // its cables are down
	}
	for _, m := range batch {
		if err := f.Message(p.Name(), int(m.Stream), m.Data); err != nil {
			t.log("machine %s: %v", p.Name(), err)
		}
	}
	f.Turn()
}

// Room is of no interest: what found no room was told to be lost.
func (t *trunks) Room(*peering.Peer) {}

// Trouble is for a machine that was not reached, or one that was turned away.
func (t *trunks) Trouble(peer string, err error) {
	if peer == "" {
		peer = "(unknown)"
	}
	t.mu.Lock()
	t.why[peer] = err.Error()
	t.mu.Unlock()
	t.log("machine %s: %v", peer, err)
}
