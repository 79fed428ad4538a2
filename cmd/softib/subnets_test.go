package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"softib/operate/manager"
	"softib/operate/status"
	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// TestSubnets: a fabric of three subnets has a manager in each and carries messages between all hosts; ways and
// measurements lead over routers, and end where a router is out of reach.
func TestSubnets(t *testing.T) {
	const spec = "subnets:3,routers=1,each=fat-tree:radix=8,levels=2,hosts=8"
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFabric(t.Context(), "t", spec, g, &sm.Config{}, nil, io.Discard, toTerminal(newTerminal(io.Discard)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var said bytes.Buffer
	out := toTerminal(newTerminal(&said))
	f.describe(out)
	if err := f.ping(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"subnets   3, joined by 1 router", "552 of 552 pairs"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %q in:\n%s", want, &said)
		}
	}
	s := status.Gather(t.Context(), status.Source{Fabric: f.Fabric, Managers: (&server{f: f}).subnets()})
	if len(s.Subnets) != 3 || len(s.Managers) != 3 || s.Subnets[2].Prefix != "fec0:0:0:3::" ||
		s.Subnets[1].Hosts != 8 || s.Subnets[1].Routers != 1 || s.Subnets[0].LIDMax >= s.Subnets[1].LIDMin {
		t.Errorf("status has %+v and managers %+v", s.Subnets, s.Managers)
	}
	port := func(name string) topo.PortRef { return topo.PortRef{Node: g.ByName(name).Index, Port: 1} }
	follow := func(from, to string) manager.Route {
		t.Helper()
		h, err := f.Host(to)
		if err != nil {
			t.Fatal(err)
		}
		r, err := manager.Follow(t.Context(), f.Fabric, port(from), manager.Destination{LID: h.Port(1).LID,
			Port: port(to), Has: true}, manager.RouteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := follow("h1", "h24"); !r.Arrives || len(r.Hops) != 6 && len(r.Hops) != 4 {
		t.Errorf("from h1 to h24: %+v", r)
	}
	p, err := f.pair([]string{"h1", "h24"})
	if err != nil || len(p.Routers) != 2 {
		t.Fatalf("a pair: %+v, %v", p, err)
	}
	cfg := perf.Config{Test: perf.SendLat, Iters: 50, Sizes: []int{8}, Routers: p.Routers}
	rows := 0
	err = perf.Run(t.Context(), f.Hosts()[0].Device(), f.Hosts()[23].Device(), cfg, func(perf.Row) error {
		rows++
		return nil
	})
	if err != nil || rows != 1 {
		t.Errorf("a measurement: %d rows, %v", rows, err)
	}
	// Without the router's link in the first subnet there is no way.
	if err := f.SetLink(topo.PortRef{Node: g.Routers()[0].Index, Port: ib.PortNum(1)}, false); err != nil {
		t.Fatal(err)
	}
	if r := follow("h1", "h24"); r.Arrives || r.Why == "" || r.Next == "" {
		t.Errorf("without a link from h1 to h24: %+v", r)
	}
}
