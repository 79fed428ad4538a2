package topo

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"softib/proto/ib"
)

func mustSpec(t testing.TB, spec string) *Graph {
	t.Helper()
	g, err := ParseSpec(spec)
	if err != nil {
		t.Fatalf("ParseSpec(%q): %v", spec, err)
	}
	return g
}

// genCases count what each spec must come to, worked out by hand.
var genCases = []struct {
	spec                    string
	hosts, switches, cables int
}{
	{"star:1", 1, 1, 1},
	{"star:4", 4, 1, 4},
	{"star:254", 254, 1, 254},
	{"pair", 2, 0, 1},
	{"back-to-back", 2, 0, 1},
	{"fat-tree", 32, 12, 64},
	{"fat-tree:radix=8,levels=2", 32, 12, 64},
	{"fat-tree:radix=8,levels=1", 8, 1, 8},
	{"fat-tree:radix=5,levels=1", 5, 1, 5},
	{"fat-tree:radix=4,levels=3", 16, 20, 48},
	{"fat-tree:radix=4,levels=4", 32, 56, 128},
	{"fat-tree:radix=8,levels=4", 512, 448, 2048},
	{"fat-tree:radix=2,levels=4", 2, 7, 8},
	{"fat-tree:radix=16,levels=3", 1024, 320, 3072},
	{"fat-tree:radix=36,levels=2", 648, 54, 1296},
	{"fat-tree:radix=36,levels=3", 11664, 1620, 34992},
	// Two of eight pods: 2*4*4 hosts, 2*(4+4)+16 switches.
	{"fat-tree:radix=8,levels=3,pods=2", 32, 32, 96},
	{"fat-tree:radix=8,levels=2,pods=3", 12, 7, 24},
	// Ten hosts fill two leaves and half of a third.
	{"fat-tree:radix=8,levels=2,hosts=10", 10, 7, 22},
	{"fat-tree:radix=8,levels=2,hosts=32", 32, 12, 64},
	// 6 hosts and 2 uplinks on each of 8 leaves, 2 spines.
	{"fat-tree:radix=8,levels=2,oversub=3", 48, 10, 64},
	{"fat-tree:radix=8,levels=2,oversub=3:1", 48, 10, 64},
	// 8 pods of 4 leaves (6 hosts, 2 uplinks) and 2 spines, 8 cores.
	{"fat-tree:radix=8,levels=3,oversub=3", 192, 56, 320},
	{"fat-tree:radix=10,levels=2,oversub=3:2", 60, 14, 100},
	{"torus:4x4x4", 64, 64, 64 + 192},
	{"torus:4x4x4,hosts=2", 128, 64, 128 + 192},
	{"torus:2x2", 4, 4, 4 + 4},
	{"torus:1x5", 5, 5, 5 + 5},
	{"torus:3x3x3x3", 81, 81, 81 + 324},
	{"mesh:4x4", 16, 16, 16 + 24},
	{"mesh:3x4,hosts=0", 0, 12, 17},
	{"line:1", 1, 1, 1},
	{"line:3", 3, 3, 3 + 2},
	{"ring:5", 5, 5, 5 + 5},
	{"ring:5,hosts=3", 15, 5, 15 + 5},
	// 9 groups of 4: 6 local cables in each, 36 global.
	{"dragonfly", 72, 36, 72 + 9*6 + 36},
	{"dragonfly:a=4,h=2,p=2,g=9", 72, 36, 72 + 9*6 + 36},
	{"dragonfly:a=4,h=2,p=2,g=3", 24, 12, 24 + 3*6 + 3*4},
	{"dragonfly:a=4,h=2,p=1,g=6", 24, 24, 24 + 6*6 + 15},
	{"dragonfly:a=4,h=2,p=2,g=1", 8, 4, 8 + 6},
	{"dragonfly:a=1,h=3,p=1", 4, 4, 4 + 6},
	{"random", 16, 8, 16 + 16},
	{"random:switches=20,hosts=50,links=40,seed=7", 50, 20, 90},
	{"random:switches=1,hosts=3", 3, 1, 3},
	{"random:switches=30,hosts=0,links=29,seed=3", 0, 30, 29},
	{"subnets:2,routers=1,each=star:4", 8, 2, 8 + 2},
	{"subnets:3,each=fat-tree:radix=4,levels=2", 24, 18, 48 + 6},
}

