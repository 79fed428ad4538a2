package server_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/cputime"
	"softib/internal/race"
	"softib/internal/release"
	"softib/node/hca"
	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

// eventually waits until what programs write down now and then is as it should be.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 60 s", what)
		}
	}
}

// hostStats is what a host's programs have counted.
func hostStats(t testing.TB, f *live.Fabric, name string) inspect.HostStats {
	t.Helper()
	h, err := f.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h.Stats()
}

// TestProgramsTell: what was planted is counted, exactly: errors by status at both ends, retries, requests, datagrams
// of IPoIB, and states.
func TestProgramsTell(t *testing.T) {
	if race.Enabled {
		t.Skip("the detector does not see what goes through shared memory")
	}
	f, socket := fabric(t, "star:2")
	if len(f.Programs()) != 0 || len(f.HostStats()) != 0 {
		t.Fatal("there are programs before any has come")
	}
	began := time.Now()
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	o := patient // what is sent twice counts twice
	o.RNRRetry = 0
	connected := func() (qa, qb *verbs.QP) {
		qa, qb = a.qp(verbs.RC), b.qp(verbs.RC)
		join(t, qa, qb, o)
		return qa, qb
	}
	post := func(q *verbs.QP, wr verbs.SendWR) {
		t.Helper()
		wr.Flags |= verbs.SendSignaled
		if err := q.PostSend(&wr); err != nil {
			t.Fatal(err)
		}
	}
	var want, wantB hca.Stats

	// Requests of each kind.
	qa, _ := connected()
	for range 5 {
		post(qa, verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: a.mr.SGEs(0, 10), RemoteAddr: b.mr.Addr(),
			RKey: b.mr.RKey()})
		a.want(verbs.WCSuccess)
	}
	for range 3 {
		post(qa, verbs.SendWR{Opcode: verbs.WRAtomicFetchAdd, SGList: a.mr.SGEs(0, 8), RemoteAddr: b.mr.Addr(),
			RKey: b.mr.RKey(), CompareAdd: 1})
		a.want(verbs.WCSuccess)
	}
	for range 4 {
		post(qa, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, 9000), RemoteAddr: b.mr.Addr(),
			RKey: b.mr.RKey()})
		a.want(verbs.WCSuccess)
	}
	wantB.ReadsRcvd, wantB.AtomicsRcvd, wantB.WritesRcvd = 5, 3, 4

	// A receive that is missing, with no patience.
	qa, _ = connected()
	post(qa, verbs.SendWR{Opcode: verbs.WRSend, SGList: a.mr.SGEs(0, 10)})
	a.want(verbs.WCRNRRetryExcErr)
	want.RNRNAKs, wantB.RNRsSent = 1, 1
	want.SendErrors[verbs.WCRNRRetryExcErr] = 1

	// A wrong key. What is behind it is flushed, at both ends.
	qa, qb := connected()
	for range 2 {
		if err := qb.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	post(qa, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, 10), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey() ^ 0x5500})
	a.want(verbs.WCRemAccessErr)
	for range 2 {
		b.want(verbs.WCWRFlushErr)
	}
	wantB.AccessNAKsSent = 1
	want.SendErrors[verbs.WCRemAccessErr] = 1
	wantB.RecvErrors[verbs.WCWRFlushErr] = 2

	// Datagrams, with the key of IP over InfiniBand and with another.
	ua, ub := a.qp(verbs.UD), b.qp(verbs.UD)
	pb, err := b.ctx.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	ah, err := a.pd.CreateAH(verbs.AHAttr{DLID: pb.LID, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{ua.Ready(1, 0, 0x0b1b), ub.Ready(1, 0, 0x0b1b)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		if err := ub.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 1000)}); err != nil {
			t.Fatal(err)
		}
		post(ua, verbs.SendWR{Opcode: verbs.WRSend, SGList: a.mr.SGEs(0, 500), AH: ah, RemoteQPN: ub.Num(),
			RemoteQKey: 0x0b1b})
		a.want(verbs.WCSuccess)
		b.want(verbs.WCSuccess)
	}
	want.IPoIBTxPackets, want.IPoIBTxBytes = 6, 3000
	wantB.IPoIBRxPackets, wantB.IPoIBRxBytes = 6, 3000

	// A cut link, found by programs that know no way yet: packets of the others may be in a ring.
	if err := f.SetLink(topo.PortRef{Node: f.Hosts()[1].Node().Index, Port: 1}, false); err != nil {
		t.Fatal(err)
	}
	c, d := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	qc, qd := c.qp(verbs.RC), d.qp(verbs.RC)
	o.Timeout, o.RetryCnt = 12, 2 // 16 ms, three times
	join(t, qc, qd, o)
	post(qc, verbs.SendWR{Opcode: verbs.WRSend, SGList: c.mr.SGEs(0, 10)})
	c.want(verbs.WCRetryExcErr)
	want.Timeouts = 3
	want.SendErrors[verbs.WCRetryExcErr] = 1

	same := func(got, want *hca.Stats) bool {
		g := *got
		// What was carried for all this is not what this is about.
		g.TxPackets, g.RxPackets, g.TxBytes, g.RxBytes, g.AcksSent, g.Completions, g.CompletionErrors,
			g.Retransmits = 0, 0, 0, 0, 0, 0, 0, 0
		g.Drops = [hca.NumDrop]uint64{}
		return g == *want
	}
	for _, x := range []struct {
		host string
		want *hca.Stats
	}{{"h1", &want}, {"h2", &wantB}} {
		var got inspect.HostStats
		for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
			if got = hostStats(t, f, x.host); same(&got.Stats, x.want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has %+v\nwant %+v", x.host, got.Stats, *x.want)
			}
		}
		if got.Stats.CompletionErrors != sum(got.Stats.SendErrors[:])+sum(got.Stats.RecvErrors[:]) {
			t.Errorf("%s: %d completion errors, %v and %v by status", x.host, got.Stats.CompletionErrors,
				got.Stats.SendErrors, got.Stats.RecvErrors)
		}
	}
	if got := hostStats(t, f, "h2").Stats.Drops[hca.DropNoRecv]; got != 1 {
		t.Errorf("h2 dropped %d packets for want of a receive: want 1", got)
	}

	list := f.Programs()
	if len(list) != 4 || list[0].Host != "h1" || list[1].Host != "h1" || list[2].Host != "h2" {
		t.Fatalf("programs are %+v", list)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	p := list[0]
	if p.PID != os.Getpid() || p.Name != strings.TrimSpace(string(comm)) || p.Library != release.Version ||
		p.Since.Before(began) || time.Since(p.Since) < 0 {
		t.Errorf("the program is %d %q, library %q, since %v", p.PID, p.Name, p.Library, p.Since)
	}
	qps := hca.QPCounts{hca.RC: {verbs.StateRTS: 1, verbs.StateErr: 2}, hca.UD: {verbs.StateRTS: 1}}
	if p.QPs != qps {
		t.Errorf("h1's queue pairs are %v: want %v", p.QPs, qps)
	}
	if q := list[1].QPs; q[hca.RC][verbs.StateErr] != 1 || q.Total() != 1 {
		t.Errorf("the other program's queue pairs are %v: want one, that has failed", q)
	}
	qps[hca.RC][verbs.StateErr] = 3
	hosts := f.HostStats()
	if len(hosts) != 2 || hosts[0].Host != "h1" || hosts[0].Programs != 2 || hosts[0].Ended != 0 ||
		hosts[0].QPs != qps || hosts[0].Stats.TxPackets != list[0].Stats.TxPackets+list[1].Stats.TxPackets {
		t.Errorf("hosts are %+v", hosts)
	}
	before := hosts[0].Stats
	a.dev.Close()
	c.dev.Close()
	eventually(t, "the programs end", func() bool { return len(f.Programs()) == 2 })
	after := hostStats(t, f, "h1")
	if after.Programs != 0 || after.Ended != 2 || after.QPs != (hca.QPCounts{}) || less(&after.Stats, &before) {
		t.Errorf("when its program has ended h1 has %+v", after)
	}
}

