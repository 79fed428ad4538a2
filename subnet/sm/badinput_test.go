package sm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// leafOf is the switch that a host hangs on.
func (n *network) leafOf(ref topo.PortRef) int { return n.g.Port(ref).Peer }

func TestNetworkComesUp(t *testing.T) {
	for _, shape := range []string{"pair", "star:4", topo.DefaultSpec, "ring:6", "torus:4x4"} {
		t.Run(shape, func(t *testing.T) {
			n := newNetwork(t, shape)
			h := n.manage(0, Config{})
			n.up(h)
			n.works()
			if h.m.Last().Problems != 0 {
				t.Fatal(n.logs())
			}
		})
	}
}

// misbehaviour is how a node answers wrongly. Every node of the fabric tries each.
var misbehaviours = []struct {
	name string
	do   func(req, resp mad.View) fate
	// lost means that what hangs on the node cannot be had while it goes on.
	lost bool
}{
	{"late, but in time", func(_, _ mad.View) fate { return fate{late: 150 * ib.Millisecond} }, false},
	{"too late", func(_, _ mad.View) fate { return fate{late: 900 * ib.Millisecond} }, true},
	{"after the first timeout", func(_, _ mad.View) fate { return fate{late: 250 * ib.Millisecond} }, false},
	{"twice", func(_, _ mad.View) fate { return fate{twice: true} }, false},
	{"never", func(_, _ mad.View) fate { return fate{drop: true} }, true},
	{"garbage", func(_, resp mad.View) fate {
		for i := mad.SMPDataOff; i < mad.SMPDataOff+mad.SMPDataLen; i++ {
			resp[i] = byte(i*37 + 11)
		}
		return fate{}
	}, true},
	{"zeros", func(_, resp mad.View) fate { clear(resp[mad.SMPDataOff:][:mad.SMPDataLen]); return fate{} }, true},
	{"ones", func(_, resp mad.View) fate {
		for i := mad.SMPDataOff; i < mad.SMPDataOff+mad.SMPDataLen; i++ {
			resp[i] = 0xFF
		}
		return fate{}
	}, true},
	{"another attribute", func(_, resp mad.View) fate { resp[17] ^= 3; return fate{} }, true},
	{"an error", func(_, resp mad.View) fate { resp.SetStatus(mad.StatusUnsupMethodAttr); return fate{} }, true},
	{"busy", func(_, resp mad.View) fate { resp.SetStatus(mad.StatusBusy); return fate{} }, true},
	{"another block", func(req, resp mad.View) fate {
		if req.AttrMod() != 0 {
			resp[23] ^= 1
		}
		return fate{}
	}, true},
	{"no GUID", edit(mad.AttrNodeInfo, func(d []byte) { clear(d[12:20]) }), true},
	{"no ports", edit(mad.AttrNodeInfo, func(d []byte) { d[3] = 0 }), true},
	{"255 ports", edit(mad.AttrNodeInfo, func(d []byte) { d[3] = 255 }), true},
	{"254 ports", edit(mad.AttrNodeInfo, func(d []byte) { d[3] = 254 }), true},
	{"no type", edit(mad.AttrNodeInfo, func(d []byte) { d[2] = 9 }), true},
	{"port out of range", edit(mad.AttrNodeInfo, func(d []byte) { d[36] = 200 }), true},
	{"port 0", edit(mad.AttrNodeInfo, func(d []byte) { d[36] = 0 }), true},
	{"ports that are down", edit(mad.AttrPortInfo, func(d []byte) { d[32] = d[32]&0xF0 | byte(ib.PortDown) }), true},
	{"ports in no state", edit(mad.AttrPortInfo, func(d []byte) { d[32] = d[32]&0xF0 | 9 }), true},
	{"ports that are always in Initialize", edit(mad.AttrPortInfo,
		func(d []byte) { d[32] = d[32]&0xF0 | byte(ib.PortInit) }), true},
	{"ports with an address of their own", edit(mad.AttrPortInfo, func(d []byte) { d[16], d[17] = 0xBF, 0x01 }), true},
	{"a multicast address", edit(mad.AttrPortInfo, func(d []byte) { d[16], d[17] = 0xC1, 0x01 }), true},
	{"never to Set", func(req, _ mad.View) fate { return fate{drop: req.Method() == mad.MethodSet} }, false},
	{"an error to Set", func(req, resp mad.View) fate {
		if req.Method() == mad.MethodSet {
			resp.SetStatus(mad.StatusInvalidField)
		}
		return fate{}
	}, false},
	{"an error to tables", func(req, resp mad.View) fate {
		if req.AttrID() == mad.AttrLFT {
			resp.SetStatus(mad.StatusInvalidField)
		}
		return fate{}
	}, false},
	{"an error to multicast tables", func(req, resp mad.View) fate {
		if req.AttrID() == mad.AttrMFT {
			resp.SetStatus(mad.StatusInvalidField)
		}
		return fate{}
	}, false},
	{"only to NodeInfo", func(req, _ mad.View) fate { return fate{drop: req.AttrID() != mad.AttrNodeInfo} }, true},
	{"not to every third", func() func(req, _ mad.View) fate {
		k := 0
		return func(req, _ mad.View) fate { k++; return fate{drop: k%3 == 0} }
	}(), false},
	{"no room for tables", edit(mad.AttrSwitchInfo, func(d []byte) { clear(d[:8]) }), false},
	{"a table that ends elsewhere", edit(mad.AttrSwitchInfo, func(d []byte) { d[6], d[7] = 0, 3 }), false},
}

