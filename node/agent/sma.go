package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// request is one Get or Set on its way through the agent.
type request struct {
	now    ib.Time
	inPort ib.PortNum // as the node knows it: a manager's own request comes in by its port
	set    bool
	mod    uint32
	mkey   uint64
	data   []byte // the attribute, read by Set, overwritten with the answer
}

// smaRow says who serves an attribute. A handler leaves the answer in the
// request's data.
type smaRow struct {
	attr       mad.AttrID
	canSet     bool
	switchOnly bool
	routerOnly bool
	plain      bool // the attribute modifier must be 0
	serve      func(*Agent, *request) mad.Status
}

// smaTable is what the subnet management agent serves.
var smaTable = [...]smaRow{
	{attr: mad.AttrNotice, canSet: true, plain: true, serve: (*Agent).noticeAttr},
	{attr: mad.AttrNodeDescription, plain: true, serve: (*Agent).nodeDescription},
	{attr: mad.AttrNodeInfo, plain: true, serve: (*Agent).nodeInfo},
	{attr: mad.AttrSwitchInfo, canSet: true, switchOnly: true, plain: true, serve: (*Agent).switchInfo},
	{attr: mad.AttrGUIDInfo, canSet: true, serve: (*Agent).guidInfo},
	{attr: mad.AttrPortInfo, canSet: true, serve: (*Agent).portInfo},
	{attr: mad.AttrPKeyTable, canSet: true, serve: (*Agent).pkeyTable},
	{attr: mad.AttrSLtoVL, canSet: true, serve: (*Agent).sltovl},
	{attr: mad.AttrVLArb, canSet: true, serve: (*Agent).vlarb},
	{attr: mad.AttrLFT, canSet: true, switchOnly: true, serve: (*Agent).lft},
	{attr: mad.AttrMFT, canSet: true, switchOnly: true, serve: (*Agent).mft},
	{attr: mad.AttrPortInfoExtended, canSet: true, serve: (*Agent).portInfoExt},
	{attr: mad.AttrARInfo, canSet: true, switchOnly: true, serve: (*Agent).arInfo},
	{attr: mad.AttrARGroupTable, canSet: true, switchOnly: true, serve: (*Agent).arGroups},
	{attr: mad.AttrARLFT, canSet: true, switchOnly: true, serve: (*Agent).arLFT},
	{attr: mad.AttrMlnxExtPortInfo, canSet: true, serve: (*Agent).mlnxExtPortInfo},
	{attr: mad.AttrExtSwitchInfo, canSet: true, switchOnly: true, serve: (*Agent).extSwitchInfo},
	{attr: mad.AttrRouterInfo, routerOnly: true, plain: true, serve: (*Agent).routerInfo},
	{attr: mad.AttrNextHopTable, routerOnly: true, serve: (*Agent).nextHops},
	{attr: mad.AttrRouterGUIDs, canSet: true, routerOnly: true, serve: (*Agent).routerGUIDs},
	{attr: mad.AttrRouterPeers, canSet: true, routerOnly: true, serve: (*Agent).routerPeers},
	{attr: mad.AttrRouterGroups, canSet: true, routerOnly: true, serve: (*Agent).routerGroups},
	{attr: mad.AttrGroupsWanted, routerOnly: true, serve: (*Agent).groupsWanted},
}

// smaLow is how many attributes have numbers so low that they are found by number.
const smaLow = 0x40

// smaByID finds the rows of low numbers: their places in smaTable plus 1, or 0.
var smaByID = func() (rows [smaLow]uint8) {
	for i := range smaTable {
		if id := smaTable[i].attr; id < smaLow {
			rows[id] = uint8(i + 1)
		}
	}
	return rows
}()

// smaFind is the row of an attribute; nil if it is not served.
func smaFind(id mad.AttrID) *smaRow {
	if id < smaLow {
		if row := smaByID[id]; row != 0 {
			return &smaTable[row-1]
		}
		return nil
	}
	for i := range smaTable {
		if smaTable[i].attr == id {
			return &smaTable[i]
		}
	}
	return nil
}

