package live

import (
	"testing"
	"time"

	"softib/driver/endpoint"
	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/topo"
)

// TestPeaksAddUp: what several programs send in one window meets at the port that it all goes to, and what they send in
// different windows does not.
func TestPeaksAddUp(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
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
	procs := attachAll(t, f)
	to, _, _ := procs[2].Port(1)
	window := endpoint.CurrentWindow() - 1000
	for i, p := range procs[:2] {
		r, err := p.Resolve(endpoint.Key{Port: 1, DLID: to.LID, PKey: ib.PKeyDefault, Block: procs[2].Block()})
		if err != nil {
			t.Fatal(err)
		}
		p.share.Ledger.PutBurst(endpoint.Burst{Window: window, Slot: r.Slot, Words: 100})
		p.share.Ledger.PutBurst(endpoint.Burst{Window: window + 1 + int64(i), Slot: r.Slot, Words: 150}) // each its own
		p.share.Ledger.PutBurst(endpoint.Burst{Window: window - burstAge, Slot: r.Slot, Words: 1 << 20}) // too late
		p.share.Ledger.PutBurst(endpoint.Burst{Window: window, Slot: r.Slot + 1, Words: 1 << 20})        // no way
	}
	port := func(host int) topo.PortRef { return topo.PortRef{Node: f.Hosts()[host].Node().Index, Port: 1} }
	far := func(host int) topo.PortRef {
		p := g.Port(port(host))
		return topo.PortRef{Node: p.Peer, Port: p.PeerPort}
	}
	want := map[topo.PortRef]inspect.PortPeak{
		port(0): {Xmit: 600}, port(1): {Xmit: 600}, far(0): {Rcv: 600}, far(1): {Rcv: 600}, far(2): {Xmit: 800},
		port(2): {Rcv: 800},
	}
	for reader := range 2 {
		got := f.Peaks(PeaksKept)
		if len(got) != len(want) {
			t.Fatalf("reader %d: %d ports: want %d: %+v", reader, len(got), len(want), got)
		}
		for _, p := range got {
			w := want[p.Port]
			w.Port = p.Port
			if p != w {
				t.Errorf("reader %d: %s: %+v: want %+v", reader, g.PortName(p.Port), p, w)
			}
		}
	}
	if got := f.Peaks(-time.Second); len(got) != 0 && endpoint.CurrentWindow()/1000 > (window+2)/1000 {
		t.Errorf("in this second: %+v", got)
	}
	if len(f.bursts.pending) != 0 {
		t.Errorf("%d pending", len(f.bursts.pending))
	}
}

// TestPathsForget: there are only so many paths, and those that are in use stay.
func TestPathsForget(t *testing.T) {
	f := &Fabric{paths: map[hostPair]*pathTimes{}}
	hosts := make([]Host, pathsMax+10)
	var h endpoint.Histogram
	h.Add(time.Microsecond)
	now := time.Now()
	for i := range hosts {
		now = now.Add(time.Millisecond)
		f.addTimes(hostPair{&hosts[0], &hosts[i]}, &h, now)
		f.addTimes(hostPair{&hosts[0], &hosts[1]}, &h, now)
		if len(f.paths) > pathsMax {
			t.Fatalf("%d paths: want %d at most", len(f.paths), pathsMax)
		}
	}
	if n := f.paths[hostPair{&hosts[0], &hosts[1]}].times.Count(); n != uint64(len(hosts))+1 {
		t.Errorf("the path in use has %d times: want %d", n, len(hosts)+1)
	}
	if f.paths[hostPair{&hosts[0], &hosts[2]}] != nil || f.paths[hostPair{&hosts[0], &hosts[len(hosts)-1]}] == nil {
		t.Error("another path than the oldest was forgotten")
	}
}
