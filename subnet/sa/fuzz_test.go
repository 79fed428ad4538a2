package sa

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// FuzzHandle: whatever comes is answered or dropped, and answers are well formed.
func FuzzHandle(f *testing.F) {
	s := rich(f)
	for _, r := range hosts(s) {
		s.Port(r).Info.GUIDCap = 20
	}
	g0, g1 := hostGID(s, 0), hostGID(s, 1)
	for _, seed := range [][]byte{
		request(mad.MethodGetTable, mad.AttrNodeRecord, 0, 0, 0, nil),
		request(mad.MethodGet, mad.AttrPathRecord, 0, 0, prSGID|prDGID, &mad.PathRecord{SGID: g0, DGID: g1}),
		request(mad.MethodGetTable, mad.AttrPathRecord, 0, testKey, prSLID|prMTU|prRate|prLife,
			&mad.PathRecord{SLID: 3, MTU: 2}),
		request(mad.MethodGetTraceTable, mad.AttrPathRecord, 0, 0, prSGID|prDGID, &mad.PathRecord{SGID: g0, DGID: g1}),
		request(mad.MethodGetMulti, mad.AttrMultiPathRecord, 0, 0, mpSGIDCount|mpDGIDCount,
			&mad.MultiPathRecord{SGIDCount: 1, DGIDCount: 1, SDGID: [mad.MultiPathGIDs]ib.GID{g0, g1}}),
		request(mad.MethodSet, mad.AttrMCMemberRecord, 0, 0, joinNeeds|createNeeds, creating(g0)),
		request(mad.MethodDelete, mad.AttrMCMemberRecord, 0, testKey, joinNeeds, creating(g0)),
		request(mad.MethodSet, mad.AttrServiceRecord, 0, 0, svID|svGID,
			&mad.ServiceRecord{ServiceID: 5, ServiceGID: g0}),
		request(mad.MethodDelete, mad.AttrServiceRecord, 0, 0, svID|svGID,
			&mad.ServiceRecord{ServiceID: 5, ServiceGID: g0}),
		request(mad.MethodSet, mad.AttrGUIDInfoRecord, 0, 0, guidComps(1, 2),
			&mad.GUIDInfoRecord{LID: 2, GUID: mad.GUIDInfo{1: 5}}),
		request(mad.MethodDelete, mad.AttrGUIDInfoRecord, 0, testKey, guidComps(3),
			&mad.GUIDInfoRecord{LID: 2, BlockNum: 2}),
		request(mad.MethodSet, mad.AttrInformInfo, 0, 0, 0, everything()),
		request(mad.MethodGetTable, mad.AttrInformInfoRecord, 0, testKey, 0, nil),
		request(mad.MethodGetTable, mad.AttrPortInfoRecord, mad.SACapMaskMatch, 0, portCapMask, &mad.PortInfoRecord{}),
		request(mad.MethodReportResp, mad.AttrNotice, 0, 0, 0, nil),
		{1, 3, 2, 1},
	} {
		f.Add(seed, uint16(2))
		f.Add(seed[:min(len(seed), 70)], uint16(900))
	}
	a := New(Config{SMKey: testKey, ServicesMax: 50, SubscriptionsMax: 50, ReportsMax: 100})
	a.SetSubnet(s)
	now := ib.Time(0)
	f.Fuzz(func(t *testing.T, req []byte, lid uint16) {
		now += ib.Second
		resp, ok := a.Handle(now, mad.Envelope{LID: ib.LID(lid), QPN: 1}, req)
		if ok {
			if !mad.Method(resp[3]).IsResponse() {
				t.Fatalf("method %v", mad.Method(resp[3]))
			}
			parseAnswer(t, resp)
		}
		for {
			if _, b, _, ok := a.PollSend(); !ok {
				break
			} else if len(b) != mad.Size {
				t.Fatalf("a report of %d bytes", len(b))
			}
		}
		for {
			if _, ok := a.PollEvent(); !ok {
				break
			}
		}
		a.HandleTimer(now)
	})
}
