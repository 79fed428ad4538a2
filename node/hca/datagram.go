package hca

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// checkHeader is what every packet for a queue pair goes through before its
// transport looks at it (IBA 9.6).
func (q *QP) checkHeader(port ib.PortNum, p *wire.Packet) Drop {
	switch q.state {
	case StateRTR, StateRTS, StateSQD, StateSQE:
	default:
		return DropState
	}
	if p.BTH.Opcode.Service() != qpTypes[q.typ].wire && !q.takesCNP(p) {
		return DropService
	}
	hp := q.h.Port(port)
	if hp == nil || !hp.ownsLID(p.LRH.DLID) && !(q.num < 2 && p.LRH.DLID == ib.LIDPermissive) {
		return DropDLID
	}
	if p.LRH.LNH == wire.LNHGlobal && !hp.ownsGID(p.GRH.DGID) {
		return DropGRH
	}
	if q.isUD() {
		if p.BTH.Opcode == wire.OpcodeCN { // it has no Q_Key
			return q.checkKey(port, p)
		}
		return q.checkDatagram(port, hp, p)
	}
	if q.h.cfg.RoCE.ByGID && p.GRH.SGID != q.grh.DGID {
		return DropAddress
	}
	if p.LRH.SLID == q.path.dlid && port == q.path.port {
		if d := q.checkKey(port, p); d != DropNone {
			return d
		}
	} else if !q.onAlternate(port, p) {
		return DropAddress
	}
	if q.attr.PathMigState != Migrated {
		q.peerMigration(port, p)
	}
	if !q.commEst && q.state == StateRTR {
		q.commEst = true
		q.h.events.push(Event{Type: EventCommEst, QP: q})
	}
	return DropNone
}

// checkKey checks the partition of a packet.
func (q *QP) checkKey(port ib.PortNum, p *wire.Packet) Drop {
	if q.path.pkey.Matches(p.BTH.PKey) {
		return DropNone
	}
	q.h.violate(mad.TrapBadPKey, port, p)
	return DropPKey
}

func (p *Port) ownsGID(g ib.GID) bool {
	for _, own := range p.GIDs {
		if own == g {
			return true
		}
	}
	return false
}

// checkDatagram checks keys of a datagram. QP0 has neither, QP1 takes any
// partition of the port (IBA 10.9.8).
func (q *QP) checkDatagram(port ib.PortNum, hp *Port, p *wire.Packet) Drop {
	switch q.typ {
	case SMI:
		return DropNone
	case GSI:
		if hp.pkeyIndex(p.BTH.PKey) == noPKey {
			q.h.violate(mad.TrapBadPKey, port, p)
			return DropPKey
		}
	default:
		if d := q.checkKey(port, p); d != DropNone {
			return d
		}
	}
	if p.DETH.QKey != q.attr.QKey {
		q.h.violate(mad.TrapBadQKey, port, p)
		return DropQKey
	}
	return DropNone
}

// emitDatagram builds the packet of a UD request, which completes with it.
func (q *QP) emitDatagram(now ib.Time, w *sendWQE, p *wire.Packet, buf []byte) bool {
	a := &w.ah.attr
	port := &q.h.ports[a.Port]
	op := wire.OpSendOnly
	if w.op == WRSendImm {
		op = wire.OpSendOnlyImm
	}
	p.LRH = wire.LRH{SL: a.SL, LNH: wire.LNHLocal, DLID: a.DLID, SLID: port.LID | ib.LID(a.SrcPath)}
	if a.IsGlobal {
		p.LRH.LNH = wire.LNHGlobal
		p.GRH = makeGRH(port, a)
	}
	p.BTH = wire.BTH{
		Opcode: wire.MakeOpcode(wire.UD, op), Solicited: w.flags&SendSolicited != 0, Migrate: true,
		PKey: q.path.pkey, DestQP: w.destQP(), PSN: w.first,
	}
	// A Q_Key with its top bit set stands for the queue pair's own (IBA 10.2.5).
	p.DETH = wire.DETH{QKey: w.qkey, SrcQP: q.num}
	if w.qkey&0x80000000 != 0 {
		p.DETH.QKey = q.attr.QKey
	}
	p.Imm = w.imm
	p.Payload = nil
	p.Payload = q.gather(w, int(w.length), false, buf)
	q.sentPSN = w.first.Add(1)
	q.ackPSN = q.sentPSN
	q.sqCursor++
	q.sqPkt = 0
	q.completeSend(w, WCSuccess)
	if q.state != StateErr {
		q.sqOldest++
		q.show()
		q.checkDrained()
	}
	if a.DLID.IsMulticast() {
		p.Seal()
		q.h.deliverMulticast(now, a.Port, p, q)
	}
	return true
}

