package ibswitch

import (
	"errors"
	"testing"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// bench is a switch with all ports active and credit without end on each.
type bench struct {
	*Switch
	t    *testing.T
	pool *link.Pool
	now  ib.Time
}

func newBench(t *testing.T, ports int) *bench {
	t.Helper()
	b := &bench{t: t, pool: &link.Pool{BufSize: 4096}}
	b.Switch = New(Config{Ports: ports, Port: link.Config{Rate: ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR},
		VLCap: 4}}, b.pool)
	for n := 1; n <= ports; n++ {
		p := b.Port(ib.PortNum(n))
		p.Train()
		p.LinkUp(0)
		for _, s := range []ib.PortState{ib.PortArmed, ib.PortActive} {
			if err := p.Command(0, s); err != nil {
				t.Fatal(err)
			}
		}
		for vl := range ib.VL(4) {
			p.HandleFC(0, wire.LinkPacket{VL: vl, FCCL: 2000})
		}
	}
	b.now = ib.Microsecond
	return b
}

func (b *bench) packet(dlid ib.LID, sl ib.SL) *link.Frame {
	f := b.pool.Get()
	*f.Packet = wire.Packet{
		LRH:     wire.LRH{LNH: wire.LNHLocal, DLID: dlid, SLID: 99, SL: sl},
		BTH:     wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), PKey: ib.PKeyDefault, DestQP: 9},
		Payload: append(f.Buf()[:0], "payload of a packet"...),
	}
	f.Packet.Seal()
	f.Measure()
	return f
}

func (b *bench) smp(dlid ib.LID) *link.Frame {
	f := b.packet(dlid, 0)
	f.Packet.BTH.DestQP = 0
	f.LRH.VL = ib.VLMgmt
	return f
}

// out takes what a port sends now; nil for nothing.
func (b *bench) out(port ib.PortNum) *link.Frame {
	b.now += ib.Microsecond
	f, _, _ := b.Port(port).PollTx(b.now)
	if f != nil {
		b.Left(f)
	}
	return f
}

// dropped handles a packet that must be dropped, and checks that the reason was
// counted at a port and the buffer given back.
func (b *bench) dropped(in ib.PortNum, f *link.Frame, want link.Reason, at ib.PortNum, counter, detail ib.Counter) {
	b.t.Helper()
	before := b.Port(at).Counters()
	if r := b.Handle(b.now, in, f); r.Reason != want || r.Out != 0 {
		b.t.Errorf("in by %d to %v: %v out by %d, want %v", in, f.LRH.DLID, r.Reason, r.Out, want)
	}
	after := b.Port(at).Counters()
	for _, c := range []ib.Counter{counter, detail} {
		if c < ib.NumCounter && after[c] != before[c]+1 {
			b.t.Errorf("%v: port %d's %v went from %d to %d, want one more", want, at, c, before[c], after[c])
		}
	}
	if n := b.Port(in).Credit(f.InVL).Occupied; n != 0 {
		b.t.Errorf("%v: %d blocks stay occupied at port %d", want, n, in)
	}
	b.pool.Put(f)
}

func (b *bench) route(lid ib.LID, port ib.PortNum) {
	b.t.Helper()
	if err := b.SetRoute(lid, port); err != nil {
		b.t.Fatal(err)
	}
}

func TestForward(t *testing.T) {
	b := newBench(t, 4)
	b.route(5, 3)
	f := b.packet(5, 1)
	if r := b.Handle(b.now, 1, f); r != (Result{Out: 3}) {
		t.Fatalf("result %+v, want out by 3", r)
	}
	if n := b.Port(1).Credit(0).Occupied; n != 1 {
		t.Errorf("port 1 holds %d blocks while the packet waits, want 1", n)
	}
	// Another one queues behind it: nothing new to poll for.
	if r := b.Handle(b.now, 2, b.packet(5, 1)); r != (Result{}) {
		t.Errorf("result %+v of the second packet, want none", r)
	}
	g := b.out(3)
	if g != f || g.LRH.VL != 1 {
		t.Fatalf("port 3 sends %v on VL%d, want the packet on VL1", g == f, g.LRH.VL)
	}
	if n := b.Port(1).Credit(0).Occupied; n != 0 {
		t.Errorf("port 1 holds %d blocks after the packet left, want 0", n)
	}
	for _, p := range []ib.PortNum{1, 2, 4} {
		if b.out(p) != nil {
			t.Errorf("port %d sends something", p)
		}
	}
}

