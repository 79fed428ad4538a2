package sm

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/route"
)

// choosers counts the switches that choose.
func (n *network) choosers() (count int) {
	for _, sw := range n.switches {
		if sw != nil && sw.Adaptive().On {
			count++
		}
	}
	return count
}

// ways are the ports by which a switch may send a packet to a LID.
func (n *network) ways(node int, lid ib.LID) (m ib.PortMask) {
	sw := n.switches[node]
	if lid > sw.Info().LinearFDBTop {
		return m
	}
	if in := sw.GroupOf(lid); sw.Adaptive().On && in.Group >= 0 {
		return sw.Group(in.Group)
	}
	if p := sw.Route(lid); p != mad.LFTNone {
		m.Set(p)
	}
	return m
}

// follow walks all ways from a switch to a LID, whatever is chosen. It reports whether one leads in a round, and
// whether all arrive at the node.
func (n *network) follow(node int, lid ib.LID, to int, state map[int]int) (rounds, arrives bool) {
	const underWay, good, bad = 1, 2, 3
	if node == to {
		return false, true
	}
	if n.switches[node] == nil {
		return false, false
	}
	switch state[node] {
	case underWay:
		return true, false
	case good:
		return false, true
	case bad:
		return false, false
	}
	state[node] = underWay
	arrives = true
	m := n.ways(node, lid)
	if m.Empty() {
		arrives = false
	}
	for p, ok := m.Pop(); ok; p, ok = m.Pop() {
		port := n.g.Port(topo.PortRef{Node: node, Port: p})
		if p == 0 || port == nil || port.Peer < 0 {
			arrives = false
			continue
		}
		r, a := n.follow(port.Peer, lid, to, state)
		rounds, arrives = rounds || r, arrives && a
	}
	state[node] = bad
	if arrives {
		state[node] = good
	}
	return rounds, arrives
}

// mustChoose checks every way to every host.
func (n *network) mustChoose(h *host, whole bool) {
	n.t.Helper()
	for _, dest := range n.g.Hosts() {
		lid := h.m.lids.of[dest.PortGUID(1)]
		if lid == 0 {
			continue
		}
		state := map[int]int{}
		for i, sw := range n.switches {
			if sw == nil {
				continue
			}
			rounds, arrives := n.follow(i, lid, dest.Index, state)
			if rounds || whole && !arrives {
				n.t.Fatalf("at %v, %d switches choosing: from %s to %s: rounds %v, arrives %v\n%s", n.now, n.choosers(),
					n.g.Nodes[i].Name, dest.Name, rounds, arrives, n.logs())
			}
		}
	}
}

// TestAdaptive: switches are told what to choose from when all tables are written, and stop before any is changed;
// nothing that they choose at any moment leads in a round.
func TestAdaptive(t *testing.T) {
	for _, by := range []route.Choice{route.ByPacket, route.ByFlowlet, route.ByMessage} {
		n := newNetwork(t, "fat-tree:radix=4,levels=3")
		h := n.manage(0, Config{Adaptive: by})
		n.up(h)
		all := len(n.g.Switches())
		n.must(5*ib.Second, "all switches choose", func() bool {
			n.mustChoose(h, false)
			return n.choosers() == all && h.rests()
		})
		n.mustChoose(h, true)
		several := 0
		for _, sw := range n.switches {
			for _, dest := range n.g.Hosts() {
				if sw == nil {
					continue
				}
				if m := sw.GroupOf(h.m.lids.of[dest.PortGUID(1)]); m.Group >= 0 {
					several++
					if m.Bounded != (by != route.ByPacket) {
						t.Fatalf("by %v: bounded %v", by, m.Bounded)
					}
				}
			}
		}
		if several == 0 {
			t.Fatal("nothing to choose from")
		}
		if got, want := n.switches[n.leafOf(n.hostRef(0))].Adaptive().Ageing, ib.Never; by == route.ByFlowlet {
			want = route.FlowletGap
			if got != want {
				t.Errorf("ageing %v, want %v", got, want)
			}
		}
		// Nothing has changed: nothing is written.
		n.resetCounts()
		n.pass(15 * ib.Second)
		h.m.Sweep(n.now, "test")
		n.pass(15 * ib.Second)
		if c := n.sets[mad.AttrARInfo] + n.sets[mad.AttrARLFT] + n.sets[mad.AttrARGroupTable]; c != 0 {
			t.Errorf("%d writes while nothing changed", c)
		}
		for _, k := range []int{3, 9} {
			ref := n.switchLinks()[k]
			sweeps := h.m.Sweeps()
			n.cut(ref)
			n.must(10*ib.Second, "it is seen, and all choose again", func() bool {
				n.mustChoose(h, false)
				return h.m.Sweeps() > sweeps && n.choosers() == all && h.rests()
			})
			n.mustChoose(h, true)
			sweeps = h.m.Sweeps()
			n.join(ref)
			n.must(10*ib.Second, "it is back", func() bool {
				n.mustChoose(h, false)
				return h.m.Sweeps() > sweeps && n.choosers() == all && h.rests()
			})
			n.mustChoose(h, true)
		}
		n.works()
	}
}

