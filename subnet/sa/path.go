package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

var (
	prServiceID  = comp(mad.PathRecordTable, "ServiceID")
	prDGID       = comp(mad.PathRecordTable, "DGID")
	prSGID       = comp(mad.PathRecordTable, "SGID")
	prDLID       = comp(mad.PathRecordTable, "DLID")
	prSLID       = comp(mad.PathRecordTable, "SLID")
	prRaw        = comp(mad.PathRecordTable, "RawTraffic")
	prFlow       = comp(mad.PathRecordTable, "FlowLabel")
	prTClass     = comp(mad.PathRecordTable, "TClass")
	prReversible = comp(mad.PathRecordTable, "Reversible")
	prNumbPath   = comp(mad.PathRecordTable, "NumbPath")
	prPKey       = comp(mad.PathRecordTable, "P_Key")
	prQoSClass   = comp(mad.PathRecordTable, "QoSClass")
	prSL         = comp(mad.PathRecordTable, "SL")
	prMTU        = comp(mad.PathRecordTable, "MTU") | comp(mad.PathRecordTable, "MTUSelector")
	prRate       = comp(mad.PathRecordTable, "Rate") | comp(mad.PathRecordTable, "RateSelector")
	prLife       = comp(mad.PathRecordTable, "PacketLifeTime") | comp(mad.PathRecordTable, "PacketLifeTimeSelector")
)

// pathsMax is the most paths between two ports: NumbPath has 7 bits.
const pathsMax = 127

// end is one end of the paths that a query asks for: a port, or any.
type end struct {
	given bool
	// remote: gid is in another subnet, and the port is the router's that packets leave this one by.
	remote bool
	ref    subnet.Ref
	gid    ib.GID
	// base and count are the LIDs to consider: all of the port's, or the one that was asked for.
	base  ib.LID
	count int
}

// endOf finds an end by GID or LID, whatever of them is given. ok is false if there can be no record.
func (a *Admin) endOf(hasGID bool, g ib.GID, hasLID bool, l ib.LID) (e end, status mad.Status, ok bool) {
	if !hasGID && !hasLID {
		return end{}, mad.StatusOK, true
	}
	if hasGID {
		r, found := a.port(g)
		if !found {
			return e, mad.StatusSAInvalidGID, false
		}
		e = a.endAt(r)
		e.gid = g
	}
	if hasLID {
		r, found := a.net.ByLID(l)
		if !found || hasGID && r != e.ref {
			return e, mad.StatusOK, false
		}
		if !hasGID {
			e = a.endAt(r)
		}
		e.base, e.count = l, 1
	}
	e.given = true
	return e, mad.StatusOK, true
}

// endAt is a port with all of its LIDs.
func (a *Admin) endAt(r subnet.Ref) end {
	p := a.net.Port(r)
	return end{ref: r, gid: ib.MakeGID(a.net.Prefix, p.GUID), base: p.Info.LID, count: 1 << p.Info.LMC}
}

func (a *Admin) listPaths(q *query) mad.Status {
	var want mad.PathRecord
	if q.comps != 0 {
		if _, err := want.Parse(q.data); err != nil {
			return mad.StatusSAReqInvalid
		}
	}
	if q.has(prRaw) && want.RawTraffic {
		return mad.StatusOK // no raw packets here
	}
	q.stride = mad.PathRecordTable.Stride()
	if q.has(prDGID) && want.DGID.IsMulticast() || q.has(prDLID) && want.DLID.IsMulticast() {
		return a.groupPath(q, &want)
	}
	src, status, ok := a.endOf(q.has(prSGID), want.SGID, q.has(prSLID), want.SLID)
	if !ok {
		return status
	}
	var dst end
	if q.has(prDGID) && a.isRemote(want.DGID) {
		dst, status, ok = a.routerEnd(want.DGID, want.SGID, q.has(prDLID), want.DLID)
	} else {
		dst, status, ok = a.endOf(q.has(prDGID), want.DGID, q.has(prDLID), want.DLID)
	}
	if !ok {
		return status
	}
	limit := pathsMax
	if q.has(prNumbPath) {
		limit = int(want.NumbPath)
	}
	if q.method == mad.MethodGet {
		limit = min(limit, 1)
	}
	switch {
	case src.given && dst.given:
		a.pairPaths(q, &want, &src, &dst, limit)
	case src.given:
		for _, r := range a.ends {
			if dst = a.endAt(r); !a.pairPaths(q, &want, &src, &dst, limit) {
				break
			}
		}
	case dst.given:
		for _, r := range a.ends {
			if src = a.endAt(r); !a.pairPaths(q, &want, &src, &dst, limit) {
				break
			}
		}
	default:
		if n := len(a.ends); n*n > a.cfg.ResponseMax/mad.PathRecordTable.Stride() {
			return mad.StatusSANoResources // nobody needs to wait for that
		}
		a.allPaths(q, &want, limit)
	}
	return mad.StatusOK
}

