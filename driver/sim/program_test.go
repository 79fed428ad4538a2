package sim

import (
	"testing"

	"softib/node/ibswitch"
	"softib/proto/ib"
	"softib/proto/topo"
)

// TestProgramAgain: tables that are written again, with a cable out and when it is back, leave no way closed that was
// closed while they changed.
func TestProgramAgain(t *testing.T) {
	g, err := topo.ParseSpec("torus:3x2,hosts=1")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range g.Cables() {
		s, err := New(g, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.BringUp(); err != nil {
			t.Fatal(err)
		}
		program := func() {
			if _, err := s.Program(); err != nil {
				t.Fatalf("cable %d: %v", i, err)
			}
		}
		s.PlanDown(s.Now()+ib.Microsecond, c.A)
		s.PlanUp(s.Now()+100*ib.Microsecond, c.A)
		s.Run(s.Now() + 50*ib.Microsecond)
		program()
		s.Run(s.Now() + 100*ib.Microsecond)
		program()
		for _, sw := range g.Switches() {
			for _, h := range g.Hosts() {
				lid := s.LID(topo.PortRef{Node: h.Index, Port: 1})
				if s.Switch(sw.Index).Route(lid) == ibswitch.DropPort {
					t.Errorf("cable %d: %s has no way to %s", i, sw.Name, h.Name)
				}
			}
		}
	}
}
