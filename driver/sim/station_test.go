package sim

import (
	"testing"

	"softib/fabric"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// watched keeps what management did.
type watched struct {
	t    testing.TB
	sets int
}

func (w *watched) Served(_ int, r *Request) {
	if r.Set {
		w.sets++
	}
}
func (w *watched) Logged(host int, e sm.Event) { w.t.Logf("%12v h%d %v", e.At, host+1, e) }

// quick is a manager that does not wait long.
func quick(priority uint8) ManagerConfig {
	return ManagerConfig{Config: sm.Config{
		Priority: priority, Window: 16, Timeout: ib.Millisecond, SweepInterval: 20 * ib.Millisecond,
		PollInterval: 5 * ib.Millisecond, SubnetTimeout: 8, HOQLife: noLife, LeafHOQLife: noLife, PacketLife: noLife,
	}}
}

func managed(t testing.TB, spec string, w Watcher) *Sim {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	check(t, err)
	s, err := New(g, Config{Seed: 3, HashPayload: true})
	check(t, err)
	s.LinksUp()
	s.Watch(w)
	return s
}

// up reports whether every cabled port is active and every end port knows the manager at host.
func up(s *Sim, host int) bool {
	lid := s.LID(topo.PortRef{Node: s.HostNode(host).Index, Port: 1})
	for _, n := range s.graph.Nodes {
		for p := range n.Ports {
			ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			if p > 0 && n.Ports[p].Connected() && s.Port(ref).State() != ib.PortActive {
				return false
			}
			if n.IsSwitch() == (p == 0) {
				if pi := s.Agent(n.Index); s.LID(ref) == 0 || pi == nil {
					return false
				}
			}
		}
	}
	return lid != 0 && s.Manager(host).State() == mad.SMMaster
}

// TestManager has a manager bring up a fabric by packets, lose a link, be killed and come back.
func TestManager(t *testing.T) {
	run := func() uint64 {
		w := &watched{t: t}
		s := managed(t, "fat-tree:radix=4,levels=2", w)
		check(t, s.StartManager(0, quick(1)))
		s.Run(50 * ib.Millisecond)
		if !up(s, 0) {
			t.Fatal("the subnet is not up after 50 ms")
		}
		lids := map[topo.PortRef]ib.LID{}
		for i := range s.NumHosts() {
			ref := topo.PortRef{Node: s.HostNode(i).Index, Port: 1}
			lids[ref] = s.LID(ref)
		}
		spine := s.graph.Switches()[len(s.graph.Switches())-1]
		s.PlanFlap(51*ib.Millisecond, topo.PortRef{Node: spine.Index, Port: 1}, 5*ib.Millisecond)
		s.Run(100 * ib.Millisecond)
		if !up(s, 0) {
			t.Fatal("a link that came back is not active")
		}
		mem := s.ManagerMemory(0)
		if len(mem.LIDs) != len(s.graph.Nodes) {
			t.Errorf("the manager has saved %d addresses, want %d", len(mem.LIDs), len(s.graph.Nodes))
		}
		s.StopManager(0)
		s.PlanReboot(s.Now(), spine.Index)
		s.Run(120 * ib.Millisecond)
		if s.LID(topo.PortRef{Node: spine.Index}) != 0 {
			t.Error("a switch that has started anew still has its address")
		}
		cfg := quick(1)
		cfg.Memory = mem
		check(t, s.StartManager(0, cfg))
		s.Run(200 * ib.Millisecond)
		if !up(s, 0) {
			t.Fatal("the subnet is not up after a restart")
		}
		for ref, lid := range lids {
			if s.LID(ref) != lid {
				t.Errorf("%s has LID %v, had %v", s.graph.PortName(ref), s.LID(ref), lid)
			}
		}
		return s.TraceHash()
	}
	if a, b := run(), run(); a != b {
		t.Errorf("two runs have the hashes %x and %x", a, b)
	}
}

// TestHandover starts a second manager that goes before the first.
func TestHandover(t *testing.T) {
	s := managed(t, "torus:3x3", &watched{t: t})
	check(t, s.StartManager(0, quick(1)))
	s.Run(50 * ib.Millisecond)
	check(t, s.StartManager(3, quick(2)))
	s.Run(150 * ib.Millisecond)
	if a, b := s.Manager(0).State(), s.Manager(3).State(); a != mad.SMStandby || b != mad.SMMaster {
		t.Fatalf("states %v and %v, want the one with the higher priority to be master", a, b)
	}
	if !up(s, 3) {
		t.Error("the subnet is not up after the handover")
	}
	s.StopManager(3)
	s.Run(400 * ib.Millisecond)
	if a := s.Manager(0).State(); a != mad.SMMaster || !up(s, 0) {
		t.Errorf("after the master's death the other is %v", a)
	}
}

// TestMute: an agent that does nothing is missed, packets of programs pass its switch, and it comes back.
func TestMute(t *testing.T) {
	s := managed(t, "line:3,hosts=1", &watched{t: t})
	check(t, s.StartManager(0, quick(1)))
	s.Run(30 * ib.Millisecond)
	if !up(s, 0) {
		t.Fatal("the subnet is not up")
	}
	middle := s.graph.Switches()[1].Index
	lid := s.LID(topo.PortRef{Node: s.HostNode(2).Index, Port: 1})
	s.PlanMute(s.Now(), middle, 100*ib.Millisecond)
	s.Run(100 * ib.Millisecond)
	if n := s.Manager(0).Last().Switches; n != 1 {
		t.Errorf("the manager sees %d switches past one that is mute, want 1", n)
	}
	s.Run(ib.Second)
	if !up(s, 0) || s.Manager(0).Last().Switches != 3 ||
		s.LID(topo.PortRef{Node: s.HostNode(2).Index, Port: 1}) != lid {
		t.Error("the switch is not back with its hosts' addresses")
	}
	if n := s.FaultCounts()[fabric.FaultMute]; n != 1 {
		t.Errorf("%d mute agents were counted, want 1", n)
	}
}

// TestMgmtOnly loses all management packets and none of the others.
func TestMgmtOnly(t *testing.T) {
	s := managed(t, "star:3", &watched{t: t})
	check(t, s.StartManager(0, quick(1)))
	s.Run(20 * ib.Millisecond)
	a, b := newPeer(t, s, 1, hca.RC, 1<<16), newPeer(t, s, 2, hca.RC, 1<<16)
	connectRC(t, a, b, ib.MTU1024, 14)
	s.SetFaultsAll(fabric.Faults{Drop: 1, MgmtOnly: true})
	check(t, a.h.PostSend(a.qp, &hca.SendWR{WRID: 1, Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled,
		SGList: a.sge(0, 1<<16), RemoteAddr: peerVA, RKey: b.mr.RKey()}))
	s.Wake(1)
	s.Run(60 * ib.Millisecond)
	if n := a.completions(t); n != 1 || a.h.Stats.Retransmits != 0 {
		t.Errorf("%d completions after %d packets sent again, want 1 and 0", n, a.h.Stats.Retransmits)
	}
	if s.FaultCounts()[fabric.FaultDrop] == 0 {
		t.Error("no management packet was lost")
	}
}

// TestManagerJobTime lets the computation of routes take time.
func TestManagerJobTime(t *testing.T) {
	s := managed(t, "fat-tree:radix=4,levels=2", &watched{t: t})
	cfg := quick(1)
	cfg.JobTime = 5 * ib.Millisecond
	check(t, s.StartManager(0, cfg))
	s.Run(4 * ib.Millisecond)
	if s.Manager(0).State() == mad.SMMaster {
		t.Error("the manager is master before it can have computed routes")
	}
	s.Run(20 * ib.Millisecond)
	if !up(s, 0) {
		t.Error("the subnet is not up")
	}
	if err := s.StartManager(0, cfg); err == nil {
		t.Error("a second manager starts at one port")
	}
}