func sum(list []uint64) (n uint64) {
	for _, v := range list {
		n += v
	}
	return n
}

// less reports whether any counter of a is less than that of b.
func less(a, b *hca.Stats) bool {
	var walk func(x, y reflect.Value) bool
	walk = func(x, y reflect.Value) bool {
		switch x.Kind() {
		case reflect.Struct:
			for i := range x.NumField() {
				if walk(x.Field(i), y.Field(i)) {
					return true
				}
			}
			return false
		case reflect.Array:
			for i := range x.Len() {
				if walk(x.Index(i), y.Index(i)) {
					return true
				}
			}
			return false
		}
		return x.Uint() < y.Uint()
	}
	return walk(reflect.ValueOf(*a), reflect.ValueOf(*b))
}

// TestPathLatencies: on a path with a delay the times that the fabric knows are those that the program measures, and
// only that path has them.
func TestPathLatencies(t *testing.T) {
	f, socket := fabric(t, "star:3")
	a, b, qa, _ := pairWith(t, socket, "h1", "h2", patient.Timeout) // nothing is lost here
	const delay = 2 * time.Millisecond
	setFault(t, f, topo.PortRef{Node: f.Hosts()[1].Node().Index, Port: 1}, live.Fault{Delay: delay})
	var mine []time.Duration
	for range 400 {
		start := time.Now()
		if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 8), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		a.want(verbs.WCSuccess)
		mine = append(mine, time.Since(start))
	}
	slices.Sort(mine)
	paths := f.PathLatencies()
	if len(paths) != 1 || paths[0].From != "h1" || paths[0].To != "h2" {
		t.Fatalf("paths are %+v", paths)
	}
	p := paths[0]
	if n := p.Times.Count(); n < 4 || n > 10 {
		t.Errorf("%d times of 400 acknowledgements: want every 64th", n)
	}
	// The program has measured each of them too, and a little more.
	longest := mine[len(mine)-1]
	if first, last := p.Times.Quantile(0), p.Times.Quantile(1); first < 2*delay*93/100 || last > longest*107/100 {
		t.Errorf("they took %v to %v: the program measures %v to %v, and the cable delays both ways by %v", first, last,
			mine[0], longest, delay)
	}
	if half := p.Times.Quantile(0.5); half > mine[len(mine)*99/100]*107/100 {
		t.Errorf("half of all took %v or more: of the program's, a hundredth took %v", half, mine[len(mine)*99/100])
	}
	if time.Since(p.Last) > time.Minute {
		t.Errorf("last at %v", p.Last)
	}
}