func TestDrops(t *testing.T) {
	b := newBench(t, 4)
	b.route(5, 3)
	b.route(6, 1)
	b.route(7, DropPort)
	b.route(8, 9) // no such port
	relay := ib.PortRcvSwitchRelayErrors
	b.dropped(1, b.packet(6, 0), link.Looping, 1, relay, ib.PortLoopingErrors)
	b.dropped(1, b.packet(7, 0), link.UnknownDLID, 1, relay, ib.PortDLIDMappingErrors)
	b.dropped(1, b.packet(8, 0), link.UnknownDLID, 1, relay, ib.PortDLIDMappingErrors)
	b.dropped(1, b.packet(40000, 0), link.UnknownDLID, 1, relay, ib.PortDLIDMappingErrors)
	b.dropped(1, b.packet(0, 0), link.UnknownDLID, 1, relay, ib.PortDLIDMappingErrors)
	b.dropped(1, b.packet(ib.LIDPermissive, 0), link.UnknownDLID, 1, relay, ib.PortDLIDMappingErrors)
	b.dropped(1, b.packet(0xC005, 0), link.UnknownDLID, 1, relay, ib.PortDLIDMappingErrors)

	if err := b.SetLinearFDBTop(4); err != nil {
		t.Fatal(err)
	}
	b.dropped(1, b.packet(5, 0), link.UnknownDLID, 1, relay, ib.PortDLIDMappingErrors)
	if err := b.SetLinearFDBTop(ib.LIDUnicastMax); err != nil {
		t.Fatal(err)
	}

	m := b.SL2VL(1, 3)
	m[2], m[3] = 15, 7
	if err := b.SetSL2VL(1, 3, m); err != nil {
		t.Fatal(err)
	}
	b.dropped(1, b.packet(5, 2), link.BadVLMap, 1, relay, ib.PortVLMappingErrors)
	b.dropped(1, b.packet(5, 3), link.BadVLMap, 1, relay, ib.PortVLMappingErrors)

	if err := b.Port(3).SetNeighborMTU(ib.MTU256); err != nil {
		t.Fatal(err)
	}
	long := b.packet(5, 0)
	long.Packet.Payload = long.Buf()[:1000]
	long.Packet.Seal()
	long.Measure()
	b.dropped(1, long, link.NeighborMTU, 3, ib.PortXmitDiscards, ib.PortNeighborMTUDiscards)

	b.Port(3).Down(b.now)
	b.dropped(1, b.packet(5, 0), link.Inactive, 3, ib.PortXmitDiscards, ib.PortInactiveDiscards)

	bad := b.packet(5, 0)
	bad.LRH.LVer = 1
	b.dropped(1, bad, link.Malformed, 1, ib.PortRcvErrors, ib.PortMalformedPacketErrors)
}

func TestPartitionEnforcement(t *testing.T) {
	b := newBench(t, 3)
	b.route(5, 2)
	b.Port(1).SetPKeys([]ib.PKey{0x8001})
	b.Port(2).SetPKeys([]ib.PKey{0x8002})
	with := func(k ib.PKey) *link.Frame {
		f := b.packet(5, 0)
		f.Packet.BTH.PKey = k
		return f
	}
	b.Port(1).SetEnforcement(link.EnforcePKeyIn)
	b.dropped(1, with(0x8002), link.PKeyIn, 1, ib.PortRcvConstraintErrors, ib.NumCounter)
	if r := b.Handle(b.now, 1, with(0x8001)); r.Out != 2 {
		t.Errorf("a member is refused inbound: %+v", r)
	}
	b.pool.Put(b.out(2))
	b.Port(2).SetEnforcement(link.EnforcePKeyOut)
	b.dropped(1, with(0x8001), link.PKeyOut, 2, ib.PortXmitConstraintErrors, ib.NumCounter)
	b.Port(1).SetEnforcement(0)
	if r := b.Handle(b.now, 3, with(0x8002)); r.Reason.IsDrop() {
		t.Errorf("a member is refused outbound: %+v", r)
	}
	// Management is not partitioned.
	b.Port(1).SetEnforcement(link.EnforcePKeyIn)
	f := b.smp(ib.LIDPermissive)
	f.Packet.BTH.PKey = 0x8005
	if r := b.Handle(b.now, 1, f); !r.Mgmt {
		t.Errorf("SMP: %+v, want it for the switch", r)
	}
}

