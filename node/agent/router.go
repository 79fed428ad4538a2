package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// routerInfo serves RouterInfo.
func (a *Agent) routerInfo(r *request) mad.Status {
	i := mad.RouterInfo{NextHopTableCap: NextHopCap, NextHopTableTop: uint32(len(a.rt.NextHops(r.inPort)))}
	i.Append(r.answer())
	return mad.StatusOK
}

// nextHops serves the table of next hops, which follows from what managers have written.
func (a *Agent) nextHops(r *request) mad.Status {
	if r.mod >= uint32(blocks(NextHopCap, mad.NextHopsPerBlock)) {
		return mad.StatusInvalidField
	}
	var t mad.NextHopTable
	if all, from := a.rt.NextHops(r.inPort), int(r.mod)*mad.NextHopsPerBlock; from < len(all) {
		copy(t[:], all[from:])
	}
	t.Append(r.answer())
	return mad.StatusOK
}

// routerGUIDs serves the table of who has which LID.
func (a *Agent) routerGUIDs(r *request) mad.Status {
	block := int(r.mod)
	if r.mod >= uint32(blocks(int(ib.LIDUnicastMax)+1, mad.RouterGUIDsPerBlock)) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.RouterGUIDs
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		if err := a.rt.SetRouterGUIDs(r.now, r.inPort, block, t); err != nil {
			return failed(err)
		}
	}
	t := a.rt.RouterGUIDs(r.inPort, block)
	t.Append(r.answer())
	return mad.StatusOK
}

// routerPeers serves the table of what other routers reach.
func (a *Agent) routerPeers(r *request) mad.Status {
	block := int(r.mod)
	if r.mod >= uint32(blocks(NextHopCap, mad.NextHopsPerBlock)) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.NextHopTable
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		for _, e := range t {
			if e.Prefix != 0 && !e.LID.IsUnicast() {
				return mad.StatusInvalidField
			}
		}
		if err := a.rt.SetRouterPeers(r.now, r.inPort, block, t); err != nil {
			return failed(err)
		}
	}
	t := a.rt.RouterPeers(r.inPort, block)
	t.Append(r.answer())
	return mad.StatusOK
}
