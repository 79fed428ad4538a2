package server_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/race"
	"softib/proof/workload/perf"
	"softib/proto/topo"
	"softib/verbs/attach"
	"softib/verbs/attach/server"
)

// fabric is a fabric that processes can attach to, and where.
func fabric(t testing.TB, spec string) (*live.Fabric, string) {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "verbs")
	f, stop := start(t, g, path)
	t.Cleanup(stop)
	return f, path
}

func serveOn(t testing.TB, g *topo.Graph, path string) (stop func()) {
	t.Helper()
	_, stop = start(t, g, path)
	return stop
}

// start brings up a fabric and serves it.
func start(t testing.TB, g *topo.Graph, path string) (*live.Fabric, func()) {
	t.Helper()
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, f, "test", nil) }()
	return f, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.Close()
	}
}

func open(t testing.TB, socket, host string) *attach.Device {
	t.Helper()
	d, err := attach.Open(attach.Options{Socket: socket, Host: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestPerf(t *testing.T) {
	if race.Enabled {
		t.Skip("programs that poll memory race by design")
	}
	_, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b := open(t, socket, "h1"), open(t, socket, "h5")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for test := perf.Test(0); test < perf.NumTest; test++ {
		rows := 0
		cfg := perf.Config{Test: test, Iters: 200, Sizes: []int{8, 4096, 65536, 1 << 20}}
		if test == perf.AtomicLat {
			cfg.Sizes = nil
		}
		err := perf.Run(ctx, a, b, cfg, func(perf.Row) error {
			rows++
			return nil
		})
		if err != nil {
			t.Errorf("%v: %v", test, err)
		}
		if rows == 0 {
			t.Errorf("%v: no rows", test)
		}
	}
}
