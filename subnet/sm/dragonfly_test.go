package sm

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// heldTables are the tables and groups that the switches hold, by the numbers of the manager's network.
func (n *network) heldTables(h *host) (*route.Tables, *route.Groups) {
	net := h.m.net
	held := heldMaps{n: n}
	t := &route.Tables{Engine: "held", ByLane: true, SLtoVL: &held}
	g := &route.Groups{}
	for s := range net.Switches {
		node := n.g.ByGUID(net.Switches[s].GUID).Index
		sw := n.switches[node]
		held.node = append(held.node, node)
		lft := make([]ib.PortNum, int(net.Top)+1)
		for lid := range lft {
			lft[lid] = sw.Route(ib.LID(lid))
		}
		t.LFT = append(t.LFT, lft)
		t.ByLane = t.ByLane && sw.ByLane()
		var sets []ib.PortMask
		for k := range route.MaxGroups {
			sets = append(sets, sw.Group(k))
		}
		of := make([]uint16, len(net.Dests))
		for d := range net.Dests {
			of[d] = uint16(sw.GroupOf(net.Dests[d].LID).Group + 1)
		}
		g.Sets, g.Of = append(g.Sets, sets), append(g.Of, of)
		g.Detours = sw.Adaptive().Detours
	}
	return t, g
}

// heldMaps is the switches' maps of lanes.
type heldMaps struct {
	n    *network
	node []int
}

func (m *heldMaps) VL(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	if sw == route.NoSwitch {
		return 0
	}
	return m.n.switches[m.node[sw]].SL2VL(in, out)[sl]
}

// TestDragonfly: on a dragonfly switches are told of detours and of lanes that rise; what they hold is judged, as it
// is, before and after a global link is lost, and when it is back.
func TestDragonfly(t *testing.T) {
	n := newNetwork(t, "dragonfly:a=4,h=2,p=1")
	h := n.manage(0, Config{Engines: "dragonfly", Adaptive: route.ByMessage})
	n.up(h)
	all := len(n.g.Switches())
	settled := func(what string, sweeps int) {
		t.Helper()
		n.must(10*ib.Second, what, func() bool { return h.m.Sweeps() > sweeps && n.choosers() == all && h.rests() })
		tab, groups := n.heldTables(h)
		if !tab.ByLane {
			t.Errorf("%s: a switch has lanes by level", what)
		}
		got := route.JudgeGroups(h.m.net, tab, groups)
		if !got.OK() || got.Detours == 0 {
			t.Errorf("%s: %d detours, %d unreached, cycle %v", what, got.Detours, got.Unreached, got.Cycle)
		}
	}
	settled("all switches choose", 0)
	var global topo.PortRef
	for _, ref := range n.switchLinks() {
		if ref.Port > 4 { // after a host and three local links
			global = ref
		}
	}
	sweeps := h.m.Sweeps()
	n.cut(global)
	settled("a global link is lost", sweeps)
	sweeps = h.m.Sweeps()
	n.join(global)
	settled("it is back", sweeps)
	n.works()
}
