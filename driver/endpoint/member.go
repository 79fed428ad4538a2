package endpoint

import (
	"sync"

	"softib/node/hca"
	"softib/proto/ib"
)

// Member is an endpoint as part of a fabric: what the fabric hands to it and tells it comes in here, whether that is in
// the same process or at the other end of a socket. None of the methods waits for the endpoint, whose lock may be held
// by somebody who waits for the fabric.
type Member struct {
	*Endpoint
	slots *Slots

	mu  sync.Mutex // guards what follows; taken after all others
	out map[uint32]*memberOut
	in  map[uint32]memberIn
	// goneEarly are rings that ended before they were heard of.
	goneEarly map[uint32]bool
	chores    []func() // that need the endpoint's lock, in order
	busy      bool     // somebody does them
}

type memberOut struct {
	*Out
	free  func()
	added bool
	open  func(now ib.Time) (Line, error) // of a tunnel that was not used yet
}

type memberIn struct {
	*In
	free func()
}

// NewMember makes an endpoint of what it shares with the fabric, whose side of it is cfg's Router. Queue pairs have the
// numbers of its block.
func NewMember(cfg Config, s Share) (*Member, error) {
	cfg.Page, cfg.Ledger = s.Page, s.Ledger
	cfg.Engine.FirstQPN = ib.QPN(cfg.Block) << BlockBits
	if cfg.Machine == nil {
		cfg.Engine.CNP, cfg.Engine.ReorderTime = true, reorderTime
	}
	if cfg.Engine.Limits == (hca.Limits{}) {
		cfg.Engine.Limits = hca.DefaultLimits()
	}
	cfg.Engine.Limits.MaxQP = min(cfg.Engine.Limits.MaxQP, 1<<BlockBits)
	e, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Member{Endpoint: e, slots: s.Slots, out: map[uint32]*memberOut{}, in: map[uint32]memberIn{},
		goneEarly: map[uint32]bool{}}, nil
}

// reorderTime is how long an adapter that puts packets in order waits for one: longer than threads are late.
const reorderTime = 50 * ib.Millisecond

// Outgoing hands over a ring to send into, by its number. Free is called when it is not used any more.
func (m *Member) Outgoing(id uint32, r *Out, free func()) {
	m.mu.Lock()
	early := m.goneEarly[id]
	delete(m.goneEarly, id)
	if !early {
		m.out[id] = &memberOut{Out: r, free: free}
	}
	m.mu.Unlock()
	if early {
		free()
	}
}

// OutgoingLine hands over a tunnel to send by. Open is called when it is first used, with the endpoint locked, and free
// when it is not any more.
func (m *Member) OutgoingLine(id uint32, open func(now ib.Time) (Line, error), free func()) {
	m.Outgoing(id, nil, free)
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.out[id]; o != nil {
		o.open = open
	}
}

// IncomingLine hands over a tunnel that packets come by: open is called with the endpoint locked.
func (m *Member) IncomingLine(id uint32, open func(now ib.Time), free func()) {
	m.mu.Lock()
	m.in[id] = memberIn{nil, free}
	m.mu.Unlock()
	m.Later(func() { m.Do(open) })
}

// Do does something with the endpoint locked.
func (e *Endpoint) Do(f func(now ib.Time)) {
	e.mu.Lock()
	f(e.refresh())
	e.finish()
	e.mu.Unlock()
}

// Incoming hands over a ring to receive from.
func (m *Member) Incoming(id uint32, r *In, free func()) {
	m.mu.Lock()
	m.in[id] = memberIn{r, free}
	m.mu.Unlock()
	m.Later(func() { m.AddIn(r) })
}

// Pipes hands over pipes for a ring: all descriptors to who sends into it, the first half of them to who receives.
func (m *Member) Pipes(id uint32, fds []int) {
	m.Later(func() {
		m.mu.Lock()
		out, in := m.out[id], m.in[id].In
		m.mu.Unlock()
		m.Endpoint.mu.Lock()
		defer m.Endpoint.mu.Unlock()
		switch {
		case out != nil && out.Out != nil && len(fds) == PipeFDs && !m.closed:
			out.usePipes(fds)
		case in != nil && len(fds) == numPipes && !m.closed:
			in.usePipes(fds)
		default:
			closePipes(fds)
		}
	})
}

// Gone says that nobody is at the other end of a ring any more.
func (m *Member) Gone(id uint32) { m.Later(func() { m.forget(id) }) }

// PortChanged says what management has made of a port. Heard is called when that holds for all that comes.
func (m *Member) PortChanged(n ib.PortNum, p hca.Port, heard func()) {
	m.Later(func() {
		m.SetPort(n, p)
		heard()
	})
}

// Rejoin says that a port's manager wants programs to join their groups again.
func (m *Member) Rejoin(n ib.PortNum) { m.Later(func() { m.Reregister(n) }) }

// Way is the way into rings that were handed over, valid as long as the slot's generation is gen. It is for the Router
// to call, within Route. A ring that is gone by now is not missed.
func (m *Member) Way(k Key, slot int, gen uint32, ids []uint32) (*Route, error) {
	rings := make([]*Out, 0, len(ids))
	m.mu.Lock()
	for _, id := range ids {
		if r := m.out[id]; r != nil {
			if !r.added && !m.add(r) {
				continue
			}
			rings = append(rings, r.Out)
		}
	}
	m.mu.Unlock()
	return NewRoute(k, m.slots, slot, gen, rings)
}

// add makes a ring one of the endpoint's.
func (m *Member) add(r *memberOut) bool {
	if r.open != nil {
		to, err := r.open(m.refresh())
		if err == nil {
			r.Out, err = newLineOut(to)
		}
		if err != nil {
			return false // packets vanish until there is another way
		}
	}
	r.added = true
	m.AddOut(r.Out)
	return true
}

// forget drops a ring whose other end is gone.
func (m *Member) forget(id uint32) {
	m.mu.Lock()
	out, isOut := m.out[id]
	in, isIn := m.in[id]
	delete(m.out, id)
	delete(m.in, id)
	if !isOut && !isIn {
		m.goneEarly[id] = true // news of the end was faster
	}
	m.mu.Unlock()
	if isOut {
		if out.Out != nil {
			m.DropOut(out.Out)
		}
		out.free()
	}
	if isIn {
		if in.In != nil {
			m.DropIn(in.In)
		}
		in.free()
	}
}

// Later has a chore done in its turn, without waiting for it.
func (m *Member) Later(f func()) {
	if m.machine != nil {
		m.machine.Later(f)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chores = append(m.chores, f)
	if !m.busy {
		m.busy = true
		go m.work()
	}
}

func (m *Member) work() {
	for {
		m.mu.Lock()
		if len(m.chores) == 0 {
			m.busy = false
			m.mu.Unlock()
			return
		}
		f := m.chores[0]
		m.chores = m.chores[1:]
		m.mu.Unlock()
		f()
	}
}

// Settle returns when everything that was handed over before was taken note of. No lock is held.
func (m *Member) Settle() {
	done := make(chan struct{})
	m.Later(func() { close(done) })
	<-done
}
