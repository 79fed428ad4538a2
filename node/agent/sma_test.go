package agent

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

func TestIdentity(t *testing.T) {
	b, n := benchCA(t)
	b.port = 2
	var info mad.NodeInfo
	b.get(mad.AttrNodeInfo, 0, &info)
	want := n.NodeInfo(2)
	want.LocalPortNum = 2
	if info != want || info.PortGUID != 0x202 {
		t.Errorf("NodeInfo %+v, want %+v", info, want)
	}
	var d mad.NodeDescription
	b.get(mad.AttrNodeDescription, 0, &d)
	if d.String() != "fake" {
		t.Errorf("NodeDescription %q", d)
	}
}

func TestStatusCodes(t *testing.T) {
	ca, _ := benchCA(t)
	sw, _ := benchSwitch(t)
	for _, tc := range []struct {
		name string
		b    *bench
		m    mad.Method
		attr mad.AttrID
		mod  uint32
		want mad.Status
	}{
		{"unknown attribute", ca, mad.MethodGet, 0x0013, 0, mad.StatusUnsupMethodAttr},
		{"unknown attribute, Set", ca, mad.MethodSet, 0xFF91, 0, mad.StatusUnsupMethodAttr},
		{"unknown method", ca, 0x12, mad.AttrNodeInfo, 0, mad.StatusUnsupMethod},
		{"NodeInfo is read-only", ca, mad.MethodSet, mad.AttrNodeInfo, 0, mad.StatusUnsupMethodAttr},
		{"NodeDescription is read-only", sw, mad.MethodSet, mad.AttrNodeDescription, 0, mad.StatusUnsupMethodAttr},
		{"NodeInfo has no modifier", ca, mad.MethodGet, mad.AttrNodeInfo, 1, mad.StatusInvalidField},
		{"SwitchInfo at a CA", ca, mad.MethodGet, mad.AttrSwitchInfo, 0, mad.StatusUnsupMethodAttr},
		{"LFT at a CA", ca, mad.MethodSet, mad.AttrLFT, 0, mad.StatusUnsupMethodAttr},
		{"MFT at a CA", ca, mad.MethodGet, mad.AttrMFT, 0, mad.StatusUnsupMethodAttr},
		{"SMInfo without a manager", ca, mad.MethodGet, mad.AttrSMInfo, 0, mad.StatusUnsupMethodAttr},
		{"PortInfo of the last port", sw, mad.MethodGet, mad.AttrPortInfo, 36, mad.StatusOK},
		{"PortInfo past the last port", sw, mad.MethodGet, mad.AttrPortInfo, 37, mad.StatusInvalidField},
		{"PortInfo with the extended-speeds bit", sw, mad.MethodGet, mad.AttrPortInfo, 1<<31 | 36, mad.StatusOK},
		{"PortInfo, stray bits", sw, mad.MethodGet, mad.AttrPortInfo, 0x100, mad.StatusInvalidField},
		{"PortInfo of another port", ca, mad.MethodGet, mad.AttrPortInfo, 2, mad.StatusOK},
		{"PortInfo, Set of another port", ca, mad.MethodSet, mad.AttrPortInfo, 2, mad.StatusInvalidField},
		{"GUIDInfo last block", ca, mad.MethodGet, mad.AttrGUIDInfo, 1, mad.StatusOK},
		{"GUIDInfo past the last block", ca, mad.MethodGet, mad.AttrGUIDInfo, 2, mad.StatusInvalidField},
		{"P_KeyTable last block", ca, mad.MethodGet, mad.AttrPKeyTable, 1, mad.StatusOK},
		{"P_KeyTable past the last block", ca, mad.MethodGet, mad.AttrPKeyTable, 2, mad.StatusInvalidField},
		{"P_KeyTable of port 0", sw, mad.MethodGet, mad.AttrPKeyTable, mad.PKeyModifier(0, 1), mad.StatusOK},
		{"P_KeyTable of an external port", sw, mad.MethodGet, mad.AttrPKeyTable, mad.PKeyModifier(36, 0), mad.StatusOK},
		{"P_KeyTable past the external port's", sw, mad.MethodGet, mad.AttrPKeyTable, mad.PKeyModifier(36, 1),
			mad.StatusInvalidField},
		{"P_KeyTable of no port", sw, mad.MethodGet, mad.AttrPKeyTable, mad.PKeyModifier(37, 0),
			mad.StatusInvalidField},
		{"SLtoVL", sw, mad.MethodGet, mad.AttrSLtoVL, mad.SLtoVLModifier(0, 36), mad.StatusOK},
		{"SLtoVL of no port", sw, mad.MethodGet, mad.AttrSLtoVL, mad.SLtoVLModifier(1, 37), mad.StatusInvalidField},
		{"SLtoVL, stray bits", sw, mad.MethodGet, mad.AttrSLtoVL, 0x40000, mad.StatusInvalidField},
		{"SLtoVL of all inputs cannot be read", sw, mad.MethodGet, mad.AttrSLtoVL, mad.SLtoVLAllInputs | 1,
			mad.StatusInvalidField},
		{"SLtoVL of all inputs to no port", sw, mad.MethodSet, mad.AttrSLtoVL, mad.SLtoVLAllInputs | 37,
			mad.StatusInvalidField},
		{"SLtoVL of all inputs", sw, mad.MethodSet, mad.AttrSLtoVL, mad.SLtoVLAllInputs | 36, mad.StatusOK},
		{"VLArb low", sw, mad.MethodGet, mad.AttrVLArb, mad.VLArbModifier(3, mad.VLArbLow1), mad.StatusOK},
		{"VLArb high", sw, mad.MethodGet, mad.AttrVLArb, mad.VLArbModifier(3, mad.VLArbHigh0), mad.StatusOK},
		{"VLArb past the high table", sw, mad.MethodGet, mad.AttrVLArb, mad.VLArbModifier(3, mad.VLArbHigh1),
			mad.StatusInvalidField},
		{"VLArb block 0", sw, mad.MethodGet, mad.AttrVLArb, 3, mad.StatusInvalidField},
		{"VLArb block 5", sw, mad.MethodGet, mad.AttrVLArb, 0x50003, mad.StatusInvalidField},
		{"VLArb block 257", sw, mad.MethodGet, mad.AttrVLArb, 0x1010003, mad.StatusInvalidField},
		{"VLArb of no port", sw, mad.MethodGet, mad.AttrVLArb, mad.VLArbModifier(37, mad.VLArbLow0),
			mad.StatusInvalidField},
		{"LFT last block", sw, mad.MethodGet, mad.AttrLFT, 2, mad.StatusOK},
		{"LFT past the last block", sw, mad.MethodGet, mad.AttrLFT, 3, mad.StatusInvalidField},
		{"LFT, stray bits", sw, mad.MethodGet, mad.AttrLFT, 0x10000, mad.StatusInvalidField},
		{"MFT last block, last position", sw, mad.MethodGet, mad.AttrMFT, mad.MFTModifier(1, 2), mad.StatusOK},
		{"MFT past the last position", sw, mad.MethodGet, mad.AttrMFT, mad.MFTModifier(1, 3), mad.StatusInvalidField},
		{"MFT past the last block", sw, mad.MethodGet, mad.AttrMFT, mad.MFTModifier(2, 0), mad.StatusInvalidField},
		{"MFT, stray bits", sw, mad.MethodGet, mad.AttrMFT, 0x200, mad.StatusInvalidField},
	} {
		v := tc.b.ask(tc.m, tc.attr, tc.mod, nil)
		if v == nil || v.Status() != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, v, tc.want)
		}
	}

	// Versions.
	req, err := (&mad.SMP{Method: mad.MethodGet, Attr: mad.AttrNodeInfo}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 2} {
		bad := append([]byte(nil), req...)
		bad[at]++
		resp := make([]byte, mad.Size)
		if _, ok := ca.HandleMAD(0, 1, bad, resp); !ok || mad.View(resp).Status() != mad.StatusBadVersion {
			t.Errorf("version byte %d: ok %v, %v", at, ok, mad.View(resp).Status())
		}
	}
	// No answer at all.
	for _, m := range []mad.Method{mad.MethodGetResp, mad.MethodTrap, mad.MethodTrapRepress} {
		if v := ca.ask(m, mad.AttrNodeInfo, 0, nil); v != nil {
			t.Errorf("%v is answered", m)
		}
	}
	resp := make([]byte, mad.Size)
	if _, ok := ca.HandleMAD(0, 1, req[:255], resp); ok {
		t.Error("255 bytes are answered")
	}
	if _, ok := ca.HandleMAD(0, 1, req, resp[:255]); ok {
		t.Error("an answer is written to 255 bytes")
	}
	if _, ok := ca.HandleMAD(0, 3, req, resp); ok {
		t.Error("a request by a port that does not exist is answered")
	}
	other := append([]byte(nil), req...)
	other[1] = byte(mad.ClassSA)
	if _, ok := ca.HandleMAD(0, 1, other, resp); ok {
		t.Error("another class is answered")
	}
}

