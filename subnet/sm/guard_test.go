package sm

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// TestKeysPerPort gives every port a key of its own: none opens another port, none is shown, and the manager goes on to
// speak to all of them.
func TestKeysPerPort(t *testing.T) {
	w := build(t, spec(t, "fat-tree:radix=4,levels=2"))
	cfg := Config{MKey: 0x1111, MKeyProtect: 2, MKeyPerPort: true}
	r := newRig(t, w, cfg)
	r.edit = func(_ int, v mad.View) {
		if v.MKey() == cfg.MKey {
			t.Fatal("the key that others are made from goes over the wire")
		}
	}
	r.settle()
	seen := map[uint64]int{}
	r.guards(func(node int, in ib.PortNum) {
		key := r.m.MKey(r.endGUID(node))
		if other, twice := seen[key]; twice || key == 0 || key == cfg.MKey {
			t.Errorf("nodes %d and %d have key %#x", node, other, key)
		}
		seen[key] = node
		var pi mad.PortInfo
		pi.Parse(r.get(mad.ClassSMLID, node, in, mad.AttrPortInfo, 0, key).Data())
		if pi.MKey != key || pi.MKeyProtectBits != 2 {
			t.Errorf("%s: key %#x, level %d: want %#x, 2", w.g.Nodes[node].Name, pi.MKey, pi.MKeyProtectBits, key)
		}
	})
	r.guards(func(node int, in ib.PortNum) {
		for key, of := range seen {
			if of != node && r.opens(node, in, mad.MethodGet, key) {
				t.Errorf("node %d opens to the key of %d", node, of)
			}
		}
		if r.opens(node, in, mad.MethodGet, 0) || r.opens(node, in, mad.MethodSet, cfg.MKey) {
			t.Errorf("node %d opens without its key", node)
		}
	})
	sets := r.sets
	r.m.Sweep(r.now, "test")
	r.settle()
	if r.m.Last().Problems > 0 || r.sets != sets {
		t.Errorf("a second sweep has %d problems and %d Sets: %q", r.m.Last().Problems, r.sets-sets, r.log)
	}
	// From a key for all to one for each, and back to none.
	r.m.SetMKeys(r.now, MKeyPolicy{Key: 0x2222, Protect: 1})
	r.settle()
	r.wantKey(0x2222, 1, 0)
	ticket := r.m.SetMKeys(r.now, MKeyPolicy{Key: 0x3333, PerPort: true, Protect: 2})
	r.settle()
	if r.m.Force().Ticket != ticket || len(r.m.Force().Refusals) > 0 {
		t.Errorf("in force: %+v, want ticket %d", r.m.Force(), ticket)
	}
	r.guards(func(node int, in ib.PortNum) {
		if r.opens(node, in, mad.MethodGet, 0x2222) || !r.opens(node, in, mad.MethodGet, r.m.MKey(r.endGUID(node))) {
			t.Errorf("node %d does not have its new key", node)
		}
	})
	r.m.SetMKeys(r.now, MKeyPolicy{})
	r.settle()
	r.wantKey(0, 0, 0)
}

// TestKeyOfMovedHost puts two hosts in each other's places. They keep their keys, and the manager finds out which those
// are. (TestMovedCable moves one.)
func TestKeyOfMovedHost(t *testing.T) {
	g := spec(t, "fat-tree:radix=4,levels=2")
	w := build(t, g)
	r := newRig(t, w, Config{MKey: 0x1111, MKeyProtect: 2, MKeyPerPort: true})
	r.settle()
	a, b := g.Hosts()[2], g.Hosts()[5]
	x, y := &a.Ports[1], &b.Ports[1]
	g.Nodes[x.Peer].Ports[x.PeerPort].Peer, g.Nodes[y.Peer].Ports[y.PeerPort].Peer = b.Index, a.Index
	x.Peer, x.PeerPort, y.Peer, y.PeerPort = y.Peer, y.PeerPort, x.Peer, x.PeerPort
	r.m.Sweep(r.now, "two cables were swapped")
	r.run()
	r.pass(60 * ib.Second)
	if r.m.Last().Problems > 0 || r.m.Last().Hosts != len(g.Hosts()) {
		t.Errorf("%d problems, %d hosts: %q", r.m.Last().Problems, r.m.Last().Hosts, r.log)
	}
}

