package route

import (
	"math/rand/v2"
	"testing"

	"softib/ib"
	"softib/topo"
)

// netOf is the network of a generator.
func netOf(t testing.TB, spec string) *Network {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return FromGraph(g)
}

func TestFromGraph(t *testing.T) {
	n := netOf(t, "fat-tree:radix=4,levels=3")
	if len(n.Switches) != 20 || len(n.Dests) != 36 || n.Top != 36 {
		t.Fatalf("%d switches, %d destinations, top LID %d: want 20, 36, 36", len(n.Switches), len(n.Dests), n.Top)
	}
	seen := map[ib.LID]bool{}
	ends := 0
	for _, d := range n.Dests {
		if seen[d.LID] || d.LID == 0 || d.LID > n.Top {
			t.Errorf("LID %d twice or out of bounds", d.LID)
		}
		seen[d.LID] = true
		if d.IsEnd() {
			ends++
			if n.Switches[d.Switch].Ports[d.Port].To != NoSwitch {
				t.Errorf("LID %d hangs on a port that leads to a switch", d.LID)
			}
		}
	}
	if ends != 16 || len(n.Links()) != 32 {
		t.Errorf("%d end ports, %d links: want 16, 32", ends, len(n.Links()))
	}
	for s, sw := range n.Switches {
		for p, h := range sw.Ports {
			if h.To != NoSwitch && n.Switches[h.To].Ports[h.Port] != (Hop{int32(s), ib.PortNum(p)}) {
				t.Errorf("the far end of %d[%d] does not lead back", s, p)
			}
		}
	}
}

func TestFromGraphLMC(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	next := ib.LID(0)
	n := FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) {
		if r.Port == 0 {
			return 1, 0
		}
		next += 4
		return next, 2
	})
	if len(n.Dests) != 13 || n.Top != 15 || n.Dests[2].PathBits != 1 || n.Dests[2].LID != n.Dests[1].LID+1 {
		t.Errorf("got %+v", n)
	}
}

func TestRemoveLinks(t *testing.T) {
	n := netOf(t, "fat-tree:radix=8,levels=3")
	all := len(n.Links())
	c := RemoveLinks(n, 0.05, rand.New(rand.NewPCG(1, 2)))
	if got := len(c.Links()); got != all-(all*5+50)/100 {
		t.Errorf("%d of %d links left", got, all)
	}
	if len(n.Links()) != all {
		t.Error("the original lost links")
	}
	c.CutSwitch(0)
	for _, h := range c.Switches[0].Ports {
		if h.To != NoSwitch {
			t.Error("a cut switch has a link")
		}
	}
}
