package mad

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
)

// saTyped pairs each record with its Go type.
var saTyped = []struct {
	table *SARecord
	fresh func() codec
}{
	{NodeRecordTable, func() codec { return new(NodeRecord) }},
	{PortInfoRecordTable, func() codec { return new(PortInfoRecord) }},
	{SLtoVLRecordTable, func() codec { return new(SLtoVLRecord) }},
	{SwitchInfoRecordTable, func() codec { return new(SwitchInfoRecord) }},
	{LFTRecordTable, func() codec { return new(LFTRecord) }},
	{MFTRecordTable, func() codec { return new(MFTRecord) }},
	{VLArbRecordTable, func() codec { return new(VLArbRecord) }},
	{SMInfoRecordTable, func() codec { return new(SMInfoRecord) }},
	{PKeyTableRecordTable, func() codec { return new(PKeyTableRecord) }},
	{GUIDInfoRecordTable, func() codec { return new(GUIDInfoRecord) }},
	{LinkRecordTable, func() codec { return new(LinkRecord) }},
	{ServiceRecordTable, func() codec { return new(ServiceRecord) }},
	{PathRecordTable, func() codec { return new(PathRecord) }},
	{MultiPathRecordTable, func() codec { return new(MultiPathRecord) }},
	{MCMemberRecordTable, func() codec { return new(MCMemberRecord) }},
	{TraceRecordTable, func() codec { return new(TraceRecord) }},
	{InformInfoTable, func() codec { return new(InformInfo) }},
	{InformInfoRecordTable, func() codec { return new(InformInfoRecord) }},
}

const testGUID ib.GUID = 0x0002c90300a1b2c1

var testGID = ib.MakeGID(ib.DefaultGIDPrefix, testGUID)