// TestTampering writes partitions behind the manager's back, at a host and at the switch in front of it.
func TestTampering(t *testing.T) {
	w := build(t, spec(t, "fat-tree:radix=4,levels=2"))
	r := newRig(t, w, Config{Partitions: parts(t, "Default=0x7fff : ALL=limited, SELF=full ;\n"+
		"red=0x1001 : "+w.g.Hosts()[2].PortGUID(1).String()+"=full ;\n")})
	r.settle()
	victim := w.g.Hosts()[2]
	front := topo.PortRef{Node: victim.Ports[1].Peer, Port: victim.Ports[1].PeerPort}
	was := r.get(mad.ClassSMLID, victim.Index, 1, mad.AttrPKeyTable, 0, 0)
	mod := mad.PKeyModifier(front.Port, 0)
	wasFront := r.get(mad.ClassSMLID, front.Node, 0, mad.AttrPKeyTable, mod, 0)
	info := r.get(mad.ClassSMLID, front.Node, 0, mad.AttrPortInfo, uint32(front.Port), 0)
	if n := r.m.Counters().Tampered; n != 0 {
		t.Fatalf("%d ports are said to be tampered with before anybody did: %q", n, r.log)
	}
	forge := func(node int, attr mad.AttrID, mod uint32, change func(mad.View)) {
		t.Helper()
		req := r.get(mad.ClassSMLID, node, 1, attr, mod, 0)
		req.SetMethod(mad.MethodSet)
		change(req)
		var resp [mad.Size]byte
		_, ok := w.agents[node].HandleMAD(r.now, 1, req, resp[:])
		if !ok || mad.View(resp[:]).Status() != mad.StatusOK {
			t.Fatalf("the forged Set was not taken: %v", mad.View(resp[:]).Status())
		}
	}
	forge(victim.Index, mad.AttrPKeyTable, 0, func(v mad.View) { v.Data()[0], v.Data()[1] = 0xFF, 0xFF })
	forge(front.Node, mad.AttrPKeyTable, mod, func(v mad.View) { v.Data()[8], v.Data()[9] = 0x90, 0x02 })
	forge(front.Node, mad.AttrPortInfo, uint32(front.Port), func(v mad.View) {
		var pi mad.PortInfo
		pi.Parse(v.Data())
		pi.PartitionEnforcementInbound, pi.PartitionEnforcementOutbound = false, false
		pi.PortState, pi.PortPhysicalState = 0, 0 // as they are
		pi.Append(v.Data()[:0])
	})
	r.m.Sweep(r.now, "test")
	r.settle()
	same := func(what string, a, b mad.View) {
		t.Helper()
		if string(a.Data()) != string(b.Data()) {
			t.Errorf("%s is not as it was", what)
		}
	}
	same("the host's table", was, r.get(mad.ClassSMLID, victim.Index, 1, mad.AttrPKeyTable, 0, 0))
	same("the table in front", wasFront, r.get(mad.ClassSMLID, front.Node, 0, mad.AttrPKeyTable, mod, 0))
	same("the port in front", info, r.get(mad.ClassSMLID, front.Node, 0, mad.AttrPortInfo, uint32(front.Port), 0))
	if n := r.m.Counters().Tampered; n != 3 || !r.logged("tamper", "holds partition keys [0xffff", "any host") ||
		!r.logged("tamper", "does not check partitions") {
		t.Errorf("%d ports are said to be tampered with: %q", n, r.log)
	}
	r.m.Sweep(r.now, "test")
	r.settle()
	if n := r.m.Counters().Tampered; n != 3 {
		t.Errorf("%d ports after everything was put right", n)
	}
	// Nobody asks for a sweep: a light one finds it, in a block that is not in use too.
	sweeps := r.m.Counters().Sweeps
	for i, x := range []struct {
		node int
		mod  uint32
	}{{victim.Index, 0}, {victim.Index, 3}, {front.Node, mod}} {
		is := r.get(mad.ClassSMLID, x.node, 1, mad.AttrPKeyTable, x.mod, 0)
		forge(x.node, mad.AttrPKeyTable, x.mod, func(v mad.View) { v.Data()[40], v.Data()[41] = 0x90, 0x03 })
		r.pass(2 * DefaultSweepInterval)
		if n := r.m.Counters().Tampered; n != uint64(4+i) {
			t.Errorf("%d ports are said to be tampered with after light sweeps: want %d: %q", n, 4+i, r.log)
		}
		same("a table after light sweeps", is, r.get(mad.ClassSMLID, x.node, 1, mad.AttrPKeyTable, x.mod, 0))
	}
	if n := r.m.Counters().Sweeps - sweeps; n != 3 {
		t.Errorf("%d sweeps for 3 tables", n)
	}
}

