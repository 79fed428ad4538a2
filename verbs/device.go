package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"softib/node/hca"
	"softib/proto/ib"
)

// Device is an adapter that a program can open. Package attach has the one of a host of a running fabric. What else
// it does, it does for this package.
type Device interface {
	// Name is the name of the host, such as h1.
	Name() string
	// Close ends the program's part of the adapter, and everything that was made on it.
	Close() error
}

// driven is a Device that keeps from programs what it does for this package: its driver is an engine.
type driven interface{ Driver() any }

// engineOf finds what a device does for this package.
func engineOf(d Device) engine {
	var e any = d
	if d, ok := e.(driven); ok {
		e = d.Driver()
	}
	if e, ok := e.(engine); ok {
		return e
	}
	panic(fmt.Sprintf("verbs: %T is no device of a driver: want what attach.Open returns", d))
}

// engine is what drivers do for this package: they own the adapter's engine, and give it out for one call at a time.
// It is not for programs.
type engine interface {
	// Enter gives exclusive use of the engine until Leave.
	Enter() *hca.HCA
	// Leave gives the engine back; what was posted gets under way.
	Leave()
	// LeaveQuiet gives the engine back after a call that put nothing under way,
	// such as posting a receive.
	LeaveQuiet()
	// TakeIn takes in what has come and sends what is due, before a call that changes a queue pair's state. Last says
	// that the queue pair ends: peers are given the time to take in what it sent.
	TakeIn(last bool)
	// Poll moves arrived completions of cq to out. It also does what has to be
	// done for them to arrive, so a caller may spin on it.
	Poll(cq *hca.CQ, out []hca.WC) int
	// WaitCQ sleeps until cq's completion event comes. The queue was armed.
	// An error that means that the device is closed matches ErrClosed; so for WaitEvent.
	WaitCQ(ctx context.Context, cq *hca.CQ) error
	// WaitEvent sleeps until the next asynchronous event.
	WaitEvent(ctx context.Context) (hca.Event, error)
	// Address is the number under which mem is registered when its owner names none.
	Address(mem []byte) uint64
}

// Context is an opened device: ibv_context. Everything else is made from it.
type Context struct {
	device Device
	dev    engine
	// What was made and not closed, by the engine's object. The device's lock guards both.
	made uint64
	open map[any]opened
}

type opened struct {
	number uint64 // in the order of making
	object closer
}

type closer interface{ Close() error }

// Open opens a device. A device may be opened several times; each Context has its own objects.
func Open(d Device) *Context { return &Context{device: d, dev: engineOf(d), open: map[any]opened{}} }

// Device is what the context was opened on.
func (c *Context) Device() Device { return c.device }

// add notes what was made. The device's lock is held.
func add[T closer](c *Context, engineObject any, object T) T {
	c.made++
	c.open[engineObject] = opened{c.made, object}
	return object
}

// free closes an object by the engine's verb for it.
func free[E any](c *Context, object E, verb func(*hca.HCA, E) error) error {
	h := c.dev.Enter()
	defer c.dev.Leave()
	if err := verb(h, object); err != nil {
		return refused(err)
	}
	delete(c.open, object)
	return nil
}

// Close closes whatever was made from this Context and is still open, users before what they use, and takes queue pairs
// out of their multicast groups. The device stays open: who has opened it closes it. Nobody may use the objects
// meanwhile.
func (c *Context) Close() error {
	for {
		c.dev.Enter()
		left := slices.SortedFunc(maps.Values(c.open), func(a, b opened) int { return cmp.Compare(b.number, a.number) })
		c.dev.LeaveQuiet()
		var busy error
		for _, o := range left {
			err := o.object.Close()
			if q, ok := o.object.(*QP); ok && errors.Is(err, ErrBusy) {
				err = errors.Join(q.detachAll(), q.Close())
			}
			busy = errors.Join(busy, err)
		}
		// The newest first is almost always the right order. A region that was made after the window on it, or moved
		// to a newer domain, takes another round.
		if busy == nil || len(left) == c.count() {
			return busy
		}
	}
}

func (c *Context) count() int {
	c.dev.Enter()
	defer c.dev.LeaveQuiet()
	return len(c.open)
}

// QueryDevice returns the device's limits: ibv_query_device.
func (c *Context) QueryDevice() Limits {
	h := c.dev.Enter()
	defer c.dev.Leave()
	return Limits(h.Limits())
}

// NumPorts counts the device's ports, whose numbers begin with 1.
func (c *Context) NumPorts() int {
	h := c.dev.Enter()
	defer c.dev.Leave()
	return h.NumPorts()
}

// QueryPort returns a port's state and addresses: ibv_query_port.
func (c *Context) QueryPort(n ib.PortNum) (Port, error) {
	h := c.dev.Enter()
	defer c.dev.Leave()
	p := h.Port(n)
	if p == nil {
		return Port{}, &AttrError{Verb: "query_port", Attr: "port_num", Got: n, Want: "a port of the device",
			Kind: ErrInvalid}
	}
	is := Port{GUID: p.GUID, State: p.State, LID: p.LID, LMC: p.LMC, SMLID: p.SMLID, SMSL: p.SMSL, MTU: p.MTU,
		Rate: p.Rate, GIDs: slices.Clone(p.GIDs), PKeys: slices.Clone(p.PKeys),
		PKeyViolations: p.PKeyViolations, QKeyViolations: p.QKeyViolations}
	if is.Ethernet = h.Config().RoCE.ByGID; is.Ethernet {
		is.LID = 0
	}
	return is, nil
}

// PD is a protection domain: queue pairs reach only memory of their own domain.
type PD struct {
	ctx *Context
	pd  *hca.PD
}

// AllocPD makes a protection domain: ibv_alloc_pd.
func (c *Context) AllocPD() (*PD, error) {
	h := c.dev.Enter()
	defer c.dev.Leave()
	pd, err := h.AllocPD()
	if err != nil {
		return nil, refused(err)
	}
	return add(c, pd, &PD{c, pd}), nil
}

// Close frees the domain, which nothing may use any more.
func (p *PD) Close() error { return free(p.ctx, p.pd, (*hca.HCA).DeallocPD) }

// AH is an address handle: the way to the destination of datagrams.
type AH struct {
	ah  hca.AH // first: see SendWR
	ctx *Context
}

// CreateAH makes an address handle: ibv_create_ah.
func (p *PD) CreateAH(a AHAttr) (*AH, error) {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	ah := &AH{ctx: p.ctx}
	if err := h.InitAH(&ah.ah, p.pd, hca.AHAttr(a)); err != nil {
		return nil, refused(err)
	}
	return add(p.ctx, &ah.ah, ah), nil
}

// Close frees the handle. Requests that were posted with it must be complete.
func (a *AH) Close() error { return free(a.ctx, &a.ah, (*hca.HCA).DestroyAH) }

// XRCD is an XRC domain: what a target's connections and the shared receive queues that they may use have in common.
type XRCD struct {
	ctx *Context
	x   *hca.XRCD
}

// OpenXRCD makes an XRC domain: ibv_open_xrcd.
func (c *Context) OpenXRCD() *XRCD {
	h := c.dev.Enter()
	defer c.dev.Leave()
	x := h.OpenXRCD()
	return add(c, x, &XRCD{c, x})
}

// Close frees the domain, which nothing may use any more.
func (x *XRCD) Close() error { return free(x.ctx, x.x, (*hca.HCA).CloseXRCD) }
