package smrun_test

import (
	"context"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// runAt runs one at a port; end ends it.
func runAt(t *testing.T, f *live.Fabric, ref topo.PortRef, cfg sm.Config) (r *smrun.Runner, end func()) {
	t.Helper()
	s, err := f.OpenMgmt(ref)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = smrun.New(cfg, s, smrun.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = r.Run(ctx) }()
	return r, func() {
		cancel()
		<-r.Done()
	}
}

// becomes waits until a manager is in a state.
func becomes(t *testing.T, r *smrun.Runner, want mad.SMState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := r.Await(ctx, func(m *sm.Manager) bool { return m.State() == want }); err != nil {
		t.Fatalf("it does not become %v: %v", want, err)
	}
}

// A manager in a switch is seen by managers at hosts, hands over to a better one, and takes over when that has gone.
func TestManagerInASwitch(t *testing.T) {
	f := fabric(t, "fat-tree:radix=4,levels=2")
	quick := sm.Config{SweepInterval: 100 * ib.Millisecond, PollInterval: 50 * ib.Millisecond, PollRetries: 2}
	inside, end := runAt(t, f, topo.PortRef{Node: f.Graph().Switches()[0].Index}, quick)
	defer end()
	within(t, "the subnet is up", inside.Up())
	better := quick
	better.Priority = 15
	outside, endOutside := runAt(t, f, topo.PortRef{Node: f.Graph().Hosts()[3].Index, Port: 1}, better)
	becomes(t, outside, mad.SMMaster)
	becomes(t, inside, mad.SMStandby)
	endOutside()
	becomes(t, inside, mad.SMMaster)
	// One that is no better, by its GUID, stands by: softib's switches come after its hosts, so that takes a higher
	// priority here.
	worse := quick
	high := quick
	high.Priority = 3
	end()
	inside, endInside := runAt(t, f, topo.PortRef{Node: f.Graph().Switches()[0].Index}, high)
	defer endInside()
	becomes(t, inside, mad.SMMaster)
	outside, endOutside = runAt(t, f, topo.PortRef{Node: f.Graph().Hosts()[3].Index, Port: 1}, worse)
	defer endOutside()
	becomes(t, outside, mad.SMStandby)
	becomes(t, inside, mad.SMMaster)
}
