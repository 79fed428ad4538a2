package mad

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
)

func private[T any](fill func(*T)) T {
	var a T
	fill(&a)
	return a
}

var (
	cmGID1 = ib.GID{0xFE, 0x80, 8: 0x11, 15: 0x12}
	cmGID2 = ib.GID{0xFE, 0x80, 8: 0x21, 15: 0x22}
	cmPath = CMPath{LocalLID: 0x0102, RemoteLID: 0x0304, LocalGID: cmGID1, RemoteGID: cmGID2, FlowLabel: 0xABCDE,
		PacketRate: 7,
		TClass:     0x5A, HopLimit: 0x40, SL: 9, SubnetLocal: true, AckTimeout: 19}
)

const (
	cmGID1Hex = "fe800000000000001100000000000012"
	cmGID2Hex = "fe800000000000002100000000000022"
)

// goldenCM are the messages of communication management, byte by byte as IBA chapter 12 draws them. What each line of a
// REQ holds: IDs; service; GUID; key; numbers and depths; times and counts; the two paths; private data.
var goldenCM = []struct {
	attr  AttrID
	value codec
	hex   string // without trailing zeros
}{
	{AttrCMReq, &CMReq{
		LocalCommID: 0x01020304, ServiceID: 0x0000000001061234, LocalCAGUID: 0x0002c90300a1b2c0, LocalQKey: 0x0a0b0c0d,
		LocalQPN:           0x000123,
		ResponderResources: 16, LocalEECN: 0x040506, InitiatorDepth: 4, RemoteEECN: 0x070809, RemoteCMTimeout: 20,
		Transport:   CMExtended,
		FlowControl: true, StartingPSN: 0xFEDCBA, LocalCMTimeout: 21, RetryCount: 7, PKey: 0xFFFF, PathMTU: ib.MTU4096,
		RDCExists:     true,
		RNRRetryCount: 6, MaxCMRetries: 15, SRQ: true, ExtendedTransport: CMExtendedXRC, Primary: cmPath,
		Alternate: CMPath{LocalLID: 0x0506, RemoteLID: 0x0708, LocalGID: cmGID2, RemoteGID: cmGID1, FlowLabel: 1,
			PacketRate: 3, TClass: 1, HopLimit: 2, SL: 3, AckTimeout: 4},
		SAPSupported: true, PrivateData: private(func(a *[CMReqPrivate]byte) { a[0], a[91] = 0xD1, 0xD2 }),
	}, "01020304 00000000 0000000001061234 0002c90300a1b2c0 00000000 0a0b0c0d" +
		"000123 10 040506 04 070809 a7 fedcba af ffff 5e f9" +
		"0102 0304" + cmGID1Hex + cmGID2Hex + "abcde 007 5a 40 98 98" +
		"0506 0708" + cmGID2Hex + cmGID1Hex + "00001 003 01 02 30 24" +
		"d1" + strings.Repeat("00", 90) + "d2"},
	{AttrCMMRA, &CMMRA{0x01020304, 0x05060708, CMMessageRep, 24,
		private(func(a *[CMMRAPrivate]byte) { a[0], a[221] = 0xD1, 0xD2 })},
		"01020304 05060708 40 c0 d1" + strings.Repeat("00", 220) + "d2"},
	{AttrCMRej, &CMRej{0x01020304, 0x05060708, CMMessageOther, 16, RejInvalidGID,
		private(func(a *[CMInfoLen]byte) { copy(a[:], cmGID1[:]) }),
		private(func(a *[CMRejPrivate]byte) { a[0], a[147] = 0xD1, 0xD2 })},
		"01020304 05060708 80 20 000c" + cmGID1Hex + strings.Repeat("00", 56) + "d1" + strings.Repeat("00", 146) +
			"d2"},
	{AttrCMRep, &CMRep{
		LocalCommID: 0x01020304, RemoteCommID: 0x05060708, LocalQKey: 0x0a0b0c0d, LocalQPN: 0x000123,
		LocalEECN: 0x040506, StartingPSN: 0xFEDCBA,
		ResponderResources: 16, InitiatorDepth: 4, TargetAckDelay: 15, FailoverAccepted: 2, FlowControl: true,
		RNRRetryCount: 5, SRQ: true,
		LocalCAGUID: 0x0002c90300a1b2c0, PrivateData: private(func(a *[CMRepPrivate]byte) {
			a[0], a[195] = 0xD1,
				0xD2
		}),
	}, "01020304 05060708 0a0b0c0d 000123 00 040506 00 fedcba 00 10 04 7d b0 0002c90300a1b2c0 d1" +
		strings.Repeat("00", 194) + "d2"},
	{AttrCMRTU, &CMRTU{0x01020304, 0x05060708, private(func(a *[CMRTUPrivate]byte) { a[0], a[223] = 0xD1, 0xD2 })},
		"01020304 05060708 d1" + strings.Repeat("00", 222) + "d2"},
	{AttrCMDReq, &CMDReq{0x01020304, 0x05060708, 0x000123,
		private(func(a *[CMDReqPrivate]byte) { a[0], a[219] = 0xD1, 0xD2 })},
		"01020304 05060708 000123 00 d1" + strings.Repeat("00", 218) + "d2"},
	{AttrCMDRep, &CMDRep{0x01020304, 0x05060708, private(func(a *[CMDRepPrivate]byte) { a[0], a[223] = 0xD1, 0xD2 })},
		"01020304 05060708 d1" + strings.Repeat("00", 222) + "d2"},
	{AttrCMLAP, &CMLAP{0x01020304, 0x05060708, 0x000123, 20, cmPath,
		private(func(a *[CMLAPPrivate]byte) { a[0], a[167] = 0xD1, 0xD2 })},
		"01020304 05060708 00000000 000123 a0 00000000 0102 0304" + cmGID1Hex + cmGID2Hex +
			"abcde 0 5a 40 07 98 98 d1" + strings.Repeat("00", 166) + "d2"},
	{AttrCMAPR, &CMAPR{0x01020304, 0x05060708, 2, APUnsupported,
		private(func(a *[CMInfoLen]byte) { a[0], a[71] = 1, 2 }),
		private(func(a *[CMAPRPrivate]byte) { a[0], a[147] = 0xD1, 0xD2 })},
		"01020304 05060708 02 02 0000 01" + strings.Repeat("00", 70) + "02 d1" + strings.Repeat("00", 146) + "d2"},
	{AttrSIDRReq, &SIDRReq{0x01020304, 0x8001, 0x0000000001111234,
		private(func(a *[SIDRReqPrivate]byte) { a[0], a[215] = 0xD1, 0xD2 })},
		"01020304 8001 0000 0000000001111234 d1" + strings.Repeat("00", 214) + "d2"},
	{AttrSIDRRep, &SIDRRep{0x01020304, SIDRReject, 2, 0x000123, 0x0000000001111234, 0x01234567,
		private(func(a *[CMInfoLen]byte) { a[0], a[71] = 1, 2 }),
		private(func(a *[SIDRRepPrivate]byte) { a[0], a[135] = 0xD1, 0xD2 })},
		"01020304 02 02 0000 000123 00 0000000001111234 01234567 01" + strings.Repeat("00", 70) + "02 d1" +
			strings.Repeat("00", 134) + "d2"},
}

