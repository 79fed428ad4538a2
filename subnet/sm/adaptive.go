package sm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/route"
)

// Switches that choose among ports (mad.ARInfo) do so by groups that fit one set of forwarding tables. So they are told
// to stop before any of those is changed, and to begin when all are written, and all groups with them. In between, and
// where a switch does not take its groups, packets go by the forwarding tables, whose changes are safe in any mixture.

// choosing is what a manager knows of a switch that may choose.
type choosing struct {
	on, unable bool
	// asked counts how often it was asked in vain whether it chooses, while that is not known.
	asked uint8
	// What it holds, if that is known.
	known  bool
	by     route.Choice
	groups []ib.PortMask
	of     []uint16 // by LID: the group's number plus 1; 0 is none
}

// arStep is a phase's work on one switch.
type arStep struct {
	node int32
	held *choosing
}

// beginStop lists the switches that have to stop choosing, and those of which it is not known whether they do: they
// worked before this manager did.
func (s *sweep) beginStop() {
	s.cursor = cursor{}
	s.arAsk, s.arSet = nil, nil
	changes := len(s.plan.Rounds) > 0 || s.tables != s.m.tables || s.m.cfg.Adaptive == route.NoChoice
	for _, i := range s.switches {
		changes = changes || s.cold[i]
	}
	for _, i := range s.switches {
		guid := s.nodes[i].Info.NodeGUID
		switch held := s.m.choosing[guid]; {
		case s.cold[i]:
			s.m.choosing[guid] = new(choosing) // its first block of a forwarding table stops it
		case held == nil || held.asked > 0:
			s.arAsk = append(s.arAsk, i)
		case held.on && changes && !plantChoosing:
			s.arSet = append(s.arSet, arStep{i, held})
		}
	}
}

// nextStop asks the next switch, or tells it.
func (s *sweep) nextStop(r *request) bool {
	c := &s.cursor
	if c.node < len(s.arAsk) {
		*r = request{what: askTable, node: s.arAsk[c.node], attr: mad.AttrARInfo}
		s.smp(r)
		c.node++
		return true
	}
	if c.at < len(s.arSet) {
		s.tellAR(r, s.arSet[c.at].node, false)
		c.at++
		return true
	}
	return false
}

// arOrdered are the transports whose packets nobody puts in order again: UD and UC.
const arOrdered = 1<<0 | 1<<2

// tellAR tells a switch to choose, or not to.
func (s *sweep) tellAR(r *request, node int32, on bool) {
	*r = request{what: tell, set: true, node: node, attr: mad.AttrARInfo}
	i := mad.ARInfo{Enabled: on, NoTransports: arOrdered, AgeingTime: mad.ARNeverAges}
	if s.groups != nil && s.groups.Detours != 0 {
		i.SubGroupsActive, i.DetourLanes = 1, s.groups.Detours
	}
	if s.m.cfg.Adaptive == route.ByFlowlet {
		i.AgeingTime = uint32(route.FlowletGap / ib.Microsecond)
	}
	i.Append(s.smp(r))
}

// stopReply takes an answer. A switch that does not stop keeps the sweep from changing tables.
func (s *sweep) stopReply(r *request, v mad.View) {
	guid := s.nodes[r.node].Info.NodeGUID
	if r.what == askTable {
		var i mad.ARInfo
		switch {
		case v == nil:
			s.noWord(guid, r)
		case v.Status() != mad.StatusOK:
			s.m.choosing[guid] = &choosing{unable: true}
		default:
			if _, err := i.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err == nil {
				held := &choosing{on: i.Enabled, unable: i.GroupCap == 0}
				s.m.choosing[guid] = held
				if held.on {
					s.arSet = append(s.arSet, arStep{r.node, held})
				}
			}
		}
		return
	}
	if s.answered(r, v) {
		s.m.choosing[guid].on = false
	} else if v == nil {
		s.setback("a switch has not stopped choosing ports")
	}
}

// noWord notes that a switch has not said whether it chooses. One that never does is left alone: it may be mute about
// what it does not know.
func (s *sweep) noWord(guid ib.GUID, r *request) {
	s.answered(r, nil)
	held := s.m.choosing[guid]
	if held == nil {
		held = new(choosing)
		s.m.choosing[guid] = held
	}
	if held.asked++; held.asked >= arPatience {
		held.asked, held.unable = 0, true
	}
}

// arPatience is how many sweeps ask a switch whether it chooses.
const arPatience = 3

// moreStops reports whether an answer has brought another switch that has to stop.
func (s *sweep) moreStops() bool { return s.cursor.at < len(s.arSet) }

// beginChoosing lists the switches that are to choose. Where tables are not what they should be nobody does.
func (s *sweep) beginChoosing() {
	s.cursor = cursor{}
	s.arSet, s.arOn = nil, false
	if s.groups == nil || len(s.incomplete) > 0 || s.stopped || s.round < len(s.plan.Rounds) {
		return
	}
	for _, i := range s.switches {
		guid := s.nodes[i].Info.NodeGUID
		if held := s.m.choosing[guid]; held != nil && !held.on && !held.unable && held.asked == 0 {
			s.arSet = append(s.arSet, arStep{i, held})
		}
	}
}