// edit changes the data of answers about one attribute.
func edit(attr mad.AttrID, f func(data []byte)) func(req, resp mad.View) fate {
	return func(req, resp mad.View) fate {
		if req.AttrID() == attr {
			f(resp[mad.SMPDataOff:][:mad.SMPDataLen])
		}
		return fate{}
	}
}

// TestMisbehaviour lets one node at a time misbehave, from the start or when the subnet is up: the sweep ends, what can
// be reached without it works, the rest is named, and when it behaves again it is brought in.
func TestMisbehaviour(t *testing.T) {
	for _, b := range misbehaviours {
		for _, start := range []bool{true, false} {
			for _, node := range []int{0, 1, 2} { // a host, its switch, another switch
				t.Run(fmt.Sprintf("%s/start=%v/%d", b.name, start, node), func(t *testing.T) {
					n := newNetwork(t, "fat-tree:radix=4,levels=2")
					victim := n.victim(node)
					misbehave := func() { n.answers[victim] = b.do }
					if start {
						misbehave()
					}
					h := n.manage(0, Config{})
					if !start {
						n.up(h)
						misbehave()
						h.since()
						h.m.Sweep(n.now, "test")
					}
					n.must(200*ib.Second, "the sweep ends", h.rests)
					n.whole(30*ib.Second, h, n.behind(victim)...)
					if b.lost && !h.said("problem") && (node != 0 || b.name != "254 ports") &&
						(!start || b.name != "ports with an address of their own") {
						t.Errorf("nothing was said:\n%s", n.logs())
					}
					delete(n.answers, victim)
					was := n.lids()
					n.whole(700*ib.Second, h)
					for ref, l := range n.lids() {
						if was[ref] != 0 && was[ref] != l && ref.Node != victim {
							t.Errorf("%s had LID %v and has %v", n.g.PortName(ref), was[ref], l)
						}
					}
				})
			}
		}
	}
}

// victim chooses a node: a host that is not the manager's, the switch that it hangs on, a switch without hosts.
func (n *network) victim(kind int) int {
	far := n.hostRef(len(n.g.Hosts()) - 1)
	switch kind {
	case 0:
		return far.Node
	case 1:
		return n.leafOf(far)
	}
	for _, s := range n.g.Switches() {
		if len(n.behind(s.Index)) == 1 {
			return s.Index
		}
	}
	n.t.Fatal("no such switch")
	return -1
}

