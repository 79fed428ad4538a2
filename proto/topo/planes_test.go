package topo

import (
	"fmt"
	"testing"
)

// TestPlanes: each plane is the fabric itself, and no cable joins two.
func TestPlanes(t *testing.T) {
	for _, spec := range []string{"fat-tree:radix=4,levels=2", "rail:gpus=4,servers=8,radix=8", "dragonfly:a=2,h=1,p=1",
		"star:3"} {
		one, err := ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		g, err := ParseSpec(spec + ",planes=3")
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Hosts()) != len(one.Hosts()) || len(g.Switches()) != 3*len(one.Switches()) ||
			g.NumCables() != 3*one.NumCables() || g.Planes != 3 {
			t.Errorf("%s: %d hosts, %d switches, %d cables, %d planes", spec, len(g.Hosts()), len(g.Switches()),
				g.NumCables(), g.Planes)
		}
		for _, c := range one.Cables() {
			for k := range 3 {
				at := func(r PortRef) PortRef {
					n := one.Nodes[r.Node]
					if n.IsSwitch() {
						return PortRef{g.ByName(fmt.Sprintf("p%d-%s", k+1, n.Name)).Index, r.Port}
					}
					r.Node = g.ByName(n.Name).Index
					for range k {
						r.Port++
					}
					return r
				}
				a, b := at(c.A), at(c.B)
				if p := g.Port(a); p.Peer != b.Node || p.PeerPort != b.Port {
					t.Fatalf("%s: plane %d: %s leads to %s, want %s", spec, k+1, g.PortName(a),
						g.PortName(PortRef{p.Peer, p.PeerPort}), g.PortName(b))
				}
			}
		}
		if ps := Check(g); len(ps) > 0 && len(Check(one)) == 0 {
			t.Errorf("%s: %v", spec, ps)
		}
	}
	for _, bad := range []string{"star:3,planes=0", "star:3,planes=9"} {
		if _, err := ParseSpec(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
