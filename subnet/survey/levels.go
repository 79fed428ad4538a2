package survey

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Service levels are the administrator's to give (IBA 15.2.5.16). Ways from all end ports of a switch have the same, as
// far as routing is concerned, so one of them is asked for.

// listLevels lists the switches that have end ports, unless there are too many ways.
func (e *Engine) listLevels() {
	from := e.s.Port(e.s.From)
	ends := 0
	e.s.EndPorts(func(_ topo.PortRef, p *Port) {
		if p.Known && p.Info.PortState == ib.PortActive || p.Known && p.Info.LocalPortNum == 0 {
			ends++
		}
	})
	e.s.Levels = nil
	for i, n := range e.s.Nodes {
		if !n.IsSwitch() {
			continue
		}
		if end, ok := e.firstEnd(n); ok {
			e.push(task{what: askLevels, node: int32(i), mod: uint32(e.s.Port(end).Info.LID)})
		}
	}
	if !from.Known || !from.Info.MasterSMLID.IsUnicast() || len(e.tasks)*ends > e.cfg.LevelsMax {
		e.tasks = e.tasks[:0]
		e.s.Parts &^= Levels
	}
}

// firstEnd is an end port that hangs on a switch.
func (e *Engine) firstEnd(n *Node) (topo.PortRef, bool) {
	for p := range n.Ports {
		if x := &n.Ports[p]; x.Cabled() && !e.s.Nodes[x.Peer].IsSwitch() {
			end := topo.PortRef{Node: x.Peer, Port: x.PeerPort}
			if y := e.s.Port(end); y.Known && y.Info.LID.IsUnicast() && y.Info.PortState == ib.PortActive {
				return end, true
			}
		}
	}
	return topo.PortRef{}, false
}

// levelsRequest asks the administrator for all ways from an address.
func (e *Engine) levelsRequest(t task, env *mad.Envelope) []byte {
	from := &e.s.Port(e.s.From).Info
	*env = mad.Envelope{LID: from.MasterSMLID, QPN: ib.QPNGSI, QKey: ib.QKeyGSI, SL: from.MasterSMSL,
		PKeyIndex: e.perf.pkeyIndex}
	h := mad.Header{
		BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion, Method: mad.MethodGetTable,
		AttributeID: mad.AttrPathRecord,
	}
	b := h.Append(e.buf[:0])
	b = (&mad.RMPP{}).Append(b)
	b = (&mad.SAHeader{ComponentMask: mad.PathRecordTable.Component("SLID")}).Append(b)
	(&mad.PathRecord{SLID: ib.LID(t.mod)}).Append(b)
	return e.buf[:]
}

// levelsReply takes a table of ways.
func (e *Engine) levelsReply(t task, data []byte) {
	var h mad.SAHeader
	if _, err := h.Parse(data[mad.SAHeaderOff:]); err != nil {
		return
	}
	step := int(h.AttributeOffset) * 8 // IBA 15.2.1.1
	size := mad.PathRecordTable.Size
	if step < size {
		step = size
	}
	w := Ways{Switch: int(t.node)}
	for at := mad.SADataOff; at+size <= len(data); at += step {
		var r mad.PathRecord
		if _, err := r.Parse(data[at:]); err != nil || r.SLID != ib.LID(t.mod) || !r.DLID.IsUnicast() {
			continue
		}
		for len(w.SL) <= int(r.DLID) {
			w.SL = append(w.SL, NoLevel)
		}
		if w.SL[r.DLID] == NoLevel {
			w.SL[r.DLID] = uint8(r.SL)
		}
	}
	e.s.Levels = append(e.s.Levels, w)
}
