package sa

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

func parsePath(t testing.TB, b []byte) mad.PathRecord {
	t.Helper()
	var r mad.PathRecord
	if _, err := r.Parse(b); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPathGet(t *testing.T) {
	s := world(t, "fat-tree:radix=8,levels=2", 0)
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	an := c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID|prNumbPath|prReversible, &mad.PathRecord{
		SGID: hostGID(s, 0), DGID: hostGID(s, 31), NumbPath: 1, Reversible: true}).want(t, mad.StatusOK, 1)
	if an.rmpp.Active() || an.Method != mad.MethodGetResp || an.TransactionID != 0x1234 {
		t.Errorf("%v, RMPP %+v", an.Header, an.rmpp)
	}
	got := parsePath(t, an.records[0])
	want := mad.PathRecord{
		SGID: hostGID(s, 0), DGID: hostGID(s, 31), SLID: s.Port(hosts(s)[0]).Info.LID,
		DLID:       s.Port(hosts(s)[31]).Info.LID,
		Reversible: true, PKey: 0xFFFF, MTUSelector: mad.SelectExactly, MTU: ib.MTU4096,
		RateSelector: mad.SelectExactly, Rate: 21,
		PacketLifeTimeSelector: mad.SelectExactly, PacketLifeTime: 18,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestPathOracle holds all paths against walks along the tables that know nothing of the engine.
func TestPathOracle(t *testing.T) {
	s := world(t, "fat-tree:radix=4,levels=3", 0)
	// One slow and one narrow link: paths across them are slower.
	n := s.Nodes[s.Switches[0]]
	for p := 1; p <= 2; p++ {
		port := &n.Ports[p]
		far := &s.Nodes[port.Peer].Ports[port.PeerPort]
		for _, x := range []*subnet.Port{port, far} {
			x.Info.SetSpeeds(ib.EDR, ib.EDR, ib.EDR)
			x.Info.NeighborMTU = ib.MTU1024
		}
	}
	a := newAdmin(s)
	an := clientAt(t, a, 0).ask(mad.MethodGetTable, mad.AttrPathRecord, 0, nil)
	var ends []subnet.Ref
	s.EachEnd(func(r subnet.Ref, p *subnet.Port) { ends = append(ends, r) })
	an.want(t, mad.StatusOK, len(ends)*len(ends))
	slow := 0
	for i, b := range an.records {
		src, dst := ends[i/len(ends)], ends[i%len(ends)]
		r := parsePath(t, b)
		if r.SLID != s.Port(src).Info.LID || r.DLID != s.Port(dst).Info.LID || r.SGID.GUID() != s.Port(src).GUID ||
			r.DGID.GUID() != s.Port(dst).GUID {
			t.Fatalf("record %d is %+v", i, r)
		}
		if src == dst {
			continue
		}
		mtu, rate := ib.MTU4096, mad.Rate(21)
		at, out := src.Node, src.Port
		for hop := 0; at != dst.Node; hop++ {
			if hop > 10 {
				t.Fatal("a loop in the test's tables")
			}
			if s.Nodes[at].IsSwitch() {
				out = s.Nodes[at].LFT[r.DLID]
			}
			p := &s.Nodes[at].Ports[out]
			mtu = min(mtu, p.Info.NeighborMTU)
			if p.Rate().Speed == ib.EDR {
				rate = 16
			}
			at = p.Peer
		}
		if r.MTU != mtu || r.Rate != rate {
			t.Errorf("%v to %v: MTU %v rate %v, want %v and %v", r.SLID, r.DLID, r.MTU, r.Rate, mtu, rate)
		}
		if rate == 16 {
			slow++
		}
	}
	if slow == 0 {
		t.Error("no path crosses the slow links")
	}
}

func TestPathAnswers(t *testing.T) {
	s := world(t, "fat-tree:radix=4,levels=2", 0)
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	all := len(a.ends)
	g0, g1 := hostGID(s, 0), hostGID(s, 1)
	l0, l1 := s.Port(hosts(s)[0]).Info.LID, s.Port(hosts(s)[1]).Info.LID
	both := mad.PathRecord{SGID: g0, DGID: g1, SLID: l0, DLID: l1}
	with := func(f func(*mad.PathRecord)) *mad.PathRecord { r := both; f(&r); return &r }
	for _, tc := range []struct {
		name   string
		method mad.Method
		comps  uint64
		rec    *mad.PathRecord
		status mad.Status
		count  int
	}{
		{"by LIDs", mad.MethodGetTable, prSLID | prDLID, &both, mad.StatusOK, 1},
		{"by LID and GID", mad.MethodGet, prSLID | prDGID, &both, mad.StatusOK, 1},
		{"from one", mad.MethodGetTable, prSLID, &both, mad.StatusOK, all},
		{"to one", mad.MethodGetTable, prDGID, &both, mad.StatusOK, all},
		{"many for a Get", mad.MethodGet, prSGID, &both, mad.StatusSATooManyRecords, -1},
		{"unknown GID", mad.MethodGet, prSGID | prDGID, with(func(r *mad.PathRecord) { r.DGID[15] ^= 0x55 }),
			mad.StatusSAInvalidGID, -1},
		{"another subnet's GID", mad.MethodGet, prSGID | prDGID, with(func(r *mad.PathRecord) { r.DGID[0] = 0x20 }),
			mad.StatusSAInvalidGID, -1},
		{"unknown LID", mad.MethodGet, prSLID | prDLID, with(func(r *mad.PathRecord) { r.DLID = 999 }),
			mad.StatusSANoRecords, -1},
		{"unknown LID in a table", mad.MethodGetTable, prSLID | prDLID, with(func(r *mad.PathRecord) { r.DLID = 999 }),
			mad.StatusOK, 0},
		{"GID and LID of different ports", mad.MethodGet, prSGID | prDGID | prDLID,
			with(func(r *mad.PathRecord) { r.DLID = l0 }), mad.StatusSANoRecords, -1},
		{"no paths wanted", mad.MethodGetTable, prSLID | prDLID | prNumbPath, &both, mad.StatusOK, 0},
		{"raw", mad.MethodGet, prSLID | prDLID | prRaw, with(func(r *mad.PathRecord) { r.RawTraffic = true }),
			mad.StatusSANoRecords, -1},
		{"a partition of nobody", mad.MethodGet, prSLID | prDLID | prPKey,
			with(func(r *mad.PathRecord) { r.PKey = 0x8123 }), mad.StatusSANoRecords, -1},
		{"the default partition", mad.MethodGet, prSLID | prDLID | prPKey,
			with(func(r *mad.PathRecord) { r.PKey = 0x7FFF }), mad.StatusOK, 1},
		{"MTU too large", mad.MethodGet, prSLID | prDLID | prMTU, with(func(r *mad.PathRecord) { r.MTU = ib.MTU4096 }),
			mad.StatusSANoRecords, -1},
		{"rate too large", mad.MethodGet, prSLID | prDLID | prRate,
			with(func(r *mad.PathRecord) { r.RateSelector, r.Rate = mad.SelectExactly, 23 }), mad.StatusSANoRecords,
			-1},
		{"life too short", mad.MethodGet, prSLID | prDLID | prLife,
			with(func(r *mad.PathRecord) { r.PacketLifeTimeSelector, r.PacketLifeTime = mad.SelectLess, 18 }),
			mad.StatusSANoRecords, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.t = t
			c.ask(tc.method, mad.AttrPathRecord, tc.comps, tc.rec).want(t, tc.status, tc.count)
		})
	}
	c.t = t
	for _, tc := range []struct {
		sel       mad.Selector
		want, got ib.MTU
	}{{mad.SelectLess, ib.MTU2048, ib.MTU1024}, {mad.SelectExactly, ib.MTU2048, ib.MTU2048},
		{mad.SelectGreater, ib.MTU1024, ib.MTU4096}, {mad.SelectLargest, 0, ib.MTU4096}} {
		an := c.ask(mad.MethodGet, mad.AttrPathRecord, prSLID|prDLID|prMTU,
			with(func(r *mad.PathRecord) { r.MTUSelector, r.MTU = tc.sel, tc.want })).want(t, mad.StatusOK, 1)
		if r := parsePath(t, an.records[0]); r.MTU != tc.got {
			t.Errorf("MTU %v %v gives %v, want %v", tc.sel, tc.want, r.MTU, tc.got)
		}
	}
	an := c.ask(mad.MethodGet, mad.AttrPathRecord, prSLID|prDLID|prRate,
		with(func(r *mad.PathRecord) { r.RateSelector, r.Rate = mad.SelectLess, 21 })).want(t, mad.StatusOK, 1)
	if r := parsePath(t, an.records[0]); r.Rate != 18 {
		t.Errorf("less than 400 Gb/s is %v, want 300", r.Rate)
	}
}

func TestPathAlternates(t *testing.T) {
	s := world(t, "fat-tree:radix=4,levels=2", 2)
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	rec := &mad.PathRecord{SGID: hostGID(s, 0), DGID: hostGID(s, 7), NumbPath: 4}
	c.ask(mad.MethodGetTable, mad.AttrPathRecord, prSGID|prDGID, rec).want(t, mad.StatusOK, 16)
	an := c.ask(mad.MethodGetTable, mad.AttrPathRecord, prSGID|prDGID|prNumbPath, rec).want(t, mad.StatusOK, 4)
	seen := map[[2]ib.LID]bool{}
	for i, b := range an.records {
		r := parsePath(t, b)
		if int(r.SLID)&3 != i || int(r.DLID)&3 != i {
			t.Errorf("path %d is %v to %v: the path bits don't go up together", i, r.SLID, r.DLID)
		}
	}
	all := c.ask(mad.MethodGetTable, mad.AttrPathRecord, prSGID|prDGID, rec)
	for _, b := range all.records {
		r := parsePath(t, b)
		seen[[2]ib.LID{r.SLID, r.DLID}] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d different paths of 16", len(seen))
	}
	// A switch has one LID only.
	sw := s.Nodes[s.Switches[0]].Ports[0].Info.LID
	c.ask(mad.MethodGetTable, mad.AttrPathRecord, prSGID|prDLID, &mad.PathRecord{SGID: hostGID(s, 0), DLID: sw}).want(t,
		mad.StatusOK, 4)
	// A LID that was asked for is the one that is used.
	an = c.ask(mad.MethodGetTable, mad.AttrPathRecord, prSGID|prDGID|prDLID|prSLID,
		&mad.PathRecord{SGID: rec.SGID, DGID: rec.DGID,
			DLID: s.Port(hosts(s)[7]).Info.LID + 3, SLID: s.Port(hosts(s)[0]).Info.LID + 1}).want(t, mad.StatusOK, 1)
	if r := parsePath(t, an.records[0]); r.DLID&3 != 3 || r.SLID&3 != 1 {
		t.Errorf("%v to %v", r.SLID, r.DLID)
	}
}

type fixedLevels ib.SL

func (l fixedLevels) Level(subnet.Ref, ib.LID) ib.SL { return ib.SL(l) }

type fixedQoS struct {
	choice Choice
	asked  PathQuery
}

func (f *fixedQoS) Path(q PathQuery) Choice { f.asked = q; return f.choice }

func TestPathLevels(t *testing.T) {
	s := world(t, "star:3", 0)
	rec := &mad.PathRecord{SGID: hostGID(s, 0), DGID: hostGID(s, 1), SL: 5, ServiceID: 77, QoSClass: 3}
	sl := func(a *Admin, comps uint64) ib.SL {
		t.Helper()
		an := clientAt(t, a, 0).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID|comps, rec).want(t, mad.StatusOK,
			1)
		return parsePath(t, an.records[0]).SL
	}
	a := newAdmin(s)
	if sl(a, 0) != 0 || sl(a, prSL) != 5 {
		t.Error("without policy the asker chooses")
	}
	s.Partitions = []subnet.Partition{{Key: 0xFFFF, SL: 2, HasSL: true}}
	if sl(a, 0) != 2 {
		t.Error("the partition's level is not used")
	}
	clientAt(t, a, 0).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID|prSL, rec).want(t, mad.StatusSANoRecords, 0)
	s.Partitions[0].PathMTU, s.Partitions[0].PathRate = ib.MTU512, 2
	if r := parsePath(t, clientAt(t, a, 0).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID, rec).want(t,
		mad.StatusOK, 1).records[0]); r.MTU != ib.MTU512 || r.Rate != 2 {
		t.Errorf("a partition that bounds its paths gave %+v", r)
	}
	s.Partitions[0].PathMTU, s.Partitions[0].PathRate = ib.MTU4096, 24 // more than the links have
	if r := parsePath(t, clientAt(t, a, 0).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID, rec).want(t,
		mad.StatusOK, 1).records[0]); r.MTU == ib.MTU512 || r.Rate == 24 {
		t.Errorf("a bound that is none gave %+v", r)
	}
	s.Partitions[0].PathMTU, s.Partitions[0].PathRate = 0, 0
	q := &fixedQoS{choice: Choice{HasSL: true, SL: 3, MTUMax: ib.MTU1024, RateMax: 3, PacketLifeTime: 12}}
	a.SetQoS(q)
	an := clientAt(t, a, 0).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID|prServiceID|prQoSClass, rec).want(t,
		mad.StatusOK, 1)
	if r := parsePath(t, an.records[0]); r.SL != 3 || r.MTU != ib.MTU1024 || r.Rate != 3 || r.PacketLifeTime != 12 ||
		r.ServiceID != 77 || r.QoSClass != 3 {
		t.Errorf("policy gave %+v", r)
	}
	if q.asked.ServiceID != 77 || q.asked.QoSClass != 3 || !q.asked.HasServiceID || q.asked.SGID != rec.SGID {
		t.Errorf("policy was asked %+v", q.asked)
	}
	s.Levels = fixedLevels(6)
	if sl(a, 0) != 6 {
		t.Error("routing's level comes first")
	}
	q.choice = Choice{Deny: true}
	clientAt(t, a, 0).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID, rec).want(t, mad.StatusSANoRecords, 0)
}

