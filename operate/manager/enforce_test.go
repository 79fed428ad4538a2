package manager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/internal/benchsize"
	"softib/internal/cputime"
	"softib/node/madrpc"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// ground is a live fabric with a manager and a book of tenants.
type ground struct {
	f    *live.Fabric
	tr   *rebel
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
	own, guard := cfg, manager.NewGuard(g, cfg, nil)
	if cfg, err = manager.StartWith(cfg, store.State(), guard); err != nil {
		t.Fatal(err)
	}
	cfg.Groups = x.f.Groups()
	if cfg.Window == 0 {
		cfg.Window = 1024
	}
	x.tr = &rebel{Session: s}
	if x.run, err = smrun.New(cfg, x.tr, smrun.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-x.run.Done() })
	go x.run.Run(ctx)
	select {
	case <-x.run.Up():
	case <-time.After(60 * time.Second):
		t.Fatal("the subnet does not come up")
	}
	x.e = manager.NewEnforcer(x.f, own, guard, x.run)
	if x.book, err = tenant.Open(t.Context(), store, x.e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.book.Close() })
	return x
}

// rebel stands between a manager and its fabric, and answers for nodes that refuse.
type rebel struct {
	*live.Session
	mu sync.Mutex
	// refuses says what becomes of a request: nothing special with StatusOK.
	refuses func(v mad.View) mad.Status
	// lies says of which requests a node answers that it has done them, and has not.
	lies  func(v mad.View) bool
	queue []madrpc.Delivery
}

func (r *rebel) set(refuses func(v mad.View) mad.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = refuses
}

func (r *rebel) lie(lies func(v mad.View) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lies = lies
}

