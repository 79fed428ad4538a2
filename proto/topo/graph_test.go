package topo

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
)

func addNode(t testing.TB, g *Graph, n Node, ports int) *Node {
	t.Helper()
	node, err := g.Add(n, ports)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func TestAddErrors(t *testing.T) {
	var g Graph
	addNode(t, &g, Node{Name: "a", Type: ib.NodeSwitch, GUID: 1}, 4)
	for _, c := range []struct {
		n     Node
		ports int
		want  error
	}{
		{Node{Name: "b", GUID: 2}, 1, ErrNodeType},
		{Node{Name: "b", Type: 4, GUID: 2}, 1, ErrNodeType},
		{Node{Type: ib.NodeCA, GUID: 2}, 1, ErrNoName},
		{Node{Name: "b", Type: ib.NodeCA}, 1, ErrNoGUID},
		{Node{Name: "b", Type: ib.NodeCA, GUID: 2}, 0, ErrPortCount},
		{Node{Name: "b", Type: ib.NodeCA, GUID: 2}, 255, ErrPortCount},
		{Node{Name: "a", Type: ib.NodeCA, GUID: 2}, 1, ErrDuplicateName},
		{Node{Name: "b", Type: ib.NodeCA, GUID: 1}, 1, ErrDuplicateGUID},
	} {
		_, err := g.Add(c.n, c.ports)
		var ne *NodeError
		if !errors.Is(err, c.want) || !errors.As(err, &ne) {
			t.Errorf("%+v with %d ports: got %v, want %v", c.n, c.ports, err, c.want)
		}
	}
	if len(g.Nodes) != 1 || g.ByName("b") != nil {
		t.Error("a refused node is in the graph")
	}
}

func TestConnectErrors(t *testing.T) {
	var g Graph
	a := addNode(t, &g, Node{Name: "a", Type: ib.NodeSwitch, GUID: 1}, 4).Index
	b := addNode(t, &g, Node{Name: "b", Type: ib.NodeCA, GUID: 2}, 2).Index
	if err := g.Connect(a, 1, b, 1, LinkSpec{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a    int
		pa   ib.PortNum
		b    int
		pb   ib.PortNum
		want error
	}{
		{-1, 1, b, 2, ErrUnknownNode},
		{a, 2, 2, 1, ErrUnknownNode},
		{a, 5, b, 2, ErrUnknownPort},
		{a, 0, b, 2, ErrUnknownPort},
		{a, 2, b, 0, ErrUnknownPort},
		{a, 2, b, 3, ErrUnknownPort},
		{a, 1, b, 2, ErrPortInUse},
		{a, 2, b, 1, ErrPortInUse},
		{a, 1, b, 1, ErrPortInUse},
		{a, 2, a, 2, ErrSelfLoop},
	} {
		err := g.Connect(c.a, c.pa, c.b, c.pb, LinkSpec{})
		var pe *PortError
		if !errors.Is(err, c.want) || !errors.As(err, &pe) {
			t.Errorf("%v: got %v, want %v", c, err, c.want)
		}
	}
	if g.NumCables() != 1 {
		t.Errorf("%d cables after refused ones", g.NumCables())
	}
	if err := g.Connect(a, 3, a, 4, LinkSpec{}); err != nil {
		t.Errorf("two ports of one switch: %v", err)
	}
	checkConsistent(t, &g)
}

func TestDisconnect(t *testing.T) {
	g := mustSpec(t, "star:3")
	h := g.ByName("h2")
	if err := g.Disconnect(h.Index, 1); err != nil {
		t.Fatal(err)
	}
	checkConsistent(t, g)
	if g.NumCables() != 2 || g.ByName("sw1").Ports[2].Connected() {
		t.Error("the cable is still there")
	}
	if err := g.Disconnect(h.Index, 1); !errors.Is(err, ErrNotConnected) {
		t.Errorf("pulled twice: %v", err)
	}
	if err := g.Connect(h.Index, 1, g.ByName("sw1").Index, 2, LinkSpec{}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, mustSpec(t, "star:3")) {
		t.Error("plugged in again, the graph is another")
	}
}

func TestClone(t *testing.T) {
	g := mustSpec(t, "star:3")
	c := g.Clone()
	if !reflect.DeepEqual(g, c) {
		t.Fatal("the clone is another graph")
	}
	if err := c.Disconnect(c.ByName("h1").Index, 1); err != nil {
		t.Fatal(err)
	}
	addNode(t, c, Node{Name: "x", Type: ib.NodeSwitch, GUID: 5}, 1)
	if !reflect.DeepEqual(g, mustSpec(t, "star:3")) {
		t.Error("a change of the clone changed the graph")
	}
	checkConsistent(t, c)
}

func TestSetPortGUID(t *testing.T) {
	g := mustSpec(t, "star:2")
	h1, h2, sw := g.ByName("h1"), g.ByName("h2"), g.ByName("sw1")
	if err := g.SetPortGUID(h1.Index, 1, h2.PortGUID(1)); !errors.Is(err, ErrDuplicateGUID) {
		t.Errorf("a port GUID given twice: %v", err)
	}
	if err := g.SetPortGUID(h1.Index, 0, 9); !errors.Is(err, ErrUnknownPort) {
		t.Errorf("port 0 of a host: %v", err)
	}
	if err := g.SetPortGUID(h1.Index, 1, 0); !errors.Is(err, ErrNoGUID) {
		t.Errorf("GUID 0: %v", err)
	}
	old := sw.PortGUID(0)
	if err := g.SetPortGUID(sw.Index, 0, 9); err != nil {
		t.Fatal(err)
	}
	if ref, ok := g.ByPortGUID(9); !ok || ref != (PortRef{sw.Index, 0}) {
		t.Errorf("new GUID finds %v", ref)
	}
	if _, ok := g.ByPortGUID(old); ok {
		t.Error("the old GUID still finds the port")
	}
}

func TestRealDumps(t *testing.T) {
	// Both files are what infiniband-diags' ibnetdiscover printed of ibsim
	// running a file that Append wrote of these specs.
	for _, c := range []struct{ file, spec string }{
		{"ibnetdiscover-torus.topo", "torus:3x3,hosts=2,speed=QDR"},
		{"ibnetdiscover-pair.topo", "pair:speed=QDR"},
	} {
		want := mustSpec(t, c.spec)
		g, err := Parse(c.file, readFile(t, c.file))
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, g)
		if len(g.Nodes) != len(want.Nodes) {
			t.Fatalf("%s: %d nodes, want %d", c.file, len(g.Nodes), len(want.Nodes))
		}
		for _, w := range want.Nodes {
			n := g.ByName(w.Name)
			if n == nil || n.GUID != w.GUID || n.SystemGUID != w.SystemGUID || n.VendorID != w.VendorID ||
				n.DeviceID != w.DeviceID || n.Desc != w.Desc || len(n.Ports) != len(w.Ports) {
				t.Fatalf("%s: %s is %+v, want %+v", c.file, w.Name, n, w)
			}
			for p := range w.Ports {
				x, y := n.Ports[p], w.Ports[p]
				if y.Connected() {
					x.Peer, y.Peer = int(g.Nodes[x.Peer].GUID), int(want.Nodes[y.Peer].GUID)
				}
				if x != y {
					t.Errorf("%s: %s[%d] is %+v, want %+v", c.file, w.Name, p, x, y)
				}
			}
		}
	}
}

func TestDistances(t *testing.T) {
	g := mustSpec(t, "fat-tree:radix=8,levels=2")
	d := g.Distances(g.ByName("h1").Index)
	for name, want := range map[string]int{"h1": 0, "leaf1": 1, "h2": 2, "spine3": 2, "leaf5": 3, "h32": 4} {
		if got := d[g.ByName(name).Index]; got != want {
			t.Errorf("h1 to %s: %d cables, want %d", name, got, want)
		}
	}
	// Hosts don't forward: a host with two ports does not join two switches.
	text := "Switch 2 \"a\"\n[1] \"h\"[1]\n[2] \"x\"[1]\nSwitch 2 \"b\"\n[1] \"h\"[2]\nCa 2 \"h\"\n[1] \"a\"[1]\n" +
		"[2] \"b\"[1]\nCa 1 \"x\"\n[1] \"a\"[2]\n"
	g = mustParse(t, text)
	if d := g.Distances(g.ByName("x").Index); d[g.ByName("h").Index] != 2 || d[g.ByName("b").Index] != Unreachable {
		t.Errorf("distances %v", d)
	}
	if d := g.Distances(g.ByName("h").Index); d[g.ByName("b").Index] != 1 {
		t.Errorf("distances %v", d)
	}
}

func TestCloser(t *testing.T) {
	g := mustSpec(t, "fat-tree:radix=8,levels=2")
	d := g.Distances(g.ByName("h32").Index)
	for _, c := range []struct {
		node string
		want []ib.PortNum
	}{
		{"leaf1", []ib.PortNum{5, 6, 7, 8}}, {"spine2", []ib.PortNum{8}}, {"leaf8", []ib.PortNum{4}},
		{"h1", []ib.PortNum{1}}, {"h32", nil},
	} {
		if got := g.Closer(g.ByName(c.node).Index, d, nil); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s reaches h32 through %v, want %v", c.node, got, c.want)
		}
	}
}

