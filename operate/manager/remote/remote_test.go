package remote_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/patience"
	"softib/node/ibswitch"
	"softib/node/inspect"
	"softib/node/link"
	"softib/node/madrpc"
	"softib/operate/manager"
	"softib/operate/manager/remote"
	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/verbs/attach"
	"softib/verbs/attach/server"
)

const small = "fat-tree:radix=4,levels=2"

// same wants two things to be equal.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// There are no other nodes, cables, states, addresses, keys and ways than the fabric itself knows.
func TestTruth(t *testing.T) {
	for _, spec := range []string{small, "star:3", "torus:3x3"} {
		t.Run(spec, func(t *testing.T) {
			r := newRig(t, spec, sm.Config{LMC: 1})
			f := r.watch(1, quick)
			g := f.Graph()
			same(t, "hosts", len(g.Hosts()), len(r.g.Hosts()))
			same(t, "switches", len(g.Switches()), len(r.g.Switches()))
			same(t, "cables", g.NumCables(), r.g.NumCables())
			to := func(x topo.PortRef) topo.PortRef { // the same port in our graph
				n := g.ByName(r.g.Nodes[x.Node].Name)
				if n == nil {
					t.Fatalf("no node %s", r.g.Nodes[x.Node].Name)
				}
				return topo.PortRef{Node: n.Index, Port: x.Port}
			}
			for _, c := range r.g.Cables() {
				if p := g.Port(to(c.A)); !p.Connected() || (topo.PortRef{Node: p.Peer, Port: p.PeerPort}) != to(c.B) {
					t.Errorf("no cable %s %s", r.g.PortName(c.A), r.g.PortName(c.B))
				}
			}
			for i, n := range r.g.Nodes {
				same(t, "GUID of "+n.Name, g.ByName(n.Name).GUID, n.GUID)
				for p := range n.Ports {
					x := topo.PortRef{Node: i, Port: ib.PortNum(p)}
					want, ok := r.PortInfo(x)
					if !ok || p == 0 && !n.IsSwitch() {
						continue
					}
					got, ok := f.PortInfo(to(x))
					if !ok || got.PortState != want.PortState || got.LID != want.LID || got.LMC != want.LMC ||
						got.Rate() != want.Rate() || got.MasterSMLID != want.MasterSMLID {
						t.Errorf("%s: %+v, want %+v", r.g.PortName(x), got, want)
					}
					if !n.IsSwitch() && !slices.Equal(f.PKeys(to(x)), r.PKeys(x)) {
						t.Errorf("%s has the keys %v, want %v", r.g.PortName(x), f.PKeys(to(x)), r.PKeys(x))
					}
				}
			}
			for _, a := range r.g.Hosts() {
				for _, b := range r.g.Hosts() {
					from, dst := topo.PortRef{Node: a.Index, Port: 1}, topo.PortRef{Node: b.Index, Port: 1}
					pi, _ := r.PortInfo(dst)
					if a == b {
						continue
					}
					want, err := r.Way(from, pi.LID, 0, ib.PKeyDefault)
					if err != nil {
						t.Fatal(err)
					}
					got, err := f.Way(to(from), pi.LID, 0, ib.PKeyDefault)
					if err != nil || got.Reason != want.Reason || len(got.Hops) != len(want.Hops) {
						t.Fatalf("%s to %s: %+v, %v; want %+v", a.Name, b.Name, got, err, want)
					}
					for k := range want.Hops {
						w, h := want.Hops[k], got.Hops[k]
						if h.Out != to(w.Out) || h.In != to(w.In) || h.VL != w.VL || h.Rate != w.Rate ||
							h.MTU != w.MTU {
							t.Errorf("%s to %s, hop %d: %+v, want %+v", a.Name, b.Name, k, h, w)
						}
					}
				}
			}
			// An address that nobody has, and one that is none.
			want, _ := r.Way(topo.PortRef{Node: r.g.Hosts()[0].Index, Port: 1}, 0x4000, 0, ib.PKeyDefault)
			got, err := f.Way(to(topo.PortRef{Node: r.g.Hosts()[0].Index, Port: 1}), 0x4000, 0, ib.PKeyDefault)
			if err != nil || got.Reason != want.Reason || got.Lost != to(want.Lost) {
				t.Errorf("to nobody: %+v, %v; want %+v", got, err, want)
			}
			if _, err := f.Way(topo.PortRef{}, 0xC000, 0, ib.PKeyDefault); err == nil {
				t.Error("there is a way to a group")
			}
		})
	}
}

