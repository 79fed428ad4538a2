package live

import (
	"testing"

	"softib/driver/endpoint"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// A broadcast comes to all hosts, however many there are behind one switch.
func TestBroadcastReachesAll(t *testing.T) {
	g, err := topo.ParseSpec("star:24")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ends := f.resolve(f.hosts[8].ports[1], endpoint.Key{Port: 1, DLID: sm.BroadcastMLID, PKey: ib.PKeyDefault})
	if len(ends) != 23 {
		t.Errorf("it comes to %d hosts, want 23", len(ends))
	}
}
