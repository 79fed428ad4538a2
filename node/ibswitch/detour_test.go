package ibswitch

import (
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
)

// detourBench is a switch with a host at port 1, local links at 2 and 3 and global ones at 4 and 5. The way to LID 7 is
// port 3, and 4 and 5 are detours for lanes 0 and 1. From hosts packets go to lane 1 on local links and to 2 on global
// ones, from local links on lane 1 to 2 on global ones.
func detourBench(t *testing.T, bounded bool) *bench {
	b := newBench(t, 5)
	b.route(7, 3)
	for in := ib.PortNum(1); in <= 5; in++ {
		for out := ib.PortNum(2); out <= 5; out++ {
			var m [ib.NumSL]ib.VL
			switch {
			case in == 1 && out <= 3:
				m[0] = 1
			case in == 1:
				m[0] = 2
			case in <= 3 && out >= 4:
				m[1], m[2] = 2, 3
			case in >= 4 && out <= 3:
				m[2], m[3] = 2, 3
			}
			if err := b.SetSL2VL(in, out, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.SetByLane(true)
	var near, detours ib.PortMask
	near.Set(3)
	detours.Set(4)
	detours.Set(5)
	for i, m := range []ib.PortMask{near, detours} {
		if err := b.SetGroup(2*6+i, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.SetGroupOf(7, Membership{Group: 6, Bounded: bounded}); err != nil {
		t.Fatal(err)
	}
	a := anyone
	a.Detours, a.Bias = 1<<0|1<<1, DetourBias
	b.SetAdaptive(a)
	return b
}

// come lets a packet in by a port on a lane, and says where it goes and on which.
func (b *bench) come(in ib.PortNum, vl ib.VL) (out ib.PortNum, lane ib.VL, r link.Reason) {
	f := b.packet(7, 0)
	f.Packet.BTH.Opcode, f.LRH.VL = rcOnly, vl
	d := b.Decide(in, f)
	b.Handle(b.now, in, f)
	return d.Out, d.VL, d.Reason
}

// TestDetours: they are taken where there is less than half as much to wait for, and the bias besides, by packets that
// come on their lanes; lanes only rise.
func TestDetours(t *testing.T) {
	b := detourBench(t, false)
	waits := map[ib.PortNum]int{}
	for i := range 24 {
		want := ib.PortNum(3)
		by := ib.PortNum(4)
		if waits[5] < waits[4] {
			by = 5
		}
		if waits[3]-DetourBias > 2*waits[by] {
			want = by
		}
		out, lane, _ := b.come(1, 0)
		if lane != map[ib.PortNum]ib.VL{3: 1, 4: 2, 5: 2}[out] || out != want {
			t.Fatalf("packet %d leaves by %d on lane %d, want by %d, with %v", i, out, lane, want, waits)
		}
		waits[out] += 2
	}
	if waits[4] == 0 || waits[5] == 0 {
		t.Fatalf("no detours: %v", waits)
	}
	for _, c := range []struct {
		name      string
		in        ib.PortNum
		vl        ib.VL
		out, also ib.PortNum
		lane      ib.VL
	}{
		{"from a local link, where the lane would fall on the next", 2, 1, 4, 5, 2},
		{"from a global link: it has had its detour", 4, 2, 3, 3, 2},
		{"on its last lane", 5, 3, 3, 3, 3},
	} {
		if out, lane, r := b.come(c.in, c.vl); out != c.out && out != c.also || lane != c.lane {
			t.Errorf("%s: leaves by %d on lane %d (%v), want %d on %d", c.name, out, lane, r, c.out, c.lane)
		}
	}
	b.Port(4).Down(b.now)
	b.Port(5).Down(b.now)
	if out, lane, r := b.come(2, 1); r != link.UnknownDLID {
		t.Errorf("without a lane that rises it leaves by %d on lane %d (%v)", out, lane, r)
	}
	b.Reset()
	if b.ByLane() {
		t.Error("a switch that was off remembers what lanes go by")
	}
}

// TestDetourStays: a flow stays with its detour only where its packets may take it.
func TestDetourStays(t *testing.T) {
	b := detourBench(t, true)
	first, _, _ := b.come(2, 1)
	if out, _, _ := b.come(2, 1); first < 4 || out != first {
		t.Errorf("a flow leaves by %d and then by %d", first, out)
	}
	if out, lane, _ := b.come(4, 2); out != 3 || lane != 2 {
		t.Errorf("it has come back by a global link, and leaves by %d on lane %d", out, lane)
	}
}

// TestDetourNode: what a manager reads and writes.
func TestDetourNode(t *testing.T) {
	b := newBench(t, 5)
	n := NewNode(b.Switch, NodeConfig{})
	ask := func(method mad.Method, attr mad.AttrID, write func([]byte) []byte) mad.View {
		var buf [mad.Size]byte
		v := mad.View(buf[:])
		if _, err := (&mad.SMP{Method: method, Attr: attr}).Append(buf[:0]); err != nil {
			t.Fatal(err)
		}
		if write != nil {
			write(v.Data()[:0])
		}
		agent.New(n).HandleMAD(0, 0, v, v)
		return v
	}
	x := mad.ExtSwitchInfo{ByLane: true}
	if v := ask(mad.MethodSet, mad.AttrExtSwitchInfo, x.Append); v.Status() != mad.StatusOK || !b.ByLane() {
		t.Errorf("ExtendedSwitchInfo: %v, by lane %v", v.Status(), b.ByLane())
	}
	v := ask(mad.MethodGet, mad.AttrExtSwitchInfo, nil)
	if _, err := x.Parse(v.Data()); err != nil || x != (mad.ExtSwitchInfo{ByLaneCap: true, ByLane: true}) {
		t.Errorf("read back: %+v (%v)", x, err)
	}
	i := mad.ARInfo{Enabled: true, SubGroupsActive: 1, DetourLanes: 3, AgeingTime: mad.ARNeverAges}
	if v := ask(mad.MethodSet, mad.AttrARInfo, i.Append); v.Status() != mad.StatusOK || b.Adaptive().Detours != 3 {
		t.Errorf("AdaptiveRoutingInfo: %v, detours %x", v.Status(), b.Adaptive().Detours)
	}
	v = ask(mad.MethodGet, mad.AttrARInfo, nil)
	if _, err := i.Parse(v.Data()); err != nil || i.SubGroupsActive != 1 || i.DetourLanes != 3 {
		t.Errorf("read back: %+v (%v)", i, err)
	}
	for _, bad := range []mad.ARInfo{{SubGroupsActive: 2, DetourLanes: 1}, {SubGroupsActive: 1}, {DetourLanes: 1}} {
		if v := ask(mad.MethodSet, mad.AttrARInfo, bad.Append); v.Status() != mad.StatusInvalidField {
			t.Errorf("%+v: %v", bad, v.Status())
		}
	}
}
