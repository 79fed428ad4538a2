package policy

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"softib/proto/ib"
)

// PortFacts is what partitions need to know about an end port: the port of a CA or router, or port 0 of
// a switch.
type PortFacts struct {
	GUID ib.GUID
	Type ib.NodeType
	// IsSelf marks the manager's own port.
	IsSelf bool
	// IsVirtual marks the port of a virtual CA.
	IsVirtual bool
}

// ResolveOptions are the options of opensm.conf that partitions depend on.
type ResolveOptions struct {
	// QoS is the option qos: without it every service level is 0.
	QoS bool
	// AllowBoth is allow_both_pkeys: without it "both" is full.
	AllowBoth bool
}

// Partition is a partition of a subnet.
type Partition struct {
	// Key has the membership bit set.
	Key  ib.PKey
	Name string
	// Index0 asks for the first place in the members' tables.
	Index0 bool
	SL     ib.SL
	// IPoIB says that the broadcast group is among Groups.
	IPoIB bool
	// Paths is what paths get, whatever the options say.
	Paths PathLimits
	// Members are in the order of GUIDs.
	Members []PartitionMember
	// Groups exist from the start and for good.
	Groups []Group
}

// PartitionMember is a port in a partition.
type PartitionMember struct {
	GUID       ib.GUID
	Membership Membership
	// Index0 asks for the first place in the port's table.
	Index0 bool
}

// Group is a multicast group to create, with what its MCMemberRecord says.
type Group struct {
	MGID      ib.GID
	PKey      ib.PKey
	QKey      ib.QKey
	Rate      uint8
	MTU       ib.MTU
	SL        ib.SL
	TClass    uint8
	FlowLabel uint32
	Scope     uint8
	HopLimit  uint8
}

// resolved is a partition in the making.
type resolved struct {
	Partition
	// state is by index of ports.
	state []Membership
	// first are the ports whose first place it wants; nil while there are none.
	first []bool
}

// Resolve holds the file against the ports of a subnet. The default partition comes first and is always there:
// everybody is a limited member and the manager a full one, before the file says more. Later entries for a port replace
// earlier ones. Partitions without members are left out. GUIDs of ports that are not there wait for them. A file that
// defines nothing is like no file: see DefaultPartitions.
func (p Partitions) Resolve(ports []PortFacts, opt ResolveOptions) []Partition {
	if len(p.Defs) == 0 {
		p = DefaultPartitions()
	}
	byGUID := make(map[ib.GUID]int, len(ports))
	for i := range ports {
		byGUID[ports[i].GUID] = i
	}
	var parts []*resolved
	byKey := make(map[ib.PKey]*resolved)
	part := func(key ib.PKey, name string) *resolved {
		r := byKey[key]
		if r == nil {
			r = &resolved{Partition: Partition{Key: key | ib.PKeyFull, Name: name},
				state: make([]Membership, len(ports))}
			if r.Name == "" {
				r.Name = key.String()
			}
			byKey[key] = r
			parts = append(parts, r)
		}
		return r
	}
	r := part(ib.PKeyBase, DefaultPartitionName)
	for i := range ports {
		r.state[i] = Limited
		if ports[i].IsSelf {
			r.state[i] = Full
		}
	}
	groups := make(map[ib.GID]bool)
	for i := range p.Defs {
		d := p.Defs[i]
		r := part(d.Key, d.Name)
		r.Index0 = r.Index0 || d.Index0
		r.SL = 0
		if opt.QoS {
			r.SL = d.Params.SL
		}
		if d.Paths != (PathLimits{}) {
			r.Paths = d.Paths
		}
		for _, m := range d.Members {
			r.join(ports, byGUID, m, opt)
		}
		if !opt.QoS {
			d.Params.SL = 0
		}
		if d.Paths.HasSL {
			d.Params.SL = d.Paths.SL
		}
		if d.IPoIB {
			r.IPoIB = true
			r.create(groups, broadcastMGID, d.Params)
		}
		for _, g := range d.Groups {
			if !opt.QoS {
				g.Params.SL = 0
			}
			r.create(groups, g.MGID, g.Params)
		}
	}
	for i := range p.Defs {
		if p.Defs[i].Rest {
			rest(byKey[p.Defs[i].Key], parts, ports)
		}
	}
	out := make([]Partition, 0, len(parts))
	for _, r := range parts {
		for i, m := range r.state {
			if m != NotMember {
				r.Members = append(r.Members, PartitionMember{ports[i].GUID, m, r.first != nil && r.first[i]})
			}
		}
		if len(r.Members) == 0 {
			continue
		}
		slices.SortFunc(r.Members, func(a, b PartitionMember) int { return cmp.Compare(a.GUID, b.GUID) })
		out = append(out, r.Partition)
	}
	return out
}