func TestGoldenCM(t *testing.T) {
	for _, tc := range goldenCM {
		l := Attr(ClassCM, tc.attr).Layout
		want := unhex(t, tc.hex, l.Size)
		if got := tc.value.Append([]byte{9}); !bytes.Equal(got[1:], want) || got[0] != 9 {
			t.Errorf("%s:\n got %x\nwant %x", l.Name, got[1:], want)
		}
		back := reflect.New(reflect.TypeOf(tc.value).Elem()).Interface().(codec)
		n, err := back.Parse(append(want, 0xEE))
		if err != nil || n != l.Size || !reflect.DeepEqual(back, tc.value) {
			t.Errorf("%s: parsed %d bytes, %v:\n got %+v\nwant %+v", l.Name, n, err, back, tc.value)
		}
	}
}

// TestCMPlaces holds every field against the byte, bit and width at which Linux's ibta_vol1_c12.h has it.
func TestCMPlaces(t *testing.T) {
	type place struct {
		field           string
		byte, bit, bits int
	}
	for _, tc := range []struct {
		l      *Layout
		places []place
	}{
		{&CMReqLayout, []place{{"LocalCommID", 0, 0, 32}, {"ServiceID", 8, 0, 64}, {"LocalCAGUID", 16, 0, 64},
			{"VendorID", 5, 0, 24}, {"LocalQ_Key", 28, 0, 32},
			{"LocalQPN", 32, 0, 24}, {"ResponderResources", 35, 0, 8}, {"LocalEECN", 36, 0, 24},
			{"InitiatorDepth", 39, 0, 8},
			{"RemoteEECN", 40, 0, 24}, {"RemoteCMTimeout", 43, 0, 5}, {"Transport", 43, 5, 2},
			{"FlowControl", 43, 7, 1},
			{"StartingPSN", 44, 0, 24}, {"LocalCMTimeout", 47, 0, 5}, {"RetryCount", 47, 5, 3}, {"P_Key", 48, 0, 16},
			{"PathMTU", 50, 0, 4},
			{"RDCExists", 50, 4, 1}, {"RNRRetryCount", 50, 5, 3}, {"MaxCMRetries", 51, 0, 4}, {"SRQ", 51, 4, 1},
			{"ExtendedTransport", 51, 5, 3},
			{"Primary.LocalLID", 52, 0, 16}, {"Primary.RemoteLID", 54, 0, 16}, {"Primary.LocalGID", 56, 0, 128},
			{"Primary.RemoteGID", 72, 0, 128},
			{"Primary.FlowLabel", 88, 0, 20}, {"Primary.PacketRate", 91, 2, 6}, {"Primary.TClass", 92, 0, 8},
			{"Primary.HopLimit", 93, 0, 8},
			{"Primary.SL", 94, 0, 4}, {"Primary.SubnetLocal", 94, 4, 1}, {"Primary.AckTimeout", 95, 0, 5},
			{"Alternate.LocalLID", 96, 0, 16}, {"Alternate.RemoteLID", 98, 0, 16}, {"Alternate.LocalGID", 100, 0, 128},
			{"Alternate.RemoteGID", 116, 0, 128},
			{"Alternate.FlowLabel", 132, 0, 20}, {"Alternate.PacketRate", 135, 2, 6}, {"Alternate.TClass", 136, 0, 8},
			{"Alternate.HopLimit", 137, 0, 8},
			{"Alternate.SL", 138, 0, 4}, {"Alternate.SubnetLocal", 138, 4, 1}, {"Alternate.AckTimeout", 139, 0, 5},
			{"SAPSupported", 139, 5, 1},
			{"PrivateData", 140, 0, 736}}},
		{&CMMRALayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"Message", 8, 0, 2},
			{"ServiceTimeout", 9, 0, 5}, {"PrivateData", 10, 0, 1776}}},
		{&CMRejLayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"Message", 8, 0, 2},
			{"InfoLength", 9, 0, 7}, {"Reason", 10, 0, 16},
			{"Info", 12, 0, 576}, {"PrivateData", 84, 0, 1184}}},
		{&CMRepLayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"LocalQ_Key", 8, 0, 32},
			{"LocalQPN", 12, 0, 24}, {"LocalEECN", 16, 0, 24},
			{"StartingPSN", 20, 0, 24}, {"VendorIDHigh", 15, 0, 8}, {"VendorIDMiddle", 19, 0, 8},
			{"VendorIDLow", 23, 0, 8}, {"ResponderResources", 24, 0, 8}, {"InitiatorDepth", 25, 0, 8},
			{"TargetAckDelay", 26, 0, 5}, {"FailoverAccepted", 26, 5, 2},
			{"FlowControl", 26, 7, 1}, {"RNRRetryCount", 27, 0, 3}, {"SRQ", 27, 3, 1}, {"LocalCAGUID", 28, 0, 64},
			{"PrivateData", 36, 0, 1568}}},
		{&CMRTULayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"PrivateData", 8, 0, 1792}}},
		{&CMDReqLayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"RemoteQPN", 8, 0, 24},
			{"PrivateData", 12, 0, 1760}}},
		{&CMDRepLayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"PrivateData", 8, 0, 1792}}},
		{&CMLAPLayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"RemoteQPN", 12, 0, 24},
			{"RemoteCMTimeout", 15, 0, 5},
			{"Alternate.LocalLID", 20, 0, 16}, {"Alternate.RemoteLID", 22, 0, 16}, {"Alternate.LocalGID", 24, 0, 128},
			{"Alternate.RemoteGID", 40, 0, 128},
			{"Alternate.FlowLabel", 56, 0, 20}, {"Alternate.TClass", 59, 0, 8}, {"Alternate.HopLimit", 60, 0, 8},
			{"Alternate.PacketRate", 61, 2, 6},
			{"Alternate.SL", 62, 0, 4}, {"Alternate.SubnetLocal", 62, 4, 1}, {"Alternate.AckTimeout", 63, 0, 5},
			{"PrivateData", 64, 0, 1344}}},
		{&CMAPRLayout, []place{{"LocalCommID", 0, 0, 32}, {"RemoteCommID", 4, 0, 32}, {"InfoLength", 8, 0, 8},
			{"Status", 9, 0, 8}, {"Info", 12, 0, 576}, {"PrivateData", 84, 0, 1184}}},
		{&SIDRReqLayout, []place{{"RequestID", 0, 0, 32}, {"P_Key", 4, 0, 16}, {"ServiceID", 8, 0, 64},
			{"PrivateData", 16, 0, 1728}}},
		{&SIDRRepLayout, []place{{"RequestID", 0, 0, 32}, {"Status", 4, 0, 8}, {"InfoLength", 5, 0, 8},
			{"QPN", 8, 0, 24}, {"ServiceID", 12, 0, 64}, {"Q_Key", 20, 0, 32},
			{"Info", 24, 0, 576}, {"PrivateData", 96, 0, 1088}}},
	} {
		if len(tc.places) != len(tc.l.Fields) {
			t.Errorf("%s: %d fields, want %d", tc.l.Name, len(tc.l.Fields), len(tc.places))
		}
		for _, p := range tc.places {
			if f := tc.l.Field(p.field); f == nil || f.Off != p.byte*8+p.bit || f.Bits != p.bits {
				t.Errorf("%s.%s is %+v, want %d bits at byte %d, bit %d", tc.l.Name, p.field, f, p.bits, p.byte, p.bit)
			}
		}
	}
}

