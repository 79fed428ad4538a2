package hca

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/wire"
)

// Congestion notification packets: what a receiver says of marked packets that it does not acknowledge. On InfiniBand
// these are datagrams, packets of unreliable connections, and responses (IBA A10.3.2); on Ethernet all (IBA A17.9.3).

// cnpTo is whom a notification about a datagram goes to.
type cnpTo struct {
	port       ib.PortNum
	sl         ib.SL
	dlid, slid ib.LID
	pkey       ib.PKey
	dqpn       ib.QPN
	global     bool
	grh        wire.GRH
}

// cnpsMax is how many senders of datagrams can be owed a notification at a time. The others send more, which will be
// marked as well.
const cnpsMax = 64

// cnpPayload is what follows the BTH on Ethernet, reserved.
const cnpPayload = 16

// notify has the sender of a marked packet told, if it is not told by an acknowledgement.
func (q *QP) notify(port ib.PortNum, p *wire.Packet) {
	switch info := p.BTH.Opcode.Info(); {
	case q.num <= ib.QPNGSI || info.Kind == wire.KindCNP:
		// Management is not slowed down, and nobody is told of what tells.
	case q.isUD():
		if p.DETH.SrcQP > ib.QPNGSI {
			q.notifySource(port, p)
		}
	case q.typ == UC || !info.Is(wire.FlagRequest):
		q.oweCNP()
	default:
		q.tellBECN = true
	}
}

// notifySource has the sender of a datagram told: the answer goes back as the datagram came.
func (q *QP) notifySource(port ib.PortNum, p *wire.Packet) {
	to := cnpTo{port: port, sl: p.LRH.SL, dlid: p.LRH.SLID, slid: p.LRH.DLID, pkey: q.path.pkey, dqpn: p.DETH.SrcQP}
	if len(q.cnps) == cnpsMax || slices.ContainsFunc(q.cnps, func(o cnpTo) bool {
		return o.dqpn == to.dqpn && o.dlid == to.dlid && o.sl == to.sl
	}) {
		return
	}
	if to.global = p.LRH.LNH == wire.LNHGlobal; to.global {
		to.grh = p.GRH
		to.grh.SGID, to.grh.DGID = p.GRH.DGID, p.GRH.SGID
	}
	q.cnps = append(q.cnps, to)
	q.oweCNP()
}

// oweCNP gives the queue pair a turn, even while it waits for its rate.
func (q *QP) oweCNP() {
	if q.cnpDue = true; !q.onReady && !q.parked {
		q.burst = 0
		q.h.ready.push(q)
	}
}

// forgetCNPs is for a queue pair that sends no more.
func (q *QP) forgetCNPs() { q.cnpDue, q.cnps = false, nil }

// cnpWay fills in where the next notification goes.
func (q *QP) cnpWay(s *Send) {
	q.way(s)
	if s.Copied, s.Refers = 0, false; q.roce != nil {
		s.Copied = cnpPayload
	}
	if q.isUD() {
		to := &q.cnps[0]
		s.Port, s.SL, s.DLID, s.PKey, s.DQPN = to.port, to.sl, to.dlid, to.pkey, to.dqpn
		s.Loopback = q.h.ports[to.port].ownsLID(to.dlid)
	}
}

// emitCNP builds the next notification. It waits for nothing but room.
func (q *QP) emitCNP(p *wire.Packet, buf []byte) {
	q.h.Stats.CNPsSent++
	if q.isUD() {
		to := &q.cnps[0]
		p.LRH = wire.LRH{SL: to.sl, LNH: wire.LNHLocal, DLID: to.dlid, SLID: to.slid}
		if to.global {
			p.LRH.LNH, p.GRH = wire.LNHGlobal, to.grh
		}
		p.BTH = wire.BTH{Opcode: wire.OpcodeCN, BECN: true, Migrate: true, PKey: to.pkey, DestQP: to.dqpn}
		p.Payload = nil
		q.cnps = slices.Delete(q.cnps, 0, 1)
		q.cnpDue = len(q.cnps) > 0
		return
	}
	q.cnpDue = false
	q.header(p, 0, 0)
	p.BTH.Opcode, p.BTH.BECN, p.BTH.AckReq = wire.OpcodeCN, true, false
	if q.roce != nil {
		p.BTH.Opcode = wire.OpcodeCNP
		p.Payload = buf[:cnpPayload]
		clear(p.Payload)
	}
}

// takesCNP reports whether a packet is a notification that the queue pair takes.
func (q *QP) takesCNP(p *wire.Packet) bool {
	switch p.BTH.Opcode {
	case wire.OpcodeCNP:
		return q.roce != nil && q.h.cfg.RoCE.DCQCN.On && !q.isUD()
	case wire.OpcodeCN:
		return q.h.cfg.CNP && q.num > ib.QPNGSI
	}
	return false
}
