package metrics

import (
	"testing"
	"time"

	"softib/driver/live"
	"softib/operate/manager"
	"softib/proto/topo"
)

// running is a fabric that is up, its manager and its exporter.
func running(t testing.TB, spec string) (*live.Fabric, *manager.Manager, *Exporter) {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return runningOf(t, spec, g)
}

// runningOf is running for a fabric that no generator makes.
func runningOf(t testing.TB, spec string, g *topo.Graph) (*live.Fabric, *manager.Manager, *Exporter) {
	t.Helper()
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(manager.Options{Name: "test", Topology: spec, Version: "1.2", Fabric: f, Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return f, m, New(m)
}
