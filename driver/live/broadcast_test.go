package live

import (
	"testing"

	"softib/driver/endpoint"
	"softib/proto/ib"
	"softib/subnet/sm"
)

// A broadcast comes to all hosts, however many there are behind one switch.
func TestBroadcastReachesAll(t *testing.T) {
	f := bringUp(t, "star:24")
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ends := f.resolve(f.hosts[8].ports[1], endpoint.Key{Port: 1, DLID: sm.BroadcastMLID, PKey: ib.PKeyDefault})
	if len(ends) != 23 {
		t.Errorf("it comes to %d hosts, want 23", len(ends))
	}
}