func (a *Admin) allPaths(q *query, want *mad.PathRecord, limit int) {
	for _, s := range a.ends {
		src := a.endAt(s)
		for _, d := range a.ends {
			dst := a.endAt(d)
			if !a.pairPaths(q, want, &src, &dst, limit) {
				return
			}
		}
	}
}

// pairPaths adds the paths between two ports, at most limit. It reports whether there is room for more.
func (a *Admin) pairPaths(q *query, want *mad.PathRecord, src, dst *end, limit int) bool {
	if !a.may(q, src.ref) || !a.may(q, dst.ref) {
		return true
	}
	added := 0
	for i := range src.count * dst.count {
		if added >= limit {
			break
		}
		switch a.onePath(q, want, src, dst, i) {
		case pathAdded:
			added++
		case pathNone:
			return true // partition or policy: no other LID will do either
		case pathFull:
			return false
		}
	}
	return true
}

// outcome is what became of a path.
type outcome uint8

const (
	pathAdded outcome = iota
	pathUnfit         // these two LIDs don't do
	pathNone          // no LIDs of these two ports do
	pathFull
)

// onePath adds the i-th of the paths between two ports. Path bits go up together on both sides first: such paths share
// the fewest links.
func (a *Admin) onePath(q *query, want *mad.PathRecord, src, dst *end, i int) outcome {
	turn, k := i/max(src.count, dst.count), i%max(src.count, dst.count)
	slid, dlid := src.base+ib.LID((k+turn)%src.count), dst.base+ib.LID(k%dst.count)
	if src.count > dst.count {
		slid, dlid = src.base+ib.LID(k%src.count), dst.base+ib.LID((k+turn)%dst.count)
	}

	choice := Choice{}
	if a.cfg.QoS != nil {
		pq := PathQuery{
			Src: src.ref, Dst: dst.ref, SGID: src.gid, DGID: dst.gid,
			HasServiceID: q.has(prServiceID), HasQoSClass: q.has(prQoSClass),
		}
		if pq.HasServiceID {
			pq.ServiceID = want.ServiceID
		}
		if pq.HasQoSClass {
			pq.QoSClass = want.QoSClass
		}
		if q.has(prTClass) {
			pq.TClass = want.TClass
		}
		if q.has(prPKey) {
			pq.PKey = want.PKey
		}
		if choice = a.cfg.QoS.Path(pq); choice.Deny {
			return pathNone
		}
	}
	key, ok := a.pathKey(q, want, src.ref, dst.ref, choice)
	if !ok {
		return pathNone
	}
	sl, ok := a.pathSL(q, want, src.ref, dlid, key, choice)
	if !ok {
		return pathUnfit
	}
	w, ok := a.walk(src.ref, dst.ref, dlid)
	if !ok {
		return pathUnfit
	}
	_, back := a.walk(dst.ref, src.ref, slid)
	if q.has(prReversible) && want.Reversible && !back {
		return pathUnfit
	}
	w.limit(choice.MTUMax, choice.RateMax)
	if part := a.partition(key); part != nil {
		w.limit(part.PathMTU, mad.Rate(part.PathRate))
	}
	life := a.cfg.PacketLifeTime
	if choice.PacketLifeTime != 0 {
		life = choice.PacketLifeTime
	}
	if src.ref == dst.ref {
		life = 0
	}
	if q.has(prMTU) {
		if w.mtu, ok = selectMTU(want.MTUSelector, want.MTU, w.mtu); !ok {
			return pathUnfit
		}
	}
	if q.has(prRate) {
		if w.rate, ok = selectRate(want.RateSelector, want.Rate, w.rate); !ok {
			return pathUnfit
		}
	}
	if q.has(prLife) {
		if life, ok = selectLife(want.PacketLifeTimeSelector, want.PacketLifeTime, life); !ok {
			return pathUnfit
		}
	}
	rec := mad.PathRecord{
		DGID: dst.gid, SGID: src.gid, DLID: dlid, SLID: slid, Reversible: back, PKey: key, SL: sl,
		MTUSelector: mad.SelectExactly, MTU: w.mtu, RateSelector: mad.SelectExactly, Rate: w.rate,
		PacketLifeTimeSelector: mad.SelectExactly, PacketLifeTime: life,
	}
	if dst.remote {
		rec.HopLimit = hopLimitMax
	}
	// What routing within a subnet does not depend on comes back as it was asked for.
	if q.has(prServiceID) {
		rec.ServiceID = want.ServiceID
	}
	if q.has(prFlow) {
		rec.FlowLabel = want.FlowLabel
	}
	if q.has(prTClass) {
		rec.TClass = want.TClass
	}
	if q.has(prQoSClass) {
		rec.QoSClass = want.QoSClass
	}
	start := len(a.out)
	a.out = rec.Append(a.out)
	if !a.keep(q, start) {
		return pathFull
	}
	return pathAdded
}