// TestPeaks: a message that goes at once is a peak of its size at every port on its way, for every reader, and at no
// other.
func TestPeaks(t *testing.T) {
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b, qa, _ := pairWith(t, socket, "h1", "h8", patient.Timeout)
	if got := f.Peaks(live.PeaksKept); len(got) != 0 {
		t.Fatalf("peaks before any traffic: %+v", got)
	}
	const size = 200_000
	from := topo.PortRef{Node: f.Hosts()[0].Node().Index, Port: 1}
	before := f.Counters(from)
	if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
		SGList: a.mr.SGEs(0, size), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCSuccess)
	bytes := 4 * (f.Counters(from)[ib.PortXmitData] - before[ib.PortXmitData])
	pb, _ := b.ctx.QueryPort(1)
	way, err := f.Way(from, pb.LID, 0, ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	var peaks map[topo.PortRef]inspect.PortPeak
	eventually(t, "the peak is known", func() bool {
		peaks = map[topo.PortRef]inspect.PortPeak{}
		for _, p := range f.Peaks(live.PeaksKept) {
			peaks[p.Port] = p
		}
		return peaks[from].Xmit > 0
	})
	for _, h := range way.Hops {
		if got := peaks[h.Out].Xmit; got > bytes || got < size {
			t.Errorf("%s: a peak of %d bytes: want all %d, in which %d of payload are", f.Graph().PortName(h.Out), got,
				bytes, size)
		}
		if got := peaks[h.In].Rcv; got > bytes || got < size {
			t.Errorf("%s: a peak of %d bytes received: want %d", f.Graph().PortName(h.In), got, bytes)
		}
	}
	// The acknowledgement may be known by now, and came by a way of its own.
	pa, _ := a.ctx.QueryPort(1)
	back, err := f.Way(topo.PortRef{Node: f.Hosts()[7].Node().Index, Port: 1}, pa.LID, 0, ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	on := map[topo.PortRef]bool{}
	for _, h := range slices.Concat(way.Hops, back.Hops) {
		on[h.Out], on[h.In] = true, true
	}
	for r := range peaks {
		if !on[r] {
			t.Errorf("%s has a peak, where nothing went", f.Graph().PortName(r))
		}
	}
	for _, again := range f.Peaks(live.PeaksKept) {
		if again.Port == from && again.Xmit != peaks[from].Xmit { // what came back may be known only now
			t.Errorf("a second reader finds %+v: want %+v", again, peaks[from])
		}
	}
}

// TestTelemetryChild is the program that TestKilled kills: it sends from h1 to h2 for ever.
func TestTelemetryChild(t *testing.T) {
	socket := os.Getenv("SOFTIB_TEST_TELEMETRY")
	if socket == "" {
		t.Skip("a part of TestKilled")
	}
	a, b, qa, _ := pairWith(t, socket, "h1", "h2", patient.Timeout)
	for i := 0; ; i++ {
		if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 100), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		a.want(verbs.WCSuccess)
		if i == 100 {
			os.Stdout.WriteString("running\n")
		}
	}
}