// TestAdaptiveUnable: a switch that knows nothing of it goes by its forwarding table, and so does one that does not
// take its groups; all others choose.
func TestAdaptiveUnable(t *testing.T) {
	for name, refused := range map[string]mad.AttrID{"unknown": mad.AttrARInfo, "no groups": mad.AttrARGroupTable} {
		n := newNetwork(t, "fat-tree:radix=4,levels=2")
		leaf := n.leafOf(n.hostRef(0))
		n.answers[leaf] = func(req, resp mad.View) fate {
			if req.AttrID() == refused {
				resp.SetStatus(mad.StatusUnsupMethodAttr)
			}
			return fate{}
		}
		h := n.manage(0, Config{Adaptive: route.ByPacket})
		n.up(h)
		n.pass(15 * ib.Second)
		n.mustChoose(h, true)
		if got, want := n.choosers(), len(n.g.Switches())-1; got < want {
			t.Errorf("%s: %d switches choose, want %d\n%s", name, got, want, n.logs())
		}
		if refused == mad.AttrARGroupTable && n.switches[leaf].Adaptive().On {
			t.Errorf("%s: it chooses from what it has not taken", name)
		}
		n.works()
	}
}

// TestAdaptiveMute: a switch in use that does not answer is asked a few times, and is then left alone.
func TestAdaptiveMute(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	h := n.manage(0, Config{})
	n.up(h)
	h.die()
	leaf := n.leafOf(n.hostRef(1))
	asked := 0
	n.answers[leaf] = func(req, _ mad.View) fate {
		if req.AttrID() == mad.AttrARInfo {
			asked++
			return fate{drop: true}
		}
		return fate{}
	}
	other := n.manage(3, Config{Adaptive: route.ByPacket})
	n.must(60*ib.Second, "the others choose", func() bool {
		return n.choosers() == len(n.g.Switches())-1 && other.rests()
	})
	n.must(300*ib.Second, "it is left alone", func() bool {
		other.m.Sweep(n.now, "test")
		n.pass(10 * ib.Second)
		return other.m.choosing[n.g.Nodes[leaf].GUID].unable
	})
	before := asked
	other.m.Sweep(n.now, "test")
	n.pass(10 * ib.Second)
	if asked != before {
		t.Errorf("it was asked %d times more", asked-before)
	}
	n.mustChoose(other, true)
	n.works()
}

// TestAdaptiveTakeover: a manager that does not want switches to choose stops those that another has set up, before it
// changes a table.
func TestAdaptiveTakeover(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	h := n.manage(0, Config{Adaptive: route.ByPacket})
	n.up(h)
	n.must(5*ib.Second, "all switches choose", func() bool { return n.choosers() == len(n.g.Switches()) && h.rests() })
	h.die()
	other := n.manage(3, Config{})
	n.must(60*ib.Second, "none chooses", func() bool { return n.choosers() == 0 && other.rests() })
	n.mustChoose(other, true)
	n.works()
}
