package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"softib/operate/doctor"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// TestWiring: cables that are not where a tree has them are named, and none of a tree that is in order.
func TestWiring(t *testing.T) {
	const spec = "fat-tree:radix=8,levels=2"
	link := topo.LinkSpec{}
	for _, c := range []struct {
		name    string
		spoil   func(g *topo.Graph) error
		kind    string
		objects []string
	}{
		{"in order", func(*topo.Graph) error { return nil }, "", nil},
		{"swapped", func(g *topo.Graph) error {
			a, b := g.ByName("leaf1").Index, g.ByName("leaf2").Index
			x, y := g.ByName("spine1").Index, g.ByName("spine2").Index
			for _, e := range []topo.PortRef{{Node: a, Port: 5}, {Node: b, Port: 6}} {
				if err := g.Disconnect(e.Node, e.Port); err != nil {
					return err
				}
			}
			if err := g.Connect(a, 5, y, 2, link); err != nil {
				return err
			}
			return g.Connect(b, 6, x, 1, link)
		}, "wiring-swapped", []string{"leaf1[5]", "spine2[2]", "leaf2[6]", "spine1[1]"}},
		{"between leaves", func(g *topo.Graph) error {
			a, b := g.ByName("leaf1").Index, g.ByName("leaf2").Index
			for _, e := range []topo.PortRef{{Node: a, Port: 8}, {Node: b, Port: 8}} {
				if err := g.Disconnect(e.Node, e.Port); err != nil {
					return err
				}
			}
			return g.Connect(a, 8, b, 8, link)
		}, "", []string{"leaf1[8]", "leaf2[8]"}},
		{"missing", func(g *topo.Graph) error { return g.Disconnect(g.ByName("leaf1").Index, 7) }, "wiring-missing",
			[]string{"leaf1[7]", "spine3[1]"}},
	} {
		g, err := topo.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.spoil(g); err != nil {
			t.Fatal(err)
		}
		r := rigOf(t, g, sm.Config{})
		rep := r.examine(0, doctor.RunOptions{}, doctor.Options{Plan: g})
		s := rep.Section(doctor.Wiring)
		if c.objects == nil {
			if s.Severity != doctor.OK {
				t.Errorf("%s:\n%s", c.name, all(rep))
			}
			continue
		}
		var named []string
		for _, f := range s.Findings {
			named = append(named, f.Objects...)
			if f.Severity != doctor.Warn || f.Next == "" || c.kind != "" && f.Kind != c.kind {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
		for _, o := range c.objects {
			if !slices.Contains(named, o) {
				t.Errorf("%s: %s is not named:\n%s", c.name, o, all(rep))
			}
		}
	}
}

// TestDeadSwitch: a switch that is gone is one finding, with the hosts that are cut off by it.
func TestDeadSwitch(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	leaf := r.g.ByName("leaf3")
	for p := 1; p <= leaf.NumPorts(); p++ {
		if err := r.SetLink(topo.PortRef{Node: leaf.Index, Port: ib.PortNum(p)}, false); err != nil {
			t.Fatal(err)
		}
	}
	var rep *doctor.Report
	// Until the manager has routed around it.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		rep = r.examine(0, doctor.RunOptions{}, doctor.Options{Plan: r.g})
		if rep.Count(doctor.Fail) == 1 || time.Now().After(deadline) {
			break
		}
	}
	f := find(rep, "dead-switch")
	if f == nil || rep.Count(doctor.Fail) != 1 {
		t.Fatal(all(rep))
	}
	for _, name := range []string{"leaf3", "h9", "h10", "h11", "h12"} {
		if !slices.Contains(f.Objects, name) || !strings.Contains(f.Measured, name) {
			t.Errorf("%s is not named: %+v", name, f)
		}
	}
	if s := rep.Section(doctor.Wiring); len(s.Findings) != 0 {
		t.Errorf("its cables are said again:\n%s", all(rep))
	}
}
