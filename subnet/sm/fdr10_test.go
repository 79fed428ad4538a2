package sm

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// TestFDR10: ports that say QDR are asked whether they are FDR10, of devices that may know that and of no others. One
// that does not answer is QDR; nobody complains of it or asks again, and the subnet comes up as ever.
func TestFDR10(t *testing.T) {
	const mellanox, switchX, connectX3, other = 0x2c9, 0xc738, 0x1003, 0x7777
	for _, c := range []struct {
		name     string
		speed    string
		switches uint16
		answer   func(req, resp mad.View) fate
		want     ib.Speed
		asks     bool
	}{
		{"FDR10", "FDR10", switchX, nil, ib.FDR10, true},
		{"QDR", "QDR", switchX, nil, ib.QDR, true},
		{"EDR", "EDR", switchX, nil, ib.EDR, false},
		{"old devices", "FDR10", other, nil, ib.QDR, false},
		{"silence", "FDR10", switchX, func(req, _ mad.View) fate {
			return fate{drop: req.AttrID() == mad.AttrMlnxExtPortInfo}
		}, ib.QDR, true},
		{"an error", "FDR10", switchX, func(req, resp mad.View) fate {
			if req.AttrID() == mad.AttrMlnxExtPortInfo {
				resp.SetStatus(mad.StatusUnsupMethodAttr)
			}
			return fate{}
		}, ib.QDR, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := spec(t, "fat-tree:radix=4,levels=2,speed="+c.speed)
			for _, n := range g.Nodes {
				n.VendorID, n.DeviceID = mellanox, connectX3
				if n.IsSwitch() {
					n.DeviceID = c.switches
				} else if c.switches == other {
					n.DeviceID = other
				}
			}
			n := networkOf(t, g)
			asked := map[topo.PortRef]bool{} // a question is repeated where no answer comes
			n.see = func(node int, req, _ mad.View) {
				if req.AttrID() == mad.AttrMlnxExtPortInfo {
					asked[topo.PortRef{Node: node, Port: ib.PortNum(req.AttrMod())}] = true
				}
			}
			for i := range g.Nodes {
				n.answers[i] = c.answer
			}
			h := n.manage(0, Config{SweepInterval: -1})
			n.up(h)
			n.works()
			ports := 0
			for _, node := range h.m.Subnet().Nodes {
				for p := range node.Ports {
					if x := &node.Ports[p]; x.Up() {
						ports++
						if got := x.Rate(); got != (ib.LinkRate{Width: ib.Width4x, Speed: c.want}) {
							t.Errorf("%s port %d: %v", nodeName(node), p, got)
						}
					}
				}
			}
			if want := map[bool]int{true: ports}[c.asks]; ports != 2*len(g.Cables()) || len(asked) != want {
				t.Errorf("of %d ports %d were asked, want %d", ports, len(asked), want)
			}
			sweeps := h.m.Sweeps()
			n.pass(20 * ib.Second)
			if last := h.m.Last(); last.Problems != 0 || last.Degraded != 0 || h.said("problem") ||
				h.m.Sweeps() != sweeps {
				t.Errorf("%+v\n%s", last, n.logs())
			}
		})
	}
}

// What is given out goes by the standard, which has 40 Gb/s for both.
func TestFDR10Path(t *testing.T) {
	r := newRig(t, build(t, spec(t, "star:3,speed=FDR10")), Config{})
	r.settle()
	if pi := &r.m.Subnet().Nodes[0].Ports[1].Info; pi.ActiveSpeed() != ib.FDR10 ||
		pi.LinkSpeedActive != 4 || pi.LinkSpeedExtActive != 0 {
		t.Errorf("%v: %d and %d", pi.Rate(), pi.LinkSpeedActive, pi.LinkSpeedExtActive)
	}
	if l := r.path(1, 2, nil); len(l) != 1 || mad.Rate(l[0].Rate).Gbps() != 40 {
		t.Errorf("%+v", l)
	}
}

// A cable that falls back to QDR has changed.
func TestFDR10FallsBack(t *testing.T) {
	n := newNetwork(t, "star:3,speed=FDR10")
	h := n.manage(0, Config{})
	n.up(h)
	h.since()
	ref := n.hostRef(1)
	far := *n.g.Port(ref)
	for _, p := range []topo.PortRef{ref, {Node: far.Peer, Port: far.PeerPort}} {
		n.links[p.Node][p.Port].SetRate(ib.LinkRate{Width: ib.Width4x, Speed: ib.QDR})
	}
	h.m.Sweep(n.now, "test")
	n.must(10*ib.Second, "the change is told", func() bool { return h.said("link changed", "4x QDR", "was 4x FDR10") })
}
