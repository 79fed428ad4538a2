package manager_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/internal/patience"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// newRoutedGround is a ground of several subnets, with a manager in the first switch of each, of which the last one's
// nodes may refuse.
func newRoutedGround(t *testing.T, spec string) *ground {
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
	guard := manager.NewGuard(g, sm.Config{}, nil)
	var ks []manager.Keeper
	var runs []*smrun.Runner
	subnets := g.Subnets()
	for k := range subnets.Count {
		at := topo.PortRef{Node: -1}
		for _, n := range g.Switches() {
			if ref := (topo.PortRef{Node: n.Index}); at.Node < 0 && subnets.Of(ref) == k {
				at = ref
			}
		}
		s, err := x.f.OpenMgmt(at)
		if err != nil {
			t.Fatal(err)
		}
		x.tr = &rebel{Session: s}
		run, err := smrun.New(sm.Config{Prefix: g.Prefix(k), Groups: x.f.Groups(), Window: 1024}, x.tr,
			smrun.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(func() { cancel(); <-run.Done() })
		go run.Run(ctx)
		select {
		case <-run.Up():
		case <-time.After(60 * time.Second):
			t.Fatal("the subnet does not come up")
		}
		ks, runs = append(ks, run), append(runs, run)
	}
	for _, run := range runs {
		if err := run.Do((*sm.Manager).LookAtRouters); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range runs {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := run.Await(ctx, func(m *sm.Manager) bool {
			s := m.Subnet()
			return s != nil && len(s.Routers) > 0 && len(s.Routers[0].Hops) == subnets.Count-1
		}); err != nil {
			t.Fatal(err)
		}
	}
	x.e = manager.NewEnforcer(x.f, sm.Config{}, guard, ks...)
	if x.book, err = tenant.Open(t.Context(), memory(t), x.e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.book.Close() })
	return x
}

// TestRoutedTenants: tenants whose members are in several subnets are apart in all of them, and those of one reach each
// other over routers. What one subnet refuses is in force in none.
func TestRoutedTenants(t *testing.T) {
	const red, blue, rest = ib.PKey(0x11), ib.PKey(0x12), ib.PKeyBase - 1
	x := newRoutedGround(t, "subnets:2,routers=2,each=star:4") // hosts 0 to 3, and 4 to 7
	of := make([]ib.PKey, 8)
	check := func(what string) {
		t.Helper()
		for from := range of {
			for to := range of {
				for _, key := range []ib.PKey{red, blue, rest} {
					if from != to && (of[from] == key || of[to] == key) {
						x.reaches(t, from, to, key, of[from] == key && of[to] == key)
					}
				}
			}
		}
		if t.Failed() {
			t.Fatal(what)
		}
	}
	does := func(_ tenant.Tenant, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	does(x.book.Create(t.Context(), tenant.Tenant{Name: "red", Key: red, Members: x.full(0, 1, 4)}))
	of = []ib.PKey{red, red, rest, rest, red, rest, rest, rest}
	check("the first tenant")
	does(x.book.Create(t.Context(), tenant.Tenant{Name: "blue", Key: blue, Members: x.full(2, 5)}))
	of[2], of[5] = blue, blue
	check("another")
	does(x.book.Add(t.Context(), "red", x.full(6)...))
	of[6] = red
	check("a member more")
	for _, name := range []string{"red", "blue"} {
		b, _ := x.book.Get(name)
		if list, err := x.e.Astray(t.Context(), x.book.State(), &b); err != nil || len(list) > 0 {
			t.Errorf("of %s is not in force: %v, %v", name, list, err)
		}
	}
	// The nodes of the last subnet refuse: nobody of the first one has become a member either.
	x.tr.set(func(v mad.View) mad.Status {
		if v.AttrID() == mad.AttrPKeyTable {
			return mad.StatusInvalidField
		}
		return mad.StatusOK
	})
	var refused *tenant.RefusedError
	if _, err := x.book.Add(t.Context(), "blue", x.full(3, 7)...); !errors.As(err, &refused) {
		t.Errorf("a change that one subnet refuses: %v", err)
	}
	x.tr.set(nil)
	check("what was refused")
	does(tenant.Tenant{}, x.book.Delete(t.Context(), "blue"))
	of[2], of[5] = rest, rest
	check("one is gone")
}

// TestRoutedForeign: where another manager rules one of the subnets a change is refused, and is in force in none.
func TestRoutedForeign(t *testing.T) {
	x := newRoutedGround(t, "subnets:2,routers=1,each=star:3") // hosts 0 to 2, and 3 to 5
	hosts := x.f.Graph().Hosts()
	first := topo.PortRef{Node: hosts[0].Index, Port: 1}
	before := x.f.PKeys(first)
	s, err := x.f.OpenMgmt(topo.PortRef{Node: hosts[5].Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := smrun.New(sm.Config{Prefix: x.f.Graph().Prefix(1), Priority: 15, Window: 256}, s, smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-run.Done() })
	go run.Run(ctx)
	late, enough := patience.Context(t.Context(), time.Minute)
	defer enough()
	if err := run.Await(late, func(m *sm.Manager) bool {
		return m.State() == mad.SMMaster && m.Subnet() != nil
	}); err != nil {
		t.Fatal(err)
	}
	_, err = x.book.Create(t.Context(), tenant.Tenant{Name: "red", Key: 0x11, Members: x.full(0, 1, 3)})
	if !errors.Is(err, tenant.ErrUnmanaged) || len(x.book.List()) != 0 {
		t.Errorf("a tenant of two subnets of which one is another's: %v, %v", err, x.book.List())
	}
	if after := x.f.PKeys(first); !slices.Equal(after, before) {
		t.Errorf("h1 has %v, and had %v", after, before)
	}
}
