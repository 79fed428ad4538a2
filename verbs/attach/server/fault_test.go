package server_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/race"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/verbs"
)

// stream sends n messages of size bytes from a to b, several at a time, and wants each to arrive once and in its turn.
// Between messages it calls each, if there is one.
func stream(t testing.TB, a, b *side, qa, qb *verbs.QP, n, size int, each func(i int)) {
	t.Helper()
	const window = 32
	deadline := time.Now().Add(60 * time.Second)
	posted, sent, armed, got := 0, 0, 0, 0
	var wcs [window]verbs.WC
	for sent < n || got < n {
		for ; armed < n && armed-got < window; armed++ {
			if err := qb.PostRecv(&verbs.RecvWR{WRID: uint64(armed),
				SGList: b.mr.SGEs(armed%window*size, size)}); err != nil {
				t.Fatal(err)
			}
		}
		for ; posted < n && posted-sent < window && posted < armed; posted++ {
			if each != nil {
				each(posted)
			}
			at := posted % window * size
			pattern(a.mr.Bytes()[at:at+size], byte(posted))
			binary.LittleEndian.PutUint32(a.mr.Bytes()[at:], uint32(posted))
			if err := qa.PostSend(&verbs.SendWR{WRID: uint64(posted), Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
				SGList: a.mr.SGEs(at, size)}); err != nil {
				t.Fatal(err)
			}
		}
		k := a.cq.Poll(wcs[:])
		for _, wc := range wcs[:k] {
			if wc.Status != verbs.WCSuccess || wc.WRID != uint64(sent) {
				t.Fatalf("request %d of %d ended with %v: want request %d to succeed", wc.WRID, n, wc.Status, sent)
			}
			sent++
		}
		k = b.cq.Poll(wcs[:])
		for _, wc := range wcs[:k] {
			at := got % window * size
			want := make([]byte, size)
			pattern(want, byte(got))
			binary.LittleEndian.PutUint32(want, uint32(got))
			if wc.Status != verbs.WCSuccess || wc.WRID != uint64(got) || int(wc.ByteLen) != size {
				t.Fatalf("receive %d: %+v", got, wc)
			}
			if !race.Enabled && !bytes.Equal(b.mr.Bytes()[at:at+size], want) {
				t.Fatalf("message %d is not what was sent: %x..., want %x...", got, b.mr.Bytes()[at:at+8], want[:8])
			}
			got++
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages were sent, %d arrived", sent, n, got)
		}
	}
}

// pair is two programs with a connection.
func pair(t testing.TB, socket, from, to string) (a, b *side, qa, qb *verbs.QP) {
	t.Helper()
	return pairWith(t, socket, from, to, 16) // 0.27 s, eight times: longer than a busy machine lets a process wait
}

// pairWith is pair with another timeout.
func pairWith(t testing.TB, socket, from, to string, timeout uint8) (a, b *side, qa, qb *verbs.QP) {
	t.Helper()
	a, b = newSide(t, socket, from), newSide(t, socket, to)
	qa, qb = a.qp(verbs.RC), b.qp(verbs.RC)
	o := verbs.DefaultConnect
	o.Timeout = timeout
	join(t, qa, qb, o)
	return a, b, qa, qb
}

// peerOf is the port at the other end of a cable.
func peerOf(f *live.Fabric, r topo.PortRef) topo.PortRef {
	p := f.Graph().Port(r)
	return topo.PortRef{Node: p.Peer, Port: p.PeerPort}
}

func setFault(t testing.TB, f *live.Fabric, r topo.PortRef, fault live.Fault) {
	t.Helper()
	if err := f.SetFault(r, fault); err != nil {
		t.Fatal(err)
	}
}

