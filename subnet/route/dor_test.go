package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/internal/benchsize"
	"softib/proto/ib"
)

// shuffled is a network whose switches and ports are numbered at random.
func shuffled(n *Network, r *rand.Rand) *Network {
	to := r.Perm(len(n.Switches))
	c := &Network{Switches: make([]Switch, len(n.Switches)), Top: n.Top}
	ports := make([][]int, len(n.Switches))
	for s := range n.Switches {
		perm := r.Perm(len(n.Switches[s].Ports) - 1)
		ports[s] = []int{0}
		for _, p := range perm {
			ports[s] = append(ports[s], p+1)
		}
	}
	for s, sw := range n.Switches {
		x := &c.Switches[to[s]]
		x.GUID, x.Ends, x.Ports = sw.GUID, sw.Ends, make([]Hop, len(sw.Ports))
		for p, h := range sw.Ports {
			x.Ports[ports[s][p]] = h
			if h.To != NoSwitch {
				x.Ports[ports[s][p]] = Hop{int32(to[h.To]), ib.PortNum(ports[h.To][h.Port])}
			}
		}
	}
	for _, d := range n.Dests {
		if d.Port != 0 {
			d.Port = ib.PortNum(ports[d.Switch][d.Port])
		}
		d.Switch = int32(to[d.Switch])
		c.Dests = append(c.Dests, d)
	}
	slices.SortStableFunc(c.Dests, func(a, b Dest) int { return int(a.Switch - b.Switch) })
	return c
}

func TestDor(t *testing.T) {
	for _, c := range []struct {
		spec string
		vls  int
	}{
		{"torus:4x4", 2}, {"torus:5x5", 2}, {"torus:3x3x3", 1}, {"torus:6x5x4,hosts=2", 2}, {"mesh:4x3", 1},
		{"mesh:2x2x2", 1},
		{"ring:7", 2}, {"ring:3", 1}, {"line:5", 1}, {"torus:8x2,hosts=3", 2}, {"torus:4x4x4", 2}, {"torus:5x1x4", 2},
	} {
		n := netOf(t, c.spec)
		for name, net := range map[string]*Network{"plain": n, "shuffled": shuffled(n, rand.New(rand.NewPCG(1, 2)))} {
			t.Run(c.spec+"/"+name, func(t *testing.T) {
				tab, err := dimOrder{}.Compute(net, Options{})
				if err != nil {
					t.Fatal(err)
				}
				waysOf{net, tab}.check(t, 0)
				if name == "plain" && tab.VLs != c.vls || tab.VLs > c.vls {
					t.Errorf("%d lanes: want %d", tab.VLs, c.vls)
				}
				r := Judge(net, tab, JudgeOptions{})
				if !r.OK() || r.VLs > tab.VLs {
					t.Errorf("%v", r)
				}
			})
		}
	}
}

func TestDorDims(t *testing.T) {
	n := netOf(t, "torus:4x6")
	for _, dims := range [][]int{{4, 6}, {6, 4}} {
		tab, err := dimOrder{}.Compute(n, Options{Dims: dims})
		if err != nil {
			t.Fatal(err)
		}
		if r := Judge(n, tab, JudgeOptions{}); !r.OK() {
			t.Errorf("%v: %v", dims, r)
		}
	}
	if _, err := (dimOrder{}).Compute(n, Options{Dims: []int{8, 3}}); !errors.Is(err, ErrUnfit) {
		t.Errorf("wrong sizes: got %v, want ErrUnfit", err)
	}
}

// TestDorDamage: what is routed is whole and safe, what is not is refused with a reason.
func TestDorDamage(t *testing.T) {
	routed, refused := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		spec := []string{"torus:5x5", "torus:4x4x4", "torus:6x4", "mesh:4x4", "torus:3x3x3"}[seed%5]
		n := netOf(t, spec)
		links := n.Links()
		for range 1 + rng.IntN(4) {
			n.Cut(links[rng.IntN(len(links))])
		}
		t.Run(fmt.Sprintf("%s/%d", spec, seed), func(t *testing.T) {
			tab, err := dimOrder{}.Compute(n, Options{})
			if err != nil {
				refused++
				if !errors.Is(err, ErrUnfit) {
					t.Error(err)
				}
				return
			}
			routed++
			waysOf{n, tab}.check(t, len(n.Switches))
			if r := Judge(n, tab, JudgeOptions{}); !r.OK() {
				t.Errorf("%v", r)
			}
		})
	}
	if routed < 20 || refused < 5 {
		t.Errorf("%d routed, %d refused", routed, refused)
	}
}

func TestDorUnfit(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=4,levels=3", "dragonfly:a=4,h=2,p=2,g=9",
		"random:switches=12,hosts=20,seed=3"} {
		if _, err := (dimOrder{}).Compute(netOf(t, spec), Options{}); !errors.Is(err, ErrUnfit) {
			t.Errorf("%s: got %v, want ErrUnfit", spec, err)
		}
	}
	if _, err := (dimOrder{}).Compute(netOf(t, "ring:5"), Options{VLs: 1}); !errors.Is(err, ErrUnfit) {
		t.Errorf("one lane: got %v, want ErrUnfit", err)
	}
}

func BenchmarkDor(b *testing.B) {
	n := netOf(b, benchsize.Of("torus:16x16x16,hosts=2", "torus:3x3x3,hosts=2"))
	for b.Loop() {
		if _, err := (dimOrder{}).Compute(n, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
