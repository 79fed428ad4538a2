package jobs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"softib/job/load"
	"softib/job/play"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// packetsOn makes a network of packets.
func packetsOn(t *testing.T, g *topo.Graph, opt Options) *Packets {
	t.Helper()
	f, err := NewFabric(g, opt)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func graphOf(t *testing.T, spec string) *topo.Graph {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// runOn runs a load to its end.
func runOn(t *testing.T, n *Packets, text string, seed uint64) *Result {
	t.Helper()
	l, err := load.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(n.f.Ranks(), seed)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), s, play.Model{}, n, Watch{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if !r.Whole {
		t.Fatalf("%s: not whole", text)
	}
	return r
}

// TestPauseLosesNothing: whatever the shape, rates, lengths of cables, packets and buffers, a fabric with priority flow
// control drops nothing, since the headroom holds what is on its way when a pause is sent.
func TestPauseLosesNothing(t *testing.T) {
	pauses, most := uint64(0), 0.0
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 0xFC))
		cable := fmt.Sprintf("speed=%s,length=%dm", []string{"FDR10", "EDR", "HDR", "NDR"}[r.IntN(4)],
			[]int{1, 10, 100, 300}[r.IntN(4)])
		spec := []string{"star:8," + cable, "fat-tree:radix=4,levels=2," + cable, "line:3,hosts=3," + cable,
			fmt.Sprintf("random:switches=4,hosts=8,links=6,seed=%d,%s", seed, cable)}[r.IntN(4)]
		opt := Options{Seed: seed, Routing: "updn", MTU: ib.MTU256 + ib.MTU(r.IntN(5)), Buffer: 1 << r.IntN(19),
			SwitchLatency: ib.Time(1+r.IntN(1000)) * ib.Nanosecond,
			Ethernet: Ethernet{Kind: RoCE, NoDCQCN: r.IntN(3) > 0, NoECMP: r.IntN(3) == 0,
				Quanta: uint16(1 + r.IntN(1<<(1+r.IntN(16))))}}
		n := packetsOn(t, graphOf(t, spec), opt)
		text := []string{"incast:size=100K", "uniform:size=30K,count=4,window=4", "all-to-all:size=8K",
			"incast:size=700,count=60,window=60"}[r.IntN(4)]
		runOn(t, n, text, seed)
		c := n.PauseTotals()
		pauses += c.Sent
		for at := range n.Places() {
			p := n.PortAt(at)
			size, xoff, _ := p.Thresholds()
			if c := p.PauseCounters(); c.Most > 0 {
				most = max(most, float64(int(c.Most)-xoff)/float64(size-xoff))
			}
		}
		if c.Dropped != 0 || c.Resent != 0 {
			t.Errorf("seed %d: %s on %s: %d packets dropped, %d sent again", seed, text, spec, c.Dropped, c.Resent)
		}
	}
	t.Logf("%d pause frames; at most %.0f %% of a headroom was used", pauses, 100*most)
	if pauses == 0 || most < 0.5 {
		t.Error("hardly anybody was paused, or headrooms are much too large: not much of a test")
	}
}

// TestLossyDelivers: without flow control packets are lost, and all messages arrive all the same.
func TestLossyDelivers(t *testing.T) {
	for _, kind := range []string{RoCELossy, RoCESelects} {
		for seed := range uint64(6) {
			n := packetsOn(t, graphOf(t, "fat-tree:radix=4,levels=2,speed=EDR"), Options{Seed: seed, MTU: ib.MTU1024,
				Buffer: 4 << 10 << seed, Ethernet: Ethernet{Kind: kind, NoDCQCN: seed%2 == 0}})
			runOn(t, n, "uniform:size=60K,count=4,window=4", seed)
			c := n.PauseTotals()
			if c.Sent != 0 || seed < 3 && (c.Dropped == 0 || c.Resent == 0) {
				t.Errorf("%s, seed %d: %+v", kind, seed, c)
			}
			if err := n.AtRest(); err != nil {
				t.Errorf("%s, seed %d: %v", kind, seed, err)
			}
		}
	}
}