// TestDrop: a cable that loses packets costs time, and nothing else. What is sent into it and what comes out is
// counted.
func TestDrop(t *testing.T) {
	f, socket := fabric(t, "star:2")
	a, b, qa, qb := pair(t, socket, "h1", "h2")
	ref := portOf(f, 1) // the switch is at the other end
	setFault(t, f, ref, live.Fault{Drop: 0.05})
	peer := peerOf(f, ref)
	cb, cs := f.Counters(ref), f.Counters(peer)
	stream(t, a, b, qa, qb, 500, 8000, nil)
	faults := f.Faults()
	if len(faults) != 1 || faults[0].Port != ref || faults[0].Drop != 0.05 {
		t.Fatalf("faults %+v", faults)
	}
	var sent, got, lost uint64
	// what was sent twice may still be on its way
	eventually(t, "what was sent over the cable has come or is lost", func() bool {
		c := f.CountersOf([]topo.PortRef{ref, peer})
		sent = c[1][ib.PortXmitPkts] - cs[ib.PortXmitPkts] + c[0][ib.PortXmitPkts] - cb[ib.PortXmitPkts]
		got = c[1][ib.PortRcvPkts] - cs[ib.PortRcvPkts] + c[0][ib.PortRcvPkts] - cb[ib.PortRcvPkts]
		lost = f.Faults()[0].Dropped
		return sent-got == lost
	})
	if lost < sent/50 || lost > sent/10 {
		t.Errorf("%d packets were sent over the cable and %d came, %d lost: want 5 %%", sent, got, lost)
	}
	if err := f.ClearFault(ref); err != nil {
		t.Fatal(err)
	}
	if err := f.ClearFault(ref); !errors.Is(err, live.ErrFault) {
		t.Errorf("a fault that is not there was cleared: %v", err)
	}
	stream(t, a, b, qa, qb, 500, 8000, nil)
	if len(f.Faults()) != 0 {
		t.Errorf("faults %+v: want none", f.Faults())
	}
}

