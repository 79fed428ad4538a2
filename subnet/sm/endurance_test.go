package sm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// turbulent is some hours of a fabric with three managers of which now and then one dies, links that come and go, hosts
// that join and leave, and nodes that do not always answer.
func turbulent(t *testing.T, shape, engines string, seed uint64, rounds int) *network {
	n := newNetwork(t, shape)
	rng := rand.New(rand.NewPCG(seed, 1))
	for k := range 3 {
		n.manage(2*k, Config{Priority: uint8(k + 1), Engines: engines})
	}
	var cs []*client
	for k := range 3 {
		cs = append(cs, n.client(2*k+1))
	}
	n.must(200*ib.Second, "a master", func() bool {
		return len(n.masters()) == 1 && n.masters()[0].rests() &&
			n.broken() == ""
	})
	links := append(n.switchLinks(), n.hostRef(1), n.hostRef(4))
	down := map[topo.PortRef]bool{}
	for range rounds {
		switch rng.IntN(8) {
		case 0, 1, 2:
			ref := links[rng.IntN(len(links))]
			if down[ref] = !down[ref]; down[ref] {
				n.cut(ref)
			} else {
				n.join(ref)
			}
		case 3, 4:
			c := cs[rng.IntN(len(cs))]
			rec := mad.MCMemberRecord{MGID: mgid(byte(rng.IntN(3))), PortGID: c.gid, JoinState: mad.JoinFull, QKey: 1,
				PKey: 0xFFFF}
			method := mad.MethodSet
			if rng.IntN(2) == 0 {
				method = mad.MethodDelete
			}
			c.ask(method, mad.AttrMCMemberRecord, comps(mad.MCMemberRecordTable, "MGID", "PortGID", "JoinState",
				"Q_Key", "P_Key", "SL", "TClass", "FlowLabel"), 0, &rec)
		case 5:
			node := rng.IntN(len(n.agents))
			n.answers[node] = func(_, _ mad.View) fate { return fate{drop: rng.IntN(2) == 0, twice: rng.IntN(8) == 0} }
			n.later(ib.Time(rng.IntN(3000))*ib.Millisecond, func() { delete(n.answers, node) })
		case 6:
			if s := n.g.Switches()[rng.IntN(len(n.g.Switches()))]; rng.IntN(3) == 0 {
				for p := 1; p < len(s.Ports); p++ {
					delete(down, topo.PortRef{Node: s.Index, Port: ib.PortNum(p)})
					delete(down, topo.PortRef{Node: s.Ports[p].Peer, Port: s.Ports[p].PeerPort})
				}
				n.reboot(s.Index)
			}
		case 7:
			h := n.hosts[rng.IntN(3)]
			if !h.dead {
				cfg := h.m.Config()
				cfg.Memory, _ = h.m.TakeMemory()
				h.die()
				h.rpc = n.open(h.ref).rpc // a new life of the program
				n.hosts = n.hosts[:len(n.hosts)-1]
				clear(h.ids)
				n.later(ib.Time(rng.IntN(60))*ib.Second, func() {
					h.dead = false
					h.run(cfg)
				})
			}
		}
		n.pass(ib.Time(rng.IntN(4000)) * ib.Millisecond)
	}
	for _, ref := range links {
		if down[ref] {
			n.join(ref)
		}
	}
	clear(n.answers)
	n.must(400*ib.Second, "all is well", func() bool {
		return len(n.masters()) == 1 && n.masters()[0].rests() && n.broken() == "" && n.smlid(n.masters()[0]) == ""
	})
	return n
}

// TestEndurance: whatever happened, in the end there is one master, the best, and everything works; and nothing has
// grown.
func TestEndurance(t *testing.T) {
	for k, c := range []struct{ shape, engines string }{
		{small, ""}, {small, ""}, {"ring:6", "minhop"}, {"torus:3x3", "dfsssp"},
		{"random:switches=6,hosts=12,seed=3", "updn"},
	} {
		n := turbulent(t, c.shape, c.engines, uint64(k), 120)
		n.rules(600*ib.Second, n.hosts[2])
		for _, h := range n.hosts[:3] {
			m := h.m
			n.until(5*ib.Second, func() bool { return m.takeover.waiting == 0 }) // polls of standbys
			if got := m.requests.Cap(); got > 4*m.cfg.Window {
				t.Errorf("%d places for requests", got)
			}
			if m.requests.Len() != 0 || m.inFlight != 0 || len(m.out) != 0 {
				t.Errorf("at rest %d of %d places are taken, %d under way, %d to send",
					m.requests.Len(), m.requests.Cap(), m.inFlight, len(m.out))
			}
			if len(m.failing)+len(m.actual)+len(m.doubt) != 0 || m.takeover.waiting != 0 {
				t.Errorf("failing %v, %d other tables, doubts %v, %d tables to come", m.failing, len(m.actual), m.doubt,
					m.takeover.waiting)
			}
			if len(m.trapSeen) > 200 {
				t.Errorf("%d traps seen", len(m.trapSeen))
			}
		}
		n.agrees(n.hosts[2])
	}
}

// TestDeterminism: the same happens twice, to the last line of the log.
func TestDeterminism(t *testing.T) {
	a, b := turbulent(t, small, "", 9, 60), turbulent(t, small, "", 9, 60)
	if a.carried != b.carried || a.now != b.now {
		t.Errorf("%d packets until %v, and %d until %v", a.carried, a.now, b.carried, b.now)
	}
	for k := range a.hosts {
		if x, y := a.hosts[k].log, b.hosts[k].log; !slices.Equal(x, y) {
			for i := range min(len(x), len(y)) {
				if x[i] != y[i] {
					t.Fatalf("line %d of manager %d:\n%s\n%s", i, k, x[i], y[i])
				}
			}
			t.Fatalf("manager %d: %d and %d lines", k, len(x), len(y))
		}
	}
}