func TestGeneratorCounts(t *testing.T) {
	for _, c := range genCases {
		t.Run(c.spec, func(t *testing.T) {
			g := mustSpec(t, c.spec)
			if h, s, n := len(g.Hosts()), len(g.Switches()), g.NumCables(); h != c.hosts || s != c.switches ||
				n != c.cables {
				t.Errorf("got %d hosts, %d switches, %d cables; want %d, %d, %d", h, s, n, c.hosts, c.switches,
					c.cables)
			}
			checkConsistent(t, g)
		})
	}
}

// checkConsistent asserts what must hold of every graph, in the dumbest way.
func checkConsistent(t *testing.T, g *Graph) {
	t.Helper()
	names, guids := map[string]bool{}, map[ib.GUID]bool{}
	ends := 0
	for i, n := range g.Nodes {
		if n.Index != i || g.ByName(n.Name) != n || g.ByGUID(n.GUID) != n {
			t.Fatalf("node %d (%s, index %d) is not found by its name and GUID", i, n.Name, n.Index)
		}
		if names[n.Name] || guids[n.GUID] {
			t.Fatalf("%s %v is not unique", n.Name, n.GUID)
		}
		names[n.Name], guids[n.GUID] = true, true
		for p := range n.Ports {
			x := &n.Ports[p]
			if x.GUID != 0 {
				if ref, ok := g.ByPortGUID(x.GUID); !ok || ref != (PortRef{i, ib.PortNum(p)}) {
					t.Fatalf("%s[%d] is not found by its GUID", n.Name, p)
				}
			}
			if !x.Connected() {
				continue
			}
			ends++
			y := &g.Nodes[x.Peer].Ports[x.PeerPort]
			if y.Peer != i || int(y.PeerPort) != p {
				t.Fatalf("%s[%d] leads to %s[%d], which leads elsewhere", n.Name, p, g.Nodes[x.Peer].Name, x.PeerPort)
			}
			if x.LengthMM != y.LengthMM || x.LengthMM <= 0 || x.Rate().Mbps() == 0 {
				t.Fatalf("%s[%d]: length %d and %d mm, rate %v", n.Name, p, x.LengthMM, y.LengthMM, x.Rate())
			}
		}
	}
	if ends != 2*g.NumCables() || len(g.Cables()) != g.NumCables() {
		t.Fatalf("%d cable ends, %d listed, for %d cables", ends, len(g.Cables()), g.NumCables())
	}
	if len(g.Hosts())+len(g.Switches())+len(g.Routers()) != len(g.Nodes) {
		t.Fatal("hosts, switches and routers don't add up to the nodes")
	}
}

func TestDeterministic(t *testing.T) {
	for _, c := range genCases {
		if a, b := mustSpec(t, c.spec), mustSpec(t, c.spec); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two builds differ", c.spec)
		}
	}
	if a, b := mustSpec(t, "random:seed=1"), mustSpec(t, "random:seed=2"); reflect.DeepEqual(a.Cables(), b.Cables()) {
		t.Error("two seeds give the same random graph")
	}
}

func TestFatTreeWiring(t *testing.T) {
	g := mustSpec(t, "fat-tree:radix=8,levels=2")
	for _, c := range []struct {
		node string
		port int
		want string
	}{
		{"h1", 1, "leaf1[1]"}, {"h4", 1, "leaf1[4]"}, {"h5", 1, "leaf2[1]"}, {"h32", 1, "leaf8[4]"},
		{"leaf1", 5, "spine1[1]"}, {"leaf1", 8, "spine4[1]"}, {"leaf8", 5, "spine1[8]"}, {"leaf8", 8, "spine4[8]"},
	} {
		wantPeer(t, g, c.node, c.port, c.want)
	}
	g = mustSpec(t, "fat-tree:radix=4,levels=3")
	for _, c := range []struct {
		node string
		port int
		want string
	}{
		{"h16", 1, "leaf8[2]"},
		// Pod 1 is leaf1, leaf2, spine1, spine2.
		{"leaf1", 3, "spine1[1]"}, {"leaf1", 4, "spine2[1]"}, {"leaf2", 3, "spine1[2]"}, {"leaf2", 4, "spine2[2]"},
		// The first spine of each pod reaches core 1 and 2, the second 3 and 4.
		{"spine1", 3, "core1[1]"}, {"spine1", 4, "core2[1]"}, {"spine2", 3, "core3[1]"}, {"spine2", 4, "core4[1]"},
		{"spine7", 3, "core1[4]"}, {"spine8", 4, "core4[4]"},
	} {
		wantPeer(t, g, c.node, c.port, c.want)
	}
}