func TestSL2VLByPortPair(t *testing.T) {
	b := newBench(t, 3)
	b.route(5, 3)
	var m [ib.NumSL]ib.VL
	m[6] = 3
	if err := b.SetSL2VL(1, 3, m); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[ib.PortNum]ib.VL{1: 3, 2: 2} {
		if r := b.Handle(b.now, in, b.packet(5, 6)); r.Out != 3 {
			t.Fatalf("in by %d: %+v", in, r)
		}
		if f := b.out(3); f.LRH.VL != want {
			t.Errorf("SL6 from port %d goes on VL%d, want VL%d", in, f.LRH.VL, want)
		}
	}
	for _, p := range [][2]ib.PortNum{{4, 1}, {1, 4}} {
		if err := b.SetSL2VL(p[0], p[1], m); !errors.Is(err, ErrTable) {
			t.Errorf("port pair %v: %v, want ErrTable", p, err)
		}
	}
}

func TestMulticast(t *testing.T) {
	b := newBench(t, 6)
	const group = 0xC123
	var m ib.PortMask
	for _, p := range []ib.PortNum{1, 2, 4, 6} {
		m.Set(p)
	}
	if err := b.SetMulticastPorts(group, m); err != nil {
		t.Fatal(err)
	}
	f := b.packet(group, 0)
	want := string(f.Packet.Payload)
	if r := b.Handle(b.now, 2, f); r != (Result{Multicast: true}) {
		t.Fatalf("result %+v", r)
	}
	var outs []ib.PortNum
	for p, ok := b.PollOut(); ok; p, ok = b.PollOut() {
		outs = append(outs, p)
	}
	if len(outs) != 3 || outs[0] != 1 || outs[1] != 4 || outs[2] != 6 {
		t.Fatalf("goes out by %v, want 1, 4 and 6 and never the way it came", outs)
	}
	if n := len(b.AppendClaims(nil)); n != 1 {
		t.Errorf("%d buffers claimed, want one for all copies", n)
	}
	for i, p := range outs {
		if n := b.Port(2).Credit(0).Occupied; n != 1 {
			t.Errorf("before copy %d leaves port 2 holds %d blocks, want 1", i, n)
		}
		g := b.out(p)
		if g == nil || string(g.Packet.Payload) != want || g.LRH.DLID != group {
			t.Fatalf("port %d sends a wrong copy", p)
		}
		b.pool.Put(g)
	}
	if n := b.Port(2).Credit(0).Occupied; n != 0 {
		t.Errorf("port 2 holds %d blocks after all copies left", n)
	}
	if n := b.pool.InUse(); n != 0 {
		t.Errorf("%d frames in use, want 0", n)
	}
	if c := b.Port(2).Counters(); c[ib.PortMulticastRcvPkts] != 1 || c[ib.PortUnicastRcvPkts] != 0 {
		t.Errorf("port 2 received %d multicast and %d unicast, want 1 and 0", c[ib.PortMulticastRcvPkts],
			c[ib.PortUnicastRcvPkts])
	}

	// A member that is alone here hears nothing; it is no error.
	m = ib.PortMask{}
	m.Set(2)
	if err := b.SetMulticastPorts(group, m); err != nil {
		t.Fatal(err)
	}
	b.dropped(2, b.packet(group, 0), link.NoMember, 2, ib.NumCounter, ib.NumCounter)

	// A copy that cannot leave does not keep the others.
	m.Set(3)
	m.Set(5)
	if err := b.SetMulticastPorts(group, m); err != nil {
		t.Fatal(err)
	}
	b.Port(3).Down(b.now)
	if r := b.Handle(b.now, 2, b.packet(group, 0)); !r.Multicast {
		t.Fatalf("result %+v", r)
	}
	b.pool.Put(b.out(5))
	if n, inUse := b.Port(2).Credit(0).Occupied, b.pool.InUse(); n != 0 || inUse != 0 {
		t.Errorf("%d blocks occupied, %d frames in use, want 0 and 0", n, inUse)
	}
	b.outs = ib.PortMask{}

	// The switch's own leave nothing behind either.
	for range 3 {
		if r := b.SendMgmt(b.now, 0, b.packet(group, 0)); !r.Multicast {
			t.Fatalf("result %+v", r)
		}
		b.pool.Put(b.out(2))
		b.pool.Put(b.out(5))
	}
	if n, inUse := b.copies.Open(), b.pool.InUse(); n != 0 || inUse != 0 {
		t.Errorf("%d groups and %d frames in use, want none", n, inUse)
	}
	b.outs = ib.PortMask{}

	// No entry: the default ports.
	b.SetDefaultMcast(1, 4)
	for in, out := range map[ib.PortNum]ib.PortNum{2: 1, 1: 4} {
		b.Handle(b.now, in, b.packet(0xC999, 0))
		if p, ok := b.PollOut(); !ok || p != out {
			t.Errorf("unknown group from port %d goes out by %d, want %d", in, p, out)
		}
	}
}