func TestPathPartitions(t *testing.T) {
	s := world(t, "star:4", 0)
	keys := [][]ib.PKey{{0x7FFF, 0x8001}, {0x7FFF, 0x0001}, {0xFFFF, 0x0001}, {0x7FFF}}
	for i, r := range hosts(s) {
		s.Port(r).Tables = &subnet.PortTables{PKeys: keys[i]}
	}
	a := newAdmin(s)
	for src := range 4 {
		for dst := range 4 {
			want := false
			for _, k := range keys[src] {
				for _, l := range keys[dst] {
					want = want || k.Base() == l.Base() && (k.IsFull() || l.IsFull())
				}
			}
			c := clientAt(t, a, src)
			an := c.ask(mad.MethodGetTable, mad.AttrPathRecord, prSGID|prDGID,
				&mad.PathRecord{SGID: hostGID(s, src), DGID: hostGID(s, dst)})
			if (len(an.records) == 1) != want {
				t.Errorf("host %d to %d: %d paths, want %v", src, dst, len(an.records), want)
			}
		}
	}
	// Hosts 1 and 3 share nothing, so 3 does not hear of paths from 1, also not to 0.
	clientAt(t, a, 3).ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID,
		&mad.PathRecord{SGID: hostGID(s, 0), DGID: hostGID(s, 1)}).want(t, mad.StatusSANoRecords, 0)
	clientAt(t, a, 3).trusted().ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID,
		&mad.PathRecord{SGID: hostGID(s, 0), DGID: hostGID(s, 1)}).want(t, mad.StatusOK, 1)
}

