package sm

import (
	"encoding/binary"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// TestLinkTrap: a trap makes the manager look at that switch, at its far end, and at nothing else.
func TestLinkTrap(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=8,levels=3")
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(5 * ib.Second)
	ref := n.switchLinks()[40]
	far := n.g.Port(ref).Peer
	n.resetCounts()
	sweeps := h.m.Sweeps()
	n.cut(ref)
	n.must(100*ib.Millisecond, "it is seen", func() bool { return h.m.Sweeps() > sweeps })
	n.pass(4 * ib.Second)
	if h.m.Last().Full {
		t.Error("a full sweep")
	}
	reads := 0
	n.see = nil
	for node, count := range n.gets {
		// Others are told their new tables, no more.
		if node != ref.Node && node != far && count > 8 {
			t.Errorf("%s was asked %d times", n.g.Nodes[node].Name, count)
		}
		reads += count
	}
	// Each of the two switches has 9 ports, which are read twice; then there are the tables.
	if reads-n.sets[mad.AttrLFT] > 60 {
		t.Errorf("%d datagrams beside %d blocks of tables", reads, n.sets[mad.AttrLFT])
	}
	n.works()
	if !h.said("trap", "128") || h.m.Counters().Traps == 0 {
		t.Errorf("not logged:\n%s", n.logs())
	}
}

// TestTrapsAreRepressed: a node that has been answered says no more, and one whose manager is away goes on.
func TestTrapsAreRepressed(t *testing.T) {
	n := newNetwork(t, small)
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(3 * ib.Second)
	traps := h.m.Counters().Traps
	n.cut(n.switchLinks()[3])
	n.pass(30 * ib.Second)
	// An answer may be lost on its way, while tables change.
	if got := h.m.Counters().Traps - traps; got < 2 || got > 4 {
		t.Errorf("%d traps of one link that was lost: want one from each end", got)
	}
	traps = h.m.Counters().Traps
	n.pass(30 * ib.Second)
	if got := h.m.Counters().Traps - traps; got != 0 {
		t.Errorf("%d traps more", got)
	}
}

// TestTrapStorm: a node that says the same for ever fills neither the log nor the memory, nor does it keep the manager
// from its work.
func TestTrapStorm(t *testing.T) {
	n := newNetwork(t, small)
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(3 * ib.Second)
	h.since()
	from := n.lid(n.hostRef(3))
	notice := mad.Notice{IsGeneric: true, TrapNumberDeviceID: mad.TrapBadPKey, IssuerLID: from}
	var b [mad.Size]byte
	hdr := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodTrap,
		AttributeID: mad.AttrNotice}
	hdr.Append(b[:0])
	notice.Append(b[mad.SMPDataOff:mad.SMPDataOff])
	for k := range 30_000 {
		h.m.HandleRequest(n.now, mad.Envelope{LID: from, QPN: ib.QPNSMI}, b[:])
		if k%10 == 0 {
			n.pass(ib.Millisecond)
		}
	}
	lines := 0
	for _, l := range h.log[h.at:] {
		if strings.HasPrefix(l, "trap: ") {
			lines++
		}
	}
	if lines < 3 || lines > 5 {
		t.Errorf("%d lines in 3 s", lines)
	}
	if !h.said("times before") {
		t.Errorf("those that were left out are not counted:\n%s", n.logs())
	}
	// The same from all over, with addresses that do not exist.
	for k := range 200_000 {
		h.m.HandleRequest(n.now, mad.Envelope{LID: ib.LID(k), QPN: ib.QPNSMI}, b[:])
		for len(h.m.out) > 0 {
			var s Send
			h.m.PollSend(n.now, &s)
		}
	}
	if len(h.m.trapSeen) > maxTrapKeys || len(h.m.events) > maxEvents {
		t.Errorf("%d kinds of trap and %d events are kept", len(h.m.trapSeen), len(h.m.events))
	}
	n.cut(n.switchLinks()[2])
	n.whole(5*ib.Second, h)
}

