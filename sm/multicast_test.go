package sm

import (
	"errors"
	"testing"

	"softib/ib"
	"softib/topo"
)

// flood follows the multicast tables from a host port and counts the arrivals at
// each other one.
func (w *world) flood(t *testing.T, from topo.PortRef, mlid ib.LID) map[topo.PortRef]int {
	t.Helper()
	got := map[topo.PortRef]int{}
	queue := []topo.PortRef{from}
	for len(queue) > 0 {
		if len(queue) > 4*len(w.g.Nodes)*64 {
			t.Fatal("the tables multiply packets without end")
		}
		ref := queue[0]
		queue = queue[1:]
		x := w.g.Port(ref)
		s := w.switches[x.Peer]
		if s == nil {
			got[topo.PortRef{Node: x.Peer, Port: x.PeerPort}]++
			continue
		}
		set := s.MulticastPorts(mlid)
		set.Clear(x.PeerPort)
		for p, ok := set.Pop(); ok; p, ok = set.Pop() {
			queue = append(queue, topo.PortRef{Node: x.Peer, Port: p})
		}
	}
	return got
}

func TestBroadcast(t *testing.T) {
	for _, shape := range shapes {
		if shape.spec == "pair" {
			continue // no switch, no table
		}
		g := spec(t, shape.spec)
		w := build(t, g)
		mustBringUp(t, w)
		ports := hostPorts(g)
		for _, from := range []topo.PortRef{ports[0], ports[len(ports)/2], ports[len(ports)-1]} {
			got := w.flood(t, from, BroadcastMLID)
			for _, to := range ports {
				want := 1
				if to == from {
					want = 0
				}
				if got[to] != want {
					t.Fatalf("%s: %s got %d copies from %s, want %d", shape.spec, g.PortName(to), got[to], g.PortName(from), want)
				}
			}
		}
	}
}

func TestProgramMulticast(t *testing.T) {
	g := spec(t, "fat-tree:radix=4,levels=3")
	w := build(t, g)
	mustBringUp(t, w)
	ports := hostPorts(g)
	groups := map[ib.LID][]topo.PortRef{
		0xC001: {ports[0], ports[1]},                                           // one leaf
		0xC002: {ports[0], ports[2], ports[3]},                                 // one pod
		0xC003: {ports[0], ports[5], ports[10], ports[15], ports[0]},           // all pods, one named twice
		0xC021: ports,                                                          // another block
		0xC022: {ports[7]},                                                     // alone
		0xC023: {ports[15], ports[0], ports[4], ports[8], ports[12], ports[1]}, // any order
	}
	for mlid := ib.LID(0xC001); mlid <= 0xC023; mlid++ {
		if groups[mlid] != nil {
			if err := ProgramMulticast(g, w, mlid, groups[mlid]); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(mlid ib.LID, members []topo.PortRef) {
		t.Helper()
		in := map[topo.PortRef]bool{}
		for _, m := range members {
			in[m] = true
		}
		for from := range in {
			got := w.flood(t, from, mlid)
			for _, to := range ports {
				want := 0
				if in[to] && to != from {
					want = 1
				}
				if got[to] != want {
					t.Errorf("0x%x: %s got %d copies from %s, want %d", int(mlid), g.PortName(to), got[to], g.PortName(from), want)
				}
			}
		}
	}
	for mlid, members := range groups {
		check(mlid, members)
	}
	// The tree of a leaf's own hosts stays at the leaf.
	for _, s := range g.Switches() {
		set := w.switches[s.Index].MulticastPorts(0xC001)
		if !set.Empty() && s.Index != g.Nodes[0].Ports[1].Peer {
			t.Errorf("%s has ports in a group of another leaf", s.Name)
		}
	}
	// Members leave.
	groups[0xC003] = ports[4:6]
	if err := ProgramMulticast(g, w, 0xC003, groups[0xC003]); err != nil {
		t.Fatal(err)
	}
	for mlid, members := range groups {
		check(mlid, members)
	}
	// Bad ones.
	for _, bad := range []struct {
		mlid ib.LID
		m    topo.PortRef
	}{{1, ports[0]}, {0xFFFF, ports[0]}, {0xC001, topo.PortRef{Node: g.Switches()[0].Index, Port: 1}}, {0xC001, topo.PortRef{Node: 0, Port: 9}}, {0xC400, ports[0]}} {
		if err := ProgramMulticast(g, w, bad.mlid, []topo.PortRef{bad.m}); !errors.Is(err, ErrGroup) {
			t.Errorf("%v, %v: %v", bad.mlid, bad.m, err)
		}
	}
}