// TestBitErrors: packets with flipped bits count as errors where they come in, and do not go further.
func TestBitErrors(t *testing.T) {
	f, socket := fabric(t, "star:2")
	a, b, qa, qb := pair(t, socket, "h1", "h2")
	ref := portOf(f, 1)
	var seen list
	stop, err := f.Capture([]topo.PortRef{ref}, &seen)
	if err != nil {
		t.Fatal(err)
	}
	peer := peerOf(f, ref)
	cb, cs := f.Counters(ref), f.Counters(peer)
	setFault(t, f, ref, live.Fault{BER: 2e-6}) // one packet of 4096 bytes in 15
	stream(t, a, b, qa, qb, 300, 8000, nil)
	setFault(t, f, ref, live.Fault{}) // what was sent twice may still be on its way, and comes as it is
	var cb2, cs2 ib.Counters
	delta := func(c ib.Counter) uint64 { return cb2[c] - cb[c] + cs2[c] - cs[c] }
	corrupted := f.Faults()[0].Corrupted
	eventually(t, "what was corrupted is counted", func() bool {
		cb2, cs2 = f.Counters(ref), f.Counters(peer)
		return delta(ib.PortRcvErrors) >= corrupted
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if corrupted == 0 || delta(ib.PortRcvErrors) != corrupted || delta(ib.SymbolErrorCounter) < corrupted {
		t.Errorf("%d corrupted packets, %d receive errors, %d symbol errors", corrupted, delta(ib.PortRcvErrors),
			delta(ib.SymbolErrorCounter))
	}
	noted := 0
	for _, e := range seen.events {
		if e.Note != "" && e.Dir == trace.In {
			noted++
		}
	}
	if want := cb2[ib.PortRcvErrors] - cb[ib.PortRcvErrors]; uint64(noted) != want {
		t.Errorf("%d corrupted packets were captured at a port that has counted %d", noted, want)
	}
}

// TestRate: a cable with a rate lets that much pass, and the ports before it wait.
func TestRate(t *testing.T) {
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h8")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	o := verbs.DefaultConnect
	o.Timeout = patient.Timeout
	join(t, qa, qb, o)
	pb, _ := b.ctx.QueryPort(1)
	way, err := f.Way(portOf(f, 0), pb.LID, 0, ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	slow := way.Hops[len(way.Hops)-1]
	const rate, size, n = 100e6, 16384, 150
	setFault(t, f, slow.Out, live.Fault{Rate: rate})
	before, words := f.Counters(way.Hops[0].Out), f.Counters(slow.Out)[ib.PortXmitData]
	start := time.Now()
	stream(t, a, b, qa, qb, n, size, nil)
	took := time.Since(start)
	got := float64(f.Counters(slow.Out)[ib.PortXmitData]-words) * 32 / took.Seconds()
	t.Logf("%.0f Mb/s over a cable of %.0f Mb/s", got/1e6, rate/1e6)
	if got > 1.05*rate { // how much it is at least is for virtual time: drivertest.TestRate
		t.Errorf("%.0f Mb/s over a cable of %.0f Mb/s", got/1e6, rate/1e6)
	}
	if waited := f.Counters(way.Hops[0].Out)[ib.PortXmitWait] - before[ib.PortXmitWait]; waited == 0 {
		t.Errorf("the first port of the way never waited for credit")
	}
}

// TestDelay: a message and its answer take at least twice the delay.
func TestDelay(t *testing.T) {
	f, socket := fabric(t, "star:2")
	a, b, qa, _ := pair(t, socket, "h1", "h2")
	exchange(t, a, b, qa, 8)
	const delay = 3 * time.Millisecond
	setFault(t, f, portOf(f, 0), live.Fault{Delay: delay})
	o := patient
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb, o)
	start := time.Now()
	if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCSuccess)
	if d := time.Since(start); d < 2*delay {
		t.Errorf("there and back in %v over a cable of %v", d, delay)
	}
}

// TestSwitchingUnderLoad: ways become switched and direct again all the time, and programs do not notice.
func TestSwitchingUnderLoad(t *testing.T) {
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b, qa, qb := pair(t, socket, "h1", "h8")
	ref := portOf(f, 7)
	on := false
	rounds := 0
	stream(t, a, b, qa, qb, 4000, 6000, func(i int) {
		if i%40 != 39 {
			return
		}
		if on = !on; on {
			setFault(t, f, ref, live.Fault{})
		} else if err := f.ClearFault(ref); err != nil {
			t.Fatal(err)
		}
		rounds++
	})
	if rounds != 100 {
		t.Errorf("switched %d times", rounds)
	}
}

// TestPeerDiesSwitched: on a switched way too a peer that is gone is one that does not answer any more, and the others
// go on.
func TestPeerDiesSwitched(t *testing.T) {
	f, socket := fabric(t, "star:3")
	setFault(t, f, portOf(f, 1), live.Fault{Rate: 2e9})
	a, b, qa, qb := pair(t, socket, "h1", "h2")
	stream(t, a, b, qa, qb, 50, 8000, nil)
	// Let it die with packets on the way to it.
	for i := range 8 {
		if err := qa.PostSend(&verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, 1<<20),
			RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
	}
	b.dev.Close()
	if wc := a.wait(); wc.Status != verbs.WCRetryExcErr {
		t.Fatalf("completion %+v: want %v", wc, verbs.WCRetryExcErr)
	}
	// So must one with packets of its own on the way.
	c, d, qc, qd := pair(t, socket, "h2", "h3")
	stream(t, c, d, qc, qd, 50, 8000, nil)
	if err := qc.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: c.mr.SGEs(0, 1<<20), RemoteAddr: d.mr.Addr(),
		RKey: d.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	c.dev.Close()
	e, g, qe, qg := pair(t, socket, "h2", "h3")
	stream(t, e, g, qe, qg, 50, 8000, nil)
}

// TestLastWords: what a program has sent before it ended arrives, though it still lay in the program's ring.
func TestLastWords(t *testing.T) {
	f, socket := fabric(t, "star:2")
	setFault(t, f, portOf(f, 1), live.Fault{Rate: 100e6})
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	qa, qb := a.qp(verbs.UC), b.qp(verbs.UC)
	join(t, qa, qb, verbs.DefaultConnect)
	const size, n = 100000, 2
	pattern(a.mr.Bytes()[:size], 5)
	for range n {
		if err := qb.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, size)}); err != nil {
			t.Fatal(err)
		}
		if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, size)}); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		a.want(verbs.WCSuccess) // it has left the program; over the cable it takes 8 ms
	}
	a.dev.Close()
	for range n {
		if wc := b.want(verbs.WCSuccess); wc.ByteLen != size {
			t.Errorf("%d bytes arrived: want %d", wc.ByteLen, size)
		}
	}
	if !race.Enabled && !bytes.Equal(b.mr.Bytes()[:size], a.mr.Bytes()[:size]) {
		t.Error("what arrived is not what was sent")
	}
}

