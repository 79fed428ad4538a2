package sim

import (
	"testing"

	"softib/proto/topo"
	"softib/subnet/route"
)

// TestBringUpChooses: a fabric is up when its switches choose, if they are to.
func TestBringUpChooses(t *testing.T) {
	for spec, engines := range map[string]string{"fat-tree:radix=4,levels=3": "", // tidy: order-free
		"dragonfly:a=2,h=1,p=1": "dragonfly"} {
		g, err := topo.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(g, Config{Adaptive: route.ByPacket, Engines: engines})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.BringUp(); err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Switches() {
			if a := s.Switch(n.Index).Adaptive(); !a.On || (a.Detours != 0) != (engines != "") {
				t.Errorf("%s: %s chooses: %v, with detours on lanes %x", spec, n.Name, a.On, a.Detours)
			}
		}
	}
}
