package mad

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
)

// golden is every attribute with a value and its bytes. The bytes of whole
// datagrams are held against another dissector in tshark_test.go.
var golden = []struct {
	name  string
	class Class
	attr  AttrID
	value codec
	hex   string // without trailing zeros
}{
	{"NodeDescription", ClassSMLID, AttrNodeDescription, ptr(MakeNodeDescription("leaf1 switch")),
		"6c65616631 20 737769746368"},
	{"NodeInfo", ClassSMLID, AttrNodeInfo, &NodeInfo{
		BaseVersion: 1, ClassVersion: 1, NodeType: ib.NodeCA, NumPorts: 2, SystemImageGUID: 0x0002c90300a1b2c3,
		NodeGUID: 0x0002c90300a1b2c0, PortGUID: 0x0002c90300a1b2c1, PartitionCap: 128, DeviceID: 0x1017,
		Revision: 0xA0, LocalPortNum: 1, VendorID: 0x0002C9,
	}, "01 01 01 02 0002c90300a1b2c3 0002c90300a1b2c0 0002c90300a1b2c1 0080 1017 000000a0 01 0002c9"},
	{"SwitchInfo", ClassSMLID, AttrSwitchInfo, &SwitchInfo{
		LinearFDBCap: 0xC000, MulticastFDBCap: 0x1000, LinearFDBTop: 0x0123, DefaultPort: 255,
		DefaultMulticastPrimaryPort: 1, DefaultMulticastNotPrimaryPort: 2, LifeTimeValue: 18, PortStateChange: true,
		OptimizedSLtoVLMappingProgramming: 1, PartitionEnforcementCap: 32, InboundEnforcementCap: true,
		OutboundEnforcementCap: true, FilterRawInboundCap: true, FilterRawOutboundCap: true, EnhancedPortZero: true,
		MulticastFDBTop: 0xC0FF,
	}, "c000 0000 1000 0123 ff 01 02 95 0000 0020 f8 00 c0ff"},
	{"GUIDInfo", ClassSMLID, AttrGUIDInfo, &GUIDInfo{0x0002c90300a1b2c1, 0x1122334455667788},
		"0002c90300a1b2c1 1122334455667788"},
	{"PortInfo", ClassSMLID, AttrPortInfo, &PortInfo{
		MKey: 0x0102030405060708, GidPrefix: ib.DefaultGIDPrefix, LID: 0x0017, MasterSMLID: 0x0001,
		CapabilityMask: CapSLMapping | CapTrap | CapAutomaticMigration | CapExtendedSpeeds | CapCapabilityMask2 |
			CapClientReregistration,
		DiagCode: 0x0203, MKeyLeasePeriod: 60, LocalPortNum: 1, LinkWidthEnabled: 3, LinkWidthSupported: 3,
		LinkWidthActive: ib.Width4x, LinkSpeedSupported: 7, PortState: ib.PortActive, PortPhysicalState: ib.PhysLinkUp,
		LinkDownDefaultState: ib.PhysPolling, MKeyProtectBits: 2, LMC: 3, LinkSpeedActive: 4, LinkSpeedEnabled: 7,
		NeighborMTU: ib.MTU4096, MasterSMSL: 6, VLCap: 4, InitType: 9, VLHighLimit: 10, VLArbitrationHighCap: 8,
		VLArbitrationLowCap: 64, InitTypeReply: 5, MTUCap: ib.MTU4096, VLStallCount: 7, HOQLife: 18, OperationalVLs: 3,
		PartitionEnforcementInbound: true, FilterRawInbound: true, MKeyViolations: 0x0A0B, PKeyViolations: 0x0C0D,
		QKeyViolations: 0x0E0F, GUIDCap: 32, ClientReregister: true, MulticastPKeyTrapSuppression: 1, SubnetTimeOut: 18,
		RespTimeValue: 16, LocalPhyErrors: 8, OverrunErrors: 9, MaxCreditHint: 0x1112, LinkSpeedExtActive2: 1,
		LinkSpeedExtSupported2: 1, LinkSpeedExtEnabled2: 1, LinkRoundTripLatency: 0x131415, CapabilityMask2: 0x0022,
		LinkSpeedExtActive: 2, LinkSpeedExtSupported: 3, LinkSpeedExtEnabled: 31,
	}, "0102030405060708 fe80000000000000 0017 0001 0200c068 0203 003c 01 03 03 02 74 52 83 47 56 49 0a 08 " +
		"40 55 f2 3a" +
		"0a0b 0c0d 0e0f 20 b2 10 89 1112 29 131415 0022 23 1f"},
	{"RouterInfo", ClassSMLID, AttrRouterInfo, &RouterInfo{CapabilityMask: 1, NextHopTableCap: 64,
		NextHopTableTop: 3, MaxMulticastTTL: 9}, "00000001 00000040 00000003 00000000 00000009"},
	{"RouterPeers", ClassSMLID, AttrRouterPeers, &NextHopTable{{Prefix: ib.SiteLocalPrefix | 2, PKey: 0xFFFF, Weight: 1,
		LID: 0x17}}, "fec0000000000002 ffff 01 00 0017 0000"},
	{"RouterGUIDs", ClassSMLID, AttrRouterGUIDs, &RouterGUIDs{0x0002c90300a1b2c1, 0, 0x1122334455667788},
		"0002c90300a1b2c1 0000000000000000 1122334455667788"},
	{"RouterGroups", ClassSMLID, AttrRouterGroups, &RouterGroup{
		MGID: ib.GID{0xFF, 0x1E, 15: 7}, Origin: ib.SiteLocalPrefix | 3, QKey: 0x0B1B, MLID: 0xC002, PKey: 0xFFFF,
		MTU: ib.MTU2048, Rate: 3, SL: 2, TClass: 9, FlowLabel: 0x12345, HopLimit: 64, PacketLifeTime: 18, Top: 5,
	}, "ff1e0000000000000000000000000007 fec0000000000003 00000b1b c002 ffff 04 03 02 09 00012345 40 12 0000 00000005"},
	{"P_KeyTable", ClassSMLID, AttrPKeyTable, &PKeyTable{0xFFFF, 0x7FFF, 0x8001}, "ffff 7fff 8001"},
	{"SLtoVLMappingTable", ClassSMLID, AttrSLtoVL, &SLtoVL{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 15},
		"0123456701234 56f"},
	{"VLArbitrationTable", ClassSMLID, AttrVLArb, &VLArb{{0, 64}, {1, 128}, {14, 255}}, "0040 0180 0eff"},
	{"LinearForwardingTable", ClassSMLID, AttrLFT, &LFT{0xFF, 1, 2, 36}, "ff010224"},
	{"MulticastForwardingTable", ClassSMLID, AttrMFT, &MFT{0x0003, 0x8000, 0x1234}, "0003 8000 1234"},
	{"SMInfo", ClassSMLID, AttrSMInfo, &SMInfo{GUID: 0x0002c90300a1b2c1, SMKey: 0x1112131415161718,
		ActCount: 0x01020304, Priority: 14, SMState: SMMaster},
		"0002c90300a1b2c1 1112131415161718 01020304 e3"},
	{"Notice", ClassSMLID, AttrNotice, &Notice{
		IsGeneric: true, Type: NoticeUrgent, ProducerTypeVendorID: 2, TrapNumberDeviceID: TrapLinkStateChange,
		IssuerLID:    7,
		NoticeToggle: true, NoticeCount: 0x1234, DataDetails: [NoticeDataLen]byte{0x00, 0x07},
	}, "81 000002 0080 0007 9234 0007"},
	{"ClassPortInfo", ClassPerf, AttrClassPortInfo, &ClassPortInfo{
		BaseVersion: 1, ClassVersion: 1, CapabilityMask: 0x9300, CapabilityMask2: 2, RespTimeValue: 18,
		RedirectGID: ib.MakeGID(ib.DefaultGIDPrefix, 0x0002c90300a1b2c1), RedirectTC: 0x11, RedirectSL: 2,
		RedirectFL:  0x34567,
		RedirectLID: 0x0102, RedirectPKey: 0xFFFF, RedirectQP: 0x010203, RedirectQKey: ib.QKeyGSI,
		TrapGID: ib.MakeGID(ib.DefaultGIDPrefix, 5), TrapTC: 0x21, TrapSL: 3, TrapFL: 0x45678, TrapLID: 0x0304,
		TrapPKey: 0x8001, TrapHL: 64, TrapQP: 1, TrapQKey: 0x80010000,
	}, "01 01 9300 00000052 fe800000000000000002c90300a1b2c1 11 234567 0102 ffff 00 010203 80010000" +
		"fe800000000000000000000000000005 21 345678 0304 8001 40 000001 80010000"},
}

