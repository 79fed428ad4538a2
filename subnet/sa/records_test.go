package sa

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// rich is a subnet with something in every table.
func rich(t testing.TB) *subnet.Subnet {
	s := world(t, "fat-tree:radix=4,levels=2", 1)
	for i, n := range s.Nodes {
		for p := range n.Ports {
			port := &n.Ports[p]
			if port.Tables == nil {
				continue
			}
			tb := *port.Tables
			tb.PKeys = make([]ib.PKey, 64)
			tb.PKeys[0], tb.PKeys[1], tb.PKeys[40] = 0xFFFF, ib.PKey(0x8000|i), ib.PKey(0x8100|p)
			tb.GUIDs = []ib.GUID{port.GUID, port.GUID + 0x1000_0000_0000_0000, 9: 77}
			tb.SLtoVL = []mad.SLtoVL{{0, 1, 2, ib.VL(i % 8)}}
			if n.IsSwitch() {
				tb.SLtoVL = make([]mad.SLtoVL, len(n.Ports))
				for in := range tb.SLtoVL {
					tb.SLtoVL[in] = mad.SLtoVL{ib.VL(in), ib.VL(p)}
				}
			}
			tb.VLArb[0] = make([]mad.VLArbEntry, 64)
			tb.VLArb[0][33] = mad.VLArbEntry{VL: 1, Weight: uint8(i)}
			tb.VLArb[1] = make([]mad.VLArbEntry, 32)
			port.Tables = &tb
		}
		if n.IsSwitch() {
			n.MFT = make([][]uint16, 40)
			for m := range n.MFT {
				n.MFT[m] = []uint16{uint16(m), 7}
			}
		}
	}
	s.Managers = append(s.Managers, subnet.Manager{Port: s.Port(hosts(s)[3]).GUID, LID: s.Port(hosts(s)[3]).Info.LID,
		Info: mad.SMInfo{GUID: 5, SMKey: 9, SMState: mad.SMStandby}})
	s.Index()
	return s
}