// TestHostileTraps: a host that tells again and again of a manager, or of links that only switches have, does not keep
// the manager sweeping; what it tells last is followed.
func TestHostileTraps(t *testing.T) {
	n := newNetwork(t, small)
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(3 * ib.Second)
	from := n.lid(n.hostRef(3))
	tell := func(number uint16) {
		notice := mad.Notice{IsGeneric: true, TrapNumberDeviceID: number, IssuerLID: from}
		notice.DataDetails[9] = 2 // IsSM, of a change of capabilities
		binary.BigEndian.PutUint16(notice.DataDetails[2:], uint16(from))
		var b [mad.Size]byte
		hdr := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1,
			Method: mad.MethodTrap, AttributeID: mad.AttrNotice}
		hdr.Append(b[:0])
		notice.Append(b[mad.SMPDataOff:mad.SMPDataOff])
		h.m.HandleRequest(n.now, mad.Envelope{LID: from, QPN: ib.QPNSMI}, b[:])
	}
	for number, most := range map[uint16]int{mad.TrapCapabilityChange: 5, mad.TrapLinkStateChange: 0} {
		sweeps := h.m.Sweeps()
		for range 300 {
			tell(number)
			n.pass(10 * ib.Millisecond)
		}
		got := h.m.Sweeps() - sweeps
		if got > most || got == 0 && most > 0 {
			t.Errorf("trap %d: %d sweeps in 3 s, want at most %d", number, got, most)
		}
		n.pass(3 * ib.Second)
	}
}

// TestCapabilityTraps: a description that changes is read; a manager that appears makes a full sweep.
func TestCapabilityTraps(t *testing.T) {
	n := newNetwork(t, small)
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(3 * ib.Second)
	ref := n.hostRef(5)
	n.agents[ref.Node].SetDescription("another name")
	n.must(ib.Second, "the new name is known", func() bool {
		i, ok := h.m.Subnet().ByGUID(n.g.Nodes[ref.Node].GUID)
		return ok && h.m.Subnet().Nodes[i].Desc == "another name"
	})
	n.pass(3 * ib.Second)
	if h.m.Last().Full {
		t.Error("a full sweep for a description")
	}
	leaf := n.leafOf(ref)
	n.agents[leaf].SetDescription("a leaf")
	n.must(ib.Second, "the new name is known", func() bool {
		i, ok := h.m.Subnet().ByGUID(n.g.Nodes[leaf].GUID)
		return ok && h.m.Subnet().Nodes[i].Desc == "a leaf"
	})
	sweeps := h.m.Sweeps()
	n.pass(2 * ib.Second)
	n.agents[ref.Node].SetCapability(ref.Port, mad.CapIsSM, true)
	n.must(ib.Second, "a full sweep", func() bool { return h.m.Sweeps() > sweeps && h.m.Last().Full })
}

// TestFlappingLink: a link that never comes to rest is not followed for ever by full sweeps, and the rest of the fabric
// works all the time.
func TestFlappingLink(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=3")
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(3 * ib.Second)
	bad := n.hostRef(7)
	n.resetCounts()
	before := h.m.Sweeps()
	for range 60 {
		n.cut(bad)
		n.pass(500 * ib.Millisecond)
		n.works(bad.Node)
		n.join(bad)
		n.pass(500 * ib.Millisecond)
		n.works(bad.Node)
	}
	if got := h.m.Sweeps() - before; got > 3*60 {
		t.Errorf("%d sweeps for 60 flaps", got)
	}
	n.whole(5*ib.Second, h)
}