// pathKey chooses the partition: the one that was asked for, else policy's, else the first that both ends share.
func (a *Admin) pathKey(q *query, want *mad.PathRecord, src, dst subnet.Ref, c Choice) (ib.PKey, bool) {
	switch {
	case q.has(prPKey):
		if c.PKey != 0 && c.PKey.Base() != want.PKey.Base() {
			return 0, false
		}
		return a.shareThis(src, dst, want.PKey)
	case c.PKey != 0:
		return a.shareThis(src, dst, c.PKey)
	}
	return a.share(src, dst)
}

// pathSL chooses the service level. Routing's comes first, since it keeps the subnet free of deadlocks; then
// policy's, then the partition's, then the one that was asked for.
func (a *Admin) pathSL(q *query, want *mad.PathRecord, src subnet.Ref, dlid ib.LID, key ib.PKey, c Choice) (ib.SL,
	bool) {
	sl, fixed := ib.SL(0), false
	switch {
	case a.net.Levels != nil:
		sl, fixed = a.net.Levels.Level(src, dlid), true
	case c.HasSL:
		sl, fixed = c.SL, true
	default:
		sl, fixed = a.partitionSL(key)
	}
	if !q.has(prSL) || want.SL == sl {
		return sl, true
	}
	return want.SL, !fixed
}

func (a *Admin) partitionSL(key ib.PKey) (ib.SL, bool) {
	for i := range a.net.Partitions {
		if p := &a.net.Partitions[i]; p.HasSL && p.Key.Base() == key.Base() {
			return p.SL, true
		}
	}
	return 0, false
}

// way is what the links of a route allow.
type way struct {
	mtu  ib.MTU
	rate mad.Rate
	hops int
}

// limit bounds what a way carries; 0 is no bound.
func (w *way) limit(mtu ib.MTU, rate mad.Rate) {
	if mtu != 0 {
		w.mtu = min(w.mtu, mtu)
	}
	if rate.IsValid() && rate.Less(w.rate) {
		w.rate = rate
	}
}

// walk follows the forwarding tables from a port to a LID of another.
func (a *Admin) walk(src, dst subnet.Ref, dlid ib.LID) (way, bool) {
	from := a.net.Port(src)
	w := way{mtu: from.Info.MTUCap}
	if src == dst {
		w.rate = a.portRate(src)
		return w, true
	}
	w.mtu = min(w.mtu, a.net.Port(dst).Info.MTUCap)
	at, out := src.Node, src.Port
	for ; w.hops <= mad.MaxHops; w.hops++ {
		n := a.net.Nodes[at]
		if n.IsSwitch() {
			if at == dst.Node {
				return w, true
			}
			if int(dlid) >= len(n.LFT) {
				return w, false
			}
			if out = n.LFT[dlid]; out == 0 || int(out) >= len(n.Ports) {
				return w, false
			}
		} else if w.hops > 0 {
			// Adapters don't forward: this is the end, if it is the right one.
			return w, at == dst.Node && out == dst.Port
		}
		p := &n.Ports[out]
		if !p.Up() {
			return w, false
		}
		if m := p.Info.NeighborMTU; m.IsValid() {
			w.mtu = min(w.mtu, m)
		}
		if r := mad.RateOf(p.Rate()); w.rate == 0 || r.Less(w.rate) {
			w.rate = r
		}
		at, out = p.Peer, p.PeerPort
	}
	return w, false
}

