package machine

import (
	"slices"

	"softib/driver/endpoint"
	"softib/driver/sim"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// port is where a process's rings meet the simulated fabric: what the process sends by switched ways leaves the host's
// port, and what comes there goes into a ring to the process. To the simulation it is an adapter.
type port struct {
	adapter *hca.HCA // the host as management sees it
	p       *process
	page    *endpoint.Page // by which the port is woken
	ring    []byte         // to the process
	out     *endpoint.Out
	in      []*inlet
	turn    int
	send    hca.Send // see NextSend
	// waiting are packets for which there was no room in the ring, since when.
	waiting []wire.Packet
	since   ib.Time
}

// stuckAfter is how long a process may leave its ring full before packets to it are lost.
const stuckAfter = 500 * ib.Millisecond

// inlet is a ring from the process.
type inlet struct {
	in     *endpoint.In
	cur    wire.Packet // the packet, or bundle, that is being taken
	at, of int         // and how many of its packets were, of how many
	parked bool
}

var _ sim.Host = (*port)(nil)

func newPort(n *topo.Node) *port {
	cfg := hca.Config{NodeGUID: n.GUID, Ports: n.NumPorts()}
	for num := 1; num < len(n.Ports); num++ {
		cfg.PortGUID = append(cfg.PortGUID, n.PortGUID(ib.PortNum(num)))
	}
	return &port{adapter: hca.New(cfg)}
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
		p.m.at(p.m.Now(), doFeed, p.host, 0)
		return true
	})
	t.ring = takeRing()
	if t.out, err = endpoint.NewOut(t.ring, p.page, outsider); err != nil {
		return err
	}
	in, err := endpoint.NewIn(t.ring, t.page, outsider, 1)
	if err == nil {
		p.ep.AddIn(in)
	}
	return err
}

// takeFrom makes the port take packets from another ring of the process.
func (t *port) takeFrom(mem []byte, src *endpoint.Page) error {
	in, err := endpoint.NewIn(mem, src, outsider, 0)
	if err == nil {
		t.in = append(t.in, &inlet{in: in})
	}
	return err
}

// Adapter is the host as management sees it.
func (t *port) Adapter() *hca.HCA { return t.adapter }

// HandlePacket passes a packet on to the process, in its turn. One that has waited for too long is lost.
func (t *port) HandlePacket(now ib.Time, _ ib.PortNum, p *wire.Packet) {
	if t.p == nil || t.p.dead {
		return
	}
	switch {
	case len(t.waiting) == 0 && t.out.TryPut(p):
	case len(t.waiting) > 0 && now-t.since > stuckAfter:
		t.p.lastStill = max(t.p.lastStill, now)
	default:
		if len(t.waiting) == 0 {
			t.since = now
		}
		q := *p
		q.Payload = slices.Clone(p.Payload)
		t.waiting = append(t.waiting, q)
	}
}

// feed passes on what has waited, and what the process has sent.
func (t *port) feed() {
	for len(t.waiting) > 0 && t.out.TryPut(&t.waiting[0]) {
		t.waiting = t.waiting[1:]
		t.since = t.p.m.Now()
	}
	t.p.m.Sim.Wake(t.p.host)
}

// next makes sure that cur is the inlet's next packet, if there is one.
func (i *inlet) next() bool {
	if i.of == 0 && i.in.Poll(&i.cur) {
		i.at, i.of = 0, i.cur.Packets()
	}
	return i.of > 0
}

// NextSend is the ring whose turn it is.
func (t *port) NextSend() (*hca.Send, bool) {
	for range t.in {
		t.turn++
		if t.turn >= len(t.in) {
			t.turn = 0
		}
		if i := t.in[t.turn]; !i.parked && i.next() {
			t.send = hca.Send{Port: 1, SL: i.cur.LRH.SL}
			return &t.send, true
		}
	}
	return nil, false
}

// Emit takes the packet that NextSend has shown.
func (t *port) Emit(_ ib.Time, _ *hca.Send, p *wire.Packet, buf []byte) bool {
	i := t.in[t.turn]
	*p = i.cur.Single(i.at)
	p.Payload = buf[:copy(buf, p.Payload)]
	if i.at++; i.at == i.of {
		i.of = 0
		i.in.Done()
	}
	return true
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
	for _, ok := t.adapter.PollEvent(); ok; _, ok = t.adapter.PollEvent() {
	}
	for n := 1; n <= t.p.m.HostNode(t.p.host).NumPorts(); n++ {
		num := ib.PortNum(n)
		is, was := *t.adapter.Port(num), *t.p.ep.Engine().Port(num)
		if is.State != was.State || is.MTU != was.MTU {
			was.State, was.MTU = is.State, is.MTU
			t.p.ep.SetPort(num, was)
		}
	}
}