// handleSMP serves a subnet management request in place; ok is false if there is no
// answer.
func (a *Agent) handleSMP(now ib.Time, inPort ib.PortNum, from ib.LID, v mad.View) (st mad.Status, ok bool) {
	m := v.Method()
	if m == mad.MethodTrap {
		return 0, false // for a manager, and has no response
	}
	key := a.keyPort(inPort)
	if a.terms != 0 && !a.hear(key, v.MKey()) || !a.keys[key].admit(now, m, v.MKey()) {
		a.badMKey(key, from, v)
		return 0, false
	}
	switch m {
	case mad.MethodGet, mad.MethodSet:
	case mad.MethodTrapRepress:
		if v.AttrID() == mad.AttrNotice {
			a.repress(key, v.TID(), v.Data())
		}
		return 0, false // has no response
	default:
		return mad.StatusUnsupMethod, true
	}
	if a.sw == nil {
		inPort = key
	}
	row := smaFind(v.AttrID())
	set := m == mad.MethodSet
	if row == nil || set && !row.canSet || row.switchOnly && a.sw == nil || row.routerOnly && a.rt == nil {
		return mad.StatusUnsupMethodAttr, true
	}
	if row.plain && v.AttrMod() != 0 {
		return mad.StatusInvalidField, true
	}
	a.req = request{now: now, inPort: inPort, set: set, mod: v.AttrMod(), mkey: v.MKey(), data: v.Data()}
	st = row.serve(a, &a.req)
	a.req.data = nil // keeps no reference to the caller's memory
	return st, true
}

// answer clears the data and returns it empty, for Append to fill.
func (r *request) answer() []byte {
	clear(r.data)
	return r.data[:0]
}

// failed turns a node's error into a status.
func failed(err error) mad.Status {
	if err != nil {
		return mad.StatusInvalidField
	}
	return mad.StatusOK
}

// blocks is how many blocks of n entries hold so many entries.
func blocks(entries, n int) int { return (entries + n - 1) / n }

func (a *Agent) nodeDescription(r *request) mad.Status {
	d := mad.MakeNodeDescription(a.description())
	d.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) nodeInfo(r *request) mad.Status {
	n := a.node.NodeInfo(r.inPort)
	n.LocalPortNum = r.inPort
	if a.guid != 0 {
		n.NodeGUID = a.guid
	}
	n.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) guidInfo(r *request) mad.Status {
	port := a.keyPort(r.inPort) // GUIDs belong to end ports
	block := int(r.mod)
	if r.mod > 0xFF || block >= blocks(int(a.node.PortInfo(port).GUIDCap), mad.GUIDsPerBlock) {
		return mad.StatusInvalidField
	}
	if r.set {
		var g mad.GUIDInfo
		if _, err := g.Parse(r.data); err != nil {
			return failed(err)
		}
		if block == 0 {
			g[0] = a.node.GUIDs(port, 0)[0]
		}
		if err := a.node.SetGUIDs(r.now, port, block, g); err != nil {
			return failed(err)
		}
	}
	g := a.node.GUIDs(port, block)
	g.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) pkeyTable(r *request) mad.Status {
	block, port, limit := int(r.mod&0xFFFF), r.inPort, 0
	if a.sw != nil {
		if r.mod>>16 > uint32(a.ports) {
			return mad.StatusInvalidField
		}
		port = ib.PortNum(r.mod >> 16)
	}
	if a.sw != nil && port != 0 {
		limit = int(a.enforceCap)
	} else {
		limit = int(a.node.NodeInfo(port).PartitionCap)
	}
	if block >= blocks(limit, mad.PKeysPerBlock) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.PKeyTable
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		if err := a.node.SetPKeys(r.now, port, block, t); err != nil {
			return failed(err)
		}
	}
	t := a.node.PKeys(port, block)
	t.Append(r.answer())
	return mad.StatusOK
}

