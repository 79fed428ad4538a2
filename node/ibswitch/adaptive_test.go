package ibswitch

import (
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// chooser is a switch with a LID whose packets may leave by ports 2, 3 and 4, and by 3 if they do not choose.
func chooser(t *testing.T, m Membership, a Adaptive) *bench {
	b := newBench(t, 8)
	b.route(7, 3)
	var ports ib.PortMask
	for p := ib.PortNum(2); p <= 4; p++ {
		ports.Set(p)
	}
	if err := b.SetGroup(m.Group, ports); err != nil {
		t.Fatal(err)
	}
	if err := b.SetGroupOf(7, m); err != nil {
		t.Fatal(err)
	}
	b.SetAdaptive(a)
	return b
}

// send lets a packet of a transport in by port 1 and says where it goes.
func (b *bench) send(op wire.Opcode, qp ib.QPN) ib.PortNum {
	b.t.Helper()
	f := b.packet(7, 0)
	f.Packet.BTH.Opcode, f.Packet.BTH.DestQP = op, qp
	var before [9]int
	for p := range before {
		before[p] = b.Port(ib.PortNum(p)).Queued(0)
	}
	if r := b.Handle(b.now, 1, f); r.Reason.IsDrop() {
		b.t.Fatalf("dropped: %v", r.Reason)
	}
	for p := range before {
		if b.Port(ib.PortNum(p)).Queued(0) > before[p] {
			return ib.PortNum(p)
		}
	}
	b.t.Fatal("it is nowhere")
	return 0
}

// anyone is how a switch chooses for reliable connections of all levels.
var anyone = Adaptive{On: true, Levels: 0xFFFF, Fixed: Datagram | Unconfirmed, Ageing: 5 * ib.Microsecond}

var (
	rcOnly   = wire.MakeOpcode(wire.RC, wire.OpSendOnly)
	rcFirst  = wire.MakeOpcode(wire.RC, wire.OpSendFirst)
	rcMiddle = wire.MakeOpcode(wire.RC, wire.OpSendMiddle)
)

func TestAdaptiveByPacket(t *testing.T) {
	b := chooser(t, Membership{Group: 5}, anyone)
	// The port of the forwarding table first, then those where nobody waits, then all in turn.
	for i, want := range []ib.PortNum{3, 4, 2, 3, 4, 2, 3} {
		if got := b.send(rcOnly, 9); got != want {
			t.Fatalf("packet %d leaves by %d, want %d", i, got, want)
		}
	}
	for range 3 {
		b.out(2)
	}
	if got := b.send(rcOnly, 9); got != 2 {
		t.Errorf("it leaves by %d, where others wait", got)
	}
	// Nobody puts these in order again.
	for _, service := range []wire.Service{wire.UD, wire.UC} {
		op := wire.MakeOpcode(service, wire.OpSendOnly)
		if got := b.send(op, 9); got != 3 {
			t.Errorf("%v leaves by %d, want 3", op, got)
		}
	}
	a := anyone
	a.Levels = 1 << 4
	b.SetAdaptive(a)
	if got := b.send(rcOnly, 9); got != 3 {
		t.Errorf("a packet of a level that may not choose leaves by %d, want 3", got)
	}
	b.SetAdaptive(Adaptive{})
	if got := b.send(rcOnly, 9); got != 3 {
		t.Errorf("while nobody may choose it leaves by %d, want 3", got)
	}
}

// TestAdaptiveLostLink: the next packet goes around a link that is lost, whether it may choose or not.
func TestAdaptiveLostLink(t *testing.T) {
	b := chooser(t, Membership{Group: 0}, anyone)
	b.Port(3).Down(b.now)
	for i, want := range []ib.PortNum{4, 2, 4, 2} {
		if got := b.send(rcOnly, 9); got != want {
			t.Errorf("packet %d leaves by %d, want %d", i, got, want)
		}
	}
	// What nobody puts in order again goes by one other, also where flows choose anew with each message.
	unordered := []wire.Opcode{wire.MakeOpcode(wire.UD, wire.OpSendOnly), wire.MakeOpcode(wire.UC, wire.OpSendOnly)}
	byMessage := anyone
	byMessage.Ageing = ib.Never
	for _, m := range []Membership{{Group: 0}, {Group: 0, Bounded: true}} {
		c := chooser(t, m, byMessage)
		c.Port(3).Down(c.now)
		for _, op := range unordered {
			first := c.send(op, 9)
			for range 5 {
				if got := c.send(op, 9); got != first || got == 3 {
					t.Errorf("%+v: %v leaves by %d and %d", m, op, first, got)
				}
			}
		}
	}
	b.Port(2).Down(b.now)
	b.Port(4).Down(b.now)
	f := b.packet(7, 0)
	if r := b.Handle(b.now, 1, f); !r.Reason.IsDrop() {
		t.Errorf("with all links lost: %+v", r)
	}
	// A packet does not go back where it came from.
	b = chooser(t, Membership{Group: 0}, anyone)
	for range 6 {
		f := b.packet(7, 0)
		f.Packet.BTH.Opcode = rcOnly
		if d := b.Decide(2, f); d.Out == 2 {
			t.Fatal("it goes back")
		}
		b.Handle(b.now, 2, f)
	}
}

func TestAdaptiveBounded(t *testing.T) {
	b := chooser(t, Membership{Group: 0, Bounded: true}, anyone)
	first := b.send(rcOnly, 9)
	for range 5 {
		b.now += 4 * ib.Microsecond
		if got := b.send(rcOnly, 9); got != first {
			t.Fatalf("a flow that sends has moved from %d to %d", first, got)
		}
	}
	if got := b.send(rcOnly, 10); got == first {
		t.Error("another flow waits behind it")
	}
	b.now += 6 * ib.Microsecond
	if got := b.send(rcOnly, 9); got == first {
		t.Error("a flow that was silent stays")
	}
	a := anyone
	a.Ageing = ib.Never
	b = chooser(t, Membership{Group: 0, Bounded: true}, a)
	first = b.send(rcFirst, 9)
	for range 5 {
		b.now += ib.Second
		if got := b.send(rcMiddle, 9); got != first {
			t.Fatalf("a message has moved from %d to %d", first, got)
		}
	}
	if got := b.send(rcFirst, 9); got == first {
		t.Error("the next message waits behind it")
	}
}

// TestAdaptiveTables: what a manager writes is there, what is wrong is refused, and a change of the forwarding table is
// in force at once.
func TestAdaptiveTables(t *testing.T) {
	b := chooser(t, Membership{Group: 5, Bounded: true}, anyone)
	n := NewNode(b.Switch, NodeConfig{})
	groups := n.ARGroups(2)
	if groups[0] != (ib.PortMask{}) || groups[1] != (ib.PortMask{0b11100}) {
		t.Errorf("groups 4 and 5: %v", groups)
	}
	lft := n.ARLFT(0)
	if want := (mad.AREntry{State: mad.ARBounded, Port: 3, Group: 5}); lft[7] != want {
		t.Errorf("LID 7: %+v, want %+v", lft[7], want)
	}
	if want := (mad.AREntry{State: mad.ARStatic, Port: mad.LFTNone, Group: 255}); lft[6] != want {
		t.Errorf("LID 6: %+v, want %+v", lft[6], want)
	}
	lft[7] = mad.AREntry{State: mad.ARStatic, Group: 6}
	lft[8] = mad.AREntry{State: mad.ARFree, Port: 4, Group: 5}
	if err := n.SetARLFT(0, 0, lft); err != nil {
		t.Fatal(err)
	}
	if got := b.send(rcOnly, 9); got != 6 {
		t.Errorf("a LID that has lost its group leaves by %d, want 6", got)
	}
	if got := n.ARLFT(0); got[8] != lft[8] || b.Route(7) != 6 {
		t.Errorf("read back: %+v", got)
	}
	info := n.ARInfo()
	info.AgeingTime, info.BySL, info.SLMask = 77, true, 3
	if err := n.SetARInfo(0, info); err != nil || n.ARInfo() != info {
		t.Errorf("read back: %+v, want %+v (%v)", n.ARInfo(), info, err)
	}
	for _, err := range []error{b.SetGroup(NumGroups, ib.PortMask{}), b.SetGroup(-1, ib.PortMask{}),
		b.SetGroupOf(0xC000, Membership{}), b.SetGroupOf(1, Membership{Group: NumGroups})} {
		if err == nil {
			t.Error("what is wrong was taken")
		}
	}
	// A manager that writes a forwarding table may know nothing of groups.
	if err := n.SetLFT(0, 0, n.LFT(0)); err != nil || n.ARInfo().Enabled {
		t.Errorf("it goes on choosing (%v)", err)
	}
	b.SetAdaptive(anyone)
	if err := b.SetLinearFDBTop(6); err != nil {
		t.Fatal(err)
	}
	f := b.packet(8, 0)
	if r := b.Handle(b.now, 1, f); r.Reason != link.UnknownDLID {
		t.Errorf("above the end of the table: %v", r.Reason)
	}
	b.Port(1).SetMarking(link.Marking{Threshold: 3})
	ask := func(e mad.AREntry) mad.Status {
		var buf [mad.Size]byte
		v := mad.View(buf[:])
		if _, err := (&mad.SMP{Method: mad.MethodSet, Attr: mad.AttrARLFT}).Append(buf[:0]); err != nil {
			t.Fatal(err)
		}
		block := mad.ARLFT{e}
		block.Append(v.Data()[:0])
		agent.New(n).HandleMAD(0, 0, v, v)
		return v.Status()
	}
	for _, e := range []mad.AREntry{{State: 3}, {State: mad.ARFree, Group: NumGroups}, {State: mad.ARFree, Table: 1},
		{State: mad.ARStatic, Group: 0x103}} {
		if st := ask(e); st != mad.StatusInvalidField {
			t.Errorf("%+v is answered with %v", e, st)
		}
	}
	b.Reset()
	if b.Adaptive().On || b.GroupOf(8).Group != -1 || b.Port(1).Marking() != (link.Marking{}) {
		t.Error("a switch that was off remembers")
	}
}