// TestWireTime: a frame of Ethernet holds the cable for its own headers, preamble and gap, so that a link carries less
// of a message than one of InfiniBand of the same rate does: 1024 of 1024+86 bytes, and 1024 of 1024+30.
func TestWireTime(t *testing.T) {
	for _, c := range []struct {
		kind  string
		extra float64
	}{{InfiniBand, 8 + 12 + 4 + 2}, {RoCE, 14 + 20 + 8 + 12 + 4 + 4 + 8 + 12}} {
		const size = 4 << 20
		n := packetsOn(t, graphOf(t, "star:2,speed=EDR"), Options{MTU: ib.MTU1024, Ethernet: Ethernet{Kind: c.kind}})
		took := float64(runOn(t, n, "shift:size=4M", 1).End) / float64(ib.Second)
		want := size * (1024 + c.extra) / 1024 * 8 / 100e9
		if took < want || took > 1.01*want {
			t.Errorf("%s: %.2f us, want %.2f and a little for the way", c.kind, 1e6*took, 1e6*want)
		}
	}
}

// TestPauseDeadlock: ports that are paused in a circle are found and named, though pauses are told again for ever.
func TestPauseDeadlock(t *testing.T) {
	f, err := NewFabric(graphOf(t, "torus:6x6"), Options{Routing: "minhop", Buffer: 1,
		Ethernet: Ethernet{Kind: RoCE, NoDCQCN: true, NoECMP: true}})
	if err != nil {
		t.Fatal(err)
	}
	f.Tables.SL = nil // without the lanes that would keep it from deadlock
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	n.rep = sm.Report{}
	l, err := load.Parse("uniform:size=1M,count=8,window=8")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(f.Ranks(), 3)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody looks on, as softib sim does.
	_, err = Run(t.Context(), s, play.Model{}, n, Watch{Sample: func(ib.Time) {},
		Interval: func() ib.Time { return 100 * ib.Microsecond }})
	var stuck *StuckError
	if !errors.As(err, &stuck) || !strings.Contains(err.Error(), "paused in a circle, sw") ||
		!strings.Contains(err.Error(), "next:") {
		t.Errorf("minhop on a torus: %v", err)
	}
	t.Log(err)
	if c := n.PauseTotals(); c.Dropped != 0 {
		t.Errorf("%d packets were dropped", c.Dropped)
	}
}