func TestCMNames(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{RejStaleConnection.String(), "stale connection"}, {RejConsumer.String(), "consumer reject"},
		{RejVendorOption.String(), "vendor option not supported"},
		{CMReason(0).String(), "CMReason(0)"}, {CMReason(36).String(), "CMReason(36)"},
		{CMExtended.String(), "Extended"}, {CMTransport(4).String(), "CMTransport(4)"},
		{CMMessageOther.String(), "other"}, {CMMessage(3).String(), "CMMessage(3)"},
		{APInvalidSL.String(), "invalid SL"}, {APStatus(14).String(), "APStatus(14)"},
		{SIDRNoQP.String(), "no QP available"}, {SIDRStatus(6).String(), "SIDRStatus(6)"},
		{AttrName(ClassCM, AttrSIDRReq), "SIDR_REQ"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
	for r := RejNoQP; r <= RejVendorOption; r++ {
		if strings.HasPrefix(r.String(), "CMReason") {
			t.Errorf("reason %d has no name", uint16(r))
		}
	}
	rej := CMRej{InfoLength: 127}
	if len(rej.ARI()) != CMInfoLen {
		t.Errorf("%d bytes of additional information", len(rej.ARI()))
	}
	text := Dump(cmDatagram(AttrCMRej, goldenCM[2].value))
	for _, want := range []string{"ComMgtSend(REJ)", "Reason:", "primary remote port GID rejected (12)", "Message:",
		"other (2)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func cmDatagram(attr AttrID, v codec) []byte {
	h := Header{BaseVersion: BaseVersion, MgmtClass: ClassCM, ClassVersion: CMClassVersion, Method: MethodSend,
		TransactionID: 0x42, AttributeID: attr}
	return v.Append(h.Append(nil))
}

// tsharkCM is what tshark calls each field of the messages that it takes apart. Flow labels and rates are missing: it
// reads the former from three of their four bytes and the latter from the first of them.
var tsharkCM = map[AttrID]map[string]string{
	AttrCMReq: {"LocalCommID": "req", "ServiceID": "req.serviceid", "LocalCAGUID": "req.localcaguid",
		"LocalQ_Key": "req.localqkey", "LocalQPN": "req.localqpn",
		"ResponderResources": "req.responderres", "LocalEECN": "req.localeecn", "InitiatorDepth": "req.initdepth",
		"RemoteEECN":      "req.remoteeecn",
		"RemoteCMTimeout": "req.remoteresptout", "Transport": "req.transpsvctype", "FlowControl": "req.e2eflowctrl",
		"StartingPSN":    "req.startpsn",
		"LocalCMTimeout": "req.localresptout", "RetryCount": "req.retrcount", "P_Key": "req.pkey",
		"PathMTU": "req.pppmtu", "RDCExists": "req.rdcexist",
		"RNRRetryCount": "req.rnrretrcount", "MaxCMRetries": "req.maxcmretr", "SRQ": "req.srq",
		"ExtendedTransport": "req.ext_transport",
		"Primary.LocalLID":  "req.prim_locallid", "Primary.RemoteLID": "req.prim_remotelid",
		"Primary.LocalGID":  "req.prim_localgid",
		"Primary.RemoteGID": "req.prim_remotegid",
		"Primary.TClass":    "req.prim_tfcclass", "Primary.HopLimit": "req.prim_hoplim", "Primary.SL": "req.prim_sl",
		"Primary.SubnetLocal": "req.prim_subnetlocal", "Primary.AckTimeout": "req.prim_localacktout",
		"Alternate.LocalLID": "req.alt_locallid", "Alternate.RemoteLID": "req.alt_remotelid",
		"Alternate.LocalGID":  "req.alt_localgid",
		"Alternate.RemoteGID": "req.alt_remotegid",
		"Alternate.TClass":    "req.alt_tfcclass", "Alternate.HopLimit": "req.alt_hoplim", "Alternate.SL": "req.alt_sl",
		"Alternate.SubnetLocal": "req.alt_subnetlocal", "Alternate.AckTimeout": "req.alt_localacktout"},
	AttrCMRep: {"LocalCommID": "rep", "RemoteCommID": "rep.remotecommid", "LocalQ_Key": "rep.localqkey",
		"LocalQPN": "rep.localqpn", "LocalEECN": "rep.localeecn",
		"StartingPSN": "rep.startpsn", "ResponderResources": "rep.respres", "InitiatorDepth": "rep.initdepth",
		"TargetAckDelay":   "rep.tgtackdelay",
		"FailoverAccepted": "rep.failoveracc", "FlowControl": "rep.e2eflowctrl", "RNRRetryCount": "rep.rnrretrcount",
		"SRQ":         "rep.srq",
		"LocalCAGUID": "rep.localcaguid", "PrivateData": "rep.private"},
	AttrCMRTU: {"LocalCommID": "rtu.localcommid", "RemoteCommID": "rtu.remotecommid", "PrivateData": "rtu.private"},
	AttrCMRej: {"LocalCommID": "rej.localcommid", "RemoteCommID": "rej.remotecommid", "Message": "rej.msgrej",
		"InfoLength": "rej.rejinfolen",
		"Reason":     "rej.reason", "Info": "rej.ari", "PrivateData": "rej.private"},
	AttrCMDReq: {"LocalCommID": "dreq.localcommid", "RemoteCommID": "dreq.remotecommid",
		"RemoteQPN": "req.remoteqpneecn", "PrivateData": "dreq.private"},
	AttrCMDRep: {"LocalCommID": "drsp.localcommid", "RemoteCommID": "drsp.remotecommid", "PrivateData": "drsp.private"},
}

// TestTsharkCM has Wireshark's dissector read every message, and wants the values that the tables give where it knows
// the fields. Those of MRA, LAP, APR and SIDR it does not know, but it must not call them malformed.
func TestTsharkCM(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("no tshark on this machine; next: make test, which installs it")
	}
	var packets [][]byte
	for _, g := range goldenCM {
		packets = append(packets, packet(cmDatagram(g.attr, g.value)))
	}
	file := filepath.Join(t.TempDir(), "cm.pcap")
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
	if err := json.Unmarshal(out, &frames); err != nil {
		t.Fatal(err)
	}
	if len(frames) != len(goldenCM) {
		t.Fatalf("%d frames of %d", len(frames), len(goldenCM))
	}
	compared := 0
	for i, g := range goldenCM {
		got := map[string][]string{}
		flatten(got, frames[i].Source.Layers)
		l, data := Attr(ClassCM, g.attr).Layout, g.value.Append(nil)
		for k := range got {
			if strings.Contains(k, "malformed") || strings.Contains(k, "_ws.expert") {
				t.Errorf("%s: tshark complains: %s %v", l.Name, k, got[k])
			}
		}
		for field, name := range tsharkCM[g.attr] {
			f := l.Field(field)
			vals := got["infiniband.cm."+name]
			if len(vals) != 1 {
				t.Errorf("%s.%s: tshark has %v", l.Name, field, vals)
				continue
			}
			if f.Bits > 64 {
				want := f.Slice(data, 0)
				hexed := unhexLoose(vals[0])
				if g, err := ib.ParseGID(vals[0]); err == nil {
					hexed = g[:]
				}
				// Private data and information are shown up to their length.
				if !bytes.Equal(hexed, want) && !(field == "Info" && bytes.Equal(hexed, want[:len(hexed)]) &&
					len(hexed) > 0) {
					t.Errorf("%s.%s: tshark reads %q, the table %x", l.Name, field, vals[0], want)
				}
			} else if v, err := parseTshark(vals[0]); err != nil || v != f.Get(data, 0) {
				t.Errorf("%s.%s: tshark reads %q, the table %#x", l.Name, field, vals[0], f.Get(data, 0))
			}
			compared++
		}
	}
	t.Logf("%d fields agree with tshark", compared)
	if compared < 70 {
		t.Errorf("only %d fields compared", compared)
	}
}

func unhexLoose(s string) []byte {
	var b []byte
	for _, part := range strings.Split(s, ":") {
		if len(part) != 2 {
			return nil
		}
		v, err := parseTshark("0x" + part)
		if err != nil {
			return nil
		}
		b = append(b, byte(v))
	}
	return b
}
