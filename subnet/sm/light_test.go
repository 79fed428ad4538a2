package sm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// TestNothingChanges: sweeps of a subnet that is as it should be write nothing, full ones and light ones.
func TestNothingChanges(t *testing.T) {
	for _, shape := range []string{"pair", "star:4", "fat-tree:radix=4,levels=3", "torus:4x4", "ring:6"} {
		for _, engines := range []string{"", "dfsssp", "minhop"} {
			t.Run(shape+" "+engines, func(t *testing.T) {
				n := newNetwork(t, shape)
				h := n.manage(0, Config{Engines: engines})
				n.up(h)
				n.pass(3 * ib.Second) // late rounds, inventory
				n.resetCounts()
				for k := range 3 {
					h.m.Sweep(n.now, "test")
					n.pass(ib.Millisecond)
					if !h.rests() || n.allSets() != 0 {
						t.Fatalf("sweep %d: Sets by attribute %v", k, n.sets)
					}
				}
				sweeps := h.m.Sweeps()
				n.pass(65 * ib.Second)
				if n.allSets() != 0 || h.m.Sweeps() != sweeps || h.m.Counters().LightSweeps < 6 {
					t.Fatalf("light sweeps: Sets by attribute %v, %d sweeps more, %+v\n%s", n.sets, h.m.Sweeps()-sweeps,
						h.m.Counters(), n.logs())
				}
				n.works()
			})
		}
	}
}

// TestLinkLossWritesLittle: what a lost link does not concern is left alone, and so is everything that is not a table.
func TestLinkLossWritesLittle(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=8,levels=3")
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(3 * ib.Second)
	was := n.lids()
	links := n.switchLinks()
	for _, ref := range []topo.PortRef{links[3], links[len(links)-1]} {
		n.resetCounts()
		n.cut(ref)
		n.must(5*ib.Second, "it is swept", func() bool { return h.rests() && n.broken() == "" })
		n.pass(3 * ib.Second)
		n.works()
		blocks, infos := n.sets[mad.AttrLFT], n.sets[mad.AttrSwitchInfo]
		if infos != 2 || n.sets[mad.AttrPortInfo] != 0 || blocks+infos != n.allSets() {
			t.Errorf("%s: Sets by attribute %v: want tables, and the SwitchInfo of two switches", n.g.PortName(ref),
				n.sets)
		}
		if all := len(n.g.Switches()) * (int(h.m.net.Top)/64 + 1); blocks == 0 || blocks > all/4 {
			t.Errorf("%s: %d blocks written of %d", n.g.PortName(ref), blocks, all)
		}
		// Back again: two ports are armed and activated, and little else.
		n.resetCounts()
		n.join(ref)
		n.must(3*ib.Second, "it is swept", func() bool {
			return h.rests() &&
				n.links[ref.Node][ref.Port].State() == ib.PortActive
		})
		n.pass(3 * ib.Second)
		n.works()
		if got := n.sets[mad.AttrPortInfo]; got != 4 {
			t.Errorf("%s: %d Sets of PortInfo: want Armed and Active at both ends", n.g.PortName(ref), got)
		}
	}
	n.keptLIDs(was)
}