// behind is a node and the hosts that hang on it and on nothing else.
func (n *network) behind(node int) []int {
	list := []int{node}
	if n.switches[node] != nil {
		for p := 1; p < len(n.g.Nodes[node].Ports); p++ {
			if x := &n.g.Nodes[node].Ports[p]; x.Connected() && n.hcas[x.Peer] != nil {
				list = append(list, x.Peer)
			}
		}
	}
	return list
}

// TestFlapDuringSweep takes a link down and up, or only down and later up, at every few datagrams of the first sweep
// and of a later one.
func TestFlapDuringSweep(t *testing.T) {
	const shape = "fat-tree:radix=4,levels=2"
	probe := newNetwork(t, shape)
	h := probe.manage(0, Config{})
	probe.up(h)
	total := probe.carried
	rng := rand.New(rand.NewPCG(1, 2))
	for at := 1; at < total+total/4; at += 7 {
		n := newNetwork(t, shape)
		links := append(n.switchLinks(), n.hostRef(1), n.hostRef(5))
		ref := links[rng.IntN(len(links))]
		short := rng.IntN(2) == 0
		n.before[at] = func() {
			if short {
				n.flap(ref)
				return
			}
			n.cut(ref)
			n.later(ib.Time(rng.IntN(2000))*ib.Millisecond, func() { n.join(ref) })
		}
		h := n.manage(0, Config{})
		if !n.until(120*ib.Second, func() bool { return len(n.before) == 0 && h.rests() && n.broken() == "" }) {
			t.Fatalf("flap of %s at datagram %d of %d (short: %v): %s\n%s", n.g.PortName(ref), at, total, short,
				n.broken(), n.logs())
		}
	}
}

// twins makes a network in which two nodes have one GUID.
func twins(t *testing.T, shape string, a, b func(g *topo.Graph) int) (n *network, first, second int) {
	g := spec(t, shape)
	first, second = a(g), b(g)
	n = networkOf(t, g)
	guid := make([]byte, 8)
	for k := range guid {
		guid[k] = byte(g.Nodes[first].GUID >> (56 - 8*k))
	}
	port := make([]byte, 8)
	for k := range port {
		port[k] = byte(g.Nodes[first].PortGUID(max(firstPort(g.Nodes[first]), 0)) >> (56 - 8*k))
	}
	if g.Nodes[first].IsSwitch() {
		port = guid
	}
	n.answers[second] = edit(mad.AttrNodeInfo, func(d []byte) {
		copy(d[12:], guid)
		copy(d[20:], port)
	})
	return n, first, second
}

