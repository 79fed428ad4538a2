package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

var (
	mpSGIDCount  = comp(mad.MultiPathRecordTable, "SGIDCount")
	mpDGIDCount  = comp(mad.MultiPathRecordTable, "DGIDCount")
	mpNumbPath   = comp(mad.MultiPathRecordTable, "NumbPath")
	mpGIDsOff    = 24 // where the GIDs start
	mpComponents = []struct{ from, to uint64 }{
		{comp(mad.MultiPathRecordTable, "RawTraffic"), prRaw},
		{comp(mad.MultiPathRecordTable, "FlowLabel"), prFlow},
		{comp(mad.MultiPathRecordTable, "TClass"), prTClass},
		{comp(mad.MultiPathRecordTable, "Reversible"), prReversible},
		{comp(mad.MultiPathRecordTable, "P_Key"), prPKey},
		{comp(mad.MultiPathRecordTable, "QoSClass"), prQoSClass},
		{comp(mad.MultiPathRecordTable, "SL"), prSL},
		{comp(mad.MultiPathRecordTable, "MTU") | comp(mad.MultiPathRecordTable, "MTUSelector"), prMTU},
		{comp(mad.MultiPathRecordTable, "Rate") | comp(mad.MultiPathRecordTable, "RateSelector"), prRate},
		{comp(mad.MultiPathRecordTable, "PacketLifeTime") | comp(mad.MultiPathRecordTable, "PacketLifeTimeSelector"),
			prLife},
		{comp(mad.MultiPathRecordTable, "ServiceIDUpper") | comp(mad.MultiPathRecordTable, "ServiceIDLower"),
			prServiceID},
	}
)

// multiPath gives paths from any of some ports to any of others (IBA 15.4.11). All pairs get a path before any gets a
// second one, so that what a client picks from the front shares as little as possible.
func (a *Admin) multiPath(q *query) mad.Status {
	if len(q.data) < mpGIDsOff {
		return mad.StatusSAReqInvalid
	}
	if !q.has(mpSGIDCount) || !q.has(mpDGIDCount) {
		return mad.StatusSAInsufComponents
	}
	// The record grows with its GIDs: read what is fixed, then as many as there are.
	var fixed [mad.SADataLen]byte
	copy(fixed[:], q.data)
	var want mad.MultiPathRecord
	if _, err := want.Parse(fixed[:]); err != nil {
		return mad.StatusSAReqInvalid
	}
	n := int(want.SGIDCount) + int(want.DGIDCount)
	if want.SGIDCount == 0 || want.DGIDCount == 0 || len(q.data) < mpGIDsOff+16*n {
		return mad.StatusSAReqInvalid
	}
	ends := make([]end, n)
	for i := range ends {
		g := ib.GID(q.data[mpGIDsOff+16*i:])
		e, status, ok := a.endOf(true, g, false, 0)
		if !ok {
			return status
		}
		ends[i] = e
	}
	pr := mad.PathRecord{
		ServiceID: want.ServiceID, RawTraffic: want.RawTraffic, FlowLabel: want.FlowLabel, TClass: want.TClass,
		Reversible: want.Reversible,
		PKey:       want.PKey, QoSClass: want.QoSClass, SL: want.SL, MTUSelector: want.MTUSelector, MTU: want.MTU,
		RateSelector: want.RateSelector, Rate: want.Rate, PacketLifeTimeSelector: want.PacketLifeTimeSelector,
		PacketLifeTime: want.PacketLifeTime,
	}
	limit := pathsMax
	if q.has(mpNumbPath) {
		limit = int(want.NumbPath)
	}
	comps := uint64(0)
	for _, m := range mpComponents {
		if q.has(m.from) {
			comps |= m.to
		}
	}
	q.comps, q.stride, q.respAttr = comps, mad.PathRecordTable.Stride(), mad.AttrPathRecord
	if q.has(prRaw) && pr.RawTraffic {
		return mad.StatusOK
	}
	a.spread(q, &pr, ends[:want.SGIDCount], ends[want.SGIDCount:], limit)
	return mad.StatusOK
}

// spread adds paths between all pairs in turn, at most limit in all.
func (a *Admin) spread(q *query, pr *mad.PathRecord, srcs, dsts []end, limit int) {
	for round := 0; ; round++ {
		more := false
		for i := range srcs {
			for j := range dsts {
				src, dst := &srcs[i], &dsts[j]
				if round >= src.count*dst.count || !a.may(q, src.ref) || !a.may(q, dst.ref) {
					continue
				}
				if q.count >= limit {
					return
				}
				switch a.onePath(q, pr, src, dst, round) {
				case pathFull:
					return
				case pathNone:
				default:
					more = true
				}
			}
		}
		if !more {
			return
		}
	}
}

// trace lists the nodes on a path (IBA 15.4.12): what is asked for is a PathRecord, what comes are TraceRecords.
func (a *Admin) trace(q *query) mad.Status {
	var want mad.PathRecord
	if _, err := want.Parse(q.data); err != nil {
		return mad.StatusSAReqInvalid
	}
	if !q.has(prSGID) && !q.has(prSLID) || !q.has(prDGID) && !q.has(prDLID) {
		return mad.StatusSAInsufComponents
	}
	q.respAttr, q.stride = mad.AttrTraceRecord, mad.TraceRecordTable.Stride()
	src, status, ok := a.endOf(q.has(prSGID), want.SGID, q.has(prSLID), want.SLID)
	if !ok {
		return status
	}
	dst, status, ok := a.endOf(q.has(prDGID), want.DGID, q.has(prDLID), want.DLID)
	if !ok {
		return status
	}
	if !a.may(q, src.ref) || !a.may(q, dst.ref) {
		return mad.StatusOK
	}
	if _, ok := a.pathKey(q, &want, src.ref, dst.ref, Choice{}); !ok {
		return mad.StatusOK
	}
	if _, ok := a.walk(src.ref, dst.ref, dst.base); !ok {
		return mad.StatusOK
	}
	at, in := src.ref.Node, ib.PortNum(0)
	for hop := 0; hop <= mad.MaxHops+1; hop++ {
		n := a.net.Nodes[at]
		out := ib.PortNum(0)
		switch {
		case hop == 0 && !n.IsSwitch() && src.ref != dst.ref:
			out = src.ref.Port
		case at == dst.ref.Node:
		default:
			out = n.LFT[dst.base]
		}
		a.addTrace(q, n, in, out)
		if out == 0 {
			break
		}
		at, in = n.Ports[out].Peer, n.Ports[out].PeerPort
	}
	return mad.StatusOK
}

func (a *Admin) addTrace(q *query, n *subnet.Node, in, out ib.PortNum) {
	rec := mad.TraceRecord{
		GidPrefix: a.net.Prefix, IDGeneration: 1, NodeType: n.Info.NodeType, NodeID: n.Info.NodeGUID,
		ChassisID: n.Info.SystemImageGUID,
		EntryPort: in, ExitPort: out,
	}
	if in != 0 {
		rec.EntryPortID = n.Ports[n.EndPort(in)].GUID
	}
	if out != 0 {
		rec.ExitPortID = n.Ports[n.EndPort(out)].GUID
	}
	start := len(a.out)
	a.out = rec.Append(a.out)
	a.keep(q, start)
}
