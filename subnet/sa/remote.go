package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// hopLimitMax is the hop limit of paths that leave the subnet: how many routers follow the first nobody here knows.
const hopLimitMax = 0xFF

// isRemote reports whether a GID is one of another subnet. Link-local ones never are (IBA 4.1.1).
func (a *Admin) isRemote(g ib.GID) bool {
	p := g.Prefix()
	return a.net != nil && p != a.net.Prefix && p != ib.DefaultGIDPrefix && !g.IsMulticast()
}

// routerEnd is the end of a path to a GID of another subnet as far as this one goes: a router that says that it reaches
// it (IBA 15.2.5.16, 19.2.4). Among those that are as near, the two GIDs choose, so that all have work and a pair keeps
// its way. Where a LID was asked for, it has to be such a router's.
func (a *Admin) routerEnd(dgid, sgid ib.GID, hasLID bool, lid ib.LID) (e end, status mad.Status, ok bool) {
	var near []subnet.Ref
	best := uint8(0)
	for _, r := range a.net.Routers {
		for _, h := range r.Hops {
			if h.Prefix != dgid.Prefix() || h.Weight == 0 || best != 0 && h.Weight > best {
				continue
			}
			if h.Weight < best {
				near = near[:0]
			}
			best = h.Weight
			near = append(near, r.Port)
		}
	}
	if len(near) == 0 {
		return e, mad.StatusSAInvalidGID, false
	}
	h := (uint64(dgid.GUID()) ^ uint64(sgid.GUID())<<1) * 0x9E3779B97F4A7C15
	first := int(h >> 32 % uint64(len(near)))
	for i := range near {
		e = a.endAt(near[(first+i)%len(near)])
		if !hasLID || lid >= e.base && int(lid-e.base) < e.count {
			e.given, e.remote, e.gid = true, true, dgid
			if hasLID {
				e.base, e.count = lid, 1
			}
			return e, mad.StatusOK, true
		}
	}
	return e, mad.StatusOK, false
}