func TestManagement(t *testing.T) {
	b := newBench(t, 3)
	b.SetLID(20, 0)
	b.route(20, 0)
	b.route(5, 2)
	b.route(6, 1)
	for _, dlid := range []ib.LID{ib.LIDPermissive, 20} {
		f := b.smp(dlid)
		if r := b.Handle(b.now, 1, f); r != (Result{Mgmt: true}) {
			t.Fatalf("SMP to %v: %+v", dlid, r)
		}
		g := b.PollMgmt()
		if g != f || g.InPort != 1 {
			t.Fatalf("port 0 has another packet, or from port %d", g.InPort)
		}
		if b.Port(1).Credit(ib.VLMgmt).Occupied != 1 {
			t.Error("the SMP does not occupy VL15's buffer while it is looked at")
		}
		b.Left(g)
		if b.Port(1).Credit(ib.VLMgmt).Occupied != 0 {
			t.Error("the SMP still occupies VL15's buffer")
		}
		if r := b.SendMgmt(b.now, 2, g); r.Out != 2 {
			t.Fatalf("answer: %+v", r)
		}
		if h := b.out(2); h != g {
			t.Error("port 2 does not send the answer")
		}
	}
	// Data for the switch itself, QP1 for instance.
	if r := b.Handle(b.now, 1, b.packet(20, 0)); !r.Mgmt {
		t.Errorf("data to the switch: %+v", r)
	}
	b.Left(b.PollMgmt())
	// An SMP by LID passes, before data.
	b.Handle(b.now, 1, b.packet(5, 0))
	f := b.smp(5)
	if r := b.Handle(b.now, 3, f); r.Out != 2 {
		t.Errorf("SMP by LID: %+v, want out by 2", r)
	}
	if g := b.out(2); g != f || g.LRH.VL != ib.VLMgmt {
		t.Error("the SMP does not go first on VL15")
	}
	b.dropped(1, b.smp(6), link.Looping, 1, ib.PortRcvSwitchRelayErrors, ib.PortLoopingErrors)
	b.dropped(1, b.smp(77), link.UnknownDLID, 1, ib.PortRcvSwitchRelayErrors, ib.PortDLIDMappingErrors)
	b.dropped(1, b.smp(0xC001), link.UnknownDLID, 1, ib.PortRcvSwitchRelayErrors, ib.PortDLIDMappingErrors)
	// Its own packets: by table, and refused where there is no way.
	if r := b.SendMgmt(b.now, 0, b.packet(5, 0)); r.Reason.IsDrop() {
		t.Errorf("own packet to LID 5: %+v", r)
	}
	for _, f := range []*link.Frame{b.packet(77, 0), b.smp(77)} {
		if r := b.SendMgmt(b.now, 0, f); r.Reason != link.UnknownDLID {
			t.Errorf("own packet to LID 77: %v, want no route", r.Reason)
		}
	}
	if r := b.SendMgmt(b.now, 9, b.smp(5)); r.Reason != link.UnknownDLID {
		t.Errorf("out of port 9: %v", r.Reason)
	}
}

func TestTables(t *testing.T) {
	b := newBench(t, 3)
	var e [LFTBlock]ib.PortNum
	for i := range e {
		e[i] = ib.PortNum(i % 4)
	}
	if err := b.SetLFT(767, e); err != nil {
		t.Fatal(err)
	}
	if got, err := b.LFT(767); err != nil || got != e {
		t.Errorf("last block reads back otherwise, %v", err)
	}
	if got := b.Route(ib.LIDUnicastMax); got != e[63] {
		t.Errorf("route of the last LID %d, want %d", got, e[63])
	}
	if got, _ := b.LFT(3); got[0] != DropPort {
		t.Errorf("an entry that nobody wrote is %d, want %d", got[0], DropPort)
	}
	var m [MFTBlock]uint16
	for i := range m {
		m[i] = uint16(i) << 3
	}
	if err := b.SetMFT(511, 15, m); err != nil {
		t.Fatal(err)
	}
	if got, err := b.MFT(511, 15); err != nil || got != m {
		t.Errorf("last multicast block reads back otherwise, %v", err)
	}
	if mask := b.MulticastPorts(0xC000 + 511*32 + 31); !mask.Has(240+3) || mask.Has(1) {
		t.Errorf("ports of a group written by position: %x", mask)
	}
	for _, err := range []error{
		b.SetRoute(0xC000, 1), b.SetLFT(768, e), b.SetLFT(-1, e), b.SetMFT(512, 0, m), b.SetMFT(0, 16, m),
		b.SetMFT(-1, 0, m),
		b.SetMulticastPorts(5, ib.PortMask{}), b.SetMulticastPorts(ib.LIDPermissive, ib.PortMask{}),
		b.SetLinearFDBTop(0xC000),
	} {
		if !errors.Is(err, ErrTable) {
			t.Errorf("%v, want ErrTable", err)
		}
	}
	if b.Port(4) != nil {
		t.Error("port 4 of a switch with 3")
	}
}

