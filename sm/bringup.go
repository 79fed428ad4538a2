package sm

import (
	"slices"

	"softib/ib"
	"softib/mad"
	"softib/topo"
)

// BroadcastMLID is the group that BringUp makes every host a member of.
const BroadcastMLID = ib.LIDMulticastMin

// subnetTimeOut is the longest time that a packet takes through the subnet: 4.096 us * 2^18,
// about a second.
const subnetTimeOut = 18

// arbWeight is each lane's weight: 64 units of 64 bytes, one packet of the largest MTU.
const arbWeight = 64

// Report is what a bring-up has done.
type Report struct {
	Hosts, Switches int
	// Links counts the cables that are up.
	Links int
	// Down are cabled ports that have no link.
	Down []topo.PortRef
	// Routing is how the ways were chosen.
	Routing Routing
	// SMLID is the address that ports know the manager by.
	SMLID ib.LID
	// MADs counts the requests made.
	MADs int
	// LIDs are the base LIDs by node and port; a switch's is at port 0.
	LIDs [][]ib.LID
}

// LID is the address of a port; a switch's is its port 0's.
func (r *Report) LID(ref topo.PortRef) ib.LID {
	if ref.Node < 0 || ref.Node >= len(r.LIDs) || int(ref.Port) >= len(r.LIDs[ref.Node]) {
		return ib.LIDReserved
	}
	return r.LIDs[ref.Node][ref.Port]
}

// bringUp is a bring-up under way.
type bringUp struct {
	*subnet
	lids   [][]address
	top    ib.LID
	wires  *wiring
	routes *routes
	report Report
}

// BringUp programs a whole fabric, so that all hosts reach each other, and makes
// its links Active.
func BringUp(g *topo.Graph, f Fabric) (Report, error) {
	s, err := discover(g, f)
	if err != nil {
		return Report{}, err
	}
	b := &bringUp{subnet: s, report: Report{Hosts: len(g.Hosts()), Switches: len(g.Switches())}}
	if b.lids, b.top, err = assignLIDs(g); err != nil {
		return Report{}, err
	}
	b.wires = s.wiring()
	b.routes = computeRoutes(b.wires, orient(b.wires), b.dests(), b.top)
	b.report.Routing = b.routes.routing
	b.fillReport()
	for _, phase := range []func() error{b.writeTables, b.writeEnds, b.writeLinks, b.writeLanes, b.broadcast, b.arm, b.activate} {
		if err := phase(); err != nil {
			return b.report, err
		}
	}
	b.report.MADs = int(b.tid)
	return b.report, nil
}

// dests are the LIDs that tables need, those of one switch together.
func (b *bringUp) dests() []dest {
	var list []dest
	add := func(a address, sw int32, port ib.PortNum) {
		for i := range a.count() {
			list = append(list, dest{a.lid + ib.LID(i), sw, port})
		}
	}
	for at, i := range b.swNodes {
		n := b.g.Nodes[i]
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if b.up(int(i), ib.PortNum(p)) && b.swOf[x.Peer] < 0 {
				add(b.lids[x.Peer][x.PeerPort], int32(at), ib.PortNum(p))
			}
		}
		add(b.lids[i][0], int32(at), 0)
	}
	return list
}

func (b *bringUp) fillReport() {
	b.report.LIDs = make([][]ib.LID, len(b.g.Nodes))
	for i, n := range b.g.Nodes {
		b.report.LIDs[i] = make([]ib.LID, len(n.Ports))
		for p := range n.Ports {
			b.report.LIDs[i][p] = b.lids[i][p].lid
			switch num := ib.PortNum(p); {
			case p == 0 || !n.Ports[p].Connected():
			case !b.up(i, num):
				b.report.Down = append(b.report.Down, topo.PortRef{Node: i, Port: num})
			case i < n.Ports[p].Peer || i == n.Ports[p].Peer && num < n.Ports[p].PeerPort:
				b.report.Links++
			}
		}
	}
	// The manager lives with the first adapter, as one that a person starts would.
	eachEnd(b.g, func(r topo.PortRef) {
		if b.report.SMLID == 0 {
			b.report.SMLID = b.report.LID(r)
		}
	})
}

// writeTables writes the linear forwarding tables.
func (b *bringUp) writeTables() error {
	var block mad.LFT
	for at, i := range b.swNodes {
		lft := b.routes.lft[at]
		for from := 0; from < len(lft); from += mad.LFTPerBlock {
			for k := range block {
				block[k] = mad.LFTNone
			}
			copy(block[:], lft[from:])
			if err := b.set(int(i), 0, mad.AttrLFT, uint32(from/mad.LFTPerBlock), &block); err != nil {
				return err
			}
		}
		si := b.switches[i]
		si.LinearFDBTop = b.top
		si.PortStateChange = true // seen
		if err := b.set(int(i), 0, mad.AttrSwitchInfo, 0, &si); err != nil {
			return err
		}
	}
	return nil
}