// saGolden is a value of every record and its bytes, worked out by hand from the standard's tables.
var saGolden = []struct {
	table *SARecord
	value codec
	hex   string // without trailing zeros
}{
	{NodeRecordTable, &NodeRecord{LID: 7, NodeInfo: NodeInfo{BaseVersion: 1, ClassVersion: 1, NodeType: ib.NodeCA,
		NumPorts:        1,
		SystemImageGUID: 0x11, NodeGUID: 0x22, PortGUID: 0x33, PartitionCap: 8, DeviceID: 0x1017, Revision: 0xA0,
		LocalPortNum: 1, VendorID: 0x2C9},
		NodeString: MakeNodeDescription("h1")},
		"0007 0000 01 01 01 01 0000000000000011 0000000000000022 0000000000000033 0008 1017 000000a0 01 0002c9 6831"},
	{PortInfoRecordTable, &PortInfoRecord{EndportLID: 7, PortNum: 1, Options: 0x80,
		PortInfo: PortInfo{MKey: 0x0102, LID: 7, LMC: 2}},
		"0007 01 80 0000000000000102 0000000000000000 0007 0000 00000000 0000 0000 00 000000 00 00 02"},
	{SLtoVLRecordTable, &SLtoVLRecord{LID: 9, InputPortNum: 3, OutputPortNum: 4,
		SLtoVL: SLtoVL{0, 1, 2, 3, 4, 5, 6, 7}}, "0009 03 04 00000000 01234567"},
	{SwitchInfoRecordTable, &SwitchInfoRecord{LID: 9,
		SwitchInfo: SwitchInfo{LinearFDBCap: 0xC000, LinearFDBTop: 5, MulticastFDBTop: 0xC001}},
		"0009 0000 c000 0000 0000 0005 00000000 00000000 0000 c001"},
	{LFTRecordTable, &LFTRecord{LID: 9, BlockNum: 2, LFT: LFT{0xFF, 1, 2}}, "0009 0002 00000000 ff0102"},
	{MFTRecordTable, &MFTRecord{LID: 9, Position: 3, BlockNum: 0x101, MFT: MFT{0x0003}}, "0009 3101 00000000 0003"},
	{VLArbRecordTable, &VLArbRecord{LID: 9, OutputPortNum: 4, BlockNum: VLArbHigh0, VLArb: VLArb{{1, 64}}},
		"0009 04 03 00000000 0140"},
	{SMInfoRecordTable, &SMInfoRecord{LID: 1, SMInfo: SMInfo{GUID: testGUID, SMKey: 5, ActCount: 6, Priority: 14,
		SMState: SMMaster}},
		"0001 0000 0002c90300a1b2c1 0000000000000005 00000006 e3"},
	{PKeyTableRecordTable, &PKeyTableRecord{LID: 9, BlockNum: 1, PortNum: 2, PKeys: PKeyTable{0xFFFF, 0x8001}},
		"0009 0001 02 000000 ffff 8001"},
	{GUIDInfoRecordTable, &GUIDInfoRecord{LID: 9, BlockNum: 1, GUID: GUIDInfo{testGUID}},
		"0009 01 00 00000000 0002c90300a1b2c1"},
	{LinkRecordTable, &LinkRecord{FromLID: 1, FromPort: 2, ToPort: 3, ToLID: 0x1234}, "0001 02 03 1234"},
	{ServiceRecordTable, &ServiceRecord{ServiceID: 0x1122334455667788, ServiceGID: testGID, ServicePKey: 0xFFFF,
		ServiceLease: 60,
		ServiceKey:   [16]byte{1}, ServiceName: [ServiceNameLen]byte{'a'}, ServiceData: [64]byte{16: 0xAB}},
		"1122334455667788 fe800000000000000002c90300a1b2c1 ffff 0000 0000003c 01000000000000000000000000000000 61" +
			strings.Repeat("00", 63) +
			"00000000000000000000000000000000 ab"},
	{PathRecordTable, &PathRecord{ServiceID: 0x1122334455667788, DGID: testGID,
		SGID: ib.MakeGID(ib.DefaultGIDPrefix, 5), DLID: 0x0102, SLID: 0x0304,
		RawTraffic: true, FlowLabel: 0x12345, HopLimit: 9, TClass: 8, Reversible: true, NumbPath: 127, PKey: 0x8001,
		QoSClass: 0xABC, SL: 5,
		MTUSelector: SelectExactly, MTU: ib.MTU4096, RateSelector: SelectExactly, Rate: 21,
		PacketLifeTimeSelector: SelectLess, PacketLifeTime: 18, Preference: 3},
		"1122334455667788 fe800000000000000002c90300a1b2c1 fe800000000000000000000000000005 0102 0304 81 2345 " +
			"09 08 ff 8001 abc5 85 95 52 03"},
	{MultiPathRecordTable, &MultiPathRecord{FlowLabel: 0x12345, HopLimit: 9, TClass: 8, Reversible: true, NumbPath: 2,
		PKey: 0x8001, QoSClass: 0xABC, SL: 5,
		MTUSelector: SelectExactly, MTU: ib.MTU4096, RateSelector: SelectExactly, Rate: 21, PacketLifeTime: 18,
		ServiceID: 0x1122334455667788, IndependenceSelector: 1, SGIDCount: 1, DGIDCount: 1,
		SDGID: [MultiPathGIDs]ib.GID{testGID}},
		"01 2345 09 08 82 8001 abc5 85 95 12 11 40 01 01 22334455667788 fe800000000000000002c90300a1b2c1"},
	{MCMemberRecordTable, &MCMemberRecord{MGID: ib.GID{0xFF, 0x12, 15: 1}, PortGID: testGID, QKey: 0x0B1B, MLID: 0xC001,
		MTUSelector: SelectExactly, MTU: ib.MTU2048,
		TClass: 7, PKey: 0xFFFF, RateSelector: SelectExactly, Rate: 3, PacketLifeTimeSelector: SelectExactly,
		PacketLifeTime: 18, SL: 5, FlowLabel: 0x12345,
		HopLimit: 9, Scope: 2, JoinState: JoinFull, ProxyJoin: true},
		"ff120000000000000000000000000001 fe800000000000000002c90300a1b2c1 00000b1b c001 84 07 ffff 83 92 51234509 " +
			"21 80"},
	{TraceRecordTable, &TraceRecord{GidPrefix: ib.DefaultGIDPrefix, IDGeneration: 2, NodeType: ib.NodeSwitch, NodeID: 1,
		ChassisID: 2, EntryPortID: 3, ExitPortID: 4, EntryPort: 5, ExitPort: 6},
		"fe80000000000000 0002 00 02 0000000000000001 0000000000000002 0000000000000003 0000000000000004 05 06"},
	{InformInfoTable, &InformInfo{LIDRangeBegin: 0xFFFF, IsGeneric: 1, Subscribe: 1, Type: 4, TrapNumberDeviceID: 64,
		QPN: 1, RespTimeValue: 18, ProducerTypeVendorID: 4},
		"00000000000000000000000000000000 ffff 0000 0000 01 01 0004 0040 000001 12 00 000004"},
	{InformInfoRecordTable, &InformInfoRecord{SubscriberGID: testGID, Enum: 3,
		InformInfo: InformInfo{LIDRangeBegin: 0xFFFF, IsGeneric: 1, Subscribe: 1, Type: 4, TrapNumberDeviceID: 64,
			QPN: 1, RespTimeValue: 18, ProducerTypeVendorID: 4}},
		"fe800000000000000002c90300a1b2c1 0003 000000000000 00000000000000000000000000000000 ffff 0000 0000 " +
			"01 01 0004 0040 000001 12 00 000004"},
}