// oracle lists what a trusted asker is told without components, straight from the subnet.
func oracle(s *subnet.Subnet) map[mad.AttrID][][]byte {
	out := map[mad.AttrID][][]byte{}
	add := func(id mad.AttrID, r record) {
		b := r.Append(nil)
		b = append(b, make([]byte, mad.SARecordByID(id).Stride()-len(b))...)
		out[id] = append(out[id], b)
	}
	for i, n := range s.Nodes {
		for p := range n.Ports {
			port := &n.Ports[p]
			end := n.EndPort(ib.PortNum(p))
			lid := n.Ports[end].Info.LID
			if lid == 0 || !n.IsSwitch() && (p == 0 || !port.Up() &&
				s.Self != subnet.Ref{Node: int32(i), Port: ib.PortNum(p)}) {
				continue
			}
			pi := mad.PortInfoRecord{EndportLID: lid, PortNum: ib.PortNum(p), PortInfo: port.Info}
			add(mad.AttrPortInfoRecord, &pi)
			if port.Up() {
				far := s.Nodes[port.Peer]
				add(mad.AttrLinkRecord, &mad.LinkRecord{FromLID: lid, FromPort: ib.PortNum(p), ToPort: port.PeerPort,
					ToLID: far.BaseLID(port.PeerPort)})
			}
			for in, m := range port.Tables.SLtoVL {
				add(mad.AttrSLtoVLRecord, &mad.SLtoVLRecord{LID: lid, InputPortNum: ib.PortNum(in),
					OutputPortNum: ib.PortNum(p), SLtoVL: m})
			}
			for b, block := range [][]mad.VLArbEntry{port.Tables.VLArb[0][:32], port.Tables.VLArb[0][32:],
				port.Tables.VLArb[1], make([]mad.VLArbEntry, 32)} {
				add(mad.AttrVLArbRecord, &mad.VLArbRecord{LID: lid, OutputPortNum: ib.PortNum(p),
					BlockNum: mad.VLArbBlock(b + 1), VLArb: mad.VLArb(block)})
			}
			for b := range 2 {
				add(mad.AttrPKeyTableRecord, &mad.PKeyTableRecord{LID: lid, BlockNum: uint16(b), PortNum: ib.PortNum(p),
					PKeys: mad.PKeyTable(port.Tables.PKeys[32*b:])})
			}
			if end != ib.PortNum(p) {
				continue
			}
			nr := mad.NodeRecord{LID: lid, NodeInfo: n.Info, NodeString: mad.MakeNodeDescription(n.Desc)}
			nr.PortGUID, nr.LocalPortNum = port.GUID, ib.PortNum(p)
			add(mad.AttrNodeRecord, &nr)
			add(mad.AttrGUIDInfoRecord, &mad.GUIDInfoRecord{LID: lid, GUID: mad.GUIDInfo(port.Tables.GUIDs[:8])})
			add(mad.AttrGUIDInfoRecord, &mad.GUIDInfoRecord{LID: lid, BlockNum: 1, GUID: mad.GUIDInfo{0, 77}})
			if !n.IsSwitch() {
				continue
			}
			add(mad.AttrSwitchInfoRecord, &mad.SwitchInfoRecord{LID: lid, SwitchInfo: n.Switch})
			for b := 0; b*64 < len(n.LFT); b++ {
				r := mad.LFTRecord{LID: lid, BlockNum: uint16(b)}
				for l := range r.LFT {
					r.LFT[l] = 0xFF
					if b*64+l < len(n.LFT) {
						r.LFT[l] = n.LFT[b*64+l]
					}
				}
				add(mad.AttrLFTRecord, &r)
			}
			for b := range 2 {
				r := mad.MFTRecord{LID: lid, BlockNum: uint16(b)}
				for m := range r.MFT {
					if b*32+m < len(n.MFT) {
						r.MFT[m] = uint16(b*32 + m)
					}
				}
				add(mad.AttrMFTRecord, &r)
			}
		}
	}
	for _, m := range s.Managers {
		add(mad.AttrSMInfoRecord, &mad.SMInfoRecord{LID: m.LID, SMInfo: m.Info})
	}
	return out
}

// raw is bytes as a record.
type raw []byte

func (r raw) Append(b []byte) []byte { return append(b, r...) }

// sorted puts records in an order of their own.
func sorted(recs [][]byte) [][]byte {
	out := slices.Clone(recs)
	slices.SortFunc(out, bytes.Compare)
	return out
}

func sameRecords(t *testing.T, what string, got, want [][]byte) {
	t.Helper()
	g, w := sorted(got), sorted(want)
	if len(g) != len(w) {
		t.Fatalf("%s: %d records, want %d", what, len(g), len(w))
	}
	for i := range g {
		if !bytes.Equal(g[i], w[i]) {
			t.Fatalf("%s:\n got %x\nwant %x", what, g[i], w[i])
		}
	}
}

