package sm

import (
	"fmt"
	"slices"
	"testing"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
)

// masters are the managers that think they are.
func (n *network) masters() (list []*host) {
	for _, h := range n.hosts {
		if h.m != nil && !h.dead && h.m.State() == mad.SMMaster {
			list = append(list, h)
		}
	}
	return list
}

// ruled reports whether a manager is the only master, the others stand by, and all ports know it.
func (n *network) ruled(by *host) bool {
	if list := n.masters(); len(list) != 1 || list[0] != by || !by.rests() {
		return false
	}
	for _, h := range n.hosts {
		if h.m != nil && !h.dead && h != by && h.m.State() != mad.SMStandby && h.m.State() != mad.SMNotActive {
			return false
		}
	}
	return n.broken() == "" && n.smlid(by) == ""
}

// smlid says which port does not know its manager.
func (n *network) smlid(by *host) string {
	want := n.lid(by.ref)
	for _, ref := range hostPorts(n.g) {
		if got := n.hcas[ref.Node].Port(ref.Port).SMLID; got != want {
			return fmt.Sprintf("%s has SMLID %v, want %v", n.g.PortName(ref), got, want)
		}
	}
	return ""
}

// rules waits until a manager rules.
func (n *network) rules(d ib.Time, by *host) {
	n.t.Helper()
	if !n.until(d, func() bool { return n.ruled(by) }) {
		n.t.Fatalf("not within %s the only master: %s %s\n%s", brief(d), n.broken(), n.smlid(by), n.logs())
	}
	// And it stays so.
	n.pass(100 * ib.Second)
	if !n.until(10*ib.Second, func() bool { return n.ruled(by) }) {
		n.t.Fatalf("not for long\n%s", n.logs())
	}
}

const small = "fat-tree:radix=4,levels=2"

func TestElection(t *testing.T) {
	for _, c := range []struct {
		prio []uint8 // of managers at hosts 1, 3, 5: in the order of their GUIDs
		best int
	}{
		{[]uint8{0, 0}, 0},
		{[]uint8{3, 0}, 0},
		{[]uint8{0, 3}, 1},
		{[]uint8{15, 15}, 0},
		{[]uint8{1, 1, 1}, 0},
		{[]uint8{1, 2, 3}, 2},
		{[]uint8{3, 2, 1}, 0},
		{[]uint8{1, 3, 3}, 1},
		{[]uint8{0, 9, 4}, 1},
	} {
		for _, gap := range []ib.Time{0, 20 * ib.Microsecond, 130 * ib.Microsecond, ib.Millisecond, 3 * ib.Second,
			30 * ib.Second} {
			for _, reverse := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v gap %s reverse %v", c.prio, brief(gap), reverse), func(t *testing.T) {
					n := newNetwork(t, small)
					hosts := make([]*host, len(c.prio))
					for k := range c.prio {
						at := k
						if reverse {
							at = len(c.prio) - 1 - k
						}
						hosts[at] = n.manage(2*at, Config{Priority: c.prio[at]})
						n.pass(gap)
					}
					n.rules(150*ib.Second, hosts[c.best])
				})
			}
		}
	}
}

// TestMasterDies: a standby takes over no later than its polls allow, addresses stay, and the next one takes over from
// it.
func TestMasterDies(t *testing.T) {
	n := newNetwork(t, small)
	var hosts []*host
	for k := range 3 {
		hosts = append(hosts, n.manage(2*k, Config{Priority: uint8(9 - k)}))
	}
	n.rules(100*ib.Second, hosts[0])
	was := n.lids()
	for k := range 2 {
		hosts[k].die()
		cfg := hosts[k+1].m.Config()
		limit := cfg.PollInterval*ib.Time(cfg.PollRetries+1) + cfg.Timeout*ib.Time(cfg.Retries+1) + 5*ib.Second
		n.must(limit, "somebody takes over", func() bool { return len(n.masters()) == 1 })
		n.rules(100*ib.Second, hosts[k+1])
		n.keptLIDs(was)
	}
	// One that comes back takes the subnet back, with what it remembers and without.
	hosts[0].dead = true
	again := n.manage(0, Config{Priority: 9})
	n.rules(100*ib.Second, again)
	n.keptLIDs(was)
}

