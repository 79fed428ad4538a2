package ibswitch

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Adaptive routing: for a LID a table may name a group of ports instead of one, and the switch chooses among them. It
// takes the port where the packet would wait for the fewest others, and the one of the linear forwarding table where
// several are alike. A port whose link is not up is no choice, so that a lost link is avoided by the next packet,
// before any manager hears of it.
//
// A group may have a second set of ports, of detours. They are for packets that come on certain lanes, which says how
// far those have come, and are taken only where there is much less to wait for: less than half, and a bias besides
// (UGAL-L in Kim et al., ISCA 2008), since a detour takes twice as many links. Where lanes go by the lane that a
// packet came on, they only rise, and a port to a lower one is no choice.

// NumGroups is how many groups a switch has.
const NumGroups = 1024

// flowSlots is how many queue pairs a switch tells apart; those that share a slot share a choice.
const flowSlots = 4096

// adaptive is what a switch has beyond forwarding tables that name one port.
type adaptive struct {
	Adaptive
	groups []ib.PortMask
	of     []uint16 // by LID: its group's number plus 1, and bounded; 0 has none
	flows  []flowChoice
	// Of notifications: what neighbours have told, and what is to be told to them.
	avoid   map[ib.LID]avoidance
	notices ib.Queue[Notice]
}

// bounded marks, in adaptive.of, LIDs whose flows stay with their port for a while.
const bounded = 1 << 15

// flowChoice is what was chosen for the last packet of a flow.
type flowChoice struct {
	at  ib.Time
	out ib.PortNum
}

// Adaptive says how the switch chooses.
type Adaptive struct {
	On bool
	// Levels whose packets may choose: bit n stands for level n.
	Levels uint16
	// Fixed are the transports whose packets may not: datagrams and unreliable connections, unless a manager says
	// otherwise, since nobody puts their packets in order again.
	Fixed Transports
	// Ageing is how long a bounded flow that is silent stays with its port; ib.Never: as long as a message lasts.
	Ageing ib.Time
	// Hash: neither queues nor time decide, but a hash of the packet's flow, and of Salt, which is the switch's own.
	Hash bool
	Salt uint64
	// Detours, where it is not 0, makes groups of pairs of sets: group n is sets 2n and 2n+1, which has its detours.
	// Packets that come on these lanes may take them: bit n stands for lane n.
	Detours uint16
	// Bias is how much more a packet has to wait for where ways are shortest before it takes a detour, as
	// link.Port.Backlog counts: two for a packet. Below 0 it takes one where nothing waits.
	Bias int
	// Notify: neighbours tell each other where there is no way to a LID; see Notice.
	Notify bool
}

// Transports is a set of transports.
type Transports uint8

// Members of Transports.
const (
	Datagram    Transports = 1 << iota // UD
	Reliable                           // RC and XRC
	Unconfirmed                        // UC
)

// transport is whose packet it is.
func transport(o wire.Opcode) Transports {
	switch o.Service() {
	case wire.RC, wire.XRC:
		return Reliable
	case wire.UC:
		return Unconfirmed
	}
	return Datagram
}

// unset is what a switch has that no manager has written to.
var unset = Adaptive{Levels: 0xFFFF, Fixed: Datagram | Unconfirmed, Bias: DetourBias}

// Adaptive reads it.
func (s *Switch) Adaptive() Adaptive {
	if s.adaptive == nil {
		return unset
	}
	return s.adaptive.Adaptive
}

// SetAdaptive writes it.
func (s *Switch) SetAdaptive(v Adaptive) {
	a := s.adaptiveMade()
	a.Adaptive, a.avoid = v, nil
	s.activate()
}

// Group reads the ports of a group.
func (s *Switch) Group(g int) ib.PortMask {
	if s.adaptive == nil || g >= len(s.adaptive.groups) {
		return ib.PortMask{}
	}
	return s.adaptive.groups[g]
}