// TestTablesAgainstOracle holds every record that comes from the subnet against a scan of it: all of them, and
// what any components select.
func TestTablesAgainstOracle(t *testing.T) {
	s := rich(t)
	a := newAdmin(s)
	c := clientAt(t, a, 2).trusted()
	rng := rand.New(rand.NewPCG(5, 6))
	want := oracle(s)
	for _, id := range []mad.AttrID{mad.AttrNodeRecord, mad.AttrPortInfoRecord, mad.AttrSLtoVLRecord,
		mad.AttrSwitchInfoRecord, mad.AttrLFTRecord, mad.AttrMFTRecord,
		mad.AttrVLArbRecord, mad.AttrSMInfoRecord, mad.AttrPKeyTableRecord, mad.AttrGUIDInfoRecord,
		mad.AttrLinkRecord} {
		table := mad.SARecordByID(id)
		if len(want[id]) == 0 {
			t.Fatalf("%s: nothing to compare", table.Name)
		}
		an := c.ask(mad.MethodGetTable, id, 0, nil).want(t, mad.StatusOK, len(want[id]))
		if int(an.AttributeOffset)*8 != table.Stride() || !an.rmpp.Active() {
			t.Errorf("%s: offset %d, RMPP %+v", table.Name, an.AttributeOffset, an.rmpp)
		}
		sameRecords(t, table.Name, an.records, want[id])
		hits := 0
		for range 200 {
			like := want[id][rng.IntN(len(want[id]))]
			comps := uint64(0)
			for range 1 + rng.IntN(3) {
				f := &table.Fields[rng.IntN(min(len(table.Fields), 6))]
				if rng.IntN(4) == 0 {
					f = &table.Fields[rng.IntN(len(table.Fields))]
				}
				comps |= table.Component(f.Name)
			}
			var expect [][]byte
			for _, r := range want[id] {
				if matches(table, comps, r, like) {
					expect = append(expect, r)
				}
			}
			got := c.ask(mad.MethodGetTable, id, comps, raw(like))
			sameRecords(t, table.Name, got.records, expect)
			hits += len(expect)
			one := c.ask(mad.MethodGet, id, comps, raw(like))
			switch {
			case len(expect) > 1:
				one.want(t, mad.StatusSATooManyRecords, -1)
			default:
				one.want(t, mad.StatusOK, 1)
				sameRecords(t, table.Name, one.records, expect)
			}
		}
		if hits == 0 {
			t.Errorf("%s: no query selected anything", table.Name)
		}
	}
}

// matches compares field by field.
func matches(table *mad.SARecord, comps uint64, r, like []byte) bool {
	for i := range table.Fields {
		f := &table.Fields[i]
		first := table.Component(f.Name)
		if f.Name == "Options" || first == 0 {
			continue
		}
		for e := range f.Len() {
			c := first
			if f.Len() <= 16 {
				c = first << e
			}
			if comps&c == c && !bytes.Equal(element(f, r, e), element(f, like, e)) {
				return false
			}
		}
	}
	return true
}

func element(f *mad.Field, b []byte, e int) []byte {
	if f.Bits > 64 {
		return f.Slice(b, e)
	}
	return binary.BigEndian.AppendUint64(nil, f.Get(b, e))
}

func TestByOtherLIDs(t *testing.T) {
	s := rich(t) // two LIDs each
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	lid := s.Port(hosts(s)[4]).Info.LID
	an := c.ask(mad.MethodGet, mad.AttrNodeRecord, nodeLID, &mad.NodeRecord{LID: lid + 1}).want(t, mad.StatusOK, 1)
	var r mad.NodeRecord
	if _, err := r.Parse(an.records[0]); err != nil || r.LID != lid {
		t.Errorf("LID %v, %v; want %v", r.LID, err, lid)
	}
	c.ask(mad.MethodGet, mad.AttrNodeRecord, nodeLID, &mad.NodeRecord{LID: 4000}).want(t, mad.StatusSANoRecords, -1)
	// All ports of a switch answer to its LID.
	sw := s.Nodes[s.Switches[0]]
	c.ask(mad.MethodGetTable, mad.AttrPortInfoRecord, portLID,
		&mad.PortInfoRecord{EndportLID: sw.Ports[0].Info.LID}).want(t, mad.StatusOK, len(sw.Ports))
}

