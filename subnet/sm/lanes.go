package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
)

// lanePlan is what has to be written for service levels to take the lanes that routing or an operator planned.
type lanePlan struct {
	slvl []slvlWrite
	arb  []arbWrite
	// byLane are the switches whose mappings are to go by the lane that a packet came on, or no more.
	byLane []int32

	routed bool // routing has lanes of its own
	// made are tables that many ports share.
	made map[laneShape]*laneTables
	// wants are the tables of the ports of one switch.
	wants []*laneTables
	shape laneShape // of the last port, and its tables
	last  *laneTables
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

// laneShape is what a port's tables depend on, unless routing maps each pair of ports in its own way.
type laneShape struct {
	kind      policy.PortKind
	vls       int
	inputs    int // tables of mappings: one for each port of entry
	low, high uint8
}

// laneTables are the tables of ports of one shape.
type laneTables struct {
	slvl []mad.SLtoVL
	arb  [2][]mad.VLArbEntry
}

// arbWeight is each lane's weight where an operator says nothing: 64 units of 64 bytes, one packet of the largest MTU.
const arbWeight = 64

// beginLanes plans mappings and arbitration, where routing uses more than one lane or an operator wants quality of
// service.
func (s *sweep) beginLanes() {
	s.cursor = cursor{}
	s.lanes = lanePlan{routed: s.tables.SL != nil || s.tables.SLtoVL != nil}
	for _, i := range s.switches {
		guid := s.nodes[i].Info.NodeGUID
		if s.cold[i] {
			delete(s.m.byLane, guid)
		}
		if s.m.byLane[guid] != s.tables.ByLane {
			s.lanes.byLane = append(s.lanes.byLane, i)
		}
	}
	if !s.lanes.routed && !s.m.writesLanes() {
		return
	}
	s.sayLanes()
	s.lanes.made = map[laneShape]*laneTables{}
	for i, n := range s.nodes {
		if n.IsSwitch() {
			s.planSwitchLanes(int32(i))
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Up() {
				s.planEndLanes(subnet.Ref{Node: int32(i), Port: ib.PortNum(p)})
			}
		}
	}
}

// kindOf is the kind of port that the options for quality of service have.
func (s *sweep) kindOf(ref subnet.Ref) policy.PortKind {
	switch n := s.nodes[ref.Node]; {
	case n.IsSwitch() && ref.Port == 0:
		return policy.QoSSwitchPort0
	case n.IsSwitch():
		return policy.QoSSwitchPort
	case n.Info.NodeType == ib.NodeRouter:
		return policy.QoSRouter
	}
	return policy.QoSCA
}

// lanesOf is how many data lanes a port may use: what both ends have, an operator allows, and a link in use runs with.
func (s *sweep) lanesOf(ref subnet.Ref) int {
	p := &s.nodes[ref.Node].Ports[ref.Port]
	v := p.Info.VLCap
	if p.Up() {
		v = min(v, s.nodes[p.Peer].Ports[p.PeerPort].Info.VLCap)
	}
	if p.Info.PortState == ib.PortActive && p.Info.OperationalVLs.IsValid() {
		v = min(v, p.Info.OperationalVLs)
	}
	vls := 1
	if v.IsValid() {
		vls = v.VLs()
	}
	if s.m.cfg.MaxVLs > 0 {
		vls = min(vls, s.m.cfg.MaxVLs)
	}
	if q := &s.m.cfg.QoS; q.Enabled && !s.lanes.routed {
		vls = min(vls, int(q.Ports[s.kindOf(ref)].MaxVLs))
	}
	return max(vls, 1)
}

// laneTable is the mapping for packets that enter by one port and leave by another; at an adapter both are 0.
func (s *sweep) laneTable(sw int32, in, out ib.PortNum, vls int) mad.SLtoVL {
	var t mad.SLtoVL
	for sl := range t {
		t[sl] = s.tables.Lane(sw, in, out, ib.SL(sl)) % ib.VL(vls)
	}
	return t
}

// tablesFor are the tables that a port should have.
func (s *sweep) tablesFor(ref subnet.Ref) *laneTables {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	shape := laneShape{s.kindOf(ref), s.lanesOf(ref), 1, p.Info.VLArbitrationLowCap, p.Info.VLArbitrationHighCap}
	sw := int32(-1)
	if n.IsSwitch() {
		shape.inputs, sw = len(n.Ports), n.RouteIndex
	}
	own := s.lanes.routed && s.tables.SLtoVL != nil && n.IsSwitch() // no two ports need be alike
	t := s.lanes.last
	if t == nil || shape != s.lanes.shape {
		t = s.lanes.made[shape]
	}
	if t == nil {
		t = &laneTables{arb: s.arbitration(&shape)}
		t.slvl = make([]mad.SLtoVL, shape.inputs)
		one := s.qosMapping(&shape)
		if s.lanes.routed {
			one = s.laneTable(sw, 0, ref.Port, shape.vls)
		}
		for in := range t.slvl {
			t.slvl[in] = one
		}
		s.lanes.made[shape] = t
	}
	s.lanes.shape, s.lanes.last = shape, t
	if own {
		t = &laneTables{arb: t.arb, slvl: make([]mad.SLtoVL, shape.inputs)}
		for in := range t.slvl {
			t.slvl[in] = s.laneTable(sw, ib.PortNum(in), ref.Port, shape.vls)
		}
	}
	return t
}

// planEndLanes plans the tables of an adapter's port.
func (s *sweep) planEndLanes(ref subnet.Ref) {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	want := s.tablesFor(ref)
	if s.mapsLanes(&p.Info) {
		if have := knownMapping(p); !sameTable(have, want.slvl) {
			s.lanes.slvl = append(s.lanes.slvl, slvlWrite{ref, 0, want.slvl[0]})
		}
	} else {
		want = &laneTables{arb: want.arb}
	}
	s.planArbitration(ref, want)
	s.noteLanes(ref, want)
}

// mapsLanes reports whether a port has a mapping to write. One that says it has none is asked all the same where
// routing depends on it.
func (s *sweep) mapsLanes(pi *mad.PortInfo) bool {
	return s.lanes.routed || pi.CapabilityMask&mad.CapSLMapping != 0
}

// sameTable reports whether two tables are alike. Most are one and the same.
func sameTable[T comparable](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

func knownMapping(p *subnet.Port) []mad.SLtoVL {
	if p.Tables == nil {
		return nil
	}
	return p.Tables.SLtoVL
}

// planSwitchLanes plans the tables of a switch's ports.
func (s *sweep) planSwitchLanes(i int32) {
	n := s.nodes[i]
	first := 1
	if n.Switch.EnhancedPortZero {
		first = 0
	}
	maps := s.mapsLanes(&n.Ports[0].Info)
	// Where a switch takes a mapping for many ports at once, one that all ports share is one write.
	together := maps && s.tables.SLtoVL == nil && n.Switch.OptimizedSLtoVLMappingProgramming != 0
	var same *mad.SLtoVL
	alike, stale := true, 0
	wants := s.lanes.wants[:0]
	for p := first; p < len(n.Ports); p++ {
		wants = append(wants, nil)
		if x := &n.Ports[p]; p == 0 || x.Up() {
			t := s.tablesFor(subnet.Ref{Node: i, Port: ib.PortNum(p)})
			wants[p-first] = t
			if same == nil {
				same = &t.slvl[0]
			}
			alike = alike && *same == t.slvl[0]
			if !sameTable(knownMapping(x), t.slvl) {
				stale++
			}
		}
	}
	s.lanes.wants = wants
	once := together && alike && stale > 1
	if once {
		s.lanes.slvl = append(s.lanes.slvl, slvlWrite{subnet.Ref{Node: i}, mad.SLtoVLAllInputs | mad.SLtoVLAllOutputs,
			*same})
		if first == 1 { // all ports are all ports
			s.noteLanes(subnet.Ref{Node: i}, &laneTables{slvl: slices.Repeat([]mad.SLtoVL{*same}, len(n.Ports))})
		}
	}
	for p := first; p < len(n.Ports); p++ {
		ref := subnet.Ref{Node: i, Port: ib.PortNum(p)}
		x := &n.Ports[p]
		if p != 0 && !x.Up() {
			continue
		}
		want := wants[p-first]
		have := knownMapping(x)
		switch {
		case !maps:
			want = &laneTables{arb: want.arb}
		case once || sameTable(have, want.slvl):
		case together:
			s.lanes.slvl = append(s.lanes.slvl, slvlWrite{ref, mad.SLtoVLAllInputs | mad.SLtoVLModifier(0, ref.Port),
				want.slvl[0]})
		default:
			for in := range n.Ports {
				if in > 0 && !n.Ports[in].Up() || len(have) == len(want.slvl) && have[in] == want.slvl[in] {
					continue
				}
				s.lanes.slvl = append(s.lanes.slvl, slvlWrite{ref, mad.SLtoVLModifier(ib.PortNum(in), ref.Port),
					want.slvl[in]})
			}
		}
		s.planArbitration(ref, want)
		s.noteLanes(ref, want)
	}
}

// planArbitration plans the blocks of arbitration that differ; of a table that is not known, all.
func (s *sweep) planArbitration(ref subnet.Ref, want *laneTables) {
	p := &s.nodes[ref.Node].Ports[ref.Port]
	for high, list := range want.arb {
		var have []mad.VLArbEntry
		if p.Tables != nil {
			have = p.Tables.VLArb[high]
		}
		if list == nil || sameTable(have, list) {
			continue
		}
		for from := 0; from < len(list); from += mad.VLArbPerBlock {
			var was, is mad.VLArb
			copy(is[:], list[from:])
			if len(have) == len(list) {
				copy(was[:], have[from:])
				if was == is {
					continue
				}
			}
			block := mad.VLArbLow0 + mad.VLArbBlock(2*high+from/mad.VLArbPerBlock)
			s.lanes.arb = append(s.lanes.arb, arbWrite{ref, block, is})
		}
	}
}

// noteLanes notes what a port's tables will be.
func (s *sweep) noteLanes(ref subnet.Ref, want *laneTables) {
	p := &s.nodes[ref.Node].Ports[ref.Port]
	var t subnet.PortTables
	if p.Tables != nil {
		t = *p.Tables
	}
	same := p.Tables != nil
	if want.slvl != nil && !sameTable(t.SLtoVL, want.slvl) {
		t.SLtoVL, same = want.slvl, false
	}
	for high, list := range want.arb {
		if list != nil && !sameTable(t.VLArb[high], list) {
			t.VLArb[high], same = list, false
		}
	}
	if !same {
		s.edit(ref.Node).Ports[ref.Port].Tables = s.m.share(&t)
	}
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
	if at -= len(s.lanes.arb); at < len(s.lanes.byLane) {
		*r = request{what: tell, set: true, node: s.lanes.byLane[at], attr: mad.AttrExtSwitchInfo}
		x := mad.ExtSwitchInfo{ByLane: s.tables.ByLane}
		x.Append(s.smp(r))
		return true
	}
	s.cursor.at--
	return false
}

// lanesReply drops what was noted of a port that did not take its tables, or of all ports where one write was for all.
func (s *sweep) lanesReply(r *request, v mad.View) {
	took := s.answered(r, v)
	if r.attr == mad.AttrExtSwitchInfo {
		if delete(s.m.byLane, s.nodes[r.node].Info.NodeGUID); took && s.tables.ByLane {
			s.m.byLane[s.nodes[r.node].Info.NodeGUID] = true
		}
	}
	if took {
		return
	}
	s.refuse(subnet.Ref{Node: r.node, Port: r.port}, "%s", refusal(r, v))
	n := s.edit(r.node)
	for p := range n.Ports {
		x := &n.Ports[p]
		all := r.attr == mad.AttrSLtoVL && r.mod&mad.SLtoVLAllOutputs != 0
		if x.Tables == nil || !all && ib.PortNum(p) != r.port {
			continue
		}
		t := *x.Tables
		t.SLtoVL, t.VLArb = nil, [2][]mad.VLArbEntry{}
		x.Tables = s.m.share(&t)
	}
}
