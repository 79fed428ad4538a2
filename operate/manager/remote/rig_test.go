package remote_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/operate/manager"
	"softib/operate/manager/remote"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// rig is a fabric of this process, so that the truth is known, with a manager at its first host.
type rig struct {
	*live.Fabric
	t testing.TB
	g *topo.Graph
}

func newRig(t testing.TB, spec string, cfg sm.Config) *rig {
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
	r := &rig{f, t, g}
	run, err := smrun.New(cfg, r.session(0), smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go run.Run(ctx)
	t.Cleanup(func() { cancel(); <-run.Done() })
	select {
	case <-run.Up():
	case <-time.After(time.Minute):
		t.Fatal("the subnet does not come up")
	}
	return r
}

// session is the management service of a host.
func (r *rig) session(host int) *live.Session {
	r.t.Helper()
	s, err := r.OpenMgmt(topo.PortRef{Node: r.g.Hosts()[host].Index, Port: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// quick looks often.
var quick = remote.Options{Interval: 20 * time.Millisecond, Survey: 60 * time.Millisecond}

// watch watches the fabric from a host.
func (r *rig) watch(host int, o remote.Options) *remote.Fabric {
	r.t.Helper()
	return watch(r.t, r.session(host), o)
}

func watch(t testing.TB, tr smrun.Transport, o remote.Options) *remote.Fabric {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f, err := remote.Open(ctx, tr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// ref is a port by its name, in whichever of the graphs: leaf1[5].
func ref(t testing.TB, g *topo.Graph, name string) topo.PortRef {
	t.Helper()
	for _, n := range g.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			if r := (topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}); g.PortName(r) == name {
				return r
			}
		}
	}
	t.Fatalf("no port %s", name)
	return topo.PortRef{}
}

// awaitEvent waits for an event with some words, and returns it.
func awaitEvent(t testing.TB, j *manager.Journal, words ...string) manager.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	bell := j.Bell(ctx)
	for {
		for _, e := range j.After(0, 1<<20) {
			ok := true
			for _, w := range words {
				ok = ok && strings.Contains(e.Text, w)
			}
			if ok {
				return e
			}
		}
		select {
		case <-bell:
		case <-ctx.Done():
			t.Fatalf("nothing like %q is in the journal: %+v", words, j.After(0, 1<<20))
		}
	}
}

// awaitRead waits until counters were read so many times more.
func awaitRead(t testing.TB, f *remote.Fabric, times int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	reads := f.Reads(ctx)
	for range times {
		select {
		case <-reads:
		case <-ctx.Done():
			t.Fatal("counters are not read")
		}
	}
}
