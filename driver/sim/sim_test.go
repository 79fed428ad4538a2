package sim

import (
	"runtime"
	"testing"

	"softib/fabric"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// total counts drops of every kind.
func total(d [link.NumReason]uint64) (n uint64) {
	for _, v := range d {
		n += v
	}
	return n
}

func mustAudit(t *testing.T, s *Sim) {
	t.Helper()
	if err := s.Audit(); err != nil {
		t.Fatal(err)
	}
}

func mustRest(t *testing.T, s *Sim) {
	t.Helper()
	if err := s.AtRest(); err != nil {
		t.Fatal(err)
	}
}

func TestTwoHosts(t *testing.T) {
	s := build(t, "star:2", Config{Seed: 1})
	s.src(1).lastPSN = map[ib.LID]ib.PSN{}
	s.flow(0, 1, 100)
	if !s.RunUntilIdle(ib.Second) {
		t.Fatal("not idle after a second")
	}
	if got := s.src(1).got; got != 100 {
		t.Errorf("host 1 got %d packets, want 100", got)
	}
	if n := s.src(1).disorder; n != 0 {
		t.Errorf("%d packets out of order", n)
	}
	mustRest(t, s)
	// 100 packets of 4122 bytes at 50 bytes a nanosecond, one after the other.
	if want := 8244 * ib.Nanosecond; s.Now() < want || s.Now() > want+2*ib.Microsecond {
		t.Errorf("took %v, want little more than %v", s.Now(), want)
	}
}

// TestIncast has many hosts send to one through buffers that hold a single packet:
// nothing is lost, nothing is reordered, every credit returns.
func TestIncast(t *testing.T) {
	for _, spec := range []string{"star:8", "fat-tree:radix=4,levels=3", "torus:3x3"} {
		t.Run(spec, func(t *testing.T) {
			s := build(t, spec, Config{Seed: 1, Port: link.Config{BufferBlocks: 1}})
			n := s.NumHosts()
			s.src(0).lastPSN = map[ib.LID]ib.PSN{}
			for i := 1; i < n; i++ {
				s.flow(i, 0, 50)
			}
			for i := 0; s.Step(); i++ {
				if i%997 == 0 {
					mustAudit(t, s)
				}
			}
			if got, want := s.src(0).got, uint64(50*(n-1)); got != want {
				t.Errorf("host 0 got %d packets, want %d", got, want)
			}
			if d := s.src(0).disorder; d != 0 {
				t.Errorf("%d packets out of order", d)
			}
			if d := total(s.Drops()); d != 0 {
				t.Errorf("%d packets dropped: %v", d, s.Drops())
			}
			mustRest(t, s)
		})
	}
}

// TestDeterminism: one seed gives one history, another gives another.
func TestDeterminism(t *testing.T) {
	if testing.Short() {
		t.Skip("eight runs of the same, in one goroutine")
	}
	run := func(cfg Config, f fabric.Faults) uint64 {
		s := build(t, "fat-tree:radix=4,levels=3", cfg)
		s.SetFaultsAll(f)
		permutation(s, 3)
		for i := range s.NumHosts() {
			s.src(i).left = 200
		}
		s.RunUntilIdle(ib.Second)
		return s.TraceHash()
	}
	faults := fabric.Faults{Drop: 0.01, Corrupt: 0.01, Duplicate: 0.01, Delay: 0.01, FCLoss: 0.01, BER: 1e-8}
	for _, f := range []fabric.Faults{{}, faults} {
		a, b := run(Config{Seed: 7}, f), run(Config{Seed: 7}, f)
		if a != b {
			t.Errorf("faults %v: seed 7 gave %x and %x", f, a, b)
		}
		if c := run(Config{Seed: 8}, f); c == a {
			t.Errorf("faults %v: seeds 7 and 8 both gave %x", f, a)
		}
		if w := run(Config{Seed: 7, WireExact: true}, f); w != a {
			t.Errorf("faults %v: on real bytes %x, without %x", f, w, a)
		}
	}
}

// TestLossHeals: whatever is lost on a cable, its credits come back, and the
// fabric comes to rest.
func TestLossHeals(t *testing.T) {
	for name, f := range map[string]fabric.Faults{
		"drop":    {Drop: 0.1},
		"corrupt": {Corrupt: 0.1},
		"credits": {FCLoss: 0.3},
		"twice":   {Duplicate: 0.2},
		"late":    {Delay: 0.2},
		"ber":     {BER: 1e-6},
		"all":     {Drop: 0.03, Corrupt: 0.03, FCLoss: 0.1, Duplicate: 0.05, Delay: 0.05, Reorder: 0.1, BER: 1e-7},
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t, "fat-tree:radix=4,levels=2", Config{Seed: 5, Port: link.Config{BufferBlocks: 140}})
			s.SetFaultsAll(f)
			n := s.NumHosts()
			for i := range n {
				s.flow(i, (i+1)%n, 300)
			}
			if !s.RunUntilIdle(10 * ib.Second) {
				t.Fatal("not idle after ten seconds")
			}
			mustRest(t, s)
			sum := uint64(0)
			for i := range n {
				sum += s.src(i).got
			}
			c := s.FaultCounts()
			want := uint64(300*n) + c[fabric.FaultDuplicate] - c[fabric.FaultDrop] - s.Drops()[link.Physical]
			if sum != want {
				t.Errorf("%d packets delivered, want %d: faults %v drops %v", sum, want, c, s.Drops())
			}
			if d := total(s.Drops()); d != s.Drops()[link.Physical] {
				t.Errorf("drops for other reasons than CRCs: %v", s.Drops())
			}
			if c == ([fabric.NumFaultKind]uint64{}) {
				t.Error("no fault was injected")
			}
		})
	}
}

