package ibsim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

func parseSpec(t testing.TB, spec string) *topo.Graph {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestEveryNode reads NodeInfo, NodeDescription and every port's PortInfo of a fat tree along directed routes,
// with many requests on their way, and holds the answers against the graph that the net file was made of.
func TestEveryNode(t *testing.T) {
	g := parseSpec(t, "fat-tree:radix=8,levels=3")
	p := startSim(t, g).dial(t, nodeID(g.Nodes[0]))
	self := g.Nodes[0]
	f := p.Facts()
	if f.NodeGUID != self.GUID || f.PortNum != 1 || f.NodeType != ib.NodeCA || f.NodeID != nodeID(self) ||
		f.State != ib.PortInit {
		t.Errorf("facts %+v of node %v", f, self.GUID)
	}

	paths := routes(g, 0)
	type question struct {
		node int
		attr mad.AttrID
		port ib.PortNum
	}
	var asks []question
	for i, n := range g.Nodes {
		asks = append(asks, question{i, mad.AttrNodeInfo, 0}, question{i, mad.AttrNodeDescription, 0})
		for num := range n.Ports {
			if num > 0 || n.IsSwitch() {
				asks = append(asks, question{i, mad.AttrPortInfo, ib.PortNum(num)})
			}
		}
	}
	const tidBase = 0x7654_0000_0000 // all 48 bits that we may use
	seen := make([]bool, len(asks))
	done := newAsker(t, p).run(64, func(i int, m *[mad.Size]byte) bool {
		if i == len(asks) {
			return false
		}
		q := asks[i]
		smp(m, q.attr, uint32(q.port), tidBase+uint64(i), paths[q.node])
		return true
	}, func(tid uint64, m mad.View) {
		i := int(tid - tidBase)
		if i < 0 || i >= len(asks) || seen[i] {
			t.Fatalf("an answer with transaction ID 0x%x", tid)
		}
		seen[i] = true
		q := asks[i]
		n := g.Nodes[q.node]
		if m.Status() != 0 || m.Method() != mad.MethodGetResp || m.AttrID() != q.attr {
			t.Fatalf("%s: %v", n.Name, mad.Dump(m))
		}
		switch q.attr {
		case mad.AttrNodeInfo:
			var info mad.NodeInfo
			if _, err := info.Parse(m.Data()); err != nil {
				t.Fatal(err)
			}
			if info.NodeGUID != n.GUID || info.NodeType != n.Type || int(info.NumPorts) != n.NumPorts() {
				t.Errorf("%s: NodeInfo %+v", n.Name, info)
			}
			if q.node == 0 && info.PortGUID != f.PortGUID {
				t.Errorf("our port's GUID is %v by NodeInfo and %v by our facts", info.PortGUID, f.PortGUID)
			}
			// The port where the request came in is the last one of the route.
			if path := paths[q.node]; len(path) > 0 && info.LocalPortNum != arrival(g, 0, path) {
				t.Errorf("%s: came in by port %d, want %d", n.Name, info.LocalPortNum, arrival(g, 0, path))
			}
		case mad.AttrNodeDescription:
			if desc := mad.NodeDescription(m.Data()); desc.String() != n.Desc {
				t.Errorf("%s: description %q, want %q", n.Name, desc, n.Desc)
			}
		case mad.AttrPortInfo:
			var info mad.PortInfo
			if _, err := info.Parse(m.Data()); err != nil {
				t.Fatal(err)
			}
			state := ib.PortDown
			if q.port == 0 || n.Ports[q.port].Connected() {
				state = ib.PortInit
			}
			if q.port == 0 {
				state = info.PortState // ibsim's own idea
			}
			if info.PortState != state {
				t.Errorf("%s port %d: %v, want %v", n.Name, q.port, info.PortState, state)
			}
		}
	})
	if done != len(asks) {
		t.Errorf("%d of %d answers", done, len(asks))
	}
	t.Logf("%d nodes, %d answers, %+v", len(g.Nodes), done, p.Counters())
}

// routes are directed routes from one node to each other.
func routes(g *topo.Graph, from int) [][]ib.PortNum {
	paths := make([][]ib.PortNum, len(g.Nodes))
	reached := make([]bool, len(g.Nodes))
	reached[from] = true
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		i := queue[0]
		n := g.Nodes[i]
		if !n.IsSwitch() && i != from {
			continue
		}
		for num := 1; num < len(n.Ports); num++ {
			if port := &n.Ports[num]; port.Connected() && !reached[port.Peer] {
				reached[port.Peer] = true
				paths[port.Peer] = append(append([]ib.PortNum(nil), paths[i]...), ib.PortNum(num))
				queue = append(queue, port.Peer)
			}
		}
	}
	return paths
}

// arrival is the port by which a route enters its last node.
func arrival(g *topo.Graph, at int, path []ib.PortNum) ib.PortNum {
	var in ib.PortNum
	for _, out := range path {
		port := &g.Nodes[at].Ports[out]
		at, in = port.Peer, port.PeerPort
	}
	return in
}

