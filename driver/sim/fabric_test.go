package sim

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"softib/fabric"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// TestNoDeadlock has every host send to a random other through buffers of one packet, on
// topologies that are full of cycles.
func TestNoDeadlock(t *testing.T) {
	for _, spec := range []string{"torus:4x4", "torus:3x3x3", "dragonfly:a=4,p=2,h=2", "ring:7",
		"fat-tree:radix=4,levels=3", "random:switches=12,hosts=24,seed=3", "pair", "line:5"} {
		t.Run(spec, func(t *testing.T) {
			s := build(t, spec, Config{Seed: 2, Port: link.Config{BufferBlocks: 1}})
			r := rand.New(rand.NewPCG(4, 4))
			n := s.NumHosts()
			want := make([]uint64, n)
			for i := range n {
				to := (i + 1 + r.IntN(n-1)) % n
				s.flow(i, to, 100)
				want[to] += 100
			}
			if !s.RunUntilIdle(ib.Second) {
				t.Fatal("not idle")
			}
			for i := range n {
				if got := s.src(i).got; got != want[i] {
					t.Errorf("host %d got %d packets, want %d", i, got, want[i])
				}
			}
			mustRest(t, s)
		})
	}
}

// TestMixedRates: a slow cable behind fast ones neither loses nor overtakes, and a
// packet never leaves a switch before enough of it has come in.
func TestMixedRates(t *testing.T) {
	g, err := topo.ParseSpec("star:4")
	check(t, err)
	// Hosts at SDR, QDR, HDR and NDR around one switch.
	sw := g.Switches()[0].Index
	for i, speed := range []ib.Speed{ib.SDR, ib.QDR, ib.HDR, ib.NDR} {
		h := g.Hosts()[i]
		at := h.Ports[1].PeerPort
		check(t, g.Disconnect(h.Index, 1))
		check(t, g.Connect(h.Index, 1, sw, at, topo.LinkSpec{Width: ib.Width4x, Speed: speed,
			LengthMM: int32(1000 * (i + 1))}))
	}
	s, err := New(g, Config{Seed: 1, NewHost: newSource, Port: link.Config{BufferBlocks: 1}})
	check(t, err)
	_, err = s.BringUp()
	check(t, err)
	for i := range 4 {
		h := s.src(i)
		h.slid = s.LID(topo.PortRef{Node: s.HostNode(i).Index, Port: 1})
		h.lastPSN = map[ib.LID]ib.PSN{}
	}
	for i := range 4 {
		s.flow(i, (i+1)%4, 300)
	}
	for i := 0; s.Step(); i++ {
		if i%211 == 0 {
			mustAudit(t, s)
		}
	}
	for i := range 4 {
		if h := s.src(i); h.got != 300 || h.disorder != 0 {
			t.Errorf("host %d got %d packets, %d out of order: want 300 and 0", i, h.got, h.disorder)
		}
	}
	mustRest(t, s)
	// 300 packets cannot cross SDR 4x, 8 Gb/s, faster than its rate allows.
	if least := ib.Time(300) * (ib.LinkRate{Width: ib.Width4x, Speed: ib.SDR}).ByteTime(4122); s.Now() < least {
		t.Errorf("done at %v, want no earlier than %v", s.Now(), least)
	}
}

// TestLatency holds the time of one packet through a switch against arithmetic.
func TestLatency(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   Config
		whole int // how many times the packet's last byte is waited for
	}{{"cut-through", Config{}, 1}, {"store and forward", Config{StoreForward: true}, 2}} {
		t.Run(c.name, func(t *testing.T) {
			s := build(t, "star:2", c.cfg)
			s.Run(ib.Microsecond) // credits are told
			s.flow(0, 1, 1)
			for s.src(1).got == 0 && s.Step() {
			}
			nic := ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}
			want := 2*10*ib.Nanosecond + DefaultSwitchLatency + ib.Time(c.whole)*nic.ByteTime(4122)
			if c.whole == 1 {
				want += nic.ByteTime(64) // what a switch waits for
			}
			if got := s.Now() - ib.Microsecond; got != want {
				t.Errorf("latency %v, want %v", got, want)
			}
		})
	}
}

func TestMulticast(t *testing.T) {
	s := build(t, "fat-tree:radix=4,levels=2", Config{Seed: 1})
	const mlid = 0xC010
	var members []topo.PortRef
	in := map[int]bool{0: true, 1: true, 3: true, 6: true}
	for i := range s.NumHosts() {
		if in[i] {
			members = append(members, topo.PortRef{Node: s.HostNode(i).Index, Port: 1})
		}
	}
	check(t, s.ProgramMulticast(mlid, members))
	h := s.src(0)
	h.op, h.dlid, h.size, h.left = wire.MakeOpcode(wire.UD, wire.OpSendOnly), mlid, 512, 40
	s.Wake(0)
	for i := 0; s.Step(); i++ {
		if i%53 == 0 {
			mustAudit(t, s)
		}
	}
	for i := range s.NumHosts() {
		want := uint64(0)
		if in[i] && i != 0 {
			want = 40
		}
		if got := s.src(i).got; got != want {
			t.Errorf("host %d got %d packets, want %d", i, got, want)
		}
	}
	mustRest(t, s)
}