func (r *rebel) Queue(now ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	r.mu.Lock()
	v := mad.View(m.Data)
	if r.refuses != nil && len(m.Data) == mad.Size && v.Class() == mad.ClassSMDirect && v.Method() == mad.MethodSet {
		if s := r.refuses(v); s != mad.StatusOK {
			b := bytes.Clone(m.Data)
			b[3] = byte(mad.MethodGetResp)
			mad.View(b).SetStatus(s)
			r.queue = append(r.queue, madrpc.Delivery{Kind: madrpc.Response, Agent: id, Env: m.Env, Data: b,
				Cookie: m.Cookie})
			r.mu.Unlock()
			return nil
		}
	}
	if r.lies != nil && len(m.Data) == mad.Size && v.Class() == mad.ClassSMDirect && v.Method() == mad.MethodSet &&
		r.lies(v) {
		b := bytes.Clone(m.Data)
		b[3] = byte(mad.MethodGetResp)
		r.queue = append(r.queue, madrpc.Delivery{Kind: madrpc.Response, Agent: id, Env: m.Env, Data: b,
			Cookie: m.Cookie})
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	return r.Session.Queue(now, id, m)
}

func (r *rebel) Poll(take func(madrpc.Delivery)) bool {
	r.mu.Lock()
	list := r.queue
	r.queue = nil
	r.mu.Unlock()
	for _, d := range list {
		take(d)
	}
	return r.Session.Poll(take) || len(list) > 0
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
	blue, err := x.book.Create(ctx, tenant.Tenant{Name: "blue",
		Members: append(x.full(4), tenant.Member{GUID: x.guid(5)}, tenant.Member{GUID: x.guid(6)})})
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

// tables are the keys of all hosts, and what the switch ports in front of them hold and do.
func (x *ground) tables(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for i, h := range x.f.Graph().Hosts() {
		keys := x.f.PKeys(x.ref(i))
		slices.Sort(keys)
		keys = slices.DeleteFunc(keys, func(k ib.PKey) bool { return k == 0 })
		far := h.Ports[1]
		front := topo.PortRef{Node: far.Peer, Port: far.PeerPort}
		pi, _ := x.f.PortInfo(front)
		fmt.Fprintf(&b, "%s %v %t\n", h.Name, keys, pi.PartitionEnforcementInbound)
	}
	return b.String()
}

// progress wants a change to say how far it is, while the writes of its sweep are held up and when it is proved.
func (x *ground) progress(t *testing.T) {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	x.tr.set(func(v mad.View) mad.Status {
		if v.AttrID() == mad.AttrPKeyTable {
			once.Do(func() { close(held); <-release })
		}
		return mad.StatusOK
	})
	ctx, far := tenant.WithProgress(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := x.book.Create(ctx, tenant.Tenant{Name: "watched", Members: x.full(1, 2)})
		done <- err
	}()
	<-held
	const want = "the subnet manager's sweep: partitions, 0 of "
	for end := time.Now().Add(30 * time.Second); !strings.HasPrefix(far.String(), want); runtime.Gosched() {
		if time.Now().After(end) {
			t.Errorf("while partitions are written: %q", far)
			break
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := far.String(); !strings.HasPrefix(s, "proving with packets: ports, 4 of 4 (") {
		t.Errorf("in the end: %q", s)
	}
	x.tr.set(nil)
	if err := x.book.Delete(t.Context(), "watched"); err != nil {
		t.Fatal(err)
	}
}

// TestRefused: a node that refuses at random makes the whole call fail, by name, and nothing is different afterwards.
func TestRefused(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", sm.Config{SweepInterval: -1}, memory(t))
	ctx := t.Context()
	x.progress(t)
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 3))
		refused, made := 0, 0
		for range 40 {
			before, held := x.book.State(), x.tables(t)
			// The first so many writes of one kind pass, the next is refused.
			left, kind := rng.IntN(6), []mad.AttrID{mad.AttrPKeyTable, mad.AttrPortInfo}[rng.IntN(2)]
			hit := false
			if rng.IntN(2) == 0 {
				x.tr.set(func(v mad.View) mad.Status {
					if hit || v.AttrID() != kind {
						return mad.StatusOK
					}
					if left--; left >= 0 {
						return mad.StatusOK
					}
					hit = true
					return mad.StatusBusy
				})
			}
			name := fmt.Sprintf("t%d", rng.IntN(3))
			var err error
			var hosts []int
			for h := range 8 {
				if rng.IntN(3) == 0 {
					hosts = append(hosts, h)
				}
			}
			if _, there := x.book.Get(name); !there {
				_, err = x.book.Create(ctx, tenant.Tenant{Name: name, Members: x.full(hosts...)})
			} else if rng.IntN(3) == 0 {
				err = x.book.Delete(ctx, name)
			} else {
				_, err = x.book.Replace(ctx, name, x.full(hosts...))
			}
			x.tr.set(nil)
			if !hit {
				if err != nil {
					t.Fatalf("nobody refused, and %v", err)
				}
				made++
				continue
			}
			var r *tenant.RefusedError
			if !errors.As(err, &r) || !strings.Contains(r.Refusals[0].Node, "[") ||
				!strings.Contains(err.Error(), "nothing was changed") {
				t.Fatalf("a node refused, and %v", err)
			}
			refused++
			if now := x.tables(t); now != held {
				t.Fatalf("after %v the fabric has\n%s\nwant\n%s", err, now, held)
			}
			if now := x.book.State(); len(now.Tenants) != len(before.Tenants) ||
				!slices.EqualFunc(now.Tenants, before.Tenants, tenant.Tenant.Equal) {
				t.Fatalf("after %v the book has %+v: want %+v", err, now, before)
			}
		}
		if made < 10 || refused < 5 {
			t.Errorf("seed %d: %d made, %d refused: not much of a test", seed, made, refused)
		}
	}
}

// TestLiar: a node that says that it took what it was told, and did not, is found by what it holds.
func TestLiar(t *testing.T) {
	x := newGround(t, "star:5", sm.Config{SweepInterval: -1}, memory(t))
	ctx := t.Context()
	if _, err := x.book.Create(ctx, tenant.Tenant{Name: "a", Members: x.full(1, 2)}); err != nil {
		t.Fatal(err)
	}
	// Whatever h4's adapter is told, it nods.
	nods := func(v mad.View) bool {
		return v.AttrID() == mad.AttrPKeyTable && v.HopCount() == 2 && v.InitialPath(2) == 4
	}
	x.tr.lie(nods)
	_, err := x.book.Add(ctx, "a", x.full(3)...)
	if !errors.Is(err, tenant.ErrRefused) || !strings.Contains(err.Error(), "h4[1]: does not hold") {
		t.Errorf("%v", err)
	}
	x.tr.lie(nil)
	if a, _ := x.book.Get("a"); len(a.Members) != 2 {
		t.Errorf("%+v", a)
	}
}

// TestUnmanaged: without a manager of ours, or with one that is not master, nothing is changed and the error says so.
func TestUnmanaged(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	book, err := tenant.Open(t.Context(), memory(t), manager.NewEnforcer(f, sm.Config{},
		manager.NewGuard(g, sm.Config{}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := book.Create(t.Context(), tenant.Tenant{Name: "a"}); !errors.Is(err, tenant.ErrUnmanaged) {
		t.Errorf("%v", err)
	}
	x := newGround(t, "star:3", sm.Config{SweepInterval: 100 * ib.Millisecond, PollInterval: 100 * ib.Millisecond},
		memory(t))
	s, err := x.f.OpenMgmt(x.ref(1))
	if err != nil {
		t.Fatal(err)
	}
	other, err := smrun.New(sm.Config{Priority: 15, SweepInterval: 100 * ib.Millisecond,
		PollInterval: 100 * ib.Millisecond}, s, smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go other.Run(ctx)
	defer func() { cancel(); <-other.Done() }()
	wait, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()
	if err := other.Await(wait, func(m *sm.Manager) bool {
		return m.State() == mad.SMMaster &&
			m.Subnet() != nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := x.run.Await(wait, func(m *sm.Manager) bool { return m.State() == mad.SMStandby }); err != nil {
		t.Fatal(err)
	}
	if _, err := x.book.Create(t.Context(), tenant.Tenant{Name: "a", Members: x.full(1)}); !errors.Is(err,
		tenant.ErrUnmanaged) {
		t.Errorf("%v", err)
	}
}

// TestPorts: hosts, ranges and GUIDs.
func TestPorts(t *testing.T) {
	x := newGround(t, "star:12", sm.Config{SweepInterval: -1}, memory(t))
	got, err := x.e.Ports("h2-h4", "h3,h10-12", "0x0002c90300000001", "0002c90300000002")
	if err != nil {
		t.Fatal(err)
	}
	want := []ib.GUID{x.guid(1), x.guid(2), x.guid(3), x.guid(9), x.guid(10), x.guid(11), 0x0002c90300000001,
		0x0002c90300000002}
	if !slices.Equal(got, want) {
		t.Errorf("%v: want %v", got, want)
	}
	for _, bad := range []string{"h0", "h11-h13", "h4-h2", "h-", "sw1", "leaf1", "h1-x", "12"} {
		if got, err := x.e.Ports(bad); !errors.Is(err, tenant.ErrInvalid) {
			t.Errorf("%s is %v, %v", bad, got, err)
		}
	}
	if x.e.NameOf(x.guid(3)) != "h4" || x.e.NameOf(5) != ib.GUID(5).String() {
		t.Errorf("%s, %s", x.e.NameOf(x.guid(3)), x.e.NameOf(5))
	}
}

// TestLateHost: a member whose link is down when it becomes one has its keys when the link is up.
func TestLateHost(t *testing.T) {
	x := newGround(t, "star:5", sm.Config{}, memory(t))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := x.f.SetLink(x.ref(3), false); err != nil {
		t.Fatal(err)
	}
	gone := func(m *sm.Manager) bool { _, there := m.Subnet().ByPortGUID(x.guid(3)); return !there }
	if err := x.run.Await(ctx, gone); err != nil {
		t.Fatal(err)
	}
	a, err := x.book.Create(ctx, tenant.Tenant{Name: "a",
		Members: append(x.full(1, 3), tenant.Member{GUID: 0x77, Full: true})})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.f.SetLink(x.ref(3), true); err != nil {
		t.Fatal(err)
	}
	if err := x.run.Await(ctx, func(m *sm.Manager) bool { return !gone(m) }); err != nil {
		t.Fatal(err)
	}
	x.reaches(t, 1, 3, a.Key, true)
	x.reaches(t, 2, 3, a.Key, false)
}

// TestTemplate: the book puts a template in force and takes it away; it is there again after a start.
func TestTemplate(t *testing.T) {
	dir := t.TempDir()
	open := func() tenant.Store {
		s, err := tenant.OpenStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	x := newGround(t, "star:4", sm.Config{SweepInterval: -1}, open())
	ctx := t.Context()
	lane := func(x *ground, sl ib.SL) ib.VL {
		return x.f.Lanes(x.f.Graph().Switches()[0].Index)[1][2][sl]
	}
	if err := x.book.UseTemplate(ctx, "none"); err == nil || x.book.Template() != "" {
		t.Errorf("%v, %q", err, x.book.Template())
	}
	if err := x.book.UseTemplate(ctx, "classic"); err != nil {
		t.Fatal(err)
	}
	if _, err := x.book.Create(ctx, tenant.Tenant{Name: "disks", Members: x.full(1, 2),
		QoS: tenant.QoS{SL: 2, HasSL: true}}); err != nil {
		t.Fatal(err)
	}
	if lane(x, 9) != 0 || lane(x, 2) != 2 {
		t.Errorf("level 9 takes lane %d, 2 takes %d", lane(x, 9), lane(x, 2))
	}
	if err := x.book.Close(); err != nil {
		t.Fatal(err)
	}
	y := newGround(t, "star:4", sm.Config{SweepInterval: -1}, open())
	if y.book.Template() != "classic" || lane(y, 9) != 0 || len(y.book.List()) != 1 {
		t.Errorf("after a start: %q, lane %d, %v", y.book.Template(), lane(y, 9), y.book.List())
	}
	if err := y.book.UseTemplate(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if lane(y, 9) != 1 {
		t.Errorf("without a template level 9 takes lane %d", lane(y, 9))
	}
}

// TestChangeIsCheap: at 648 hosts half of them become a tenant, in every adapter and switch, read back, proved and on
// disk, with a second of processor time, and so does what follows. How long that takes is BenchmarkChange's.
func TestChangeIsCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("a measurement, which the race detector makes many times as long")
	}
	store, err := tenant.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x := newGround(t, "fat-tree:radix=36,levels=2", sm.Config{SweepInterval: -1}, store)
	var half []int
	for i := 1; i < len(x.f.Graph().Hosts()); i += 2 {
		half = append(half, i)
	}
	ctx := t.Context()
	steps := []struct {
		what string
		do   func() error
	}{
		{"create", func() error {
			_, err := x.book.Create(ctx, tenant.Tenant{Name: "a", Members: x.full(half...)})
			return err
		}},
		{"add", func() error { _, err := x.book.Add(ctx, "a", x.full(2)...); return err }},
		{"remove", func() error { _, err := x.book.Remove(ctx, "a", x.guid(1)); return err }},
		{"template", func() error { return x.book.UseTemplate(ctx, "classic") }},
		{"delete", func() error { return x.book.Delete(ctx, "a") }},
		{"no template", func() error { return x.book.UseTemplate(ctx, "") }},
	}
	for _, step := range steps {
		began, worked := time.Now(), cputime.Used(t)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		worked = cputime.Used(t) - worked
		t.Logf("%s: %v, %v of processor time", step.what, time.Since(began), worked)
		if worked > time.Second {
			t.Errorf("%s took %v of processor time: want a second at most", step.what, worked)
		}
	}
}

// BenchmarkChange is one call, from its beginning to its acknowledgement.
func BenchmarkChange(b *testing.B) {
	for _, spec := range []string{"fat-tree:radix=8,levels=2", "fat-tree:radix=36,levels=2",
		"fat-tree:radix=36,levels=3"} {
		b.Run(spec, func(b *testing.B) {
			store, err := tenant.OpenStore(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			x := newGround(b, benchsize.Tree(spec), sm.Config{SweepInterval: -1}, store)
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
				if _, err := x.book.Create(b.Context(), tenant.Tenant{Name: name,
					Members: x.full(half...)}); err != nil {
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
