package live

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
	"softib/verbs"
)

// Programs of this process are programs like others: what a fabric does to packets, it does to theirs, and what it
// knows of programs, it knows of them.

// write writes n times size bytes from a to b, one after the other, and wants each to arrive.
func write(t testing.TB, a, b *end, n, size int) {
	t.Helper()
	for i := range n {
		src := a.mr.Bytes()[:size]
		for j := range src {
			src[j] = byte(j ^ i)
		}
		if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, size), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		if wc := waitOne(t, a); wc.Status != verbs.WCSuccess {
			t.Fatalf("write %d: %+v", i, wc)
		}
		h := b.ctx.Device().(*Device)
		h.Enter() // nobody writes there meanwhile
		same := bytes.Equal(src, b.mr.Bytes()[:size])
		h.LeaveQuiet()
		if !same {
			t.Fatalf("write %d: bytes differ", i)
		}
	}
}

// stats is what the engine of an end has counted.
func (e *end) stats() hca.Stats {
	d := e.ctx.Device().(*Device)
	defer d.LeaveQuiet()
	return d.Enter().Stats
}

func portRef(h *Host) topo.PortRef { return topo.PortRef{Node: h.topo.Index, Port: 1} }

// TestLocalLoss: a cable that loses packets costs the programs of this process retries, and nothing else; what was lost
// is counted.
func TestLocalLoss(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := newEnd(t, f.hosts[0].Device(), 1<<16), newEnd(t, f.hosts[1].Device(), 1<<16)
	o := verbs.DefaultConnect
	o.Timeout = 14 // 67 ms, eight times
	for _, x := range [][2]*end{{a, b}, {b, a}} {
		if err := x[0].qp.Connect(x[0].info, x[1].info, o); err != nil {
			t.Fatal(err)
		}
	}
	ref := portRef(f.hosts[1])
	if err := f.SetFault(ref, Fault{Drop: 0.1}); err != nil {
		t.Fatal(err)
	}
	before := f.CountersOf([]topo.PortRef{ref, f.port(ref).peer.ref()})
	write(t, a, b, 100, 10000)
	if s := a.stats(); s.Retransmits == 0 {
		t.Error("nothing was sent again over a cable that loses a tenth")
	}
	var sent, got, lost uint64
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // what was sent twice may be on its way
		sent, got = 0, 0
		for i, c := range f.CountersOf([]topo.PortRef{ref, f.port(ref).peer.ref()}) {
			sent += c[ib.PortXmitPkts] - before[i][ib.PortXmitPkts]
			got += c[ib.PortRcvPkts] - before[i][ib.PortRcvPkts]
		}
		if lost = f.Faults()[0].Dropped; sent-got == lost {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d packets were sent over the cable, %d came, %d are lost", sent, got, lost)
		}
	}
	if lost < sent/30 || lost > sent/4 {
		t.Errorf("%d of %d packets are lost: want a tenth", lost, sent)
	}
	if err := f.ClearFault(ref); err != nil {
		t.Fatal(err)
	}
	write(t, a, b, 100, 10000)
}