// TestKilled: whatever happens to programs, the counters of their host never go backwards.
func TestKilled(t *testing.T) {
	f, socket := fabric(t, "star:2")
	last := map[string]hca.Stats{}
	samples := uint64(0)
	look := func() {
		t.Helper()
		for _, h := range f.HostStats() {
			if was := last[h.Host]; less(&h.Stats, &was) {
				t.Fatalf("%s went from %+v to %+v", h.Host, was, h.Stats)
			}
			last[h.Host] = h.Stats
		}
		for _, p := range f.PathLatencies() {
			if p.From == "h1" {
				if n := p.Times.Count(); n < samples {
					t.Fatalf("%d times were taken, then %d", samples, n)
				} else {
					samples = n
				}
			}
		}
	}
	for round := range uint64(3) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTelemetryChild$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), "SOFTIB_TEST_TELEMETRY="+socket)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "running" {
		}
		had := last["h1"].TxPackets
		eventually(t, "the program sends", func() bool { look(); return last["h1"].TxPackets > had+100 })
		for _, p := range f.Programs() {
			if want := filepath.Base(os.Args[0]); p.PID != cmd.Process.Pid || !strings.HasPrefix(want, p.Name) ||
				p.Name == "" {
				t.Errorf("program %d %q: want %d, %s", p.PID, p.Name, cmd.Process.Pid, want)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		eventually(t, "it is gone", func() bool { look(); return len(f.Programs()) == 0 })
		look()
		for _, name := range []string{"h1", "h2"} {
			if s := hostStats(t, f, name); s.Ended != round+1 || s.Programs != 0 {
				t.Errorf("%s: %d programs, %d have ended: want 0, %d", name, s.Programs, s.Ended, round+1)
			}
		}
	}
	if samples == 0 {
		t.Error("no time was ever taken")
	}
}

// TestHostileNames: what a program says of itself is fit to be shown.
func TestHostileNames(t *testing.T) {
	f, _ := fabric(t, "star:2")
	p, err := f.Attach("h1", live.Caller{PID: 1 << 30, Library: "\x1b[2J\n\xff" + strings.Repeat("é", 100)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := f.Programs()[0]; got.Library != "?[2J??"+strings.Repeat("é", 58) || got.Name != "" {
		t.Errorf("library %q, name %q", got.Library, got.Name)
	}
}

// TestIdleProgramsCostNothing: a fabric with programs that do nothing uses next to no time of a processor.
func TestIdleProgramsCostNothing(t *testing.T) {
	f, socket := fabric(t, "star:8")
	for _, h := range f.Hosts() {
		open(t, socket, h.Name())
	}
	if used := cputime.AtRest(t, time.Second); used > 20*time.Millisecond {
		t.Errorf("8 idle programs and their fabric use %v of a processor's time in a second", used)
	}
}