func wantPeer(t *testing.T, g *Graph, node string, port int, want string) {
	t.Helper()
	p := &g.ByName(node).Ports[port]
	if got := g.PortName(PortRef{p.Peer, p.PeerPort}); !p.Connected() || got != want {
		t.Errorf("%s[%d] leads to %s, want %s", node, port, got, want)
	}
}

func TestFatTreeDegrees(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=6,levels=3", "fat-tree:radix=4,levels=4",
		"fat-tree:radix=8,levels=3,oversub=3"} {
		for _, sw := range mustSpec(t, spec).Switches() {
			for p := 1; p <= sw.NumPorts(); p++ {
				if !sw.Ports[p].Connected() {
					t.Errorf("%s: %s[%d] is free in a full tree", spec, sw.Name, p)
				}
			}
		}
	}
}

func TestGeneratedGUIDs(t *testing.T) {
	g := mustSpec(t, "star:2")
	h, sw := g.ByName("h1"), g.ByName("sw1")
	if h.GUID != 0x0250f11b01000010 || h.PortGUID(1) != 0x0250f11b01000011 || sw.GUID != 0x0250f11b02000010 {
		t.Errorf("h1 %v, its port %v, sw1 %v", h.GUID, h.PortGUID(1), sw.GUID)
	}
	if sw.PortGUID(0) != sw.GUID || sw.PortGUID(2) != sw.GUID || sw.PortGUID(3) != 0 {
		t.Error("a switch's ports share its port 0's GUID")
	}
}

func TestCommonOptions(t *testing.T) {
	g := mustSpec(t, "star:2,speed=hdr,width=2x,length=50cm")
	p := g.ByName("h1").Ports[1]
	if p.Width != ib.Width2x || p.Speed != ib.HDR || p.LengthMM != 500 {
		t.Errorf("got %v, %d mm", p.Rate(), p.LengthMM)
	}
	p = mustSpec(t, "pair").Nodes[0].Ports[1]
	if p.Width != ib.Width4x || p.Speed != ib.NDR || p.LengthMM != 2000 {
		t.Errorf("default link is %v, %d mm", p.Rate(), p.LengthMM)
	}
}

func TestSpecErrors(t *testing.T) {
	for _, c := range []struct{ spec, option, says string }{
		{"", "", `no generator is called ""`},
		{"tree:4", "", "want one of star, fat-tree"},
		{"star", "", "number of hosts is missing"},
		{"star:0", "hosts", `is "0": want a number from 1 to 254`},
		{"star:255", "hosts", "from 1 to 254"},
		{"star:x", "hosts", `is "x"`},
		{"star:4,5", "5", "a second value"},
		{"star:4,", "", "an option is empty"},
		{"star:4,color=red", "color", "star has no such option: want the number of hosts, speed=, width=, length="},
		{"star:4,speed=QQR", "speed", "want SDR"},
		{"star:4,width=3x", "width", "want 1x"},
		{"star:4,length=-1m", "length", "want metres"},
		{"star:4,length=NaN", "length", "want metres"},
		{"star:4,length=99999m", "length", "want metres"},
		{"star:4,speed=", "speed", "has no value"},
		{"star:4,speed=NDR,speed=NDR", "speed", "given twice"},
		{"pair:3", "3", "has no value"},
		{"fat-tree:radix=7", "radix", "even"},
		{"fat-tree:radix=256", "radix", "from 2 to 254"},
		{"fat-tree:levels=5", "levels", "from 1 to 4"},
		{"fat-tree:pods=9", "pods", "from 1 to 8"},
		{"fat-tree:levels=1,pods=1", "pods", "no pods"},
		{"fat-tree:levels=1,oversub=2", "oversub", "no uplinks"},
		{"fat-tree:oversub=2", "oversub", "3 divides"},
		{"fat-tree:oversub=1:2", "oversub", "not below 1"},
		{"fat-tree:hosts=33", "hosts", "holds 32"},
		{"torus", "", "size is missing"},
		{"torus:4x", "dimension 2", `is ""`},
		{"torus:0x4", "dimension 1", `is "0"`},
		{"ring:2", "switches", "from 3"},
		{"dragonfly:a=4,h=2,g=10", "g", "from 1 to 9"},
		{"dragonfly:a=200,h=100", "", "ports: want at most 254"},
		{"random:switches=3,links=1", "links", "from 2"},
		{"random:switches=1,links=1", "links", "nothing to be cabled"},
		{"random:switches=2,hosts=5000", "", "crowd"},
	} {
		_, err := ParseSpec(c.spec)
		var se *SpecError
		if !errors.As(err, &se) {
			t.Errorf("%q: got %v, want a SpecError", c.spec, err)
			continue
		}
		if se.Option != c.option || !strings.Contains(se.Problem, c.says) {
			t.Errorf("%q: option %q, problem %q; want %q, %q", c.spec, se.Option, se.Problem, c.option, c.says)
		}
		if !strings.Contains(err.Error(), "; try ") {
			t.Errorf("%q: %v: does not say what to do next", c.spec, err)
		}
	}
	_, err := ParseSpec("fat-tree:hosts=33")
	if !strings.HasSuffix(err.Error(), `try "fat-tree:radix=10,levels=2,hosts=33"`) {
		t.Errorf("%v: want the radix that holds 33 hosts", err)
	}
	mustSpec(t, "fat-tree:radix=10,levels=2,hosts=33")
}