// TestEthernetRefusals: what does not go together is refused with a word of what to do.
func TestEthernetRefusals(t *testing.T) {
	g := graphOf(t, "star:4")
	for _, o := range []Options{{Ethernet: Ethernet{Kind: "token-ring"}},
		{Ethernet: Ethernet{Kind: RoCE}, Congestion: Congestion{On: true}},
		{Ethernet: Ethernet{Kind: RoCESelects}, Adaptive: 1}} {
		if _, err := NewFabric(g, o); err == nil {
			t.Errorf("%+v: no error", o.Ethernet)
		}
	}
	f, err := NewFabric(g, Options{Ethernet: Ethernet{Kind: RoCE, Storm: 9}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Packets(); err == nil || !strings.Contains(err.Error(), "next:") {
		t.Errorf("a storm at a rank that is not there: %v", err)
	}
}

// closed keeps some messages of a size under way from each of some hosts, and counts what arrives.
type closed struct {
	n    *Packets
	next func(from uint32) (to uint32, size uint64)
	from []uint32
	size []uint64
	to   []uint32
	sum  []uint64 // by receiver
}

func newClosed(n *Packets, next func(uint32) (uint32, uint64)) *closed {
	return &closed{n: n, next: next, sum: make([]uint64, n.f.Ranks())}
}

func (c *closed) send(t *testing.T, now ib.Time, from uint32) {
	to, size := c.next(from)
	m := play.Message{ID: uint32(len(c.from)), From: from, To: to, Size: size}
	c.from, c.size, c.to = append(c.from, from), append(c.size, size), append(c.to, to)
	if err := c.n.Send(now, m); err != nil {
		t.Fatal(err)
	}
}

// run goes on until a time.
func (c *closed) run(t *testing.T, until ib.Time) {
	for {
		now, err := c.n.Advance(until)
		if err != nil {
			t.Fatal(err)
		}
		for id, sent, ok := c.n.Poll(); ok; id, sent, ok = c.n.Poll() {
			if sent {
				c.send(t, now, c.from[id])
				continue
			}
			c.sum[c.to[id]] += c.size[id]
		}
		if now >= until {
			return
		}
	}
}

// rates are what senders sent between two times, in Gbit/s. Nothing is lost, so that it is what arrives.
func (c *closed) rates(t *testing.T, from, to ib.Time) []float64 {
	c.run(t, from)
	v := make([]float64, c.n.f.Ranks())
	for i := range v {
		v[i] = -float64(c.n.hosts[i].Stats.TxBytes)
	}
	c.run(t, to)
	for i := range v {
		v[i] = 8 * (v[i] + float64(c.n.hosts[i].Stats.TxBytes)) / float64(to-from) * 1e3
	}
	return v
}

// testbed is the one of the DCQCN paper, figure 2: two pods of two top-of-rack switches and two leaves, and two spines,
// all at 40 Gbit/s, with some hosts under each top-of-rack switch, in this order.
func testbed(t *testing.T, hosts [4]int) *topo.Graph {
	t.Helper()
	g := &topo.Graph{}
	cable := topo.LinkSpec{Width: ib.Width4x, Speed: ib.FDR10, LengthMM: 10_000}
	add := func(name string, kind ib.NodeType, ports int) int {
		n, err := g.Add(topo.Node{Name: name, Type: kind, GUID: ib.GUID(0x1000 + len(g.Nodes)*64)}, ports)
		if err != nil {
			t.Fatal(err)
		}
		if kind == ib.NodeCA {
			if err := g.SetPortGUID(n.Index, 1, n.GUID+1); err != nil {
				t.Fatal(err)
			}
		}
		return n.Index
	}
	used := map[int]ib.PortNum{}
	join := func(a, b int) {
		used[a]++
		used[b]++
		if err := g.Connect(a, used[a], b, used[b], cable); err != nil {
			t.Fatal(err)
		}
	}
	var tors, leaves, spines []int
	for i := range 4 {
		tors = append(tors, add(fmt.Sprintf("T%d", i+1), ib.NodeSwitch, 16))
		leaves = append(leaves, add(fmt.Sprintf("L%d", i+1), ib.NodeSwitch, 8))
	}
	for i := range 2 {
		spines = append(spines, add(fmt.Sprintf("S%d", i+1), ib.NodeSwitch, 8))
	}
	for i, tor := range tors {
		for _, leaf := range leaves[i/2*2 : i/2*2+2] {
			join(tor, leaf)
		}
	}
	for _, leaf := range leaves {
		for _, spine := range spines {
			join(leaf, spine)
		}
	}
	for i, n := range hosts {
		for k := range n {
			join(add(fmt.Sprintf("H%d%d", i+1, k+1), ib.NodeCA, 1), tors[i])
		}
	}
	return g
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// TestDCQCNUnfairness is figures 3 and 8 of the DCQCN paper: three hosts under T1 and one under T4 send to another
// under T4. With pauses alone the one that is near gets more, since a port of T4 is its own while the others share one
// or two; with DCQCN all get the same.
func TestDCQCNUnfairness(t *testing.T) {
	long(t)
	const seeds = 4
	far, near := [2][]float64{}, [2][]float64{}
	for seed := range uint64(seeds) {
		for i, off := range []bool{true, false} {
			n := packetsOn(t, testbed(t, [4]int{3, 0, 0, 2}), Options{Seed: seed + 1, Routing: "updn", MTU: ib.MTU1024,
				Ethernet: Ethernet{Kind: RoCE, NoDCQCN: off}})
			c := newClosed(n, func(uint32) (uint32, uint64) { return 4, 1 << 20 })
			for h := range uint32(4) {
				c.send(t, 0, h)
				c.send(t, 0, h)
			}
			from, to := 1*ib.Millisecond, 3*ib.Millisecond
			if !off {
				from, to = 10*ib.Millisecond, 20*ib.Millisecond
			}
			v := c.rates(t, from, to)
			far[i], near[i] = append(far[i], v[:3]...), append(near[i], v[3])
			if d := n.PauseTotals(); d.Dropped != 0 || off != (d.Marked == 0) {
				t.Errorf("seed %d: %+v", seed, d)
			}
		}
	}
	for i, name := range []string{"pauses alone", "with DCQCN"} {
		t.Logf("%-12s H1 to H3: %.1f to %.1f, median %.1f Gbit/s; H4: %.1f to %.1f, median %.1f", name,
			slices.Min(far[i]), slices.Max(far[i]), median(far[i]), slices.Min(near[i]), slices.Max(near[i]),
			median(near[i]))
	}
	// Where two of the three share a port the third has one of its own, too, and gets as much as H4.
	if slices.Min(near[0]) < 0.95*slices.Max(far[0]) || median(near[0]) < 1.5*median(far[0]) {
		t.Error("with pauses alone H4 should get more than the others")
	}
	for _, v := range append(far[1], near[1]...) {
		if v < 7 || v > 12 {
			t.Errorf("with DCQCN somebody has %.1f Gbit/s, want about 9.5", v)
		}
	}
}

// TestDCQCNVictim is figures 4 and 9 of the DCQCN paper: four hosts under T1, and up to two under T3, send to one under
// T4, while another under T1 sends to one under T2, whose way is free but for the leaves.
func TestDCQCNVictim(t *testing.T) {
	long(t)
	const seeds = 3
	var got [2][3]float64
	for i, off := range []bool{true, false} {
		for more := 0; more < 3; more += 2 {
			var v []float64
			for seed := range uint64(seeds) {
				n := packetsOn(t, testbed(t, [4]int{5, 1, 2, 1}), Options{Seed: seed + 1, Routing: "updn",
					MTU: ib.MTU4096, Ethernet: Ethernet{Kind: RoCE, NoDCQCN: off}})
				c := newClosed(n, func(from uint32) (uint32, uint64) {
					if from == 4 {
						return 5, 1 << 20
					}
					return 8, 1 << 20
				})
				for _, h := range []uint32{0, 1, 2, 3, 4, 6, 7}[:5+more] {
					c.send(t, 0, h)
					c.send(t, 0, h)
				}
				from, to := 1*ib.Millisecond, 5*ib.Millisecond
				if !off {
					// Back from the first burst it goes by 40 Mbit/s every 55 us.
					from, to = 40*ib.Millisecond, 60*ib.Millisecond
				}
				v = append(v, c.rates(t, from, to)[4])
			}
			got[i][more] = median(v)
		}
	}
	t.Logf("the victim's median with 0 and 2 senders under T3: %.1f and %.1f Gbit/s by pauses alone, %.1f and %.1f "+
		"with DCQCN", got[0][0], got[0][2], got[1][0], got[1][2])
	for more := 0; more < 3; more += 2 {
		if got[1][more] < 1.5*got[0][more] || got[1][more] < 0.8*got[1][0] {
			t.Errorf("%d senders: DCQCN does not help the victim, or they harm it", more)
		}
	}
	if got[0][2] > 0.75*got[0][0] {
		t.Error("by pauses alone senders that share nothing with the victim should harm it")
	}
}

// TestDCQCNFairness: many senders to one receiver get the same, and its link is busy.
func TestDCQCNFairness(t *testing.T) {
	long(t)
	for _, senders := range []int{2, 4, 8, 16} {
		n := packetsOn(t, graphOf(t, fmt.Sprintf("star:%d,speed=FDR10", senders+1)), Options{Seed: 1, MTU: ib.MTU1024,
			Ethernet: Ethernet{Kind: RoCE}})
		c := newClosed(n, func(uint32) (uint32, uint64) { return 0, 256 << 10 })
		for h := range uint32(senders) {
			c.send(t, 0, h+1)
			c.send(t, 0, h+1)
		}
		v := c.rates(t, 10*ib.Millisecond, 22*ib.Millisecond)[1:]
		sum, squares := 0.0, 0.0
		for _, x := range v {
			sum, squares = sum+x, squares+x*x
		}
		jain, goodput := sum*sum/(float64(len(v))*squares), 40*1024./1110
		t.Logf("%2d senders: fairness %.3f, %.1f %% of the link, %.1f to %.1f Gbit/s", senders, jain, 100*sum/goodput,
			slices.Min(v), slices.Max(v))
		if jain < 0.95 || sum < 0.85*goodput {
			t.Errorf("%d senders: want a fairness of 0.95 and 85 %% of the link", senders)
		}
	}
}

// TestPauseStorm: one adapter that pauses its switch for ever stops all who have a packet on its way, and soon all. The
// watchdog of its switch drops what is for it, and the others go on.
func TestPauseStorm(t *testing.T) {
	long(t)
	const bad = 5
	rate := func(storm bool, watchdog ib.Time) (float64, *Packets) {
		opt := Options{Seed: 1, MTU: ib.MTU1024, Ethernet: Ethernet{Kind: RoCE, Watchdog: watchdog}}
		if storm {
			opt.Ethernet.Storm = bad + 1
		}
		n := packetsOn(t, graphOf(t, "fat-tree:radix=4,levels=3,speed=FDR10"), opt)
		r := rand.New(rand.NewPCG(1, 0x570))
		c := newClosed(n, func(from uint32) (uint32, uint64) {
			to := from
			for to == from || to == bad {
				to = uint32(r.IntN(16))
			}
			return to, 32 << 10
		})
		for h := range uint32(16) {
			for range 4 {
				c.send(t, 0, h)
			}
		}
		// And some have a message for the one that goes bad, which never ends.
		next := c.next
		c.next = func(uint32) (uint32, uint64) { return bad, 64 << 20 }
		for h := range uint32(4) {
			c.send(t, 0, 4*h)
		}
		c.next = next
		c.run(t, 2*ib.Millisecond)
		before := c.sum[bad]
		sum := func() (s uint64) {
			for i, v := range c.sum {
				if i != bad {
					s += v
				}
			}
			return s
		}
		was := sum()
		c.run(t, 4*ib.Millisecond)
		if storm && c.sum[bad] != before {
			t.Error("the host that pauses for ever was sent something")
		}
		return 8 * float64(sum()-was) / float64(2*ib.Millisecond) * 1e3, n
	}
	healthy, _ := rate(false, 0)
	stormy, n := rate(true, 0)
	paused := 0
	for at := range n.Places() {
		if n.isPaused(n.Ref(at)) {
			paused++
		}
	}
	guarded, w := rate(true, 200*ib.Microsecond)
	c := w.PauseTotals()
	t.Logf("all others receive %.0f Gbit/s, with the storm %.1f (%d ports stand still), with the watchdog %.0f (%d "+
		"storms at %d ports, %d packets given up)", healthy, stormy, paused, guarded, c.Storms, len(c.StormPorts),
		c.Given)
	if stormy > 0.02*healthy {
		t.Error("a storm should stop all of the fabric")
	}
	if guarded < 0.8*healthy || len(c.StormPorts) == 0 || c.Given == 0 {
		t.Error("the watchdog should let the others go on")
	}
	if got := n.pauses(); !strings.Contains(got, "pauses for ever") {
		t.Errorf("the storm is told as %q", got)
	}
	if p := w.Port(w.f.Place(bad)); p.Flow() != link.Pause || !p.Broken() {
		t.Error("it is not that host")
	}
}
