package sm

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
	"softib/subnet/sa"
)

// pathPolicy answers the administrator's questions about paths, for one published subnet. It does not change.
type pathPolicy struct {
	matcher *policy.QoSMatcher
	sub     *subnet.Subnet
	first   []int32    // by node: where its ports are in groups
	groups  [][]uint16 // of ports
}

// pathPolicy makes the policy for paths of the last subnet; nil if there is none.
func (m *Manager) pathPolicy() sa.QoS {
	if m.matcher == nil || !m.cfg.QoS.Enabled || m.sub == nil {
		return nil
	}
	x := &pathPolicy{matcher: m.matcher, sub: m.sub, first: make([]int32, len(m.sub.Nodes))}
	if len(m.cfg.QoS.Policy.Groups) == 0 {
		return x
	}
	ports := 0
	for i, n := range m.sub.Nodes {
		x.first[i] = int32(ports)
		ports += len(n.Ports)
	}
	x.groups = make([][]uint16, ports)
	names := map[ib.GUID][]string{}
	for i := range m.sub.Partitions {
		p := &m.sub.Partitions[i]
		for _, w := range p.Members {
			names[w.GUID] = append(names[w.GUID], p.Name)
		}
	}
	m.sub.EachEnd(func(r subnet.Ref, p *subnet.Port) {
		n := m.sub.Nodes[r.Node]
		port := policy.QoSPort{
			GUID: p.GUID, Type: n.Info.NodeType, IsSelf: r == m.sub.Self, Node: n.Desc, Port: r.Port,
			PKeys: keysAt(p), Partitions: names[p.GUID],
		}
		x.groups[x.first[r.Node]+int32(r.Port)] = m.matcher.Groups(&port)
	})
	return x
}

// keysAt are the keys of a port whose table is known.
func keysAt(p *subnet.Port) []ib.PKey {
	if p.Tables == nil {
		return nil
	}
	return p.Tables.PKeys
}

func (x *pathPolicy) end(r subnet.Ref) policy.QoSEnd {
	e := policy.QoSEnd{GUID: x.sub.Port(r).GUID}
	if x.groups != nil {
		e.Groups = x.groups[x.first[r.Node]+int32(r.Port)]
	}
	return e
}

// Path finds the level of a path and says what follows from it.
func (x *pathPolicy) Path(q sa.PathQuery) sa.Choice {
	req := policy.PathRequest{
		Source: x.end(q.Src), Destination: x.end(q.Dst), PKey: q.PKey, HasPKey: q.PKey != 0,
		ServiceID: q.ServiceID, HasServiceID: q.HasServiceID, QoSClass: q.QoSClass, HasQoSClass: q.HasQoSClass,
	}
	level, ok := x.matcher.Match(&req)
	if !ok {
		return sa.Choice{}
	}
	c := sa.Choice{HasSL: true, SL: level.SL, MTUMax: level.MTULimit, RateMax: mad.Rate(level.RateLimit)}
	if level.HasPacketLife {
		c.PacketLifeTime = level.PacketLife
	}
	switch {
	case len(level.PKeys) == 0:
	case q.PKey != 0:
		c.Deny = !level.PKeys.Contains(uint64(q.PKey.Base()))
	default:
		c.PKey, ok = x.shared(q.Src, q.Dst, level.PKeys)
		c.Deny = !ok
	}
	return c
}

// shared is the first partition of a set that two ports may talk in.
func (x *pathPolicy) shared(src, dst subnet.Ref, set policy.Ranges) (ib.PKey, bool) {
	theirs := keysAt(x.sub.Port(dst))
	for _, k := range keysAt(x.sub.Port(src)) {
		if !k.IsValid() || !set.Contains(uint64(k.Base())) {
			continue
		}
		for _, t := range theirs {
			if k.Matches(t) {
				return k, true
			}
		}
	}
	return 0, false
}