// selectMTU finds the largest MTU that a path has and that a query wants.
func selectMTU(s mad.Selector, want, have ib.MTU) (ib.MTU, bool) {
	switch s {
	case mad.SelectGreater:
		return have, have > want
	case mad.SelectLess:
		if have >= want {
			have = want - 1
		}
		return have, want > ib.MTU256
	case mad.SelectExactly:
		return want, have >= want && want.IsValid()
	}
	return have, true
}

// selectRate finds the largest rate that a path has and that a query wants.
func selectRate(s mad.Selector, want, have mad.Rate) (mad.Rate, bool) {
	switch s {
	case mad.SelectGreater:
		return have, want.Less(have)
	case mad.SelectLess:
		if !have.Less(want) {
			have = want.Below()
		}
		return have, have != 0
	case mad.SelectExactly:
		return want, want.IsValid() && !have.Less(want)
	}
	return have, true
}

// selectLife finds the shortest life time that covers a path's and that a query wants: a longer one than is needed
// always does.
func selectLife(s mad.Selector, want, have uint8) (uint8, bool) {
	switch s {
	case mad.SelectGreater:
		if have <= want {
			have = want + 1
		}
		return have, have < 64
	case mad.SelectLess:
		return have, have < want
	case mad.SelectExactly:
		return want, have <= want
	}
	return have, true
}

// groupPath is the path to a multicast group, which its members have agreed on.
func (a *Admin) groupPath(q *query, want *mad.PathRecord) mad.Status {
	var g *group
	if q.has(prDGID) {
		g = a.groups.byMGID[want.DGID]
		if g != nil && q.has(prDLID) && want.DLID != g.info.MLID {
			g = nil
		}
	} else {
		g = a.groups.byMLID[want.DLID]
	}
	if g == nil {
		if q.has(prDGID) {
			return mad.StatusSAInvalidGID
		}
		return mad.StatusOK
	}
	src, status, ok := a.endOf(q.has(prSGID), want.SGID, q.has(prSLID), want.SLID)
	if !ok {
		return status
	}
	if !src.given {
		src = a.endAt(q.from)
	}
	i := &g.info
	if !a.may(q, src.ref) || !a.hasKey(src.ref, i.PKey) || !q.trusted && !a.hasKey(q.from, i.PKey) {
		return mad.StatusOK
	}
	if q.has(prPKey) && want.PKey.Base() != i.PKey.Base() || q.has(prSL) && want.SL != i.SL {
		return mad.StatusOK
	}
	for _, fits := range []bool{
		!q.has(prMTU) || compares(want.MTUSelector, int(want.MTU), int(i.MTU)),
		!q.has(prRate) || rateCompares(want.RateSelector, want.Rate, i.Rate),
		!q.has(prLife) || compares(want.PacketLifeTimeSelector, int(want.PacketLifeTime), int(i.PacketLifeTime)),
	} {
		if !fits {
			return mad.StatusOK
		}
	}
	rec := mad.PathRecord{
		DGID: i.MGID, SGID: src.gid, DLID: i.MLID, SLID: src.base, FlowLabel: i.FlowLabel, HopLimit: i.HopLimit,
		TClass: i.TClass,
		PKey:   i.PKey, SL: i.SL, MTUSelector: mad.SelectExactly, MTU: i.MTU, RateSelector: mad.SelectExactly,
		Rate:                   i.Rate,
		PacketLifeTimeSelector: mad.SelectExactly, PacketLifeTime: i.PacketLifeTime,
	}
	start := len(a.out)
	a.out = rec.Append(a.out)
	a.keep(q, start)
	return mad.StatusOK
}

// compares reports whether a value that cannot be chosen is what a query wants.
func compares(s mad.Selector, want, have int) bool {
	switch s {
	case mad.SelectGreater:
		return have > want
	case mad.SelectLess:
		return have < want
	case mad.SelectExactly:
		return have == want
	}
	return true
}

func rateCompares(s mad.Selector, want, have mad.Rate) bool {
	switch s {
	case mad.SelectGreater:
		return want.Less(have)
	case mad.SelectLess:
		return have.Less(want)
	case mad.SelectExactly:
		return have == want
	}
	return true
}
