package agent

import (
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// gsi asks an agent of any class but subnet management; nil is no answer.
func gsi(t *testing.T, a *Agent, now ib.Time, port ib.PortNum, c mad.Class, m mad.Method, id mad.AttrID, mod uint32,
	change func(mad.View)) mad.View {
	t.Helper()
	h := mad.Header{
		BaseVersion: 1, MgmtClass: c, ClassVersion: c.Info().Version, Method: m, TransactionID: 9, AttributeID: id,
		AttributeModifier: mod,
	}
	v := mad.View(append(h.Append(nil), make([]byte, mad.Size-mad.HeaderSize)...))
	if change != nil {
		change(v)
	}
	resp := make([]byte, mad.Size)
	if _, ok := a.HandleMAD(now, port, v, resp); !ok {
		return nil
	}
	r := mad.View(resp)
	if r.Method() != mad.MethodGetResp || r.TID() != 9 || r.AttrID() != id || r.AttrMod() != mod || r.Class() != c {
		t.Fatalf("malformed answer:\n%s", mad.Dump(resp))
	}
	return r
}

func get(t *testing.T, l *mad.Layout, data []byte, field string) uint64 {
	t.Helper()
	v, err := l.Get(data, field)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLaneCounters reads and clears what goes by lane and level.
func TestLaneCounters(t *testing.T) {
	_, s := benchSwitch(t)
	a := New(s)
	for p := range s.lanes {
		for c := range s.lanes[p] {
			for i := range 16 {
				s.lanes[p][c][i] = uint64(1000*p + 100*c + i)
			}
		}
		s.ctr[p][ib.PortXmitFlowPkts], s.ctr[p][ib.PortRcvFlowPkts] = uint64(p), uint64(2*p)
	}
	read := func(m mad.Method, id mad.AttrID, port uint8, mask uint64) mad.View {
		t.Helper()
		attr := mad.CounterAttrByID(id)
		v := gsi(t, a, 0, 1, mad.ClassPerf, m, id, 0, func(v mad.View) {
			v.Data()[0] = 0xAA
			attr.SetPortSelect(v.Data(), port)
			attr.SetSelect(v.Data(), mask)
		})
		if v.Status() != mad.StatusOK || attr.PortSelect(v.Data()) != port || attr.Select(v.Data()) != mask ||
			attr.HasOpCode() != (v.Data()[0] == 0xAA) {
			t.Fatalf("%s: %v", attr.Layout.Name, v.Status())
		}
		return v
	}
	for _, tc := range []struct {
		id    mad.AttrID
		field string
		lane  ib.LaneCounter
	}{
		{mad.AttrPortVLOpPackets, "PortVLOpPackets", ib.VLRcvPkts},
		{mad.AttrPortVLOpData, "PortVLOpData", ib.VLRcvData},
		{mad.AttrPortVLXmitWait, "PortVLXmitWait", ib.VLXmitWait},
		{mad.AttrPortXmitDataSL, "XmtDataSL", ib.SLXmitData},
		{mad.AttrPortRcvDataSL, "RcvDataSL", ib.SLRcvData},
	} {
		l := mad.CounterAttrByID(tc.id).Layout
		elem := func(m mad.Method, port uint8, mask uint64, i string) uint64 {
			return get(t, l, read(m, tc.id, port, mask).Data(), tc.field+i)
		}
		c := uint64(tc.lane)
		if got := elem(mad.MethodGet, 3, 0, "[15]"); got != 3000+100*c+15 {
			t.Errorf("%s[15] = %d", tc.field, got)
		}
		if got, want := elem(mad.MethodGet, mad.PortSelectAll, 0, "[2]"),
			min(uint64(36*37/2*1000+36*(100*int(c)+2)), 1<<l.Field(tc.field).Bits-1); got != want {
			t.Errorf("%s[2] of all ports = %d, want %d", tc.field, got, want)
		}
		if got := elem(mad.MethodSet, 3, 1<<4, "[4]"); got != 0 {
			t.Errorf("%s[4] = %d after a reset", tc.field, got)
		}
		s.lanes[3][tc.lane][4] += 7
		if got := elem(mad.MethodGet, 3, 0, "[4]"); got != 7 {
			t.Errorf("%s[4] = %d since the reset, want 7", tc.field, got)
		}
		if got := elem(mad.MethodGet, 3, 0, "[5]"); got != 3000+100*c+5 {
			t.Errorf("%s[5] was reset too", tc.field)
		}
		if got := elem(mad.MethodGet, 4, 0, "[4]"); got != 4000+100*c+4 {
			t.Errorf("port 4's %s[4] was reset too", tc.field)
		}
	}
	op := &mad.PortOpRcvCountersLayout
	v := read(mad.MethodGet, mad.AttrPortOpRcvCounters, 5, 0)
	if got := get(t, op, v.Data(), "PortOpRcvPkts"); got != 16*5000+120 {
		t.Errorf("PortOpRcvPkts %d", got)
	}
	read(mad.MethodSet, mad.AttrPortOpRcvCounters, 5, 2)
	v = read(mad.MethodGet, mad.AttrPortOpRcvCounters, 5, 0)
	if pkts, data := get(t, op, v.Data(), "PortOpRcvPkts"), get(t, op, v.Data(), "PortOpRcvData"); pkts != 16*5000+
		120 || data != 0 {
		t.Errorf("after a reset of the data: %d and %d", pkts, data)
	}
	fc := &mad.PortFlowCtlCountersLayout
	v = read(mad.MethodSet, mad.AttrPortFlowCtlCounters, 9, 1)
	if x, r := get(t, fc, v.Data(), "PortXmitFlowPkts"), get(t, fc, v.Data(), "PortRcvFlowPkts"); x != 0 || r != 18 {
		t.Errorf("flow control packets %d and %d", x, r)
	}
	for _, id := range []mad.AttrID{
		mad.AttrPortVLXmitFlowCtlErrs, mad.AttrPortExtSpeedsCounters, mad.AttrSwPortVLCongestion,
		mad.AttrPortRcvConCtrl, mad.AttrPortSLRcvFECN,
		mad.AttrPortSLRcvBECN, mad.AttrPortXmitConCtrl, mad.AttrPortVLXmitTimeCong,
	} {
		attr := mad.CounterAttrByID(id)
		d := read(mad.MethodSet, id, 1, attr.SelectAll()).Data()
		attr.SetSelect(d, 0)
		attr.SetPortSelect(d, 0)
		if strings.Trim(string(d), "\x00") != "" {
			t.Errorf("%s counts something: %x", attr.Layout.Name, d)
		}
	}
	_, n := benchCA(t)
	if v := gsi(t, New(n), 0, 1, mad.ClassPerf, mad.MethodGet, mad.AttrSwPortVLCongestion, 0,
		func(v mad.View) { v.Data()[1] = 1 }); v.Status() != mad.StatusUnsupMethodAttr {
		t.Errorf("SwPortVLCongestion at a channel adapter: %v", v.Status())
	}
}

func TestSampling(t *testing.T) {
	_, s := benchSwitch(t)
	a := New(s)
	control := func(now ib.Time, m mad.Method, p mad.PortSamples) (mad.PortSamples, mad.Status) {
		v := gsi(t, a, now, 1, mad.ClassPerf, m, mad.AttrPortSamplesControl, 0,
			func(v mad.View) { p.Append(v.Data()[:0]) })
		var is mad.PortSamples
		if _, err := is.Parse(v.Data()); err != nil {
			t.Fatal(err)
		}
		return is, v.Status()
	}
	result := func(now ib.Time, id mad.AttrID) mad.View {
		return gsi(t, a, now, 1, mad.ClassPerf, mad.MethodGet, id, 0, nil)
	}
	if is, st := control(0, mad.MethodGet, mad.PortSamples{PortSelect: 3}); st != mad.StatusOK ||
		is != (mad.PortSamples{PortSelect: 3}) {
		t.Errorf("%v: %+v", st, is)
	}
	if _, st := control(0, mad.MethodGet, mad.PortSamples{PortSelect: 99}); st != mad.StatusInvalidField {
		t.Errorf("port 99: %v", st)
	}
	want := mad.PortSamples{
		PortSelect: 3, SampleStart: 250, SampleInterval: 500, Tag: 0x1234,
		CounterSelect: [mad.SampleCounters]uint16{mad.SampleXmitData, mad.SampleRcvPkts, 0x7777, mad.SampleXmitWait},
	}
	us := ib.Microsecond
	if is, _ := control(0, mad.MethodSet, want); is.SampleStatus != mad.SampleStarted || a.NextDeadline() != us {
		t.Errorf("%v until %v", is.SampleStatus, a.NextDeadline())
	}
	s.ctr[3][ib.PortXmitData], s.ctr[3][ib.PortXmitWait], s.ctr[3][ib.PortRcvPkts] = 100, 100, 7
	a.HandleTimer(us)
	if a.NextDeadline() != 3*us {
		t.Errorf("deadline %v, want %v", a.NextDeadline(), 3*us)
	}
	// Another is refused while this one runs.
	if is, _ := control(2*us, mad.MethodSet, mad.PortSamples{PortSelect: 5}); is.SampleStatus != mad.SampleRunning ||
		is.PortSelect != 3 {
		t.Errorf("%+v", is)
	}
	l := &mad.PortSamplesResultLayout
	if v := result(2*us, mad.AttrPortSamplesResult); get(t, l, v.Data(), "SampleStatus") != uint64(mad.SampleRunning) ||
		get(t, l, v.Data(), "Counter[0]") != 0 {
		t.Errorf("a result before the end:\n%s", mad.Dump(v))
	}
	s.ctr[3][ib.PortXmitData] = 1<<40 + 100
	s.ctr[3][ib.PortRcvPkts] = 12
	s.ctr[3][ib.PortXmitWait] = 40 // was reset meanwhile
	a.HandleTimer(3 * us)
	s.ctr[3][ib.PortRcvPkts] = 1000
	if a.NextDeadline() != ib.Never {
		t.Errorf("deadline %v after the end", a.NextDeadline())
	}
	v := result(4*us, mad.AttrPortSamplesResult)
	for field, want := range map[string]uint64{"Tag": 0x1234, "SampleStatus": 0, "Counter[0]": 0xFFFFFFFF,
		"Counter[1]": 5, "Counter[2]": 0, "Counter[3]": 0} {
		if got := get(t, l, v.Data(), field); got != want {
			t.Errorf("%s = %d, want %d", field, got, want)
		}
	}
	x := &mad.PortSamplesResultExtLayout
	v = result(4*us, mad.AttrPortSamplesResultExt)
	if get(t, x, v.Data(), "Counter[0]") != 1<<40 || get(t, x, v.Data(), "ExtendedWidth") != mad.SampleWidth64 {
		t.Errorf("in 64 bits:\n%s", mad.Dump(v))
	}
	// All ports at once, without delay.
	want.PortSelect, want.SampleStart, want.SampleInterval = mad.PortSelectAll, 0, 0
	if is, _ := control(5*us, mad.MethodSet, want); is.SampleStatus != mad.SampleDone {
		t.Errorf("%v", is.SampleStatus)
	}
	if v := gsi(t, a, 0, 1, mad.ClassPerf, mad.MethodSet, mad.AttrPortSamplesResult, 0,
		nil); v.Status() != mad.StatusUnsupMethodAttr {
		t.Errorf("a result is written: %v", v.Status())
	}
}

func TestCongestionKey(t *testing.T) {
	_, n := benchCA(t)
	a := New(n)
	key := func(now ib.Time, port ib.PortNum, m mad.Method, with uint64,
		k mad.CongestionKeyInfo) (mad.CongestionKeyInfo, bool) {
		v := gsi(t, a, now, port, mad.ClassCC, m, mad.AttrCongestionKeyInfo, 0, func(v mad.View) {
			v.SetCCKey(with)
			k.Append(v.Data()[:0])
		})
		if v == nil {
			return k, false
		}
		if _, err := k.Parse(v.Data()); err != nil || v.Status() != mad.StatusOK {
			t.Fatal(v.Status(), err)
		}
		return k, true
	}
	set := mad.CongestionKeyInfo{CCKey: 0x55, CCKeyProtectBit: true, CCKeyLeasePeriod: 10, CCKeyViolations: 3}
	if k, ok := key(0, 1, mad.MethodSet, 0, set); !ok ||
		k != (mad.CongestionKeyInfo{CCKey: 0x55, CCKeyProtectBit: true, CCKeyLeasePeriod: 10}) {
		t.Errorf("%+v, %v", k, ok)
	}
	if k, _ := key(0, 1, mad.MethodGet, 0x55, set); k.CCKey != 0x55 {
		t.Errorf("the owner reads %#x", k.CCKey)
	}
	if k, ok := key(0, 1, mad.MethodGet, 0, set); !ok || k.CCKey != 0 {
		t.Errorf("a stranger reads %#x, %v", k.CCKey, ok)
	}
	if _, ok := key(ib.Second, 1, mad.MethodSet, 0x66, set); ok {
		t.Error("a stranger writes")
	}
	if k, _ := key(2*ib.Second, 1, mad.MethodGet, 0, set); k.CCKeyViolations != 1 {
		t.Errorf("%d violations", k.CCKeyViolations)
	}
	// The lease ends: the key can be read, and so be changed.
	if k, _ := key(12*ib.Second, 1, mad.MethodGet, 0, set); k.CCKey != 0x55 || k.CCKeyProtectBit {
		t.Errorf("after the lease: %+v", k)
	}
	if k, ok := key(13*ib.Second, 1, mad.MethodSet, 0x55, mad.CongestionKeyInfo{}); !ok ||
		k != (mad.CongestionKeyInfo{}) {
		t.Errorf("cleared: %+v, %v", k, ok)
	}
	if k, _ := key(0, 2, mad.MethodGet, 0, set); k != (mad.CongestionKeyInfo{}) {
		t.Errorf("port 2 has port 1's key: %+v", k)
	}
}

func TestCongestionControl(t *testing.T) {
	_, n := benchCA(t)
	_, s := benchSwitch(t)
	ca, sw := New(n), New(s)
	ask := func(a *Agent, m mad.Method, id mad.AttrID, mod uint32, change func(mad.View)) mad.View {
		t.Helper()
		v := gsi(t, a, 5*ib.Second, 1, mad.ClassCC, m, id, mod, change)
		if v == nil {
			t.Fatalf("no answer to %v(%s)", m, mad.AttrName(mad.ClassCC, id))
		}
		return v
	}
	for _, tc := range []struct {
		name string
		a    *Agent
		m    mad.Method
		id   mad.AttrID
		mod  uint32
		want mad.Status
	}{
		{"ClassPortInfo", ca, mad.MethodGet, mad.AttrClassPortInfo, 0, mad.StatusOK},
		{"ClassPortInfo is read-only", ca, mad.MethodSet, mad.AttrClassPortInfo, 0, mad.StatusUnsupMethodAttr},
		{"CongestionInfo has no modifier", ca, mad.MethodGet, mad.AttrCongestionInfo, 1, mad.StatusInvalidField},
		{"a switch's setting at a CA", ca, mad.MethodGet, mad.AttrSwitchCongestion, 0, mad.StatusUnsupMethodAttr},
		{"a CA's setting at a switch", sw, mad.MethodGet, mad.AttrCACongestion, 0, mad.StatusUnsupMethodAttr},
		{"a table at a switch", sw, mad.MethodGet, mad.AttrCongestionControlTable, 0, mad.StatusUnsupMethodAttr},
		{"last block of the table", ca, mad.MethodGet, mad.AttrCongestionControlTable, 1, mad.StatusOK},
		{"past the last block", ca, mad.MethodGet, mad.AttrCongestionControlTable, 2, mad.StatusInvalidField},
		{"block of ports", sw, mad.MethodGet, mad.AttrSwitchPortCongestion, 0, mad.StatusOK},
		{"past the last port", sw, mad.MethodGet, mad.AttrSwitchPortCongestion, 1, mad.StatusInvalidField},
		{"unknown", sw, mad.MethodGet, 0x19, 0, mad.StatusUnsupMethodAttr},
		{"method", sw, 0x15, mad.AttrCongestionInfo, 0, mad.StatusUnsupMethod},
	} {
		if v := ask(tc.a, tc.m, tc.id, tc.mod, nil); v.Status() != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, v.Status(), tc.want)
		}
	}
	if gsi(t, ca, 0, 1, mad.ClassCC, mad.MethodTrap, mad.AttrNotice, 0, nil) != nil {
		t.Error("a trap is answered")
	}
	var info mad.CongestionInfo
	if _, err := info.Parse(ask(ca, mad.MethodGet, mad.AttrCongestionInfo, 0, nil).Data()); err != nil ||
		info.ControlTableCap != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, tc := range []struct {
		a    *Agent
		l    *mad.Layout
		want uint8
	}{{ca, &mad.CACongestionLogLayout, mad.CCLogCA}, {sw, &mad.SwitchCongestionLogLayout, mad.CCLogSwitch}} {
		log := ask(tc.a, mad.MethodGet, mad.AttrCongestionLog, 0, nil).CCLogData()
		if get(t, tc.l, log, "LogType") != uint64(tc.want) ||
			get(t, tc.l, log, "CurrentTimeStamp") != 5_000_000_000/1024 {
			t.Errorf("log %d: type %d at %d", tc.want, get(t, tc.l, log, "LogType"),
				get(t, tc.l, log, "CurrentTimeStamp"))
		}
	}
	if v := ask(sw, mad.MethodGet, mad.AttrCCTimeStamp, 0, nil); get(t, &mad.CCTimeStampLayout, v.Data(),
		"TimeStamp") != 5_000_000_000/1024 {
		t.Error("time stamp")
	}

	setting := mad.SwitchCongestion{ControlMap: 0x1F, VictimMask: [32]byte{31: 0xFE}, Threshold: 15, PacketSize: 8,
		CSReturnDelay: 0x4001, MarkingRate: 7}
	ask(sw, mad.MethodSet, mad.AttrSwitchCongestion, 0, func(v mad.View) { setting.Append(v.Data()[:0]) })
	var got mad.SwitchCongestion
	if _, err := got.Parse(ask(sw, mad.MethodGet, mad.AttrSwitchCongestion, 0, nil).Data()); err != nil ||
		got != setting {
		t.Errorf("%+v, %v", got, err)
	}
	ports := mad.SwitchPortCongestion{36: {Valid: true, Threshold: 4, MarkingRate: 9}, 40: {Valid: true}}
	ask(sw, mad.MethodSet, mad.AttrSwitchPortCongestion, 0, func(v mad.View) { ports.Append(v.Data()[:0]) })
	var gotPorts mad.SwitchPortCongestion
	ports[40] = mad.SwitchPortEntry{} // no such port
	if _, err := gotPorts.Parse(ask(sw, mad.MethodGet, mad.AttrSwitchPortCongestion, 0, nil).Data()); err != nil ||
		gotPorts != ports {
		t.Errorf("%+v, %v", gotPorts, err)
	}

	l := &mad.CACongestionLayout
	ask(ca, mad.MethodSet, mad.AttrCACongestion, 0, func(v mad.View) {
		for i := range v.Data() {
			v.Data()[i] = 0xFF
		}
	})
	d := ask(ca, mad.MethodGet, mad.AttrCACongestion, 0, nil).Data()
	if get(t, l, d, "ControlMap") != 0xFFFF || get(t, l, d, "CCTIMin[15]") != 0xFF || d[l.Size-1] != 0 {
		t.Errorf("CA setting %x", d[:l.Size])
	}
	c := &mad.CongestionTableLayout
	put := func(v mad.View, limit, entry uint64) {
		c.Field("CCTILimit").Put(v.Data(), 0, limit)
		c.Field("Shift").Put(v.Data(), 63, 3)
		c.Field("Multiplier").Put(v.Data(), 63, entry)
	}
	ask(ca, mad.MethodSet, mad.AttrCongestionControlTable, 1, func(v mad.View) { put(v, 127, 0x3FFF) })
	if v := ask(ca, mad.MethodSet, mad.AttrCongestionControlTable, 0,
		func(v mad.View) { put(v, 128, 1) }); v.Status() != mad.StatusInvalidField {
		t.Errorf("limit beyond the table: %v", v.Status())
	}
	d = ask(ca, mad.MethodGet, mad.AttrCongestionControlTable, 1, nil).Data()
	if get(t, c, d, "CCTILimit") != 127 || get(t, c, d, "Shift[63]") != 3 || get(t, c, d, "Multiplier[63]") != 0x3FFF {
		t.Errorf("table %x", d[:c.Size])
	}
	d = ask(ca, mad.MethodGet, mad.AttrCongestionControlTable, 0, nil).Data()
	if get(t, c, d, "CCTILimit") != 127 || get(t, c, d, "Multiplier[63]") != 0 {
		t.Errorf("block 0: %x", d[:c.Size])
	}
}

