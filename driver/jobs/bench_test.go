package jobs

import (
	"context"
	"testing"

	"softib/internal/benchsize"
	"softib/job/play"
)

// BenchmarkFlows is how many messages a second the level of flows gets through.
func BenchmarkFlows(b *testing.B) {
	for _, c := range []struct{ name, spec, load string }{
		{"all-to-all-1024", "fat-tree:radix=16,levels=3", "all-to-all:size=64K,algorithm=pairwise"},
		{"permutation-1024", "fat-tree:radix=16,levels=3", "permutation:size=1M"},
		{"uniform-1024", "fat-tree:radix=16,levels=3", "uniform:size=64K,count=20,window=2"},
		{"shift-45056", "fat-tree:radix=64,levels=3,pods=44", "shift:by=17,size=1M"},
	} {
		b.Run(c.name, func(b *testing.B) {
			f, s := fabricFor(b, benchsize.Tree(c.spec), c.load, Options{})
			b.ResetTimer()
			messages := 0
			for range b.N {
				n := f.Flows()
				r, err := Run(context.Background(), s, play.Model{}, n, Watch{})
				if err != nil {
					b.Fatal(err)
				}
				messages += len(r.Messages)
				b.ReportMetric(float64(n.Stats().Touched)/float64(len(r.Messages)), "touched/flow")
				b.ReportMetric(float64(r.End)/1e6, "us-virtual")
			}
			b.ReportMetric(float64(messages)/b.Elapsed().Seconds(), "flows/s")
		})
	}
}

// BenchmarkReduction is switches that add a vector of 1 MiB of 16 hosts, by packets; what a hop costs.
func BenchmarkReduction(b *testing.B) {
	f, s := fabricFor(b, "fat-tree:radix=8,levels=2,hosts=16", "all-reduce:size=1M,algorithm=sharp,count=4", Options{})
	b.ReportAllocs()
	hops := uint64(0)
	for b.Loop() {
		n, err := f.Packets()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Run(b.Context(), s, play.Model{}, n, Watch{}); err != nil {
			b.Fatal(err)
		}
		hops += n.Hops()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(hops), "ns/hop")
	b.ReportMetric(float64(hops)/float64(b.N), "hops/op")
}

// BenchmarkRail is an all-reduce of all GPUs of a rail-optimised tree, 16,384 of them: within servers by NVLink, then
// among servers by trees that send piece by piece, or by halving and doubling.
func BenchmarkRail(b *testing.B) {
	for _, c := range []struct{ name, load string }{
		{"double-tree", "all-reduce:size=256M,per-host=8,algorithm=double-tree"},
		{"halving-doubling", "all-reduce:size=256M,per-host=8,algorithm=halving-doubling"},
	} {
		b.Run(c.name, func(b *testing.B) {
			spec := "rail:gpus=8,servers=2048,radix=64"
			if testing.Short() {
				spec = "rail:gpus=8,servers=16,radix=16"
			}
			for range b.N {
				f, s := fabricFor(b, spec, c.load, Options{NVLink: DefaultNVLink})
				n := f.Flows()
				r, err := Run(context.Background(), s, play.Model{}, f.Joined(n), Watch{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(r.Messages)), "messages")
				b.ReportMetric(float64(n.Stats().Touched)/float64(n.Stats().Started), "touched/flow")
				b.ReportMetric(float64(r.End)/1e6, "us-virtual")
			}
		})
	}
}