// TestTablesRoundTrip writes every table and reads it back, from the wire and from the node.
func TestTablesRoundTrip(t *testing.T) {
	b, s := benchSwitch(t)
	var pk mad.PKeyTable
	pk[0], pk[31] = ib.PKeyDefault, 0x8001
	if st := b.set(mad.AttrPKeyTable, mad.PKeyModifier(7, 0), &pk); st != mad.StatusOK || s.pkeys[7][0] != pk {
		t.Errorf("P_KeyTable: %v, %v", st, s.pkeys[7][0])
	}
	var sl mad.SLtoVL
	for i := range sl {
		sl[i] = ib.VL(15 - i)
	}
	if st := b.set(mad.AttrSLtoVL, mad.SLtoVLModifier(3, 4), &sl); st != mad.StatusOK ||
		s.sl[[2]ib.PortNum{3, 4}] != sl {
		t.Errorf("SLtoVL: %v, %v", st, s.sl)
	}
	var arb mad.VLArb
	arb[2] = mad.VLArbEntry{VL: 7, Weight: 64}
	if st := b.set(mad.AttrVLArb, mad.VLArbModifier(9, mad.VLArbLow1), &arb); st != mad.StatusOK ||
		s.arb[9][mad.VLArbLow1] != arb {
		t.Errorf("VLArb: %v, %v", st, s.arb[9])
	}
	var lft mad.LFT
	for i := range lft {
		lft[i] = ib.PortNum(i % 37)
	}
	if st := b.set(mad.AttrLFT, 1, &lft); st != mad.StatusOK || s.lfv[1] != lft {
		t.Errorf("LFT: %v, %v", st, s.lfv[1])
	}
	var mft mad.MFT
	mft[31] = 0x8001
	if st := b.set(mad.AttrMFT, mad.MFTModifier(1, 2), &mft); st != mad.StatusOK || s.mfv[1][2] != mft {
		t.Errorf("MFT: %v, %v", st, s.mfv[1][2])
	}
	var gotL mad.LFT
	if b.get(mad.AttrLFT, 1, &gotL); gotL != lft {
		t.Errorf("LFT read back %v", gotL)
	}
	var gotM mad.MFT
	if b.get(mad.AttrMFT, mad.MFTModifier(1, 2), &gotM); gotM != mft {
		t.Errorf("MFT read back %v", gotM)
	}
	var gotS mad.SLtoVL
	if b.get(mad.AttrSLtoVL, mad.SLtoVLModifier(3, 4), &gotS); gotS != sl {
		t.Errorf("SLtoVL read back %v", gotS)
	}

	// GUIDs belong to port 0, and the first is nobody's to change.
	g := mad.GUIDInfo{0xBAD, 0x11}
	if st := b.set(mad.AttrGUIDInfo, 0, &g); st != mad.StatusOK || s.guids[0][0][0] != 0x200 ||
		s.guids[0][0][1] != 0x11 {
		t.Errorf("GUIDInfo: %v, %v", st, s.guids[0][0])
	}
	// At a CA the tables of the port that the request came in by are meant.
	c, n := benchCA(t)
	c.port = 2
	if st := c.set(mad.AttrPKeyTable, 1, &pk); st != mad.StatusOK || n.pkeys[2][1] != pk {
		t.Errorf("CA P_KeyTable: %v", st)
	}
	if st := c.set(mad.AttrSLtoVL, 0, &sl); st != mad.StatusOK || n.sl[[2]ib.PortNum{2, 2}] != sl {
		t.Errorf("CA SLtoVL: %v, %v", st, n.sl)
	}
	if st := c.set(mad.AttrVLArb, mad.VLArbModifier(0, mad.VLArbHigh0), &arb); st != mad.StatusOK ||
		n.arb[2][mad.VLArbHigh0] != arb {
		t.Errorf("CA VLArb: %v", st)
	}
	// What the node refuses is an invalid field.
	s.refuse, s.sets = errRefused, nil
	for _, st := range []mad.Status{
		b.set(mad.AttrLFT, 0, &lft), b.set(mad.AttrMFT, 0, &mft), b.set(mad.AttrPKeyTable, 0, &pk),
		b.set(mad.AttrSLtoVL, 0, &sl), b.set(mad.AttrVLArb, mad.VLArbModifier(1, 1), &arb),
		b.set(mad.AttrGUIDInfo, 0, &g),
		b.set(mad.AttrSwitchInfo, 0, &mad.SwitchInfo{}), b.set(mad.AttrPortInfo, 1, &mad.PortInfo{}),
	} {
		if st != mad.StatusInvalidField {
			t.Errorf("refused Set: %v", st)
		}
	}
	if len(s.sets) != 0 {
		t.Errorf("changed %v all the same", s.sets)
	}
}

