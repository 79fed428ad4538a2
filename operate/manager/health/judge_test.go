package health

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

var hdr4x = ib.LinkRate{Width: ib.Width4x, Speed: ib.HDR}

// fabric is a fat tree and its cables, all fine, with traffic.
func fabric(t testing.TB) (*topo.Graph, []Cable) {
	t.Helper()
	g, err := topo.ParseSpec("fat-tree:radix=8,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	var all []Cable
	for _, c := range g.Cables() {
		all = append(all, Cable{A: goodEnd(c.A), B: goodEnd(c.B)})
	}
	return g, all
}

func goodEnd(ref topo.PortRef) End {
	e := End{Ref: ref, State: ib.PortActive, Rate: hdr4x, Capable: hdr4x}
	e.Delta[ib.PortXmitData], e.Delta[ib.PortRcvData] = 1e9, 1e9
	e.Delta[ib.PortXmitPkts], e.Delta[ib.PortRcvPkts] = 1e6, 1e6
	e.Delta[ib.PortXmitWait] = 5e8
	e.Delta[ib.PortXmitDiscards] = 1e6 // congestion is not the cable's fault
	e.Delta[ib.PortRcvConstraintErrors] = 1e6
	e.Delta[ib.PortRcvRemotePhysicalErrors] = 1e6
	e.Total = e.Delta
	return e
}

func TestHealthyFabricHasNoVerdicts(t *testing.T) {
	_, cables := fabric(t)
	for _, interval := range []time.Duration{0, time.Second, 10 * time.Second, time.Hour} {
		if v := Judge(cables, interval, Default()); len(v) != 0 {
			t.Errorf("interval %v: %d verdicts, want none: %+v", interval, len(v), v[0])
		}
	}
	if v := Judge(nil, time.Second, Default()); len(v) != 0 {
		t.Errorf("no cables: %v", v)
	}
	if v := Judge(make([]Cable, 3), time.Second, Default()); len(v) != 0 {
		t.Errorf("nothing known: %v", v)
	}
}

// TestOneFault plants one fault each on the cable with index 20 and wants exactly one verdict on it.
func TestOneFault(t *testing.T) {
	const at = 20
	const interval = 10 * time.Second
	tests := []struct {
		name     string
		plant    func(*Cable)
		severity Severity
		kind     Kind
		dir      Direction
		berLow   float64
		berHigh  float64
		words    string
	}{
		{"down both", func(c *Cable) { c.A.State, c.B.State = ib.PortDown, ib.PortDown }, Down, LinkDown, NoDirection,
			0, 0, "down at both ends"},
		{"down one", func(c *Cable) { c.B.State = ib.PortDown }, Down, LinkDown, NoDirection, 0, 0,
			"down at B, but Active at A"},
		{"down, other unknown", func(c *Cable) { c.A.State, c.B.State = ib.PortDown, 0 }, Down, LinkDown, NoDirection,
			0, 0, "down at A"},
		{"init", func(c *Cable) { c.A.State, c.B.State = ib.PortInit, ib.PortInit }, Watch, NotActive, NoDirection, 0,
			0, "Initialize and not Active at A: no subnet manager has brought it up"},
		{"armed", func(c *Cable) { c.B.State = ib.PortArmed }, Watch, NotActive, NoDirection, 0, 0,
			"Armed and not Active at B: no subnet manager has brought it up"},
		{"narrow", func(c *Cable) { c.A.Rate.Width, c.B.Rate.Width = ib.Width1x, ib.Width1x }, Bad, Slow, NoDirection,
			0, 0, "runs at 1x HDR (50 Gb/s) at A, both ends can do 4x HDR (200 Gb/s)"},
		{"slow by half", func(c *Cable) { c.A.Rate.Speed, c.B.Rate.Speed = ib.EDR, ib.EDR }, Bad, Slow, NoDirection, 0,
			0, "runs at 4x EDR (100 Gb/s) at A, both ends can do 4x HDR (200 Gb/s)"},
		{"slow a little", func(c *Cable) {
			c.A.Capable.Speed, c.B.Capable.Speed = ib.EDR, ib.EDR
			c.A.Rate.Speed, c.B.Rate.Speed = ib.FDR, ib.FDR
		}, Watch, Slow, NoDirection, 0, 0, "runs at 4x FDR (54.5 Gb/s) at A, both ends can do 4x EDR (100 Gb/s)"},
		{"one end slow", func(c *Cable) { c.B.Rate.Width = ib.Width2x }, Bad, Slow, NoDirection, 0, 0,
			"runs at 2x HDR (100 Gb/s) at B, both ends can do 4x HDR (200 Gb/s)"},
		{"one symbol error", func(c *Cable) { c.A.Delta[ib.SymbolErrorCounter] = 1 }, Watch, Damaging, BtoA, 3e-11,
			3.2e-11, "1 symbol error in 10 s at A, bit error rate about 3e-11"},
		{"symbol errors", func(c *Cable) { c.A.Delta[ib.SymbolErrorCounter] = 41 }, Bad, Damaging, BtoA, 1.2e-9, 1.3e-9,
			"41 symbol errors in 10 s at A, bit error rate about 1e-09"},
		{"other end", func(c *Cable) { c.B.Delta[ib.SymbolErrorCounter] = 41 }, Bad, Damaging, AtoB, 1.2e-9, 1.3e-9,
			"41 symbol errors in 10 s at B, bit error rate about 1e-09"},
		{"both", func(c *Cable) { c.A.Delta[ib.SymbolErrorCounter], c.B.Delta[ib.SymbolErrorCounter] = 41, 30 }, Bad,
			Damaging, BothWays, 1.2e-9, 1.3e-9, "41 symbol errors in 10 s at A, bit error rate about 1e-09; " +
				"30 symbol errors in 10 s at B, bit error rate about 9e-10"},
		{"mostly one", func(c *Cable) { c.A.Delta[ib.SymbolErrorCounter], c.B.Delta[ib.SymbolErrorCounter] = 410, 3 },
			Bad, Damaging, BtoA, 1.2e-8, 1.3e-8, "410 symbol errors in 10 s at A, bit error rate about 1e-08; " +
				"3 symbol errors in 10 s at B, bit error rate about 9e-11"},
		{"little came the other way", func(c *Cable) {
			c.A.Delta[ib.SymbolErrorCounter], c.B.Delta[ib.SymbolErrorCounter], c.B.Delta[ib.PortRcvData],
				c.A.Delta[ib.PortXmitData] = 410, 2, 1000, 1000
		}, Bad, Damaging, BtoA, 1.2e-8, 1.3e-8, "410 symbol errors in 10 s at A, bit error rate about 1e-08; " +
			"2 symbol errors in 10 s at B, bit error rate about 6e-05"},
		{"crc only", func(c *Cable) { c.A.Delta[ib.PortRcvErrors] = 5 }, Bad, Damaging, BtoA, 1.5e-10, 1.6e-10,
			"5 damaged packets in 10 s at A, bit error rate about 2e-10"},
		{"all lost", func(c *Cable) {
			c.A.Delta[ib.SymbolErrorCounter], c.A.Delta[ib.PortRcvData], c.B.Delta[ib.PortXmitData] = 1000, 0, 1000
		}, Bad, Damaging, BtoA, 0.03, 0.032, "1000 symbol errors in 10 s at A, bit error rate about 3e-02"},
		{"integrity", func(c *Cable) { c.B.Delta[ib.LocalLinkIntegrityErrors] = 1 }, Watch, Damaging, AtoB, 0, 0,
			"1 local link integrity error in 10 s at B"},
		{"recovery", func(c *Cable) { c.A.Delta[ib.LinkErrorRecoveryCounter] = 1 }, Watch, Flapping, NoDirection, 0, 0,
			"1 link error recovery in 10 s at A"},
		{"flap", func(c *Cable) { c.A.Delta[ib.LinkDownedCounter], c.B.Delta[ib.LinkDownedCounter] = 1, 1 }, Watch,
			Flapping, NoDirection, 0, 0, "1 time down in 10 s at A; 1 time down in 10 s at B"},
		{"flaps", func(c *Cable) { c.A.Delta[ib.LinkDownedCounter] = 4 }, Bad, Flapping, NoDirection, 0, 0,
			"4 times down in 10 s at A"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			g, cables := fabric(t)
			tc.plant(&cables[at])
			all := Judge(cables, interval, Default())
			if len(all) != 1 || all[0].Cable != at {
				t.Fatalf("%d verdicts, want one on cable %d: %+v", len(all), at, all)
			}
			v := &all[0]
			if v.Severity != tc.severity || v.Reasons[0].Kind != tc.kind || v.Direction != tc.dir {
				t.Errorf("got %v, %v, %v; want %v, %v, %v", v.Severity, v.Reasons[0].Kind, v.Direction, tc.severity,
					tc.kind, tc.dir)
			}
			if v.BER < tc.berLow || v.BER > tc.berHigh {
				t.Errorf("bit error rate %g, want %g to %g", v.BER, tc.berLow, tc.berHigh)
			}
			if v.Score <= 0 || math.IsInf(v.Score, 0) || math.IsNaN(v.Score) {
				t.Errorf("score %g", v.Score)
			}
			a, b := g.PortName(v.A), g.PortName(v.B)
			want := a + " " + b + ": " + named(tc.words, a, b)
			if got := v.Summary(g); got != want {
				t.Errorf("summary\n got %s\nwant %s", got, want)
			}
			if v.Advice(g) == "" {
				t.Error("no advice")
			}
			suspects := map[Direction]string{
				NoDirection: "",
				AtoB: "signals from " + a + " arrive damaged at " + b + ": the transmitter of " + a +
					", the cable, or the receiver of " + b,
				BtoA: "signals from " + b + " arrive damaged at " + a + ": the transmitter of " + b +
					", the cable, or the receiver of " + a,
				BothWays: "signals are damaged both ways between " + a + " and " + b +
					": the cable or its connectors",
			}
			if got := v.Suspects(g); got != suspects[tc.dir] {
				t.Errorf("suspects %q, want %q", got, suspects[tc.dir])
			}
		})
	}
}

