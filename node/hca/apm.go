package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// Automatic path migration (IBA 17.2.8): both ends load an alternate path
// and re-arm; when both have, they are armed; when one gives up on its
// path it takes the alternate and says so in every packet, and the
// other follows.

// onAlternate reports whether a packet that did not come by the primary path
// came by the alternate one, in a state in which that is allowed.
func (q *QP) onAlternate(port ib.PortNum, p *wire.Packet) bool {
	if q.attr.PathMigState == Migrated {
		return q.oldPath.dlid != 0 && p.LRH.SLID == q.oldPath.dlid && port == q.oldPath.port &&
			q.oldPath.pkey.Matches(p.BTH.PKey)
	}
	if q.attr.AltAH.DLID == 0 || port != q.attr.AltPort || p.LRH.SLID != q.attr.AltAH.DLID {
		return false
	}
	hp := q.h.Port(port)
	return pkeyAt(hp, q.attr.AltPKeyIndex).Matches(p.BTH.PKey)
}

// peerMigration follows what the peer's MigReq bit says.
func (q *QP) peerMigration(port ib.PortNum, p *wire.Packet) {
	switch {
	case !p.BTH.Migrate && q.attr.PathMigState == Rearm:
		q.attr.PathMigState = Armed // the peer is re-armed too
		q.refreshHeader()
	case p.BTH.Migrate && q.attr.PathMigState == Armed && p.LRH.SLID == q.attr.AltAH.DLID && port == q.attr.AltPort:
		q.migrate()
	}
}

// migrate takes the alternate path.
func (q *QP) migrate() {
	port := q.h.Port(q.attr.AltPort)
	if port == nil || port.State != ib.PortActive {
		q.attr.PathMigState = Migrated
		q.refreshHeader()
		q.h.events.push(Event{Type: EventPathMigErr, QP: q})
		return
	}
	q.oldPath = q.path
	q.attr.AH, q.attr.Port, q.attr.PKeyIndex, q.attr.Timeout = q.attr.AltAH, q.attr.AltPort, q.attr.AltPKeyIndex,
		q.attr.AltTimeout
	q.attr.AltAH, q.attr.AltPort = AHAttr{}, 0
	q.attr.PathMigState = Migrated
	q.refreshPath()
	q.retry = q.attr.RetryCnt
	q.h.Stats.PathMigrations++
	q.h.events.push(Event{Type: EventPathMig, QP: q})
}
