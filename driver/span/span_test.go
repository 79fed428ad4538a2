package span

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/live"
	"softib/fabric"
	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// memory is machines in one process: what one sends is taken in by the other in order.
type memory struct {
	here string
	all  map[string]*Fabric
	box  map[string]chan post
}

type post struct {
	from  string
	cable int
	data  []byte
}

func (m memory) Send(machine string, cable int, msg []byte) {
	m.box[machine] <- post{m.here, cable, append([]byte(nil), msg...)}
}

func (m memory) Flush() {}

func (m memory) Socket() (fd int, at netip.AddrPort, mtu int, err error) {
	at = netip.MustParseAddrPort("127.0.0.1:4711")
	fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC) // which nobody uses
	return fd, at, 1452, err
}

func (m memory) Call(ctx context.Context, machine, method string, in []byte) ([]byte, error) {
	return m.all[machine].Answer(ctx, m.here, method, in)
}

func (m memory) Passes(context.Context, string) bool { return true }

// leafs places each leaf with its hosts on a machine, and the spines in turn.
func leafs(g *topo.Graph, machines ...string) (where []string) {
	at := map[int]string{}
	for i, s := range g.Switches() {
		at[s.Index] = machines[i%len(machines)]
	}
	for _, n := range g.Nodes {
		i := n.Index
		if !n.IsSwitch() {
			i = n.Ports[1].Peer
		}
		where = append(where, at[i])
	}
	return where
}

// apart places switches on the first machine, and hosts on two others in turn.
func apart(g *topo.Graph, m ...string) (where []string) {
	for _, n := range g.Nodes {
		if n.IsSwitch() {
			where = append(where, m[0])
		} else {
			where = append(where, m[1+n.Index%2])
		}
	}
	return where
}

// spread makes a fabric on machines that all reach each other.
func spread(t *testing.T, spec string, where func(*topo.Graph, ...string) []string,
	names ...string) map[string]*Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	all, box := map[string]*Fabric{}, map[string]chan post{}
	for _, m := range names {
		box[m] = make(chan post, 1<<16)
	}
	var wg sync.WaitGroup
	for _, m := range names {
		f, err := New(Config{Graph: g, Here: m, Where: where(g, names...), Machines: memory{m, all, box}})
		if err != nil {
			t.Fatal(err)
		}
		all[m] = f
		wg.Go(func() {
			for p := range box[m] {
				_ = f.Message(p.from, p.cable, p.data)
				f.Turn()
			}
		})
	}
	t.Cleanup(func() {
		for _, f := range all {
			f.Close()
		}
		for _, b := range box {
			close(b)
		}
		wg.Wait()
	})
	for _, a := range names {
		for _, b := range names {
			if a != b {
				all[a].Reached(b, true)
			}
		}
	}
	return all
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// links counts the cables of which neither end is below a state.
func links(f *Fabric, state ib.PortState) (n int) {
	for _, c := range f.Graph().Cables() {
		if min(f.PortState(c.A), f.PortState(c.B)) >= state {
			n++
		}
	}
	return n
}

// Every machine says the same of the whole fabric as one machine would that had all of it.
func TestOneView(t *testing.T) {
	const spec = "fat-tree:radix=4,levels=2"
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	one, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if _, err := one.BringUp(); err != nil {
		t.Fatal(err)
	}
	all := spread(t, spec, leafs, "a", "b", "c")
	cables := len(g.Cables())
	eventually(t, "cables stay down", func() bool { return links(all["a"], ib.PortInit) == cables })
	if _, err := all["a"].BringUp(); err != nil {
		t.Fatal(err)
	}
	for name, f := range all {
		eventually(t, name+" does not see all cables up", func() bool { return links(f, ib.PortActive) == cables })
		for _, n := range g.Nodes {
			for p := range n.Ports {
				r := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
				want, ok := one.PortInfo(r)
				eventually(t, name+" has another view of "+g.PortName(r), func() bool {
					got, known := f.PortInfo(r)
					return ok == known && reflect.DeepEqual(got, want)
				})
				if got, want := f.PKeys(r), one.PKeys(r); len(got) != len(want) {
					t.Errorf("%s: %s has keys %v, want %v", name, g.PortName(r), got, want)
				}
			}
			got, isSwitch := f.Tables(n.Index)
			want, _ := one.Tables(n.Index)
			if isSwitch != n.IsSwitch() || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s has tables %+v, want %+v", name, n.Name, got, want)
			}
			if got, want := f.Lanes(n.Index), one.Lanes(n.Index); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s has other lanes", name, n.Name)
			}
		}
		for _, a := range g.Hosts() {
			for _, b := range g.Hosts() {
				from, to := topo.PortRef{Node: a.Index, Port: 1}, topo.PortRef{Node: b.Index, Port: 1}
				lid, _ := one.PortInfo(to)
				got, err := f.Way(from, lid.LID, 0, ib.PKeyDefault)
				want, _ := one.Way(from, lid.LID, 0, ib.PKeyDefault)
				if err != nil || a != b && !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: from %s to %s by %+v, want %+v: %v", name, a.Name, b.Name, got, want, err)
				}
			}
		}
	}
}

