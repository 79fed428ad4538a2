package sm

import (
	"softib/ib"
	"softib/mad"
	"softib/subnet"
)

// lanePlan is what has to be written for service levels to take the lanes that routing or an operator planned.
type lanePlan struct {
	slvl []slvlWrite
	arb  []arbWrite
}

type slvlWrite struct {
	ref   subnet.Ref
	mod   uint32
	table mad.SLtoVL
}

type arbWrite struct {
	ref   subnet.Ref
	block mad.VLArbBlock
	table mad.VLArb
}

// arbWeight is each lane's weight: 64 units of 64 bytes, one packet of the largest MTU.
const arbWeight = 64

// beginLanes plans mappings and arbitration where routing uses more than one lane.
func (s *sweep) beginLanes() {
	s.cursor = cursor{}
	s.lanes = lanePlan{}
	if s.tables.SL == nil && s.tables.SLtoVL == nil {
		return
	}
	for i, n := range s.nodes {
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Up() {
				s.planLanes(subnet.Ref{Node: int32(i), Port: ib.PortNum(p)})
			}
		}
	}
}

// laneTable is the mapping for packets that enter by one port and leave by another; at an adapter both are 0.
func (s *sweep) laneTable(sw int32, in, out ib.PortNum, vls int) mad.SLtoVL {
	var t mad.SLtoVL
	for sl := range t {
		t[sl] = s.tables.Lane(sw, in, out, ib.SL(sl)) % ib.VL(max(vls, 1))
	}
	return t
}

func (s *sweep) planLanes(ref subnet.Ref) {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	vls := 1
	if v := min(p.Info.VLCap, s.nodes[p.Peer].Ports[p.PeerPort].Info.VLCap); v.IsValid() {
		vls = v.VLs()
	}
	if s.m.cfg.MaxVLs > 0 {
		vls = min(vls, s.m.cfg.MaxVLs)
	}
	var want subnet.PortTables
	if p.Tables != nil {
		want = *p.Tables
	}
	have := want.SLtoVL
	if !n.IsSwitch() {
		t := s.laneTable(-1, 0, 0, vls)
		want.SLtoVL = []mad.SLtoVL{t}
		if len(have) != 1 || have[0] != t {
			s.lanes.slvl = append(s.lanes.slvl, slvlWrite{ref, 0, t})
		}
	} else {
		want.SLtoVL = make([]mad.SLtoVL, len(n.Ports))
		uniform := s.tables.SLtoVL == nil
		for in := range n.Ports {
			want.SLtoVL[in] = s.laneTable(n.RouteIndex, ib.PortNum(in), ref.Port, vls)
		}
		switch {
		case uniform && n.Switch.OptimizedSLtoVLMappingProgramming != 0:
			if len(have) != len(want.SLtoVL) || have[0] != want.SLtoVL[0] {
				s.lanes.slvl = append(s.lanes.slvl, slvlWrite{ref, 0x20000 | uint32(ref.Port), want.SLtoVL[0]})
			}
		default:
			for in := range n.Ports {
				if in > 0 && !n.Ports[in].Up() || len(have) == len(want.SLtoVL) && have[in] == want.SLtoVL[in] {
					continue
				}
				s.lanes.slvl = append(s.lanes.slvl, slvlWrite{ref, mad.SLtoVLModifier(ib.PortNum(in), ref.Port), want.SLtoVL[in]})
			}
		}
	}
	if want.VLArb[0] == nil && p.Info.VLArbitrationLowCap > 0 {
		want.VLArb[0] = make([]mad.VLArbEntry, 0, vls)
		var t mad.VLArb
		for vl := range min(vls, int(p.Info.VLArbitrationLowCap)) {
			t[vl] = mad.VLArbEntry{VL: ib.VL(vl), Weight: arbWeight}
			want.VLArb[0] = append(want.VLArb[0], t[vl])
		}
		s.lanes.arb = append(s.lanes.arb, arbWrite{ref, mad.VLArbLow0, t})
	}
	s.edit(ref.Node).Ports[ref.Port].Tables = s.m.share(&want)
}

// nextLanes writes the next table.
func (s *sweep) nextLanes(r *request) bool {
	at := s.cursor.at
	s.cursor.at++
	if at < len(s.lanes.slvl) {
		w := &s.lanes.slvl[at]
		*r = request{what: tell, set: true, node: w.ref.Node, port: w.ref.Port, attr: mad.AttrSLtoVL, mod: w.mod}
		w.table.Append(s.smp(r))
		return true
	}
	if at -= len(s.lanes.slvl); at < len(s.lanes.arb) {
		w := &s.lanes.arb[at]
		*r = request{what: tell, set: true, node: w.ref.Node, port: w.ref.Port, attr: mad.AttrVLArb}
		names := ib.PortNum(0)
		if s.nodes[w.ref.Node].IsSwitch() {
			names = w.ref.Port
		}
		r.mod = mad.VLArbModifier(names, w.block)
		w.table.Append(s.smp(r))
		return true
	}
	s.cursor.at--
	return false
}

// lanesReply drops what was noted of a port that did not take its tables.
func (s *sweep) lanesReply(r *request, v mad.View) {
	if s.answered(r, v) {
		return
	}
	p := &s.edit(r.node).Ports[r.port]
	if p.Tables != nil {
		t := *p.Tables
		t.SLtoVL, t.VLArb = nil, [2][]mad.VLArbEntry{}
		p.Tables = s.m.share(&t)
	}
}
