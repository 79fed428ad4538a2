package smrun_test

import (
	"context"
	"runtime"
	"testing"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/internal/benchsize"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// BenchmarkUp is the time from a powered fabric to a subnet that is up, by the manager as softib up runs it.
func BenchmarkUp(b *testing.B) {
	for _, spec := range []string{topo.DefaultSpec, "fat-tree:radix=36,levels=3",
		"fat-tree:radix=64,levels=3,pods=44"} {
		b.Run(spec, func(b *testing.B) {
			g, err := topo.ParseSpec(benchsize.Tree(spec))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				f, err := live.New(g, live.Config{})
				if err != nil {
					b.Fatal(err)
				}
				s, err := f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				r, err := smrun.New(sm.Config{Window: 1024, Groups: f.Groups()}, s, smrun.Options{})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				go r.Run(ctx)
				<-r.Up()
				b.StopTimer()
				var last sm.SweepReport
				r.Do(func(m *sm.Manager) { last = m.Last() })
				for _, p := range last.Phases {
					b.Logf("%-12s %8d datagrams %v", p.Name, p.MADs, p.Took)
				}
				b.ReportMetric(float64(last.MADs), "MADs")
				cancel()
				<-r.Done()
				f.Close()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkUpSubnets is the time from nothing to subnets that are up, a manager in each, and whose routers know the
// ways between all of them; and the memory that takes.
func BenchmarkUpSubnets(b *testing.B) {
	for _, each := range []string{"fat-tree:radix=64,levels=3,pods=8", "fat-tree:radix=64,levels=3,pods=32"} {
		b.Run(each, func(b *testing.B) {
			for b.Loop() {
				g, err := topo.ParseSpec("subnets:4,routers=2,each=" + benchsize.Tree(each))
				if err != nil {
					b.Fatal(err)
				}
				f, err := live.New(g, live.Config{})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				runs := upSubnets(ctx, b, f)
				for _, r := range runs {
					err := r.Await(ctx, func(m *sm.Manager) bool {
						list := m.Subnet().Routers
						return len(list) == 2 && len(list[0].Hops) == 3 && len(list[1].Hops) == 3
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(g.Hosts())), "hosts")
				var mem runtime.MemStats
				runtime.ReadMemStats(&mem)
				b.ReportMetric(float64(mem.Sys)/(1<<30), "GiB")
				cancel()
				for _, r := range runs {
					<-r.Done()
				}
				f.Close()
			}
		})
	}
}

// upSubnets starts a manager in each subnet, has all routers looked at when all are up, and returns them.
func upSubnets(ctx context.Context, b *testing.B, f *live.Fabric) (runs []*smrun.Runner) {
	g := f.Graph()
	sub := g.Subnets()
	for _, sw := range g.Switches() {
		ref := topo.PortRef{Node: sw.Index}
		if sub.Of(ref) != len(runs) {
			continue
		}
		s, err := f.OpenMgmt(ref)
		if err != nil {
			b.Fatal(err)
		}
		cfg := sm.Config{Window: 1024, Groups: f.Groups(), Prefix: g.Prefix(len(runs))}
		r, err := smrun.New(cfg, s, smrun.Options{})
		if err != nil {
			b.Fatal(err)
		}
		go r.Run(ctx)
		runs = append(runs, r)
	}
	for _, r := range runs {
		<-r.Up()
		r.Do(func(m *sm.Manager) {
			for _, p := range m.Last().Phases {
				b.Logf("%-12s %8d datagrams %v", p.Name, p.MADs, p.Took)
			}
		})
	}
	for _, r := range runs {
		r.Do((*sm.Manager).LookAtRouters)
	}
	return runs
}

// BenchmarkLinkLoss is the time from the loss of a link between switches to tables that do without it, programmed.
func BenchmarkLinkLoss(b *testing.B) {
	g, err := topo.ParseSpec(benchsize.Tree("fat-tree:radix=36,levels=3"))
	if err != nil {
		b.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	s, err := f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
	if err != nil {
		b.Fatal(err)
	}
	swept := make(chan sm.SweepReport, 16)
	var r *smrun.Runner
	r, err = smrun.New(sm.Config{Window: 1024, SweepInterval: -1}, s, smrun.Options{Log: func(e sm.Event) {
		if e.Kind == sm.EventSweep {
			swept <- sm.SweepReport{Why: e.Text}
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go r.Run(ctx)
	<-swept
	var links []topo.PortRef
	for _, c := range g.Cables() {
		if g.Nodes[c.A.Node].IsSwitch() && g.Nodes[c.B.Node].IsSwitch() {
			links = append(links, c.A)
		}
	}
	at := 0
	for b.Loop() {
		// Far apart, so that no switch has to wait before it may send its next trap.
		at = (at + 1009) % len(links)
		if err := f.SetLink(links[at], false); err != nil {
			b.Fatal(err)
		}
		b.Log((<-swept).Why)
	}
	var last sm.SweepReport
	r.Do(func(m *sm.Manager) { last = m.Last() })
	for _, p := range last.Phases {
		b.Logf("%-12s %8d datagrams %v", p.Name, p.MADs, p.Took)
	}
}
