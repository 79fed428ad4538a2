package agent

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// managed gives an end port a manager.
func (n *fakeNode) managed(port ib.PortNum, timeout uint8) {
	p := &n.ports[port]
	p.LID, p.MasterSMLID, p.MasterSMSL, p.SubnetTimeOut = ib.LID(10+port), 3, 4, timeout
}

// trapNow wants a trap and returns its notice.
func trapNow(t *testing.T, a *Agent, now ib.Time) (mad.Notice, Address, mad.View) {
	t.Helper()
	buf := make([]byte, mad.Size)
	to, ok := a.PollTrap(now, buf)
	if !ok {
		t.Fatalf("no trap at %v", now)
	}
	v := mad.View(buf)
	var n mad.Notice
	if _, err := n.Parse(v.Data()); err != nil {
		t.Fatal(err)
	}
	if v.BaseVersion() != 1 || v.Class() != mad.ClassSMLID || v.ClassVersion() != 1 || v.Method() != mad.MethodTrap ||
		v.AttrID() != mad.AttrNotice ||
		v.MKey() != 0 || v.Status() != 0 || v.AttrMod() != 0 || v.TID() == 0 || !n.IsGeneric {
		t.Fatalf("malformed trap:\n%s", mad.Dump(buf))
	}
	return n, to, v
}

func noTrap(t *testing.T, a *Agent, now ib.Time) {
	t.Helper()
	if to, ok := a.PollTrap(now, make([]byte, mad.Size)); ok {
		t.Fatalf("a trap to %v at %v", to.DLID, now)
	}
}

// answer is the manager's TrapRepress.
func answer(t *testing.T, a *Agent, now ib.Time, port ib.PortNum, trap mad.View, mkey uint64) {
	t.Helper()
	r := append([]byte(nil), trap...)
	v := mad.View(r)
	v.SetMethod(mad.MethodTrapRepress)
	v.SetMKey(mkey)
	if d := a.DeliverFrom(now, port, 3, false, r); d.Do != Discard {
		t.Fatalf("TrapRepress is answered: %v", d.Do)
	}
}

func TestTrapUntilRepressed(t *testing.T) {
	_, s := benchSwitch(t)
	a := New(s)
	if a.NextDeadline() != ib.Never {
		t.Fatal("a deadline without a reason")
	}
	s.notes = []Notice{{Trap: mad.TrapLinkStateChange}}
	noTrap(t, a, 0) // no manager: nobody to tell
	s.managed(0, 18)
	noTrap(t, a, 0)

	s.notes = []Notice{{Trap: mad.TrapLinkStateChange}}
	n, to, first := trapNow(t, a, 100)
	if to != (Address{Port: 0, SLID: 10, DLID: 3, SL: 4}) {
		t.Errorf("to %+v", to)
	}
	if n.Type != mad.NoticeUrgent || n.ProducerTypeVendorID != uint32(ib.NodeSwitch) ||
		n.TrapNumberDeviceID != mad.TrapLinkStateChange ||
		n.IssuerLID != 10 || n.DataDetails != [mad.NoticeDataLen]byte{0, 10} {
		t.Errorf("notice %+v", n)
	}
	// It happens again while the manager has not answered.
	s.notes = []Notice{{Trap: mad.TrapLinkStateChange}}
	const interval = 4096 * ib.Nanosecond << 18
	noTrap(t, a, 100+interval-1)
	if d := a.NextDeadline(); d != 100+interval {
		t.Errorf("deadline %v, want %v", d, 100+interval)
	}
	_, _, second := trapNow(t, a, 100+interval)
	if second.TID() != first.TID() {
		t.Errorf("the repetition has TID %d, the trap %d", second.TID(), first.TID())
	}
	noTrap(t, a, 100+interval)
	// The repetition told of both; an answer ends it.
	answer(t, a, 100+interval, 5, second, 0)
	if a.NextDeadline() != ib.Never {
		t.Error("an answered trap has a deadline")
	}
	noTrap(t, a, 100*interval)

	// Once more after it was sent, and the answer was on its way: told again, as a new trap.
	s.notes = []Notice{{Trap: mad.TrapLinkStateChange}}
	_, _, third := trapNow(t, a, 200*interval)
	s.notes = []Notice{{Trap: mad.TrapLinkStateChange}}
	noTrap(t, a, 200*interval+1)
	answer(t, a, 200*interval+2, 5, third, 0)
	_, _, fourth := trapNow(t, a, 201*interval)
	if fourth.TID() == third.TID() {
		t.Error("a new trap has the TID of an answered one")
	}
	answer(t, a, 201*interval, 5, third, 0) // late and of no use: the details still name it
	noTrap(t, a, 300*interval)
}