// A link that goes down and comes back is noticed, at both ends, and said; so is a host behind one.
func TestLinks(t *testing.T) {
	r := newRig(t, small, sm.Config{})
	f := r.watch(1, quick)
	state := func(name string) ib.PortState {
		pi, _ := f.PortInfo(ref(t, f.Graph(), name))
		return pi.PortState
	}
	set := func(name string, up bool) {
		t.Helper()
		if err := r.SetLink(ref(t, r.g, name), up); err != nil {
			t.Fatal(err)
		}
	}
	epoch := f.Epoch()
	set("leaf1[3]", false)
	if e := awaitEvent(t, f.Journal(), "leaf1[3]", "spine1[1]",
		"is DOWN; it was ACTIVE"); e.Severity != manager.Warning || e.Kind != "topology" || e.Object == "" {
		t.Errorf("%+v", e)
	}
	same(t, "leaf1[3]", state("leaf1[3]"), ib.PortDown)
	same(t, "spine1[1]", state("spine1[1]"), ib.PortDown)
	if f.Epoch() == epoch {
		t.Error("the epoch is the same")
	}
	set("leaf1[3]", true)
	awaitEvent(t, f.Journal(), "leaf1[3]", "spine1[1]", "is ACTIVE")
	same(t, "leaf1[3]", state("leaf1[3]"), ib.PortActive)

	set("h8[1]", false)
	if e := awaitEvent(t, f.Journal(), "h8 is gone"); e.Severity != manager.Warning {
		t.Errorf("%+v", e)
	}
	same(t, "h8[1]", state("h8[1]"), ib.PortDown)
	same(t, "hosts", len(f.Graph().Hosts()), 8)
	set("h8[1]", true)
	awaitEvent(t, f.Journal(), "h8 is back")
	select {
	case <-f.Grown():
		t.Error("the graph is said to have grown")
	default:
	}

	// Without our own link nothing can be seen, which is not the same as that everything is down.
	set("h2[1]", false)
	if e := awaitEvent(t, f.Journal(), "h2[1]", "nothing else can be seen"); e.Severity != manager.Critical {
		t.Errorf("%+v", e)
	}
	same(t, "h2[1]", state("h2[1]"), ib.PortDown)
	same(t, "leaf3[3]", state("leaf3[3]"), ib.PortActive)
	set("h2[1]", true)
	awaitEvent(t, f.Journal(), "h2[1]", "has its link again")
}

// What was not there at first makes the graph grow; nodes keep their numbers.
func TestGrown(t *testing.T) {
	r := newRig(t, small, sm.Config{})
	if err := r.SetLink(ref(t, r.g, "h8[1]"), false); err != nil {
		t.Fatal(err)
	}
	f := r.watch(1, quick)
	was := f.Graph()
	same(t, "hosts", len(was.Hosts()), 7)
	if err := r.SetLink(ref(t, r.g, "h8[1]"), true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-f.Grown():
	case <-time.After(60 * time.Second):
		t.Fatal("nobody says that there is more")
	}
	g := f.Graph()
	same(t, "hosts", len(g.Hosts()), 8)
	same(t, "cables", g.NumCables(), 16)
	for i, n := range was.Nodes {
		same(t, "the name of a node", g.Nodes[i].Name, n.Name)
	}
	awaitEvent(t, f.Journal(), "h8 is new")
	awaitEvent(t, f.Journal(), "the cable", "h8[1]", "is new")
}

// traffic is two programs that send until stop is called.
func (r *rig) traffic(from, to string) (stop func()) {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "verbs")
	l, err := server.Listen(path)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, r.Fabric, "test", nil) }()
	var dev [2]*attach.Device
	for i, h := range []string{from, to} {
		if dev[i], err = attach.Open(attach.Options{Socket: path, Host: h}); err != nil {
			r.t.Fatal(err)
		}
	}
	sending, enough := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for {
			err := perf.Run(sending, dev[0], dev[1], perf.Config{Test: perf.SendBW, Sizes: []int{16 << 10}, Iters: 200,
				TxDepth: 16}, func(perf.Row) error { return nil })
			if err != nil {
				if sending.Err() != nil {
					err = nil
				}
				done <- err
				return
			}
		}
	}()
	return func() {
		r.t.Helper()
		enough()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		for _, d := range dev {
			d.Close()
		}
		cancel()
		if err := <-served; err != nil {
			r.t.Error(err)
		}
	}
}

