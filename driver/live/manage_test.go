package live

import (
	"context"
	"errors"
	"sync"
	"testing"

	"softib/driver/endpoint"
	"softib/node/hca"
	"softib/node/link"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/verbs"
)

// ask makes a management request and returns the answer's attribute.
func ask(t *testing.T, f *Fabric, class mad.Class, m mad.Method, node int, in ib.PortNum, attr mad.AttrID, mod uint32,
	data []byte) []byte {
	t.Helper()
	var req, resp [mad.Size]byte
	h := mad.Header{BaseVersion: 1, MgmtClass: class, ClassVersion: 1, Method: m, TransactionID: 7, AttributeID: attr,
		AttributeModifier: mod}
	h.Append(req[:0])
	copy(mad.View(req[:]).Data(), data)
	if !f.SMP(node, in, &req, &resp) {
		t.Fatalf("%v(%s) of %s: no answer", m, mad.AttrName(class, attr), f.graph.Nodes[node].Name)
	}
	if s := mad.View(resp[:]).Status(); s != mad.StatusOK {
		t.Fatalf("%v(%s) of %s: %v", m, mad.AttrName(class, attr), f.graph.Nodes[node].Name, s)
	}
	return mad.View(resp[:]).Data()
}

func getPort(t *testing.T, f *Fabric, r topo.PortRef) (pi mad.PortInfo) {
	t.Helper()
	in := r.Port
	if f.graph.Nodes[r.Node].IsSwitch() {
		in = 0
	}
	if _, err := pi.Parse(ask(t, f, mad.ClassSMLID, mad.MethodGet, r.Node, in, mad.AttrPortInfo, uint32(r.Port),
		nil)); err != nil {
		t.Fatal(err)
	}
	return pi
}

// setPort changes a port's PortInfo.
func setPort(t *testing.T, f *Fabric, r topo.PortRef, change func(*mad.PortInfo)) {
	t.Helper()
	pi := getPort(t, f, r)
	pi.PortState, pi.PortPhysicalState = ib.PortNoChange, ib.PhysNoChange
	change(&pi)
	in := r.Port
	if f.graph.Nodes[r.Node].IsSwitch() {
		in = 0
	}
	ask(t, f, mad.ClassSMLID, mad.MethodSet, r.Node, in, mad.AttrPortInfo, uint32(r.Port), pi.Append(nil))
}

// wayTo is the way of packets from h's port to the port that has a LID, and where it ends.
func wayTo(h *Host, port ib.PortNum, lid ib.LID) (*route, []hop) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.f.resolve(h.ports[port], endpoint.Key{Port: port, DLID: lid, PKey: ib.PKeyDefault})
}

func TestBringUp(t *testing.T) {
	for _, spec := range []string{topo.DefaultSpec, "pair", "torus:3x3", "dragonfly:a=4,h=2,p=2,g=9"} {
		f := bringUp(t, spec)
		lids := map[ib.LID]*Host{}
		for _, h := range f.hosts {
			p := h.Device().Enter().Port(1)
			if p.State != ib.PortActive || p.LID == 0 || lids[p.LID] != nil || p.SMLID == 0 {
				t.Errorf("%s: %s: %+v", spec, h.Name(), *p)
			}
			lids[p.LID] = h
			h.Device().Leave()
		}
		for _, h := range f.hosts {
			for lid, to := range lids {
				if h == to {
					continue
				}
				if rt, ends := wayTo(h, 1, lid); len(ends) != 1 || ends[0].p.host != to || rt.lost().p != nil {
					t.Fatalf("%s: %s does not reach %s: %+v", spec, h.Name(), to.Name(), rt)
				}
			}
		}
	}
}

