package sm

import (
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
	"softib/subnet/sa"
)

// Enforcement is at which side switch ports in front of end ports check the partitions of packets.
type Enforcement uint8

// Sides that are checked: both is the default.
const (
	EnforceBoth Enforcement = iota
	EnforceIn
	EnforceOut
	EnforceOff
	NumEnforcement
)

var enforcementNames = [NumEnforcement]string{"both", "in", "out", "off"}

func (e Enforcement) String() string {
	if e < NumEnforcement {
		return enforcementNames[e]
	}
	return fmt.Sprintf("Enforcement(%d)", uint8(e))
}

// ParseEnforcement reads a side as opensm.conf's part_enforce names it.
func ParseEnforcement(s string) (Enforcement, bool) {
	i := slices.Index(enforcementNames[:], s)
	return Enforcement(max(i, 0)), i >= 0
}

// membership is who is in which partition: what follows from the operator's partitions for the ports that are there. It
// is kept from sweep to sweep, since neither changes often.
type membership struct {
	ports []policy.PortFacts // what it was worked out for, in the order of eachEnd
	keys  [][]ib.PKey        // of each of them, the one for index 0 first
	front [][]ib.PKey        // what the switch port in front of each lets pass
	parts []subnet.Partition
	// groups are there without anybody joining: those of IP over InfiniBand, and what the file names.
	groups []sa.GroupInfo
	// plain means that everybody is a full member of the default partition, and there is no other: nothing to enforce.
	plain bool
}

// SetPartitions replaces the partitions. They take force with the sweep that it asks for; ports that leave a partition
// lose its key, at their adapter and at the switch in front of it. Force tells when ticket has taken force, and who
// refused.
func (m *Manager) SetPartitions(now ib.Time, p policy.Partitions) (ticket uint64) {
	m.now = max(m.now, now)
	m.cfg.Partitions = p
	m.members = nil
	m.event(EventPolicy, "partitions: %d definitions are to take force", len(p.Defs))
	m.regroup("partitions changed")
	return m.ticket()
}

// Partitions are those that an operator wants; Subnet().Partitions those in force.
func (m *Manager) Partitions() policy.Partitions { return m.cfg.Partitions }

// resolvePartitions finds out who is a member of what, now that all ports are known.
func (s *sweep) resolvePartitions() {
	m := s.m
	ports := make([]policy.PortFacts, 0, len(s.nodes))
	s.eachEnd(func(r subnet.Ref) {
		n := s.nodes[r.Node]
		ports = append(ports, policy.PortFacts{GUID: n.Ports[r.Port].GUID, Type: n.Info.NodeType, IsSelf: r == s.self})
	})
	if m.members == nil || !slices.Equal(m.members.ports, ports) {
		m.members = resolve(m.cfg.Partitions, ports, policy.ResolveOptions{QoS: m.cfg.QoS.Enabled,
			AllowBoth: m.cfg.AllowBothKeys})
		if !m.members.plain {
			m.event(EventPolicy, "%s", m.members)
		}
	}
	s.ticket = m.tickets
	if m.keys.wanted != nil {
		s.ticket = min(s.ticket, m.keys.ticket-1) // it is for the next sweep to bring
	}
	s.keyed = m.members
	s.partitions = m.members.parts
	s.enforce = !m.members.plain && m.cfg.Enforce != EnforceOff
	s.keyTrouble = nil
}

func (x *membership) String() string {
	text := fmt.Sprintf("%d partitions:", len(x.parts))
	for i := range x.parts {
		if i == grumbles {
			return text + fmt.Sprintf(" and %d more", len(x.parts)-i)
		}
		if i > 0 {
			text += ","
		}
		p := &x.parts[i]
		text += fmt.Sprintf(" %s %v with %d ports", p.Name, p.Key.Base(), len(p.Members))
	}
	return text
}