// TestMasterHeardAndLeftOut: a manager has the master's answer, but none to the question that goes over its own link
// and back, which is the far end's word for that link. It looks again, and does not rule over nobody but itself. If the
// link stays in doubt it does in the end.
func TestMasterHeardAndLeftOut(t *testing.T) {
	for _, sweeps := range []int{1, setbacksMax, setbacksMax + 1} {
		t.Run(fmt.Sprint(sweeps), func(t *testing.T) {
			n := newNetwork(t, small)
			a := n.manage(0, Config{Priority: 5})
			n.up(a)
			n.pass(ib.Second)
			cfg := Config{Priority: 5}.withDefaults()
			ref := n.hostRef(5)
			back, lost := n.g.Port(ref).PeerPort, 0
			n.lose = func(at topo.PortRef, v mad.View) bool {
				if at != ref || v.Class() != mad.ClassSMDirect || v.AttrID() != mad.AttrNodeInfo || v.HopCount() != 2 ||
					v.InitialPath(2) != back || lost == sweeps*(cfg.Retries+1) {
					return false
				}
				lost++
				return true
			}
			b := n.manage(5, Config{Priority: 5})
			n.rules(100*ib.Second, a)
			if lost != sweeps*(cfg.Retries+1) {
				t.Errorf("%d questions were lost: want those of %d sweeps", lost, sweeps)
			}
			if ruled := b.said("-> Master"); ruled != (sweeps > setbacksMax) {
				t.Errorf("ruled: %v\n%s", ruled, n.logs())
			}
		})
	}
}

// TestMerge joins two subnets with a master each: one of them goes on, and no address is there twice.
func TestMerge(t *testing.T) {
	for _, prio := range [][2]uint8{{5, 5}, {5, 7}, {7, 5}} {
		t.Run(fmt.Sprint(prio), func(t *testing.T) {
			n := newNetwork(t, "line:4")
			var bridge topo.PortRef
			for _, ref := range n.switchLinks() {
				if d := n.g.Distances(n.hostRef(0).Node); d[ref.Node]+d[n.g.Port(ref).Peer] == 5 {
					bridge = ref
				}
			}
			n.cut(bridge)
			a, b := n.manage(0, Config{Priority: prio[0]}), n.manage(3, Config{Priority: prio[1]})
			n.must(20*ib.Second, "two masters", func() bool { return a.rests() && b.rests() })
			best := a
			if prio[1] > prio[0] {
				best = b
			}
			own := n.lid(best.ref)
			n.join(bridge)
			n.rules(100*ib.Second, best)
			if got := n.lid(best.ref); got != own {
				t.Errorf("the master's own LID was %v and is %v", own, got)
			}
			// And apart again.
			n.cut(bridge)
			n.must(100*ib.Second, "two masters again", func() bool {
				return len(n.masters()) == 2 && a.rests() &&
					b.rests()
			})
			n.join(bridge)
			n.rules(100*ib.Second, best)
		})
	}
}

// command sends a Set(SMInfo) from one manager's port to another's and returns the status of the answer.
func (n *network) command(from, to *host, cmd uint32, key uint64) mad.Status {
	n.t.Helper()
	tool := n.open(from.ref)
	tool.register(madrpc.Registration{Class: mad.ClassSMLID, ClassVersion: 1})
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodSet,
		AttributeID: mad.AttrSMInfo, AttributeModifier: cmd}
	var b [mad.Size]byte
	h.Append(b[:0])
	info := mad.SMInfo{GUID: 0xABC, SMKey: key, Priority: 15, SMState: mad.SMMaster}
	info.Append(b[mad.SMPDataOff:mad.SMPDataOff])
	if err := tool.rpc.Send(n.now, tool.ids[mad.ClassSMLID],
		madrpc.Message{Env: mad.Envelope{LID: n.lid(to.ref), QPN: ib.QPNSMI}, Data: b[:],
			Timeout: ib.Second}); err != nil {
		n.t.Fatal(err)
	}
	n.until(2*ib.Second, func() bool { return len(tool.inbox) > 0 })
	tool.dead = true
	if len(tool.inbox) == 0 {
		n.t.Fatalf("no answer to command %d\n%s", cmd, n.logs())
	}
	return mad.View(tool.inbox[0]).Status()
}