// Each port of an adapter has a LID of its own.
func TestTwoPorts(t *testing.T) {
	g := &topo.Graph{}
	must := func(n *topo.Node, err error) *topo.Node {
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a := must(g.Add(topo.Node{Name: "a", Type: ib.NodeCA, GUID: 0x10}, 2))
	b := must(g.Add(topo.Node{Name: "b", Type: ib.NodeCA, GUID: 0x20}, 2))
	s := must(g.Add(topo.Node{Name: "s", Type: ib.NodeSwitch, GUID: 0x30}, 4))
	for i, n := range []*topo.Node{a, b} {
		for p := 1; p <= 2; p++ {
			if err := g.SetPortGUID(n.Index, ib.PortNum(p), n.GUID+ib.GUID(p)); err != nil {
				t.Fatal(err)
			}
			if err := g.Connect(n.Index, ib.PortNum(p), s.Index, ib.PortNum(2*i+p), topo.LinkSpec{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := f.BringUp()
	if err != nil {
		t.Fatal(err)
	}
	if r.Links != 4 || r.SMLID != 1 {
		t.Errorf("report %+v", r)
	}
	seen := map[ib.LID]bool{}
	for _, h := range f.hosts {
		for p := ib.PortNum(1); p <= 2; p++ {
			lid := h.eng.Port(p).LID
			if lid == 0 || seen[lid] || h.eng.Port(p).State != ib.PortActive {
				t.Errorf("%s/%d: LID %v, %v", h.Name(), p, lid, h.eng.Port(p).State)
			}
			seen[lid] = true
			for q := ib.PortNum(1); q <= 2; q++ {
				if _, ends := wayTo(f.hosts[1-h.index], q, lid); len(ends) != 1 || ends[0].p != h.ports[p] {
					t.Errorf("port %d does not reach %s/%d", q, h.Name(), p)
				}
			}
		}
	}
}

// A port that a manager disables takes its far end down; when it may poll again, both train,
// at the speed that is now allowed, and the next bring-up uses them.
func TestDisableAndRetrain(t *testing.T) {
	f := bringUp(t, topo.DefaultSpec)
	h := f.hosts[0]
	x := f.graph.Nodes[h.topo.Index].Ports[1]
	at := topo.PortRef{Node: x.Peer, Port: x.PeerPort}
	lid := f.hosts[9].eng.Port(1).LID
	drainEvents(h)

	setPort(t, f, at, func(pi *mad.PortInfo) { pi.PortPhysicalState = ib.PhysDisabled })
	if pi := getPort(t, f, at); pi.PortState != ib.PortDown || pi.PortPhysicalState != ib.PhysDisabled {
		t.Fatalf("the switch's end is %v, %v", pi.PortState, pi.PortPhysicalState)
	}
	mine := topo.PortRef{Node: h.topo.Index, Port: 1}
	if pi := getPort(t, f, mine); pi.PortState != ib.PortDown || pi.PortPhysicalState != ib.PhysPolling {
		t.Fatalf("the host's end is %v, %v", pi.PortState, pi.PortPhysicalState)
	}
	if ev := drainEvents(h); len(ev) != 1 || ev[0] != hca.EventPortErr {
		t.Fatalf("events %v, want PORT_ERR", ev)
	}
	if _, ends := wayTo(h, 1, lid); len(ends) != 0 {
		t.Error("packets leave by a port that is down")
	}
	r, err := f.BringUp()
	if err != nil || len(r.Down) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}

	setPort(t, f, at, func(pi *mad.PortInfo) {
		pi.LinkSpeedExtEnabled = 2 // EDR at most
		pi.PortPhysicalState = ib.PhysPolling
	})
	for _, ref := range []topo.PortRef{at, mine} {
		if pi := getPort(t, f, ref); pi.PortState != ib.PortInit ||
			pi.Rate() != (ib.LinkRate{Width: ib.Width4x, Speed: ib.EDR}) {
			t.Errorf("%s is %v at %v", f.graph.PortName(ref), pi.PortState, pi.Rate())
		}
	}
	if r, err = f.BringUp(); err != nil || len(r.Down) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if rt, ends := wayTo(h, 1, lid); len(ends) != 1 {
		t.Errorf("no way after the bring-up: %+v", rt)
	}

	// Down from the host's side retrains at once; a pulled cable does not.
	setPort(t, f, mine, func(pi *mad.PortInfo) { pi.PortState = ib.PortDown })
	if pi := getPort(t, f, at); pi.PortState != ib.PortInit {
		t.Errorf("the switch's end is %v", pi.PortState)
	}
	if s := h.eng.Port(1).State; s != ib.PortInit {
		t.Errorf("the adapter's port is %v", s)
	}
	if err := f.SetLink(at, false); err != nil {
		t.Fatal(err)
	}
	setPort(t, f, mine, func(pi *mad.PortInfo) { pi.PortState = ib.PortDown })
	if pi := getPort(t, f, mine); pi.PortState != ib.PortDown {
		t.Errorf("a port without a cable is %v", pi.PortState)
	}
}

func drainEvents(h *Host) (list []hca.EventType) {
	h.Device().Enter()
	h.Device().Leave() // it has heard of everything by now
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		e, err := h.Device().WaitEvent(over)
		if err != nil {
			return list
		}
		list = append(list, e.Type)
	}
}

// The performance agent tells what went by, and forgets it when told to.
func TestPerfCounters(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := newEnd(t, f.hosts[0].Device(), 4096), newEnd(t, f.hosts[1].Device(), 4096)
	connect(t, a, b)
	for range 5 {
		if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 8), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		waitOne(t, a)
	}
	x := f.graph.Nodes[f.hosts[0].topo.Index].Ports[1]
	attr := mad.CounterAttrByID(mad.AttrPortCountersExtended)
	read := func(m mad.Method) uint64 {
		var data [192]byte
		attr.SetPortSelect(data[:], uint8(x.PeerPort))
		attr.SetSelect(data[:], ^uint64(0))
		c, err := attr.Counters(ask(t, f, mad.ClassPerf, m, x.Peer, x.PeerPort, mad.AttrPortCountersExtended, 0,
			data[:]))
		if err != nil {
			t.Fatal(err)
		}
		return c[ib.PortRcvPkts]
	}
	managed := read(mad.MethodGet) - 5 // the bring-up's packets
	for range 5 {
		if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 8), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		waitOne(t, a)
	}
	if n := read(mad.MethodGet); n != 10+managed {
		t.Errorf("PortRcvPkts %d, want %d", n, 10+managed)
	}
	read(mad.MethodSet)
	if n := read(mad.MethodGet); n != 0 {
		t.Errorf("PortRcvPkts %d after it was cleared", n)
	}
}

// Management packets count as all others do, and those that go nowhere are counted where they end.
func TestManagementCounts(t *testing.T) {
	f := bringUp(t, "star:2")
	host := f.graph.Nodes[f.hosts[0].topo.Index]
	in := topo.PortRef{Node: host.Ports[1].Peer, Port: host.Ports[1].PeerPort}
	out := f.graph.Port(topo.PortRef{Node: f.graph.Nodes[f.hosts[1].topo.Index].Index, Port: 1})
	far := topo.PortRef{Node: out.Peer, Port: out.PeerPort}
	s, err := f.OpenMgmt(topo.PortRef{Node: host.Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id, err := s.Register(madrpc.Registration{Class: mad.ClassPerf, ClassVersion: 1})
	if err != nil {
		t.Fatal(err)
	}
	send := func(to ib.LID) {
		t.Helper()
		var dgram [mad.Size]byte
		h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: mad.MethodGet,
			TransactionID: 1, AttributeID: mad.AttrClassPortInfo}
		h.Append(dgram[:0])
		if err := s.Send(id, madrpc.Message{Env: mad.Envelope{LID: to, QPN: ib.QPNGSI, QKey: ib.QKeyGSI},
			Data: dgram[:]}); err != nil {
			t.Fatal(err)
		}
	}
	counted := func(r topo.PortRef, do func(), want map[ib.Counter]uint64) {
		t.Helper()
		before := f.Counters(r)
		do()
		after := f.Counters(r)
		for c := range ib.NumCounter {
			if got := after[c] - before[c]; got != want[c] {
				t.Errorf("%s grew by %d, want %d", c, got, want[c])
			}
		}
	}
	to, _ := f.PortInfo(topo.PortRef{Node: f.hosts[1].topo.Index, Port: 1})
	counted(far, func() { send(to.LID) }, map[ib.Counter]uint64{
		ib.PortXmitPkts: 1, ib.PortXmitData: mgmtWords, ib.PortUnicastXmitPkts: 1, ib.PortRcvPkts: 1,
		ib.PortRcvData: mgmtWords, ib.PortUnicastRcvPkts: 1,
	})
	counted(in, func() { send(1000) }, map[ib.Counter]uint64{
		ib.PortRcvPkts: 1, ib.PortRcvData: mgmtWords, ib.PortUnicastRcvPkts: 1, ib.PortRcvSwitchRelayErrors: 1,
		ib.PortDLIDMappingErrors: 1,
	})
	if err := f.SetLink(far, false); err != nil {
		t.Fatal(err)
	}
	counted(far, func() { send(to.LID) }, map[ib.Counter]uint64{ib.PortXmitDiscards: 1, ib.PortInactiveDiscards: 1})

	// So do the packets of queue pairs.
	h := f.hosts[0]
	rt, _ := wayTo(h, 1, to.LID)
	if rt.lost().p != f.port(far) || rt.lost().reason != link.Inactive {
		t.Errorf("packets end at %s for %v", rt.lost().p.name(), rt.lost().reason)
	}
}

func TestCreateMulticast(t *testing.T) {
	f := bringUp(t, topo.DefaultSpec)
	h := f.hosts
	if err := f.CreateMulticast(0xC005, h[0], h[3], h[8], h[31]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mlid ib.LID
		want int
	}{{0xC005, 3}, {sm.BroadcastMLID, 31}, {0xC006, 0}} {
		_, ends := wayTo(h[3], 1, c.mlid)
		seen := map[*Host]bool{}
		for _, e := range ends {
			seen[e.p.host] = true
		}
		if len(ends) != c.want || len(seen) != c.want || seen[h[3]] {
			t.Errorf("0x%x: %d ends at %d hosts, want %d", int(c.mlid), len(ends), len(seen), c.want)
		}
	}
	if err := f.CreateMulticast(7, h[0]); !errors.Is(err, ErrGroup) {
		t.Errorf("a unicast LID: %v", err)
	}
	f.Close()
	if _, err := f.BringUp(); err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
	if err := f.CreateMulticast(0xC005, h[0]); err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}

// Bringing a fabric up again does not disturb what runs on it.
func TestBringUpUnderTraffic(t *testing.T) {
	f := bringUp(t, "fat-tree:radix=4,levels=2")
	a, b := newEnd(t, f.hosts[0].Device(), 4096), newEnd(t, f.hosts[7].Device(), 4096)
	connect(t, a, b)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for range 20 {
			if _, err := f.BringUp(); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 500 {
		if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 2048), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		if wc := waitOne(t, a); wc.Status != verbs.WCSuccess {
			t.Fatalf("%+v", wc)
		}
	}
	wg.Wait()
}

// Requests to nodes and ports that do not exist have no answer.
func TestNoSuchPort(t *testing.T) {
	f := bringUp(t, "star:2")
	var req, resp [mad.Size]byte
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodSet,
		AttributeID: mad.AttrPortInfo, AttributeModifier: 200}
	h.Append(req[:0])
	for _, c := range []struct {
		node int
		port ib.PortNum
	}{{-1, 0}, {3, 0}, {0, 9}, {2, 200}} {
		if f.SMP(c.node, c.port, &req, &resp) {
			t.Errorf("node %d port %d answers", c.node, c.port)
		}
	}
	if !f.SMP(2, 0, &req, &resp) || mad.View(resp[:]).Status() != mad.StatusInvalidField {
		t.Errorf("PortInfo of port 200: %v", mad.View(resp[:]).Status())
	}
	if c := f.Counters(topo.PortRef{Node: 2, Port: 200}); c != (ib.Counters{}) {
		t.Errorf("counters %v", c)
	}
	if err := f.SetLink(topo.PortRef{Node: 7, Port: 1}, false); err == nil {
		t.Error("a cable that does not exist can be pulled")
	}
}