// Whoever is asked, what is done to a cable between two machines is done to both of its ends, and seen by all.
func TestCables(t *testing.T) {
	all := spread(t, "fat-tree:radix=4,levels=2", leafs, "a", "b", "c")
	a := all["a"]
	g := a.Graph()
	cables := len(g.Cables())
	eventually(t, "cables stay down", func() bool { return links(a, ib.PortInit) == cables })
	if _, err := a.BringUp(); err != nil {
		t.Fatal(err)
	}
	for _, c := range g.Cables() {
		if a.Where(c.A.Node) == a.Where(c.B.Node) || a.Where(c.A.Node) == "a" || a.Where(c.B.Node) == "a" {
			continue
		}
		// Between two others.
		if err := a.SetLink(c.A, false); err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			eventually(t, "the cable is not down for all", func() bool { return f.PortState(c.B) == ib.PortDown })
		}
		if err := a.SetLink(c.B, true); err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			eventually(t, "the cable is not up for all", func() bool { return f.PortState(c.A) != ib.PortDown })
		}
		bad := inspect.Fault{Drop: 1}
		if err := a.SetFault(c.A, bad); err != nil {
			t.Fatal(err)
		}
		for name, f := range all {
			if got := f.Faults(); len(got) != 1 || got[0].Fault != bad {
				t.Fatalf("%s: faults %+v", name, got)
			}
		}
		if err := a.ClearFault(c.B); err != nil || len(a.Faults()) != 0 {
			t.Fatalf("%v, %+v", err, a.Faults())
		}
		for name, f := range all {
			if err := f.ClearFault(c.A); !errors.Is(err, inspect.ErrFault) {
				t.Errorf("%s: a fault that is not there: %v", name, err)
			}
		}
		break
	}
	if err := a.SetLink(topo.PortRef{Node: 1 << 20, Port: 1}, false); !errors.Is(err, inspect.ErrFault) {
		t.Fatalf("a cable of no node: %v", err)
	}
	// A machine that is lost is nodes that are down.
	for _, n := range [2]string{"a", "b"} {
		all[n].Reached("c", false)
		all["c"].Reached(n, false)
	}
	for _, n := range g.Nodes {
		if a.Where(n.Index) == "c" && a.PortState(topo.PortRef{Node: n.Index, Port: 1}) != ib.PortDown {
			t.Errorf("%s is %v", n.Name, a.PortState(topo.PortRef{Node: n.Index, Port: 1}))
		}
	}
}

// A machine speaks for its own cables, nodes and hosts alone.
func TestOnlyItsOwn(t *testing.T) {
	all := spread(t, "star:4", apart, "switch", "even", "odd")
	f := all["switch"]
	cables := f.Graph().Cables()
	eventually(t, "cables stay down", func() bool { return links(f, ib.PortInit) == len(cables) })
	if _, err := all[f.Where(f.Graph().Hosts()[0].Index)].BringUp(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not all is up", func() bool { return links(f, ib.PortActive) == len(cables) })
	lid := func(m string) ib.LID {
		for _, n := range f.Graph().Hosts() {
			if f.Where(n.Index) == m {
				pi, _ := f.PortInfo(topo.PortRef{Node: n.Index, Port: 1})
				return pi.LID
			}
		}
		return 0
	}
	mine := f.cables["odd"][0]
	at := f.at[mine].A
	if f.Where(at.Node) != "switch" {
		at = f.at[mine].B
	}
	refused := func() uint64 { return f.Counters(at)[ib.PortRcvConstraintErrors] }
	if err := f.Message("odd", mine, datagram(lid("odd"), lid("even"))); err != nil || refused() != 0 {
		t.Fatalf("an honest packet: %v, %d refused", err, refused())
	}
	if err := f.Message("odd", mine, datagram(lid("even"), lid("odd"))); err != nil || refused() != 1 {
		t.Fatalf("a forged packet: %v, %d refused", err, refused())
	}
	if err := f.Message("odd", f.cables["even"][0], datagram(lid("odd"), lid("even"))); err == nil {
		t.Fatal("a machine has used the cable of another")
	}
	others := f.at[f.cables["even"][0]].A.Node
	told := portsTold{Nodes: []nodeTold{{Node: others}, {Node: -1}, {Node: 1 << 30}}}
	f.mirror.hear("odd", f.mirror.machines["odd"].gen, told)
	if !f.mirror.isSender("even", lid("even")) || f.mirror.isSender("odd", lid("even")) {
		t.Fatal("a machine has spoken for another's nodes")
	}
	for _, b := range [][]byte{nil, {0}, {1, 0}, {3, 1, 1, 1}, make([]byte, 9000)} {
		if err := f.Message("odd", mine, b); err == nil {
			t.Errorf("%d bytes of noise were taken in", len(b))
		}
	}
	if f.Counters(at)[ib.PortMalformedPacketErrors] == 0 {
		t.Error("noise was not counted")
	}
}

// datagram is a packet between two hosts as it crosses a cable.
func datagram(from, to ib.LID) []byte {
	var pool link.Pool
	f := pool.Get()
	*f.Packet = wire.Packet{LRH: wire.LRH{SLID: from, DLID: to, LNH: wire.LNHLocal},
		BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), DestQP: 77, PKey: ib.PKeyDefault}}
	f.Own([]byte("hello"))
	f.Seal()
	return (&fabric.Crossing{Frame: f}).AppendMessage(nil)
}