func TestCommands(t *testing.T) {
	n := newNetwork(t, small)
	a, b := n.manage(0, Config{Priority: 5}), n.manage(4, Config{Priority: 3})
	n.rules(60*ib.Second, a)
	key := uint64(DefaultSMKey)
	for _, cmd := range []uint32{cmdDisable, cmdStandby, cmdDiscover, cmdAcknowledge, 0, 6, 0xFFFF} {
		if st := n.command(b, a, cmd, key); st == mad.StatusOK {
			t.Errorf("a master takes command %d", cmd)
		}
	}
	for _, cmd := range []uint32{cmdHandover, cmdDisable, cmdDiscover} {
		if st := n.command(a, b, cmd, key+1); st == mad.StatusOK {
			t.Errorf("command %d with another SM_Key is taken", cmd)
		}
	}
	if !b.said("problem", "SM_Key") || b.m.State() != mad.SMStandby {
		t.Errorf("a wrong key: %v\n%s", b.m.State(), n.logs())
	}
	if st := n.command(a, b, cmdStandby, key); st == mad.StatusOK {
		t.Error("a standby takes STANDBY")
	}
	if st := n.command(a, b, cmdDisable, key); st != mad.StatusOK || b.m.State() != mad.SMNotActive {
		t.Fatalf("DISABLE: %v, %v", st, b.m.State())
	}
	// One that is disabled does nothing, whatever happens and whoever asks.
	b.m.Sweep(n.now, "test")
	a.die()
	n.pass(100 * ib.Second)
	if b.m.State() != mad.SMNotActive || len(n.masters()) != 0 {
		t.Fatalf("%v\n%s", b.m.State(), n.logs())
	}
	for _, cmd := range []uint32{cmdHandover, cmdDisable, cmdDiscover} {
		if st := n.command(a, b, cmd, key); st == mad.StatusOK {
			t.Errorf("a disabled manager takes command %d", cmd)
		}
	}
	if st := n.command(a, b, cmdStandby, key); st != mad.StatusOK || b.m.State() != mad.SMStandby {
		t.Fatalf("STANDBY: %v, %v", st, b.m.State())
	}
	b.m.Sweep(n.now, "test") // a standby does not sweep, and does not spin over it
	// Its master is gone: it finds out by itself.
	n.rules(100*ib.Second, b)
}

func TestDiscoverCommand(t *testing.T) {
	n := newNetwork(t, small)
	a, b := n.manage(0, Config{Priority: 5}), n.manage(4, Config{Priority: 3})
	n.rules(60*ib.Second, a)
	b.since()
	if st := n.command(a, b, cmdDiscover, DefaultSMKey); st != mad.StatusOK {
		t.Fatal(st)
	}
	n.rules(60*ib.Second, a)
	if !b.said("Discovering") {
		t.Errorf("it did not discover:\n%s", n.logs())
	}
}

// TestHandoverLosses loses what belongs to a handover: the command, its answer, the acknowledgement, or the first of
// all.
func TestHandoverLosses(t *testing.T) {
	isInfo := func(v mad.View) bool { return v.AttrID() == mad.AttrSMInfo && v.Class().IsSubnet() }
	for name, lose := range map[string]func(n int, v mad.View) bool{
		"the command once": func(k int, v mad.View) bool {
			return v.Method() == mad.MethodSet && v.AttrMod() == cmdHandover && k == 0
		},
		"the command five times": func(k int, v mad.View) bool {
			return v.Method() == mad.MethodSet && v.AttrMod() == cmdHandover && k < 5
		},
		"its answer": func(k int, v mad.View) bool {
			return v.Method() == mad.MethodGetResp && v.AttrMod() == cmdHandover && k < 8
		},
		"acknowledgement": func(k int, v mad.View) bool {
			return v.Method() == mad.MethodSet && v.AttrMod() == cmdAcknowledge && k < 8
		},
		"its answer and the acknowledgement": func(k int, v mad.View) bool {
			return (v.Method() == mad.MethodGetResp && v.AttrMod() == cmdHandover || v.Method() == mad.MethodSet &&
				v.AttrMod() == cmdAcknowledge) && k < 16
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, small)
			old := n.manage(0, Config{Priority: 1})
			n.up(old)
			lost := 0
			n.lose = func(_ topo.PortRef, v mad.View) bool {
				if isInfo(v) && lose(lost, v) {
					lost++
					return true
				}
				return false
			}
			next := n.manage(4, Config{Priority: 2})
			n.rules(100*ib.Second, next)
			if lost == 0 && name != "acknowledgement" {
				t.Error("nothing was lost")
			}
		})
	}
}

// TestWritesAreRepeated loses every write once: the manager sends it again, and nothing is missing.
func TestWritesAreRepeated(t *testing.T) {
	n := newNetwork(t, small)
	lost := map[[mad.Size]byte]bool{}
	n.lose = func(_ topo.PortRef, v mad.View) bool {
		if v.Method() != mad.MethodSet || !v.Class().IsSubnet() {
			return false
		}
		b := [mad.Size]byte(v)
		clear(b[8:16]) // each has a transaction of its own
		first := !lost[b]
		lost[b] = true
		return first
	}
	h := n.manage(0, Config{})
	n.up(h)
	if n.works(); h.said("problem") || len(lost) == 0 {
		t.Errorf("%d writes were lost\n%s", len(lost), n.logs())
	}
}