// SetGroup writes them.
func (s *Switch) SetGroup(g int, m ib.PortMask) error {
	if g < 0 || g >= NumGroups {
		return &TableError{"AdaptiveRoutingGroupTable", "group", g, NumGroups - 1}
	}
	a := s.adaptiveMade()
	for len(a.groups) <= g {
		a.groups = append(a.groups, ib.PortMask{})
	}
	m.Clear(0)
	m.Cut(len(s.ports))
	a.groups[g] = m
	return nil
}

// Membership is what a LID's packets may choose from.
type Membership struct {
	// Group is its number; -1 where the forwarding table alone decides.
	Group int
	// Bounded flows stay with their port while they send, so that their packets stay in order.
	Bounded bool
}

// GroupOf reads it.
func (s *Switch) GroupOf(lid ib.LID) Membership {
	if a := s.adaptive; a != nil && int(lid) < len(a.of) && a.of[lid] != 0 {
		return Membership{int(a.of[lid]&^bounded) - 1, a.of[lid]&bounded != 0}
	}
	return Membership{Group: -1}
}

// SetGroupOf writes it.
func (s *Switch) SetGroupOf(lid ib.LID, m Membership) error {
	if lid > ib.LIDUnicastMax {
		return &TableError{"AdaptiveRoutingLinearForwardingTable", "LID", int(lid), int(ib.LIDUnicastMax)}
	}
	if m.Group < -1 || m.Group >= NumGroups {
		return &TableError{"AdaptiveRoutingLinearForwardingTable", "group", m.Group, NumGroups - 1}
	}
	a := s.adaptiveMade()
	for len(a.of) <= int(lid) {
		a.of = append(a.of, make([]uint16, LFTBlock)...)
	}
	a.of[lid] = uint16(m.Group + 1)
	if m.Group >= 0 && m.Bounded {
		a.of[lid] |= bounded
		if a.flows == nil {
			a.flows = make([]flowChoice, flowSlots)
		}
	}
	s.activateLID(lid)
	return nil
}

func (s *Switch) adaptiveMade() *adaptive {
	if s.adaptive == nil {
		s.adaptive = &adaptive{Adaptive: unset}
	}
	return s.adaptive
}

// activate makes the table that packets are looked up in. Where no LID may choose it is the linear forwarding table
// itself. Otherwise it is a copy in which DropPort stands for LIDs that may, so that packets of all others pay nothing.
func (s *Switch) activate() {
	s.active = s.lft[:min(len(s.lft), int(s.info.LinearFDBTop)+1)]
	if a := s.adaptive; a != nil && a.On {
		s.active = append(make([]ib.PortNum, 0, cap(s.lft)), s.active...)
		for lid := range min(len(s.active), len(a.of)) {
			s.activateLID(ib.LID(lid))
		}
	}
}

// activateLID takes over what one of the tables says of a LID.
func (s *Switch) activateLID(lid ib.LID) {
	a := s.adaptive
	if a == nil || !a.On || int(lid) >= len(s.active) {
		return
	}
	delete(a.avoid, lid)
	s.active[lid] = s.lft[lid]
	if int(lid) < len(a.of) && a.of[lid] != 0 {
		s.active[lid] = DropPort
	}
}

