package smrun

import (
	"context"
	"testing"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// A manager that is ended hands over at once. The other would look after it once in an hour.
func TestResign(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	start := func(host int, priority uint8) (*Runner, context.CancelFunc) {
		t.Helper()
		session, err := f.OpenMgmt(topo.PortRef{Node: g.Hosts()[host].Index, Port: 1})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(sm.Config{Priority: priority, PollInterval: 3600 * ib.Second}, session, Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(func() { cancel(); <-r.Done() })
		go func() { _ = r.Run(ctx) }()
		return r, cancel
	}
	late, done := context.WithTimeout(context.Background(), 60*time.Second)
	defer done()
	is := func(r *Runner, want mad.SMState) {
		t.Helper()
		err := r.Await(late, func(m *sm.Manager) bool { return m.State() == want && m.Subnet() != nil })
		if err != nil {
			t.Fatalf("not %v: %v", want, err)
		}
	}
	first, end := start(0, 5)
	is(first, mad.SMMaster)
	second, _ := start(1, 1)
	if err := second.Await(late, func(m *sm.Manager) bool { return m.State() == mad.SMStandby }); err != nil {
		t.Fatal(err)
	}
	// The master hears of the other by its trap, or with the next sweep.
	if err := first.Do(func(m *sm.Manager) { m.Sweep(first.t.Now(), "a test") }); err != nil {
		t.Fatal(err)
	}
	if err := first.Await(late, func(m *sm.Manager) bool { return len(m.Subnet().Managers) == 2 }); err != nil {
		t.Fatal(err)
	}
	end()
	<-first.Done()
	is(second, mad.SMMaster)
	// With nobody left there is nobody to wait for.
	if err := second.Await(late, func(m *sm.Manager) bool { return !m.Sweeping() }); err != nil {
		t.Fatal(err)
	}
}
