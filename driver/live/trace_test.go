package live

import (
	"slices"
	"testing"

	"softib/driver/endpoint"
	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// sameWay wants a way to be the route that packets are given.
func sameWay(t *testing.T, f *Fabric, src *Host, dlid ib.LID, sl ib.SL, pkey ib.PKey) inspect.Way {
	t.Helper()
	way, err := f.Way(topo.PortRef{Node: src.topo.Index, Port: 1}, dlid, sl, pkey)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	rt, _ := f.resolve(src.ports[1], endpoint.Key{Port: 1, DLID: dlid, SL: sl, PKey: pkey})
	f.mu.Unlock()
	if (way.Reason == link.OK) != (rt.lost().p == nil) || rt.lost().p != nil && rt.lost().reason != way.Reason {
		t.Fatalf("%s to LID %d: the way ends with %v, the route with %v", src.Name(), dlid, way.Reason,
			rt.lost().reason)
	}
	var hops []hop
	for _, h := range way.Hops {
		hops = append(hops, hop{f.port(h.Out), true, h.VL}, hop{f.port(h.In), false, h.VL})
	}
	whole := rt.hops[:len(rt.hops)&^1] // a port that lets nothing out has no other end
	if way.Reason != link.Looping && !slices.Equal(hops, whole) {
		t.Fatalf("%s to LID %d: the way has %d hops, the route %d", src.Name(), dlid, len(hops), len(whole))
	}
	if rt.lost().p != nil && way.Reason != link.Looping && way.Lost != rt.lost().p.ref() {
		t.Fatalf("%s to LID %d: the way ends at %v, the route at %s", src.Name(), dlid, way.Lost, rt.lost().p.name())
	}
	return way
}

func TestWay(t *testing.T) {
	g, err := topo.ParseSpec("torus:4x4")
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := sm.BringUpParts(g, sm.Config{Engines: "dor"}, f.caller); err != nil {
		t.Fatal(err)
	}
	lid := func(h *Host) ib.LID { return h.eng.Port(1).LID }
	hosts := f.Hosts()
	lanes := map[ib.VL]bool{}
	for _, a := range hosts {
		for _, b := range hosts {
			for _, sl := range []ib.SL{0, 1, 2, 3} {
				way := sameWay(t, f, a, lid(b), sl, ib.PKeyDefault)
				if a == b {
					continue
				}
				if way.Reason != link.OK || f.port(way.End()).host != b {
					t.Fatalf("%s to %s: %+v", a.Name(), b.Name(), way)
				}
				for i, h := range way.Hops {
					lanes[h.VL] = true
					if h.MTU != ib.MTU4096 || h.Rate != (ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}) || i > 0 &&
						h.Out.Node != way.Hops[i-1].In.Node {
						t.Fatalf("hop %d is %+v", i, h)
					}
				}
			}
		}
	}
	if len(lanes) < 2 {
		t.Errorf("all ways are on one lane: the test tests little")
	}

	// What ends a way ends the route, and for the same reason.
	a, b := hosts[0], hosts[10]
	way := sameWay(t, f, a, lid(b), 0, ib.PKeyDefault)
	second := way.Hops[1].Out
	if err := f.SetLink(second, false); err != nil {
		t.Fatal(err)
	}
	if w := sameWay(t, f, a, lid(b), 0, ib.PKeyDefault); w.Reason != link.Inactive || w.Out != second.Port {
		t.Errorf("with a link down: %+v", w)
	}
	if err := f.SetLink(second, true); err != nil {
		t.Fatal(err)
	}
	if w := sameWay(t, f, a, 3000, 0, ib.PKeyDefault); w.Reason != link.UnknownDLID || w.Out != 0xFF {
		t.Errorf("to nobody: %+v", w)
	}
	// The fabric's own traps may be under way.
	sw := f.nodes[second.Node].sw
	reroute := func(port ib.PortNum) (old ib.PortNum) {
		f.mu.Lock()
		defer f.mu.Unlock()
		old = sw.Route(lid(b))
		if err := sw.SetRoute(lid(b), port); err != nil {
			t.Fatal(err)
		}
		return old
	}
	old := reroute(way.Hops[0].In.Port)
	if w := sameWay(t, f, a, lid(b), 0, ib.PKeyDefault); w.Reason != link.Looping || len(w.Hops) != 1 {
		t.Errorf("sent back: %+v", w)
	}
	reroute(old)

	for _, bad := range []struct {
		from topo.PortRef
		to   ib.LID
	}{
		{topo.PortRef{Node: -1, Port: 1}, 1}, {topo.PortRef{Node: a.topo.Index}, 1},
		{topo.PortRef{Node: second.Node, Port: 1}, 1},
		{topo.PortRef{Node: a.topo.Index, Port: 1}, 0}, {topo.PortRef{Node: a.topo.Index, Port: 1}, ib.LIDMulticastMin},
	} {
		if _, err := f.Way(bad.from, bad.to, 0, ib.PKeyDefault); err == nil {
			t.Errorf("a way from %v to %v", bad.from, bad.to)
		}
	}
}

