package route

import (
	"errors"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// plan of a fabric for tests: switches with hosts, then cables.
type fabric struct {
	n *Network
}

func newFabric(hosts ...int) *fabric {
	f := &fabric{&Network{}}
	for s, count := range hosts {
		sw := Switch{GUID: ib.GUID(0x100 + s), Ports: []Hop{{To: NoSwitch}}, Ends: count}
		for p := range count {
			sw.Ports = append(sw.Ports, Hop{To: NoSwitch})
			f.n.Top++
			f.n.Dests = append(f.n.Dests, Dest{LID: f.n.Top, Switch: int32(s), Port: ib.PortNum(p + 1)})
		}
		f.n.Top++
		f.n.Dests = append(f.n.Dests, Dest{LID: f.n.Top, Switch: int32(s)})
		f.n.Switches = append(f.n.Switches, sw)
	}
	return f
}

func (f *fabric) cable(a, b, count int) {
	for range count {
		x, y := &f.n.Switches[a], &f.n.Switches[b]
		x.Ports = append(x.Ports, Hop{int32(b), ib.PortNum(len(y.Ports))})
		y.Ports = append(y.Ports, Hop{int32(a), ib.PortNum(len(x.Ports) - 1)})
	}
}

func repeat(list []int, v, count int) []int {
	for range count {
		list = append(list, v)
	}
	return list
}

func TestFtreeShapes(t *testing.T) {
	// Two levels, two cables from each leaf to each spine.
	parallel := newFabric(repeat(repeat(nil, 8, 6), 0, 4)...)
	for leaf := range 6 {
		for spine := range 4 {
			parallel.cable(leaf, 6+spine, 2)
		}
	}
	// Three levels in which every spine is cabled to every core: nothing tells columns apart.
	crossed := newFabric(repeat(repeat(nil, 4, 16), 0, 16+8)...)
	for pod := range 4 {
		for leaf := range 4 {
			for spine := range 4 {
				crossed.cable(pod*4+leaf, 16+pod*4+spine, 1)
			}
		}
		for spine := range 4 {
			for core := range 4 {
				crossed.cable(16+pod*4+spine, 32+core, 1)
			}
		}
	}
	// Storage on the spines of a tree of two levels.
	storage := newFabric(6, 6, 6, 6, 6, 6, 1, 1, 0, 0, 0, 0)
	for leaf := range 6 {
		for spine := range 6 {
			storage.cable(leaf, 6+spine, 1)
		}
	}
	// A leaf that hangs on the cores of a tree of three levels.
	uneven := newFabric(2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0)
	for pod := range 2 {
		for leaf := range 2 {
			for spine := range 2 {
				uneven.cable(pod*2+leaf, 5+pod*2+spine, 1)
			}
		}
		for spine := range 2 {
			for core := range 2 {
				uneven.cable(5+pod*2+spine, 9+spine*2+core, 1)
			}
		}
	}
	for core := range 4 {
		uneven.cable(4, 9+core, 1)
	}
	// Two trees that no cable joins, and a switch on its own.
	apart := newFabric(2, 2, 2, 2, 0, 0, 0, 0, 3, 0)
	for tree := range 2 {
		for leaf := range 2 {
			for spine := range 2 {
				apart.cable(tree*2+leaf, 4+tree*2+spine, 1)
			}
		}
	}
	for _, c := range []struct {
		name string
		f    *fabric
		o    Options
		most int
	}{
		{"parallel", parallel, Options{}, 1},
		{"crossed", crossed, Options{}, 1},
		{"storage", storage, Options{}, 3},
		{"uneven", uneven, Options{}, 2},
		{"roots", crossed, Options{Roots: []int32{32, 33, 34, 35}}, 1},
		{"apart", apart, Options{}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab, err := fatTree{}.Compute(c.f.n, c.o)
			if err != nil {
				t.Fatal(err)
			}
			o := waysOf{c.f.n, tab}
			o.check(t, 0)
			if tab.VLs == 1 {
				o.upDown(t, &direction{level: tab.Rank})
			} else if c.name != "storage" {
				t.Errorf("%d lanes: want 1", tab.VLs)
			}
			if r := Judge(c.f.n, tab, JudgeOptions{}); !r.OK() {
				t.Errorf("%v", r)
			}
			if most, mean := o.shifts(); most > c.most {
				t.Errorf("%d flows on a cable in some shift, %.2f in the mean: want %d", most, mean, c.most)
			}
		})
	}
}