// TestMulticastSwitched: a group whose tree has a bad cable reaches all its members once.
func TestMulticastSwitched(t *testing.T) {
	f, socket := fabric(t, "star:4")
	const mlid = ib.LIDMulticastMin + 5
	mgid := ib.GID{0xff, 0x12, 15: 5}
	if err := f.CreateMulticast(mlid, f.Hosts()...); err != nil {
		t.Fatal(err)
	}
	setFault(t, f, portOf(f, 1), live.Fault{Delay: time.Millisecond})
	sides := []*side{newSide(t, socket, "h1"), newSide(t, socket, "h1"), newSide(t, socket, "h2"),
		newSide(t, socket, "h3"), newSide(t, socket, "h3")}
	const n = 20
	var qps []*verbs.QP
	for _, s := range sides {
		q := s.qp(verbs.UD)
		if err := q.Ready(1, 0, 0x11111111); err != nil {
			t.Fatal(err)
		}
		if err := q.AttachMcast(mgid, mlid); err != nil {
			t.Fatal(err)
		}
		for range n + 4 {
			if err := q.PostRecv(&verbs.RecvWR{SGList: s.mr.SGEs(0, 2000)}); err != nil {
				t.Fatal(err)
			}
		}
		qps = append(qps, q)
	}
	ah, err := sides[0].pd.CreateAH(verbs.AHAttr{DLID: mlid, Port: 1, IsGlobal: true, DGID: mgid, HopLimit: 1})
	if err != nil {
		t.Fatal(err)
	}
	before := f.Counters(portOf(f, 3)) // which has no program, but is in the tree
	pattern(sides[0].mr.Bytes()[4000:5000], 3)
	for range n {
		if err := qps[0].PostSend(&verbs.SendWR{Opcode: verbs.WRSend, SGList: sides[0].mr.SGEs(4000, 1000),
			AH: ah, RemoteQPN: ib.QPNMulticast, RemoteQKey: 0x11111111}); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range sides {
		for range n {
			if wc := s.want(verbs.WCSuccess); wc.ByteLen != 1040 || !race.Enabled &&
				!bytes.Equal(s.mr.Bytes()[40:1040], sides[0].mr.Bytes()[4000:5000]) {
				t.Errorf("member %d got %d bytes, or others than were sent", i, wc.ByteLen)
			}
		}
	}
	if got := f.Counters(portOf(f, 3))[ib.PortMulticastRcvPkts] - before[ib.PortMulticastRcvPkts]; got != n {
		t.Errorf("h4 got %d multicast packets: want %d", got, n)
	}
	var none [4]verbs.WC
	for i, s := range sides {
		if n := s.cq.Poll(none[:]); n != 0 {
			t.Errorf("program %d got %d more completions", i, n)
		}
	}
}

// TestLinkDownSwitched: a switched way whose link goes down loses what is on it, and one that leads elsewhere is found.
func TestLinkDownSwitched(t *testing.T) {
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b, qa, qb := pair(t, socket, "h1", "h8")
	setFault(t, f, portOf(f, 0), live.Fault{Rate: 1e9})
	stream(t, a, b, qa, qb, 100, 8000, nil)
	pb, _ := b.ctx.QueryPort(1)
	way, err := f.Way(portOf(f, 0), pb.LID, 0, ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	stream(t, a, b, qa, qb, 400, 8000, func(i int) {
		if i != 100 && i != 250 {
			return
		}
		if err := f.SetLink(way.Hops[1].Out, i == 250); err != nil { // leaf to spine: there is another spine
			t.Fatal(err)
		}
		if _, err := f.BringUp(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCaptureTshark: what is captured on a running fabric is what Wireshark understands, in both directions.
func TestCaptureTshark(t *testing.T) {
	path, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("no tshark on this machine; next: make test, which installs it")
	}
	f, socket := fabric(t, "star:2")
	a, b, qa, qb := pair(t, socket, "h1", "h2")
	file, err := os.Create(filepath.Join(t.TempDir(), "capture.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := trace.NewPcapng(file, trace.PcapngOptions{EpochNS: uint64(f.Start().UnixNano())})
	if err != nil {
		t.Fatal(err)
	}
	ref := portOf(f, 0)
	if err := w.Port(uint32(ref.Node), ref.Port, "h1/1", f.Graph().Port(ref).Rate()); err != nil {
		t.Fatal(err)
	}
	stop, err := f.Capture([]topo.PortRef{ref}, w)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	stream(t, a, b, qa, qb, 40, 10000, nil) // three packets each
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "-n", "-r", file.Name(), "-T", "fields", "-E", "separator=|",
		"-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "frame.time_epoch", "-e", "_ws.malformed",
		"-e", "infiniband.bth.destqp").Output()
	if err != nil {
		t.Fatal(err)
	}
	byOpcode := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		col := strings.Split(line, "|")
		if len(col) != 5 || col[3] != "" {
			t.Fatalf("tshark: %q", line)
		}
		byOpcode[col[0]]++
		at, err := time.ParseDuration(col[2] + "s")
		if err != nil {
			t.Fatal(err)
		}
		if when := time.Unix(0, int64(at)); when.Before(begin.Add(-time.Second)) || when.After(time.Now()) {
			t.Fatalf("captured at %v: want between %v and now", when, begin)
		}
	}
	// SEND First, Middle, Last; Acknowledge.
	if byOpcode["0"] < 40 || byOpcode["1"] < 40 || byOpcode["2"] < 40 || byOpcode["17"] == 0 {
		t.Errorf("tshark saw packets by opcode %v", byOpcode)
	}
}

// TestIdleSwitched: a switched way that nobody uses costs no time.
func TestIdleSwitched(t *testing.T) {
	f, socket := fabric(t, "star:2")
	a, b, qa, qb := pair(t, socket, "h1", "h2")
	setFault(t, f, portOf(f, 0), live.Fault{Drop: 0.01, Delay: time.Microsecond})
	stream(t, a, b, qa, qb, 100, 8000, nil)
	// All that was sent is answered; give what follows by itself its time.
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	deadline := time.Now().Add(60 * time.Second)
	for {
		before := used()
		<-time.After(300 * time.Millisecond)
		if spent := used() - before; spent < 6*time.Millisecond { // two percent
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("an idle fabric used %v of 300 ms", spent)
		}
	}
}

// TestBadFaults: what makes no sense is refused.
func TestBadFaults(t *testing.T) {
	f, _ := fabric(t, "star:2")
	ref := portOf(f, 0)
	for _, bad := range []live.Fault{{BER: -1}, {BER: 1}, {Drop: 1.1}, {Drop: -0.1}, {Rate: -1}, {Rate: 10},
		{Delay: -1}, {Delay: time.Hour}} {
		if err := f.SetFault(ref, bad); !errors.Is(err, live.ErrFault) {
			t.Errorf("%+v: %v: want %v", bad, err, live.ErrFault)
		}
	}
	for _, r := range []topo.PortRef{{Node: -1, Port: 1}, {Node: ref.Node, Port: 9}, {Node: 99, Port: 1}} {
		if err := f.SetFault(r, live.Fault{}); !errors.Is(err, live.ErrFault) {
			t.Errorf("fault at %+v: %v: want %v", r, err, live.ErrFault)
		}
		if _, err := f.Capture([]topo.PortRef{r}, &list{}); !errors.Is(err, live.ErrFault) {
			t.Errorf("capture at %+v: %v: want %v", r, err, live.ErrFault)
		}
	}
	if _, err := f.Capture(nil, &list{}); !errors.Is(err, live.ErrFault) {
		t.Errorf("a capture of no port: %v", err)
	}
}
