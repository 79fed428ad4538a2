package live

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// testMachine is a machine with its part of a fabric, and a trunk to the others that keeps order in memory.
type testMachine struct {
	name  string
	f     *Fabric
	peers map[int]*testMachine // by cable
	done  chan struct{}

	mu   sync.Mutex
	bell *sync.Cond
	in   []testMessage
	over bool
}

type testMessage struct {
	cable int
	data  []byte
}

// Send puts a message where the other machine finds it.
func (m *testMachine) Send(cable int, msg []byte) {
	to := m.peers[cable]
	to.mu.Lock()
	to.in = append(to.in, testMessage{cable, append([]byte(nil), msg...)})
	to.bell.Signal()
	to.mu.Unlock()
}

// Flush has nothing to do.
func (m *testMachine) Flush() {}

// receive takes in what others have sent, one message after the other.
func (m *testMachine) receive() {
	defer close(m.done)
	for {
		m.mu.Lock()
		for len(m.in) == 0 && !m.over {
			m.bell.Wait()
		}
		in := m.in
		m.in = nil
		m.mu.Unlock()
		if in == nil {
			return
		}
		for _, x := range in {
			_ = m.f.HandleTrunk(x.cable, x.data) // of a cable that is cut there is no trunk
		}
		m.f.Turn()
	}
}

// cablesTo are the cables that lead from one machine to another.
func (m *testMachine) cablesTo(far *testMachine) (list []int) {
	for c, p := range m.peers {
		if p == far {
			list = append(list, c)
		}
	}
	return list
}

// join says to two machines that they reach each other, or that they do not.
func join(a, b *testMachine, reached bool) {
	a.f.SetTrunk(a.cablesTo(b), reached)
	b.f.SetTrunk(b.cablesTo(a), reached)
}

// span makes one fabric of several machines; where says which of them has a node.
func span(t *testing.T, spec string, machines int, where func(g *topo.Graph, n *topo.Node) int) []*testMachine {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	of := make([]int, len(g.Nodes))
	for i, n := range g.Nodes {
		of[i] = where(g, n)
	}
	list := make([]*testMachine, machines)
	for i := range list {
		list[i] = &testMachine{name: fmt.Sprintf("m%d", i), peers: map[int]*testMachine{}, done: make(chan struct{})}
		list[i].bell = sync.NewCond(&list[i].mu)
	}
	for c, x := range g.Cables() {
		if a, b := of[x.A.Node], of[x.B.Node]; a != b {
			list[a].peers[c], list[b].peers[c] = list[b], list[a]
		}
	}
	for i, m := range list {
		m.f, err = New(g, Config{Outside: Outside{Trunk: m, Where: func(node int) string {
			if of[node] == i {
				return ""
			}
			return list[of[node]].name
		}}})
		if err != nil {
			t.Fatal(err)
		}
		go m.receive()
		t.Cleanup(func() {
			m.mu.Lock()
			m.over = true
			m.bell.Signal()
			m.mu.Unlock()
			<-m.done
			m.f.Close()
		})
	}
	for i, a := range list {
		for _, b := range list[:i] {
			join(a, b, true)
		}
	}
	return list
}

// bySwitch has every leaf with its hosts on a machine, and the spines spread.
func bySwitch(machines int) func(g *topo.Graph, n *topo.Node) int {
	return func(g *topo.Graph, n *topo.Node) int {
		if !n.IsSwitch() {
			n = g.Nodes[n.Ports[1].Peer]
		}
		for i, s := range g.Switches() {
			if s == n {
				return i % machines
			}
		}
		panic("a host at no switch")
	}
}

// awaitLinks waits until all cables of a machine are up, or all to another are down.
func awaitLinks(t *testing.T, m *testMachine, want bool, cables []int) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for _, c := range cables {
		for (m.f.PortState(m.f.outside[c].ref()) != ib.PortDown) != want {
			if time.Now().After(deadline) {
				t.Fatalf("%s: cable %d is %v", m.name, c, m.f.PortState(m.f.outside[c].ref()))
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// A fabric on three machines is brought up from one of them and carries messages between hosts of any two; when a
// machine is lost the others go on, and when it is back so do its hosts.
func TestOutside(t *testing.T) {
	m := span(t, "fat-tree:radix=4,levels=2", 3, bySwitch(3))
	for _, x := range m {
		for c := range x.peers {
			awaitLinks(t, x, true, []int{c})
		}
	}
	if _, err := m[0].f.BringUp(); err != nil {
		t.Fatal(err)
	}
	g := m[0].f.Graph()
	device := func(i int) *Device { // of a host of machine i
		for _, h := range m[i].f.Hosts() {
			if got, err := m[i].f.Host(h.Name()); err == nil {
				if _, err := m[(i+1)%3].f.Host(h.Name()); !errors.Is(err, ErrElsewhere) {
					t.Fatalf("%s on two machines: %v", h.Name(), err)
				}
				return got.Device()
			}
		}
		t.Fatalf("no host on machine %d", i)
		return nil
	}
	for i := range m {
		a, b := newEnd(t, device(i), 1<<20), newEnd(t, device((i+1)%3), 1<<20)
		connect(t, a, b)
		exchange(t, a, b)
		exchange(t, b, a)
	}
	for _, n := range g.Nodes {
		for i, x := range m {
			if x.f.isElsewhere(n.Index) || n.IsSwitch() {
				continue
			}
			if s := x.f.PortState(topo.PortRef{Node: n.Index, Port: 1}); s != ib.PortActive {
				t.Errorf("%s on machine %d is %v", n.Name, i, s)
			}
		}
	}
	join(m[1], m[2], false)
	join(m[0], m[2], false)
	awaitLinks(t, m[0], false, m[0].cablesTo(m[2]))
	if _, err := m[0].f.BringUp(); err != nil {
		t.Fatal(err)
	}
	a, b := newEnd(t, device(0), 1<<20), newEnd(t, device(1), 1<<20)
	connect(t, a, b)
	exchange(t, a, b)
	join(m[1], m[2], true)
	join(m[0], m[2], true)
	for _, x := range m[:2] {
		awaitLinks(t, x, true, x.cablesTo(m[2]))
	}
	if _, err := m[0].f.BringUp(); err != nil {
		t.Fatal(err)
	}
	a, b = newEnd(t, device(2), 1<<20), newEnd(t, device(1), 1<<20)
	connect(t, a, b)
	exchange(t, a, b)
}