func TestSwitchInfo(t *testing.T) {
	b, s := benchSwitch(t)
	var si mad.SwitchInfo
	b.get(mad.AttrSwitchInfo, 0, &si)
	si.LinearFDBCap, si.EnhancedPortZero, si.PartitionEnforcementCap = 0xBFFF, true, 1 // not for managers to say
	si.LinearFDBTop, si.LifeTimeValue, si.DefaultPort, si.MulticastFDBTop = 149, 18, 0, 0xC027
	if st := b.set(mad.AttrSwitchInfo, 0, &si); st != mad.StatusOK {
		t.Fatal(st)
	}
	want := mad.SwitchInfo{
		LinearFDBCap: 150, MulticastFDBCap: 40, PartitionEnforcementCap: 32, LinearFDBTop: 149, LifeTimeValue: 18,
		MulticastFDBTop: 0xC027, InboundEnforcementCap: true, OutboundEnforcementCap: true,
	}
	if s.si != want {
		t.Errorf("switch has %+v\nwant       %+v", s.si, want)
	}
	for what, bad := range map[string]func(*mad.SwitchInfo){
		"LinearFDBTop":                   func(i *mad.SwitchInfo) { i.LinearFDBTop = 150 },
		"DefaultPort":                    func(i *mad.SwitchInfo) { i.DefaultPort = 37 },
		"DefaultMulticastPrimaryPort":    func(i *mad.SwitchInfo) { i.DefaultMulticastPrimaryPort = 37 },
		"DefaultMulticastNotPrimaryPort": func(i *mad.SwitchInfo) { i.DefaultMulticastNotPrimaryPort = 200 },
		"MulticastFDBTop, unicast":       func(i *mad.SwitchInfo) { i.MulticastFDBTop = 0xBFFE },
		"MulticastFDBTop, too high":      func(i *mad.SwitchInfo) { i.MulticastFDBTop = 0xC028 },
	} {
		si := want
		bad(&si)
		if st := b.set(mad.AttrSwitchInfo, 0, &si); st != mad.StatusInvalidField || s.si != want {
			t.Errorf("%s: %v, switch has %+v", what, st, s.si)
		}
	}
	si = want
	si.MulticastFDBTop = 0xBFFF // empty
	if st := b.set(mad.AttrSwitchInfo, 0, &si); st != mad.StatusOK || s.si.MulticastFDBTop != 0xBFFF {
		t.Errorf("MulticastFDBTop 0xBFFF: %v", st)
	}
}

