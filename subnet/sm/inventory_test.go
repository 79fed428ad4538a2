package sm

import (
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// TestPublishedStays: what inventory learns makes another subnet; who holds the one before it holds what was published.
func TestPublishedStays(t *testing.T) {
	n := newNetwork(t, topo.DefaultSpec)
	h := n.manage(0, Config{SweepInterval: -1})
	n.must(ib.Second, "the subnet is published", func() bool { return h.m.Subnet() != nil })
	first := h.m.Subnet()
	nodes := slices.Clone(first.Nodes)
	n.must(10*ib.Second, "inventory is published", func() bool { return h.m.Subnet() != first })
	if !slices.Equal(first.Nodes, nodes) {
		t.Error("the subnet has other nodes than it was published with")
	}
	learnt := 0
	for i, x := range h.m.Subnet().Nodes {
		for p := range x.Ports {
			if tables := x.Ports[p].Tables; tables != nil && tables.SLtoVL != nil &&
				(nodes[i].Ports[p].Tables == nil || nodes[i].Ports[p].Tables.SLtoVL == nil) {
				learnt++
			}
		}
	}
	if learnt == 0 {
		t.Error("inventory has learnt nothing: not much of a test")
	}
}
