package sm

import (
	"errors"
	"fmt"

	"softib/ib"
	"softib/topo"
)

// ErrTooManyLIDs is matched when a subnet has not enough addresses.
var ErrTooManyLIDs = errors.New("too many LIDs")

// address is the LIDs of an end port: 2^lmc from lid on.
type address struct {
	lid ib.LID
	lmc uint8
}

func (a address) count() int { return 1 << a.lmc }

// eachEnd calls f for every port that needs an address: the cabled ports of
// adapters and routers, then port 0 of each switch.
func eachEnd(g *topo.Graph, f func(topo.PortRef)) {
	for i, n := range g.Nodes {
		for p := 1; p < len(n.Ports) && !n.IsSwitch(); p++ {
			if n.Ports[p].Connected() {
				f(topo.PortRef{Node: i, Port: ib.PortNum(p)})
			}
		}
	}
	for _, n := range g.Switches() {
		f(topo.PortRef{Node: n.Index})
	}
}

// assignLIDs gives every end port its address, by node and port: those that a
// dump names if they can be used as they are, else 1, 2, 3 and so on.
func assignLIDs(g *topo.Graph) ([][]address, ib.LID, error) {
	lids := make([][]address, len(g.Nodes))
	for i, n := range g.Nodes {
		lids[i] = make([]address, len(n.Ports))
	}
	if top, ok := hintedLIDs(g, lids); ok {
		return lids, top, nil
	}
	top := 0
	eachEnd(g, func(r topo.PortRef) {
		top++
		lids[r.Node][r.Port] = address{lid: ib.LID(top & 0xFFFF)}
	})
	if top > int(ib.LIDUnicastMax) {
		return nil, 0, fmt.Errorf("sm: %d end ports: want at most %d, the unicast LIDs of a subnet: %w", top, ib.LIDUnicastMax, ErrTooManyLIDs)
	}
	return lids, ib.LID(top), nil
}

// hintedLIDs takes the addresses of a dump; false unless every end port has
// one, aligned to its LMC, and no two overlap.
func hintedLIDs(g *topo.Graph, lids [][]address) (top ib.LID, ok bool) {
	taken := make([]bool, int(ib.LIDUnicastMax)+1)
	ok = true
	eachEnd(g, func(r topo.PortRef) {
		p := &g.Nodes[r.Node].Ports[r.Port]
		a := address{p.LID, p.LMC}
		last := int(a.lid) + a.count() - 1
		if !ok || !a.lid.IsUnicast() || a.lmc > 7 || int(a.lid)%a.count() != 0 || last > int(ib.LIDUnicastMax) {
			ok = false
			return
		}
		for l := int(a.lid); l <= last; l++ {
			ok = ok && !taken[l]
			taken[l] = true
		}
		lids[r.Node][r.Port] = a
		top = max(top, ib.LID(last))
	})
	return top, ok
}