func TestMKey(t *testing.T) {
	const key = 0xFEED
	setUp := func(t *testing.T, protect uint8, lease uint16) (*bench, func(uint64) *mad.PortInfo) {
		b, _ := benchCA(t)
		pi := mad.PortInfo{LID: 5, MasterSMLID: 1, MKey: key, MKeyProtectBits: protect, MKeyLeasePeriod: lease}
		if st := b.set(mad.AttrPortInfo, 0, &pi); st != mad.StatusOK {
			t.Fatal(st)
		}
		return b, func(k uint64) *mad.PortInfo {
			b.mkey = k
			v := b.ask(mad.MethodGet, mad.AttrPortInfo, 0, nil)
			if v == nil {
				return nil
			}
			var pi mad.PortInfo
			if _, err := pi.Parse(v.Data()); err != nil {
				t.Fatal(err)
			}
			return &pi
		}
	}
	for _, tc := range []struct {
		protect   uint8
		readable  bool
		shownKey  uint64
		otherInfo bool
	}{
		{0, true, key, true},
		{1, true, 0, true},
		{2, false, 0, false},
		{3, false, 0, false},
	} {
		b, get := setUp(t, tc.protect, 0)
		if pi := get(key); pi == nil || pi.MKey != key || pi.MKeyProtectBits != tc.protect || pi.MKeyViolations != 0 {
			t.Errorf("protection %d: the owner reads %+v", tc.protect, pi)
		}
		pi := get(0xBAD)
		if (pi != nil) != tc.readable || pi != nil && pi.MKey != tc.shownKey {
			t.Errorf("protection %d: a stranger reads %+v", tc.protect, pi)
		}
		b.mkey = 0xBAD
		if v := b.ask(mad.MethodGet, mad.AttrNodeInfo, 0, nil); (v != nil) != tc.otherInfo {
			t.Errorf("protection %d: a stranger gets NodeInfo: %v", tc.protect, v != nil)
		}
		if v := b.ask(mad.MethodSet, mad.AttrPortInfo, 0, &mad.PortInfo{LID: 9, MasterSMLID: 1}); v != nil {
			t.Errorf("protection %d: a stranger writes", tc.protect)
		}
		if v := b.ask(mad.MethodTrapRepress, mad.AttrNotice, 0, nil); v != nil {
			t.Errorf("protection %d: TrapRepress is answered", tc.protect)
		}
		pi = get(key)
		want := uint16(2) // the Set and the TrapRepress
		if !tc.readable {
			want += 2 // the Gets
		}
		if pi.LID != 5 || pi.MKeyViolations != want {
			t.Errorf("protection %d: LID %d, %d violations, want 5 and %d", tc.protect, pi.LID, pi.MKeyViolations, want)
		}
		// The other port of the adapter is guarded by its own key.
		b.port, b.mkey = 2, 0
		if v := b.ask(mad.MethodGet, mad.AttrNodeInfo, 0, nil); v == nil {
			t.Errorf("protection %d: port 2 is guarded too", tc.protect)
		}
		var other mad.PortInfo
		b.get(mad.AttrPortInfo, 1, &other)
		if wantKey := map[bool]uint64{true: key}[tc.protect == 0]; other.MKey != wantKey {
			t.Errorf("protection %d: port 2 is told port 1's key: %#x", tc.protect, other.MKey)
		}
	}

	t.Run("lease", func(t *testing.T) {
		b, get := setUp(t, 2, 10)
		b.now = 100 * ib.Second
		if get(0xBAD) != nil {
			t.Fatal("a stranger reads")
		}
		// The owner is heard in time: the lease stops.
		b.now += 9 * ib.Second
		if get(key) == nil {
			t.Fatal("the owner does not read")
		}
		b.now += 5 * ib.Second
		if get(0xBAD) != nil {
			t.Fatal("a stranger reads although the owner is alive")
		}
		// It is not heard again: the second try does not start the lease anew.
		b.now += 5 * ib.Second
		if get(0xBAD) != nil {
			t.Fatal("a stranger reads before the lease is over")
		}
		b.now += 5*ib.Second - 1
		if get(0xBAD) != nil {
			t.Fatal("a stranger reads before the lease is over")
		}
		b.now++
		pi := get(0xBAD)
		if pi == nil || pi.MKey != key || pi.MKeyProtectBits != 0 || pi.MKeyViolations != 4 {
			t.Fatalf("after the lease a stranger reads %+v", pi)
		}
		// Now the key can be learnt, and with it the port taken over.
		b.mkey = key
		if st := b.set(mad.AttrPortInfo, 0, &mad.PortInfo{LID: 6, MasterSMLID: 2, MKey: 0xCAFE,
			MKeyProtectBits: 1}); st != mad.StatusOK {
			t.Fatal(st)
		}
		if pi := get(0xCAFE); pi.MKey != 0xCAFE || pi.MKeyViolations != 0 || pi.MKeyProtectBits != 1 {
			t.Errorf("taken over: %+v", pi)
		}
	})

	t.Run("no lease", func(t *testing.T) {
		b, get := setUp(t, 3, 0)
		if get(0xBAD) != nil {
			t.Fatal("a stranger reads")
		}
		b.now += 1 << 40 * ib.Microsecond
		if get(0xBAD) != nil {
			t.Error("protection without a lease ran out")
		}
	})

	t.Run("switch", func(t *testing.T) {
		b, _ := benchSwitch(t)
		pi := mad.PortInfo{LID: 5, MasterSMLID: 1, MKey: key, MKeyProtectBits: 2}
		if st := b.set(mad.AttrPortInfo, 0, &pi); st != mad.StatusOK {
			t.Fatal(st)
		}
		b.port = 17
		if v := b.ask(mad.MethodGet, mad.AttrNodeInfo, 0, nil); v != nil {
			t.Error("port 0's key does not guard the switch")
		}
		b.mkey = key
		// A key written to an external port means nothing.
		if st := b.set(mad.AttrPortInfo, 3, &mad.PortInfo{MKey: 0xBAD, MKeyProtectBits: 3}); st != mad.StatusOK {
			t.Error(st)
		}
		var ext mad.PortInfo
		b.get(mad.AttrPortInfo, 3, &ext)
		if ext.MKey != 0 || ext.MKeyProtectBits != 0 {
			t.Errorf("external port has key %#x", ext.MKey)
		}
	})
}