func TestMultiPath(t *testing.T) {
	s := world(t, "fat-tree:radix=4,levels=2", 1)
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	rec := &mad.MultiPathRecord{SGIDCount: 2, DGIDCount: 2, NumbPath: 5,
		SDGID: [mad.MultiPathGIDs]ib.GID{hostGID(s, 0), hostGID(s, 1), hostGID(s, 4), hostGID(s, 5)}}
	an := c.ask(mad.MethodGetMulti, mad.AttrMultiPathRecord, mpSGIDCount|mpDGIDCount|mpNumbPath, rec).want(t,
		mad.StatusOK, 5)
	if an.Method != mad.MethodGetMultiResp || an.AttributeID != mad.AttrPathRecord || !an.rmpp.Active() {
		t.Errorf("%v", an.Header)
	}
	pairs := map[[2]ib.GID]int{}
	for _, b := range an.records[:4] {
		r := parsePath(t, b)
		pairs[[2]ib.GID{r.SGID, r.DGID}]++
	}
	if len(pairs) != 4 {
		t.Errorf("the first four paths join %d pairs", len(pairs))
	}
	c.ask(mad.MethodGetMulti, mad.AttrMultiPathRecord, mpSGIDCount|mpDGIDCount, rec).want(t, mad.StatusOK, 16)
	c.ask(mad.MethodGetMulti, mad.AttrMultiPathRecord, mpSGIDCount, rec).want(t, mad.StatusSAInsufComponents, -1)
	c.ask(mad.MethodGetMulti, mad.AttrMultiPathRecord, mpSGIDCount|mpDGIDCount,
		&mad.MultiPathRecord{SGIDCount: 9, DGIDCount: 9}).want(t, mad.StatusSAReqInvalid, -1)
	rec.SDGID[3] = ib.GID{0xFE, 0x80, 15: 1}
	c.ask(mad.MethodGetMulti, mad.AttrMultiPathRecord, mpSGIDCount|mpDGIDCount, rec).want(t, mad.StatusSAInvalidGID, -1)
	c.ask(mad.MethodGet, mad.AttrMultiPathRecord, 0, rec).want(t, mad.StatusUnsupMethodAttr, -1)
}

