package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// query is the request that is being answered.
type query struct {
	now     ib.Time
	env     mad.Envelope
	from    subnet.Ref // who asks
	trusted bool
	method  mad.Method
	mod     uint32
	comps   uint64
	data    []byte // what follows the headers

	table *mad.SARecord
	// mask has a 1 in every bit that a record has to share with data. Its room is kept from query to query.
	mask  []byte
	count int
	full  bool // no room for another record

	respAttr mad.AttrID
	stride   int
}

// has reports whether all of the components were given.
func (q *query) has(comps uint64) bool { return q.comps&comps == comps }

// row is what the administrator does for an attribute: by method, nil where there is nothing.
type row struct {
	table *mad.SARecord
	// list gives all records that match, for Get and GetTable.
	list                        func(*Admin, *query) mad.Status
	set, del, getMulti, getPath func(*Admin, *query) mad.Status
}

// rows is the table of attributes.
var rows = map[mad.AttrID]row{
	mad.AttrNodeRecord:       {table: mad.NodeRecordTable, list: (*Admin).listNodes},
	mad.AttrPortInfoRecord:   {table: mad.PortInfoRecordTable, list: (*Admin).listPorts},
	mad.AttrSLtoVLRecord:     {table: mad.SLtoVLRecordTable, list: (*Admin).listSLtoVL},
	mad.AttrSwitchInfoRecord: {table: mad.SwitchInfoRecordTable, list: (*Admin).listSwitches},
	mad.AttrLFTRecord:        {table: mad.LFTRecordTable, list: (*Admin).listLFTs},
	mad.AttrMFTRecord:        {table: mad.MFTRecordTable, list: (*Admin).listMFTs},
	mad.AttrVLArbRecord:      {table: mad.VLArbRecordTable, list: (*Admin).listVLArb},
	mad.AttrSMInfoRecord:     {table: mad.SMInfoRecordTable, list: (*Admin).listManagers},
	mad.AttrPKeyTableRecord:  {table: mad.PKeyTableRecordTable, list: (*Admin).listPKeys},
	mad.AttrGUIDInfoRecord: {table: mad.GUIDInfoRecordTable, list: (*Admin).listGUIDs, set: (*Admin).setGUIDs,
		del: (*Admin).deleteGUIDs},
	mad.AttrLinkRecord:      {table: mad.LinkRecordTable, list: (*Admin).listLinks},
	mad.AttrPathRecord:      {table: mad.PathRecordTable, list: (*Admin).listPaths, getPath: (*Admin).trace},
	mad.AttrTraceRecord:     {table: mad.PathRecordTable, getPath: (*Admin).trace},
	mad.AttrMultiPathRecord: {table: mad.MultiPathRecordTable, getMulti: (*Admin).multiPath},
	mad.AttrMCMemberRecord: {table: mad.MCMemberRecordTable, list: (*Admin).listMembers, set: (*Admin).join,
		del: (*Admin).leave},
	mad.AttrServiceRecord: {table: mad.ServiceRecordTable, list: (*Admin).listServices, set: (*Admin).setService,
		del: (*Admin).deleteService},
	mad.AttrInformInfo:       {table: mad.InformInfoTable, set: (*Admin).subscribe},
	mad.AttrInformInfoRecord: {table: mad.InformInfoRecordTable, list: (*Admin).listInforms},
}

// bufferKeep is how large the buffer of responses may stay between requests.
const bufferKeep = 1 << 20