// TestLightSweep: what no trap tells is found by light sweeps.
func TestLightSweep(t *testing.T) {
	leaf := func(n *network) int { return n.leafOf(n.hostRef(5)) }
	for _, c := range []struct {
		name string
		do   func(n *network)
		full bool
		log  string
	}{
		{"a link goes down", func(n *network) { n.cut(n.switchLinks()[2]) }, false, "has changed"},
		{"a host goes down", func(n *network) { n.cut(n.hostRef(5)) }, false, "has changed"},
		{"a link flaps", func(n *network) { n.flap(n.switchLinks()[2]) }, false, "has changed"},
		{"a switch starts anew", func(n *network) { n.reboot(leaf(n)) }, true, ""},
		{"a table ends elsewhere", func(n *network) {
			if err := n.switches[leaf(n)].SetLinearFDBTop(3); err != nil {
				n.t.Fatal(err)
			}
		}, false, "forgotten its tables"},
		{"an entry is another", func(n *network) {
			if err := n.switches[leaf(n)].SetRoute(n.lid(n.hostRef(0)), 255); err != nil {
				n.t.Fatal(err)
			}
		}, false, "holds other tables"},
		{"a whole table is gone", func(n *network) {
			var none [64]ib.PortNum
			for k := range none {
				none[k] = 255
			}
			if err := n.switches[leaf(n)].SetLFT(0, none); err != nil {
				n.t.Fatal(err)
			}
		}, false, "holds other tables"},
		{"a switch has another address", func(n *network) { n.switches[leaf(n)].SetLID(77, 0) }, true,
			"another address"},
		{"a switch dies", func(n *network) { n.deaf[leaf(n)] = true }, true, "does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, "fat-tree:radix=4,levels=2")
			n.traps = false
			h := n.manage(0, Config{})
			n.up(h)
			n.pass(ib.Second)
			h.since()
			c.do(n)
			sweeps := h.m.Sweeps()
			n.must(11*ib.Second, "it is noticed", func() bool { return h.m.Sweeps() > sweeps && h.rests() })
			if !h.said(c.log) {
				t.Errorf("%q is not in the log:\n%s", c.log, n.logs())
			}
			if h.m.Last().Full != c.full {
				t.Errorf("full sweep: %v, want %v", h.m.Last().Full, c.full)
			}
			n.pass(12 * ib.Second)
			switch {
			case n.deaf[leaf(n)]:
				n.works(n.behind(leaf(n))...)
				delete(n.deaf, leaf(n))
				n.whole(60*ib.Second, h)
			case c.name == "a host goes down":
				n.works(n.hostRef(5).Node)
			default:
				n.works()
			}
			// The bit that tells of changes is cleared, else every light sweep would look again.
			sweeps = h.m.Sweeps()
			n.pass(25 * ib.Second)
			if h.m.Sweeps() > sweeps+1 {
				t.Errorf("%d sweeps more\n%s", h.m.Sweeps()-sweeps, n.logs())
			}
			if c.name == "a host goes down" {
				n.join(n.hostRef(5))
				n.whole(15*ib.Second, h)
			}
		})
	}
}

// TestOwnLink: a manager whose own cable is out for a while manages again when it is back, also if it was out from the
// start.
func TestOwnLink(t *testing.T) {
	for _, start := range []bool{false, true} {
		t.Run(fmt.Sprint(start), func(t *testing.T) {
			n := newNetwork(t, "star:4")
			if start {
				n.cut(n.hostRef(0))
			}
			h := n.manage(0, Config{})
			n.pass(5 * ib.Second)
			if !start {
				n.up(h)
				n.cut(n.hostRef(0))
			}
			n.pass(40 * ib.Second)
			n.join(n.hostRef(0))
			n.whole(15*ib.Second, h)
		})
	}
}

// TestBackToBack: two hosts without a switch.
func TestBackToBack(t *testing.T) {
	g := spec(t, "pair")
	if len(g.Switches()) != 0 {
		t.Skipf("a pair has %d switches", len(g.Switches()))
	}
	n := networkOf(t, g)
	h := n.manage(0, Config{})
	n.up(h)
	n.works()
	n.cut(n.hostRef(0))
	n.pass(20 * ib.Second)
	n.join(n.hostRef(0))
	n.whole(15*ib.Second, h)
}

// TestDeadNodeDoesNotStopLightSweeps: while a node that does not answer is waited for, everything else is looked after,
// and a look at a switch does not become a full sweep.
func TestDeadNodeDoesNotStopLightSweeps(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	dead := n.hostRef(6).Node
	n.deaf[dead] = true
	h := n.manage(0, Config{})
	n.up(h)
	n.works(dead)
	n.pass(100 * ib.Second)
	light, full := h.m.Counters().LightSweeps, h.m.Sweeps()
	n.pass(100 * ib.Second)
	if got := h.m.Counters().LightSweeps - light; got < 8 {
		t.Errorf("%d light sweeps in 100 s", got)
	}
	if got := h.m.Sweeps() - full; got > 3 {
		t.Errorf("%d sweeps for a dead node in 100 s", got)
	}
	n.resetCounts()
	n.traps = false
	n.cut(n.switchLinks()[1])
	n.must(11*ib.Second, "it is noticed", func() bool { return h.said("link lost") && h.rests() })
	if h.m.Last().Full {
		t.Errorf("a look became a full sweep: %v", h.m.Last())
	}
	n.works(dead)
	delete(n.deaf, dead)
	n.whole(400*ib.Second, h)
}

