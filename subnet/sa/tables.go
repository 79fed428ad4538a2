package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

var (
	slvlLID   = comp(mad.SLtoVLRecordTable, "LID")
	slvlPorts = comp(mad.SLtoVLRecordTable, "InputPortNum") | comp(mad.SLtoVLRecordTable, "OutputPortNum")
)

// aimPort is aim for a record of a LID's port. Of an adapter or a router the LID says it all, and a port beside it
// means nothing: clients give 0 there.
func (a *Admin) aimPort(q *query, r subnet.Ref, lid, port uint64) {
	skip := lid
	if q.has(lid) && !a.net.Nodes[r.Node].IsSwitch() {
		skip |= port
	}
	a.aim(q, skip)
}

func (a *Admin) listSLtoVL(q *query) mad.Status {
	var rec mad.SLtoVLRecord
	a.among(q, slvlLID, func(r subnet.Ref, end *subnet.Port) bool {
		a.aimPort(q, r, slvlLID, slvlPorts)
		return a.ports(r, func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool {
			if p.Tables == nil {
				return true
			}
			for in := range p.Tables.SLtoVL {
				rec = mad.SLtoVLRecord{LID: end.Info.LID, InputPortNum: ib.PortNum(in), OutputPortNum: num,
					SLtoVL: p.Tables.SLtoVL[in]}
				if !a.add(q, &rec) {
					return false
				}
			}
			return true
		})
	})
	return mad.StatusOK
}

var (
	vlarbLID  = comp(mad.VLArbRecordTable, "LID")
	vlarbPort = comp(mad.VLArbRecordTable, "OutputPortNum")
)

func (a *Admin) listVLArb(q *query) mad.Status {
	var rec mad.VLArbRecord
	a.among(q, vlarbLID, func(r subnet.Ref, end *subnet.Port) bool {
		a.aimPort(q, r, vlarbLID, vlarbPort)
		return a.ports(r, func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool {
			if p.Tables == nil {
				return true
			}
			// Port 0 of a switch may have no lanes to choose from: its blocks are empty then. All others have a table,
			// known or not.
			if num != 0 && p.Tables.VLArb[0] == nil && p.Tables.VLArb[1] == nil {
				return true
			}
			for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
				rec = mad.VLArbRecord{LID: end.Info.LID, OutputPortNum: num, BlockNum: k}
				at := int(k - mad.VLArbLow0)
				if table, from := p.Tables.VLArb[at/2], at%2*mad.VLArbPerBlock; from < len(table) {
					copy(rec.VLArb[:], table[from:])
				}
				if !a.add(q, &rec) {
					return false
				}
			}
			return true
		})
	})
	return mad.StatusOK
}

var (
	pkeyLID  = comp(mad.PKeyTableRecordTable, "LID")
	pkeyPort = comp(mad.PKeyTableRecordTable, "PortNum")
)

// listPKeys lists tables of partition keys. Only trusted requests are answered (IBA 15.4.1.2): keys are secrets.
func (a *Admin) listPKeys(q *query) mad.Status {
	if !q.trusted {
		return mad.StatusSAReqInvalid
	}
	var rec mad.PKeyTableRecord
	a.among(q, pkeyLID, func(r subnet.Ref, end *subnet.Port) bool {
		a.aimPort(q, r, pkeyLID, pkeyPort)
		return a.ports(r, func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool {
			if p.Tables == nil {
				return true
			}
			keys, per := p.Tables.PKeys, len(rec.PKeys)
			for b := 0; b*per < len(keys); b++ {
				rec = mad.PKeyTableRecord{LID: end.Info.LID, BlockNum: uint16(b), PortNum: num}
				copy(rec.PKeys[:], keys[b*per:])
				if !a.add(q, &rec) {
					return false
				}
			}
			return true
		})
	})
	return mad.StatusOK
}

var lftLID = comp(mad.LFTRecordTable, "LID")

func (a *Admin) listLFTs(q *query) mad.Status {
	a.aim(q, lftLID)
	var rec mad.LFTRecord
	a.among(q, lftLID, func(r subnet.Ref, p *subnet.Port) bool {
		lft := a.net.Nodes[r.Node].LFT
		for b := range mad.LFTBlocks(len(lft)) {
			rec = mad.LFTRecord{LID: p.Info.LID, BlockNum: uint16(b), LFT: mad.LFTBlock(lft, b)}
			if !a.add(q, &rec) {
				return false
			}
		}
		return true
	})
	return mad.StatusOK
}

var mftLID = comp(mad.MFTRecordTable, "LID")

func (a *Admin) listMFTs(q *query) mad.Status {
	a.aim(q, mftLID)
	var rec mad.MFTRecord
	a.among(q, mftLID, func(r subnet.Ref, p *subnet.Port) bool {
		n := a.net.Nodes[r.Node]
		const portsPerPosition = 16
		positions, per := (len(n.Ports)+portsPerPosition-1)/portsPerPosition, len(rec.MFT)
		for b := 0; b*per < len(n.MFT); b++ {
			for pos := range positions {
				rec = mad.MFTRecord{LID: p.Info.LID, BlockNum: uint16(b), Position: uint8(pos)}
				for i := range min(per, len(n.MFT)-b*per) {
					if masks := n.MFT[b*per+i]; pos < len(masks) {
						rec.MFT[i] = masks[pos]
					}
				}
				if !a.add(q, &rec) {
					return false
				}
			}
		}
		return true
	})
	return mad.StatusOK
}