func TestPingAndSysStat(t *testing.T) {
	_, n := benchCA(t)
	a := New(n)
	ask := func(c mad.Class, m mad.Method, id mad.AttrID, oui uint32) mad.View {
		return gsi(t, a, 0, 1, c, m, id, 0, func(v mad.View) { v.SetOUI(oui) })
	}
	text := func(v mad.View) string {
		t.Helper()
		if v == nil || v.Status() != mad.StatusOK || v.OUI() != mad.OUIOpenIB {
			t.Fatalf("no good answer: %v", v)
		}
		s := string(v.Data())
		return s[:strings.IndexByte(s, 0)]
	}
	const oui = mad.OUIOpenIB
	if got := text(ask(mad.ClassPing, mad.MethodGet, 0, oui)); got != "fake" {
		t.Errorf("pong from %q", got)
	}
	if got := text(ask(mad.ClassSysStat, mad.MethodGet, mad.AttrSysStatCPU, oui)); got != "" {
		t.Errorf("CPUs %q", got)
	}
	a.SetSystem("host1.example", strings.Repeat("cpu\n", 100))
	if got := text(ask(mad.ClassSysStat, mad.MethodGet, mad.AttrSysStatHost, oui)); got != "host1.example" {
		t.Errorf("host %q", got)
	}
	if got := text(ask(mad.ClassSysStat, mad.MethodGet, mad.AttrSysStatCPU, oui)); len(got) != mad.Vendor2DataLen-1 {
		t.Errorf("CPUs %q", got)
	}
	if v := ask(mad.ClassSysStat, mad.MethodGet, mad.AttrSysStatPing, oui); v.Status() != mad.StatusOK {
		t.Errorf("ping: %v", v.Status())
	}
	if v := ask(mad.ClassSysStat, mad.MethodGet, 0x13, oui); v.Status() != mad.StatusUnsupMethodAttr {
		t.Errorf("unknown attribute: %v", v.Status())
	}
	if v := ask(mad.ClassPing, mad.MethodSet, 0, oui); v.Status() != mad.StatusUnsupMethod {
		t.Errorf("Set: %v", v.Status())
	}
	if ask(mad.ClassPing, mad.MethodGet, 0, 0x123456) != nil {
		t.Error("another vendor's class is answered")
	}
}

