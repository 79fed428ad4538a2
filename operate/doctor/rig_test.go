package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/operate/doctor"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// rig is a running fabric with a manager.
type rig struct {
	*live.Fabric
	t   testing.TB
	g   *topo.Graph
	run *smrun.Runner
	// stop ends the manager and waits for its end.
	stop func()
}

func newRig(t testing.TB, spec string, cfg sm.Config) *rig {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return rigOf(t, g, cfg)
}

func rigOf(t testing.TB, g *topo.Graph, cfg sm.Config) *rig {
	t.Helper()
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r := &rig{Fabric: f, t: t, g: f.Graph()}
	r.run, r.stop = r.manage(0, cfg)
	return r
}

// manage starts a manager at a host and waits until the subnet is up.
func (r *rig) manage(host int, cfg sm.Config) (*smrun.Runner, func()) {
	r.t.Helper()
	s, err := r.OpenMgmt(topo.PortRef{Node: r.g.Hosts()[host].Index, Port: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	run, err := smrun.New(cfg, s, smrun.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go run.Run(ctx)
	stop := func() {
		cancel()
		<-run.Done()
	}
	r.t.Cleanup(stop)
	deadline := time.Now().Add(time.Minute)
	for settled := false; !settled; {
		select {
		case <-run.Up():
			settled = true
		case <-time.After(5 * time.Millisecond):
			_ = run.Do(func(m *sm.Manager) { settled = m.State() == mad.SMStandby })
		}
		if time.Now().After(deadline) {
			r.t.Fatal("the subnet does not come up")
		}
	}
	return run, stop
}

// examine runs the doctor from a host.
func (r *rig) examine(host int, o doctor.RunOptions, jo doctor.Options) *doctor.Report {
	r.t.Helper()
	s, err := r.OpenMgmt(topo.PortRef{Node: r.g.Hosts()[host].Index, Port: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	found, err := doctor.Run(ctx, s, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return doctor.Judge(found.Before, found.After, jo)
}

// port is a port by its name: leaf1[5].
func (r *rig) port(name string) topo.PortRef {
	r.t.Helper()
	node, num, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	n := r.g.ByName(node)
	if n == nil {
		r.t.Fatalf("no node %s", node)
	}
	var p int
	fmt.Sscan(num, &p)
	return topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
}

// all writes every finding, for messages of tests.
func all(rep *doctor.Report) string {
	var b strings.Builder
	for _, s := range rep.Sections {
		fmt.Fprintf(&b, "%-11v %-8v %s %s\n", s.Check, s.Severity, s.Looked, s.Why)
		for _, f := range s.Findings {
			fmt.Fprintf(&b, "    %v %s %v: %s (want %s) next: %s\n", f.Severity, f.Kind, f.Objects, f.Measured,
				f.Threshold, f.Next)
		}
	}
	return b.String()
}

// find is the first finding of a kind.
func find(rep *doctor.Report, kind string) *doctor.Finding {
	for i := range rep.Sections {
		for k := range rep.Sections[i].Findings {
			if f := &rep.Sections[i].Findings[k]; f.Kind == kind {
				return f
			}
		}
	}
	return nil
}