// TestDuplicateGUIDs: one of two nodes with one GUID works, what does not hang on either works, and the GUID is named;
// when the second gets its own it is taken in.
func TestDuplicateGUIDs(t *testing.T) {
	lastHost := func(g *topo.Graph) int { return g.Hosts()[len(g.Hosts())-1].Index }
	nextHost := func(g *topo.Graph) int { return g.Hosts()[len(g.Hosts())-2].Index }
	otherHost := func(g *topo.Graph) int { return g.Hosts()[3].Index }
	ownHost := func(g *topo.Graph) int { return g.Hosts()[0].Index }
	leaf := func(k int) func(g *topo.Graph) int {
		return func(g *topo.Graph) int { return g.Nodes[g.Hosts()[k].Index].Ports[1].Peer }
	}
	spine := func(k int) func(g *topo.Graph) int {
		return func(g *topo.Graph) int {
			for _, s := range g.Switches() {
				if !g.Nodes[s.Ports[1].Peer].IsSwitch() || !g.Nodes[s.Ports[2].Peer].IsSwitch() {
					continue
				}
				if k--; k < 0 {
					return s.Index
				}
			}
			return -1
		}
	}
	for _, c := range []struct {
		name string
		a, b func(*topo.Graph) int
	}{
		{"hosts on one switch", lastHost, nextHost},
		{"hosts apart", lastHost, otherHost},
		{"the manager's own", ownHost, lastHost},
		{"leaves", leaf(3), leaf(5)},
		{"the first leaf and another", leaf(0), leaf(5)},
		{"spines", spine(0), spine(1)},
		{"leaf and spine", leaf(3), spine(1)},
		{"host and switch", lastHost, spine(1)},
		{"switch and host", spine(0), lastHost},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, a, b := twins(t, "fat-tree:radix=4,levels=2", c.a, c.b)
			h := n.manage(0, Config{})
			n.must(100*ib.Second, "the sweep ends", h.rests)
			without := append(n.behind(a), n.behind(b)...)
			without = slices.DeleteFunc(without, func(i int) bool { return i == h.ref.Node })
			n.whole(30*ib.Second, h, without...)
			if !h.said("uplicate GUID") {
				t.Errorf("it is not named:\n%s", n.logs())
			}
			list := h.m.Subnet().Twins
			for _, x := range list {
				near := n.g.ByGUID(x.Switch)
				if behind := near.Ports[x.Port].Peer; x.GUID != n.g.Nodes[a].GUID || behind != a && behind != b {
					t.Errorf("a twin of %v is behind %s[%d]", x.GUID, near.Name, x.Port)
				}
			}
			if len(list) == 0 {
				t.Error("no twin is known")
			}
			delete(n.answers, b)
			n.replug(topo.PortRef{Node: b, Port: firstPort(n.g.Nodes[b])}) // as when it is replaced
			n.whole(400*ib.Second, h)
			if list := h.m.Subnet().Twins; len(list) != 0 {
				t.Errorf("twins that were: %+v", list)
			}
		})
	}
}

// TestDuplicatePortGUIDs is the same for ports of different nodes.
func TestDuplicatePortGUIDs(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	hosts := n.g.Hosts()
	a, b := hosts[2], hosts[6]
	n.answers[b.Index] = edit(mad.AttrNodeInfo, func(d []byte) {
		binary.BigEndian.PutUint64(d[20:],
			uint64(a.PortGUID(1)))
	})
	h := n.manage(0, Config{})
	n.must(100*ib.Second, "the sweep ends", h.rests)
	n.whole(30*ib.Second, h, b.Index)
	if !h.said("duplicate GUID", a.PortGUID(1).String()) {
		t.Errorf("it is not named:\n%s", n.logs())
	}
	// It appears while the subnet is up.
	delete(n.answers, b.Index)
	n.replug(topo.PortRef{Node: b.Index, Port: 1})
	n.whole(100*ib.Second, h)
	h.since()
	n.answers[b.Index] = edit(mad.AttrNodeInfo, func(d []byte) {
		binary.BigEndian.PutUint64(d[20:],
			uint64(a.PortGUID(1)))
	})
	n.replug(topo.PortRef{Node: b.Index, Port: 1})
	n.must(5*ib.Second, "it is named", func() bool {
		return h.said("duplicate GUID", a.PortGUID(1).String()) &&
			h.rests()
	})
	n.works(b.Index)
}

// TestMovedCable moves a host from one switch to another. The two switches tell it in any order. Where ports have keys
// of their own it keeps its key.
func TestMovedCable(t *testing.T) {
	for name, cfg := range map[string]Config{"": {}, ", guarded": {MKey: 1, MKeyPerPort: true, MKeyProtect: 2}} {
		testMovedCable(t, name, cfg)
	}
}