func ptr(d NodeDescription) *NodeDescription { return &d }

func unhex(t testing.TB, s string, size int) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil || len(b) > size {
		t.Fatalf("%q: %v, %d bytes of %d", s, err, len(b), size)
	}
	return append(b, make([]byte, size-len(b))...)
}

func TestGolden(t *testing.T) {
	for _, tc := range golden {
		size := Attr(tc.class, tc.attr).Layout.Size
		want := unhex(t, tc.hex, size)
		if got := tc.value.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", tc.name, got, want)
		}
		back := reflect.New(reflect.TypeOf(tc.value).Elem()).Interface().(codec)
		n, err := back.Parse(append(want, 0xEE))
		if err != nil || n != size || !reflect.DeepEqual(back, tc.value) {
			t.Errorf("%s: parsed %d bytes, %v:\n got %+v\nwant %+v", tc.name, n, err, back, tc.value)
		}
		if a := AttrByName(tc.class, tc.name); a == nil || a.ID != tc.attr {
			t.Errorf("%s is not found by its name", tc.name)
		}
	}
}

func TestGoldenHeader(t *testing.T) {
	h := Header{
		BaseVersion: 1, MgmtClass: ClassSA, ClassVersion: 2, Method: MethodGetTableResp, Status: StatusSANoRecords,
		ClassSpecific: 0x0102, TransactionID: 0x1122334455667788, AttributeID: 0x0035, AttributeModifier: 0xA1A2A3A4,
	}
	want := unhex(t, "01 03 02 92 0300 0102 1122334455667788 0035 0000 a1a2a3a4", HeaderSize)
	if got := h.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if s := h.String(); s != "SubnAdmGetTableResp(PathRecord) mod 0xa1a2a3a4 tid 0x1122334455667788 status "+
		"SANoRecords" {
		t.Errorf("String %q", s)
	}
}