// nextChoosing writes the next block of groups or LIDs that a switch does not have, and at the end tells all to begin.
func (s *sweep) nextChoosing(r *request) bool {
	c := &s.cursor
	for c.node < len(s.arSet) {
		w := &s.arSet[c.node]
		switch {
		case w.held == nil: // it has not taken something
		case s.arOn:
			c.node++
			s.tellAR(r, w.node, true)
			return true
		case s.nextGroups(r, w) || s.nextMembers(r, w):
			return true
		}
		c.node, c.block, c.at = c.node+1, 0, 0
	}
	return false
}

// nextGroups writes the next two sets that a switch has otherwise.
func (s *sweep) nextGroups(r *request, w *arStep) bool {
	sets := s.groups.Sets[s.nodes[w.node].RouteIndex]
	for ; s.cursor.block*mad.ARGroupsPerBlock < len(sets); s.cursor.block++ {
		from := s.cursor.block * mad.ARGroupsPerBlock
		var want, has mad.ARGroupTable
		copy(want[:], sets[from:])
		copy(has[:], w.held.groups[min(from, len(w.held.groups)):])
		if w.held.known && want == has {
			continue
		}
		*r = request{what: tell, set: true, node: w.node, attr: mad.AttrARGroupTable, mod: uint32(s.cursor.block),
			extra: int32(s.cursor.node)}
		want.Append(s.smp(r))
		s.cursor.block++
		return true
	}
	return false
}

// nextMembers writes the groups of the next 16 LIDs that have others.
func (s *sweep) nextMembers(r *request, w *arStep) bool {
	of := s.arOf(w.node)
	lft := s.tables.LFT[s.nodes[w.node].RouteIndex]
	for ; s.cursor.at*mad.ARLFTPerBlock < len(of); s.cursor.at++ {
		from := s.cursor.at * mad.ARLFTPerBlock
		end := min(from+mad.ARLFTPerBlock, len(of))
		if w.held.known && w.held.by == s.m.cfg.Adaptive && len(w.held.of) >= end &&
			slices.Equal(w.held.of[from:end], of[from:end]) {
			continue
		}
		var t mad.ARLFT
		for k := range t {
			lid := from + k
			e := mad.AREntry{State: mad.ARStatic, Port: mad.LFTNone, Group: uint16(mad.LFTNone)}
			if lid < len(lft) {
				e.Port, e.Group = lft[lid], uint16(lft[lid])
			}
			if lid < len(of) && of[lid] != 0 {
				e.State, e.Group = mad.ARBounded, of[lid]-1
				if s.m.cfg.Adaptive == route.ByPacket {
					e.State = mad.ARFree
				}
			}
			t[k] = e
		}
		*r = request{what: tell, set: true, node: w.node, attr: mad.AttrARLFT, mod: uint32(s.cursor.at),
			extra: int32(s.cursor.node)}
		t.Append(s.smp(r))
		s.cursor.at++
		return true
	}
	return false
}

// arOf is the groups of a switch by LID.
func (s *sweep) arOf(node int32) []uint16 {
	if s.arMembers == nil {
		s.arMembers = map[int32][]uint16{}
	}
	of, ok := s.arMembers[node]
	if !ok {
		of = make([]uint16, int(s.net.Top)+1)
		for d, g := range s.groups.Of[s.nodes[node].RouteIndex] {
			of[s.net.Dests[d].LID] = g
		}
		s.arMembers[node] = of
	}
	return of
}

// choosingReply takes an answer. A switch that has not taken something does not choose.
func (s *sweep) choosingReply(r *request, v mad.View) {
	guid := s.nodes[r.node].Info.NodeGUID
	if s.answered(r, v) {
		if r.attr == mad.AttrARInfo {
			s.m.choosing[guid].on = true
		}
		return
	}
	if v != nil && v.Status() == mad.StatusUnsupMethodAttr {
		s.m.choosing[guid] = &choosing{unable: true}
	} else {
		delete(s.m.choosing, guid) // it is not known what it holds
	}
	if r.attr != mad.AttrARInfo {
		s.arSet[r.extra].held = nil
	}
}

// beginAll lets the switches begin that have taken everything.
func (s *sweep) beginAll() bool {
	if s.arOn || len(s.arSet) == 0 {
		s.arMembers = nil
		return false
	}
	s.arOn = true
	s.cursor = cursor{}
	for k := range s.arSet {
		if w := &s.arSet[k]; w.held != nil {
			w.held.known, w.held.by, w.held.groups = true, s.m.cfg.Adaptive, s.groups.Sets[s.nodes[w.node].RouteIndex]
			w.held.of = s.arOf(w.node)
		}
	}
	return true
}