func TestTrace(t *testing.T) {
	s := world(t, "fat-tree:radix=4,levels=3", 0)
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	src, dst := hosts(s)[0], hosts(s)[15]
	an := c.ask(mad.MethodGetTraceTable, mad.AttrPathRecord, prSGID|prDGID,
		&mad.PathRecord{SGID: hostGID(s, 0), DGID: hostGID(s, 15)})
	an.want(t, mad.StatusOK, 7) // host, leaf, middle, root, middle, leaf, host
	if an.Method != mad.MethodGetTableResp || an.AttributeID != mad.AttrTraceRecord {
		t.Errorf("%v", an.Header)
	}
	at := src.Node
	for i, b := range an.records {
		var r mad.TraceRecord
		if _, err := r.Parse(b); err != nil {
			t.Fatal(err)
		}
		n := s.Nodes[at]
		if r.NodeID != n.Info.NodeGUID || r.NodeType != n.Info.NodeType {
			t.Fatalf("hop %d is %v, want %v", i, r.NodeID, n.Info.NodeGUID)
		}
		if i == len(an.records)-1 {
			if at != dst.Node || r.ExitPort != 0 {
				t.Errorf("ends at node %d by port %d", at, r.ExitPort)
			}
			break
		}
		at = n.Ports[r.ExitPort].Peer
	}
	c.ask(mad.MethodGetTraceTable, mad.AttrTraceRecord, prSGID, &mad.PathRecord{SGID: hostGID(s, 0)}).want(t,
		mad.StatusSAInsufComponents, -1)
}

