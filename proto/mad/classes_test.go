package mad

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
)

// goldenClasses are the bytes of what the agents' other classes and their traps hold, as libibmad
// and OpenSM lay them out.
var goldenClasses = []struct {
	layout *Layout
	value  codec
	hex    string // without trailing zeros
}{
	{&PortInfoExtLayout, &PortInfoExt{1, FECReedSolomon, 0x0102, 0x0304, 0x0506, 0x0708, 0x090A, 0x0B0C, 0x0D0E,
		0x0F10},
		"00000001 0002 0102 0304 0506 0708 090a 0b0c 0d0e 0f10"},
	{&MlnxExtPortInfoLayout, &MlnxExtPortInfo{2, 1, 3, 4}, "00000002 00000001 00000003 00000004"},
	{&CongestionInfoLayout, &CongestionInfo{0x0102, 3}, "0102 03"},
	{&CongestionKeyInfoLayout, &CongestionKeyInfo{0x0102030405060708, true, 0x1112, 0x1314},
		"0102030405060708 80 00 1112 1314"},
	{&SwitchCongestionLayout, &SwitchCongestion{0x1F, [32]byte{31: 0xFE}, [32]byte{0: 1}, 15, 8, 3, 0x4005, 0x0607},
		"0000001f" + strings.Repeat("00", 31) + "fe 01" + strings.Repeat("00", 31) + "f0 08 30 00 4005 0607"},
	{&SwitchPortCongestionLayout, &SwitchPortCongestion{1: {true, false, 5, 6, 0x0708}, 2: {false, true, 0, 0, 9}},
		"00000000 85060708 40000009"},
	{&LinkStateDetailsLayout, &LinkStateDetails{0x0107}, "0107"},
	{&PortErrorDetailsLayout, &PortErrorDetails{0x0107, 36}, "0000 0107 24"},
	{&CapabilityDetailsLayout, &CapabilityDetails{0x0107, true, CapIsSM | CapTrap,
		ChangeNodeDescription | ChangeCapabilityMask2, 0x0022},
		"0000 0107 00 01 0000000a 0021 0022"},
	{&SystemGUIDDetailsLayout, &SystemGUIDDetails{0x0107, 0x0002c90300a1b2c3}, "0000 0107 0000 0002c90300a1b2c3"},
	{&MKeyDetailsLayout, &MKeyDetails{0x0107, 0xFFFF, MethodSet, AttrPortInfo, 36, 0x1112131415161718, true, true, 30,
		[30]byte{1: 5, 29: 7}},
		"0000 0107 ffff 02 00 0015 00000024 1112131415161718 00 de 00 05" + strings.Repeat("00", 27) + "07"},
	{&KeyDetailsLayout, &KeyDetails{0x0102, 0x0304, 0x8001, 5, 0x060708, 0x090A0B, ib.GID{1}, ib.GID{15: 2}},
		"0000 0102 0304 00008001 50060708 00090a0b 01" + strings.Repeat("00", 30) + "02"},
	{&SwitchKeyDetailsLayout, &SwitchKeyDetails{SwitchKeyValidPKey, 0x0102, 0x0304, 0x8001, 5, 0x060708, 0x090A0B,
		ib.GID{1}, ib.GID{15: 2}, 0x0C0D, 14},
		"0004 0102 0304 8001 50060708 00090a0b 01" + strings.Repeat("00", 30) + "02 0c0d 0e"},
}

func TestGoldenClasses(t *testing.T) {
	for _, tc := range goldenClasses {
		want := unhex(t, tc.hex, tc.layout.Size)
		if got := tc.value.Append([]byte{9}); !bytes.Equal(got[1:], want) || got[0] != 9 {
			t.Errorf("%s:\n got %x\nwant %x", tc.layout.Name, got[1:], want)
		}
		back := reflect.New(reflect.TypeOf(tc.value).Elem()).Interface().(codec)
		n, err := back.Parse(append(want, 0xEE))
		if err != nil || n != tc.layout.Size || !reflect.DeepEqual(back, tc.value) {
			t.Errorf("%s: parsed %d bytes, %v:\n got %+v\nwant %+v", tc.layout.Name, n, err, back, tc.value)
		}
	}
}

