package sa

import (
	"softib/ib"
	"softib/mad"
	"softib/subnet"
)

var slvlLID = comp(mad.SLtoVLRecordTable, "LID")

func (a *Admin) listSLtoVL(q *query) mad.Status {
	a.aim(q, slvlLID)
	var rec mad.SLtoVLRecord
	a.among(q, slvlLID, func(r subnet.Ref, end *subnet.Port) bool {
		return a.ports(r, func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool {
			if p.Tables == nil {
				return true
			}
			for in := range p.Tables.SLtoVL {
				rec = mad.SLtoVLRecord{LID: end.Info.LID, InputPortNum: ib.PortNum(in), OutputPortNum: num, SLtoVL: p.Tables.SLtoVL[in]}
				if !a.add(q, &rec) {
					return false
				}
			}
			return true
		})
	})
	return mad.StatusOK
}

var vlarbLID = comp(mad.VLArbRecordTable, "LID")

func (a *Admin) listVLArb(q *query) mad.Status {
	a.aim(q, vlarbLID)
	var rec mad.VLArbRecord
	a.among(q, vlarbLID, func(r subnet.Ref, end *subnet.Port) bool {
		return a.ports(r, func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool {
			if p.Tables == nil {
				return true
			}
			for prio, table := range p.Tables.VLArb {
				per := len(rec.VLArb)
				for b := 0; b*per < len(table) && b < 2; b++ {
					rec = mad.VLArbRecord{LID: end.Info.LID, OutputPortNum: num, BlockNum: mad.VLArbLow0 + mad.VLArbBlock(2*prio+b)}
					copy(rec.VLArb[:], table[b*per:])
					if !a.add(q, &rec) {
						return false
					}
				}
			}
			return true
		})
	})
	return mad.StatusOK
}

var pkeyLID = comp(mad.PKeyTableRecordTable, "LID")

// listPKeys lists tables of partition keys. Only trusted requests are answered (IBA 15.4.1.2): keys are secrets.
func (a *Admin) listPKeys(q *query) mad.Status {
	if !q.trusted {
		return mad.StatusSAReqInvalid
	}
	a.aim(q, pkeyLID)
	var rec mad.PKeyTableRecord
	a.among(q, pkeyLID, func(r subnet.Ref, end *subnet.Port) bool {
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
		lft, per := a.net.Nodes[r.Node].LFT, len(rec.LFT)
		for b := 0; b*per < len(lft); b++ {
			rec = mad.LFTRecord{LID: p.Info.LID, BlockNum: uint16(b)}
			for i := copy(rec.LFT[:], lft[b*per:]); i < per; i++ {
				rec.LFT[i] = mad.LFTNone
			}
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
