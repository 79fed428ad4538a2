package webui

import (
	"slices"
	"testing"
	"time"

	"softib/internal/cputime"
	"softib/proto/ib"
	"softib/proto/topo"
)

// layouts are fabrics of every kind; tree says whether levels mean something in them.
var layouts = []struct {
	spec           string
	tree           bool
	levels, groups int
}{
	{"pair", false, 0, 0},
	{"star:1", true, 1, 0},
	{"star:4", true, 1, 0},
	{"star:254", true, 1, 0},
	{"fat-tree:radix=8,levels=2", true, 2, 0},
	{"fat-tree:radix=36,levels=2", true, 2, 0},
	{"fat-tree:radix=4,levels=3", true, 3, 4 + 2},
	{"fat-tree:radix=8,levels=3,hosts=70", true, 3, 5 + 4},
	{"fat-tree:radix=4,levels=4", true, 4, 4 + 4},
	{"fat-tree:radix=12,levels=2,oversub=3", true, 2, 0},
	{"torus:4x4x4", false, 1, 0},
	{"mesh:5x3", false, 1, 0},
	{"ring:7", false, 1, 0},
	{"line:3", false, 1, 0},
	{"dragonfly:a=4,h=2,p=2,g=9", false, 1, 9},
	{"random:switches=40,hosts=90,seed=3", false, 1, 0},
}

func graph(t testing.TB, spec string) *topo.Graph {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestLayout(t *testing.T) {
	for _, c := range layouts {
		t.Run(c.spec, func(t *testing.T) {
			g := graph(t, c.spec)
			l := arrange(g)
			if l.Tree != c.tree || l.Levels != c.levels || len(l.Groups) != c.groups {
				t.Errorf("tree %v, %d levels, %d groups; want %v, %d, %d", l.Tree, l.Levels, len(l.Groups), c.tree,
					c.levels, c.groups)
			}
			checkLayout(t, g, l)
			again := arrange(graph(t, c.spec))
			if !slices.Equal(l.X, again.X) || !slices.Equal(l.Y, again.Y) {
				t.Error("the same topology is laid out in two ways")
			}
		})
	}
}

// checkLayout wants everything inside, nothing on top of anything else, hosts below their switch and levels above each
// other.
func checkLayout(t *testing.T, g *topo.Graph, l *layout) {
	t.Helper()
	order := make([]int, len(g.Nodes))
	for i := range order {
		order[i] = i
		if l.X[i] < 0 || l.Y[i] < 0 || l.W[i] <= 0 || l.H[i] <= 0 || l.X[i]+l.W[i] > l.Width || l.Y[i]+
			l.H[i] > l.Height {
			t.Fatalf("%s is at %d,%d with %dx%d, outside of %dx%d", g.Nodes[i].Name, l.X[i], l.Y[i], l.W[i], l.H[i],
				l.Width, l.Height)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return int(l.X[a]) - int(l.X[b]) })
	for n, i := range order {
		for _, j := range order[n+1:] {
			if l.X[j] >= l.X[i]+l.W[i] {
				break
			}
			if l.Y[j] < l.Y[i]+l.H[i] && l.Y[i] < l.Y[j]+l.H[j] {
				t.Fatalf("%s and %s overlap", g.Nodes[i].Name, g.Nodes[j].Name)
			}
		}
	}
	for _, c := range g.Cables() {
		a, b := c.A.Node, c.B.Node
		if l.Level[a] > l.Level[b] {
			a, b = b, a
		}
		if l.Tree && l.Level[a] < l.Level[b] && l.Y[a] <= l.Y[b] && g.Nodes[b].IsSwitch() && l.Group[a] == l.Group[b] {
			t.Fatalf("%s of level %d is not below %s of level %d", g.Nodes[a].Name, l.Level[a], g.Nodes[b].Name,
				l.Level[b])
		}
	}
	for i, gr := range l.Groups {
		hosts := 0
		for n := range g.Nodes {
			if int(l.Group[n]) != i {
				continue
			}
			if isHost(g.Nodes[n]) {
				hosts++
			}
			if l.X[n] < gr.X || l.Y[n] < gr.Y || l.X[n]+l.W[n] > gr.X+gr.W || l.Y[n]+l.H[n] > gr.Y+gr.H {
				t.Fatalf("%s is outside of %s", g.Nodes[n].Name, gr.Name)
			}
		}
		if hosts != gr.Hosts {
			t.Errorf("%s has %d hosts and says %d", gr.Name, hosts, gr.Hosts)
		}
	}
}

// A host on a spine, as management nodes are, does not turn the tree over.
func TestLayoutStrayHost(t *testing.T) {
	g := graph(t, "fat-tree:radix=8,levels=3,hosts=96")
	spine, leaf := g.ByName("core1"), g.ByName("h1")
	p := leaf.Ports[1]
	if err := g.Disconnect(leaf.Index, 1); err != nil {
		t.Fatal(err)
	}
	free := 0
	for i := 1; i < len(spine.Ports); i++ {
		if !spine.Ports[i].Connected() {
			free = i
		}
	}
	if free == 0 {
		t.Fatal("the core switch has no free port")
	}
	if err := g.Connect(leaf.Index, 1, spine.Index, ib.PortNum(free),
		topo.LinkSpec{Width: p.Width, Speed: p.Speed}); err != nil {
		t.Fatal(err)
	}
	l := arrange(g)
	if !l.Tree || l.Levels != 3 || l.Level[spine.Index] != 3 {
		t.Errorf("tree %v, %d levels, core1 at level %d", l.Tree, l.Levels, l.Level[spine.Index])
	}
}

func TestLayoutLarge(t *testing.T) {
	g := graph(t, "fat-tree:radix=36,levels=3")
	worked := cputime.Used(t)
	l := arrange(g)
	worked = cputime.Used(t) - worked
	t.Logf("11,664 hosts are laid out with %v of processor time", worked)
	if len(l.Groups) != 36+18 || !l.Tree || l.Levels != 3 {
		t.Errorf("%d groups, tree %v, %d levels; want 54, true, 3", len(l.Groups), l.Tree, l.Levels)
	}
	if shape := float64(l.Width) / float64(l.Height); shape < 1.2 || shape > 2.8 {
		t.Errorf("the map is %.1f times as wide as high: want about that of a screen", shape)
	}
	if worked > time.Second {
		t.Errorf("the layout took %v of processor time: want a second at most", worked)
	}
}

func TestNaturalOrder(t *testing.T) {
	names := []string{"leaf10", "leaf2", "h1", "leaf1", "a", "leaf02x", "h10", "h9"}
	slices.SortFunc(names, naturalCompare)
	want := []string{"a", "h1", "h9", "h10", "leaf1", "leaf2", "leaf02x", "leaf10"}
	if !slices.Equal(names, want) {
		t.Errorf("sorted %v, want %v", names, want)
	}
}
