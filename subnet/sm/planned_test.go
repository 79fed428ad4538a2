package sm

import (
	"fmt"
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// plannedConfig is that of managers that know the subnet beforehand.
func plannedConfig(g *topo.Graph) Config {
	c := Config{Plan: g, Whole: true, Memory: Memory{LIDs: map[ib.GUID]ib.LID{}}}
	for i, r := range g.EndPorts() {
		c.Memory.LIDs[g.Nodes[r.Node].PortGUID(r.Port)] = ib.LID(i + 1)
	}
	return c
}

// allWays are those between all hosts, by the switches' tables; one that does not arrive is nil.
func (n *network) allWays() map[string][]topo.PortRef {
	all := map[string][]topo.PortRef{}
	for _, from := range hostPorts(n.g) {
		for _, to := range hostPorts(n.g) {
			if from != to {
				hops, at, ok := n.walk(from, n.lid(to))
				if !ok || at != to {
					hops = nil
				}
				all[fmt.Sprint(n.g.PortName(from), " to ", n.g.PortName(to))] = hops
			}
		}
	}
	return all
}

// TestPlannedWays: when part of a subnet is lost that is known as a whole, only ways change that led over it; a manager
// that begins then works out the same; and when the part is back, all is as it was.
func TestPlannedWays(t *testing.T) {
	control := 0
	for _, shape := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=4,levels=3"} {
		for _, whole := range []bool{true, false} {
			n := newNetwork(t, shape)
			cfg := plannedConfig(n.g)
			cfg.Whole = whole
			a := n.manage(0, cfg)
			n.up(a)
			was := n.allWays()
			// A spine, and a leaf with its hosts, as of a machine.
			var lost []topo.PortRef
			sw := n.g.Switches()
			for _, node := range []*topo.Node{sw[len(sw)-1], n.g.Nodes[n.leafOf(n.hostRef(len(n.g.Hosts())-1))]} {
				for p := range node.Ports {
					if node.Ports[p].Connected() {
						lost = append(lost, topo.PortRef{Node: node.Index, Port: ib.PortNum(p)})
					}
				}
			}
			isLost := func(r topo.PortRef) bool {
				x := n.g.Port(r)
				return slices.ContainsFunc(lost, func(l topo.PortRef) bool {
					return l.Node == r.Node || l.Node == x.Peer
				})
			}
			for _, r := range lost {
				if n.links[r.Node][r.Port].Phys() == ib.PhysLinkUp {
					n.cut(r)
				}
			}
			n.must(100*ib.Second, "the manager knows", func() bool {
				return a.rests() && len(a.m.Subnet().Nodes) < len(n.g.Nodes)
			})
			n.pass(30 * ib.Second)
			now, moved := n.allWays(), 0
			for name, way := range now {
				switch {
				case slices.ContainsFunc(was[name], isLost):
				case way == nil:
					t.Errorf("%s, whole %v: %s has no way", shape, whole, name)
				case !slices.Equal(way, was[name]):
					moved++
				}
			}
			if !whole {
				control += moved
				continue
			}
			if moved > 0 {
				t.Errorf("%s: %d of %d ways have moved that need not", shape, moved, len(now))
			}
			a.die()
			b := n.manage(1, cfg)
			n.must(100*ib.Second, "another rules", func() bool { return b.m.State() == mad.SMMaster && b.rests() })
			n.pass(30 * ib.Second)
			if then := n.allWays(); !same(then, now) {
				t.Errorf("%s: another manager has other ways", shape)
			}
			for _, r := range lost {
				if n.links[r.Node][r.Port].Phys() != ib.PhysLinkUp {
					n.join(r)
				}
			}
			n.must(100*ib.Second, "all is back", func() bool {
				return b.rests() && len(b.m.Subnet().Nodes) == len(n.g.Nodes)
			})
			n.pass(30 * ib.Second)
			if again := n.allWays(); !same(again, was) {
				t.Errorf("%s: all is back, and ways are others than at first", shape)
			}
		}
	}
	if control == 0 {
		t.Error("without the plan no way moves either")
	}
}

// TestPlannedTorus: where the engine that fits mends nothing, a plan costs one computation and changes nothing.
func TestPlannedTorus(t *testing.T) {
	n := newNetwork(t, "torus:3x3,hosts=1")
	a := n.manage(0, plannedConfig(n.g))
	n.up(a)
	if p := a.m.planned; p == nil || !p.odd || p.base != nil {
		t.Errorf("the ways of a torus come from a plan: %+v", p)
	}
}

func same(a, b map[string][]topo.PortRef) bool {
	for name, way := range a {
		if !slices.Equal(way, b[name]) {
			return false
		}
	}
	return len(a) == len(b)
}