// resolve holds the partitions against the ports.
func resolve(p policy.Partitions, ports []policy.PortFacts, opt policy.ResolveOptions) *membership {
	x := &membership{ports: ports, keys: make([][]ib.PKey, len(ports)), front: make([][]ib.PKey, len(ports))}
	list := p.Resolve(ports, opt)
	of := policy.Keys(list)
	for i := range ports {
		x.keys[i] = ordered(of[ports[i].GUID], ports[i].IsSelf)
		x.front[i] = passing(x.keys[i])
	}
	x.plain = len(list) == 1 && len(list[0].Members) == len(ports)
	x.parts = make([]subnet.Partition, len(list))
	for i := range list {
		from, to := &list[i], &x.parts[i]
		*to = subnet.Partition{
			Name: from.Name, Key: from.Key, IPoIB: from.IPoIB, SL: from.SL, HasSL: opt.QoS && from.SL != 0,
			PathMTU: from.Paths.MTU, PathRate: from.Paths.Rate,
			Members: make([]subnet.PartitionMember, len(from.Members)),
		}
		if from.Paths.HasSL {
			to.SL, to.HasSL = from.Paths.SL, true
		}
		for k, w := range from.Members {
			to.Members[k] = subnet.PartitionMember{GUID: w.GUID, Full: w.Membership != policy.Limited}
			x.plain = x.plain && w.Membership == policy.Full
		}
		for _, g := range from.Groups {
			if to.MTU == 0 {
				to.MTU, to.Rate = g.MTU, g.Rate
			}
			x.groups = append(x.groups, sa.GroupInfo{
				MGID: g.MGID, PKey: g.PKey, QKey: g.QKey, MTU: g.MTU, Rate: mad.Rate(g.Rate), SL: g.SL,
				TClass:    g.TClass,
				FlowLabel: g.FlowLabel, HopLimit: g.HopLimit, Scope: g.Scope,
			})
		}
	}
	return x
}

// ordered puts the default partition's key among the first two, so that no table is too small for it: all ports talk
// with the manager in it. The manager's own port is a full member whatever the file says, else limited members could
// not reach it.
func ordered(keys []ib.PKey, self bool) []ib.PKey {
	at := slices.Index(keys, ib.PKeyDefault)
	if at < 0 {
		at = slices.Index(keys, ib.PKeyBase)
		if self && at >= 0 {
			keys[at] = ib.PKeyDefault
		}
	}
	if at < 0 && self {
		keys = append(keys, ib.PKeyDefault)
		at = len(keys) - 1
	}
	if at > 1 {
		k := keys[at]
		copy(keys[2:at+1], keys[1:at])
		keys[1] = k
	}
	return keys
}

// passing are the keys for the switch port in front of a port: its partitions, each as a full member. A limited key
// there would refuse what a limited member itself sends, where a switch applies the rule for two limited members (IBA
// 10.9.3) on the way in too; that two of them do not talk is for their adapters to see to.
func passing(keys []ib.PKey) []ib.PKey {
	if !slices.ContainsFunc(keys, func(k ib.PKey) bool { return !k.IsFull() }) {
		return keys
	}
	out := make([]ib.PKey, 0, len(keys))
	for _, k := range keys {
		if k |= ib.PKeyFull; !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// precreatePartitions makes the groups that partitions have from the start, and those that routers want, and lets go of
// those of partitions that are no more, or that nobody wants.
func (m *Manager) precreatePartitions() {
	if m.members == nil {
		return
	}
	var made []ib.GID
	for _, g := range append(slices.Clip(m.members.groups), m.wantedGroups()...) {
		if _, err := m.admin.Precreate(g); err != nil {
			m.event(EventProblem, "%v", err)
			continue
		}
		made = append(made, g.MGID)
	}
	for _, g := range m.groupsMade {
		if !slices.Contains(made, g) {
			m.admin.Withdraw(g)
		}
	}
	m.groupsMade = made
}