// Handle answers a request: env is where it came from, req its bytes, put together if it came in segments. The response
// holds until the next call. There is none if the request is dropped.
func (a *Admin) Handle(now ib.Time, env mad.Envelope, req []byte) (resp []byte, ok bool) {
	a.counters.Requests++
	if len(req) < mad.SADataOff || a.net == nil {
		a.counters.Malformed++
		return nil, false
	}
	var h mad.Header
	var sh mad.SAHeader
	if _, err := h.Parse(req); err != nil {
		return nil, false
	}
	if _, err := sh.Parse(req[mad.SAHeaderOff:]); err != nil {
		return nil, false
	}
	if h.MgmtClass != mad.ClassSA {
		a.counters.Malformed++
		return nil, false
	}
	respond, known := responses[h.Method]
	if !known {
		if h.Method == mad.MethodReportResp {
			a.HandleReportResp(now, env, req)
		} else {
			a.counters.Malformed++
		}
		return nil, false
	}
	if sh.SMKey != 0 && sh.SMKey != a.cfg.SMKey {
		a.counters.BadSMKey++
		return nil, false
	}
	// What comes from a router is from another subnet, of which nobody here knows who is in which partition.
	from, ok := a.net.ByLID(env.LID)
	if !ok || a.net.Nodes[from.Node].Info.NodeType == ib.NodeRouter {
		a.counters.Strangers++
		return nil, false
	}
	q := &a.q
	*q = query{
		now: now, env: env, from: from, trusted: sh.SMKey != 0, method: h.Method, mod: h.AttributeModifier,
		comps: sh.ComponentMask, data: req[mad.SADataOff:], mask: q.mask[:0], respAttr: h.AttributeID,
	}
	if cap(a.out) > bufferKeep {
		a.out = nil
	}
	a.out = append(a.out[:0], req[:mad.SADataOff]...)
	status := mad.StatusBadVersion
	if h.BaseVersion == mad.BaseVersion && h.ClassVersion == mad.SAVersion {
		status = a.dispatch(q, &h)
	}
	if status == mad.StatusOK && q.full {
		status = mad.StatusSANoResources
	}
	return a.finish(q, &h, &sh, respond, status, req), true
}

// responses are the methods that are requests to an administrator, and their answers.
var responses = map[mad.Method]mad.Method{
	mad.MethodGet: mad.MethodGetResp, mad.MethodSet: mad.MethodGetResp, mad.MethodGetTable: mad.MethodGetTableResp,
	mad.MethodGetTraceTable: mad.MethodGetTableResp, mad.MethodGetMulti: mad.MethodGetMultiResp,
	mad.MethodDelete: mad.MethodDeleteResp,
}

// dispatch does what the request asks for; records go to the end of a.out.
func (a *Admin) dispatch(q *query, h *mad.Header) mad.Status {
	if h.AttributeID == mad.AttrClassPortInfo {
		if q.method != mad.MethodGet {
			return mad.StatusUnsupMethodAttr
		}
		return a.classPortInfo(q)
	}
	r, ok := rows[h.AttributeID]
	if !ok {
		return mad.StatusUnsupMethodAttr
	}
	var do func(*Admin, *query) mad.Status
	switch q.method {
	case mad.MethodGet, mad.MethodGetTable:
		do = r.list
	case mad.MethodSet:
		do = r.set
	case mad.MethodDelete:
		do = r.del
	case mad.MethodGetMulti:
		do = r.getMulti
	case mad.MethodGetTraceTable:
		do = r.getPath
	}
	if do == nil {
		return mad.StatusUnsupMethodAttr
	}
	q.table, q.stride = r.table, r.table.Stride()
	if q.comps == 0 {
		// A query without components need not bring a record.
	} else if len(q.data) < r.table.Size && h.AttributeID != mad.AttrMultiPathRecord {
		return mad.StatusSAReqInvalid
	}
	status := do(a, q)
	if q.method == mad.MethodGet && status == mad.StatusOK {
		// C15-0.1.30: a Get has exactly one answer.
		switch {
		case q.count == 0:
			status = mad.StatusSANoRecords
		case q.count > 1:
			status = mad.StatusSATooManyRecords
		}
	}
	return status
}