func TestIsSMPorts(t *testing.T) {
	s := rich(t)
	s.Port(hosts(s)[5]).Info.CapabilityMask = mad.CapIsSM | mad.CapTrap
	a := newAdmin(s)
	c := clientAt(t, a, 1)
	rec := &mad.PortInfoRecord{PortInfo: mad.PortInfo{CapabilityMask: mad.CapIsSM}}
	c.askMod(mad.MethodGetTable, mad.AttrPortInfoRecord, mad.SACapMaskMatch, portCapMask, rec).want(t, mad.StatusOK, 2)
	rec.CapabilityMask = mad.CapIsSM | mad.CapTrap
	c.ask(mad.MethodGetTable, mad.AttrPortInfoRecord, portCapMask, rec).want(t, mad.StatusOK, 1) // exactly this mask
	rec.CapabilityMask = mad.CapSMDisabled
	c.askMod(mad.MethodGetTable, mad.AttrPortInfoRecord, mad.SACapMaskMatch, portCapMask, rec).want(t, mad.StatusOK, 0)
}

// TestSecrets: an untrusted asker sees no keys.
func TestSecrets(t *testing.T) {
	s := rich(t)
	a := newAdmin(s)
	c := clientAt(t, a, 2)
	for _, r := range c.ask(mad.MethodGetTable, mad.AttrPortInfoRecord, 0, nil).records {
		var p mad.PortInfoRecord
		if _, err := p.Parse(r); err != nil || p.MKey != 0 {
			t.Fatalf("M_Key %#x, %v", p.MKey, err)
		}
	}
	mkey := comp(mad.PortInfoRecordTable, "M_Key")
	c.ask(mad.MethodGetTable, mad.AttrPortInfoRecord, mkey,
		&mad.PortInfoRecord{PortInfo: mad.PortInfo{MKey: 0xABCD}}).want(t, mad.StatusOK, 0)
	for _, r := range c.ask(mad.MethodGetTable, mad.AttrSMInfoRecord, 0, nil).want(t, mad.StatusOK, 2).records {
		var m mad.SMInfoRecord
		if _, err := m.Parse(r); err != nil || m.SMKey != 0 {
			t.Fatalf("SM_Key %#x, %v", m.SMKey, err)
		}
	}
	c.ask(mad.MethodGetTable, mad.AttrPKeyTableRecord, 0, nil).want(t, mad.StatusSAReqInvalid, -1)
	if an := c.trusted().ask(mad.MethodGetTable, mad.AttrPKeyTableRecord, 0, nil); an.Status != mad.StatusOK ||
		len(an.records) == 0 {
		t.Errorf("a trusted asker gets %d tables of keys, status %v", len(an.records), an.Status)
	}
}

// TestForeignPorts: ports of other partitions are not there for an untrusted asker.
func TestForeignPorts(t *testing.T) {
	s := world(t, "star:4", 0)
	for i, r := range hosts(s) {
		s.Port(r).Tables = &subnet.PortTables{PKeys: []ib.PKey{0x8001 + ib.PKey(i/2)}}
	}
	s.Nodes[s.Switches[0]].Ports[0].Tables = &subnet.PortTables{PKeys: []ib.PKey{0x8001}}
	a := newAdmin(s)
	for _, tc := range []struct {
		host  int
		attr  mad.AttrID
		count int
	}{
		{0, mad.AttrNodeRecord, 3}, {3, mad.AttrNodeRecord, 2}, {3, mad.AttrSwitchInfoRecord, 0},
		{0, mad.AttrSwitchInfoRecord, 1},
		{0, mad.AttrLinkRecord, 4}, {3, mad.AttrLinkRecord, 0}, {3, mad.AttrPathRecord, 4},
		{3, mad.AttrSMInfoRecord, 0}, {1, mad.AttrSMInfoRecord, 1},
	} {
		c := clientAt(t, a, tc.host)
		if an := c.ask(mad.MethodGetTable, tc.attr, 0, nil); len(an.records) != tc.count {
			t.Errorf("host %d, %s: %d records, want %d", tc.host, mad.AttrName(mad.ClassSA, tc.attr), len(an.records),
				tc.count)
		}
	}
	clientAt(t, a, 3).trusted().ask(mad.MethodGetTable, mad.AttrNodeRecord, 0, nil).want(t, mad.StatusOK, 5)
}