// TestPartition: what a leaf refuses does not arrive, and what it admits does.
func TestPartition(t *testing.T) {
	s := build(t, "star:3", Config{Seed: 1})
	leaf := topo.PortRef{Node: s.HostNode(0).Ports[1].Peer, Port: s.HostNode(0).Ports[1].PeerPort}
	s.Port(leaf).SetPKeys([]ib.PKey{0x8001})
	s.Port(leaf).SetEnforcement(link.EnforcePKeyIn | link.EnforcePKeyOut)
	s.LogDrops(true)
	s.src(0).pkey, s.src(1).pkey, s.src(2).pkey = 0x8002, 0x8002, 0x8001
	s.flow(0, 1, 10) // refused inbound
	s.flow(1, 0, 10) // refused outbound
	s.flow(2, 0, 10)
	s.RunUntilIdle(ib.Second)
	if a, b := s.src(0).got, s.src(1).got; a != 10 || b != 0 {
		t.Errorf("got %d and %d, want 10 and 0", a, b)
	}
	if c := s.Counters(leaf); c[ib.PortRcvConstraintErrors] != 10 || c[ib.PortXmitConstraintErrors] != 10 {
		t.Errorf("constraint errors %d in, %d out: want 10 and 10", c[ib.PortRcvConstraintErrors],
			c[ib.PortXmitConstraintErrors])
	}
	if d := s.Drops(); d[link.PKeyIn] != 10 || d[link.PKeyOut] != 10 || len(s.Log()) != 20 {
		t.Errorf("drops %v, %d logged", d, len(s.Log()))
	}
	mustRest(t, s)
}

// TestHOQExpiry: a host that takes nothing makes its leaf drop what waits for it, and nothing
// else suffers for ever.
func TestHOQExpiry(t *testing.T) {
	s := build(t, "star:3", Config{Seed: 1, Port: link.Config{BufferBlocks: 1}})
	n := s.HostNode(0)
	leaf := topo.PortRef{Node: n.Ports[1].Peer, Port: n.Ports[1].PeerPort}
	s.Port(leaf).SetHOQLife(1) // 8.192 us
	s.Port(leaf).SetVLStallCount(0)
	// The way to host 0 has no credit: its flow-control packets are lost.
	host := topo.PortRef{Node: n.Index, Port: 1}
	s.Run(ib.Microsecond)
	s.SetFaults(host, fabric.Faults{FCLoss: 1})
	s.flow(1, 0, 20)
	s.Run(100 * ib.Microsecond)
	c := s.Counters(leaf)
	if got := c[ib.PortSwHOQLifetimeLimitDiscards]; got < 5 || got != s.Drops()[link.HOQLife] {
		t.Errorf("%d expiries counted, %d dropped: want several, and as many", got, s.Drops()[link.HOQLife])
	}
	if c[ib.PortXmitWait] == 0 {
		t.Error("PortXmitWait did not run")
	}
	// Traffic to others passes again once the blocked packets are gone.
	s.flow(1, 2, 20)
	s.SetFaults(host, fabric.Faults{})
	if !s.RunUntilIdle(ib.Second) {
		t.Fatal("not idle")
	}
	if got := s.src(2).got; got != 20 {
		t.Errorf("host 2 got %d packets, want 20", got)
	}
	mustRest(t, s)
}

func TestTimersAndWakes(t *testing.T) {
	s := build(t, "star:2", Config{Seed: 1})
	s.At(3*ib.Microsecond, 33)
	s.At(2*ib.Microsecond, 22)
	s.At(2*ib.Microsecond, 23)
	for _, id := range []uint64{22, 23, 33} {
		w := s.Next(ib.Second)
		if w.Kind != WakeTimer || w.ID != id {
			t.Fatalf("woken by %+v, want timer %d", w, id)
		}
		if want := ib.Time(id/10) * ib.Microsecond; s.Now() != want {
			t.Errorf("timer %d at %v, want %v", id, s.Now(), want)
		}
	}
	s.At(s.Now()+10, 1)
	if w := s.Next(s.Now() + 5); w.Kind != WakeLimit {
		t.Errorf("woken by %+v, want the limit", w)
	}
	s.Next(ib.Second)
	if w := s.Next(ib.Second); w.Kind != WakeIdle {
		t.Errorf("woken by %+v, want idleness", w)
	}
}

// TestAlwaysRefresh: credits are told at least once in each interval even if nothing
// happens, and that changes nothing.
func TestAlwaysRefresh(t *testing.T) {
	s := build(t, "star:2", Config{Seed: 1, AlwaysRefresh: true})
	ref := topo.PortRef{Node: s.HostNode(0).Index, Port: 1}
	p := s.Port(ref)
	s.Run(ib.Microsecond)
	before := p.FCPackets()
	s.Run(ib.Microsecond + 20*p.RefreshInterval())
	if got, want := p.FCPackets()-before, 20*uint64(p.OperVLs()); got < want-8 || got > want+8 {
		t.Errorf("%d flow-control packets in 20 intervals, want %d", got, want)
	}
	mustAudit(t, s)
}