// named puts names for the words A and B.
func named(words, a, b string) string {
	f := strings.Split(words, " ")
	for i, w := range f {
		bare := strings.TrimRight(w, ",;:")
		switch bare {
		case "A":
			f[i] = a + w[1:]
		case "B":
			f[i] = b + w[1:]
		}
	}
	return strings.Join(f, " ")
}

func TestOrder(t *testing.T) {
	_, cables := fabric(t)
	cables[3].A.Delta[ib.SymbolErrorCounter] = 2 // watch
	cables[5].A.Delta[ib.SymbolErrorCounter] = 50
	cables[9].A.Delta[ib.SymbolErrorCounter] = 5000
	cables[11].B.State = ib.PortDown
	cables[13].A.Delta[ib.SymbolErrorCounter] = 50 // as bad as 5
	var got []int
	for _, v := range Judge(cables, 10*time.Second, Default()) {
		got = append(got, v.Cable)
	}
	if want := []int{11, 9, 5, 13, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestSameInputSameOutput judges random cables twice.
func TestSameInputSameOutput(t *testing.T) {
	_, cables := fabric(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range cables {
		for range rng.IntN(4) {
			cables[i].A.Delta[rng.IntN(int(ib.NumCounter))] = rng.Uint64N(100)
			cables[i].B.Delta[rng.IntN(int(ib.NumCounter))] = rng.Uint64N(100)
		}
	}
	one, two := Judge(cables, time.Minute, Default()), Judge(cables, time.Minute, Default())
	if len(one) == 0 || !reflect.DeepEqual(one, two) {
		t.Fatalf("%d verdicts, then %d others", len(one), len(two))
	}
	for i := 1; i < len(one); i++ {
		a, b := &one[i-1], &one[i]
		if a.Severity < b.Severity || a.Severity == b.Severity && a.Score < b.Score {
			t.Fatalf("verdict %d (%v, %g) before %d (%v, %g)", i-1, a.Severity, a.Score, i, b.Severity, b.Score)
		}
	}
}

func TestTotalsWithoutInterval(t *testing.T) {
	g, cables := fabric(t)
	cables[0].A.Total[ib.SymbolErrorCounter] = 10 // as many as allowed; few for the bits
	cables[0].A.Total[ib.PortRcvData] = 1e12
	cables[1].A.Total[ib.SymbolErrorCounter] = 11
	cables[1].A.Total[ib.PortRcvData] = 1e12
	cables[2].A.Total[ib.SymbolErrorCounter] = 101
	cables[2].A.Total[ib.PortRcvData] = 1e12
	cables[3].A.Delta[ib.SymbolErrorCounter] = 1e6 // not looked at
	all := Judge(cables, 0, Default())
	if len(all) != 2 || all[0].Cable != 2 || all[0].Severity != Bad || all[1].Cable != 1 || all[1].Severity != Watch {
		t.Fatalf("got %+v", all)
	}
	if s := all[1].Summary(g); !strings.Contains(s, "11 symbol errors since the counters were reset") {
		t.Error(s)
	}
}

func TestFewBits(t *testing.T) {
	_, cables := fabric(t)
	c := &cables[7]
	c.A.Delta[ib.SymbolErrorCounter] = 5 // fewer than an hour's allowance
	c.A.Delta[ib.PortRcvData], c.B.Delta[ib.PortXmitData] = 1e5, 1e5
	all := Judge(cables, time.Hour, Default())
	if len(all) != 1 || all[0].Severity != Bad || all[0].BER < 1.5e-6 || all[0].BER > 1.6e-6 {
		t.Fatalf("5 errors in 3.2 Mbit: %+v", all)
	}
	thr := Default()
	thr.IdleCarries = true
	if all := Judge(cables, time.Hour, thr); len(all) != 0 {
		t.Errorf("5 errors in an hour of a real 200 Gb/s cable are %v with rate %g, want no verdict", all[0].Severity,
			all[0].BER)
	}
}

func TestExceeding(t *testing.T) {
	thr := Default()
	var c ib.Counters
	c[ib.PortXmitDiscards] = 101
	c[ib.PortRcvErrors], c[ib.PortMalformedPacketErrors] = 50, 50 // nothing about signals
	c[ib.PortXmitData], c[ib.PortXmitWait] = 1e9, 1e9
	got := Exceeding(&c, time.Hour, &thr)
	want := []Excess{{Counter: ib.PortXmitDiscards, Class: Congestion, Severity: Watch, Count: 101, Interval: time.Hour,
		PerHour: 101, Limit: 100}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s := got[0].Text(); s != "101 discarded packets in 60 min" {
		t.Error(s)
	}
	c[ib.PortXmitDiscards] = 100
	if got := Exceeding(&c, time.Hour, &thr); len(got) != 0 {
		t.Errorf("as many as allowed: %+v", got)
	}
	c[ib.PortXmitDiscards] = 100_000
	if got := Exceeding(&c, time.Hour, &thr); len(got) != 1 || got[0].Severity != Bad {
		t.Errorf("got %+v", got)
	}
}

// TestTable holds the table to what its users rely on.
func TestTable(t *testing.T) {
	thr := Default()
	for c, l := range thr.Counter {
		switch {
		case l.Class == NotJudged && l != Limit{}:
			t.Errorf("%v has limits and no class", ib.Counter(c))
		case l.Class != NotJudged && (l.Words == "" || l.BadPerHour <= l.WatchPerHour || l.BadMin == 0 || l.Total == 0):
			t.Errorf("%v: %+v", ib.Counter(c), l)
		}
	}
	for _, c := range signalCounters {
		if thr.Counter[c].Class != Signal {
			t.Errorf("%v is %v", c, thr.Counter[c].Class)
		}
	}
	for _, c := range trainingCounters {
		if thr.Counter[c].Class != Training {
			t.Errorf("%v is %v", c, thr.Counter[c].Class)
		}
	}
}

func TestShares(t *testing.T) {
	var c ib.Counters
	c[ib.PortXmitWait] = 200e9 / 32 / 4 // a quarter of a second
	c[ib.PortXmitData], c[ib.PortRcvData] = 200e9/32/2, 200e9/32
	if got := WaitShare(&c, hdr4x, time.Second); got != 0.25 {
		t.Errorf("waited %g of the time, want 0.25", got)
	}
	if s, r := Utilisation(&c, hdr4x, time.Second); s != 0.5 || r != 1 {
		t.Errorf("used %g and %g, want 0.5 and 1", s, r)
	}
	if got := WaitShare(&c, ib.LinkRate{}, time.Second); got != 0 {
		t.Errorf("no rate: %g", got)
	}
}

func TestSeverityText(t *testing.T) {
	for s := range NumSeverity {
		j, err := json.Marshal(s)
		var back Severity
		if err != nil || json.Unmarshal(j, &back) != nil || back != s {
			t.Errorf("%v: %s, %v, %v", s, j, back, err)
		}
	}
	var s Severity
	if err := s.UnmarshalText([]byte("fine")); err == nil {
		t.Error("fine was read")
	}
	if got := NumSeverity.String(); got != "Severity(4)" {
		t.Error(got)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Second: "10 s", 90 * time.Second: "90 s", 5 * time.Minute: "5 min", 24 * time.Hour: "24 h",
		250 * time.Millisecond: "250 ms",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// BenchmarkJudge has 35,000 cables of which 1 in 1,000 is bad.
func BenchmarkJudge(b *testing.B) {
	cables := make([]Cable, 35_000)
	for i := range cables {
		cables[i] = Cable{A: goodEnd(topo.PortRef{Node: i, Port: 1}), B: goodEnd(topo.PortRef{Node: i, Port: 2})}
		if i%1000 == 0 {
			cables[i].A.Delta[ib.SymbolErrorCounter] = uint64(i)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		if len(Judge(cables, 10*time.Second, Default())) != 34 {
			b.Fatal("not the bad ones")
		}
	}
}