func TestSAGolden(t *testing.T) {
	seen := map[AttrID]bool{}
	for _, tc := range saGolden {
		seen[tc.table.ID] = true
		want := unhex(t, tc.hex, tc.table.Size)
		if got := tc.value.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", tc.table.Name, got, want)
		}
		back := reflect.New(reflect.TypeOf(tc.value).Elem()).Interface().(codec)
		if n, err := back.Parse(append(want, 0xEE)); err != nil || n != tc.table.Size ||
			!reflect.DeepEqual(back, tc.value) {
			t.Errorf("%s: parsed %d bytes, %v:\n got %+v\nwant %+v", tc.table.Name, n, err, back, tc.value)
		}
		if a := Attr(ClassSA, tc.table.ID); a == nil || a.Name != tc.table.Name || a.Layout != &tc.table.Layout ||
			SARecordByID(tc.table.ID) != tc.table {
			t.Errorf("%s: not in the attribute table: %+v", tc.table.Name, a)
		}
	}
	for _, r := range saRecords {
		if !seen[r.ID] {
			t.Errorf("%s has no golden bytes", r.Name)
		}
	}
}

// TestSARoundTrip: every bit that a table has is carried by the Go type, and no other.
func TestSARoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, tc := range saTyped {
		for range 50 {
			raw := make([]byte, tc.table.Size)
			for i := range raw {
				raw[i] = byte(r.Uint32())
			}
			want := onlyFields(&tc.table.Layout, raw)
			v := tc.fresh()
			if n, err := v.Parse(raw); err != nil || n != tc.table.Size {
				t.Fatalf("%s: %d, %v", tc.table.Name, n, err)
			}
			if got := v.Append(nil); !bytes.Equal(got, want) {
				t.Fatalf("%s:\n got %x\nwant %x", tc.table.Name, got, want)
			}
		}
		full := tc.fresh().Append(nil)
		for n := range full {
			if got, err := tc.fresh().Parse(full[:n]); !errors.Is(err, ErrShort) || got != 0 {
				t.Errorf("%s: %d of %d bytes: %d, %v", tc.table.Name, n, len(full), got, err)
			}
		}
	}
}

// onlyFields clears the bits that no field has.
func onlyFields(l *Layout, b []byte) []byte {
	out := make([]byte, l.Size)
	for i := range l.Fields {
		f := &l.Fields[i]
		for e := range f.Len() {
			if f.Bits > 64 {
				copy(f.Slice(out, e), f.Slice(b, e))
			} else {
				f.Put(out, e, f.Get(b, e))
			}
		}
	}
	return out
}

