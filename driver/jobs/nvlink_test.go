package jobs

import (
	"math"
	"testing"

	"softib/job"
	"softib/job/load"
	"softib/job/play"
	"softib/proto/ib"
	"softib/proto/topo"
)

// TestNVLink: messages within a server take size by rate and the latency, share the links of their GPUs, and leave no
// byte on the fabric; others go by it, at either level.
func TestNVLink(t *testing.T) {
	g, err := topo.ParseSpec("rail:gpus=4,servers=4,radix=8")
	if err != nil {
		t.Fatal(err)
	}
	nv := NVLink{Rate: 200e9 / float64(ib.Second), Latency: ib.Microsecond}
	f, err := NewFabric(g, Options{NVLink: nv})
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Packets()
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	alone := nv.Latency + ib.Time(math.Ceil(size/nv.Rate))
	for level, net := range map[string]Network{"packets": p, "flows": f.Flows()} {
		b := job.NewBuilder(16)
		// 0 and 1 send to 2, all in one server; 4 sends to 5 in the next; 8 to 12, in two.
		for _, m := range [][2]int{{0, 2}, {1, 2}, {4, 5}, {8, 12}} {
			b.Send(m[0], m[1], size, 0)
			b.Recv(m[1], m[0], size, 0)
		}
		s, err := b.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), s, play.Model{}, f.Joined(net), Watch{})
		if err != nil || !r.Whole {
			t.Fatalf("%s: %v", level, err)
		}
		for i, want := range []ib.Time{2*alone - nv.Latency, 2*alone - nv.Latency, alone} {
			if got := r.Messages[i].Arrived; got < want-ib.Nanosecond || got > want+ib.Nanosecond {
				t.Errorf("%s: message %d took %v, want %v", level, i, got, want)
			}
		}
		if got := r.Messages[3].Arrived; got < ib.Time(size*20) || got > ib.Time(size*22) { // 50 GB/s
			t.Errorf("%s: the message between servers took %v", level, got)
		}
		for host, want := range map[int]bool{0: false, 4: false, 8: true} {
			if got := net.Carried(f.Ways.Link(topo.PortRef{Node: host, Port: 1})) > 0; got != want {
				t.Errorf("%s: the link of host %d has carried something: %v", level, host, got)
			}
		}
		if !f.Joined(net).Idle() {
			t.Errorf("%s: not idle", level)
		}
	}
	if n := f.Flows(); f.inServer(0, 0) || !f.InServer(0, 3) || f.InServer(3, 4) || f.Joined(n) == Network(n) {
		t.Error("ranks 0 to 3 are a server")
	}
	plain, err := NewFabric(g, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := plain.Flows(); plain.Joined(n) != Network(n) {
		t.Error("without NVLink there is something around the network")
	}
}

// TestRails: on a rail-optimised tree tables are those of a tree, a shift among servers loads no cable twice, and both
// levels agree.
func TestRails(t *testing.T) {
	for _, c := range []struct {
		spec  string
		share float64 // of a link that every message of a shift gets
	}{
		{"rail:gpus=4,servers=8,radix=8", 1}, {"rail:gpus=4,servers=8,radix=16,levels=3", 1},
		{"rail:gpus=4,servers=8,radix=8,group=2", 1}, {"rail:gpus=4,servers=8,radix=8,wiring=rack", 1},
		{"rail:gpus=4,servers=8,radix=8,taper=2", 0.5},
	} {
		g, err := topo.ParseSpec(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewFabric(g, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Engine != "ftree" {
			t.Errorf("%s: routed by %s", c.spec, f.Engine)
		}
		l, err := load.Parse("shift:by=16,size=1M")
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Schedule(f.Ranks(), 1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(t.Context(), s, play.Model{}, f.Flows(), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		share := 1 << 20 / 50e9 / (float64(r.End) / float64(ib.Second))
		if share < 0.95*c.share || share > c.share {
			t.Errorf("%s: messages get %.3f of a link, want %.2f", c.spec, share, c.share)
		}
	}
	p, fl := ends(t, "rail:gpus=4,servers=8,radix=8", "shift:by=9,size=256K", Options{NVLink: DefaultNVLink})
	if ratio := float64(fl) / float64(p); ratio < 0.98 || ratio > 1.02 {
		t.Errorf("packets take %v, flows %v", p, fl)
	}
}
