package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// planned is the routing of a subnet that is known to be a plan's, or a part of it while some of that is missing: that
// of the whole plan, with as little changed as what is missing needs. It does not depend on what there was before. So
// when a machine with switches and hosts is lost, or comes back, only ways change that lead over its cables; and a
// manager that begins with what it finds works out what the one before it did.
type planned struct {
	whole *route.Network
	// base are the tables of the whole; nil until a job has made them.
	base *route.Tables
	// index is where the plan's switches are among the network's, by GUID.
	index map[ib.GUID]int32
	odd   bool // the engine that fits is none that mends: everything is as without a plan
}

// newPlanned makes the network of a plan with addresses; nil if some port has none.
func newPlanned(g *topo.Graph, c *Config, lids map[ib.GUID]ib.LID) *planned {
	p := &planned{whole: &route.Network{}, index: map[ib.GUID]int32{}}
	n := p.whole
	for _, sw := range g.Switches() {
		p.index[sw.GUID] = int32(len(n.Switches))
		n.Switches = append(n.Switches, route.Switch{GUID: sw.GUID, Ports: make([]route.Hop, len(sw.Ports))})
	}
	add := func(guid ib.GUID, lmc uint8, sw int32, port ib.PortNum) bool {
		base := lids[guid]
		for k := range ib.LID(1) << lmc {
			n.Dests = append(n.Dests, route.Dest{LID: base + k, Switch: sw, Port: port, PathBits: uint8(k)})
			n.Top = max(n.Top, base+k)
		}
		return base != 0
	}
	for _, node := range g.Switches() {
		at := p.index[node.GUID]
		sw := &n.Switches[at]
		for num := range node.Ports {
			sw.Ports[num].To = route.NoSwitch
			x := &node.Ports[num]
			if num == 0 || !x.Connected() {
				continue
			}
			if peer := g.Nodes[x.Peer]; peer.IsSwitch() {
				if peer != node {
					sw.Ports[num] = route.Hop{To: p.index[peer.GUID], Port: x.PeerPort}
				}
			} else {
				guid := peer.PortGUID(x.PeerPort)
				sw.Ends++
				lmc, ok := c.LMCs[guid]
				if !ok {
					lmc = c.LMC
				}
				if !add(guid, lmc, at, ib.PortNum(num)) {
					return nil
				}
			}
		}
	}
	for _, node := range g.Switches() {
		if !add(node.PortGUID(0), 0, p.index[node.GUID], 0) {
			return nil
		}
	}
	return p
}

// now is a network as the plan numbers switches, with those that are missing; nil if it is no part of the plan.
func (p *planned) now(n *route.Network) *route.Network {
	all := &route.Network{Switches: make([]route.Switch, len(p.whole.Switches)),
		Dests: make([]route.Dest, len(n.Dests)), Top: p.whole.Top}
	at := make([]int32, len(n.Switches))
	for k := range n.Switches {
		i, ok := p.index[n.Switches[k].GUID]
		if !ok || len(n.Switches[k].Ports) != len(p.whole.Switches[i].Ports) {
			return nil
		}
		at[k] = i
	}
	for i := range all.Switches {
		w := &p.whole.Switches[i]
		s := route.Switch{GUID: w.GUID, Ports: make([]route.Hop, len(w.Ports)), Ends: w.Ends}
		for num := range s.Ports {
			s.Ports[num].To = route.NoSwitch
		}
		all.Switches[i] = s
	}
	for k := range n.Switches {
		s := &all.Switches[at[k]]
		s.Ends = n.Switches[k].Ends
		for num, hop := range n.Switches[k].Ports {
			if hop.To != route.NoSwitch {
				hop.To = at[hop.To]
			}
			s.Ports[num] = hop
		}
	}
	for k, d := range n.Dests {
		d.Switch = at[d.Switch]
		all.Dests[k] = d
		all.Top = max(all.Top, d.LID)
	}
	return all
}

// route makes tables for a network; nil if the plan says nothing about it.
func (p *planned) route(n *route.Network, engines string, o route.Options) *route.Tables {
	all := p.now(n)
	if all == nil || p.odd {
		return nil
	}
	roots := o.Roots
	o.Roots = nil
	for _, k := range roots {
		o.Roots = append(o.Roots, p.index[n.Switches[k].GUID])
	}
	if p.base == nil {
		res, err := route.Compute(p.whole, engines, o)
		if err != nil || !res.Tables.MayMend() {
			p.odd = true
			return nil
		}
		p.base = res.Tables
	}
	r, err := route.Repair(all, p.base, o)
	if err != nil || r.Full {
		return nil
	}
	t := &route.Tables{Engine: r.Tables.Engine, VLs: r.Tables.VLs, LFT: make([][]ib.PortNum, len(n.Switches)),
		Rank: make([]int32, len(n.Switches))}
	// What leads to those that are missing is the plan's, over cables that may be missing too. A transition orders no
	// writes for a LID that nobody has: its entries go.
	there := make([]bool, n.Top+1)
	for _, d := range n.Dests {
		there[d.LID] = true
	}
	var gone []ib.LID
	for lid := range there {
		if lid > 0 && !there[lid] {
			gone = append(gone, ib.LID(lid))
		}
	}
	for k := range n.Switches {
		i := p.index[n.Switches[k].GUID]
		row, own := r.Tables.LFT[i][:n.Top+1], false
		for _, lid := range gone {
			if row[lid] == route.NoPort {
				continue
			}
			if !own { // the others' are the plan's, and may be shared
				row, own = slices.Clone(row), true
			}
			row[lid] = route.NoPort
		}
		t.LFT[k], t.Rank[k] = row, r.Tables.Rank[i]
	}
	return t
}