// TestSAComponents holds the masks against the numbers that other administrators and clients use.
func TestSAComponents(t *testing.T) {
	for _, tc := range []struct {
		table *SARecord
		field string
		mask  uint64
	}{
		{NodeRecordTable, "LID", 1 << 0}, {NodeRecordTable, "BaseVersion", 1 << 2},
		{NodeRecordTable, "PortGUID", 1 << 8}, {NodeRecordTable, "VendorID", 1 << 13},
		{NodeRecordTable, "NodeString", 1 << 14},
		{PortInfoRecordTable, "EndportLID", 1 << 0}, {PortInfoRecordTable, "Options", 1 << 2},
		{PortInfoRecordTable, "M_Key", 1 << 3}, {PortInfoRecordTable, "CapabilityMask", 1 << 7},
		{PortInfoRecordTable, "PortState", 1 << 15}, {PortInfoRecordTable, "LMC", 1 << 20},
		{PortInfoRecordTable, "MTUCap", 1 << 31}, {PortInfoRecordTable, "ClientReregister", 1 << 43},
		{PortInfoRecordTable, "SubnetTimeOut", 1 << 45}, {PortInfoRecordTable, "RespTimeValue", 1 << 47},
		{PortInfoRecordTable, "MaxCreditHint", 1 << 50},
		{PortInfoRecordTable, "LinkRoundTripLatency", 1 << 52}, {PortInfoRecordTable, "CapabilityMask2", 1 << 53},
		{PortInfoRecordTable, "LinkSpeedExtEnabled", 1 << 57},
		{PortInfoRecordTable, "LinkSpeedExtActive2", 0},
		{SLtoVLRecordTable, "OutputPortNum", 1 << 2}, {VLArbRecordTable, "BlockNum", 1 << 2},
		{PKeyTableRecordTable, "BlockNum", 1 << 1}, {PKeyTableRecordTable, "PortNum", 1 << 2},
		{LFTRecordTable, "BlockNum", 1 << 1}, {MFTRecordTable, "Position", 1 << 1},
		{MFTRecordTable, "BlockNum", 1 << 3},
		{SMInfoRecordTable, "GUID", 1 << 2}, {SMInfoRecordTable, "SMState", 1 << 6},
		{GUIDInfoRecordTable, "BlockNum", 1 << 1}, {GUIDInfoRecordTable, "GUID", 1 << 4},
		{LinkRecordTable, "FromLID", 1 << 0}, {LinkRecordTable, "ToPort", 1 << 2}, {LinkRecordTable, "ToLID", 1 << 3},
		{ServiceRecordTable, "ServiceID", 1 << 0}, {ServiceRecordTable, "ServiceLease", 1 << 4},
		{ServiceRecordTable, "ServiceName", 1 << 6},
		{ServiceRecordTable, "ServiceData8", 1 << 7}, {ServiceRecordTable, "ServiceData16", 1 << 23},
		{ServiceRecordTable, "ServiceData32", 1 << 31}, {ServiceRecordTable, "ServiceData64", 1 << 35},
		{PathRecordTable, "ServiceID", 3}, {PathRecordTable, "DGID", 1 << 2}, {PathRecordTable, "SLID", 1 << 5},
		{PathRecordTable, "RawTraffic", 1 << 6}, {PathRecordTable, "FlowLabel", 1 << 8},
		{PathRecordTable, "NumbPath", 1 << 12}, {PathRecordTable, "P_Key", 1 << 13},
		{PathRecordTable, "QoSClass", 1 << 14}, {PathRecordTable, "SL", 1 << 15}, {PathRecordTable, "MTU", 1 << 17},
		{PathRecordTable, "PacketLifeTime", 1 << 21},
		{MultiPathRecordTable, "FlowLabel", 1 << 2}, {MultiPathRecordTable, "P_Key", 1 << 7},
		{MultiPathRecordTable, "PacketLifeTime", 1 << 15}, {MultiPathRecordTable, "IndependenceSelector", 1 << 17},
		{MultiPathRecordTable, "SGIDCount", 1 << 19}, {MultiPathRecordTable, "DGIDCount", 1 << 20},
		{MultiPathRecordTable, "ServiceIDLower", 1 << 21},
		{MCMemberRecordTable, "MGID", 1 << 0}, {MCMemberRecordTable, "Q_Key", 1 << 2},
		{MCMemberRecordTable, "MLID", 1 << 3}, {MCMemberRecordTable, "P_Key", 1 << 7},
		{MCMemberRecordTable, "SL", 1 << 12},
		{MCMemberRecordTable, "Scope", 1 << 15}, {MCMemberRecordTable, "JoinState", 1 << 16},
		{MCMemberRecordTable, "ProxyJoin", 1 << 17},
		{InformInfoRecordTable, "Enum", 1 << 1}, {InformInfoRecordTable, "GID", 1 << 3},
		{InformInfoRecordTable, "IsGeneric", 1 << 7}, {InformInfoRecordTable, "TrapNumberDeviceID", 1 << 10},
		{InformInfoRecordTable, "QPN", 1 << 11}, {InformInfoRecordTable, "ProducerTypeVendorID", 1 << 15},
	} {
		if got := tc.table.Component(tc.field); got != tc.mask {
			t.Errorf("%s.%s has mask %#x, want %#x", tc.table.Name, tc.field, got, tc.mask)
		}
	}
	for _, tc := range []struct {
		table  *SARecord
		stride int
	}{{NodeRecordTable, 112}, {PortInfoRecordTable, 72}, {SLtoVLRecordTable, 16}, {SwitchInfoRecordTable, 24},
		{LFTRecordTable, 72}, {MFTRecordTable, 72}, {VLArbRecordTable, 72},
		{SMInfoRecordTable, 32}, {PKeyTableRecordTable, 72}, {GUIDInfoRecordTable, 72}, {LinkRecordTable, 8},
		{ServiceRecordTable, 176}, {PathRecordTable, 64},
		{MultiPathRecordTable, 200}, {MCMemberRecordTable, 56}, {InformInfoRecordTable, 64}, {InformInfoTable, 40},
		{TraceRecordTable, 48}} {
		if tc.table.Stride() != tc.stride {
			t.Errorf("%s: %d bytes apart, want %d", tc.table.Name, tc.table.Stride(), tc.stride)
		}
	}
}

