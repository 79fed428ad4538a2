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

// routerGroups serves the table of the multicast groups that the port's subnet has.
func (a *Agent) routerGroups(r *request) mad.Status {
	index := int(r.mod)
	if r.mod >= RouterGroupCap {
		return mad.StatusInvalidField
	}
	if r.set {
		var g mad.RouterGroup
		if _, err := g.Parse(r.data); err != nil {
			return failed(err)
		}
		if g.MGID != (ib.GID{}) && (!mad.IsRouted(g.MGID) || !g.MLID.IsMulticast()) {
			return mad.StatusInvalidField
		}
		if err := a.rt.SetRouterGroup(r.now, r.inPort, index, g); err != nil {
			return failed(err)
		}
	}
	g := a.rt.RouterGroup(r.inPort, index)
	g.Append(r.answer())
	return mad.StatusOK
}

// groupsWanted serves the table of groups whose packets are to come to the port, which follows from what managers have
// written.
func (a *Agent) groupsWanted(r *request) mad.Status {
	if r.mod >= RouterGroupCap {
		return mad.StatusInvalidField
	}
	var g mad.RouterGroup
	all := a.rt.GroupsWanted(r.inPort)
	if int(r.mod) < len(all) {
		g = all[r.mod]
	}
	g.Top = uint32(len(all))
	g.Append(r.answer())
	return mad.StatusOK
}