// drSMP is a directed-route SMP with every field of its own set.
func drSMP(t testing.TB) []byte {
	t.Helper()
	b, err := (&SMP{
		Method: MethodSet, Attr: AttrLFT, Modifier: 5, TID: 0x0102030405060708, MKey: 0x2122232425262728,
		Directed: true, Path: []ib.PortNum{1, 17, 36}, DrSLID: 0x0304, DrDLID: 0x0506, Data: []byte{0xFF, 1, 2},
	}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenDirectedSMP(t *testing.T) {
	want := unhex(t, "01 81 01 02 0000 00 03 0102030405060708 0019 0000 00000005 2122232425262728 0304 0506"+
		strings.Repeat("00", 28)+"ff0102"+strings.Repeat("00", 61)+"00 01 11 24", Size)
	b := drSMP(t)
	if !bytes.Equal(b, want) {
		t.Fatalf("got\n%x\nwant\n%x", b, want)
	}
	v, err := AsView(b)
	if err != nil {
		t.Fatal(err)
	}
	if v.Class() != ClassSMDirect || v.Method() != MethodSet || v.AttrID() != AttrLFT || v.AttrMod() != 5 ||
		v.MKey() != 0x2122232425262728 || v.HopCount() != 3 || v.HopPointer() != 0 || v.DrSLID() != 0x0304 ||
		v.DrDLID() != 0x0506 || v.InitialPath(3) != 36 || v.Returning() || v.Data()[0] != 0xFF ||
		len(v.Data()) != SMPDataLen {
		t.Errorf("view reads\n%s", Dump(b))
	}
	v.SetReturning(true)
	v.SetStatus(StatusInvalidField)
	v.SetHopPointer(4)
	v.SetReturnPath(2, 9)
	v.SetMethod(MethodGetResp)
	v.SetTID(3)
	copy(want[3:], []byte{0x81, 0x80, 0x1C, 4})
	copy(want[8:], []byte{0, 0, 0, 0, 0, 0, 0, 3})
	want[192+2] = 9
	if !bytes.Equal(b, want) {
		t.Errorf("got\n%x\nwant\n%x", b, want)
	}
	if v.Status() != StatusInvalidField || !v.Returning() || v.ReturnPath(2) != 9 || v.TID() != 3 {
		t.Errorf("status %v, D %v", v.Status(), v.Returning())
	}
	v.SetReturning(false)
	if v.Returning() || v.Status() != StatusInvalidField {
		t.Errorf("status %v, D %v", v.Status(), v.Returning())
	}
	for name, want := range map[string]uint64{"D": 0, "Status": 0x1C, "HopPointer": 4, "HopCount": 3,
		"M_Key":  0x2122232425262728,
		"DrSLID": 0x0304, "DrDLID": 0x0506, "InitialPath[2]": 17, "ReturnPath[2]": 9} {
		if got, err := DRSMPLayout.Get(b, name); err != nil || got != want {
			t.Errorf("%s = %#x, %v; want %#x", name, got, err, want)
		}
	}
	// A LID-routed SMP has permissive LIDs nowhere and no path.
	lid, err := (&SMP{Method: MethodGet, Attr: AttrNodeInfo, Path: []ib.PortNum{1}}).Append([]byte{0xAA})
	if err != nil || len(lid) != Size+1 || lid[0] != 0xAA || lid[1+32] != 0 || lid[1+129] != 0 || lid[1+7] != 0 {
		t.Errorf("LID-routed: %v\n%x", err, lid)
	}
	if d, err := (&SMP{Directed: true}).Append(nil); err != nil || View(d).DrSLID() != ib.LIDPermissive ||
		View(d).DrDLID() != ib.LIDPermissive {
		t.Errorf("directed all the way: %v", err)
	}
	if _, err := (&SMP{Directed: true, Path: make([]ib.PortNum, 64)}).Append(nil); err == nil {
		t.Error("64 hops are taken")
	}
	if _, err := (&SMP{Data: make([]byte, 65)}).Append(nil); err == nil {
		t.Error("65 bytes of data are taken")
	}
}

// goldenCounters are the bytes of the counter attributes, all counters at their own number.
var goldenCounters = []struct {
	id  AttrID
	hex string
}{
	{AttrPortCounters, "00 07 1234 0100 02 03 0104 0105 0106 0107 08 09 03 ab 0116 010c" +
		"0000010d 0000010e 0000010f 00000110 00000111"},
	{AttrPortRcvErrorDetails, "00 07 1234 0117 0118 0119 011a 011b 011c"},
	{AttrPortXmitDiscardDetails, "00 07 1234 011d 011e 011f 0120"},
	{AttrPortCountersExtended, "00 07 1234 0000abcd" +
		"000000000000010d 000000000000010e 000000000000010f 0000000000000110" +
		"0000000000000112 0000000000000113 0000000000000114 0000000000000115" +
		"0000000000000100 0000000000000002 0000000000000003 0000000000000104 0000000000000105 0000000000000106 " +
		"0000000000000107" +
		"0000000000000008 0000000000000009 000000000000000a 000000000000000b 000000000000010c 0000000000000111 " +
		"0000000000000116"},
}

// goldenCounter is the value that goldenCounters gives a counter: what fits in its narrowest field.
func goldenCounter(c ib.Counter) uint64 {
	switch c {
	case ib.SymbolErrorCounter:
		return 0x100
	case ib.LinkErrorRecoveryCounter, ib.LinkDownedCounter, ib.PortXmitConstraintErrors, ib.PortRcvConstraintErrors,
		ib.LocalLinkIntegrityErrors, ib.ExcessiveBufferOverrunErrors:
		return uint64(c) + 1
	}
	return 0x100 + uint64(c) + 1
}

func TestGoldenCounters(t *testing.T) {
	for _, tc := range goldenCounters {
		a := CounterAttrByID(tc.id)
		want := unhex(t, tc.hex, a.Layout.Size)
		got := make([]byte, a.Layout.Size)
		a.SetPortSelect(got, 7)
		sel := uint64(0x1234)
		switch tc.id {
		case AttrPortCounters:
			sel |= 3 << 16
		case AttrPortCountersExtended:
			sel |= 0xABCD << 16
		}
		a.SetSelect(got, sel)
		for i, row := range a.Rows {
			a.PutCounter(got, i, goldenCounter(row.Counter))
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", a.Layout.Name, got, want)
		}
	}
}

func TestSpeeds(t *testing.T) {
	for s := ib.SDR; s < ib.NumSpeed; s++ {
		var p, q PortInfo
		p.SetSpeeds(ib.XDR, s, s)
		if _, err := q.Parse(p.Append(nil)); err != nil {
			t.Fatal(err)
		}
		want := s
		if s == ib.FDR10 {
			want = ib.QDR // the standard has no bit for it
		}
		if q.ActiveSpeed() != want || q.EnabledSpeed() != want || q.SupportedSpeed() != ib.XDR {
			t.Errorf("%v: active %v, enabled %v, supported %v", s, q.ActiveSpeed(), q.EnabledSpeed(),
				q.SupportedSpeed())
		}
	}
	var p PortInfo
	p.SetSpeeds(ib.QDR, ib.QDR, 0)
	if p.ActiveSpeed() != 0 || p.CapabilityMask != 0 || p.LinkSpeedExtSupported != 0 {
		t.Errorf("a link that is down: %+v", p)
	}
	p.LinkWidthActive = ib.Width4x
	p.SetSpeeds(ib.HDR, ib.HDR, ib.HDR)
	if p.Rate() != (ib.LinkRate{Width: ib.Width4x, Speed: ib.HDR}) || p.LinkSpeedActive != 4 ||
		p.LinkSpeedExtActive != 4 {
		t.Errorf("HDR: %v, %d, %d", p.Rate(), p.LinkSpeedActive, p.LinkSpeedExtActive)
	}
}

func TestVLCount(t *testing.T) {
	for c, n := range map[VLCount]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 8, 5: 15, 6: 0} {
		if c.VLs() != n || c.IsValid() != (n > 0) {
			t.Errorf("%d: %d lanes, valid %v", c, c.VLs(), c.IsValid())
		}
	}
	for n, c := range map[int]VLCount{1: 1, 2: 2, 3: 3, 4: 3, 5: 4, 8: 4, 9: 5, 15: 5} {
		if got, ok := VLCountFor(n); got != c || !ok {
			t.Errorf("VLCountFor(%d) = %d, %v", n, got, ok)
		}
	}
	for _, n := range []int{0, -1, 16} {
		if _, ok := VLCountFor(n); ok {
			t.Errorf("VLCountFor(%d) exists", n)
		}
	}
}

func TestModifiers(t *testing.T) {
	for _, tc := range []struct{ got, want uint32 }{
		{PKeyModifier(36, 3), 0x00240003},
		{SLtoVLModifier(5, 36), 0x0524},
		{VLArbModifier(7, VLArbHigh0), 0x00030007},
		{MFTModifier(0x1FF, 2), 0x200001FF},
	} {
		if tc.got != tc.want {
			t.Errorf("got %#x, want %#x", tc.got, tc.want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{ClassSMDirect.String(), "SubnDirected"},
		{ClassPerf.String(), "Perf"},
		{Class(0x3F).String(), "Vendor(0x3f)"},
		{ClassPing.String(), "OpenIBPing"},
		{Class(0x15).String(), "Application(0x15)"},
		{Class(0x90).String(), "Class(0x90)"},
		{MethodGetResp.String(), "GetResp"},
		{Method(0x44).String(), "Method(0x44)"},
		{StatusUnsupMethodAttr.String(), "UnsupportedMethodAttribute"},
		{(StatusInvalidField | StatusDirection).String(), "InvalidField"},
		{Status(0x44).String(), "Status(0x0044)"},
		{AttrName(ClassSMDirect, AttrPortInfo), "PortInfo"},
		{AttrName(ClassPerf, AttrPortRcvErrorDetails), "PortRcvErrorDetails"},
		{AttrName(ClassPerf, 0x7777), "Attr(0x7777)"},
		{SMStandby.String(), "Standby"},
		{SMState(7).String(), "SMState(7)"},
		{TrapName(TrapBadPKey), "BadP_Key"},
		{TrapName(1), "Trap(1)"},
		{NoticeManagement.String(), "SubnetManagement"},
		{NoticeType(99).String(), "NoticeType(99)"},
		{VLArbHigh1.String(), "high[32:64]"},
		{VLArbBlock(9).String(), "VLArbBlock(9)"},
		{VLCount(5).String(), "VL0-14"},
		{VLCount(1).String(), "VL0"},
		{VLCount(9).String(), "VLCount(9)"},
		{(CapIsSM | 1<<13).String(), "IsSM,bit13"},
		{PortCap(0).String(), "none"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
	if !MethodGetResp.IsResponse() || MethodGet.IsResponse() || MethodGetResp.Request() != MethodGet {
		t.Error("responses are told from requests wrongly")
	}
	if AttrByName(ClassSMDirect, "PortInfo") != Attr(ClassSMLID, AttrPortInfo) ||
		AttrByName(ClassPerf, "NodeInfo") != nil {
		t.Error("attributes are found wrongly by name")
	}
}

func TestDump(t *testing.T) {
	b := drSMP(t)
	s := Dump(b)
	for _, want := range []string{
		"SubnDirectedSet(LinearForwardingTable) mod 0x00000005 tid 0x0102030405060708 status OK\n",
		"MgmtClass:..............................SubnDirected (129)\n",
		"HopCount:...............................3\n",
		"DrSLID:.................................772\n",
		"InitialPath:............................[0 1 17 36]\n",
		"Port[0]:................................255 1 2 0 0 0 0 0\n",
		"Port[56]:...............................0 0 0 0 0 0 0 0\n",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("dump lacks %q:\n%s", want, s)
		}
	}
	for _, tc := range golden {
		if tc.name != "PortInfo" {
			continue
		}
		s := PortInfoLayout.Dump(tc.value.Append(nil))
		for _, want := range []string{
			"M_Key:..................................0x0102030405060708\n",
			"LinkWidthEnabled:.......................1x or 4x (3)\n",
			"PortState:..............................Active (4)\n",
			"NeighborMTU:............................4096 (5)\n",
			"OperationalVLs:.........................VL0-3 (3)\n",
			"LinkSpeedExtActive:.....................EDR (2)\n",
		} {
			if !strings.Contains(s, want) {
				t.Errorf("dump lacks %q:\n%s", want, s)
			}
		}
		if n := strings.Count(s, "\n"); n != len(PortInfoLayout.Fields) {
			t.Errorf("%d lines, %d fields", n, len(PortInfoLayout.Fields))
		}
	}
	if s := Dump([]byte{1, 2}); s != "0000: 01 02\n" {
		t.Errorf("two bytes dump as %q", s)
	}
	if s := NodeInfoLayout.Dump([]byte{1, 2}); s != "NodeInfo: 2 of 40 bytes: 0102\n" {
		t.Errorf("two bytes of NodeInfo dump as %q", s)
	}
}