func TestMlnxClass(t *testing.T) {
	_, s := benchSwitch(t)
	s.info.DeviceID, s.info.Revision = 0xD2F0, 0xA1
	a := New(s)
	ask := func(m mad.Method, id mad.AttrID, mod uint32, change func(mad.View)) mad.View {
		t.Helper()
		return gsi(t, a, 77*ib.Second, 1, mad.ClassMlnx, m, id, mod, change)
	}
	l := &mad.MlnxGeneralInfoLayout
	d := ask(mad.MethodGet, mad.AttrMlnxGeneralInfo, 0, nil).Data()
	for field, want := range map[string]uint64{"HWDeviceID": 0xD2F0, "HWRevision": 0xA1, "Uptime": 77,
		"FWMinor": firmwareMinor, "FWExtMinor": firmwareMinor} {
		if got := get(t, l, d, field); got != want {
			t.Errorf("%s = %#x, want %#x", field, got, want)
		}
	}
	if v := ask(mad.MethodGet, mad.AttrMlnxConfigSpace, mad.MlnxConfigModifier(1),
		nil); v.Status() != mad.StatusUnsupMethodAttr {
		t.Errorf("configuration space of another device: %v", v.Status())
	}
	for _, tc := range []struct {
		m    mad.Method
		id   mad.AttrID
		mod  uint32
		want mad.Status
	}{
		{mad.MethodGet, mad.AttrClassPortInfo, 0, mad.StatusOK},
		{mad.MethodSet, mad.AttrClassPortInfo, 0, mad.StatusUnsupMethodAttr},
		{mad.MethodSet, mad.AttrMlnxGeneralInfo, 0, mad.StatusUnsupMethodAttr},
		{mad.MethodGet, mad.AttrMlnxCounterGroupInfo, 36, mad.StatusOK},
		{mad.MethodGet, mad.AttrMlnxCounterGroupInfo, 37, mad.StatusInvalidField},
		{mad.MethodSet, mad.AttrMlnxCounterGroupInfo, 1, mad.StatusUnsupMethodAttr},
		{mad.MethodSet, mad.AttrMlnxConfigCounterGroup, 1, mad.StatusInvalidField}, // group 1 has no selection 0
		{mad.MethodGet, 0x99, 1, mad.StatusUnsupMethodAttr},
		{0x15, mad.AttrMlnxGeneralInfo, 0, mad.StatusUnsupMethod},
	} {
		if v := ask(tc.m, tc.id, tc.mod, nil); v.Status() != tc.want {
			t.Errorf("%v(%#x): %v, want %v", tc.m, tc.id, v.Status(), tc.want)
		}
	}
	g := &mad.MlnxConfigCounterGroupLayout
	ask(mad.MethodSet, mad.AttrMlnxConfigCounterGroup, 12, func(v mad.View) {
		g.Field("GroupSelect").Put(v.Data(), 0, 2)
		g.Field("GroupSelect").Put(v.Data(), 1, 8)
	})
	d = ask(mad.MethodGet, mad.AttrMlnxConfigCounterGroup, 12, nil).Data()
	if get(t, g, d, "GroupSelect[0]") != 2 || get(t, g, d, "GroupSelect[1]") != 8 {
		t.Errorf("groups %x", d[:g.Size])
	}
	// The one device whose waiting is read from its registers.
	s.info.DeviceID = mad.MlnxDeviceIS3
	s.ctr[4][ib.PortXmitWait], s.ctr[1][ib.PortXmitWait] = 44, 1<<40
	v := ask(mad.MethodGet, mad.AttrMlnxConfigSpace, mad.MlnxConfigModifier(3), func(v mad.View) {
		for i, page := range []uint32{1, 21, 99} {
			mad.PutMlnxConfig(v.Data(), i, mad.MlnxConfigRecord{Address: is3XmitWait + page<<is3PageShift, Data: 5})
		}
	})
	for i, want := range []uint32{44, 0xFFFFFFFF, 0} {
		if got := mad.MlnxConfigAt(v.Data(), i).Data; got != want || v.Status() != mad.StatusOK {
			t.Errorf("record %d: %d, want %d", i, got, want)
		}
	}
	if v := ask(mad.MethodGet, mad.AttrMlnxConfigSpace, mad.MlnxConfigModifier(19),
		nil); v.Status() != mad.StatusInvalidField {
		t.Errorf("19 records: %v", v.Status())
	}
}