func testMovedCable(t *testing.T, name string, cfg Config) {
	for _, order := range []string{"old", "new", "both"} {
		t.Run(order+" first"+name, func(t *testing.T) {
			g := spec(t, "fat-tree:radix=4,levels=2")
			hosts := g.Hosts()
			host, spare := hosts[2], hosts[7]
			n := networkOf(t, g)
			n.cut(topo.PortRef{Node: spare.Index, Port: 1})
			h := n.manage(0, cfg)
			n.up(h)
			n.works(spare.Index)
			lid := n.lid(topo.PortRef{Node: host.Index, Port: 1})
			// The spare host's cable goes to the host.
			from, to := host.Ports[1], spare.Ports[1]
			n.cut(topo.PortRef{Node: host.Index, Port: 1})
			host.Ports[1].Peer, host.Ports[1].PeerPort = to.Peer, to.PeerPort
			g.Nodes[to.Peer].Ports[to.PeerPort].Peer, g.Nodes[to.Peer].Ports[to.PeerPort].PeerPort = host.Index, 1
			g.Nodes[from.Peer].Ports[from.PeerPort].PeerPort = 0
			spare.Ports[1].PeerPort = 0
			// Who is silent for a while tells its part later.
			late := func(node int) {
				n.mum[node] = true
				n.later(300*ib.Millisecond, func() { n.mum[node] = false })
			}
			switch order {
			case "old":
				late(to.Peer)
			case "new":
				late(from.Peer)
			}
			n.join(topo.PortRef{Node: host.Index, Port: 1})
			n.whole(5*ib.Second, h, spare.Index)
			if h.said("uplicate GUID") {
				t.Errorf("a move was taken for a duplicate:\n%s", n.logs())
			}
			if got := n.lid(topo.PortRef{Node: host.Index, Port: 1}); got != lid {
				t.Errorf("LID %v, was %v", got, lid)
			}
		})
	}
}

// TestGoneAround: a switch in use that takes no more tables is gone around, and used again when it does.
func TestGoneAround(t *testing.T) {
	for _, how := range []string{"silence", "refusal"} {
		t.Run(how, func(t *testing.T) {
			n := newNetwork(t, small)
			h := n.manage(0, Config{})
			n.up(h)
			n.pass(5 * ib.Second)
			spine := n.victim(2)
			n.answers[spine] = func(req, resp mad.View) fate {
				if req.Method() == mad.MethodSet && req.AttrID() == mad.AttrLFT {
					resp.SetStatus(mad.StatusInvalidField)
					return fate{drop: how == "silence"}
				}
				return fate{}
			}
			// What the agent did before its answer is undone: the switch does not take what it is told.
			held := n.switches[spine]
			var was [64]ib.PortNum
			for l := range was {
				was[l] = held.Route(ib.LID(l))
			}
			n.see = func(node int, req, _ mad.View) {
				if node == spine && req.Method() == mad.MethodSet && req.AttrID() == mad.AttrLFT {
					if err := held.SetLFT(0, was); err != nil {
						t.Fatal(err)
					}
				}
			}
			// A link of the switch goes, which changes its table.
			ref := topo.PortRef{Node: spine, Port: firstPort(n.g.Nodes[spine])}
			n.cut(ref)
			n.pass(20 * ib.Second)
			if !h.said("problem") || h.m.failing[failingPort{n.g.Nodes[spine].GUID, 0}] < failingAfter {
				t.Errorf("it is not noticed: %v\n%s", h.m.failing, n.logs())
			}
			n.works(spine)
			for _, from := range hostPorts(n.g) {
				for _, to := range hostPorts(n.g) {
					hops, _, _ := n.walk(from, n.lid(to))
					if from != to && slices.ContainsFunc(hops, func(r topo.PortRef) bool { return r.Node == spine }) {
						t.Fatalf("%s to %s goes through it", n.g.PortName(from), n.g.PortName(to))
					}
				}
			}
			n.join(ref)
			delete(n.answers, spine)
			n.see = nil
			n.whole(400*ib.Second, h)
			if len(h.m.failing) != 0 {
				t.Errorf("still failing: %v", h.m.failing)
			}
		})
	}
}