func TestClassPortInfo(t *testing.T) {
	a := newAdmin(world(t, "star:2", 0))
	c := clientAt(t, a, 1)
	an := c.ask(mad.MethodGet, mad.AttrClassPortInfo, 0, nil).want(t, mad.StatusOK, 1)
	var i mad.ClassPortInfo
	if _, err := i.Parse(an.records[0]); err != nil || i.ClassVersion != 2 || i.CapabilityMask != 0x2700 ||
		i.CapabilityMask2 != 1<<3|1<<5|1<<7|1<<12 || i.RespTimeValue != 18 {
		t.Errorf("%+v, %v", i, err)
	}
	c.ask(mad.MethodGetTable, mad.AttrClassPortInfo, 0, nil).want(t, mad.StatusUnsupMethodAttr, -1)
}

func TestBadRequests(t *testing.T) {
	s := world(t, "star:2", 0)
	a := newAdmin(s)
	c := clientAt(t, a, 0)
	c.ask(mad.MethodGet, 0x0077, 0, nil).want(t, mad.StatusUnsupMethodAttr, -1)
	c.ask(mad.MethodSet, mad.AttrNodeRecord, 0, nil).want(t, mad.StatusUnsupMethodAttr, -1)
	c.ask(mad.MethodSet, mad.AttrLinkRecord, 0, nil).want(t, mad.StatusUnsupMethodAttr, -1)
	c.ask(mad.MethodDelete, mad.AttrPathRecord, 0, nil).want(t, mad.StatusUnsupMethodAttr, -1)
	c.ask(mad.MethodGetMulti, mad.AttrNodeRecord, 0, nil).want(t, mad.StatusUnsupMethodAttr, -1)
	old := request(mad.MethodGet, mad.AttrNodeRecord, 0, 0, 0, nil)
	old[2] = 1
	resp, ok := a.Handle(0, c.env, old)
	if !ok || parseAnswer(t, resp).Status != mad.StatusBadVersion {
		t.Errorf("another class version: %v", ok)
	}
	// An error brings the request back.
	rec := &mad.PathRecord{SGID: ib.GID{1}, DGID: ib.GID{2}}
	req := request(mad.MethodGetTable, mad.AttrPathRecord, 0, 0, prSGID|prDGID, rec)
	resp, _ = a.Handle(0, c.env, req)
	an := parseAnswer(t, resp)
	if an.Status != mad.StatusSAInvalidGID || an.Method != mad.MethodGetTableResp || an.rmpp.Active() ||
		len(resp) != mad.Size || !bytes.Equal(resp[mad.SADataOff:], req[mad.SADataOff:]) {
		t.Errorf("%v, %d bytes", an.Header, len(resp))
	}
	before := a.Counters()
	for _, tc := range []struct {
		name string
		env  mad.Envelope
		req  []byte
	}{
		{"a stranger", mad.Envelope{LID: 999}, request(mad.MethodGet, mad.AttrNodeRecord, 0, 0, 0, nil)},
		{"a wrong key", c.env, request(mad.MethodGet, mad.AttrNodeRecord, 0, 5, 0, nil)},
		{"a response", c.env, request(mad.MethodGetResp, mad.AttrNodeRecord, 0, 0, 0, nil)},
		{"a trap", c.env, request(mad.MethodTrap, mad.AttrNotice, 0, 0, 0, nil)},
		{"another class", c.env, func() []byte {
			b := request(mad.MethodGet, mad.AttrNodeRecord, 0, 0, 0,
				nil)
			b[1] = 4
			return b
		}()},
	} {
		if _, ok := a.Handle(0, tc.env, tc.req); ok {
			t.Errorf("%s is answered", tc.name)
		}
	}
	after := a.Counters()
	if after.Strangers != before.Strangers+1 || after.BadSMKey != before.BadSMKey+1 ||
		after.Malformed != before.Malformed+3 {
		t.Errorf("counters %+v, before %+v", after, before)
	}
	// Truncated requests: too short for the headers is dropped, too short for the record is refused.
	full := request(mad.MethodGet, mad.AttrPathRecord, 0, 0, prSLID|prDLID, &mad.PathRecord{SLID: 1, DLID: 2})
	for n := range full {
		resp, ok := a.Handle(0, c.env, full[:n])
		if ok != (n >= mad.SADataOff) {
			t.Fatalf("%d bytes: answered %v", n, ok)
		}
		if ok && n < mad.SADataOff+64 && parseAnswer(t, resp).Status != mad.StatusSAReqInvalid {
			t.Fatalf("%d bytes: %v", n, parseAnswer(t, resp).Status)
		}
	}
	if _, ok := New(Config{}).Handle(0, c.env, full); ok {
		t.Error("an administrator without a subnet answers")
	}
}