// TestCloserWalk follows the first closer port everywhere: each walk must end at
// the target after as many cables as the distance says.
func TestCloserWalk(t *testing.T) {
	for _, c := range genCases {
		if c.hosts+c.switches > 150 {
			continue
		}
		g := mustSpec(t, c.spec)
		for to := range g.Nodes {
			d := g.Distances(to)
			for from := range g.Nodes {
				at, steps := from, 0
				if d[from] == Unreachable && len(g.Routers()) > 0 {
					continue // in another subnet
				}
				for ; at != to; steps++ {
					ports := g.Closer(at, d, nil)
					if len(ports) == 0 {
						t.Fatalf("%s: stuck at %s on the way to %s", c.spec, g.Nodes[at].Name, g.Nodes[to].Name)
					}
					at = g.Nodes[at].Ports[ports[0]].Peer
				}
				if steps != d[from] {
					t.Fatalf("%s: %d steps, distance %d", c.spec, steps, d[from])
				}
			}
		}
	}
}

// TestDiameterOracle compares with the plainest computation.
func TestDiameterOracle(t *testing.T) {
	for _, c := range genCases {
		if c.hosts > 200 {
			continue
		}
		g := mustSpec(t, c.spec)
		want := 0
		for _, h := range g.Hosts() {
			d := g.Distances(h.Index)
			for _, o := range g.Hosts() {
				want = max(want, d[o.Index])
			}
		}
		if got := g.Diameter(); got != want {
			t.Errorf("%s: diameter %d, want %d", c.spec, got, want)
		}
	}
}

