package ibswitch

import (
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
)

// told are the notices since the last call.
func told(n *Node) (list []agent.Notice) {
	for v, ok := n.PollNotice(); ok; v, ok = n.PollNotice() {
		list = append(list, v)
	}
	return list
}

// TestLinkStateNotice: a manager hears of links that went up or down by themselves, and of nothing else.
func TestLinkStateNotice(t *testing.T) {
	s, n, g := managed(t)
	var si mad.SwitchInfo
	mustDo(t, g, mad.MethodGet, mad.AttrSwitchInfo, 0, &si)
	si.PortStateChange = true
	mustDo(t, g, mad.MethodSet, mad.AttrSwitchInfo, 0, &si)
	want := func(what string, changed bool) {
		t.Helper()
		list := told(n)
		if (len(list) == 1 && list[0] == agent.Notice{Trap: mad.TrapLinkStateChange}) != changed || len(list) > 1 {
			t.Errorf("%s: notices %+v", what, list)
		}
		mustDo(t, g, mad.MethodGet, mad.AttrSwitchInfo, 0, &si)
		if si.PortStateChange != changed {
			t.Errorf("%s: PortStateChange %v", what, si.PortStateChange)
		}
		si.PortStateChange = true
		mustDo(t, g, mad.MethodSet, mad.AttrSwitchInfo, 0, &si)
	}
	want("nothing happened", false)
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PortState = ib.PortArmed })
	want("armed by a manager", false)
	if err := s.Port(1).Command(0, ib.PortActive); err != nil {
		t.Fatal(err)
	}
	want("activated by traffic", false)
	s.Port(1).Down(5)
	want("down", true)
	s.Port(1).Train()
	want("training", false)
	s.Port(1).LinkUp(6)
	want("up", true)
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PortState = ib.PortArmed })
	s.Port(1).Down(7)
	s.Port(1).Train()
	s.Port(1).LinkUp(8)
	want("down and up between two looks", true)
	writePort(t, g, 2, func(pi *mad.PortInfo) { pi.PortPhysicalState = ib.PhysDisabled })
	want("disabled by a manager", false)
}

func TestErrorNotices(t *testing.T) {
	b := newBench(t, 3)
	n := NewNode(b.Switch, NodeConfig{Identity: agent.Identity{GUID: 1}})
	told(n)
	b.Port(2).SetErrorThresholds(2, 1)
	for range 3 {
		f := b.packet(5, 0)
		f.Flags |= link.BadVCRC
		b.Handle(b.now, 2, f)
	}
	for range 1000 {
		b.Handle(b.now, 2, b.packet(0xBFFF, 0)) // no route: the buffer is given back
	}
	b.route(5, 3)
	for !b.Port(2).HasAlarm() || b.Port(2).Counter(ib.ExcessiveBufferOverrunErrors) == 0 {
		b.Handle(b.now, 2, b.packet(5, 0)) // until port 3's queue holds port 2's whole buffer
	}
	list := told(n)
	if len(list) != 2 || list[0] != (agent.Notice{Trap: mad.TrapLinkIntegrity, Port: 2}) ||
		list[1] != (agent.Notice{Trap: mad.TrapBufferOverrun, Port: 2}) {
		t.Errorf("notices %+v, want integrity and overrun at port 2", list)
	}
	if list := told(n); list != nil {
		t.Errorf("told again: %+v", list)
	}
}