// TestLocalRate: a slow cable is slow for the programs of this process.
func TestLocalRate(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := newEnd(t, f.hosts[0].Device(), 1<<16), newEnd(t, f.hosts[1].Device(), 1<<16)
	connect(t, a, b)
	const rate, n, size = 50_000_000, 50, 1 << 14
	if err := f.SetFault(portRef(f.hosts[0]), Fault{Rate: rate}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	write(t, a, b, n, size)
	if took, least := time.Since(start), time.Duration(float64(n*size*8)/rate*1e9); took < least {
		t.Errorf("%d bytes at %d bits a second took %v: want %v at least", n*size, rate, took, least)
	}
}

// shown is a sink that counts packets by opcode.
type shown struct {
	mu   sync.Mutex
	sent map[wire.Opcode]uint64
}

func (s *shown) Write(e *trace.Event) error {
	var p wire.Packet
	if err := p.Parse(e.Bytes); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[p.BTH.Opcode]++
	return nil
}

// TestLocalCapture: a capture shows every packet between programs of this process, and the counters of every port on
// the way say the same whether there is one or not.
func TestLocalCapture(t *testing.T) {
	for _, captured := range []bool{false, true} {
		f := bringUp(t, "fat-tree:radix=4,levels=2")
		a, b := newEnd(t, f.hosts[0].Device(), 1<<16), newEnd(t, f.hosts[7].Device(), 1<<16)
		connect(t, a, b)
		write(t, a, b, 1, 8)
		sink := &shown{sent: map[wire.Opcode]uint64{}}
		stop := func() error { return nil }
		if captured {
			var err error
			if stop, err = f.Capture([]topo.PortRef{portRef(f.hosts[0])}, sink); err != nil {
				t.Fatal(err)
			}
		}
		way, err := f.Way(portRef(f.hosts[0]), b.info.LID, 0, ib.PKeyDefault)
		if err != nil || len(way.Hops) != 4 {
			t.Fatalf("%+v, %v", way, err)
		}
		back, err := f.Way(portRef(f.hosts[7]), a.info.LID, 0, ib.PKeyDefault)
		if err != nil || len(back.Hops) != 4 {
			t.Fatalf("%+v, %v", back, err)
		}
		was, wasBack := a.stats(), b.stats()
		first, firstBack := f.Counters(way.Hops[0].Out), f.Counters(back.Hops[0].Out)
		last, lastBack := f.Counters(way.Hops[3].In), f.Counters(back.Hops[3].In)
		middle, middleBack := f.Counters(way.Hops[2].Out), f.Counters(back.Hops[2].Out)
		const n, size = 20, 10000 // 3 packets each
		write(t, a, b, n, size)
		sent, sentBack := a.stats().TxPackets-was.TxPackets, b.stats().TxPackets-wasBack.TxPackets
		if sent != 3*n || sentBack == 0 {
			t.Fatalf("captured %v: %d packets there, %d back: want %d there", captured, sent, sentBack, 3*n)
		}
		words := uint64(n * (size + 2*(8+12+4) + 8 + 12 + 16 + 4) / 4)
		for _, c := range []struct {
			what   string
			port   topo.PortRef
			before ib.Counters
			pkts   ib.Counter
			data   ib.Counter
			want   uint64
			words  uint64
		}{
			{"there, at the sender", way.Hops[0].Out, first, ib.PortXmitPkts, ib.PortXmitData, sent, words},
			{"there, at a spine", way.Hops[2].Out, middle, ib.PortXmitPkts, ib.PortXmitData, sent, words},
			{"there, at the receiver", way.Hops[3].In, last, ib.PortRcvPkts, ib.PortRcvData, sent, words},
			{"back, at the sender", back.Hops[0].Out, firstBack, ib.PortXmitPkts, ib.PortXmitData, sentBack,
				7 * sentBack},
			{"back, at a spine", back.Hops[2].Out, middleBack, ib.PortXmitPkts, ib.PortXmitData, sentBack,
				7 * sentBack},
			{"back, at the receiver", back.Hops[3].In, lastBack, ib.PortRcvPkts, ib.PortRcvData, sentBack,
				7 * sentBack},
		} {
			now := f.Counters(c.port)
			if pkts, w := now[c.pkts]-c.before[c.pkts], now[c.data]-c.before[c.data]; pkts != c.want || w != c.words {
				t.Errorf("captured %v: %s: %d packets, %d words: want %d, %d", captured, c.what, pkts, w, c.want,
					c.words)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if !captured {
			continue
		}
		got := map[wire.Opcode]uint64{}
		for op, k := range sink.sent {
			if op.Service() == wire.RC {
				got[op.Op()] += k
			}
		}
		if got[wire.OpWriteFirst] != n || got[wire.OpWriteMiddle] != n || got[wire.OpWriteLast] != n ||
			got[wire.OpAck] != sentBack {
			t.Errorf("the capture has %v: want %d of each part of a write, and %d acknowledgements", got, n, sentBack)
		}
	}
}

// TestLocalStatistics: programs of this process are among the programs, and what they have counted stays with their
// host. The fabric's own tests are not.
func TestLocalStatistics(t *testing.T) {
	f := bringUp(t, "star:2")
	if n := len(f.Programs()) + len(f.HostStats()); n != 0 {
		t.Fatalf("%d programs or hosts before there is any", n)
	}
	d, err := f.hosts[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := f.hosts[1].OpenUnlisted()
	if err != nil {
		t.Fatal(err)
	}
	a, b := newEnd(t, d, 1<<16), newEnd(t, quiet, 1<<16)
	connect(t, a, b)
	write(t, a, b, 200, 10000)
	list := f.Programs()
	if len(list) != 1 || list[0].Host != "h1" || list[0].PID != os.Getpid() || list[0].Name == "" {
		t.Fatalf("programs %+v: want this one on h1", list)
	}
	want := a.stats()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := quiet.Close(); err != nil {
		t.Fatal(err)
	}
	hosts := f.HostStats()
	if len(hosts) != 1 || hosts[0].Host != "h1" || hosts[0].Ended != 1 || hosts[0].Programs != 0 ||
		hosts[0].Stats.TxPackets != want.TxPackets || hosts[0].Stats.TxBytes != want.TxBytes {
		t.Errorf("hosts %+v: want h1 with %d packets", hosts, want.TxPackets)
	}
	if p := f.PathLatencies(); len(p) != 1 || p[0].From != "h1" || p[0].To != "h2" || p[0].Times.Count() == 0 {
		t.Errorf("path latencies %+v: want h1 to h2", p)
	}
	// they come late
	for end := time.Now().Add(time.Minute); len(f.Peaks(PeaksKept)) != 4; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("peaks at %d ports: want the four on the way", len(f.Peaks(PeaksKept)))
		}
	}
}

// TestLocalPrograms: a host has several programs of this process at a time, which talk to each other and to others, and
// nothing is left of those that have ended.
func TestLocalPrograms(t *testing.T) {
	f := bringUp(t, "star:3")
	keep := newEnd(t, f.hosts[0].Device(), 4096) // makes the host's own
	fds, routines := openDescriptors(t), runtime.NumGoroutine()
	for range 20 {
		var devs []*Device
		for _, h := range []*Host{f.hosts[0], f.hosts[0], f.hosts[1], f.hosts[2]} {
			d, err := h.Open()
			if err != nil {
				t.Fatal(err)
			}
			devs = append(devs, d)
		}
		for i, x := range devs {
			for j, y := range devs {
				if i != j {
					a, b := newEnd(t, x, 1<<14), newEnd(t, y, 1<<14)
					connect(t, a, b)
					write(t, a, b, 1, 1<<14)
				}
			}
		}
		for _, d := range devs {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := openDescriptors(t); n != fds {
		t.Errorf("%d descriptors, %d before", n, fds)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > routines+2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), routines)
		}
	}
	if len(f.procs) != 1 || len(f.hosts[0].procs) != 1 || len(f.hosts[1].ways)+len(f.hosts[0].ways) != 0 {
		t.Errorf("%d programs are left: want one, without ways", len(f.procs))
	}
	_ = keep
}

// TestAfterClose: a host can be used when the fabric is closed, and says that it has failed.
func TestAfterClose(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := newEnd(t, f.hosts[0].Device(), 64), newEnd(t, f.hosts[1].Device(), 64)
	connect(t, a, b)
	f.Close()
	if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	var wc [1]verbs.WC
	if a.cq.Poll(wc[:]) != 1 || wc[0].Status == verbs.WCSuccess {
		t.Errorf("%+v: want an error", wc[0])
	}
	g := bringUp(t, "star:2")
	g.Close()
	if p, err := verbs.Open(g.hosts[0].Device()).QueryPort(1); err != nil || p.State != ib.PortDown {
		t.Errorf("%+v, %v: want a port that is down", p, err)
	}
	if _, err := g.hosts[0].Open(); err != ErrClosed {
		t.Errorf("%v: want ErrClosed", err)
	}
}