func TestSAMask(t *testing.T) {
	m := PathRecordTable.AppendMask(nil, 1<<4|1<<8|1<<15)
	want := unhex(t, strings.Repeat("00", 40)+"ffff 0000 0fffff 00 00 00 0000 000f", PathRecordTable.Size)
	if !bytes.Equal(m, want) {
		t.Errorf("got  %x\nwant %x", m, want)
	}
	// Half of ServiceID's bits select nothing.
	if m := PathRecordTable.AppendMask(nil, 1); !bytes.Equal(m, make([]byte, PathRecordTable.Size)) {
		t.Errorf("half of a component selects %x", m)
	}
	if m := ServiceRecordTable.AppendMask(nil, 1<<8); m[113] != 0xFF || bytes.Count(m, []byte{0xFF}) != 1 {
		t.Errorf("ServiceData8[1]: %x", m)
	}
}

func TestRates(t *testing.T) {
	for _, tc := range []struct {
		width ib.Width
		speed ib.Speed
		want  Rate
	}{
		{ib.Width1x, ib.SDR, 2}, {ib.Width4x, ib.SDR, 3}, {ib.Width12x, ib.SDR, 4}, {ib.Width4x, ib.QDR, 7},
		{ib.Width4x, ib.FDR10, 7}, {ib.Width4x, ib.FDR, 12},
		{ib.Width4x, ib.EDR, 16}, {ib.Width12x, ib.EDR, 18}, {ib.Width4x, ib.HDR, 17}, {ib.Width2x, ib.HDR, 16},
		{ib.Width4x, ib.NDR, 21}, {ib.Width4x, ib.XDR, 23},
		{ib.Width12x, ib.XDR, 24}, {ib.Width4x, 0, 0},
	} {
		if got := RateOf(ib.LinkRate{Width: tc.width, Speed: tc.speed}); got != tc.want {
			t.Errorf("%v %v is %v, want %v", tc.width, tc.speed, got, tc.want)
		}
	}
	if !Rate(5).Less(3) || Rate(3).Less(5) || Rate(3).Below() != 5 {
		t.Error("rates compare by number")
	}
	if Rate(2).Below() != 0 || Rate(1).IsValid() || Rate(99).IsValid() || Rate(21).String() != "400 Gb/s" ||
		Rate(2).String() != "2.5 Gb/s" {
		t.Error("edges of the rate table")
	}
	if (JoinFull | JoinSendOnlyNon).String() != "FullMember or SendOnlyNonMember" {
		t.Errorf("join states read %v", JoinFull|JoinSendOnlyNon)
	}
}