// TestFieldPlaces holds fields that have no Go type against the offsets that libibmad's tools read.
func TestFieldPlaces(t *testing.T) {
	for _, tc := range []struct {
		l     *Layout
		field string
		bit   int
		bits  int
	}{
		{&PortXmitDataSLLayout, "XmtDataSL[15]", 512, 32},
		{&PortVLOpPacketsLayout, "PortVLOpPackets[15]", 272, 16},
		{&PortVLOpDataLayout, "PortVLOpData[15]", 512, 32},
		{&PortVLXmitFlowCtlErrsLayout, "PortVLXmitFlowCtlUpdateErrors[15]", 62, 2},
		{&PortVLXmitWaitLayout, "PortVLXmitWait[1]", 48, 16},
		{&SwPortVLCongestionLayout, "SWPortVLCongestion[15]", 272, 16},
		{&PortVLXmitTimeCongLayout, "PortVLXmitTimeCong[14]", 480, 32},
		{&PortExtSpeedsCountersLayout, "ErrorDetectionCounterLane[11]", 336, 16},
		{&PortExtSpeedsCountersLayout, "FECCorrectableBlockCtrLane[11]", 704, 32},
		{&PortExtSpeedsCountersLayout, "FECUncorrectableBlockCtrLane[11]", 1088, 32},
		{&PortExtSpeedsCountersLayout, "PortFECCorrectedSymbolCtr", 1184, 32},
		{&PortSamplesControlLayout, "CounterMask[9]", 61, 3},
		{&PortSamplesControlLayout, "CounterMask10[4]", 77, 3},
		{&PortSamplesControlLayout, "CounterSelect[14]", 528, 16},
		{&PortSamplesResultLayout, "Counter[14]", 480, 32},
		{&PortSamplesResultExtLayout, "Counter[14]", 960, 64},
		{&SwitchCongestionLogLayout, "TimeStamp[14]", 40*8 + 14*96 + 64, 32},
		{&CACongestionLogLayout, "TimeStamp[12]", 12*8 + 12*128 + 96, 32},
		{&CACongestionLayout, "CCTIMin[15]", 32 + 15*64 + 32, 8},
		{&CongestionTableLayout, "Multiplier[63]", 32 + 63*16 + 2, 14},
		{&MlnxGeneralInfoLayout, "HWDeviceID", (8 + 2) * 8, 16},
		{&MlnxGeneralInfoLayout, "Uptime", (8 + 28) * 8, 32},
		{&MlnxGeneralInfoLayout, "PSID", (8 + 32 + 16) * 8, 128},
		{&MlnxGeneralInfoLayout, "INIVersion", (8 + 32 + 32) * 8, 32},
		{&MlnxGeneralInfoLayout, "FWExtMajor", (8 + 32 + 36) * 8, 32},
		{&MlnxGeneralInfoLayout, "SWMajor", (8+32+36+28)*8 + 8, 8},
		{&MlnxCounterGroupInfoLayout, "GroupMask[1]", 16 * 8, 32},
		{&MlnxConfigCounterGroupLayout, "GroupSelect[1]", 19 * 8, 8},
	} {
		f, i, err := tc.l.find(make([]byte, tc.l.Size), tc.field)
		if err != nil {
			t.Errorf("%s: %v", tc.l.Name, err)
			continue
		}
		if got := f.Off + i*f.Stride; got != tc.bit || f.Bits != tc.bits {
			t.Errorf("%s.%s is %d bits at %d, want %d at %d", tc.l.Name, tc.field, f.Bits, got, tc.bits, tc.bit)
		}
	}
}

func TestPortSamples(t *testing.T) {
	p := PortSamples{OpCode: 3, PortSelect: 7, SampleStatus: SampleRunning, SampleStart: 0x01020304,
		SampleInterval: 0x05060708, Tag: 0x090A}
	for i := range p.CounterSelect {
		p.CounterSelect[i] = uint16(i) + 0x4001
	}
	b := p.Append(nil)
	l := &PortSamplesControlLayout
	for name, want := range map[string]uint64{
		"OpCode": 3, "PortSelect": 7, "SampleStatus": 2, "SampleStart": 0x01020304, "SampleInterval": 0x05060708,
		"Tag":               0x090A,
		"CounterSelect[14]": 0x400F, "CounterWidth": SampleWidth32, "CounterMask[0]": 1, "CounterMask[9]": 1,
		"CounterMask10[4]": 1,
	} {
		if got, err := l.Get(b, name); err != nil || got != want {
			t.Errorf("%s = %#x, %v; want %#x", name, got, err, want)
		}
	}
	var back PortSamples
	if n, err := back.Parse(b); err != nil || n != l.Size || back != p {
		t.Errorf("parsed %d bytes, %v: %+v", n, err, back)
	}
	for n := range b {
		if _, err := back.Parse(b[:n]); !errors.Is(err, ErrShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestVendorFields(t *testing.T) {
	v := View(make([]byte, Size))
	v.SetOUI(OUIOpenIB)
	if v.OUI() != OUIOpenIB || v[37] != 0x00 || v[38] != 0x14 || v[39] != 0x05 {
		t.Errorf("OUI %#x in % x", v.OUI(), v[36:40])
	}
	v.SetCCKey(0x0102030405060708)
	if v.CCKey() != 0x0102030405060708 || v[24] != 1 || v[31] != 8 || len(v.CCLogData()) != 224 {
		t.Errorf("CC_Key %#x, log of %d bytes", v.CCKey(), len(v.CCLogData()))
	}
	r := MlnxConfigRecord{1, 2, 3}
	PutMlnxConfig(v[VendorDataOff:], 17, r)
	if MlnxConfigAt(v[VendorDataOff:], 17) != r || v[VendorDataOff+8+17*12+3] != 1 {
		t.Error("configuration record 17 is misplaced")
	}
	if n, err := MlnxConfigCount(MlnxConfigModifier(16)); n != 16 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
	if _, err := MlnxConfigCount(MlnxConfigModifier(19)); !errors.Is(err, ErrRecords) {
		t.Errorf("19 records: %v", err)
	}
	for id, want := range map[uint16]bool{0x1003: true, 0x101B: true, 0x101C: false, 0xD2F0: true,
		MlnxDeviceIS3: false} {
		if MlnxHasExtFW(id) != want {
			t.Errorf("device %#x: %v", id, !want)
		}
	}
	if TrapType(TrapLinkStateChange) != NoticeUrgent || TrapType(TrapBadPKey) != NoticeSecurity ||
		TrapType(9999) != NoticeInformational {
		t.Error("types of traps")
	}
}