// TestChangeDuringFirstSweep: links that come up, or go down, while the first sweep goes on are not forgotten, although
// no trap can tell.
func TestChangeDuringFirstSweep(t *testing.T) {
	const shape = "fat-tree:radix=4,levels=2"
	probe := newNetwork(t, shape)
	h := probe.manage(0, Config{})
	probe.up(h)
	total := probe.carried
	rng := rand.New(rand.NewPCG(5, 6))
	for at := 3; at < total; at += 5 {
		for _, restart := range []bool{false, true} {
			n := newNetwork(t, shape)
			n.traps = false
			links := append(n.switchLinks(), n.hostRef(1), n.hostRef(5))
			ref := links[rng.IntN(len(links))]
			var memory Memory
			if restart {
				h := n.manage(0, Config{})
				n.up(h)
				memory, _ = h.m.TakeMemory()
				h.die()
				n.carried = 0
			}
			down := restart && at%2 == 0
			if !down {
				n.cut(ref)
			}
			n.before[at] = func() {
				if down {
					n.cut(ref)
				} else {
					n.join(ref)
				}
			}
			h := n.manage(0, Config{Memory: memory})
			var without []int
			if down && n.hcas[ref.Node] != nil {
				without = []int{ref.Node}
			}
			if !n.until(60*ib.Second, func() bool { return len(n.before) == 0 }) {
				continue // the sweep was shorter
			}
			if !n.until(25*ib.Second, func() bool { return h.rests() && n.broken(without...) == "" }) {
				t.Fatalf("restart %v: change of %s (down: %v) at datagram %d of %d: %s\n%s", restart, n.g.PortName(ref),
					down, at, total, n.broken(without...), n.logs())
			}
		}
	}
}

// TestLightSweepsAmongTraps: sweeps for a trap that is repeated again and again do not keep light sweeps from looking
// at everything else, whatever the interval of one has to do with that of the other.
func TestLightSweepsAmongTraps(t *testing.T) {
	for ms := ib.Time(8); ms <= 22; ms++ {
		n := newNetwork(t, "fat-tree:radix=4,levels=2")
		n.latency = 50 * ib.Microsecond
		n.lose = func(_ topo.PortRef, v mad.View) bool { return v.Method() == mad.MethodTrapRepress }
		h := n.manage(0, Config{Window: 1, SubnetTimeout: 1, SweepInterval: ms * ib.Millisecond})
		n.must(ib.Second, "the subnet is published", func() bool { return h.m.Subnet() != nil })
		n.flap(n.switchLinks()[0])
		n.pass(100 * ib.Millisecond)
		before, sweeps := h.m.Counters().Traps, h.m.Sweeps()
		n.pass(100 * ib.Millisecond)
		if h.m.Counters().Traps < before+5 || h.m.Sweeps() < sweeps+5 {
			t.Fatalf("%d traps and %d sweeps in 100 ms: not much of a test", h.m.Counters().Traps-before,
				h.m.Sweeps()-sweeps)
		}
		if err := n.switches[n.leafOf(n.hostRef(5))].SetRoute(n.lid(n.hostRef(0)), mad.LFTNone); err != nil {
			t.Fatal(err)
		}
		n.must(200*ib.Millisecond, fmt.Sprintf("it is noticed, light sweeps come every %d ms", ms), func() bool {
			return n.broken() == ""
		})
	}
}

// TestSwitchStartsAnewInSweep: a switch that forgets its tables while a sweep goes on is given them, although the sweep
// itself gives it the address, the end of its table and the active link of one that has not forgotten. Neither traps
// nor light sweeps are there to help.
func TestSwitchStartsAnewInSweep(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	n.traps = false
	old := n.manage(0, Config{SweepInterval: -1})
	n.up(old)
	memory, _ := old.m.TakeMemory()
	old.die()
	cable := n.switchLinks()[1]
	n.flap(cable)
	spine := n.g.Port(cable).Peer
	if n.leafOf(n.hostRef(0)) == spine {
		t.Fatal("that is a leaf")
	}
	n.see = func(node int, req, _ mad.View) {
		if node != spine && req.Method() == mad.MethodSet && req.AttrID() == mad.AttrPortInfo {
			n.see = nil // addresses are given now
			n.reboot(spine)
		}
	}
	h := n.manage(1, Config{Memory: memory, SweepInterval: -1})
	n.must(ib.Second, "the switch starts anew", func() bool { return n.see == nil })
	n.pass(3 * ib.Second)
	n.works()
	if !h.said("has changed meanwhile") {
		t.Errorf("nobody has noticed: not much of a test\n%s", n.logs())
	}
}

