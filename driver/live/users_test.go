package live

import (
	"testing"

	"softib/driver/endpoint"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// TestOtherUsers: programs of two users share a ring only where their ports' keys let them talk, and the one that
// receives can tell who sends, as of now.
func TestOtherUsers(t *testing.T) {
	f := bringUp(t, "star:3")
	attach := func(host string, uid uint32) *Process {
		p, err := f.Attach(host, Caller{PID: daemon, UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	a, b, same := attach("h1", 1000), attach("h2", 1001), attach("h3", 1000)
	keys := func(h string, keys ...ib.PKey) {
		t.Helper()
		f.mu.Lock()
		defer f.mu.Unlock()
		host := f.hosts[map[string]int{"h1": 0, "h2": 1, "h3": 2}[h]]
		p := host.written(1)
		p.PKeys = keys
		host.eng.SetPort(1, p)
		host.passOn()
		f.epoch.Add(1)
	}
	way := func(p, to *Process, key ib.PKey) Resolved {
		t.Helper()
		port, _, _ := to.Port(1)
		r, err := p.Resolve(endpoint.Key{Port: 1, DLID: port.LID, PKey: key, Block: to.Block()})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	incoming := func(p *Process) *Channel {
		t.Helper()
		for n, ok := p.PollNote(); ok; n, ok = p.PollNote() {
			if n.Incoming != nil {
				return n.Incoming
			}
		}
		return nil
	}
	keys("h1", 0x9001, 0x7fff)
	keys("h2", 0x9001, 0x7fff)
	keys("h3", 0x9002, 0x7fff)

	// Both are limited members of the default partition.
	if r := way(a, b, 0x7fff); len(r.New) != 1 || r.New[0].to != nil || incoming(b) != nil {
		t.Errorf("there is a ring to a port whose key does not match: %+v", r)
	}
	r := way(a, b, 0x9001)
	in := incoming(b)
	if len(r.New) != 1 || in != r.New[0] {
		t.Fatalf("there is no ring within a tenant: %+v", r)
	}
	e, ok := in.Receiver()
	s, ok2 := in.Sender()
	if !ok || !ok2 {
		t.Fatal("the ring is not handed out")
	}
	defer e.Close()
	defer s.Close()
	if e.PID != endpoint.OtherUser || s.PID != endpoint.OtherUser || e.Origin < 0 || s.Origin >= 0 {
		t.Fatalf("the ends are %+v and %+v", s, e)
	}
	origin, err := endpoint.ReadOrigin(e.Origin)
	if err != nil {
		t.Fatal(err)
	}
	lid := f.port(topo.PortRef{Node: a.host.topo.Index, Port: 1}).lid(1)
	w := wire.Packet{LRH: wire.LRH{SLID: lid, LNH: wire.LNHLocal}, BTH: wire.BTH{PKey: 0x9001}}
	if !origin.Sends(&w) {
		t.Error("what the sender may send is refused")
	}
	forged := w
	forged.LRH.SLID++
	if origin.Sends(&forged) {
		t.Error("another's address passes")
	}
	// The sender is moved to another tenant. It need not have heard of it, and has the ring still.
	keys("h1", 0x9002, 0x7fff)
	if origin.Sends(&w) {
		t.Error("a key that the sender's port has not any more passes")
	}
	// Between programs of one user nothing is checked.
	way(a, same, 0x9002)
	if in := incoming(same); in == nil {
		t.Error("there is no ring between programs of one user")
	} else if e, ok := in.Receiver(); !ok || e.Origin >= 0 || e.PID != daemon {
		t.Errorf("the receiver of a ring of the same user has %+v", e)
	} else {
		e.Close()
	}
}
