package live

import (
	"testing"

	"softib/ib"
	"softib/topo"
)

// bringUp programs a fabric directly, for tests of what comes after.
func bringUp(t testing.TB, spec string) *Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for _, n := range g.Nodes {
		for p := 1; p <= n.NumPorts(); p++ {
			ps := f.port(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
			if ps.peer == nil {
				continue
			}
			if err := ps.link.Command(0, ib.PortArmed); err != nil {
				t.Fatal(err)
			}
			if err := ps.link.Command(0, ib.PortActive); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, h := range f.hosts {
		lid := ib.LID(i + 1)
		eng := h.Enter()
		p := *eng.Port(1)
		p.LID, p.State = lid, ib.PortActive
		eng.SetPort(1, p)
		h.Leave()
		dist := g.Distances(h.node.Index)
		for _, s := range f.switches {
			best := ib.PortNum(255)
			bd := int32(1 << 30)
			for q := 1; q <= s.node.NumPorts(); q++ {
				if pp := &s.node.Ports[q]; pp.Connected() {
					if d := int32(dist[pp.Peer]); d >= 0 && d < bd {
						bd, best = d, ib.PortNum(q)
					}
				}
			}
			s.engine.SetRoute(lid, best)
		}
	}
	return f
}