// TestHostsOfLightSweeps: a host that has got another manager's address, or another one itself, or has lost both, is
// put right without any trap: within some light sweeps, and with the next where a manager runs. A host that does not
// answer makes no sweep.
func TestHostsOfLightSweeps(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *hca.Port)
		full bool
	}{
		{"another manager", func(p *hca.Port) { p.SMLID = 99 }, true},
		{"another address", func(p *hca.Port) { p.LID = 98 }, true},
		{"both", func(p *hca.Port) { p.LID, p.SMLID = 98, 98 }, true},
		{"none", func(p *hca.Port) { p.LID, p.SMLID = 0, 0 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, "fat-tree:radix=8,levels=2")
			n.traps = false
			h := n.manage(0, Config{Priority: 5})
			n.up(h)
			standby := n.manage(7, Config{})
			n.pass(5 * ib.Second)
			h.m.Sweep(n.now, "test")
			n.pass(5 * ib.Second)
			if standby.m.State() != mad.SMStandby || n.smlid(h) != "" || len(h.m.Subnet().Managers) != 2 {
				t.Fatalf("no standby, or %s\n%s", n.smlid(h), n.logs())
			}
			was := n.lids()
			for k, ref := range hostPorts(n.g) {
				if k == 0 {
					continue // the manager's own port
				}
				sweeps := h.m.Sweeps()
				p := *n.hcas[ref.Node].Port(ref.Port)
				c.do(&p)
				n.hcas[ref.Node].SetPort(ref.Port, p)
				limit := lightShare * 10 * ib.Second
				if ref == standby.ref {
					limit = 10 * ib.Second
				}
				n.must(limit+ib.Second, n.g.PortName(ref)+" is put right", func() bool {
					return n.smlid(h) == "" && n.lid(ref) == was[ref] && h.rests()
				})
				if h.m.Sweeps() != sweeps+1 || h.m.Last().Full != c.full {
					t.Errorf("%d sweeps, the last one full: %v\n%s", h.m.Sweeps()-sweeps, h.m.Last().Full, n.logs())
				}
			}
			n.works()
			n.deaf[n.hostRef(5).Node] = true
			sweeps := h.m.Sweeps()
			n.pass(lightShare * 11 * ib.Second)
			if h.m.Sweeps() != sweeps {
				t.Errorf("%d sweeps for a host that does not answer\n%s", h.m.Sweeps()-sweeps, n.logs())
			}
		})
	}
}

// TestSilentWhileRead: a switch whose table seems to be as long as can be falls silent while it is read. The sweep does
// not wait for all of its blocks, one after the other, and the next one reads it again.
func TestSilentWhileRead(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	h := n.manage(0, Config{})
	n.up(h)
	leaf := n.leafOf(n.hostRef(5))
	if err := n.switches[leaf].SetLinearFDBTop(ib.LIDUnicastMax); err != nil {
		t.Fatal(err)
	}
	silent := 0
	n.answers[leaf] = func(req, _ mad.View) fate {
		if req.AttrID() == mad.AttrNodeInfo && silent > 0 {
			delete(n.answers, leaf) // another sweep has begun
		}
		if req.AttrID() != mad.AttrLFT || h.m.sweep == nil {
			return fate{}
		}
		silent++
		return fate{drop: true}
	}
	n.must(15*ib.Second, "its table is read", func() bool { return silent > 0 })
	n.must(2*ib.Second, "it is read", func() bool { return h.said("swept (a table could not be read)") && h.rests() })
	n.works()
}

// TestSilentNeighbour: a switch whose table is read has a neighbour that does not answer. That is no reason to read it
// again.
func TestSilentNeighbour(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	h := n.manage(0, Config{SweepInterval: -1})
	n.up(h)
	cable := n.switchLinks()[1]
	n.answers[n.g.Port(cable).Peer] = func(mad.View, mad.View) fate { return fate{drop: true} }
	h.m.doubtAll()
	h.m.Sweep(n.now, "test")
	n.must(10*ib.Second, "it is swept", func() bool { return h.said("swept (test)") })
	if h.said("could not be read") || !h.said("what is behind it does not answer") {
		t.Errorf("a sweep was given up, or nobody was silent\n%s", n.logs())
	}
}

// TestFallsSilentInSweep: a sweep is started over when a node falls silent that it has found, but not each time for one
// that never answers some question.
func TestFallsSilentInSweep(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	h := n.manage(0, Config{SweepInterval: -1})
	n.up(h)
	host := n.hostRef(5)
	silent := func(req, _ mad.View) fate { return fate{drop: req.AttrID() == mad.AttrPKeyTable} }
	sweep := func(want string) {
		t.Helper()
		h.since()
		h.m.unsure[n.g.Nodes[host.Node].GUID] = true // its table is to be read
		h.m.Sweep(n.now, "test")
		n.must(5*ib.Second, "it is swept", func() bool { return h.said("swept (") })
		if !h.said("swept (", want) {
			t.Errorf("want that it is swept because %s\n%s", want, n.logs())
		}
	}
	for range 2 {
		n.answers[host.Node] = silent
		sweep("has fallen silent")
		sweep("test")
		delete(n.answers, host.Node)
		sweep("test")
	}
	n.works()
}