// carriesIP reports whether a packet that q sends or receives counts as IP over InfiniBand: all of a network's do, and
// anybody's datagrams with that Q_Key.
func (q *QP) carriesIP(p *wire.Packet) bool {
	return q.ipoib || q.typ == UD && p.DETH.QKey == ib.QKeyIPoIB
}

// destQP is the queue pair that a datagram is for.
func (w *sendWQE) destQP() ib.QPN {
	if w.ah.attr.DLID.IsMulticast() {
		return ib.QPNMulticast
	}
	return w.dqpn
}

// grhArea is what a datagram receive keeps free at its start for a GRH.
const grhArea = wire.GRHSize

// receiveDatagram delivers a datagram to q.
func (q *QP) receiveDatagram(now ib.Time, port ib.PortNum, p *wire.Packet) {
	if p.Count > 1 {
		q.h.drop(DropLength) // a datagram is one packet
		return
	}
	if !q.takeRecv(q.srq) {
		q.h.drop(DropNoRecv)
		return
	}
	q.curPD = q.pd
	if q.srq != nil {
		q.curPD = q.srq.pd
	}
	if uint64(p.PayloadLen())+grhArea > uint64(q.cur.size) {
		q.recvFault(now, WCLocLenErr)
		return
	}
	c := WCFlags(0)
	to := filled
	if p.LRH.LNH == wire.LNHGlobal {
		area := p.GRH.Area()
		to = q.fillRecv(grhArea, area[:], nil)
		c |= WCGRH
	} else {
		q.curDone = grhArea
	}
	if to == filled {
		to = q.fillRecv(p.PayloadLen(), p.Payload, farOf(p))
	}
	switch to {
	case fillDenied:
		q.recvFault(now, WCLocProtErr)
		return
	case fillGone:
		q.h.drop(DropFar)
		q.cur, q.fresh = nil, nil
		return
	}
	q.consume()
	if q.carriesIP(p) {
		q.h.Stats.IPoIBRxPackets++
		q.h.Stats.IPoIBRxBytes += uint64(p.PayloadLen())
	}
	w := q.curCQ.slot()
	if w == nil {
		q.cqBroken()
		q.flushSend()
		return
	}
	if p.BTH.Opcode.Info().Has(wire.ExtImmDt) {
		c |= WCWithImm
		w.ImmData = p.Imm
	}
	w.WRID, w.QPN, w.Opcode, w.Flags, w.ByteLen = q.cur.wrID, q.num, WCRecv, c, q.curDone
	w.SrcQP, w.SLID, w.SL, w.Port, w.PKeyIndex = p.DETH.SrcQP, p.LRH.SLID, p.LRH.SL, port, q.attr.PKeyIndex
	if q.h.cfg.RoCE.ByGID {
		w.SLID, w.SL = 0, networkKind(p.GRH.SGID)
	}
	if q.typ == GSI {
		w.PKeyIndex = q.h.ports[port].pkeyIndex(p.BTH.PKey)
	}
	if lmc := q.h.ports[port].LMC; lmc > 0 {
		w.PathBits = uint8(p.LRH.DLID) & (1<<lmc - 1)
	}
	if q.cur != &q.held {
		q.rq.head++
	}
	q.cur = nil
	q.curCQ.commit(now, p.BTH.Solicited)
}

// mcastGroup is a multicast group that queue pairs of this adapter are in.
type mcastGroup struct {
	gid ib.GID
	lid ib.LID
	qps []*QP
}