// TestLifeTime: a packet that waits too long in the switch is dropped and its buffer
// given back.
func TestLifeTime(t *testing.T) {
	b := newBench(t, 2)
	b.route(5, 2)
	b.SetLifeTime(1) // 8.192 us
	p := b.Port(2)
	p.HandleFC(0, wire.LinkPacket{FCCL: 0}) // no credit
	b.Handle(b.now, 1, b.packet(5, 0))
	at := b.now + 8192*ib.Nanosecond
	if got := p.NextDeadline(); got != at {
		t.Fatalf("deadline %v, want %v", got, at)
	}
	p.HandleTimeout(at)
	d, ok := p.PollDropped()
	if !ok || d.Reason != link.SwitchLife {
		t.Fatalf("dropped %v for %v", ok, d.Reason)
	}
	b.Left(d.Frame)
	if n := b.Port(1).Credit(0).Occupied; n != 0 {
		t.Errorf("port 1 holds %d blocks", n)
	}
}

// FuzzHandle throws arbitrary headers at a switch: it never panics, and every
// packet is dropped with its buffer given back or can be found.
func FuzzHandle(f *testing.F) {
	f.Add(uint8(1), uint16(5), uint8(0), uint8(0), uint8(2), uint16(12), uint16(0xFFFF), uint32(9))
	f.Add(uint8(2), uint16(0xC001), uint8(15), uint8(3), uint8(2), uint16(12), uint16(1), uint32(0))
	f.Add(uint8(3), uint16(0xFFFF), uint8(15), uint8(0), uint8(2), uint16(12), uint16(1), uint32(0))
	f.Add(uint8(1), uint16(0), uint8(16), uint8(255), uint8(0), uint16(0), uint16(0), uint32(0))
	f.Fuzz(func(t *testing.T, in uint8, dlid uint16, vl, sl, lnh uint8, words, pkey uint16, qp uint32) {
		b := newBench(t, 4)
		b.route(20, 0)
		for lid := range ib.LID(16) {
			b.route(lid+1, ib.PortNum(lid%6))
		}
		var m ib.PortMask
		m.Set(0)
		m.Set(2)
		m.Set(3)
		m.Set(200)
		for i := range ib.LID(4) {
			if err := b.SetMulticastPorts(0xC000+i, m); err != nil {
				t.Fatal(err)
			}
		}
		b.Port(3).SetEnforcement(link.EnforcePKeyIn | link.EnforcePKeyOut | link.EnforceRawOut)
		f := b.packet(ib.LID(dlid), ib.SL(sl))
		f.LRH.VL, f.LRH.LNH = ib.VL(vl), wire.LNH(lnh&3)
		f.LRH.Length = words
		f.Packet.BTH.PKey, f.Packet.BTH.DestQP = ib.PKey(pkey), ib.QPN(qp)&ib.QPNMask
		if words%2 == 0 {
			f.Bytes = words*4 + 2
		}
		at := ib.PortNum(in%4) + 1
		if r := b.Handle(b.now, at, f); r.Reason.IsDrop() {
			b.pool.Put(f)
		}
		b.now = ib.Second
		for p := ib.PortNum(1); p <= 4; p++ {
			for g := b.out(p); g != nil; g = b.out(p) {
				b.pool.Put(g)
			}
		}
		for g := b.PollMgmt(); g != nil; g = b.PollMgmt() {
			b.Left(g)
			b.pool.Put(g)
		}
		if n := b.pool.InUse(); n != 0 {
			t.Errorf("%d frames vanished", n)
		}
		for vl := range ib.VL(ib.NumVL) {
			if n := b.Port(at).Credit(vl).Occupied; n != 0 {
				t.Errorf("VL%d of port %d still holds %d", vl, at, n)
			}
		}
	})
}
