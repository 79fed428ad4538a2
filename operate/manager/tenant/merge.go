package tenant

import (
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/subnet/policy"
)

// RestName is the partition of hosts that are in no tenant, while there are any.
const RestName = "no-tenant"

// Merge adds the tenants to an operator's own partitions, for a subnet manager. Members of tenants become limited
// members of the default partition, the manager's own port excepted. Where the operator has no partitions of his own,
// all hosts do, and those without a tenant get a partition among themselves: as full members of the default one they
// would reach everybody. It fails where the operator's have the key of a tenant.
func (s State) Merge(p policy.Partitions) (policy.Partitions, error) { return s.merge(p, false) }

// MergeRouted is Merge for a fabric of several subnets: the routers between them are members of all tenants'
// partitions, and of that of hosts without one.
func (s State) MergeRouted(p policy.Partitions) (policy.Partitions, error) { return s.merge(p, true) }

func (s State) merge(p policy.Partitions, routed bool) (policy.Partitions, error) {
	for i := range s.Tenants {
		if name, ok := Reserved(p, s.Tenants[i].Key); ok {
			return policy.Partitions{}, fmt.Errorf("tenant: pkey %v of tenant %s is partition %s of the operator's "+
				"file: %w", s.Tenants[i].Key, s.Tenants[i].Name, name, ErrReserved)
		}
	}
	if len(s.Tenants) == 0 {
		return p, nil
	}
	out := policy.Partitions{Defs: slices.Clone(p.Defs)}
	if len(p.Defs) == 0 {
		out = s.apart()
	}
	limited := policy.PartitionDef{Name: policy.DefaultPartitionName, PKey: ib.PKeyBase, Key: ib.PKeyBase,
		Params: defaultParams}
	for i := range out.Defs {
		if d := &out.Defs[i]; d.Key == ib.PKeyBase {
			limited.Name, limited.Params = d.Name, d.Params // the last definition's count
		}
	}
	for _, g := range s.ports() {
		limited.Members = append(limited.Members, policy.Member{GUID: g, Membership: policy.Limited})
	}
	limited.Members = append(limited.Members, policy.Member{Who: policy.Self, Membership: policy.Full})
	out.Defs = append(out.Defs, limited)
	order := slices.Clone(s.Tenants)
	slices.SortFunc(order, func(a, b Tenant) int { return int(a.Key) - int(b.Key) })
	for i := range order {
		out.Defs = append(out.Defs, order[i].def())
	}
	for i := range out.Defs {
		if d := &out.Defs[i]; routed && (d.Rest || i >= len(out.Defs)-len(order)) {
			d.Members = append(d.Members, policy.Member{Who: policy.AllRouters, Membership: policy.Full})
		}
	}
	return out, nil
}

// apart are the partitions under the tenants' where the operator has none of his own.
func (s *State) apart() policy.Partitions {
	all := policy.DefaultPartitions()
	d := &all.Defs[0]
	d.Members = []policy.Member{{Who: policy.All, Membership: policy.Limited},
		{Who: policy.Self, Membership: policy.Full}}
	key := s.restKey()
	all.Defs = append(all.Defs, policy.PartitionDef{Name: RestName, PKey: key, Key: key, IPoIB: true,
		Params: defaultParams, Rest: true})
	return all
}

// restKey is the highest key that no tenant has.
func (s *State) restKey() ib.PKey {
	key := ib.PKeyBase - 1
	for {
		if _, taken := s.ByKey(key); !taken {
			return key
		}
		key--
	}
}

// defaultParams are those of a partition that says nothing.
var defaultParams = policy.DefaultPartitions().Defs[0].Params

// def is a tenant as a definition of partitions.conf.
func (t *Tenant) def() policy.PartitionDef {
	d := policy.PartitionDef{Name: t.Name, PKey: t.Key, Key: t.Key, IPoIB: t.IPoIB, Params: defaultParams}
	d.Paths = policy.PathLimits{SL: t.SL, HasSL: t.HasSL, Rate: uint8(t.Rate), MTU: t.MTU}
	d.Params.SL = t.SL
	if t.Rate != 0 {
		d.Params.Rate = uint8(t.Rate)
	}
	if t.MTU != 0 {
		d.Params.MTU = t.MTU
	}
	for _, m := range t.Members {
		w := policy.Member{GUID: m.GUID, Membership: policy.Limited, Index0: m.Index0}
		if m.Full {
			w.Membership = policy.Full
		}
		d.Members = append(d.Members, w)
	}
	return d
}

// ports are all members of all tenants, in order.
func (s *State) ports() []ib.GUID {
	var list []ib.GUID
	for i := range s.Tenants {
		for _, m := range s.Tenants[i].Members {
			list = append(list, m.GUID)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Reserved names the partition of an operator's that has a key.
func Reserved(p policy.Partitions, key ib.PKey) (name string, ok bool) {
	for i := range p.Defs {
		if d := &p.Defs[i]; d.Key == key.Base() && d.Key != ib.PKeyBase {
			if d.Name == "" {
				return d.Key.String(), true
			}
			return d.Name, true
		}
	}
	return "", false
}