func TestFlap(t *testing.T) {
	s := build(t, "star:3", Config{Seed: 1})
	s.LogDrops(true)
	h0 := topo.PortRef{Node: s.HostNode(0).Index, Port: 1}
	s.flow(0, 1, 2000)
	s.flow(2, 1, 2000)
	s.PlanFlap(20*ib.Microsecond, h0, 5*ib.Microsecond)
	if !s.RunUntilIdle(ib.Second) {
		t.Fatal("not idle")
	}
	mustRest(t, s)
	if n := s.Counters(h0)[ib.LinkDownedCounter]; n != 1 {
		t.Errorf("LinkDowned %d, want 1", n)
	}
	lost := s.FaultCounts()[fabric.FaultLostInFlight] + total(s.Drops())
	if got := s.src(1).got; got != 4000-lost {
		t.Errorf("delivered %d, want %d of which %d were lost with the link", got, 4000-lost, lost)
	}
	if st := s.Port(h0).State(); st != ib.PortActive {
		t.Errorf("port is %v after the flap, want Active", st)
	}
	if lost == 0 {
		t.Error("the flap lost nothing")
	}
}

func TestNodeStop(t *testing.T) {
	s := build(t, "fat-tree:radix=4,levels=2", Config{Seed: 1})
	n := s.NumHosts()
	for i := range n {
		s.flow(i, (i+n/2)%n, 500)
	}
	spine := s.Graph().ByName("spine1")
	if spine == nil {
		t.Fatal("no spine1")
	}
	s.PlanStop(10*ib.Microsecond, spine.Index)
	if !s.RunUntilIdle(ib.Second) {
		t.Fatal("not idle")
	}
	mustRest(t, s)
	if s.FaultCounts()[fabric.FaultNodeStop] != 1 || total(s.Drops()) == 0 {
		t.Errorf("stop lost nothing: faults %v drops %v", s.FaultCounts(), s.Drops())
	}
	sum := uint64(0)
	for i := range n {
		sum += s.src(i).got
	}
	if sum == 0 || sum+total(s.Drops())+s.FaultCounts()[fabric.FaultLostInFlight] != uint64(500*n) {
		t.Errorf("delivered %d, dropped %d, lost %d: want %d in all", sum, total(s.Drops()),
			s.FaultCounts()[fabric.FaultLostInFlight], 500*n)
	}
}

// TestNoAllocation: once its pools have grown, a fabric under full load allocates
// nothing.
func TestNoAllocation(t *testing.T) {
	s := build(t, "fat-tree:radix=8,levels=2", Config{Seed: 1})
	permutation(s, 1)
	s.Run(200 * ib.Microsecond)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := s.Hops()
	s.Run(300 * ib.Microsecond)
	runtime.ReadMemStats(&after)
	hops := s.Hops() - start
	// The calendar may change its width now and then; the test's own reading allocates.
	if n := after.Mallocs - before.Mallocs; hops < 50_000 || n > hops/1000 {
		t.Errorf("%d allocations in %d hops: want none to speak of", n, hops)
	}
}
