package agent

import (
	"bytes"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

const perm = ib.LIDPermissive

// TestHopRules goes through IBA 14.2.2 rule by rule. Empty LIDs stand for
// permissive ones.
func TestHopRules(t *testing.T) {
	const ca, sw, rt = ib.NodeCA, ib.NodeSwitch, ib.NodeRouter
	for _, tc := range []struct {
		name string
		in   Hop
		want Decision
	}{
		// Outgoing, from the sender.
		{"C14-9:1 CA sends", Hop{NodeType: ca, FromHere: true, HopCount: 3}, Decision{Do: SendPort, HopPointer: 1}},
		{"C14-9:1 switch sends", Hop{NodeType: sw, FromHere: true, HopCount: 3}, Decision{Do: SendPort, HopPointer: 1}},
		{"C14-9:1 router sends", Hop{NodeType: rt, FromHere: true, HopCount: 63},
			Decision{Do: SendPort, HopPointer: 1}},
		{"LID-routed first", Hop{NodeType: ca, FromHere: true, HopCount: 3, DrSLID: 7}, Decision{Do: AsAddressed}},
		{"no hops: own agent", Hop{NodeType: ca, FromHere: true}, Decision{Do: Local, HopPointer: 1}},
		{"no hops, then LID", Hop{NodeType: ca, FromHere: true, DrDLID: 9},
			Decision{Do: SendLID, HopPointer: 1, DLID: 9}},
		{"sender with a hop pointer", Hop{NodeType: sw, FromHere: true, HopPointer: 1, HopCount: 3},
			Decision{HopPointer: 1}},
		{"sender at the end", Hop{NodeType: sw, FromHere: true, HopPointer: 3, HopCount: 3}, Decision{HopPointer: 3}},
		{"sender past the end", Hop{NodeType: ca, FromHere: true, HopPointer: 4, HopCount: 3}, Decision{HopPointer: 4}},

		// Outgoing, from a link.
		{"C14-9:1 not incremented, CA", Hop{NodeType: ca, HopCount: 3}, Decision{}},
		{"C14-9:1 not incremented, switch", Hop{NodeType: sw, HopCount: 3}, Decision{}},
		{"directed part starts at a switch", Hop{NodeType: sw, HopCount: 3, DrSLID: 7},
			Decision{Do: SendPort, HopPointer: 1}},
		{"directed part cannot start at a CA", Hop{NodeType: ca, HopCount: 3, DrSLID: 7}, Decision{}},
		{"C14-9:2 first hop", Hop{NodeType: sw, HopPointer: 1, HopCount: 3},
			Decision{Do: SendPort, HopPointer: 2, Record: true}},
		{"C14-9:2 last but one", Hop{NodeType: sw, HopPointer: 2, HopCount: 3},
			Decision{Do: SendPort, HopPointer: 3, Record: true}},
		{"C14-9:2 CA does not forward", Hop{NodeType: ca, HopPointer: 1, HopCount: 3}, Decision{HopPointer: 1}},
		{"C14-9:2 router does not forward", Hop{NodeType: rt, HopPointer: 2, HopCount: 3}, Decision{HopPointer: 2}},
		{"C14-9:3 end at CA", Hop{NodeType: ca, HopPointer: 3, HopCount: 3},
			Decision{Do: Local, HopPointer: 4, Record: true}},
		{"C14-9:3 end at switch", Hop{NodeType: sw, HopPointer: 3, HopCount: 3},
			Decision{Do: Local, HopPointer: 4, Record: true}},
		{"C14-9:3 end at hop 63", Hop{NodeType: sw, HopPointer: 63, HopCount: 63},
			Decision{Do: Local, HopPointer: 64, Record: true}},
		{"C14-9:3 no hops", Hop{NodeType: ca}, Decision{Do: Local, HopPointer: 1}},
		{"C14-9:3 LID-routed on", Hop{NodeType: sw, HopPointer: 3, HopCount: 3, DrDLID: 9},
			Decision{Do: SendLID, HopPointer: 4, Record: true, DLID: 9}},
		{"C14-9:3 CA cannot route on", Hop{NodeType: ca, HopPointer: 3, HopCount: 3, DrDLID: 9},
			Decision{HopPointer: 3}},
		{"C14-9:4 after the LID-routed part", Hop{NodeType: ca, HopPointer: 4, HopCount: 3, DrDLID: 9},
			Decision{Do: Local, HopPointer: 4}},
		{"C14-9:4 at a switch", Hop{NodeType: sw, HopPointer: 4, HopCount: 3, DrDLID: 9},
			Decision{Do: Local, HopPointer: 4}},
		{"C14-9:5 beyond", Hop{NodeType: sw, HopPointer: 5, HopCount: 3}, Decision{HopPointer: 5}},
		{"C14-9:5 far beyond", Hop{NodeType: ca, HopPointer: 255, HopCount: 3}, Decision{HopPointer: 255}},
		{"hop count too large", Hop{NodeType: sw, HopPointer: 1, HopCount: 64}, Decision{HopPointer: 1}},

		// Returning, from the answering agent.
		{"C14-13:1 CA answers", Hop{NodeType: ca, FromHere: true, Returning: true, HopPointer: 4, HopCount: 3},
			Decision{Do: SendPort, HopPointer: 3}},
		{"C14-13:1 switch answers", Hop{NodeType: sw, FromHere: true, Returning: true, HopPointer: 4, HopCount: 3},
			Decision{Do: SendPort, HopPointer: 3}},
		{"answer starts LID-routed", Hop{NodeType: ca, FromHere: true, Returning: true, HopPointer: 4, HopCount: 3,
			DrDLID: 9}, Decision{Do: AsAddressed, HopPointer: 4}},
		{"answer to oneself", Hop{NodeType: ca, FromHere: true, Returning: true, HopPointer: 1}, Decision{Do: Local}},
		{"answer without hops by LID", Hop{NodeType: ca, FromHere: true, Returning: true, HopPointer: 1, DrSLID: 7},
			Decision{Do: SendLID, DLID: 7}},
		{"answer in the middle", Hop{NodeType: sw, FromHere: true, Returning: true, HopPointer: 2, HopCount: 3},
			Decision{HopPointer: 2}},

		// Returning, from a link.
		{"C14-13:2 forward", Hop{NodeType: sw, Returning: true, HopPointer: 3, HopCount: 3},
			Decision{Do: SendPort, HopPointer: 2}},
		{"C14-13:2 forward to the last", Hop{NodeType: sw, Returning: true, HopPointer: 2, HopCount: 3},
			Decision{Do: SendPort, HopPointer: 1}},
		{"C14-13:2 CA does not forward", Hop{NodeType: ca, Returning: true, HopPointer: 2, HopCount: 3},
			Decision{HopPointer: 2}},
		{"C14-13:3 home at CA", Hop{NodeType: ca, Returning: true, HopPointer: 1, HopCount: 3}, Decision{Do: Local}},
		{"C14-13:3 home at switch", Hop{NodeType: sw, Returning: true, HopPointer: 1, HopCount: 3},
			Decision{Do: Local}},
		{"C14-13:3 LID-routed on", Hop{NodeType: sw, Returning: true, HopPointer: 1, HopCount: 3, DrSLID: 7},
			Decision{Do: SendLID, DLID: 7}},
		{"C14-13:3 CA cannot route on", Hop{NodeType: ca, Returning: true, HopPointer: 1, HopCount: 3, DrSLID: 7},
			Decision{HopPointer: 1}},
		{"C14-13:4 home by LID", Hop{NodeType: ca, Returning: true, HopCount: 3, DrSLID: 7}, Decision{Do: Local}},
		{"C14-13:1 LID-routed part leads to a switch",
			Hop{NodeType: sw, Returning: true, HopPointer: 4, HopCount: 3, DrDLID: 9},
			Decision{Do: SendPort, HopPointer: 3}},
		{"C14-13:1 but not to a CA", Hop{NodeType: ca, Returning: true, HopPointer: 4, HopCount: 3, DrDLID: 9},
			Decision{HopPointer: 4}},
		{"not decremented", Hop{NodeType: sw, Returning: true, HopPointer: 4, HopCount: 3}, Decision{HopPointer: 4}},
		{"C14-13:5 beyond", Hop{NodeType: sw, Returning: true, HopPointer: 5, HopCount: 3}, Decision{HopPointer: 5}},
		{"hop count too large, returning", Hop{NodeType: sw, Returning: true, HopPointer: 2, HopCount: 200},
			Decision{HopPointer: 2}},
	} {
		if tc.in.DrSLID == 0 {
			tc.in.DrSLID = perm
		}
		if tc.in.DrDLID == 0 {
			tc.in.DrDLID = perm
		}
		if got := Decide(tc.in); got != tc.want {
			t.Errorf("%s: %+v\n got %+v\nwant %+v", tc.name, tc.in, got, tc.want)
		}
	}
}

// TestHopRulesNeverIndexOutside looks at every input: the new hop pointer is one
// that the paths have, and an end is never forwarded by a node that cannot.
func TestHopRulesNeverIndexOutside(t *testing.T) {
	for _, typ := range []ib.NodeType{ib.NodeCA, ib.NodeSwitch, ib.NodeRouter} {
		for _, here := range []bool{false, true} {
			for _, back := range []bool{false, true} {
				for _, slid := range []ib.LID{perm, 7} {
					for _, dlid := range []ib.LID{perm, 9} {
						for p := range 256 {
							for c := range 256 {
								h := Hop{typ, here, back, uint8(p), uint8(c), slid, dlid}
								d := Decide(h)
								switch {
								case d.Do == SendPort && (d.HopPointer < 1 || d.HopPointer > mad.MaxHops ||
									int(d.HopPointer) > c):
									t.Fatalf("%+v: sends by hop %d", h, d.HopPointer)
								case d.Record && (p < 1 || p > mad.MaxHops):
									t.Fatalf("%+v: records at hop %d", h, p)
								case d.Do == Discard && (d.HopPointer != uint8(p) || d.Record):
									t.Fatalf("%+v: discards and changes: %+v", h, d)
								case d.Do == SendPort && !here && typ != ib.NodeSwitch:
									t.Fatalf("%+v: forwarded by a %v", h, typ)
								case d.Do == SendLID && d.DLID == perm:
									t.Fatalf("%+v: sent to the permissive LID", h)
								}
							}
						}
					}
				}
			}
		}
	}
}

// fabric is a line of nodes: cables[node][port] is the far end.
type fabric struct {
	t      *testing.T
	agents []*Agent
	cables map[[2]int][2]int // node, port
	lids   map[ib.LID]int
	lid    []ib.LID // of each node
}

// travel takes an SMP from a node's manager until somebody keeps it, and says
// who, and which nodes it passed.
func (f *fabric) travel(from int, dlid ib.LID, smp []byte) (at int, verdict Verdict, path []int) {
	f.t.Helper()
	at, path = from, []int{from}
	slid := f.lid[from]
	port, here := ib.PortNum(0), true
	for range 100 {
		request := !mad.View(smp).Method().IsResponse()
		verdict = f.agents[at].Deliver(0, port, here, smp)
		answered := request && mad.View(smp).Method().IsResponse()
		var next [2]int
		switch verdict.Do {
		case SendPort:
			far, ok := f.cables[[2]int{at, int(verdict.Port)}]
			if !ok {
				return at, Verdict{Do: Discard}, path
			}
			next = far
		case SendLID:
			next = [2]int{f.lids[verdict.DLID], 1}
			slid = f.lid[at]
		case AsAddressed:
			to := dlid
			if answered {
				to = slid
			}
			next = [2]int{f.lids[to], 1}
			slid = f.lid[at]
		default:
			return at, verdict, path
		}
		at, port, here = next[0], ib.PortNum(next[1]), false
		path = append(path, at)
	}
	f.t.Fatal("the SMP never arrives")
	return
}

// line is CA(0) - switch(1) - switch(2) - CA(3); ports 1-3, 4-5, 6-1.
func line(t *testing.T) *fabric {
	f := &fabric{t: t, cables: map[[2]int][2]int{}, lids: map[ib.LID]int{}}
	for i, typ := range []ib.NodeType{ib.NodeCA, ib.NodeSwitch, ib.NodeSwitch, ib.NodeCA} {
		lid := ib.LID(11 + i)
		if typ == ib.NodeSwitch {
			s := newFakeSwitch(8)
			s.desc = "sw"
			f.agents = append(f.agents, New(s))
		} else {
			f.agents = append(f.agents, New(newFakeNode(typ, 1)))
		}
		f.lid = append(f.lid, lid)
		f.lids[lid] = i
	}
	for _, c := range [][4]int{{0, 1, 1, 3}, {1, 4, 2, 5}, {2, 6, 3, 1}} {
		f.cables[[2]int{c[0], c[1]}] = [2]int{c[2], c[3]}
		f.cables[[2]int{c[2], c[3]}] = [2]int{c[0], c[1]}
	}
	return f
}

func TestDirectedRouteThereAndBack(t *testing.T) {
	for _, tc := range []struct {
		name     string
		smp      mad.SMP
		from     int
		dlid     ib.LID // where a LID-routed first part leads
		path     []int
		returned []ib.PortNum // ReturnPath[1:]
		local    ib.PortNum   // NodeInfo.LocalPortNum
		typ      ib.NodeType
	}{
		{name: "oneself", smp: mad.SMP{}, path: []int{0}, local: 1, typ: ib.NodeCA},
		{name: "one hop", smp: mad.SMP{Path: []ib.PortNum{1}}, path: []int{0, 1, 0}, returned: []ib.PortNum{3},
			local: 3, typ: ib.NodeSwitch},
		{name: "three hops", smp: mad.SMP{Path: []ib.PortNum{1, 4, 6}}, path: []int{0, 1, 2, 3, 2, 1, 0},
			returned: []ib.PortNum{3, 5, 1}, local: 1, typ: ib.NodeCA},
		{name: "from a switch", from: 1, smp: mad.SMP{Path: []ib.PortNum{4, 6}}, path: []int{1, 2, 3, 2, 1},
			returned: []ib.PortNum{5, 1}, local: 1, typ: ib.NodeCA},
		{name: "LID, then directed", dlid: 12, smp: mad.SMP{DrSLID: 11, Path: []ib.PortNum{4, 6}},
			path: []int{0, 1, 2, 3, 2, 1, 0}, returned: []ib.PortNum{5, 1}, local: 1, typ: ib.NodeCA},
		{name: "directed, then LID", smp: mad.SMP{DrDLID: 14, Path: []ib.PortNum{1}}, path: []int{0, 1, 3, 1, 0},
			returned: []ib.PortNum{3}, local: 1, typ: ib.NodeCA},
		{name: "LID, directed, LID", dlid: 12, smp: mad.SMP{DrSLID: 11, DrDLID: 14, Path: []ib.PortNum{4}},
			path: []int{0, 1, 2, 3, 2, 1, 0}, returned: []ib.PortNum{5}, local: 1, typ: ib.NodeCA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := line(t)
			tc.smp.Directed, tc.smp.Method, tc.smp.Attr, tc.smp.TID = true, mad.MethodGet, mad.AttrNodeInfo, 0x77
			smp, err := tc.smp.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			at, v, path := f.travel(tc.from, tc.dlid, smp)
			if at != tc.from || v.Do != ToManager {
				t.Fatalf("ended at node %d with %v after %v:\n%s", at, v, path, mad.Dump(smp))
			}
			if len(path) != len(tc.path) {
				t.Fatalf("went by %v, want %v", path, tc.path)
			}
			for i := range path {
				if path[i] != tc.path[i] {
					t.Fatalf("went by %v, want %v", path, tc.path)
				}
			}
			r := mad.View(smp)
			if r.Method() != mad.MethodGetResp || r.Status() != mad.StatusOK || !r.Returning() || r.HopPointer() != 0 ||
				r.TID() != 0x77 {
				t.Errorf("response is\n%s", mad.Dump(smp))
			}
			for i, p := range tc.returned {
				if got := r.ReturnPath(uint8(i + 1)); got != p {
					t.Errorf("ReturnPath[%d] = %d, want %d", i+1, got, p)
				}
			}
			var n mad.NodeInfo
			if _, err := n.Parse(r.Data()); err != nil || n.LocalPortNum != tc.local || n.NodeType != tc.typ {
				t.Errorf("NodeInfo %+v, err %v; want port %d of a %v", n, err, tc.local, tc.typ)
			}
		})
	}
}

func TestDirectedRouteDeadEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		path []ib.PortNum
		at   int
	}{
		{"port that the sender lacks", []ib.PortNum{2}, 0},
		{"port 0", []ib.PortNum{1, 0}, 1},
		{"port that the switch lacks", []ib.PortNum{1, 9}, 1},
		{"port without a cable", []ib.PortNum{1, 2}, 1},
		{"through a CA", []ib.PortNum{1, 4, 6, 1}, 3},
	} {
		f := line(t)
		smp, err := (&mad.SMP{Directed: true, Method: mad.MethodGet, Attr: mad.AttrNodeInfo, Path: tc.path}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if at, v, _ := f.travel(0, 0, smp); at != tc.at || v.Do != Discard {
			t.Errorf("%s: %v at node %d, want Discard at %d", tc.name, v.Do, at, tc.at)
		}
	}
}

func TestDeliverSorts(t *testing.T) {
	b, n := benchCA(t)
	build := func(m mad.Method, attr mad.AttrID, directed, returning bool) []byte {
		smp, err := (&mad.SMP{Directed: directed, Method: m, Attr: attr}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		mad.View(smp).SetReturning(returning)
		return smp
	}
	check := func(what string, smp []byte, want Action) {
		t.Helper()
		if v := b.Deliver(0, 1, false, smp); v.Do != want {
			t.Errorf("%s: %v, want %v", what, v.Do, want)
		}
	}
	check("Get", build(mad.MethodGet, mad.AttrNodeInfo, false, false), AsAddressed)
	check("GetResp", build(mad.MethodGetResp, mad.AttrNodeInfo, false, false), ToManager)
	check("Trap", build(mad.MethodTrap, mad.AttrNotice, false, false), ToManager)
	check("TrapRepress", build(mad.MethodTrapRepress, mad.AttrNotice, false, false), Discard)
	check("directed GetResp", build(mad.MethodGetResp, mad.AttrNodeInfo, true, true), ToManager)
	check("directed Get on the way back", build(mad.MethodGet, mad.AttrNodeInfo, true, true), Discard)
	check("directed GetResp on the way out", build(mad.MethodGetResp, mad.AttrNodeInfo, true, false), Discard)
	check("SMInfo without a manager", build(mad.MethodGet, mad.AttrSMInfo, false, false), AsAddressed)
	n.ports[1].CapabilityMask |= mad.CapIsSM
	check("SMInfo with a manager", build(mad.MethodGet, mad.AttrSMInfo, false, false), ToManager)
	check("short", build(mad.MethodGet, mad.AttrNodeInfo, false, false)[:255], Discard)
	perf := build(mad.MethodGet, mad.AttrPortCounters, false, false)
	perf[1] = byte(mad.ClassPerf)
	check("another class", perf, Discard)
	if v := b.Deliver(0, 3, false, build(mad.MethodGet, mad.AttrNodeInfo, false, false)); v.Do != Discard {
		t.Errorf("a port that does not exist: %v", v.Do)
	}
}

// TestPass holds the short way of packets in the middle of their routes against the hop rules: whatever Pass takes,
// DeliverFrom would have sent out of the same port, with the same bytes.
func TestPass(t *testing.T) {
	passed := 0
	for _, a := range []*Agent{New(newFakeSwitch(4)), New(newFakeNode(ib.NodeCA, 2))} {
		for _, method := range []mad.Method{mad.MethodGet, mad.MethodGetResp} {
			for _, class := range []mad.Class{mad.ClassSMDirect, mad.ClassSMLID} {
				for returning := range 2 {
					for count := range 67 {
						for hop := range count + 3 {
							for in := range 6 {
								smp := make([]byte, mad.Size)
								h := mad.Header{BaseVersion: 1, MgmtClass: class, ClassVersion: 1, Method: method,
									ClassSpecific: uint16(hop<<8 | count), AttributeID: mad.AttrNodeInfo}
								copy(smp, h.Append(nil))
								v := mad.View(smp)
								v.SetReturning(returning == 1 && class == mad.ClassSMDirect)
								for i := range 4 {
									smp[32+i] = 0xFF
								}
								for i := range 64 {
									smp[128+i], smp[192+i] = byte((i*7+count)%6), byte((i*5+hop)%6)
								}
								long := append([]byte(nil), smp...)
								out, ok := a.Pass(ib.PortNum(in), smp)
								if !ok {
									if !bytes.Equal(smp, long) {
										t.Fatalf("hop %d of %d: refused, but changed", hop, count)
									}
									continue
								}
								passed++
								if v := a.DeliverFrom(0, ib.PortNum(in), ib.LIDPermissive, false,
									long); v.Do != SendPort || v.Port != out || !bytes.Equal(smp, long) {
									t.Fatalf("hop %d of %d, returning %d, in by %d: passed to port %d, the "+
										"rules say %v to port %d", hop, count, returning, in, out, v.Do, v.Port)
								}
							}
						}
					}
				}
			}
		}
	}
	if passed < 1000 {
		t.Errorf("only %d packets passed", passed)
	}
}