// finish writes the headers of the response before the records.
func (a *Admin) finish(q *query, h *mad.Header, sh *mad.SAHeader, method mad.Method, status mad.Status,
	req []byte) []byte {
	h.Method, h.Status, h.AttributeID = method, status, q.respAttr
	h.ClassSpecific = 0
	sh.SMKey = 0 // C15-0.1.5
	sh.AttributeOffset = 0
	var rmpp mad.RMPP
	single := true
	if status != mad.StatusOK {
		a.counters.Errors++
		// What was asked comes back with the reason.
		a.out = append(a.out[:mad.SADataOff], req[mad.SADataOff:min(len(req), mad.Size)]...)
	} else {
		if q.count > 0 {
			sh.AttributeOffset = uint16(q.stride / 8)
		}
		if single = q.method == mad.MethodGet || q.method == mad.MethodSet || q.method == mad.MethodDelete; !single {
			rmpp = mad.RMPP{RMPPVersion: mad.RMPPVersion, RMPPType: mad.RMPPData, RRespTime: mad.RMPPRespTimeDefault,
				RMPPFlags: mad.RMPPActive}
		}
	}
	h.Append(a.out[:0])
	rmpp.Put(a.out)
	sh.Append(a.out[:mad.SAHeaderOff])
	if single {
		for len(a.out) < mad.Size {
			a.out = append(a.out, 0)
		}
	}
	a.counters.Responses++
	return a.out
}

// aim prepares the comparison of records with the query; components in skip are looked at by whoever lists.
func (a *Admin) aim(q *query, skip uint64) {
	q.mask = q.mask[:0]
	if q.comps&^skip != 0 {
		q.mask = q.table.AppendMask(q.mask, q.comps&^skip)
	}
}

// record is what a response is made of.
type record interface{ Append([]byte) []byte }

// add adds a record if it matches. It reports whether there is room for more.
func (a *Admin) add(q *query, r record) bool {
	start := len(a.out)
	a.out = r.Append(a.out)
	rec := a.out[start:]
	for i, m := range q.mask {
		if (rec[i]^q.data[i])&m != 0 {
			a.out = a.out[:start]
			return true
		}
	}
	return a.keep(q, start)
}

// keep pads the record that starts there and counts it.
func (a *Admin) keep(q *query, start int) bool {
	for (len(a.out)-start)%q.stride != 0 {
		a.out = append(a.out, 0)
	}
	q.count++
	if len(a.out) > a.cfg.ResponseMax || q.method == mad.MethodGet && q.count > 1 {
		q.full = q.method != mad.MethodGet
		return false
	}
	return true
}

// classPortInfo says what this administrator can do (IBA 15.2.5.1).
func (a *Admin) classPortInfo(q *query) mad.Status {
	c := mad.ClassPortInfo{
		BaseVersion: mad.BaseVersion, ClassVersion: mad.SAVersion,
		CapabilityMask:  capOptionalRecords | capUDMulticast | capMultiPath | capCapMaskMatch,
		CapabilityMask2: cap2MulticastTop | cap2AliasGUIDs | cap2ExtendedSpeeds | cap2SendOnlyFull,
		RespTimeValue:   respTime,
	}
	if a.cfg.QoS != nil {
		c.CapabilityMask2 |= cap2QoS
	}
	q.stride = (mad.ClassPortInfoLayout.Size + 7) &^ 7
	start := len(a.out)
	a.out = c.Append(a.out)
	a.keep(q, start)
	return mad.StatusOK
}

// Capabilities of an administrator (IBA 15.2.5.1).
const (
	capOptionalRecords uint16 = 1 << 8
	capUDMulticast     uint16 = 1 << 9
	capMultiPath       uint16 = 1 << 10
	capCapMaskMatch    uint16 = 1 << 13

	cap2QoS            uint32 = 1 << 1
	cap2MulticastTop   uint32 = 1 << 3
	cap2AliasGUIDs     uint32 = 1 << 5
	cap2ExtendedSpeeds uint32 = 1 << 7
	cap2SendOnlyFull   uint32 = 1 << 12

	// respTime is how long an answer takes at most: 4.096 us * 2^18, about a second.
	respTime = 18
)