func TestPathToGroup(t *testing.T) {
	s := world(t, "star:3", 0)
	a := newAdmin(s)
	g, err := a.Precreate(broadcast(0xFFFF))
	if err != nil {
		t.Fatal(err)
	}
	c := clientAt(t, a, 0)
	for _, comps := range []uint64{prSGID | prDGID, prSGID | prDLID} {
		an := c.ask(mad.MethodGet, mad.AttrPathRecord, comps,
			&mad.PathRecord{SGID: hostGID(s, 0), DGID: g.MGID, DLID: g.MLID}).want(t, mad.StatusOK, 1)
		if r := parsePath(t, an.records[0]); r.DLID != g.MLID || r.DGID != g.MGID || r.MTU != g.MTU ||
			r.Rate != g.Rate {
			t.Errorf("%+v", r)
		}
	}
	c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDGID,
		&mad.PathRecord{SGID: hostGID(s, 0), DGID: ib.GID{0xFF, 0x12, 15: 9}}).want(t, mad.StatusSAInvalidGID, -1)
	c.ask(mad.MethodGet, mad.AttrPathRecord, prSGID|prDLID, &mad.PathRecord{SGID: hostGID(s, 0), DLID: 0xC123}).want(t,
		mad.StatusSANoRecords, -1)
}

// broadcast is IP over InfiniBand's broadcast group of a partition.
func broadcast(key ib.PKey) GroupInfo {
	g := ib.GID{0xFF, 0x12, 0x40, 0x1B, byte(key >> 8), byte(key), 12: 0xFF, 13: 0xFF, 14: 0xFF, 15: 0xFF}
	return GroupInfo{MGID: g, PKey: key, QKey: 0x0B1B, MTU: ib.MTU2048, Rate: 3}
}