// TestHandoverDuringWrites hands over to a master whose writes were lost. It does not repeat what it had planned before
// the other was at work, and reads tables only when none of it can be under way any more.
func TestHandoverDuringWrites(t *testing.T) {
	n := newNetwork(t, small)
	h := n.manage(0, Config{})
	n.up(h)
	n.pass(5 * ib.Second)
	var last ib.Time // when the last write was lost
	n.lose = func(_ topo.PortRef, v mad.View) bool {
		if v.Method() != mad.MethodSet || v.AttrID() != mad.AttrLFT {
			return false
		}
		last = n.now
		return true
	}
	n.cut(n.switchLinks()[0])
	n.must(30*ib.Second, "a write", func() bool { return last > 0 })
	var first mad.Method // what is done with tables after the handover
	var at ib.Time
	n.lose = func(_ topo.PortRef, v mad.View) bool {
		if v.AttrID() == mad.AttrLFT && !v.Method().IsResponse() && at == 0 {
			first, at = v.Method(), n.now
		}
		return false
	}
	if st := n.command(&host{ref: n.hostRef(1)}, h, cmdHandover, DefaultSMKey); st != mad.StatusOK {
		t.Fatal(st)
	}
	n.whole(60*ib.Second, h)
	if first != mad.MethodGet || at < last+DefaultTimeout {
		t.Errorf("%s after a write was lost: %v of a table\n%s", brief(at-last), first, n.logs())
	}
}

// TestLookFindsAnotherManager: a master that looks at a switch after a trap, and finds that somebody else has been at
// it, writes nothing before it has seen who rules.
func TestLookFindsAnotherManager(t *testing.T) {
	n := newNetwork(t, small)
	h := n.manage(0, Config{SweepInterval: -1})
	n.up(h)
	n.pass(ib.Second)
	cable := n.switchLinks()[2]
	for _, node := range []int{cable.Node, n.g.Port(cable).Peer} {
		h.since()
		full := false
		n.see = func(_ int, req, _ mad.View) {
			if req.Method() == mad.MethodSet {
				n.see, full = nil, h.m.sweep.full
			}
		}
		n.switches[node].SetLID(77, 0)
		n.mum = map[int]bool{node: true}
		n.flap(cable) // the other end tells
		n.whole(5*ib.Second, h)
		if lid, _ := n.switches[node].LID(); n.see != nil || !full || lid == 77 || !h.said("another address") {
			t.Errorf("%s has LID %v; the first write was that of a full sweep: %v\n%s", n.g.Nodes[node].Name, lid, full,
				n.logs())
		}
	}
}

// TestHeirDies: a manager that was handed over to dies before it has done anything. The former master takes the subnet
// back.
func TestHeirDies(t *testing.T) {
	n := newNetwork(t, small)
	old := n.manage(0, Config{Priority: 1})
	n.up(old)
	next := n.manage(4, Config{Priority: 2})
	n.must(60*ib.Second, "a handover", func() bool { return old.m.State() == mad.SMStandby })
	next.die()
	n.rules(100*ib.Second, old)
}

// TestStranger: a manager with another SM_Key is not handed over to, and not fought.
func TestStranger(t *testing.T) {
	n := newNetwork(t, small)
	old := n.manage(0, Config{Priority: 1})
	n.up(old)
	n.manage(4, Config{Priority: 9, SMKey: 0x77})
	n.pass(100 * ib.Second)
	if list := n.masters(); len(list) != 1 || list[0] != old {
		t.Fatalf("%d masters\n%s", len(list), n.logs())
	}
	if !old.said("SM_Key") {
		t.Errorf("it is not named:\n%s", n.logs())
	}
	n.works()
}

// TestOthersAreListed: the subnet names all managers, also one that came later, and drops those that went.
func TestOthersAreListed(t *testing.T) {
	n := newNetwork(t, small)
	a := n.manage(0, Config{Priority: 5})
	n.up(a)
	b := n.manage(4, Config{Priority: 3})
	listed := func() bool {
		return slices.ContainsFunc(a.m.Subnet().Managers, func(m subnet.Manager) bool {
			return m.Port == n.g.Nodes[b.ref.Node].PortGUID(b.ref.Port)
		})
	}
	n.must(20*ib.Second, "it is listed", listed)
	// A look at a switch does not forget it.
	n.replug(n.switchLinks()[3])
	n.pass(5 * ib.Second)
	if !listed() {
		t.Errorf("a look has forgotten it")
	}
	b.die()
	n.must(60*ib.Second, "it is not listed any more", func() bool { return !listed() })
}