// sltovl serves the lanes of service levels. A switch has a table for each pair of ports, and takes a Set for
// all input ports, all output ports or both at once (IBA 14.2.5.8, OptimizedSLtoVLMappingProgramming).
func (a *Agent) sltovl(r *request) mad.Status {
	in, out := r.inPort, r.inPort
	spread := false
	if a.sw != nil {
		in, out = ib.PortNum(r.mod>>8), ib.PortNum(r.mod)
		if r.mod&mad.SLtoVLAllInputs != 0 {
			in, spread = AllPorts, true
		}
		if r.mod&mad.SLtoVLAllOutputs != 0 {
			out, spread = AllPorts, true
		}
		if r.mod > 0x3FFFF || in != AllPorts && !a.hasPort(in) || out != AllPorts && !a.hasPort(out) || spread &&
			!r.set {
			return mad.StatusInvalidField
		}
	}
	if r.set {
		var t mad.SLtoVL
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		if spread {
			clear(r.data[mad.SLtoVLLayout.Size:])
			return failed(a.sw.SpreadSLtoVL(r.now, in, out, t)) // the answer is what was written
		}
		if err := a.node.SetSLtoVL(r.now, in, out, t); err != nil {
			return failed(err)
		}
	}
	t := a.node.SLtoVL(in, out)
	t.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) vlarb(r *request) mad.Status {
	port := r.inPort
	if a.sw != nil {
		if r.mod&0xFFFF > uint32(a.ports) {
			return mad.StatusInvalidField
		}
		port = ib.PortNum(r.mod)
	}
	pi := a.node.PortInfo(port)
	limit, first := int(pi.VLArbitrationLowCap), mad.VLArbLow0
	block := mad.VLArbBlock(min(r.mod>>16, uint32(mad.NumVLArbBlock)))
	if block >= mad.VLArbHigh0 {
		limit, first = int(pi.VLArbitrationHighCap), mad.VLArbHigh0
	}
	if block < mad.VLArbLow0 || block >= mad.NumVLArbBlock || int(block-first) >= blocks(limit, mad.VLArbPerBlock) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.VLArb
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		if err := a.node.SetVLArb(r.now, port, block, t); err != nil {
			return failed(err)
		}
	}
	t := a.node.VLArb(port, block)
	t.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) lft(r *request) mad.Status {
	block := int(r.mod)
	if r.mod > 0xFFFF || block >= blocks(int(a.linearCap), mad.LFTPerBlock) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.LFT
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		if err := a.sw.SetLFT(r.now, block, t); err != nil {
			return failed(err)
		}
	}
	t := a.sw.LFT(block)
	t.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) mft(r *request) mad.Status {
	block, position := int(r.mod&0x1FF), int(r.mod>>28)
	if r.mod&^0xF00001FF != 0 ||
		block >= blocks(int(a.mcastCap), mad.MFTPerBlock) ||
		position >= blocks(int(a.ports)+1, mad.MFTPortMask) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.MFT
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		if err := a.sw.SetMFT(r.now, block, position, t); err != nil {
			return failed(err)
		}
	}
	t := a.sw.MFT(block, position)
	t.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) switchInfo(r *request) mad.Status {
	if r.set {
		var want mad.SwitchInfo
		if _, err := want.Parse(r.data); err != nil {
			return failed(err)
		}
		next := a.sw.SwitchInfo()
		next.LinearFDBTop = want.LinearFDBTop
		next.DefaultPort = want.DefaultPort
		next.DefaultMulticastPrimaryPort = want.DefaultMulticastPrimaryPort
		next.DefaultMulticastNotPrimaryPort = want.DefaultMulticastNotPrimaryPort
		next.LifeTimeValue = want.LifeTimeValue
		next.PortStateChange = want.PortStateChange
		next.MulticastFDBTop = want.MulticastFDBTop
		if !a.switchInfoOK(&next) {
			return mad.StatusInvalidField
		}
		if err := a.sw.SetSwitchInfo(r.now, next); err != nil {
			return failed(err)
		}
	}
	si := a.sw.SwitchInfo()
	si.Append(r.answer())
	return mad.StatusOK
}

// switchInfoOK checks the fields that a manager has written (IBA 14.2.5.4).
func (a *Agent) switchInfoOK(si *mad.SwitchInfo) bool {
	portOK := func(p ib.PortNum) bool { return uint8(p) <= a.ports || p == mad.LFTNone }
	// A MulticastFDBTop of 0 does not limit the table, 0xBFFF empties it.
	top := si.MulticastFDBTop
	return (si.LinearFDBTop == 0 || uint16(si.LinearFDBTop) < si.LinearFDBCap) &&
		portOK(si.DefaultPort) && portOK(si.DefaultMulticastPrimaryPort) && portOK(si.DefaultMulticastNotPrimaryPort) &&
		(top == 0 || top >= ib.LIDUnicastMax && int(top) < int(ib.LIDMulticastMin)+int(si.MulticastFDBCap))
}
