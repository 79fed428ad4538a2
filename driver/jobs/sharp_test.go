package jobs

import (
	"errors"
	"math"
	"strings"
	"testing"

	"softib/job"
	"softib/job/play"
	"softib/node/aggregate"
	"softib/proto/ib"
	"softib/proto/topo"
)

// took runs a load by packets, in microseconds.
func took(t *testing.T, spec, text string, opt Options, m play.Model) float64 {
	t.Helper()
	f, s := fabricFor(t, spec, text, opt)
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), s, m, n, Watch{})
	if err != nil {
		t.Fatalf("%s on %s: %v", text, spec, err)
	}
	return float64(r.End) / float64(ib.Microsecond)
}

// sharp128 is the fabric of Graham and others (COMHPC 2016), and what a message costs their processors.
const sharp128 = "fat-tree:radix=36,levels=2,hosts=128,speed=EDR,length=3m"

var sharpModel = play.Model{Overhead: 270 * ib.Nanosecond, Eager: 16 << 10}

// TestSharp128 holds all-reduces of 128 hosts on EDR against their figures. The processor's 270 ns a message are fitted
// to the first line, the 490 ns of a passage of an aggregation node to the second, and the 16 ns that it needs to take
// a message in to the third. In the next two it takes them in at one port's rate and no slower, with the passage fitted
// anew; in the last two hosts copy nothing, or a byte in 0.2 ns, and add it in 0.1 ns. The long vectors of these are
// not what was measured, and bounds only keep our figure. See docs/VALIDATION.md.
func TestSharp128(t *testing.T) {
	long(t)
	port := Reduction{Latency: 610 * ib.Nanosecond, PerMessage: 2 * ib.Nanosecond} // its headers, at 80 ps a byte
	for _, c := range []struct {
		load              string
		theirs, ours, off float64
		red               Reduction
		perByte           ib.Time
	}{
		{"all-reduce:algorithm=recursive-doubling,size=8", 6.01, 6.01, 0.02, Reduction{}, 0},
		{"all-reduce:algorithm=sharp,size=8", 2.83, 2.83, 0.02, Reduction{}, 0},
		{"all-reduce:algorithm=sharp,size=4K", 14.48, 14.48, 0.02, Reduction{}, 0},
		{"all-reduce:algorithm=sharp,size=8", 2.83, 2.83, 0.02, port, 0},
		{"all-reduce:algorithm=sharp,size=4K", 14.48, 11.13, 0.02, port, 0},
		{"all-reduce:algorithm=recursive-doubling,size=4K", 46.93, 8.3, 0.05, Reduction{}, 0},
		{"all-reduce:algorithm=recursive-doubling,size=4K,add=100", 46.93, 22.6, 0.05, Reduction{}, 200},
	} {
		m := sharpModel
		m.PerByte = c.perByte
		us := took(t, sharp128, c.load, Options{SwitchLatency: 90 * ib.Nanosecond, Reduction: c.red}, m)
		t.Logf("%-55s %6.2f us, theirs %6.2f us: %+.1f %%", c.load, us, c.theirs, 100*(us/c.theirs-1))
		if math.Abs(us/c.ours-1) > c.off {
			t.Errorf("%s takes %.2f us, want %.2f within %.0f %%", c.load, us, c.ours, 100*c.off)
		}
	}
}

// TestMulticast128: results by multicast save about what Bloch and others (2017) tell of 8 bytes on 128 hosts, 16 %. No
// parameter is fitted to that; that nodes let out at once what they take in one by one was chosen knowing it.
func TestMulticast128(t *testing.T) {
	us := func(multicast bool) float64 {
		return took(t, sharp128, "all-reduce:algorithm=sharp,size=8", Options{SwitchLatency: 90 * ib.Nanosecond,
			Reduction: Reduction{Multicast: multicast}}, sharpModel)
	}
	tree, cast := us(false), us(true)
	saved := 1 - cast/tree
	t.Logf("%.2f us, by multicast %.2f us: %.1f %% less, theirs 16 %%", tree, cast, 100*saved)
	if math.Abs(saved-0.16) > 0.03 {
		t.Errorf("results by multicast save %.1f %%: want 16 within 3", 100*saved)
	}
}

// TestStreaming: a long vector goes at 95 % of the link at least, where Graham and others (ISC 2020) measured about
// 95 % of what messages get. As NCCL counts, bus bandwidth is 2(n-1)/n of that, nearly twice what links have in one
// direction, which no algorithm of hosts reaches: a ring has the link's rate at most.
func TestStreaming(t *testing.T) {
	long(t)
	const spec, hosts, link = "fat-tree:radix=8,levels=2,hosts=16,speed=HDR", 16, 25e9
	const bytes = 4 << 20
	speed := func(algorithm string) float64 {
		return bytes / (took(t, spec, "all-reduce:size=4M,algorithm="+algorithm, Options{}, play.Model{}) / 1e6)
	}
	sharp, ring := speed("sharp"), speed("ring")
	factor := 2 * float64(hosts-1) / hosts
	t.Logf("switches: %.1f %% of the link, bus bandwidth %.1f GB/s; ring: %.1f %%, %.1f GB/s", 100*sharp/link,
		factor*sharp/1e9, 100*ring/link, factor*ring/1e9)
	if sharp < 0.95*link || sharp > link {
		t.Errorf("switches add at %.1f %% of the link: want 95 at least", 100*sharp/link)
	}
	if ring*factor > link || sharp/ring < 1.7 {
		t.Errorf("a ring has %.1f GB/s of bus bandwidth, and switches are %.2f times as fast", factor*ring/1e9,
			sharp/ring)
	}
}

// TestReductionsRefused: a group that switches have no places for, and a network that has no switches, say so.
func TestReductionsRefused(t *testing.T) {
	g, err := topo.ParseSpec("star:4")
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFabric(g, Options{Reduction: Reduction{Limits: aggregate.Limits{Trees: 1, Streams: 1, OSTs: 8,
		Buffer: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	b := job.NewBuilder(4)
	for range 2 {
		k := b.Group(job.Group{Ranks: []uint32{0, 1, 2}, Payload: 256})
		for rank := range 3 {
			b.Aggregate(rank, k, job.AllReduce, 0, 64)
		}
	}
	s, err := b.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	for _, net := range []Network{p, f.Flows()} {
		_, err := Run(t.Context(), s, play.Model{}, net, Watch{})
		if !errors.Is(err, ErrReduction) || !errors.Is(err, aggregate.ErrFull) ||
			!strings.Contains(err.Error(), "group 1: switch 0: an aggregation node has no more places: trees: it has") {
			t.Errorf("%T: %v", net, err)
		}
	}
	if _, err := Run(t.Context(), s, play.Model{Ideal: true}, Ideal{}, Watch{}); !errors.Is(err, ErrReduction) ||
		!strings.Contains(err.Error(), "next:") {
		t.Errorf("without a network: %v", err)
	}
}
