package jobs

import (
	"errors"
	"reflect"
	"testing"

	"softib/driver/sim"
	"softib/job/play"
	"softib/node/nic"
	"softib/proto/ib"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// history is all that one can see of a run.
type history struct {
	Result  Result
	Hash    uint64
	Hops    uint64
	Carried []float64
	Samples []float64
}

func runWith(t *testing.T, cores int, spec, text string, opt Options, m play.Model) history {
	t.Helper()
	opt.Cores = cores
	f, s := fabricFor(t, spec, text, opt)
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	h := history{Carried: make([]float64, len(f.Ways.Rates()))}
	sum := func() (all float64) {
		for i := range h.Carried {
			all += n.Carried(int32(i))
		}
		return all
	}
	looks := 0
	res, err := Run(t.Context(), s, m, f.Joined(n), Watch{
		Sample:   func(now ib.Time) { h.Samples = append(h.Samples, float64(now), sum()) },
		Interval: func() ib.Time { return 3 * ib.Microsecond },
		Look:     func(Progress) error { looks++; return nil },
	})
	if err != nil {
		t.Fatalf("%s on %s with %d cores: %v", text, spec, cores, err)
	}
	if !res.Whole || looks == 0 || n.FramesInUse() != 0 {
		t.Fatalf("%s on %s with %d cores: whole is %v, %d looks, %d frames left", text, spec, cores, res.Whole, looks,
			n.FramesInUse())
	}
	if _, used := n.Sim.AdapterStats(); used != opt.Adapter.On() {
		t.Fatalf("%s: adapters cost: %v", text, used)
	}
	h.Result, h.Hash, h.Hops = *res, n.TraceHash(), n.Hops()
	for i := range h.Carried {
		h.Carried[i] = n.Carried(int32(i))
	}
	return h
}

// TestCores: a run is the same to the last packet however many processors work on it.
func TestCores(t *testing.T) {
	const tree, small = "fat-tree:radix=8,levels=3", "fat-tree:radix=8,levels=2"
	cx6, _ := nic.Find("cx6")
	for _, c := range []struct {
		name, spec, load string
		opt              Options
		model            play.Model
	}{
		{"permutation", tree, "permutation:size=64K", Options{}, play.Model{}},
		{"costs", small, "uniform:size=40K,count=4,window=2", Options{}, play.Model{Overhead: 700 * ib.Nanosecond,
			Gap: 100, Eager: 8192}},
		{"all-to-all", small, "all-to-all:size=8K,algorithm=pairwise", Options{}, play.Model{}},
		{"all-reduce", small, "all-reduce:size=256K,algorithm=ring", Options{}, play.Model{}},
		{"by packet", tree, "permutation:size=64K", Options{Adaptive: route.ByPacket}, play.Model{}},
		{"by flowlet", tree, "uniform:size=64K,count=2,window=2", Options{Adaptive: route.ByFlowlet}, play.Model{}},
		{"hash", small, "permutation:size=256K", Options{Hash: true}, play.Model{}},
		{"congestion", small, "incast:size=64K", Options{Congestion: Congestion{On: true}}, play.Model{}},
		{"queue pairs", small, "uniform:size=4K,count=8,window=4", Options{Connections: Connections{QPs: 3}},
			play.Model{}},
		{"adapters", small, "permutation:size=64K", Options{Adapter: cx6.Config}, play.Model{}},
		{"planes", small + ",planes=2", "permutation:size=64K", Options{}, play.Model{}},
		{"lanes", "torus:6x6", "uniform:size=64K,count=4,window=4", Options{Routing: "minhop", Buffer: 1},
			play.Model{}},
		{"NVLink", "rail:gpus=4,servers=16,radix=8", "all-reduce:size=64K,algorithm=ring,per-host=4",
			Options{NVLink: DefaultNVLink}, play.Model{Overhead: 300 * ib.Nanosecond}},
		{"one group", "rail:gpus=4,servers=8,radix=16", "all-to-all:size=8K,algorithm=pairwise",
			Options{NVLink: DefaultNVLink}, play.Model{}},
		{"detours", "dragonfly:p=2,a=4,h=2", "uniform:size=16K,count=4,window=2", Options{Routing: "dragonfly",
			Adaptive: route.ByPacket}, play.Model{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := runWith(t, 1, c.spec, c.load, c.opt, c.model)
			if want.Hops < 1000 {
				t.Errorf("%d hops: too little to tell", want.Hops)
			}
			for cores := 2; cores <= 3 && (cores == 2 || !testing.Short()); cores++ {
				if got := runWith(t, cores, c.spec, c.load, c.opt, c.model); !reflect.DeepEqual(got, want) {
					t.Errorf("with %d cores it ends at %v after %d hops, hash %x; with one at %v after %d, hash %x",
						cores, got.Result.End, got.Hops, got.Hash, want.Result.End, want.Hops, want.Hash)
				}
			}
		})
	}
}

// TestCoresDeadlock: several processors find a fabric that is stuck, as one does.
func TestCoresDeadlock(t *testing.T) {
	f, s := fabricFor(t, "torus:6x6", "uniform:size=1M,count=8,window=8", Options{Routing: "minhop", Buffer: 1,
		Cores: 2})
	f.Tables.SL = nil
	n, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	n.rep = sm.Report{}
	_, err = Run(t.Context(), s, play.Model{}, n, Watch{Sample: func(ib.Time) {},
		Interval: func() ib.Time { return ib.Microsecond }})
	var stuck *StuckError
	if !errors.As(err, &stuck) {
		t.Errorf("minhop on a torus without lanes: %v", err)
	}
}

// TestServersStayTogether: GPUs that share NVLink are of one part, and where that leaves nothing to divide it says so.
func TestServersStayTogether(t *testing.T) {
	for spec, want := range map[string]error{"rail:gpus=4,servers=16,radix=8": nil, // tidy: order-free
		"rail:gpus=4,servers=8,radix=16": sim.ErrWhole} {
		f, _ := fabricFor(t, spec, "permutation", Options{NVLink: DefaultNVLink})
		n, err := f.Packets()
		if err != nil {
			t.Fatal(err)
		}
		parts, _, err := n.divide(2)
		if !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", spec, err, want)
		}
		if err != nil {
			continue
		}
		part, sizes := map[int32]int{}, [2]int{}
		for node, server := range f.servers {
			if server < 0 {
				continue
			}
			p := parts.PartOf(node)
			if first, ok := part[server]; ok && first != p {
				t.Errorf("%s: server %d is in parts %d and %d", spec, server, first, p)
			}
			part[server] = p
			sizes[p]++
		}
		if sizes[0] != sizes[1] {
			t.Errorf("%s: %d hosts", spec, sizes)
		}
	}
}