func TestFtreeUnfit(t *testing.T) {
	for _, spec := range []string{"torus:4x4", "ring:5", "dragonfly:a=4,h=2,p=2,g=9", "line:9"} {
		if _, err := (fatTree{}).Compute(netOf(t, spec), Options{}); !errors.Is(err, ErrUnfit) {
			t.Errorf("%s: got %v, want ErrUnfit", spec, err)
		}
	}
	n := netOf(t, "fat-tree:radix=4,levels=2")
	if _, err := (fatTree{}).Compute(n, Options{Roots: []int32{99}}); !errors.Is(err, ErrUnfit) {
		t.Errorf("a root that is no switch: got %v, want ErrUnfit", err)
	}
	if _, err := (fatTree{}).Compute(newFabric(0, 0).n, Options{}); !errors.Is(err, ErrUnfit) {
		t.Errorf("no end ports: got %v, want ErrUnfit", err)
	}
}

// TestFtreeShuffled numbers switches and ports at random: the shape is found all the same. The end ports of a
// leaf stay together, leaves of a pod do not.
func TestFtreeShuffled(t *testing.T) {
	for seed := range uint64(4) {
		n := shuffled(netOf(t, "fat-tree:radix=6,levels=3"), rand.New(rand.NewPCG(seed, 1)))
		tr, err := newTree(n, Options{})
		if err != nil {
			t.Fatal(err)
		}
		// Shifts follow the order of the destinations: put the tree's own order there.
		var dests []Dest
		for _, s := range tr.order {
			for _, d := range n.Dests {
				if d.Switch == s {
					dests = append(dests, d)
				}
			}
		}
		n.Dests = dests
		o := waysOf{n, ftreeOf(t, n)}
		o.check(t, 0)
		if most, mean := o.shifts(); most != 1 {
			t.Errorf("seed %d: %d flows on a cable in some shift, %.2f in the mean: want 1", seed, most, mean)
		}
	}
}

// TestFtreePathBits: the LIDs of one port take different ways, and shifts over any of them are as good as over the
// first.
func TestFtreePathBits(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=8,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	next := ib.LID(0)
	n := FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) {
		if r.Port == 0 {
			return ib.LID(1000 + r.Node), 0
		}
		next += 4
		return next, 2
	})
	tab := ftreeOf(t, n)
	waysOf{n, tab}.check(t, 0)
	for i, d := range n.Dests {
		if d.PathBits == 0 || !d.IsEnd() {
			continue
		}
		for s, sw := range n.Switches {
			if sw.Ends > 0 && int32(s) != d.Switch && tab.LFT[s][d.LID] == tab.LFT[s][n.Dests[i-1].LID] {
				t.Fatalf("switch %d: LIDs %d and %d of one port take one way", s, d.LID, d.LID-1)
			}
		}
	}
}

// TestFtreeStorage: ways to storage are spread among themselves.
func TestFtreeStorage(t *testing.T) {
	n := netOf(t, "fat-tree:radix=8,levels=2")
	count := map[ib.PortNum]int{}
	for i := range n.Dests {
		n.Dests[i].IO = n.Dests[i].Port == 4
	}
	tab := ftreeOf(t, n)
	for _, d := range n.Dests {
		if d.IO && d.Switch != 0 {
			count[tab.LFT[0][d.LID]]++
		}
	}
	if len(count) != 4 {
		t.Errorf("leaf 0 sends to 7 storage ports by %v: want 4 uplinks", count)
	}
}