// Counters are those of the ports, also of a cable that flips bits; and a Manager on top finds that cable.
func TestCounters(t *testing.T) {
	r := newRig(t, small, sm.Config{})
	bad := ref(t, r.g, "h7[1]")
	if err := r.SetFault(bad, live.Fault{BER: 1e-7}); err != nil {
		t.Fatal(err)
	}
	f := r.watch(1, remote.Options{Interval: 50 * time.Millisecond})
	m, err := manager.New(manager.Options{Name: "test", Fabric: f, Journal: f.Journal(),
		Interval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	stop := r.traffic("h3", "h7")
	awaitEvent(t, f.Journal(), "h7[1]", "bit error rate")
	if s := m.Sample(); s.XmitBytes == 0 {
		t.Error("nothing is sent")
	}
	stop()
	awaitRead(t, f, 2)
	mine, truth := f.CountersOf(m.Ports()), make([]ib.Counters, len(m.Ports()))
	for i, p := range m.Ports() {
		truth[i] = r.Counters(topo.PortRef{Node: r.g.ByName(m.Graph().Nodes[p.Node].Name).Index, Port: p.Port})
	}
	awaitRead(t, f, 2)
	later := f.CountersOf(m.Ports())
	for i, p := range m.Ports() {
		name := m.Graph().PortName(p)
		for _, c := range []ib.Counter{ib.LinkDownedCounter, ib.PortXmitDiscards, ib.PortXmitWait,
			ib.PortRcvSwitchRelayErrors, ib.VL15Dropped} {
			same(t, name+" "+c.String(), mine[i][c], truth[i][c])
		}
		// The questions themselves are traffic too, and may meet the bad cable: the truth lies between two readings.
		for _, c := range []ib.Counter{ib.PortXmitData, ib.PortRcvData, ib.PortXmitPkts, ib.PortRcvPkts,
			ib.SymbolErrorCounter, ib.PortRcvErrors} {
			if truth[i][c] < mine[i][c] || truth[i][c] > later[i][c] {
				t.Errorf("%s %v: %d, then %d, want %d in between", name, c, mine[i][c], later[i][c], truth[i][c])
			}
		}
	}
	worst := m.Worst()
	if len(worst) == 0 || m.LinkName(worst[0].Cable) != "h7[1] leaf4[1]" &&
		m.LinkName(worst[0].Cable) != "leaf4[1] h7[1]" {
		t.Errorf("the worst cable is %+v", worst)
	}
	if mine[mustIndex(t, m, "h3[1]")][ib.PortXmitData] < 1000 {
		t.Error("h3 has sent next to nothing")
	}
}

func mustIndex(t *testing.T, m *manager.Manager, name string) int {
	t.Helper()
	p, err := m.Port(name)
	if err != nil {
		t.Fatal(err)
	}
	i, _ := m.PortIndex(p)
	return i
}

// The administrator is asked through our own port on behalf of others.
func TestRoute(t *testing.T) {
	r := newRig(t, small, sm.Config{})
	f := r.watch(3, quick)
	m, err := manager.New(manager.Options{Name: "test", Fabric: f, Journal: f.Journal()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	from, to := ref(t, f.Graph(), "h1[1]"), ref(t, f.Graph(), "h8[1]")
	w, err := m.Route(t.Context(), from, to)
	if err != nil || !w.Arrives || len(w.Hops) != 4 || w.Hops[3].In != to {
		t.Fatalf("%+v, %v", w, err)
	}
	a, err := manager.NewAsker(f, from)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	pi, _ := f.PortInfo(from)
	recs, err := a.Paths(t.Context(), []ib.LID{pi.MasterSMLID}, []ib.LID{m.LID(to)})
	if err != nil || recs[0] == nil || recs[0].SLID != pi.LID || recs[0].DLID != m.LID(to) {
		t.Errorf("%+v, %v", recs, err)
	}
	same(t, "managed", m.Subnet().Managed, false)
	same(t, "programs", len(f.Programs())+len(f.HostStats())+len(f.PathLatencies())+len(f.Peaks(time.Second)), 0)
}

// Nothing is changed unless it may be; then ports are disabled and enabled.
func TestChanges(t *testing.T) {
	r := newRig(t, small, sm.Config{})
	f := r.watch(1, quick)
	leaf := ref(t, f.Graph(), "leaf1[3]")
	if err := f.SetLink(leaf, false); !errors.Is(err, remote.ErrReadOnly) || !errors.Is(err, manager.ErrFault) {
		t.Errorf("%v", err)
	}
	if err := f.SetFault(leaf, live.Fault{BER: 1e-6}); !errors.Is(err, manager.ErrFault) {
		t.Errorf("%v", err)
	}
	o := quick
	o.AllowChanges = true
	f = r.watch(1, o)
	m, err := manager.New(manager.Options{Name: "test", Fabric: f, Journal: f.Journal(), Interval: o.Interval})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	leaf = ref(t, f.Graph(), "leaf1[3]")
	if err := m.SetFault(leaf, manager.FaultSpec{BER: 1e-6}, "a test"); !errors.Is(err, manager.ErrFault) {
		t.Errorf("%v", err)
	}
	if err := m.SetFault(ref(t, f.Graph(), "h2[1]"), manager.FaultSpec{Down: true}, "a test"); !errors.Is(err,
		manager.ErrFault) {
		t.Errorf("the cable that it is watched through: %v", err)
	}
	if err := m.SetFault(leaf, manager.FaultSpec{Down: true}, "a test"); err != nil {
		t.Fatal(err)
	}
	if s := r.PortState(ref(t, r.g, "leaf1[3]")); s != ib.PortDown {
		t.Errorf("the port is %v", s)
	}
	awaitEvent(t, f.Journal(), "the link", "leaf1[3]", "is DOWN")
	// Another manager on the same fabric knows of it, and can lift it.
	again, err := manager.New(manager.Options{Name: "test", Fabric: f, Journal: f.Journal(), Interval: o.Interval})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if list := again.Faults(); len(list) != 1 || !list[0].Down || list[0].Since.IsZero() {
		t.Errorf("faults: %+v", list)
	}
	if err := again.SetFault(leaf, manager.FaultSpec{}, "a test"); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, f.Journal(), "the link", "leaf1[3]", "is ACTIVE")
	same(t, "faults", len(again.Faults()), 0)
}

// A transport that has failed ends the watching, with the reason; one without an answer is said at once.
func TestEnds(t *testing.T) {
	r := newRig(t, "star:3", sm.Config{})
	s := &failing{Session: r.session(1), broken: make(chan struct{})}
	f := watch(t, s, quick)
	close(s.broken)
	select {
	case <-f.Done():
	case <-time.After(60 * time.Second):
		t.Fatal("it goes on")
	}
	if err := f.Err(); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	awaitEvent(t, f.Journal(), "watched no more", errBroken.Error())
	if _, err := f.MgmtSession(topo.PortRef{}); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	mute := &deaf{Session: r.session(1)}
	if f, err := remote.Open(t.Context(), mute, quick); !errors.Is(err, remote.ErrNoAnswer) {
		t.Errorf("%v, %v", f, err)
	}
	same(t, "closed", mute.closed, true)
}

// Ways end where the fabric says that they do, for each reason that a switch has.
func TestWayEnds(t *testing.T) {
	r := newRig(t, small, sm.Config{SweepInterval: -1}) // which would mend what is broken here
	f := r.watch(1, quick)
	to := func(x topo.PortRef) topo.PortRef {
		return topo.PortRef{Node: f.Graph().ByName(r.g.Nodes[x.Node].Name).Index, Port: x.Port}
	}
	from, far := ref(t, r.g, "h1[1]"), ref(t, r.g, "h8[1]")
	pi, _ := r.PortInfo(far)
	const sl = 3
	way, err := r.Way(from, pi.LID, sl, ib.PKeyDefault)
	if err != nil || way.Reason != link.OK {
		t.Fatalf("%+v, %v", way, err)
	}
	in, out := way.Hops[0].In, way.Hops[1].Out
	s := r.session(0)
	id, err := s.Register(madrpc.Registration{Class: mad.ClassSMDirect})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(m mad.Method, attr mad.AttrID, mod uint32, data []byte) []byte {
		b, err := (&mad.SMP{Method: m, Attr: attr, Modifier: mod, Directed: true, Path: []ib.PortNum{1},
			Data: data}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := patience.Context(t.Context(), 10*time.Second)
		defer cancel()
		a, err := manager.Ask(ctx, s, 3, []manager.Question{{Agent: id, Data: b,
			Env: mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}}})
		if err != nil || a[0] == nil || mad.View(a[0]).Status() != mad.StatusOK {
			t.Fatalf("%v of %v: %v", m, attr, err)
		}
		return a[0][mad.SMPDataOff:][:mad.SMPDataLen]
	}
	port := func(p ib.PortNum, change func(*mad.PortInfo)) {
		var pi mad.PortInfo
		if _, err := pi.Parse(ask(mad.MethodGet, mad.AttrPortInfo, uint32(p), nil)); err != nil {
			t.Fatal(err)
		}
		pi.PortState, pi.PortPhysicalState, pi.ClientReregister = ib.PortNoChange, ib.PhysNoChange, false
		change(&pi)
		ask(mad.MethodSet, mad.AttrPortInfo, uint32(p), pi.Append(nil))
	}
	keys := func(p ib.PortNum, k ...ib.PKey) {
		var table mad.PKeyTable
		copy(table[:], k)
		ask(mad.MethodSet, mad.AttrPKeyTable, uint32(p)<<16, table.Append(nil))
	}
	block := uint32(pi.LID) / mad.LFTPerBlock
	entry := func(p ib.PortNum) {
		var e mad.LFT
		if _, err := e.Parse(ask(mad.MethodGet, mad.AttrLFT, block, nil)); err != nil {
			t.Fatal(err)
		}
		e[pi.LID%mad.LFTPerBlock] = p
		ask(mad.MethodSet, mad.AttrLFT, block, e.Append(nil))
	}
	for _, c := range []struct {
		name   string
		reason link.Reason
		do     func()
	}{
		{"key in", link.PKeyIn, func() {
			keys(in.Port, 0x8001)
			port(in.Port, func(pi *mad.PortInfo) { pi.PartitionEnforcementInbound = true })
		}},
		{"key out", link.PKeyOut, func() {
			keys(in.Port, ib.PKeyDefault)
			keys(out.Port, 0x8001)
			port(out.Port, func(pi *mad.PortInfo) { pi.PartitionEnforcementOutbound = true })
		}},
		{"lane", link.BadVLMap, func() {
			keys(out.Port, ib.PKeyDefault)
			m := mad.SLtoVL{sl: ib.VLMgmt}
			ask(mad.MethodSet, mad.AttrSLtoVL, mad.SLtoVLModifier(in.Port, out.Port), m.Append(nil))
		}},
		{"circle", link.Looping, func() { entry(in.Port) }},
		{"no port", link.UnknownDLID, func() { entry(200) }},
		{"itself", link.OK, func() { entry(0) }},
		{"no entry", link.UnknownDLID, func() { entry(ibswitch.DropPort) }},
		{"down", link.Inactive, func() {
			entry(out.Port)
			port(out.Port, func(pi *mad.PortInfo) { pi.PortPhysicalState = ib.PhysDisabled })
		}},
	} {
		c.do()
		ctx, cancel := patience.Context(t.Context(), time.Minute)
		reads := f.Reads(ctx)
		for {
			want, _ := r.Way(from, pi.LID, sl, ib.PKeyDefault)
			got, err := f.Way(to(from), pi.LID, sl, ib.PKeyDefault)
			if err == nil && want.Reason == c.reason && got.Reason == want.Reason && got.Out == want.Out &&
				len(got.Hops) == len(want.Hops) && (c.reason == link.OK || got.Lost == to(want.Lost)) &&
				!slices.ContainsFunc(got.Hops, func(h inspect.WayHop) bool { return h.VL != sl }) {
				break
			}
			select {
			case <-reads:
				continue
			case <-ctx.Done():
			}
			t.Fatalf("%s: %+v, %v; want %+v", c.name, got, err, want)
		}
		cancel()
	}
}