func TestRemote(t *testing.T) {
	g := parseSpec(t, "star:4")
	p := remote(t, g).dial(t, "")
	if f := p.Facts(); f.NodeGUID != g.Nodes[0].GUID {
		t.Errorf("without a name we are at %v, want the first node %v", f.NodeGUID, g.Nodes[0].GUID)
	}
	const asks = 5000 // all at once, but for the window
	done := newAsker(t, p).run(1000, func(i int, m *[mad.Size]byte) bool {
		smp(m, mad.AttrNodeInfo, 0, uint64(i), []ib.PortNum{1})
		return i < asks
	}, func(uint64, mad.View) {})
	if done != asks {
		t.Errorf("%d of %d answers: %+v", done, asks, p.Counters())
	}
}

func TestDialErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	_, err := Dial(ctx, Config{Socket: own("nobody")})
	if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "IBSIM_SOCKNAME="+own("nobody")+
		" ibsim -s NETFILE") {
		t.Errorf("no ibsim: %v", err)
	}
	if _, err := Dial(ctx, Config{Host: strings.Repeat("x", 32)}); err == nil {
		t.Error("a host name of 32 bytes is accepted")
	}
	short, cancelShort := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancelShort()
	if _, err := Dial(short, Config{Socket: own("nobody"), Wait: true}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("waiting for no ibsim: %v", err)
	}

	g := parseSpec(t, "star:3")
	s := startSim(t, g)
	first := s.dial(t, nodeID(g.Nodes[1]))
	s.cfg.Host = "nosuch"
	if _, err := Dial(ctx, s.cfg); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("an unknown host: %v", err)
	}
	// One manager for each node.
	if err := first.SetIsSM(true); err != nil {
		t.Error(err)
	}
	s.cfg.Host, s.cfg.IsSM = nodeID(g.Nodes[1]), true
	if _, err := Dial(ctx, s.cfg); !errors.Is(err, ErrRefused) {
		t.Errorf("a second manager at a node: %v", err)
	}
	if err := first.SetIsSM(false); err != nil {
		t.Error(err)
	}
	second, err := Dial(ctx, s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	var m [mad.Size]byte
	if err := second.Send(&direct, &m); !errors.Is(err, ErrClosed) {
		t.Errorf("sending after the end: %v", err)
	}
	if _, err := second.Recv(make([]Packet, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("receiving after the end: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	smp(&m, mad.AttrNodeInfo, 0, 1<<48, nil)
	if err := first.Send(&direct, &m); !errors.Is(err, ErrTID) {
		t.Errorf("a transaction ID of 49 bits: %v", err)
	}
}

// TestNotStarted: an ibsim without -s takes a client's request and says nothing.
func TestNotStarted(t *testing.T) {
	// What listens here is a socket of our own that never answers.
	fd, file, err := socketForTest(own("silent") + ":ctl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_ = fd
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, Config{Socket: own("silent")})
	if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "-s") {
		t.Errorf("a silent ibsim: %v", err)
	}
	canceled, cancel2 := context.WithCancel(context.Background())
	cancel2()
	if _, err := Dial(canceled, Config{Socket: own("silent")}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestUndeliverable asks along a route that leads nowhere: the request comes back and is dropped, and the others are
// answered.
func TestUndeliverable(t *testing.T) {
	g := parseSpec(t, "star:3")
	p := startSim(t, g).dial(t, nodeID(g.Nodes[0]))
	answers := 0
	newAsker(t, p).run(1, func(i int, m *[mad.Size]byte) bool {
		if i == 0 {
			var lost [mad.Size]byte
			smp(&lost, mad.AttrNodeInfo, 0, 99, []ib.PortNum{1, 200})
			if err := p.Send(&direct, &lost); err != nil {
				t.Fatal(err)
			}
		}
		smp(m, mad.AttrNodeInfo, 0, uint64(i), []ib.PortNum{1})
		return i < 3
	}, func(tid uint64, m mad.View) {
		if tid != uint64(answers) {
			t.Errorf("answer %d has transaction ID %d", answers, tid)
		}
		answers++
	})
	if c := p.Counters(); answers != 3 || c.Undeliverable != 1 {
		t.Errorf("%d answers, %+v", answers, c)
	}
}

// BenchmarkRoundTrips gives the round trips that ibsim does in a second.
func BenchmarkRoundTrips(b *testing.B) {
	g := parseSpec(b, "fat-tree:radix=8,levels=3")
	for _, net := range []string{"unix", "udp"} {
		for _, width := range []int{1, 4, 16, 32, 64, 256} {
			if net == "udp" && width > 64 {
				continue // ibsim's buffer would overflow
			}
			b.Run(fmt.Sprintf("%s/width=%d", net, width), func(b *testing.B) {
				var s *simulator
				if net == "udp" {
					s = remote(b, g)
				} else {
					s = startSim(b, g)
				}
				p := s.dial(b, nodeID(g.Nodes[0]))
				path := routes(g, 0)[100]
				a := newAsker(b, p)
				b.ResetTimer()
				done := a.run(width, func(i int, m *[mad.Size]byte) bool {
					smp(m, mad.AttrPortInfo, 1, uint64(i), path)
					return i < b.N
				}, func(uint64, mad.View) {})
				b.StopTimer()
				if done != b.N {
					b.Fatalf("%d of %d answers", done, b.N)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "trips/s")
				b.ReportMetric(float64(p.Counters().Busy)/float64(b.N), "busy/op")
			})
		}
	}
}