// AttachMcast makes a datagram queue pair a member of a group.
func (h *HCA) AttachMcast(q *QP, gid ib.GID, lid ib.LID) error {
	const verb = "attach_mcast"
	if q == nil || q.dead || !q.isUD() {
		return badAttr(verb, "qp", q, "a live UD queue pair")
	}
	if !isGroup(gid) {
		return badAttr(verb, "gid", gid, "a multicast GID")
	}
	if h.cfg.RoCE.ByGID {
		lid = networkLID(gid)
	}
	if !lid.IsMulticast() {
		return badAttr(verb, "lid", lid, "a multicast LID")
	}
	g := h.findMcast(gid, lid)
	if g == nil {
		if len(h.mcast) >= h.cfg.Limits.MaxMcastGrp {
			return attrErr(ErrNoMemory, verb, "group", len(h.mcast), "fewer groups")
		}
		h.mcast = append(h.mcast, mcastGroup{gid: gid, lid: lid})
		h.mcastChanges++
		g = &h.mcast[len(h.mcast)-1]
	}
	for _, m := range g.qps {
		if m == q {
			return nil // attaching twice is one membership (IBA 11.3.1)
		}
	}
	if len(g.qps) >= h.cfg.Limits.MaxMcastQPAttach {
		return attrErr(ErrNoMemory, verb, "qp", len(g.qps), "fewer queue pairs in one group")
	}
	g.qps = append(g.qps, q)
	return nil
}

// DetachMcast ends a membership.
func (h *HCA) DetachMcast(q *QP, gid ib.GID, lid ib.LID) error {
	if h.cfg.RoCE.ByGID {
		lid = networkLID(gid)
	}
	if g := h.findMcast(gid, lid); g != nil {
		for i, m := range g.qps {
			if m == q {
				g.qps = append(g.qps[:i], g.qps[i+1:]...)
				if len(g.qps) == 0 {
					*g = h.mcast[len(h.mcast)-1]
					h.mcast = h.mcast[:len(h.mcast)-1]
					h.mcastChanges++
				}
				return nil
			}
		}
	}
	return badAttr("detach_mcast", "gid", gid, "a group that the queue pair is attached to")
}

// GroupChanges is a number that changes whenever a queue pair is the first in a group, or the last one leaves it.
func (h *HCA) GroupChanges() uint64 { return h.mcastChanges }

// Groups are those that queue pairs are in.
func (h *HCA) Groups() []ib.GID {
	all := make([]ib.GID, len(h.mcast))
	for i := range h.mcast {
		all[i] = h.mcast[i].gid
	}
	return all
}

func (h *HCA) findMcast(gid ib.GID, lid ib.LID) *mcastGroup {
	for i := range h.mcast {
		if h.mcast[i].gid == gid && h.mcast[i].lid == lid {
			return &h.mcast[i]
		}
	}
	return nil
}

// handleMulticast takes a multicast packet from a link (IBA 10.5.2).
func (h *HCA) handleMulticast(now ib.Time, port ib.PortNum, p *wire.Packet) {
	if p.LRH.LNH != wire.LNHGlobal || !p.LRH.DLID.IsMulticast() || p.BTH.Opcode.Service() != wire.UD {
		h.drop(DropGRH)
		return
	}
	if !h.deliverMulticast(now, port, p, nil) {
		h.drop(DropNoMcast)
	}
}

// deliverMulticast hands a packet to every member on this adapter. from is the
// sender when it is one of ours.
func (h *HCA) deliverMulticast(now ib.Time, port ib.PortNum, p *wire.Packet, from *QP) bool {
	g := h.findMcast(p.GRH.DGID, p.LRH.DLID)
	if g == nil {
		return false
	}
	hp := h.Port(port)
	for _, q := range g.qps {
		if q == from && q.blockSMC {
			continue
		}
		switch q.state {
		case StateRTR, StateRTS, StateSQD, StateSQE:
		default:
			h.drop(DropState)
			continue
		}
		if q.attr.Port != port {
			continue
		}
		if d := q.checkDatagram(port, hp, p); d != DropNone {
			h.drop(d)
			continue
		}
		q.receiveDatagram(now, port, p)
	}
	return true
}