// writeEnds gives each end port its addresses and the default partition.
func (b *bringUp) writeEnds() error {
	keys := mad.PKeyTable{ib.PKeyDefault}
	var failed error
	eachEnd(b.g, func(r topo.PortRef) {
		if failed != nil || r.Port != 0 && !b.up(r.Node, r.Port) {
			return
		}
		if failed = b.set(r.Node, r.Port, mad.AttrPKeyTable, 0, &keys); failed != nil {
			return
		}
		cur := &b.ports[r.Node][r.Port]
		// Clients of a port that had an address have subscribed and joined with
		// a manager that is gone.
		again := cur.LID != ib.LIDReserved && cur.CapabilityMask&mad.CapClientReregistration != 0
		a := b.lids[r.Node][r.Port]
		cur.LID, cur.LMC = a.lid, a.lmc
		cur.MasterSMLID, cur.MasterSMSL = b.report.SMLID, 0
		cur.GidPrefix = ib.DefaultGIDPrefix
		cur.SubnetTimeOut = subnetTimeOut
		cur.MKey, cur.MKeyProtectBits, cur.MKeyLeasePeriod = 0, 0, 0
		failed = b.setPort(r, ib.PortNoChange, again)
	})
	return failed
}

// setPort writes a port's PortInfo, with a command for its state. What the
// answer says is the port's from then on.
func (b *bringUp) setPort(r topo.PortRef, to ib.PortState, reregister bool) error {
	cur := &b.ports[r.Node][r.Port]
	pi := *cur
	pi.PortState, pi.PortPhysicalState, pi.ClientReregister = to, ib.PhysNoChange, reregister
	if err := b.set(r.Node, b.through(b.g.Nodes[r.Node], r.Port), mad.AttrPortInfo, uint32(r.Port), &pi); err != nil {
		return err
	}
	_, err := cur.Parse(b.resp[mad.SMPDataOff:][:mad.SMPDataLen])
	return err
}

// eachLink calls f for every port whose link is up, until one fails.
func (b *bringUp) eachLink(f func(topo.PortRef) error) error {
	for i, n := range b.g.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			if num := ib.PortNum(p); b.up(i, num) {
				if err := f(topo.PortRef{Node: i, Port: num}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// writeLinks makes both ends of each link agree on the MTU and on the lanes.
func (b *bringUp) writeLinks() error {
	return b.eachLink(func(r topo.PortRef) error {
		x := &b.g.Nodes[r.Node].Ports[r.Port]
		cur, peer := &b.ports[r.Node][r.Port], &b.ports[x.Peer][x.PeerPort]
		cur.NeighborMTU = min(cur.MTUCap, peer.MTUCap)
		cur.OperationalVLs = min(cur.VLCap, peer.VLCap)
		cur.VLHighLimit = 0
		return b.setPort(r, ib.PortNoChange, false)
	})
}

// writeLanes maps service levels to the lanes in use, round and round, and
// lets all lanes take turns.
func (b *bringUp) writeLanes() error {
	var sl mad.SLtoVL
	return b.eachLink(func(r topo.PortRef) error {
		n, vls := b.g.Nodes[r.Node], b.ports[r.Node][r.Port].OperationalVLs.VLs()
		for i := range sl {
			sl[i] = ib.VL(i % vls)
		}
		if !n.IsSwitch() {
			if err := b.set(r.Node, r.Port, mad.AttrSLtoVL, 0, &sl); err != nil {
				return err
			}
			return b.writeArb(r, r.Port, 0, vls)
		}
		for in := 0; in < len(n.Ports); in++ {
			if in > 0 && !b.up(r.Node, ib.PortNum(in)) {
				continue
			}
			if err := b.set(r.Node, 0, mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), r.Port), &sl); err != nil {
				return err
			}
		}
		return b.writeArb(r, 0, r.Port, vls)
	})
}

// writeArb gives all lanes the same weight in the low-priority table and empties
// the other. The request goes through a port and names one.
func (b *bringUp) writeArb(r topo.PortRef, through, names ib.PortNum, vls int) error {
	var table [mad.NumVLArbBlock]mad.VLArb
	for vl := range vls {
		table[mad.VLArbLow0][vl] = mad.VLArbEntry{VL: ib.VL(vl), Weight: arbWeight}
	}
	pi := &b.ports[r.Node][r.Port]
	for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
		have, first := int(pi.VLArbitrationLowCap), mad.VLArbLow0
		if k >= mad.VLArbHigh0 {
			have, first = int(pi.VLArbitrationHighCap), mad.VLArbHigh0
		}
		if int(k-first)*mad.VLArbPerBlock >= have {
			continue
		}
		if err := b.set(r.Node, through, mad.AttrVLArb, mad.VLArbModifier(names, k), &table[k]); err != nil {
			return err
		}
	}
	return nil
}

// broadcast makes all hosts members of one group.
func (b *bringUp) broadcast() error {
	var members []topo.PortRef
	for _, h := range b.g.Hosts() {
		for p := 1; p < len(h.Ports); p++ {
			members = append(members, topo.PortRef{Node: h.Index, Port: ib.PortNum(p)})
		}
	}
	return b.writeGroup(b.wires, b.routes.dir, BroadcastMLID, members)
}

// arm and activate take every link through Armed to Active. All are armed before
// the first is active, since packets that come to a port that is not
// armed yet would be lost (IBA 7.2.7).
func (b *bringUp) arm() error { return b.move(ib.PortInit, ib.PortArmed) }

func (b *bringUp) activate() error { return b.move(ib.PortArmed, ib.PortActive) }

func (b *bringUp) move(from, to ib.PortState) error {
	return b.eachLink(func(r topo.PortRef) error {
		if b.ports[r.Node][r.Port].PortState != from {
			return nil
		}
		return b.setPort(r, to, false)
	})
}

// sortedPorts keeps members in one order, whatever the caller's was, without doubles.
func sortedPorts(list []topo.PortRef) []topo.PortRef {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b topo.PortRef) int {
		if a.Node != b.Node {
			return a.Node - b.Node
		}
		return int(a.Port) - int(b.Port)
	})
	return slices.Compact(list)
}