func TestTrapsStopWithoutManager(t *testing.T) {
	_, n := benchCA(t)
	a := New(n)
	n.managed(1, 10)
	n.managed(2, 10)
	n.ports[2].PortState = ib.PortDown
	n.notes = []Notice{{Trap: mad.TrapBufferOverrun, Port: 1}, {Trap: mad.TrapLinkIntegrity, Port: 2}}
	note, to, _ := trapNow(t, a, 0)
	var d mad.PortErrorDetails
	if _, err := d.Parse(note.DataDetails[:]); err != nil || d != (mad.PortErrorDetails{LID: 11, Port: 1}) ||
		to.Port != 1 || note.TrapNumberDeviceID != mad.TrapBufferOverrun {
		t.Errorf("%+v to %+v, %v", d, to, err)
	}
	// Port 2 has no link to send by: it is tried again later.
	noTrap(t, a, 1)
	if dl := a.NextDeadline(); dl <= 1 || dl == ib.Never {
		t.Errorf("deadline %v", dl)
	}
	n.ports[2].PortState = ib.PortActive
	n.ports[1].MasterSMLID = 0
	if note, to, _ = trapNow(t, a, ib.Second); to.Port != 2 || note.TrapNumberDeviceID != mad.TrapLinkIntegrity {
		t.Errorf("trap %d by port %d", note.TrapNumberDeviceID, to.Port)
	}
	if len(a.traps.list) != 1 {
		t.Errorf("%d traps wait, want only port 2's", len(a.traps.list))
	}
}

// TestTrapRate: however much there is to tell, no more than one trap leaves in SubnetTimeOut, and all of them
// get their turn.
func TestTrapRate(t *testing.T) {
	_, n := benchCA(t)
	a := New(n)
	n.managed(1, 14)
	for i := range 100 {
		n.notes = append(n.notes, Notice{Trap: mad.TrapBadPKey, Port: 1, Packet: mad.KeyDetails{Key: uint32(i)}})
	}
	const interval = 4096 * ib.Nanosecond << 14
	seen := map[uint32]int{}
	for now := ib.Time(0); now < 100*interval; now += interval / 4 {
		buf := make([]byte, mad.Size)
		if _, ok := a.PollTrap(now, buf); ok {
			var d mad.KeyDetails
			if _, err := d.Parse(buf[mad.SMPDataOff+10:]); err != nil {
				t.Fatal(err)
			}
			seen[d.Key]++
			noTrap(t, a, now)
		}
	}
	if len(seen) != maxTraps {
		t.Errorf("%d of 100 different notices were told, want %d", len(seen), maxTraps)
	}
	total := 0
	for k := range uint32(maxTraps) {
		if seen[k] < 5 || seen[k] > 8 {
			t.Errorf("notice %d was told %d times", k, seen[k])
		}
		total += seen[k]
	}
	if total != 100 {
		t.Errorf("%d traps in 100 intervals", total)
	}
}

