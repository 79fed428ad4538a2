package live

import (
	"errors"
	"sync/atomic"

	"softib/driver/endpoint"
	"softib/internal/release"
	"softib/node/agent"
	"softib/node/hca"
	"softib/proto/ib"
)

// Device is the adapter of a host for one program in the fabric's own process. It is what attach.Device is for a
// process of its own: an endpoint, and what stands between it and its Process, which is nothing but calls here.
type Device struct {
	*endpoint.Member
	p *Process
	// news: the fabric has told it something that it may not have taken in.
	news atomic.Bool
}

// Open attaches another program of this process to the host.
func (h *Host) Open() (*Device, error) {
	return h.open(Caller{PID: daemon, UID: owner, Library: release.Version})
}

// OpenUnlisted is Open for the fabric's own tests: statistics do not know of them.
func (h *Host) OpenUnlisted() (*Device, error) {
	return h.open(Caller{PID: daemon, UID: owner, unlisted: true})
}

func (h *Host) open(c Caller) (*Device, error) {
	p, err := h.attach(c, (*Process).allocate)
	if err != nil {
		return nil, err
	}
	d := &Device{p: p}
	if err := d.start(); err != nil {
		p.Close()
		return nil, err
	}
	for n := 1; n < len(h.ports); n++ {
		d.SetPort(ib.PortNum(n), h.Port(ib.PortNum(n)))
	}
	d.ForgetEvents() // the ports' first states are no news
	f := h.f
	f.mu.Lock()
	p.device = d
	for n, ok := p.PollNote(); ok; n, ok = p.PollNote() {
		d.hear(n)
	}
	over := f.closed.Load()
	f.mu.Unlock()
	if over {
		_ = d.Close()
		return nil, ErrClosed
	}
	return d, nil
}

func (d *Device) start() (err error) {
	p, h := d.p, d.p.host
	cfg := endpoint.Config{Name: h.Name(), Engine: h.config(), Router: d, Block: p.block}
	cfg.Engine.KeySeed = uint8(h.index) + uint8(p.block)
	d.Member, err = endpoint.NewMember(cfg, p.share)
	return err
}

// hear passes on what the fabric has to tell. The fabric's lock is held.
func (d *Device) hear(n Note) {
	switch {
	case n.Incoming != nil:
		if r, err := n.Incoming.in(); err == nil {
			d.Incoming(n.Incoming.ID, r, func() {})
		}
	case n.Gone != nil:
		d.Gone(n.Gone.ID)
	case n.Port != 0:
		change := d.p.news[n.Port].told
		d.PortChanged(n.Port, d.p.host.written(n.Port), func() { d.p.Heard(n.Port, change) })
	case n.Rejoin != 0:
		d.Rejoin(n.Rejoin)
	}
	d.news.Store(true)
}

// Route finds a way. The endpoint's lock is held.
func (d *Device) Route(k endpoint.Key) (*endpoint.Route, error) {
	r, err := d.p.Resolve(k)
	if errors.Is(err, ErrClosed) {
		return nil, err
	}
	// Without a way, packets go nowhere, by the slot that is there for it.
	for _, c := range r.New {
		if out, err := c.out(); err == nil {
			d.Outgoing(c.ID, out, func() {})
		}
	}
	return d.Way(k, r.Slot, r.Gen, r.Rings)
}

// Violated tells the adapter of a packet with a wrong key.
func (d *Device) Violated(v agent.Notice) { d.p.Violated(v) }

// Enter gives exclusive use of the engine until Leave. What management has done before the call is known to it.
func (d *Device) Enter() *hca.HCA {
	if d.news.Load() {
		d.news.Store(false)
		d.Settle()
	}
	return d.Member.Enter()
}

// Close ends the program's part. Calls that wait end with verbs.ErrClosed.
func (d *Device) Close() error {
	defer d.p.Close()
	return d.Member.Close()
}

// Device is the host's own, made with its first use, for programs that need no other.
func (h *Host) Device() *Device {
	h.opening.Do(func() {
		var err error
		if h.dev, err = h.Open(); err != nil {
			h.dev = h.dead()
		}
	})
	return h.dev
}

// dead is a device that has failed, for programs that come when the fabric is closed, or when there are too many.
func (h *Host) dead() *Device {
	d := &Device{p: &Process{f: h.f, host: h, share: endpoint.Share{Page: endpoint.NewLocalPage()}, ended: true}}
	if err := d.start(); err != nil {
		panic(err) // it needs nothing that could be missing
	}
	d.Fail()
	_ = d.Close()
	return d
}
