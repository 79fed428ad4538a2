package manager_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"softib/ib"
	"softib/live"
	"softib/manager"
	"softib/manager/tenant"
	"softib/sm"
	"softib/smrun"
	"softib/topo"
)

// ground is a live fabric with a manager and a book of tenants.
type ground struct {
	f    *live.Fabric
	run  *smrun.Runner
	e    *manager.Enforcer
	book *tenant.Book
}

func newGround(t testing.TB, spec string, cfg sm.Config, store tenant.Store) *ground {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	x := &ground{}
	if x.f, err = live.New(g, live.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.f.Close() })
	s, err := x.f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	own := cfg
	if cfg, err = manager.StartWith(cfg, store.State()); err != nil {
		t.Fatal(err)
	}
	cfg.Groups = x.f.Groups()
	if cfg.Window == 0 {
		cfg.Window = 1024
	}
	if x.run, err = smrun.New(cfg, s, smrun.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-x.run.Done() })
	go x.run.Run(ctx)
	select {
	case <-x.run.Up():
	case <-time.After(30 * time.Second):
		t.Fatal("the subnet does not come up")
	}
	x.e = manager.NewEnforcer(x.f, x.run, own.Partitions, own.QoS)
	if x.book, err = tenant.Open(t.Context(), store, x.e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.book.Close() })
	return x
}

// guid is the port of a host, counted from 0.
func (x *ground) guid(i int) ib.GUID { return x.f.Graph().Hosts()[i].PortGUID(1) }

func (x *ground) ref(i int) topo.PortRef {
	return topo.PortRef{Node: x.f.Graph().Hosts()[i].Index, Port: 1}
}

func (x *ground) full(hosts ...int) (list []tenant.Member) {
	for _, h := range hosts {
		list = append(list, tenant.Member{GUID: x.guid(h), Full: true})
	}
	return list
}

// reaches wants a packet to arrive, or not.
func (x *ground) reaches(t testing.TB, from, to int, key ib.PKey, want bool) {
	t.Helper()
	r, err := manager.Probe(x.f, x.ref(from), x.ref(to), key)
	if err != nil {
		t.Fatal(err)
	}
	if r.Arrived != want {
		t.Errorf("host %d to host %d in %v: arrives %t, want %t (%+v)", from, to, key, r.Arrived, want, r)
	}
}

func memory(t testing.TB) tenant.Store {
	t.Helper()
	s, err := tenant.OpenStore("")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTenantsApart: members talk, others do not, whatever the call.
func TestTenantsApart(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", sm.Config{}, memory(t))
	ctx := t.Context()
	red, err := x.book.Create(ctx, tenant.Tenant{Name: "red", Members: x.full(1, 2, 3)})
	if err != nil {
		t.Fatal(err)
	}
	blue, err := x.book.Create(ctx, tenant.Tenant{Name: "blue", Members: append(x.full(4), tenant.Member{GUID: x.guid(5)}, tenant.Member{GUID: x.guid(6)})})
	if err != nil {
		t.Fatal(err)
	}
	x.reaches(t, 1, 3, red.Key, true)
	x.reaches(t, 4, 5, blue.Key, true)
	x.reaches(t, 6, 4, blue.Key, true)
	x.reaches(t, 5, 6, blue.Key, false)
	x.reaches(t, 1, 4, red.Key, false)
	x.reaches(t, 4, 1, red.Key, false)
	x.reaches(t, 1, 4, ib.PKeyBase, false)
	x.reaches(t, 1, 0, ib.PKeyBase, true)
	x.reaches(t, 7, 1, red.Key, false)
	if _, err := x.book.Remove(ctx, "red", x.guid(2)); err != nil {
		t.Fatal(err)
	}
	x.reaches(t, 2, 1, red.Key, false)
	x.reaches(t, 1, 2, red.Key, false)
	x.reaches(t, 1, 3, red.Key, true)
	if _, err := x.book.Add(ctx, "red", x.full(7)...); err != nil {
		t.Fatal(err)
	}
	x.reaches(t, 7, 1, red.Key, true)
	if err := x.book.Delete(ctx, "red"); err != nil {
		t.Fatal(err)
	}
	x.reaches(t, 7, 1, red.Key, false)
	x.reaches(t, 4, 5, blue.Key, true)
	if err := x.book.Delete(ctx, "blue"); err != nil {
		t.Fatal(err)
	}
	// Everybody is a full member of the default partition again.
	x.reaches(t, 4, 5, ib.PKeyBase, true)
	x.reaches(t, 4, 5, blue.Key, false)
}

// BenchmarkChange is one call, from its beginning to its acknowledgement.
func BenchmarkChange(b *testing.B) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=36,levels=2", "fat-tree:radix=36,levels=3"} {
		b.Run(spec, func(b *testing.B) {
			store, err := tenant.OpenStore(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			x := newGround(b, spec, sm.Config{SweepInterval: -1}, store)
			n := len(x.f.Graph().Hosts())
			var half []int
			for i := 1; i < n; i += 2 {
				half = append(half, i)
			}
			var first, add, all time.Duration
			at := 0
			for b.Loop() {
				at++
				since := time.Now()
				lap := func() (d time.Duration) { d = time.Since(since); since = time.Now(); return d }
				name := fmt.Sprintf("t%d", at)
				if _, err := x.book.Create(b.Context(), tenant.Tenant{Name: name, Members: x.full(half...)}); err != nil {
					b.Fatal(err)
				}
				first += lap()
				if _, err := x.book.Add(b.Context(), name, x.full(2)...); err != nil {
					b.Fatal(err)
				}
				add += lap()
				if err := x.book.Delete(b.Context(), name); err != nil {
					b.Fatal(err)
				}
				all += lap()
			}
			b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "ms/create-half")
			b.ReportMetric(float64(add.Milliseconds())/float64(b.N), "ms/add-one")
			b.ReportMetric(float64(all.Milliseconds())/float64(b.N), "ms/delete")
		})
	}
}