func TestChangesAreTold(t *testing.T) {
	b, n := benchCA(t)
	a := b.Agent
	n.managed(1, 0)
	n.managed(2, 0)
	details := func(now ib.Time) (mad.CapabilityDetails, ib.PortNum, mad.View) {
		note, to, v := trapNow(t, a, now)
		var d mad.CapabilityDetails
		if _, err := d.Parse(note.DataDetails[:]); err != nil || note.TrapNumberDeviceID != mad.TrapCapabilityChange ||
			note.Type != mad.NoticeInformational {
			t.Fatalf("%+v, %v", note, err)
		}
		return d, to.Port, v
	}
	a.SetDescription("fake") // as it is
	noTrap(t, a, 0)
	a.SetDescription("other")
	for _, want := range []ib.PortNum{1, 2} {
		d, port, v := details(0)
		if port != want || !d.OtherLocalChanges || d.ChangeFlags != mad.ChangeNodeDescription ||
			d.LID != ib.LID(10+want) ||
			d.CapabilityMask&mad.CapTrap == 0 || d.CapabilityMask2 != agentCaps2 {
			t.Errorf("port %d: %+v", port, d)
		}
		answer(t, a, 0, port, v, 0)
	}
	var desc mad.NodeDescription
	b.get(mad.AttrNodeDescription, 0, &desc)
	if desc.String() != "other" {
		t.Errorf("description %q", desc)
	}
	a.SetCapability(1, mad.CapIsSM, true)
	d, port, _ := details(ib.Second)
	if port != 1 || d.OtherLocalChanges || d.ChangeFlags != 0 || d.CapabilityMask&mad.CapIsSM == 0 {
		t.Errorf("port %d: %+v", port, d)
	}
	// Two changes that are not answered become one trap that tells both.
	a.SetDescription("third")
	a.SetCapability(1, mad.CapIsSM, false)
	for range 2 {
		if d, port, _ = details(2 * ib.Second); port == 1 {
			break
		}
	}
	if d.CapabilityMask&mad.CapIsSM != 0 || d.ChangeFlags != mad.ChangeNodeDescription {
		t.Errorf("%+v", d)
	}
	a.SetCapability(1, mad.CapIsSM, true)
	a.SetCapability(7, mad.CapIsSM, true) // no such port
	var pi mad.PortInfo
	b.get(mad.AttrPortInfo, 1, &pi)
	if pi.CapabilityMask&(mad.CapIsSM|agentCaps) != mad.CapIsSM|agentCaps || pi.CapabilityMask2&agentCaps2 == 0 {
		t.Errorf("capabilities %v, %#x", pi.CapabilityMask, pi.CapabilityMask2)
	}
	// Where a manager runs, SMInfo is its business.
	smp, err := (&mad.SMP{Method: mad.MethodGet, Attr: mad.AttrSMInfo}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := a.Deliver(0, 1, false, append([]byte(nil), smp...)); v.Do != ToManager {
		t.Errorf("SMInfo at the manager's port: %v", v.Do)
	}
	if v := a.Deliver(0, 2, false, smp); v.Do != AsAddressed {
		t.Errorf("SMInfo at another port: %v", v.Do)
	}

	_, s := benchSwitch(t)
	s.managed(0, 0)
	sw := New(s)
	sw.NotifySystemGUID()
	note, to, _ := trapNow(t, sw, 0)
	var g mad.SystemGUIDDetails
	if _, err := g.Parse(note.DataDetails[:]); err != nil || g.SystemImageGUID != 0x100 || g.LID != 10 ||
		to.Port != 0 || note.TrapNumberDeviceID != mad.TrapSystemImageGUID {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestBadMKeyTrap(t *testing.T) {
	b, n := benchCA(t)
	a := b.Agent
	n.managed(1, 0)
	pi := n.ports[1]
	pi.MKey, pi.MKeyProtectBits, pi.PortState, pi.PortPhysicalState = 0x77, 1, 0, 0
	if st := b.set(mad.AttrPortInfo, 1, &pi); st != mad.StatusOK {
		t.Fatal(st)
	}
	if b.ask(mad.MethodGet, mad.AttrNodeInfo, 0, nil) == nil {
		t.Fatal("reading is not protected")
	}
	noTrap(t, a, 0)
	path := make([]ib.PortNum, 40)
	for i := range path {
		path[i] = 1
	}
	smp, err := (&mad.SMP{Method: mad.MethodSet, Attr: mad.AttrPortInfo, Modifier: 1, MKey: 0x99, Directed: true,
		Path: path}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := mad.View(smp)
	for i := range uint8(41) {
		v.SetReturnPath(i, ib.PortNum(i))
	}
	if _, ok := a.HandleFrom(0, 1, 9, smp, make([]byte, mad.Size)); ok {
		t.Fatal("a wrong M_Key is answered")
	}
	note, to, trap := trapNow(t, a, 0)
	var d mad.MKeyDetails
	if _, err := d.Parse(note.DataDetails[:]); err != nil {
		t.Fatal(err)
	}
	want := mad.MKeyDetails{
		LID: 9, DrSLID: ib.LIDPermissive, Method: mad.MethodSet, AttributeID: mad.AttrPortInfo, AttributeModifier: 1,
		MKey:     0x99,
		Directed: true, Truncated: true, HopCount: mad.MKeyPathLen,
	}
	for i := range want.ReturnPath {
		want.ReturnPath[i] = byte(i)
	}
	if d != want || to.Port != 1 || note.TrapNumberDeviceID != mad.TrapBadMKey || note.Type != mad.NoticeSecurity {
		t.Errorf("got %+v\nwant %+v", d, want)
	}
	// Only who knows the key may silence it; trying without is one more violation.
	answer(t, a, 0, 1, trap, 0)
	for i := range ib.Time(2) {
		now := (i + 1) * ib.Second
		again, _, trap := trapNow(t, a, now)
		if again.TrapNumberDeviceID != mad.TrapBadMKey {
			t.Errorf("trap %d", again.TrapNumberDeviceID)
		}
		answer(t, a, now, 1, trap, 0x77)
	}
	noTrap(t, a, ib.Second*9)
}

// TestNoticeQueue reads the notices as an attribute.
func TestNoticeQueue(t *testing.T) {
	b, n := benchCA(t)
	var note mad.Notice
	b.get(mad.AttrNotice, 0, &note)
	if note.Type != mad.NoticeEmpty || note.NoticeCount != 0 {
		t.Errorf("an empty queue reads %+v", note)
	}
	for i := range 20 {
		n.notes = append(n.notes, Notice{Trap: mad.TrapBadPKey, Port: 1, Packet: mad.KeyDetails{Key: uint32(i)}})
	}
	n.notes = append(n.notes, Notice{Trap: mad.TrapBadQKey, Port: 2})
	noTrap(t, b.Agent, 0) // nobody to tell, but it is noted
	key := func() uint32 {
		var d mad.KeyDetails
		if _, err := d.Parse(note.DataDetails[:]); err != nil {
			t.Fatal(err)
		}
		return d.Key
	}
	b.get(mad.AttrNotice, 0, &note)
	if note.TrapNumberDeviceID != mad.TrapBadPKey || key() != 0 || note.NoticeCount != maxNotices {
		t.Errorf("%+v", note)
	}
	wrong := note
	wrong.NoticeToggle = !note.NoticeToggle
	if st := b.set(mad.AttrNotice, 0, &wrong); st != mad.StatusOK {
		t.Fatal(st)
	}
	for i := range maxNotices {
		b.get(mad.AttrNotice, 0, &note)
		if key() != uint32(i) || int(note.NoticeCount) != maxNotices-i {
			t.Fatalf("notice %d is %+v", i, note)
		}
		if st := b.set(mad.AttrNotice, 0, &note); st != mad.StatusOK {
			t.Fatal(st)
		}
	}
	b.get(mad.AttrNotice, 0, &note)
	if note.Type != mad.NoticeEmpty {
		t.Errorf("%+v", note)
	}
}
