package topo

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"softib/proto/ib"
)

// TestSubnets: every port is in the subnet that it should be in, routers have a port in each, and a file says the same.
func TestSubnets(t *testing.T) {
	g := mustSpec(t, "subnets:3,routers=2,speed=HDR,each=fat-tree:radix=4,levels=2,speed=EDR")
	s := g.Subnets()
	if s.Count != 3 || len(g.Routers()) != 2 {
		t.Fatalf("%d subnets and %d routers: want 3 and 2", s.Count, len(g.Routers()))
	}
	for k, ends := range s.Ends {
		if ends != 8+6+2 {
			t.Errorf("subnet %d has %d end ports: want 8 hosts, 6 switches and 2 routers", k, ends)
		}
	}
	for i, h := range g.Hosts() {
		if k := s.Of(PortRef{h.Index, 1}); k != i/8 {
			t.Errorf("%s is in subnet %d: want %d", h.Name, k, i/8)
		}
		if h.Name != "h"+strconv.Itoa(i+1) || h.Desc != h.Name+" HCA-1" {
			t.Errorf("host %d is %s, %q", i+1, h.Name, h.Desc)
		}
	}
	for _, rt := range g.Routers() {
		for k := range 3 {
			ref := PortRef{rt.Index, ib.PortNum(k + 1)}
			at := g.Nodes[g.Port(ref).Peer]
			if s.Of(ref) != k || !strings.HasPrefix(at.Name, "s"+strconv.Itoa(k+1)+"-spine") {
				t.Errorf("%s is in subnet %d at %s: want %d, at a spine", g.PortName(ref), s.Of(ref), at.Name, k)
			}
			if g.LinkRate(ref).Speed != ib.HDR || at.NumPorts() != 5 {
				t.Errorf("%s: %v at a switch of %d ports: want HDR and one port more than radix", g.PortName(ref),
					g.LinkRate(ref), at.NumPorts())
			}
		}
	}
	if p := Check(g); len(p) > 0 {
		t.Errorf("Check: %v", p)
	}
	again, err := Parse("again", Append(nil, g))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(Append(nil, again), Append(nil, g)) || again.Subnets().Count != 3 {
		t.Error("a file gives another fabric")
	}
	if g.Prefix(0) == g.Prefix(1) || g.Prefix(0) == ib.DefaultGIDPrefix ||
		mustSpec(t, "star:2").Prefix(0) != ib.DefaultGIDPrefix {
		t.Error("prefixes of joined subnets are not their own")
	}
}

// TestSubnetsApart: ports of a host in two planes are in two subnets, an uncabled port in none, and a cable between
// hosts is one.
func TestSubnetsApart(t *testing.T) {
	g := mustSpec(t, "star:2,planes=2")
	if s := g.Subnets(); s.Count != 2 || s.Of(PortRef{0, 1}) != 0 || s.Of(PortRef{0, 2}) != 1 {
		t.Errorf("planes: %+v", s)
	}
	if s := mustSpec(t, "pair").Subnets(); s.Count != 1 || s.Ends[0] != 2 {
		t.Errorf("pair: %+v", s)
	}
	g = mustSpec(t, "star:2")
	if err := g.Disconnect(0, 1); err != nil {
		t.Fatal(err)
	}
	if s := g.Subnets(); s.Count != 1 || s.Of(PortRef{0, 1}) != -1 || s.Ends[0] != 2 {
		t.Errorf("a cable out: %+v", s)
	}
}

// TestSubnetsLIDs: each subnet has all addresses for itself.
func TestSubnetsLIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("a large fabric")
	}
	g := mustSpec(t, "subnets:2,each=fat-tree:radix=52,levels=3") // 35152 hosts each
	if n := g.NumLIDs(); n <= int(ib.LIDUnicastMax) {
		t.Fatalf("%d LIDs would fit one subnet", n)
	}
	if p := Check(g); len(p) > 0 {
		t.Errorf("Check: %v", p)
	}
}

func TestSubnetsRefused(t *testing.T) {
	for spec, want := range map[string]string{
		"subnets:2":                                "each",
		"subnets:1,each=star:2":                    "2 to",
		"subnets:2,each=":                          "no value",
		"subnets:2,each=pair":                      "no switch",
		"subnets:2,each=star:2,planes=2":           "several subnets",
		"subnets:2,planes=2,each=star:2":           "planes",
		"subnets:2,each=subnets:2,each=star:2":     "several subnets",
		"subnets:2,routers=0,each=star:2":          "routers",
		"subnets:2,routers=2,each=star:254":        "256 ports",
		"subnets:2,each=nothing:3":                 "no generator",
		"subnets:2,each=fat-tree:radix=7,levels=2": "radix",
	} {
		if _, err := ParseSpec(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want something about %q", spec, err, want)
		}
	}
}
