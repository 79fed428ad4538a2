package live

import (
	"fmt"
	"os"
	"testing"

	"softib/driver/endpoint"
	"softib/node/agent"
	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/wire"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// TestProbe: a probe comes where the partition's members are, says which port stops it elsewhere, and leaves no trace
// in the counters of errors.
func TestProbe(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ref := func(i int) topo.PortRef { return topo.PortRef{Node: g.Hosts()[i].Index, Port: 1} }
	guid := func(i int) ib.GUID { return g.Hosts()[i].PortGUID(1) }
	parts, _, err := policy.ParsePartitions("partitions.conf",
		fmt.Appendf(nil, "Default=0x7fff : ALL=limited, SELF=full ;\nred=0x1001 : %v=full, %v=full, %v=limited, "+
			"%v=limited ;\n", guid(1), guid(7), guid(3), guid(4)))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := sm.BringUpParts(g, sm.Config{Partitions: parts, Groups: f.Groups()}, f.caller)
	if err != nil {
		t.Fatal(err)
	}
	probe := func(from, to int, key ib.PKey) inspect.Probed {
		t.Helper()
		p, err := f.Probe(ref(from), rep.LID(ref(to)), 0, key)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	front := func(i int) topo.PortRef {
		p := g.Port(ref(i))
		return topo.PortRef{Node: p.Peer, Port: p.PeerPort}
	}
	for _, tc := range []struct {
		what     string
		from, to int
		key      ib.PKey
		want     inspect.Probed
		isKey    bool
	}{
		{"members", 1, 7, 0x9001, inspect.Probed{Arrived: true, At: ref(7)}, false},
		{"full to limited", 1, 3, 0x9001, inspect.Probed{Arrived: true, At: ref(3)}, false},
		{"limited to full", 3, 1, 0x1001, inspect.Probed{Arrived: true, At: ref(1)}, false},
		{"limited to limited", 3, 4, 0x1001, inspect.Probed{At: ref(4), KeyRefused: true}, true},
		{"forged, stopped where it comes in", 2, 1, 0x9001, inspect.Probed{At: front(2), Reason: link.PKeyIn}, true},
		{"to somebody who is not in it, stopped where it would leave", 1, 2, 0x9001,
			inspect.Probed{At: front(2), Reason: link.PKeyOut}, true},
		{"all to the manager", 5, 0, 0x7fff, inspect.Probed{Arrived: true, At: ref(0)}, false},
		{"limited members of the default partition", 5, 6, 0x7fff, inspect.Probed{At: ref(6), KeyRefused: true}, true},
	} {
		if got := probe(tc.from, tc.to, tc.key); got != tc.want || got.IsKey() != tc.isKey {
			t.Errorf("%s: %+v: want %+v", tc.what, got, tc.want)
		}
	}
	for n := range g.Nodes {
		for p := 1; p < len(g.Nodes[n].Ports); p++ {
			c := f.Counters(topo.PortRef{Node: n, Port: ib.PortNum(p)})
			if c[ib.PortRcvConstraintErrors]+c[ib.PortXmitConstraintErrors]+c[ib.PortRcvErrors] != 0 {
				t.Errorf("%s counts errors", g.PortName(topo.PortRef{Node: n, Port: ib.PortNum(p)}))
			}
		}
	}
	// A link that is down, and an address of nobody.
	if err := f.SetLink(ref(7), false); err != nil {
		t.Fatal(err)
	}
	if got := probe(1, 7, 0x9001); got.Arrived || got.IsKey() || got.Reason != link.Inactive || got.At != front(7) {
		t.Errorf("a link that is down: %+v", got)
	}
	if got := probe(7, 1, 0x9001); got.Arrived || got.IsKey() || got.At != ref(7) {
		t.Errorf("from a link that is down: %+v", got)
	}
	if got, err := f.Probe(ref(1), 0x4000, 0, 0x9001); err != nil || got.Arrived || got.Reason != link.UnknownDLID {
		t.Errorf("to nobody: %+v, %v", got, err)
	}
	for _, bad := range []struct {
		from topo.PortRef
		lid  ib.LID
	}{{ref(0), 0}, {ref(0), ib.LIDMulticastMin}, {front(0), 1}, {topo.PortRef{Node: 9999}, 1}} {
		if _, err := f.Probe(bad.from, bad.lid, 0, 0xffff); err == nil {
			t.Errorf("from %v to %v: no error", bad.from, bad.lid)
		}
	}
	// Datagrams of management that are no probes are checked too, and counted.
	s, err := f.OpenMgmt(ref(5))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.lock(f.Now())
	var p packet
	agent.NewPacket(&p.Packet, &mad.Envelope{LID: rep.LID(ref(1)), QPN: ib.QPNGSI, QKey: ib.QKeyGSI}, mad.ClassPerf,
		rep.LID(ref(5)), []ib.PKey{0x9001}, nil)
	f.carry(place{f.nodes[ref(5).Node], 1, true}, &p, nil)
	f.mu.Unlock()
	if c := f.Counters(front(5)); c[ib.PortRcvConstraintErrors] != 1 {
		t.Errorf("%d constraint errors: want 1", c[ib.PortRcvConstraintErrors])
	}
}

// TestOwnKeys: a program gets no way with a key that its adapter has not, and loses one, without being asked, when the
// key goes.
func TestOwnKeys(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bringUp := func(text string) {
		t.Helper()
		parts, _, err := policy.ParsePartitions("partitions.conf", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sm.BringUpParts(g, sm.Config{Partitions: parts, Groups: f.Groups()}, f.caller); err != nil {
			t.Fatal(err)
		}
		f.RenewWays()
	}
	bringUp("Default=0x7fff : ALL=full ;\n")
	a, err := f.Attach("h2", Caller{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := f.Attach("h3", Caller{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	port, _, _ := b.Port(1)
	ways := func(key ib.PKey) (chans int, gen uint32) {
		t.Helper()
		r, err := a.Resolve(endpoint.Key{Port: 1, DLID: port.LID, PKey: key, Block: b.Block()})
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Rings), r.Gen
	}
	if n, _ := ways(0x9001); n != 0 {
		t.Error("a way with a key that is nobody's")
	}
	if n, _ := ways(ib.PKeyBase); n != 0 {
		t.Error("a way with the other membership of a key")
	}
	n, before := ways(ib.PKeyDefault)
	if n != 1 {
		t.Errorf("%d ways with the key that both have", n)
	}
	// h2 and h3 become limited members. A program that has not heard of it sends with the full key, which h3 would
	// take.
	bringUp("Default=0x7fff : ALL=limited, SELF=full ;\n")
	n, after := ways(ib.PKeyDefault)
	if n != 0 || after == before {
		t.Errorf("%d ways with a key that was taken away, generation %d after %d", n, after, before)
	}
}

// TestForgedSource: what a process says it sends goes on as its port's only if the port's adapter could have sent it.
func TestForgedSource(t *testing.T) {
	f := bringUp(t, "star:3")
	ref := func(h int) topo.PortRef { return topo.PortRef{Node: f.graph.Hosts()[h].Index, Port: 1} }
	lid := func(h int) ib.LID { return f.port(ref(h)).lid(1) }
	for _, x := range []struct {
		name string
		slid ib.LID
		key  ib.PKey
		lnh  wire.LNH
		want bool
	}{
		{"its own", lid(1), ib.PKeyDefault, wire.LNHLocal, true},
		{"another host's address", lid(2), ib.PKeyDefault, wire.LNHLocal, false},
		{"no address", 0, ib.PKeyDefault, wire.LNHLocal, false},
		{"a key that it has not", lid(1), 0x9001, wire.LNHGlobal, false},
		{"the other membership of its key", lid(1), ib.PKeyBase, wire.LNHLocal, false},
		{"raw, without a key", lid(1), 0, wire.LNHRaw, true},
	} {
		w := wire.Packet{LRH: wire.LRH{SLID: x.slid, LNH: x.lnh}, BTH: wire.BTH{PKey: x.key}}
		if got := f.port(ref(1)).sends(1, &w); got != x.want {
			t.Errorf("%s: %t, want %t", x.name, got, x.want)
		}
	}
}

// TestManagementByAnotherLane: a datagram for QP0 that comes by a data lane is no management: such a lane is not
// guarded.
func TestManagementByAnotherLane(t *testing.T) {
	var p wire.Packet
	agent.NewSMP(&p, 1, 2, 0)
	p.Payload = make([]byte, mad.Size)
	if !agent.IsMAD(&p) {
		t.Error("subnet management is not known as such")
	}
	p.LRH.VL = 0
	if agent.IsMAD(&p) {
		t.Error("QP0 takes a datagram from lane 0")
	}
	p.BTH.DestQP = ib.QPNGSI
	if !agent.IsMAD(&p) {
		t.Error("QP1 does not take a datagram from lane 0")
	}
	p.LRH.VL = ib.VLMgmt
	if agent.IsMAD(&p) {
		t.Error("QP1 takes a datagram from VL15")
	}
}