// choose is the way out for a packet whose LID has no port in the active table. It changes nothing.
func (s *Switch) choose(in ib.PortNum, f *link.Frame) ib.PortNum {
	a := s.adaptive
	lid := f.LRH.DLID
	if a == nil || !a.On {
		return DropPort
	}
	if int(lid) >= len(a.of) || a.of[lid] == 0 {
		return a.only(s.lft[lid], f)
	}
	home, mayChoose := s.lft[lid], f.LRH.VL != ib.VLMgmt && a.Levels>>(f.LRH.SL&15)&1 != 0 &&
		a.Fixed&transport(f.Packet.BTH.Opcode) == 0
	g := int(a.of[lid]&^bounded) - 1
	if a.Detours != 0 {
		g *= 2
	}
	if home == 0 || g >= len(a.groups) {
		return home
	}
	group, detours, last := a.groups[g], ib.PortMask{}, home
	if a.Detours>>(f.LRH.VL&15)&1 != 0 && g+1 < len(a.groups) {
		detours = a.groups[g+1]
	}
	if s.falls(in, home, f) {
		last = DropPort
	}
	if len(a.avoid) > 0 {
		avoid := a.avoids(f)
		detours.Remove(&avoid)
		if group.Remove(&avoid); avoid.Has(home) {
			last = DropPort // it would be discarded there
		}
	}
	if !mayChoose && !a.Hash && last == home && s.leads(in, home) {
		return home
	}
	if a.Hash || !mayChoose {
		// Nobody puts these packets in order again: where their port is lost they all go by one other.
		if out := s.byHash(in, DropPort, group, f); out != DropPort {
			return out
		}
		return s.byHash(in, last, detours, f)
	}
	if c := a.flow(f); c != nil && a.stays(c, f) && (group.Has(c.out) || detours.Has(c.out)) &&
		s.leads(in, c.out) && !s.falls(in, c.out, f) {
		return c.out
	}
	best, least := s.emptiest(in, home, group, f)
	if best == DropPort {
		best = last // if none leads on, home counts the packet
	}
	if least > a.Bias && !detours.Empty() {
		if by, wait := s.emptiest(in, home, detours, f); least-a.Bias > 2*wait {
			best = by
		}
	}
	return best
}

// DetourBias is a switch's bias that nobody has set: four packets.
const DetourBias = 8

// noWay is more than any packet waits for.
const noWay = 1 << 30

// emptiest is the port of a set where a packet waits for the least, and how much that is; DropPort if none leads on.
// The ports after home come before those in front of it, so that ties of different LIDs end differently.
func (s *Switch) emptiest(in, home ib.PortNum, set ib.PortMask, f *link.Frame) (best ib.PortNum, least int) {
	best, least = DropPort, noWay
	if set.Has(home) && s.leads(in, home) && !s.falls(in, home, f) {
		best, least = home, s.backlog(in, home, f)
	}
	for _, after := range [...]bool{true, false} {
		rest := set
		for p, ok := rest.Pop(); ok && least > 0; p, ok = rest.Pop() {
			if p == home || (p > home) != after || !s.leads(in, p) || s.falls(in, p, f) {
				continue
			}
			if n := s.backlog(in, p, f); n < least {
				best, least = p, n
			}
		}
	}
	return best, least
}

// leads reports whether a packet from port in could leave by port out now.
func (s *Switch) leads(in, out ib.PortNum) bool {
	return out != in && int(out) < len(s.ports) && s.ports[out].State() == ib.PortActive
}

// falls reports whether a packet would come to a lower lane, where those go by the lane that it came on.
func (s *Switch) falls(in, out ib.PortNum, f *link.Frame) bool {
	return s.byLane && int(out) < len(s.ports) && f.LRH.VL != ib.VLMgmt && s.lane(in, out, &f.LRH) < f.LRH.VL
}

// backlog is how much a packet would wait for at port out.
func (s *Switch) backlog(in, out ib.PortNum, f *link.Frame) int {
	vl := f.LRH.VL
	if vl != ib.VLMgmt {
		vl = s.lane(in, out, &f.LRH)
	}
	return s.ports[out].Backlog(f.Arrived, vl)
}

// flow is where the choices of a packet's flow are kept; nil if each packet chooses.
func (a *adaptive) flow(f *link.Frame) *flowChoice {
	if a.of[f.LRH.DLID]&bounded == 0 {
		return nil
	}
	h := (uint64(f.LRH.SLID)<<48 | uint64(f.LRH.DLID)<<32 | uint64(f.Packet.BTH.DestQP)) * 0x9E3779B97F4A7C15
	return &a.flows[h>>32%flowSlots]
}

// stays says whether the packet goes as the last one of its flow.
func (a *adaptive) stays(c *flowChoice, f *link.Frame) bool {
	if a.Ageing == ib.Never {
		return !f.Packet.BTH.Opcode.Info().Is(wire.FlagStart)
	}
	return f.Arrived-c.at <= a.Ageing
}

// chosen remembers which way a packet went.
func (a *adaptive) chosen(f *link.Frame, out ib.PortNum) {
	if c := a.flow(f); c != nil {
		*c = flowChoice{at: f.Arrived, out: out}
	}
}