// TestCapture: what flies is in the capture, and reads back.
func TestCapture(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	check(t, err)
	var file bytes.Buffer
	w := trace.NewJSON(&file)
	s, err := New(g, Config{Seed: 1, Sink: w})
	check(t, err)
	_, err = s.BringUp()
	check(t, err)
	a, b := newPeer(t, s, 0, hca.RC, 8192), newPeer(t, s, 1, hca.RC, 8192)
	connectRC(t, a, b, ib.MTU4096, 10)
	check(t, a.h.PostSend(a.qp, &hca.SendWR{Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled, SGList: a.sge(0, 8192),
		RemoteAddr: peerVA, RKey: b.mr.RKey()}))
	s.Wake(0)
	s.RunUntilIdle(ib.Second)
	check(t, s.SinkErr())
	lines := bytes.Count(file.Bytes(), []byte("\n"))
	// Two packets and an acknowledgement, each on two cables, beside flow control.
	if n := bytes.Count(file.Bytes(), []byte(`"packet"`)); n < 6 || lines < n {
		t.Errorf("%d packets in %d lines, want 6 at least:\n%s", n, lines, file.Bytes())
	}
}

// TestFlapUnderRC: a connection survives the loss of its link.
func TestFlapUnderRC(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	check(t, err)
	s, err := New(g, Config{Seed: 1})
	check(t, err)
	_, err = s.BringUp()
	check(t, err)
	a, b := newPeer(t, s, 0, hca.RC, 1<<20), newPeer(t, s, 1, hca.RC, 1<<20)
	connectRC(t, a, b, ib.MTU4096, 8)
	for i := range a.mem {
		a.mem[i] = byte(i * 7)
	}
	check(t, a.h.PostSend(a.qp, &hca.SendWR{WRID: 1, Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled,
		SGList: a.sge(0, 1<<20), RemoteAddr: peerVA, RKey: b.mr.RKey()}))
	s.PlanFlap(s.Now()+5*ib.Microsecond, topo.PortRef{Node: s.HostNode(1).Index, Port: 1}, 100*ib.Microsecond)
	s.Wake(0)
	if !s.RunUntilIdle(10 * ib.Second) {
		t.Fatal("not idle")
	}
	if n := a.completions(t); n != 1 || !bytes.Equal(a.mem, b.mem) {
		t.Errorf("%d completions, memory equal %v", n, bytes.Equal(a.mem, b.mem))
	}
	mustRest(t, s)
}

// TestByReference: packets that refer to the sender's memory say what that held when
// the request was given up, not what the program has put there since.
func TestByReference(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	check(t, err)
	s, err := New(g, Config{Seed: 1, ByRefMin: 256})
	check(t, err)
	_, err = s.BringUp()
	check(t, err)
	a, b := newPeer(t, s, 0, hca.RC, 1<<16), newPeer(t, s, 1, hca.RC, 1<<16)
	connectRC(t, a, b, ib.MTU4096, 14)
	for i := range a.mem {
		a.mem[i] = 0xAB
	}
	check(t, a.h.PostSend(a.qp, &hca.SendWR{Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled, SGList: a.sge(0, 1<<16),
		RemoteAddr: peerVA, RKey: b.mr.RKey()}))
	s.Wake(0)
	s.Run(s.Now() + 300*ib.Nanosecond)
	check(t, a.h.ModifyQP(a.qp, hca.QPAttr{State: hca.StateErr}, hca.MaskState))
	s.Wake(0)
	for i := range a.mem {
		a.mem[i] = 0xCD
	}
	s.RunUntilIdle(ib.Second)
	if bytes.Contains(b.mem, []byte{0xCD}) {
		t.Error("memory that was given back was read")
	}
	if !bytes.Contains(b.mem, []byte{0xAB}) {
		t.Error("nothing was on its way: the test tests nothing")
	}
	mustRest(t, s)
}

// TestAgentTakesLinkDown: management takes a link down through the agent, and it
// trains again.
func TestAgentTakesLinkDown(t *testing.T) {
	s := build(t, "star:2", Config{Seed: 1})
	ref := topo.PortRef{Node: s.HostNode(0).Index, Port: 1}
	check(t, s.Port(ref).Command(s.Now(), ib.PortDown))
	s.Managed(ref.Node)
	if st := s.Port(ref).State(); st != ib.PortDown {
		t.Fatalf("state %v, want Down", st)
	}
	s.RunUntilIdle(ib.Second)
	peer := topo.PortRef{Node: s.HostNode(0).Ports[1].Peer, Port: s.HostNode(0).Ports[1].PeerPort}
	if a, b := s.Port(ref).State(), s.Port(peer).State(); a != ib.PortActive || b != ib.PortActive {
		t.Errorf("states %v and %v after training, want Active", a, b)
	}
	s.flow(0, 1, 5)
	s.RunUntilIdle(ib.Second)
	if got := s.src(1).got; got != 5 {
		t.Errorf("%d packets after the link came back, want 5", got)
	}
	mustRest(t, s)
}
