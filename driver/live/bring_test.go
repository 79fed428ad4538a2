package live

import (
	"testing"

	"softib/proto/topo"
)

// bringUp starts a fabric and programs it.
func bringUp(t testing.TB, spec string) *Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	return f
}