// FuzzSARecords: what parses is written back the same, but for the bits that no field has.
func FuzzSARecords(f *testing.F) {
	for i, g := range saGolden {
		f.Add(uint8(i), g.value.Append(nil), ^uint64(0))
	}
	f.Add(uint8(3), []byte{1}, uint64(5))
	f.Fuzz(func(t *testing.T, which uint8, b []byte, mask uint64) {
		tc := saTyped[int(which)%len(saTyped)]
		v := tc.fresh()
		_, err := v.Parse(b)
		if (err == nil) != (len(b) >= tc.table.Size) {
			t.Fatalf("%s: %d bytes: %v", tc.table.Name, len(b), err)
		}
		if m := tc.table.AppendMask(nil, mask); len(m) != tc.table.Size {
			t.Fatalf("%s: mask of %d bytes", tc.table.Name, len(m))
		}
		if err != nil {
			return
		}
		if got, want := v.Append(nil), onlyFields(&tc.table.Layout, b); !bytes.Equal(got, want) {
			t.Fatalf("%s:\n got %x\nwant %x", tc.table.Name, got, want)
		}
	})
}

func TestSADump(t *testing.T) {
	d := Dump(saDatagram(PathRecordTable, saGolden[12].value.Append(nil)))
	for _, want := range []string{"SubnAdmGetResp(PathRecord)", "RMPPType:",
		"ComponentMask:..........................0x2122232425262728\n", "DLID:...................................258\n",
		"Rate:...................................400 Gb/s (21)\n",
		"MTUSelector:............................exactly (2)\n"} {
		if !strings.Contains(d, want) {
			t.Errorf("%q is missing in\n%s", want, d)
		}
	}
}

// saDatagram is a response with one record.
func saDatagram(r *SARecord, data []byte) []byte {
	h := Header{BaseVersion: BaseVersion, MgmtClass: ClassSA, ClassVersion: SAVersion, Method: MethodGetResp,
		TransactionID: 0x42, AttributeID: r.ID}
	b := h.Append(nil)
	b = (&RMPP{}).Append(b)
	b = (&SAHeader{SMKey: 0x1112131415161718, AttributeOffset: uint16(r.Stride() / 8),
		ComponentMask: 0x2122232425262728}).Append(b)
	b = append(b, make([]byte, Size-len(b))...)
	copy(b[SADataOff:], data)
	return b
}

// TestSATshark has Wireshark's dissector read the records that it knows by the same layout.
func TestSATshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("no tshark on this machine; next: make test, which installs it")
	}
	var packets [][]byte
	for _, g := range saGolden {
		packets = append(packets, packet(saDatagram(g.table, g.value.Append(nil))))
	}
	file := filepath.Join(t.TempDir(), "sa.pcap")
	if err := os.WriteFile(file, pcap(packets), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", file, "-T", "json", "--no-duplicate-keys").Output()
	if err != nil {
		t.Fatal(err)
	}
	var frames []struct {
		Source struct {
			Layers map[string]any `json:"layers"`
		} `json:"_source"`
	}
	if err := json.Unmarshal(out, &frames); err != nil || len(frames) != len(saGolden) {
		t.Fatalf("%d frames: %v", len(frames), err)
	}
	compared := 0
	for i, g := range saGolden {
		got := map[string][]string{}
		flatten(got, frames[i].Source.Layers)
		data := g.value.Append(nil)
		dgram := saDatagram(g.table, data)
		n := compareFields(t, &HeaderLayout, dgram, got)
		n += compareFields(t, &SAHeaderLayout, dgram[SAHeaderOff:], got)
		n += compareFields(t, &g.table.Layout, data, got)
		for _, e := range []struct {
			l   *Layout
			off int
			of  *SARecord
		}{{&NodeInfoLayout, 4, NodeRecordTable}, {&SwitchInfoLayout, 4, SwitchInfoRecordTable},
			{&SMInfoLayout, 4, SMInfoRecordTable}} {
			if e.of == g.table {
				n += compareFields(t, e.l, data[e.off:], got)
			}
		}
		compared += n
	}
	t.Logf("%d fields agree with tshark", compared)
	if compared < 200 {
		t.Errorf("only %d fields compared", compared)
	}
}