// TestRefresh: what another machine has changed before RenewWays returns is seen after it.
func TestRefresh(t *testing.T) {
	all := spread(t, "star:4", apart, "switch", "even", "odd")
	f, far := all["switch"], all["odd"]
	g := f.Graph()
	eventually(t, "cables stay down", func() bool { return links(f, ib.PortInit) == len(g.Cables()) })
	for _, n := range g.Hosts() {
		if f.Where(n.Index) != "odd" {
			continue
		}
		at := topo.PortRef{Node: n.Index, Port: 1}
		for _, up := range []bool{false, true, false} {
			if err := far.Fabric.SetLink(at, up); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the port does not change", func() bool {
				return (far.PortState(at) != ib.PortDown) == up
			})
			f.RenewWays()
			if is := f.PortState(at) != ib.PortDown; is != up {
				t.Fatalf("%s is up: %v, and was seen as %v", g.PortName(at), up, is)
			}
		}
	}
}

// A probe goes from machine to machine and is judged wherever packets are.
func TestProbe(t *testing.T) {
	all := spread(t, "fat-tree:radix=4,levels=2", leafs, "a", "b", "c")
	a := all["a"]
	g := a.Graph()
	eventually(t, "cables stay down", func() bool { return links(a, ib.PortInit) == len(g.Cables()) })
	if _, err := a.BringUp(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not all is up", func() bool { return links(a, ib.PortActive) == len(g.Cables()) })
	for _, x := range g.Hosts() {
		for _, y := range g.Hosts() {
			from, to := topo.PortRef{Node: x.Index, Port: 1}, topo.PortRef{Node: y.Index, Port: 1}
			pi, _ := a.PortInfo(to)
			got, err := a.Probe(from, pi.LID, 0, ib.PKeyDefault)
			if err != nil || !got.Arrived || got.At != to {
				t.Fatalf("from %s to %s: %+v, %v", x.Name, y.Name, got, err)
			}
			if got, err = a.Probe(from, pi.LID, 0, 0x8123); err != nil || got.Arrived || !got.IsKey() {
				t.Fatalf("from %s to %s with a wrong key: %+v, %v", x.Name, y.Name, got, err)
			}
		}
	}
}

// Whatever a machine asks, it gets an answer or an error.
func FuzzAnswer(f *testing.F) {
	for _, m := range Methods() {
		for _, in := range []string{`{}`, `0`, `-1`, `[]`, `{"Since":1}`, `[{"Node":-1,"Port":9}]`,
			`{"In":{"Node":99,"Port":1},"VL":200,"DLID":5}`, `{"Port":{"Node":0,"Port":1},"Fault":{"Drop":7}}`} {
			f.Add(m, []byte(in))
		}
	}
	f.Add("no such", []byte("{}"))
	g, err := topo.ParseSpec("star:2")
	if err != nil {
		f.Fatal(err)
	}
	one, err := New(Config{Graph: g, Here: "a"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { one.Close() })
	f.Fuzz(func(t *testing.T, method string, in []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		out, err := one.Answer(ctx, "b", method, in)
		if (err == nil) != (out != nil) {
			t.Fatalf("%s: %q, %v", method, out, err)
		}
	})
}