func TestResponseMax(t *testing.T) {
	a := New(Config{ResponseMax: 1000})
	a.SetSubnet(world(t, "star:16", 0))
	c := clientAt(t, a, 0)
	c.ask(mad.MethodGetTable, mad.AttrNodeRecord, 0, nil).want(t, mad.StatusSANoResources, -1)
	c.ask(mad.MethodGetTable, mad.AttrPathRecord, 0, nil).want(t, mad.StatusSANoResources, -1)
	c.ask(mad.MethodGetTable, mad.AttrSwitchInfoRecord, 0, nil).want(t, mad.StatusOK, 1)
}

// TestPortsThatSayNothing: a port beside the LID of an adapter means nothing, and every block of arbitration can be
// asked for. That is how osmtest asks for tables of lanes.
func TestPortsThatSayNothing(t *testing.T) {
	s := rich(t)
	host, leaf := hosts(s)[2], s.Nodes[s.Switches[0]]
	tables := *leaf.Ports[0].Tables
	tables.VLArb = [2][]mad.VLArbEntry{}
	leaf.Ports[0].Tables, leaf.Ports[1].Tables = &tables, &tables
	c := clientAt(t, newAdmin(s), 0)
	for i, l := range []ib.LID{s.Port(host).Info.LID, leaf.Ports[0].Info.LID} {
		for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
			an := c.ask(mad.MethodGet, mad.AttrVLArbRecord, vlarbLID|vlarbPort|comp(mad.VLArbRecordTable, "BlockNum"),
				&mad.VLArbRecord{LID: l, BlockNum: k}).want(t, mad.StatusOK, 1)
			var r mad.VLArbRecord
			if _, err := r.Parse(an.records[0]); err != nil || r.BlockNum != k ||
				(r.VLArb[1].Weight != 0) != (i == 0 && k == mad.VLArbLow1) {
				t.Errorf("LID %v: %+v, %v", l, r, err)
			}
		}
		c.ask(mad.MethodGet, mad.AttrSLtoVLRecord, slvlLID|slvlPorts, &mad.SLtoVLRecord{LID: l}).want(t, mad.StatusOK,
			1)
		c.trusted().ask(mad.MethodGet, mad.AttrPKeyTableRecord,
			pkeyLID|pkeyPort|comp(mad.PKeyTableRecordTable, "BlockNum"), &mad.PKeyTableRecord{LID: l}).want(t,
			mad.StatusOK, 1)
	}
	// A table that is not known is not made up.
	c.ask(mad.MethodGetTable, mad.AttrVLArbRecord, vlarbLID|vlarbPort,
		&mad.VLArbRecord{LID: leaf.Ports[0].Info.LID, OutputPortNum: 1}).want(t, mad.StatusOK, 0)
	// Without a LID it is a port like any other.
	for _, r := range c.ask(mad.MethodGetTable, mad.AttrVLArbRecord, vlarbPort,
		&mad.VLArbRecord{OutputPortNum: 2}).records {
		if r[2] != 2 {
			t.Errorf("port %d", r[2])
		}
	}
}