func TestDiameters(t *testing.T) {
	for spec, want := range map[string]int{
		"pair": 1, "star:4": 2, "star:1": 0, "fat-tree:radix=8,levels=2": 4, "fat-tree:radix=16,levels=3": 6,
		"fat-tree:radix=4,levels=4": 8,
		"torus:4x4x4":               8, "mesh:4x4": 8, "line:3": 4, "ring:5": 4, "dragonfly": 5, "mesh:2x2,hosts=0": 0,
	} {
		if got := mustSpec(t, spec).Diameter(); got != want {
			t.Errorf("%s: diameter %d, want %d", spec, got, want)
		}
	}
}

func TestCheckGenerated(t *testing.T) {
	for _, c := range genCases {
		for _, p := range Check(mustSpec(t, c.spec)) {
			if p.Kind == NoHosts && c.hosts == 0 {
				continue
			}
			t.Errorf("%s: %v", c.spec, p)
		}
	}
}

func TestCheck(t *testing.T) {
	kinds := func(g *Graph) string {
		var w []string
		for _, p := range Check(g) {
			w = append(w, p.Kind.String())
		}
		return strings.Join(w, ", ")
	}
	cluster, err := Parse("cluster.topo", readFile(t, "cluster.topo"))
	if err != nil {
		t.Fatal(err)
	}
	cut := mustSpec(t, "line:3,hosts=2")
	if err := cut.Disconnect(cut.ByName("sw2").Index, 1); err != nil {
		t.Fatal(err)
	}
	loose := mustSpec(t, "star:3")
	if err := loose.Disconnect(loose.ByName("h3").Index, 1); err != nil {
		t.Fatal(err)
	}
	var two Graph
	addNode(t, &two, Node{Name: "a", Type: ib.NodeCA, GUID: 1}, 1)
	addNode(t, &two, Node{Name: "b", Type: ib.NodeCA, GUID: 2}, 1)
	loop := mustSpec(t, "torus:3x3")
	sw := addNode(t, loop, Node{Name: "x", Type: ib.NodeSwitch, GUID: 77}, 3).Index
	if err := loop.Connect(sw, 1, sw, 2, LinkSpec{Speed: ib.SDR}); err != nil {
		t.Fatal(err)
	}
	lids := mustSpec(t, "star:3")
	lids.Nodes[0].Ports[1].LID, lids.Nodes[0].Ports[1].LMC = 4, 2
	lids.Nodes[1].Ports[1].LID = 7
	lids.Nodes[2].Ports[1].LID = 8
	for _, c := range []struct {
		name string
		g    *Graph
		want string
	}{
		{"clean", mustSpec(t, DefaultSpec), ""},
		// One end of gpu02 says 2x, and the cable to the old switch is slower than the
		// other two between switches.
		{"cluster", cluster, "width mismatch, slow link"},
		{"cut line", cut, "islands"},
		{"loose host", loose, "isolated node"},
		{"two hosts", &two, "no switches, isolated node, isolated node"},
		{"loopback", loop, "islands, loopback cable, slow link"},
		{"LIDs", lids, "duplicate LID"},
		{"empty", &Graph{}, "no hosts, no switches"},
	} {
		if got := kinds(c.g); got != c.want {
			t.Errorf("%s: found %q, want %q: %v", c.name, got, c.want, Check(c.g))
		}
	}
	const islands = "broken: islands: sw3, h5, h6 are cut off from the 6 nodes around sw1"
	if got := Check(cut)[0].String(); got != islands {
		t.Errorf("got %q, want %q", got, islands)
	}
}