// A circle of several switches is cut where it comes round; switches are at both ends.
func TestWayOfSwitches(t *testing.T) {
	f := bringUp(t, "torus:4")
	g := f.Graph()
	ring := g.Switches()
	to, _ := f.switches[2].sw.LID()
	way, err := f.Way(topo.PortRef{Node: ring[0].Index}, to, 0, ib.PKeyDefault)
	if err != nil || way.Reason != link.OK || len(way.Hops) != 2 || way.End().Node != ring[2].Index {
		t.Errorf("between switches: %+v, %v", way, err)
	}
	own, _ := f.switches[0].sw.LID()
	if way, err := f.Way(topo.PortRef{Node: ring[0].Index}, own, 0, ib.PKeyDefault); err != nil ||
		way.Reason == link.OK || len(way.Hops) != 0 {
		t.Errorf("a switch to itself: %+v, %v", way, err)
	}
	dest := f.hosts[2].eng.Port(1).LID
	// Round and round, by the ports that lead onwards.
	at, came := ring[0], ib.PortNum(0)
	f.mu.Lock()
	for range ring {
		for p := 1; p < len(at.Ports); p++ {
			x := at.Ports[p]
			if x.Connected() && g.Nodes[x.Peer].IsSwitch() && ib.PortNum(p) != came {
				if err := f.nodes[at.Index].sw.SetRoute(dest, ib.PortNum(p)); err != nil {
					t.Fatal(err)
				}
				at, came = g.Nodes[x.Peer], x.PeerPort
				break
			}
		}
	}
	f.mu.Unlock()
	way, err = f.Way(topo.PortRef{Node: f.hosts[0].topo.Index, Port: 1}, dest, 0, ib.PKeyDefault)
	if err != nil || way.Reason != link.Looping || len(way.Hops) != 5 || way.Lost.Node != way.Hops[0].In.Node {
		t.Errorf("a circle of four: %+v, %v", way, err)
	}
}

// What is read of a switch is what its agent says.
func TestTables(t *testing.T) {
	f := bringUp(t, "fat-tree:radix=4,levels=2")
	g := f.Graph()
	ask := func(node int, attr mad.AttrID, mod uint32) []byte {
		b, err := (&mad.SMP{Method: mad.MethodGet, Attr: attr, Modifier: mod, Directed: true}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		var resp [mad.Size]byte
		if !f.SMP(node, 0, (*[mad.Size]byte)(b), &resp) {
			t.Fatalf("no answer to %v", attr)
		}
		return resp[mad.SMPDataOff:][:mad.SMPDataLen]
	}
	groups := 0
	for _, n := range g.Switches() {
		tab, ok := f.Tables(n.Index)
		if !ok || len(tab.LFT) != g.NumLIDs()+1 {
			t.Fatalf("%s: %d entries, want %d", n.Name, len(tab.LFT), g.NumLIDs()+1)
		}
		lft := ask(n.Index, mad.AttrLFT, 0)
		for l, p := range tab.LFT {
			if byte(p) != lft[l] {
				t.Errorf("%s: LID %d has port %d, the agent says %d", n.Name, l, p, lft[l])
			}
		}
		var mft mad.MFT
		if _, err := mft.Parse(ask(n.Index, mad.AttrMFT, 0)); err != nil {
			t.Fatal(err)
		}
		want := uint16(0)
		for _, gr := range tab.Groups {
			groups++
			if gr.MLID != sm.BroadcastMLID {
				t.Errorf("%s has group %v", n.Name, gr)
			}
			for _, p := range gr.Ports {
				want |= 1 << p
			}
		}
		if mft[0] != want {
			t.Errorf("%s: the group has ports %b, the agent says %b", n.Name, want, mft[0])
		}
		lanes := f.Lanes(n.Index)
		if len(lanes) != len(n.Ports) || len(lanes[0]) != len(n.Ports) {
			t.Fatalf("%s: %d lanes", n.Name, len(lanes))
		}
		var m mad.SLtoVL
		if _, err := m.Parse(ask(n.Index, mad.AttrSLtoVL, mad.SLtoVLModifier(1, 3))); err != nil {
			t.Fatal(err)
		}
		if m != mad.SLtoVL(lanes[1][3]) {
			t.Errorf("%s: lanes %v, the agent says %v", n.Name, lanes[1][3], m)
		}
	}
	if groups == 0 {
		t.Error("no switch has a group")
	}
	if _, ok := f.Tables(g.Hosts()[0].Index); ok || f.Lanes(g.Hosts()[0].Index) != nil || f.Lanes(-1) != nil {
		t.Error("a host has tables")
	}
}