// TestSwitchReboots: a switch that loses its power comes back as it was, with the address that it had.
func TestSwitchReboots(t *testing.T) {
	for _, traps := range []bool{true, false} {
		n := newNetwork(t, "fat-tree:radix=4,levels=3")
		n.traps = traps
		h := n.manage(0, Config{})
		n.up(h)
		n.pass(3 * ib.Second)
		was := n.lids()
		for k, s := range n.g.Switches() {
			if k%5 != 0 || s.Index == n.leafOf(h.ref) {
				continue
			}
			n.isolate(s.Index, true)
			n.pass(ib.Time(k) * 300 * ib.Millisecond)
			n.switches[s.Index].Reset()
			n.isolate(s.Index, false)
			n.whole(30*ib.Second, h)
			n.keptLIDs(was)
		}
	}
}

// TestLateRounds: a second fault comes while tables wait for packets on old routes to go. The tables are right in the
// end, and no mixture of them ever loops.
func TestLateRounds(t *testing.T) {
	for _, c := range []struct{ shape, engines string }{
		{"ring:6", "minhop"}, {"torus:4x4", "minhop"}, {"mesh:3x4", "minhop"}, {"ring:8", "updn"},
		{"torus:3x3", "dfsssp"}, {"random:switches=8,hosts=16,seed=1", "minhop"},
	} {
		t.Run(c.shape+" "+c.engines, func(t *testing.T) {
			n := newNetwork(t, c.shape)
			h := n.manage(0, Config{Engines: c.engines})
			n.up(h)
			n.pass(5 * ib.Second)
			n.see = func(node int, req, _ mad.View) {
				if req.Method() == mad.MethodSet && req.AttrID() == mad.AttrLFT {
					if why := n.loops(); why != "" {
						t.Fatalf("after block %d of %s: %s\n%s", req.AttrMod(), n.g.Nodes[node].Name, why, n.logs())
					}
				}
			}
			links := n.switchLinks()
			late, slowest := false, ib.Time(0)
			for k := range links {
				a, b := links[k], links[(k+len(links)/2)%len(links)]
				n.cut(a)
				n.until(ib.Second, func() bool { return h.m.sweep != nil && h.m.sweep.hold > n.now })
				late = late || h.m.sweep != nil
				n.pass(ib.Time(k%4) * 400 * ib.Millisecond)
				n.join(a)
				n.pass(ib.Time(k%3) * 300 * ib.Millisecond)
				n.cut(b)
				at := n.now
				n.whole(60*ib.Second, h)
				slowest = max(slowest, n.now-at)
				n.pass(3 * ib.Second)
				n.join(b)
				n.whole(60*ib.Second, h)
				n.agrees(h)
			}
			t.Logf("late rounds: %v, at most %s", late, brief(slowest))
		})
	}
}

// agrees checks that the switches hold what the manager says.
func (n *network) agrees(h *host) {
	n.t.Helper()
	n.pass(5 * ib.Second)
	for _, node := range h.m.Subnet().Nodes {
		at := n.g.ByGUID(node.Info.NodeGUID)
		if !node.IsSwitch() || at == nil {
			continue
		}
		for l, port := range node.LFT {
			if got := n.switches[at.Index].Route(ib.LID(l)); got != port {
				n.t.Fatalf("%s: LID %d by port %d, published %d\n%s", at.Name, l, got, port, n.logs())
			}
		}
	}
	if len(h.m.actual) != 0 || len(h.m.doubt) != 0 {
		n.t.Fatalf("in doubt: %d switches, other tables at %d", len(h.m.doubt), len(h.m.actual))
	}
}

// loops says which packet would go round for ever with the tables as they are.
func (n *network) loops() string {
	for _, to := range n.lids() {
		if to == 0 {
			continue
		}
		for _, s := range n.g.Switches() {
			at := s.Index
			for hops := 0; n.switches[at] != nil; hops++ {
				out := n.switches[at].Route(to)
				if out == 0 || int(out) > n.switches[at].NumPorts() {
					break
				}
				x := n.g.Port(topo.PortRef{Node: at, Port: out})
				if !x.Connected() || n.links[at][out].State() != ib.PortActive {
					break
				}
				if at = x.Peer; hops > len(n.g.Nodes) {
					return "a packet from " + s.Name + " goes round"
				}
			}
		}
	}
	return ""
}