func TestLIDLimit(t *testing.T) {
	for _, c := range []struct {
		spec string
		need int
	}{
		{"fat-tree:radix=64,levels=3", 65536 + 5120},
		{"fat-tree:radix=64,levels=3,pods=45", 45*1024 + 45*64 + 1024},
		{"fat-tree:radix=254,levels=4", 2*127*127*127*127 + 7*127*127*127},
		{"torus:24576x2", 2 * 49152},
	} {
		_, err := ParseSpec(c.spec)
		var le *LIDError
		if !errors.As(err, &le) || !errors.Is(err, ErrTooManyLIDs) || le.Need != c.need {
			t.Errorf("%s: got %v, want a LIDError for %d", c.spec, err, c.need)
		}
	}
	// Exactly the limit: 49151 = 23 * 2137 switches and no hosts.
	if g := mustSpec(t, "torus:23x2137,hosts=0"); g.NumLIDs() != int(ib.LIDUnicastMax) {
		t.Errorf("%d LIDs", g.NumLIDs())
	}
	// The largest tree of the design.
	g := mustSpec(t, "fat-tree:radix=64,levels=3,pods=44")
	if h, s := len(g.Hosts()), len(g.Switches()); h != 45056 || s != 3840 || g.NumLIDs() != 48896 {
		t.Errorf("%d hosts, %d switches, %d LIDs", h, s, g.NumLIDs())
	}
}

func TestGeneratorTable(t *testing.T) {
	seen := map[string]bool{}
	for _, gen := range Generators() {
		if gen.Help == "" || strings.Contains(gen.Help, "\n") {
			t.Errorf("%s: help is %q, want one line", gen.Name, gen.Help)
		}
		for _, name := range append([]string{gen.Name}, gen.Aliases...) {
			if seen[name] {
				t.Errorf("%s names two generators", name)
			}
			seen[name] = true
		}
		mustSpec(t, gen.Example)
	}
	mustSpec(t, DefaultSpec)
}

func TestIsSpec(t *testing.T) {
	for s, want := range map[string]bool{"star:4": true, "pair": true, "fat-tree:radix=x": true, "net.topo": false,
		"./star": false, "": false, "C:star": false} {
		if IsSpec(s) != want {
			t.Errorf("IsSpec(%q) is %v", s, !want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, c := range genCases {
		f.Add(c.spec)
	}
	f.Add("random:switches=1,hosts=3,seed=9223372036854775807")
	f.Add("torus:65536x65536x65536x65536")
	f.Fuzz(func(t *testing.T, spec string) {
		g, err := ParseSpec(spec)
		if err != nil {
			var se *SpecError
			if !errors.As(err, &se) {
				t.Fatalf("%q: %v is not a SpecError", spec, err)
			}
			return
		}
		if g.NumLIDs() > int(ib.LIDUnicastMax) {
			t.Fatalf("%q: %d LIDs", spec, g.NumLIDs())
		}
		if len(g.Nodes) < 1000 {
			checkConsistent(t, g)
		}
	})
}

func BenchmarkFatTree45056(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustSpec(b, "fat-tree:radix=64,levels=3,pods=44")
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