// TestRefusedKeyIsFollowed has a switch tell that it refused a key: the tables of that switch are looked at.
func TestRefusedKeyIsFollowed(t *testing.T) {
	w := build(t, spec(t, "fat-tree:radix=4,levels=2"))
	r := newRig(t, w, Config{Partitions: parts(t, "Default=0x7fff : ALL=limited, SELF=full ;\n")})
	r.settle()
	victim := w.g.Hosts()[2]
	front := topo.PortRef{Node: victim.Ports[1].Peer, Port: victim.Ports[1].PeerPort}
	mod := mad.PKeyModifier(front.Port, 0)
	req := r.get(mad.ClassSMLID, front.Node, 0, mad.AttrPKeyTable, mod, 0)
	req.SetMethod(mad.MethodSet)
	req.Data()[2], req.Data()[3] = 0x90, 0x01
	w.agents[front.Node].HandleMAD(r.now, 1, req, make([]byte, mad.Size))
	lid, _ := w.switches[front.Node].LID()
	n := mad.Notice{IsGeneric: true, Type: mad.NoticeSecurity, ProducerTypeVendorID: 2,
		TrapNumberDeviceID: mad.TrapBadPKeySwitch, IssuerLID: lid}
	hdr := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodTrap,
		AttributeID: mad.AttrNotice}
	trap := append(hdr.Append(nil), make([]byte, mad.Size)...)[:mad.Size]
	n.Append(trap[mad.SMPDataOff:mad.SMPDataOff])
	r.m.HandleRequest(r.now, mad.Envelope{LID: lid}, trap)
	r.run()
	if r.m.Counters().Tampered != 1 {
		t.Errorf("not found: %q", r.log)
	}
	if got := r.get(mad.ClassSMLID, front.Node, 0, mad.AttrPKeyTable, mod, 0).Data(); got[2] != 0 || got[3] != 0 {
		t.Errorf("the key that somebody wrote is still there: % x", got[:8])
	}
}

// endGUID is the GUID of a node's only end port.
func (r *rig) endGUID(node int) ib.GUID {
	if n := r.w.g.Nodes[node]; !n.IsSwitch() {
		return n.PortGUID(1)
	}
	return r.w.g.Nodes[node].PortGUID(0)
}

// TestLightKeysTakeTurns: light sweeps of a subnet with many tables read all of them in turn.
func TestLightKeysTakeTurns(t *testing.T) {
	w := build(t, spec(t, "fat-tree:radix=16,levels=2"))
	r := newRig(t, w, Config{Partitions: parts(t, "Default=0x7fff : ALL=limited, SELF=full ;\n")})
	r.settle()
	seen := map[keyBlock]int{}
	for round := range lightKeysTurns {
		some := r.m.someKeys(round)
		if len(some) != lightKeysLeast {
			t.Fatalf("a light sweep reads %d blocks: want %d", len(some), lightKeysLeast)
		}
		for _, k := range some {
			seen[k]++
		}
	}
	blocks := len(w.g.Hosts()) * 4 // of the hosts alone
	if len(seen) < blocks {
		t.Errorf("%d of at least %d blocks were read", len(seen), blocks)
	}
	for k, n := range seen {
		if most := lightKeysTurns*lightKeysLeast/len(seen) + 1; n > most {
			t.Errorf("%v was read %d times: want at most %d", k, n, most)
		}
	}
}

// TestNeighborsRemembered: where each port has a key of its own, a manager that starts anew finds its way by who was
// where, and none without.
func TestNeighborsRemembered(t *testing.T) {
	w := build(t, spec(t, "fat-tree:radix=4,levels=2"))
	cfg := Config{MKey: 0x1111, MKeyProtect: 2, MKeyPerPort: true, Self: w.g.Hosts()[0].PortGUID(1)}
	r := newRig(t, w, cfg)
	r.settle()
	m, ok := r.m.TakeMemory()
	if !ok || len(m.Neighbors) != 2*w.g.NumCables() {
		t.Fatalf("%d ends of cables are remembered: want %d", len(m.Neighbors), 2*w.g.NumCables())
	}
	r.m.Sweep(r.now, "test")
	r.settle()
	if _, ok := r.m.TakeMemory(); ok {
		t.Error("a sweep that finds nothing new is worth remembering")
	}
	nodes := len(r.m.Subnet().Nodes)
	for _, knows := range []bool{true, false} {
		next := cfg
		if knows {
			next.Memory.Neighbors = m.Neighbors
		}
		r.m = New(next)
		r.m.Start(r.now)
		r.run()
		if sub := r.m.Subnet(); knows && (sub == nil || len(sub.Nodes) != nodes || r.m.Last().Problems > 0) {
			t.Fatalf("with its memory it does not find all:\n%q", r.log)
		} else if !knows && sub != nil && len(sub.Nodes) == nodes {
			t.Error("without its memory it finds all: the test shows nothing")
		}
	}
}