func TestDescribe(t *testing.T) {
	for spec, want := range map[string]string{
		DefaultSpec:             "fat tree, 32 hosts, 12 switches, 64 cables, 4x NDR",
		"pair":                  "back-to-back pair, 2 hosts, 0 switches, 1 cable, 4x NDR",
		"star:1,speed=XDR":      "star, 1 host, 1 switch, 1 cable, 4x XDR",
		"torus:4x4x4,speed=HDR": "4x4x4 torus, 64 hosts, 64 switches, 256 cables, 4x HDR",
	} {
		if got := Describe(mustSpec(t, spec)); got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
	g, err := Parse("cluster.topo", readFile(t, "cluster.topo"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "fabric, 4 hosts, 1 aggregation node, 3 switches, 1 router, 10 cables, 5 rates from 1x QDR to 4x HDR"
	if got := Describe(g); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func BenchmarkCheck45056(b *testing.B) {
	g := mustSpec(b, "fat-tree:radix=64,levels=3,pods=44")
	for b.Loop() {
		if ps := Check(g); ps != nil {
			b.Fatal(ps)
		}
	}
}

func BenchmarkDistances45056(b *testing.B) {
	g := mustSpec(b, "fat-tree:radix=64,levels=3,pods=44")
	dist, queue := make([]int, len(g.Nodes)), make([]int, 0, len(g.Nodes))
	b.ReportAllocs()
	for b.Loop() {
		queue = g.DistancesInto(0, dist, queue)
	}
}
