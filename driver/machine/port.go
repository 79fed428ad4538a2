package machine

import (
	"slices"

	"softib/driver/endpoint"
	"softib/driver/sim"
	"softib/fabric"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// port is where a process's rings meet the simulated fabric: what the process sends by switched ways leaves the host's
// port, and what comes there goes into rings to the process, one for each lane. To the simulation it is an adapter.
type port struct {
	adapter *hca.HCA // the host as management sees it
	p       *process
	page    *endpoint.Page // by which the port is woken
	out     []*outlet
	in      []*inlet
	turn    int
	send    hca.Send // see NextSend
	lookAt  ib.Time  // when it looks by itself
}

// inlet is a ring from the process.
type inlet struct {
	endpoint.Inlet
	parked bool
}

// outlet is a ring to the process, and the packets that wait for room in it.
type outlet struct {
	endpoint.Outlet
	id  uint32
	mem []byte
	num ib.PortNum
	vl  ib.VL
	at  uint32 // the port's place in the fabric
	q   link.Queue
}

var _ sim.Keeper = (*port)(nil)

func newPort(n *topo.Node) *port {
	cfg := hca.Config{NodeGUID: n.GUID, Ports: n.NumPorts()}
	for num := 1; num < len(n.Ports); num++ {
		cfg.PortGUID = append(cfg.PortGUID, n.PortGUID(ib.PortNum(num)))
	}
	return &port{adapter: hca.New(cfg), lookAt: ib.Never}
}

// join gives the port the process whose it is.
func (t *port) join(p *process) (err error) {
	t.p = p
	if t.page, err = endpoint.NewPage(aligned(endpoint.PageBytes)); err != nil {
		return err
	}
	// The port always looks, in no time: who sends may be in the middle of a call, so it does so by an event.
	t.page.Rest()
	t.page.OnWake(func(_, _ bool) bool {
		t.page.Rest()
		t.lookBy(p.m.Now())
		return true
	})
	return nil
}

// lookBy has the port look at its rings, at a time or before.
func (t *port) lookBy(at ib.Time) { t.p.m.by(&t.lookAt, at, doFeed, t.p.host) }

// takeFrom makes the port take packets from another ring of the process.
func (t *port) takeFrom(mem []byte, src *endpoint.Page) error {
	in, err := endpoint.NewIn(mem, src, outsider, 0)
	if err == nil {
		t.in = append(t.in, &inlet{Inlet: endpoint.Inlet{In: in}})
	}
	return err
}

// Adapter is the host as management sees it.
func (t *port) Adapter() *hca.HCA { return t.adapter }

// HandlePacket is for management that no agent took: processes have no QP0 and QP1.
func (t *port) HandlePacket(ib.Time, ib.PortNum, *wire.Packet) {}

// Keep passes a packet on to the process behind those that wait for room.
func (t *port) Keep(at uint32, num ib.PortNum, f *link.Frame) {
	if t.p.dead {
		t.p.m.Taken(at, f)
		return
	}
	o := t.outlet(at, num, f.LRH.VL)
	o.q.Push(f)
	t.put(o)
	t.lookBy(o.Look(t.p.m.Now(), !o.q.Empty()))
}

// outlet is the ring for a lane, made when first needed.
func (t *port) outlet(at uint32, num ib.PortNum, vl ib.VL) *outlet {
	for _, o := range t.out {
		if o.num == num && o.vl == vl {
			return o
		}
	}
	p := t.p
	mem := takeRing()
	out, err := endpoint.NewOut(mem, p.page, outsider)
	if err != nil {
		panic(err) // it is our own memory
	}
	in, err := endpoint.NewIn(mem, t.page, outsider, num)
	if err != nil {
		panic(err)
	}
	o := &outlet{Outlet: endpoint.NewOutlet(out), id: p.m.newID(), mem: mem, num: num, vl: vl, at: at}
	t.out = append(t.out, o)
	p.ep.Incoming(o.id, in, func() {})
	return o
}

// put moves what waits to the process. What it leaves for too long is lost, and so is what comes when it is dead.
func (t *port) put(o *outlet) {
	now := t.p.m.Now()
	for f := o.q.Head(); f != nil; f = o.q.Head() {
		switch o.Put(now, f.Packet) {
		case endpoint.Waits:
			return
		case endpoint.Lost:
			t.p.lastStill = max(t.p.lastStill, now)
		}
		t.p.m.Taken(o.at, o.q.Pop())
	}
}

// AppendKept appends what waits.
func (t *port) AppendKept(kept []fabric.Kept) []fabric.Kept {
	for _, o := range t.out {
		for f := o.q.Head(); f != nil; f = f.Next() {
			kept = append(kept, fabric.Kept{Place: o.at, Frame: f})
		}
	}
	return kept
}

// feed passes on what has waited, and what the process has sent.
func (t *port) feed() {
	if t.p.m.Now() != t.lookAt {
		return // another look has taken this one's place
	}
	t.lookAt = ib.Never
	for _, o := range t.out {
		t.put(o)
		t.lookBy(o.Look(t.p.m.Now(), !o.q.Empty()))
	}
	t.p.m.Sim.Wake(t.p.host)
}

// revoke tells the process's rings that it is dead. What has waited there is lost.
func (t *port) revoke() {
	for _, o := range t.out {
		endpoint.Revoke(o.mem)
		t.put(o)
	}
}

// NextSend is the ring whose turn it is.
func (t *port) NextSend() (*hca.Send, bool) {
	for range t.in {
		t.turn++
		if t.turn >= len(t.in) {
			t.turn = 0
		}
		if i := t.in[t.turn]; !i.parked {
			is, fresh := i.Next()
			if fresh && i.Cur.Packets() > 1 {
				t.p.m.count[Bundles]++
			}
			if is {
				t.send = hca.Send{Port: 1, SL: i.Cur.LRH.SL}
				return &t.send, true
			}
		}
	}
	return nil, false
}

// Emit takes the packet that NextSend has shown, unless it cannot be one of this port's adapter.
func (t *port) Emit(_ ib.Time, _ *hca.Send, p *wire.Packet, buf []byte) bool {
	i := t.in[t.turn]
	*p = i.Packet()
	p.Payload = buf[:copy(buf, p.Payload)]
	i.Took()
	a := t.adapter.Port(1)
	o := endpoint.OriginPort{LID: a.LID, LMC: a.LMC, Keys: a.PKeys, GIDs: a.GIDs}
	return o.Sends(block, p)
}

// Park keeps the ring whose turn it is until there is room in the port.
func (t *port) Park(*hca.Send) { t.in[t.turn].parked = true }

// Unpark is told that there may be.
func (t *port) Unpark(*hca.QP) {
	for _, i := range t.in {
		i.parked = false
	}
}

// NextDeadline is never: the process has its own timers.
func (t *port) NextDeadline() ib.Time { return ib.Never }

// HandleTimeout is not called.
func (t *port) HandleTimeout(ib.Time) {}

// HasEvent reports whether management has changed something.
func (t *port) HasEvent() bool { return t.adapter.HasEvent() }

// tell tells the process what management has changed.
func (t *port) tell() {
	for e, ok := t.adapter.PollEvent(); ok; e, ok = t.adapter.PollEvent() {
		switch {
		case e.Port == 0:
		case e.Type == hca.EventClientReregister:
			t.p.ep.Rejoin(e.Port)
		default:
			t.p.ep.PortChanged(e.Port, t.written(e.Port), func() {})
		}
	}
}

// written is what management has written about a port.
func (t *port) written(num ib.PortNum) hca.Port {
	p := *t.adapter.Port(num)
	p.GIDs, p.PKeys = slices.Clone(p.GIDs), slices.Clone(p.PKeys)
	return p
}