// rest takes the ports of adapters into a partition that are in none of the others, the default one apart.
func rest(r *resolved, parts []*resolved, ports []PortFacts) {
	for i := range ports {
		alone := ports[i].Type == ib.NodeCA
		for _, o := range parts {
			alone = alone && (o == r || o.Key.Base() == ib.PKeyBase || o.state[i] == NotMember)
		}
		if alone {
			r.put(i, Member{Membership: Full, Index0: true})
		}
	}
}

func (r *resolved) join(ports []PortFacts, byGUID map[ib.GUID]int, m Member, opt ResolveOptions) {
	if m.Membership == Both && !opt.AllowBoth {
		m.Membership = Full
	}
	if m.Who == ByGUID {
		if i, ok := byGUID[m.GUID]; ok {
			r.put(i, m)
		}
		return
	}
	for i := range ports {
		if m.Who.includes(&ports[i]) {
			r.put(i, m)
		}
	}
}

// put makes the port with an index what an entry says.
func (r *resolved) put(i int, m Member) {
	r.state[i] = m.Membership
	if m.Index0 && r.first == nil {
		r.first = make([]bool, len(r.state))
	}
	if r.first != nil {
		r.first[i] = m.Index0
	}
}

func (w Who) includes(p *PortFacts) bool {
	switch w {
	case All:
		return true
	case AllCAs:
		return p.Type == ib.NodeCA
	case AllSwitches:
		return p.Type == ib.NodeSwitch
	case AllRouters:
		return p.Type == ib.NodeRouter
	case AllVCAs:
		return p.IsVirtual
	case Self:
		return p.IsSelf
	}
	return false
}

// create adds the group in each of its scopes, unless there is one with that MGID already.
func (r *resolved) create(have map[ib.GID]bool, mgid ib.GID, p GroupParams) {
	if p.Scopes == 0 {
		p.Scopes = 1 << DefaultScope
	}
	if isIPGroup(mgid) {
		binary.BigEndian.PutUint16(mgid[mgidPKey:], uint16(r.Key))
		if p.QKey == 0 {
			p.QKey = IPoIBQKey
		}
	}
	for more := p.Scopes; more != 0; more &= more - 1 {
		scope := uint8(bits.TrailingZeros16(more))
		mgid[1] = mgid[1]&0xF0 | scope
		if have[mgid] {
			continue
		}
		have[mgid] = true
		g := Group{MGID: mgid, PKey: r.Key, QKey: p.QKey, Rate: p.Rate, MTU: p.MTU, SL: p.SL, TClass: p.TClass,
			FlowLabel: p.FlowLabel, Scope: scope}
		if scope != DefaultScope {
			g.HopLimit = 0xFF // leaves the subnet through routers
		}
		r.Groups = append(r.Groups, g)
	}
}

// Keys are the P_Keys that each port has, in the order in which they go into an empty table: the first partition that
// asks for index 0 there, for all its members or for this one, else the default partition, then the others as defined.
func Keys(parts []Partition) map[ib.GUID][]ib.PKey {
	order := make([]int, 0, len(parts))
	for i := range parts {
		if parts[i].Index0 {
			order = append(order, i)
		}
	}
	for i := range parts {
		if !parts[i].Index0 {
			order = append(order, i)
		}
	}
	keys := make(map[ib.GUID][]ib.PKey)
	first := make(map[ib.GUID]bool) // whose first place is taken by somebody who asked for it
	for _, i := range order {
		p := &parts[i]
		for _, m := range p.Members {
			n := len(keys[m.GUID])
			if m.Membership == Full || m.Membership == Both {
				keys[m.GUID] = append(keys[m.GUID], p.Key|ib.PKeyFull)
			}
			if m.Membership == Limited || m.Membership == Both {
				keys[m.GUID] = append(keys[m.GUID], p.Key.Base())
			}
			if list := keys[m.GUID]; m.Index0 && !p.Index0 && n > 0 && !first[m.GUID] {
				k := list[n]
				copy(list[1:], list[:n])
				list[0] = k
			}
			if m.Index0 || p.Index0 {
				first[m.GUID] = true
			}
		}
	}
	return keys
}