func TestRefusalNotices(t *testing.T) {
	b := newBench(t, 3)
	n := NewNode(b.Switch, NodeConfig{Identity: agent.Identity{GUID: 1}})
	told(n)
	b.route(5, 2)
	b.Port(1).SetPKeys([]ib.PKey{0x8001})
	b.Port(1).SetEnforcement(link.EnforcePKeyIn)
	b.Port(2).SetPKeys([]ib.PKey{0x8002})
	b.Port(2).SetEnforcement(link.EnforcePKeyOut)
	send := func(in ib.PortNum, k ib.PKey) {
		f := b.packet(5, 3)
		f.Packet.BTH.PKey, f.Packet.DETH.SrcQP = k, 77
		b.Handle(b.now, in, f)
	}
	send(1, 0x8002)
	send(3, 0x8001)
	want := []agent.Notice{
		{Trap: mad.TrapBadPKeySwitch, Port: 1, Packet: mad.KeyDetails{LID1: 99, LID2: 5, Key: 0x8002, SL: 3, QP1: 77,
			QP2: 9}},
		{Trap: mad.TrapBadPKeySwitch, Port: 2, Packet: mad.KeyDetails{LID1: 99, LID2: 5, Key: 0x8001, SL: 3, QP1: 77,
			QP2: 9}},
	}
	if list := told(n); len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("notices %+v, want %+v", list, want)
	}
	for range 100 {
		send(1, 0x8002)
	}
	if list := told(n); len(list) != maxRefused {
		t.Errorf("%d notices of 100 refused packets, want %d", len(list), maxRefused)
	}
}

// TestUnwrittenMaps: a switch whose maps nobody wrote finds a lane for every level on every way out, and drops
// what a written map sends to a lane that is not there.
func TestUnwrittenMaps(t *testing.T) {
	b := newBench(t, 3)
	n := NewNode(b.Switch, NodeConfig{Identity: agent.Identity{GUID: 1}})
	b.route(5, 3)
	if err := b.Port(3).SetOperVLs(b.now, 2); err != nil {
		t.Fatal(err)
	}
	for sl := range ib.SL(16) {
		f := b.packet(5, sl)
		if r := b.Handle(b.now, 1, f); r.Out != 3 {
			t.Fatalf("SL %d: %+v", sl, r)
		}
		if g := b.out(3); g != f || g.LRH.VL != b.SL2VL(1, 3)[sl] || g.LRH.VL != ib.VL(sl%2) {
			t.Fatalf("SL %d left on VL %d, the map says %d", sl, f.LRH.VL, b.SL2VL(1, 3)[sl])
		}
		b.pool.Put(f)
	}
	if b.SL2VL(1, 2)[3] != 3 {
		t.Errorf("SL 3 to port 2 has VL %d, want 3", b.SL2VL(1, 2)[3])
	}
	wide := mad.SLtoVL{5: 3, 6: 1}
	if err := n.SetSLtoVL(0, 1, 3, wide); err != nil {
		t.Fatal(err)
	}
	b.dropped(1, b.packet(5, 5), link.BadVLMap, 1, ib.PortRcvSwitchRelayErrors, ib.PortVLMappingErrors)
	if r := b.Handle(b.now, 2, b.packet(5, 5)); r.Out != 3 {
		t.Errorf("another pair's map was not written: %+v", r)
	}
	b.pool.Put(b.out(3))
	if n.SLtoVL(1, 3) != wide {
		t.Errorf("the map reads %v", n.SLtoVL(1, 3))
	}
}

func TestSpreadSLtoVL(t *testing.T) {
	s, n, g := managed(t)
	one, two := mad.SLtoVL{0: 1}, mad.SLtoVL{0: 2}
	all := one
	mustDo(t, g, mad.MethodSet, mad.AttrSLtoVL, mad.SLtoVLAllInputs|mad.SLtoVLAllOutputs, &all)
	if all != one || s.sl2vl != nil {
		t.Errorf("all pairs: answer %v, a table of its own %v", all, s.sl2vl != nil)
	}
	toTwo := two
	mustDo(t, g, mad.MethodSet, mad.AttrSLtoVL, mad.SLtoVLAllInputs|2, &toTwo)
	fromThree := mad.SLtoVL{0: 3}
	mustDo(t, g, mad.MethodSet, mad.AttrSLtoVL, mad.SLtoVLAllOutputs|mad.SLtoVLModifier(3, 0), &fromThree)
	for in := range ib.PortNum(5) {
		for out := range ib.PortNum(5) {
			want := ib.VL(1)
			switch {
			case in == 3:
				want = 3
			case out == 2:
				want = 2
			}
			if got := n.SLtoVL(in, out)[0]; got != want {
				t.Errorf("%d to %d: VL %d, want %d", in, out, got, want)
			}
		}
	}
}
