package topo

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestSuperPOD holds the generator against NVIDIA's bill of material for 32 servers of 8 GPUs in each of 2 to 64
// scalable units, on switches of 64 ports (DGX SuperPOD Reference Architecture, DGX B200, "Larger SuperPOD component
// counts"): switches of each level, cables from servers, from leafs and from spines.
func TestSuperPOD(t *testing.T) {
	for _, c := range []struct{ units, leafs, spines, cores int }{
		{2, 16, 8, 0}, {4, 32, 16, 0}, {8, 64, 32, 0}, {16, 128, 128, 64}, {32, 256, 256, 128}, {64, 512, 512, 256},
	} {
		for _, wiring := range []string{"rail", "rack"} {
			g := mustSpec(t, fmt.Sprintf("rail:gpus=8,servers=%d,radix=64,wiring=%s", 32*c.units, wiring))
			count := map[string]int{}
			for _, n := range g.Switches() {
				count[strings.TrimRight(n.Name, "0123456789")]++
			}
			gpus, cables := 256*c.units, 2*256*c.units
			if c.cores > 0 {
				cables += gpus
			}
			if len(g.Hosts()) != gpus || count["leaf"] != c.leafs || count["spine"] != c.spines ||
				count["core"] != c.cores || g.NumCables() != cables {
				t.Errorf("%d units by %s: %d GPUs, %v, %d cables; want %d, %d, %d, %d and %d", c.units, wiring,
					len(g.Hosts()), count, g.NumCables(), gpus, c.leafs, c.spines, c.cores, cables)
			}
			checkConsistent(t, g)
		}
	}
}

func TestRail(t *testing.T) {
	for _, c := range []struct {
		spec                    string
		hosts, switches, cables int
	}{
		// Two groups of 4 servers on 2*4 leafs with 4 uplinks each, 4 spines of 8 ports.
		{"rail:gpus=4,servers=8,radix=8", 32, 12, 64},
		// 2:1: leafs have 4 down and 2 up, 2 of 8 ports are free.
		{"rail:gpus=4,servers=8,radix=8,taper=2", 32, 8 + 2, 32 + 16},
		// Groups of 2: 4 groups, 16 leafs of 2 down and 2 up. They are too many for spines of 8 ports: pods of 4 leafs
		// with 2 spines, and 4 pods' spines of one place with 4 uplinks each need 2 cores.
		{"rail:gpus=4,servers=8,radix=8,group=2", 32, 16 + 8 + 4, 32 + 32 + 32},
		// All of 32 adapters on 8 leafs of 4.
		{"rail:gpus=4,servers=8,radix=8,wiring=rack", 32, 12, 64},
		// The last group is half full.
		{"rail:gpus=2,servers=6,radix=8", 12, 4 + 2, 12 + 16},
		{"rail:gpus=4,servers=8,radix=16,levels=3", 32, 4 + 4*1 + 2, 32 + 32 + 32},
	} {
		g := mustSpec(t, c.spec)
		if h, s, n := len(g.Hosts()), len(g.Switches()), g.NumCables(); h != c.hosts || s != c.switches ||
			n != c.cables {
			t.Errorf("%s: %d hosts, %d switches, %d cables; want %d, %d, %d", c.spec, h, s, n, c.hosts, c.switches,
				c.cables)
		}
		checkConsistent(t, g)
	}
	// Adapter i of every server of a group is on one leaf, and no adapter of another rail is.
	g := mustSpec(t, "rail:gpus=4,servers=8,radix=8")
	of, servers := g.Servers()
	rail := map[int]int{}
	for i, h := range g.Hosts() {
		if of[h.Index] != int32(i/4) {
			t.Errorf("%s is in server %d", h.Name, of[h.Index])
		}
		leaf := h.Ports[1].Peer
		if was, ok := rail[leaf]; ok && was != i%4 {
			t.Errorf("%s is on %s, which has adapters of rail %d", h.Name, g.Nodes[leaf].Name, was+1)
		}
		rail[leaf] = i % 4
	}
	if servers != 8 || len(rail) != 8 {
		t.Errorf("%d servers on %d leafs", servers, len(rail))
	}
	// What is written and read again has the same servers.
	g = mustSpec(t, "fat-tree:radix=8,levels=2,gpus=4")
	back, err := Parse("x", Append(nil, g))
	if err != nil {
		t.Fatal(err)
	}
	if _, n := back.Servers(); n != 8 {
		t.Errorf("a file has %d servers, want 8", n)
	}
	if _, n := mustSpec(t, "fat-tree:radix=8,levels=2").Servers(); n != 0 {
		t.Errorf("hosts alone are %d servers", n)
	}
	for spec, says := range map[string]string{
		"rail:wiring=star":                        "want rail or rack",
		"rail:taper=1:2":                          "not below 1",
		"rail:taper=70":                           "no uplink left",
		"rail:servers=8192":                       "LIDs",
		"rail:gpus=40,wiring=rack":                "want fewer GPUs",
		"rail:gpus=4,servers=64,radix=8,levels=2": "want levels=3",
		"rail:gpus=8,servers=512,radix=8":         "too many for cores",
		"rail:group=33":                           "from 1 to",
		"fat-tree:levels=1,taper=2":               "no ports for uplinks",
	} {
		_, err := ParseSpec(spec)
		var se *SpecError
		if !errors.As(err, &se) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", spec, err, says)
		}
	}
}
