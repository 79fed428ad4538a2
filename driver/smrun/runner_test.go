package smrun_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

func fabric(t *testing.T, spec string) *live.Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// within waits for a channel to be closed.
func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(60 * time.Second):
		t.Fatalf("not within 60 s: %s", what)
	}
}

func isSM(t *testing.T, f *live.Fabric, ref topo.PortRef) bool {
	t.Helper()
	pi, ok := f.PortInfo(ref)
	if !ok {
		t.Fatal("no port")
	}
	return pi.CapabilityMask&mad.CapIsSM != 0
}

// TestRunnersLife: up, work, end; afterwards the port is free for another.
func TestRunnersLife(t *testing.T) {
	f := fabric(t, topo.DefaultSpec)
	ref := topo.PortRef{Node: f.Graph().Hosts()[0].Index, Port: 1}
	var memory sm.Memory
	for round := range 3 {
		s, err := f.OpenMgmt(ref)
		if err != nil {
			t.Fatal(err)
		}
		var saved atomic.Int32
		var events atomic.Int32
		r, err := smrun.New(sm.Config{Memory: memory}, s, smrun.Options{
			Log:  func(sm.Event) { events.Add(1) },
			Save: func(m sm.Memory) { memory = m; saved.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if !isSM(t, f, ref) {
			t.Error("the port does not say that it has a manager")
		}
		// A second one at the same port is refused, and does no harm.
		other, err := f.OpenMgmt(ref)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := smrun.New(sm.Config{}, other, smrun.Options{}); !errors.Is(err, madrpc.ErrInUse) {
			t.Errorf("a second manager at a port: %v", err)
		}
		other.Close()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		within(t, "the subnet is up", r.Up())
		var wg sync.WaitGroup
		var sum atomic.Int32
		for range 20 {
			wg.Go(func() {
				for range 20 {
					if err := r.Do(func(m *sm.Manager) {
						if m.Subnet() == nil || m.State() != mad.SMMaster {
							t.Error("not up")
						}
						sum.Add(1)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if sum.Load() != 400 {
			t.Errorf("%d of 400 were done", sum.Load())
		}
		cancel()
		within(t, "it ends", r.Done())
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if err := r.Do(func(*sm.Manager) { t.Error("done after the end") }); !errors.Is(err, smrun.ErrStopped) {
			t.Errorf("Do after the end: %v", err)
		}
		if isSM(t, f, ref) {
			t.Error("the port still says that it has a manager")
		}
		if events.Load() == 0 || round == 0 && saved.Load() == 0 {
			t.Errorf("round %d: %d events, saved %d times", round, events.Load(), saved.Load())
		}
		if len(memory.LIDs) != len(f.Graph().Hosts())+len(f.Graph().Switches()) {
			t.Errorf("%d addresses are remembered", len(memory.LIDs))
		}
	}
}

// TestRunnerEndsEarly: a context that ends at any moment of the first sweep ends the manager.
func TestRunnerEndsEarly(t *testing.T) {
	for k := range 20 {
		f := fabric(t, "star:4")
		s, err := f.OpenMgmt(topo.PortRef{Node: f.Graph().Hosts()[0].Index, Port: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		seen := 0
		r, err := smrun.New(sm.Config{}, s, smrun.Options{Log: func(sm.Event) {
			if seen++; seen > k%4 {
				cancel()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		go r.Run(ctx)
		if k >= 10 {
			cancel()
		}
		within(t, "it ends", r.Done())
		cancel()
	}
}

// TestFabricGoesFirst: a fabric that is closed under a manager does not keep it from ending.
func TestFabricGoesFirst(t *testing.T) {
	f := fabric(t, "star:4")
	s, err := f.OpenMgmt(topo.PortRef{Node: f.Graph().Hosts()[0].Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := smrun.New(sm.Config{SweepInterval: 5 * ib.Millisecond, Timeout: 5 * ib.Millisecond}, s, smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go r.Run(ctx)
	within(t, "the subnet is up", r.Up())
	f.Close()
	if err := r.Do(func(m *sm.Manager) { m.Sweep(0, "test") }); err != nil {
		t.Error(err)
	}
	cancel()
	within(t, "it ends", r.Done())
}

// TestLinkLossIsMended in real time: a link goes, and the tables do without it.
func TestLinkLossIsMended(t *testing.T) {
	f := fabric(t, topo.DefaultSpec)
	m := start(t, f, f.Graph().Hosts()[0].Name, sm.Config{})
	within(t, "the subnet is up", m.Up())
	g := f.Graph()
	for _, c := range g.Cables() {
		if !g.Nodes[c.A.Node].IsSwitch() || !g.Nodes[c.B.Node].IsSwitch() {
			continue
		}
		for _, up := range []bool{false, true} {
			if err := f.SetLink(c.A, up); err != nil {
				t.Fatal(err)
			}
			m.until(t, "the link is seen", func(x *sm.Manager) bool {
				sub := x.Subnet()
				if sub == nil {
					return false
				}
				i, ok := sub.ByGUID(g.Nodes[c.A.Node].GUID)
				return ok && sub.Nodes[i].Ports[c.A.Port].Up() == up && x.State() == mad.SMMaster
			})
		}
		break
	}
}

// dying is a transport that fails after a while.
type dying struct {
	smrun.Transport
	failed atomic.Bool
}

func (d *dying) Err() error {
	if d.failed.Load() {
		return errDied
	}
	return nil
}

var errDied = errors.New("the other end is gone")

// TestTransportDies: a manager whose port is gone ends and says why, instead of waiting for answers for ever.
func TestTransportDies(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := &dying{Transport: s}
	r, err := smrun.New(sm.Config{SweepInterval: 10 * ib.Millisecond}, d, smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- r.Run(context.Background()) }()
	<-r.Up()
	d.failed.Store(true)
	select {
	case err := <-end:
		if !errors.Is(err, errDied) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("it goes on without a port")
	}
	if err := r.Do(func(*sm.Manager) {}); !errors.Is(err, smrun.ErrStopped) {
		t.Errorf("Do after the end: %v", err)
	}
}
