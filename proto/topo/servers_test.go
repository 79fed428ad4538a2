package topo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

// byMachine reads the dump of two machines of four adapters, changed, machine by machine.
func byMachine(t *testing.T, change ...string) *Graph {
	t.Helper()
	text := strings.NewReplacer(change...).Replace(string(readFile(t, "dumps/dgx.ibnetdiscover")))
	g, err := Parse("dgx", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.ByMachine()
	if err != nil {
		t.Fatal(err)
	}
	checkConsistent(t, c)
	if c.NumCables() != g.NumCables() || !slices.Equal(c.rates(), g.rates()) {
		t.Errorf("%s became %s", Describe(g), Describe(c))
	}
	return c
}

// TestByMachine makes one host of the adapters of one machine, whatever says that they are.
func TestByMachine(t *testing.T) {
	// Adapters with a system image GUID for each machine, and names that say nothing.
	var nameless []string
	for m := 1; m <= 2; m++ {
		for _, num := range []int{0, 4, 9, 10} {
			guid := uint64(0xe09d7303007a0008) + uint64(m<<12+num<<8)
			nameless = append(nameless, fmt.Sprintf("sysimgguid=%#x\n", guid), fmt.Sprintf("sysimgguid=%#x\n", 0xd00+m),
				fmt.Sprintf("dgx%02d mlx5_%d", m, num), "MT4129 ConnectX7   Mellanox Technologies")
		}
	}
	for _, c := range []struct {
		why    string
		change []string
		says   string
		hosts  string
	}{
		{"by descriptions", nil, "3 hosts, 2 aggregation nodes", "dgx02:4 dgx01:4 login1:1"},
		{"adapters by number", []string{" mlx5_0\"", " HCA-1\"", " mlx5_4\"", " HCA-2\"", " mlx5_9\"", " HCA-3\"",
			" mlx5_10\"", " HCA-4\""}, "3 hosts, 2 aggregation nodes", "dgx02:4 dgx01:4 login1:1"},
		{"by system image GUID", nameless, "3 hosts, 2 aggregation nodes", "h1:4 h2:4 login1:1"},
		{"two machines of one name", []string{"dgx02", "dgx01"}, "9 hosts, 2 aggregation nodes",
			"dgx01:1 dgx01-2:1 dgx01-3:1 dgx01-4:1 dgx01-5:1 dgx01-6:1 dgx01-7:1 dgx01-8:1 login1:1"},
		{"a switch has the name", []string{"MF0;leaf1:", "MF0;dgx01:"}, "3 hosts, 2 aggregation nodes",
			"dgx02:4 dgx01-2:4 login1:1"},
	} {
		g := byMachine(t, c.change...)
		var hosts []string
		for _, h := range g.Hosts() {
			if !g.IsPart(h) {
				hosts = append(hosts, fmt.Sprintf("%s:%d", h.Name, h.NumPorts()))
			}
		}
		if got := strings.Join(hosts, " "); got != c.hosts || !strings.Contains(Describe(g), c.says) {
			t.Errorf("%s: %s, %s; want %s, %s", c.why, got, Describe(g), c.hosts, c.says)
		}
		roundTrip(t, g)
	}
}

// TestByMachinePorts: a machine's ports are in the order of its adapters, and are what they were.
func TestByMachinePorts(t *testing.T) {
	g := byMachine(t)
	h := g.ByName("dgx01")
	const first = ib.GUID(0xe09d7303007a1008)
	if h.GUID != first || h.Desc != "dgx01 mlx5_0" {
		t.Errorf("dgx01 is %v %q", h.GUID, h.Desc)
	}
	for p, want := range map[ib.PortNum]struct {
		adapter ib.GUID
		at      string
		lid     ib.LID
		could   ib.Speed
	}{1: {0, "leaf1[1]", 10, ib.NDR}, 2: {4, "leaf1[3]", 8, ib.NDR}, 3: {9, "leaf2[1]", 6, ib.NDR},
		4: {10, "leaf2[3]", 4, ib.HDR}} {
		ref := PortRef{h.Index, p}
		x := g.Port(ref)
		// The slow adapter is no degraded link of a fast one.
		if x.GUID != first+want.adapter<<8 || g.PortName(g.Peer(ref)) != want.at || x.LID != want.lid ||
			g.Capable(ref).Speed != want.could || g.LinkRate(ref).Speed != want.could {
			t.Errorf("port %d is %v at %s, LID %d, %v of %v", p, x.GUID, g.PortName(g.Peer(ref)), x.LID,
				g.LinkRate(ref), g.Capable(ref))
		}
	}
	if _, n := g.Servers(); n != 0 {
		t.Errorf("%d machines have several adapters yet", n)
	}
	all, err := Parse("dgx", readFile(t, "dumps/dgx.ibnetdiscover"))
	if err != nil {
		t.Fatal(err)
	}
	if _, n := all.Servers(); n != 2 {
		t.Errorf("%d machines have several adapters, want 2", n)
	}
	// Two adapters of one machine, back to back, are no fabric once they are one host.
	pair := mustSpec(t, "pair")
	pair.Nodes[0].SystemGUID = pair.Nodes[1].SystemGUID
	if _, err := pair.ByMachine(); !errors.Is(err, ErrNoSwitch) {
		t.Errorf("one machine: %v", err)
	}
}
