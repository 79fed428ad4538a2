package sim

import (
	"bytes"
	"fmt"
	"testing"

	"softib/fabric"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// gid is the GID of a host's first port.
func (p *peer) gid() ib.GID { return p.h.Port(1).GIDs[0] }

// connectVia takes two queue pairs of two subnets to RTS, by the LIDs that a router has in each.
func connectVia(t testing.TB, s *Sim, a, b *peer, router *topo.Node, mtu ib.MTU, hops uint8) {
	t.Helper()
	sub := s.graph.Subnets()
	lidAt := func(host *peer) ib.LID {
		for p := 1; p < len(router.Ports); p++ {
			ref := topo.PortRef{Node: router.Index, Port: ib.PortNum(p)}
			if s.graph.Prefix(sub.Of(ref)) == host.gid().Prefix() {
				return s.LID(ref)
			}
		}
		t.Fatalf("%s has no port in the subnet of %v", router.Name, host.gid())
		return 0
	}
	for _, p := range []struct{ me, peer *peer }{{a, b}, {b, a}} {
		ah := hca.AHAttr{DLID: lidAt(p.me), Port: 1, IsGlobal: true, DGID: p.peer.gid(), HopLimit: hops}
		p.me.reconnect(t, p.peer, ah, mtu)
	}
}

// reconnect takes a queue pair through Reset to RTS by another way.
func (p *peer) reconnect(t testing.TB, to *peer, ah hca.AHAttr, mtu ib.MTU) {
	t.Helper()
	check(t, p.h.ModifyQP(p.qp, hca.QPAttr{State: hca.StateReset}, hca.MaskState))
	check(t, p.h.ModifyQP(p.qp, hca.QPAttr{State: hca.StateInit, Port: 1,
		Access: hca.AccessRemoteWrite | hca.AccessRemoteRead | hca.AccessRemoteAtomic},
		hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess))
	check(t, p.h.ModifyQP(p.qp, hca.QPAttr{State: hca.StateRTR, AH: ah, PathMTU: mtu, DestQPN: to.qp.Num(), RQPSN: 100,
		MaxDestRD: 8, MinRNRTimer: 12}, hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|
		hca.MaskMaxDestRD|hca.MaskMinRNRTimer))
	check(t, p.h.ModifyQP(p.qp, hca.QPAttr{State: hca.StateRTS, SQPSN: 100, Timeout: 10, RetryCnt: 7, RNRRetry: 7,
		MaxRDAtomic: 8}, hca.MaskState|hca.MaskSQPSN|hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|
		hca.MaskMaxRDAtomic))
}

// TestRouted moves memory from subnet to subnet, by WRITEs that way and READs back, with and without loss, and with
// every packet as bytes at every hop.
func TestRouted(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     fabric.Faults
		exact bool
	}{
		{"clean", fabric.Faults{}, false},
		{"bytes", fabric.Faults{}, true},
		{"lossy", fabric.Faults{Drop: 0.01, Corrupt: 0.01, Duplicate: 0.01, Delay: 0.01, FCLoss: 0.01}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := topo.ParseSpec("subnets:3,routers=2,speed=HDR,each=fat-tree:radix=4,levels=2")
			check(t, err)
			s, err := New(g, Config{Seed: 9, HashPayload: true, WireExact: c.exact})
			check(t, err)
			_, err = s.BringUp()
			check(t, err)
			s.SetFaultsAll(c.f)
			const size, n = 1 << 18, 16
			var pairs [][2]*peer
			for i, hosts := range [][2]int{{0, 8}, {15, 16}, {23, 7}, {1, 9}} {
				a, b := newPeer(t, s, hosts[0], hca.RC, size), newPeer(t, s, hosts[1], hca.RC, size)
				connectVia(t, s, a, b, g.Routers()[i%2], ib.MTU4096, 2)
				for k := range a.mem {
					a.mem[k] = byte(k*31 + k>>12 + i)
				}
				for k := range n {
					op, from := hca.WRRDMAWrite, a
					if i%2 == 1 {
						op, from = hca.WRRDMARead, b
					}
					check(t, from.h.PostSend(from.qp, &hca.SendWR{WRID: uint64(k), Opcode: op, Flags: hca.SendSignaled,
						SGList: from.sge(k*size/n, size/n), RemoteAddr: peerVA + uint64(k*size/n),
						RKey: map[bool]*peer{true: b, false: a}[from == a].mr.RKey()}))
				}
				pairs = append(pairs, [2]*peer{a, b})
				s.Wake(hosts[0])
				s.Wake(hosts[1])
			}
			if !s.RunUntilIdle(10 * ib.Second) {
				t.Fatal("not idle")
			}
			for i, p := range pairs {
				if got := p[0].completions(t) + p[1].completions(t); got != n || !bytes.Equal(p[0].mem, p[1].mem) {
					t.Errorf("pair %d: %d completions, want %d, memory the same: %v", i, got, n,
						bytes.Equal(p[0].mem, p[1].mem))
				}
			}
			mustRest(t, s)
		})
	}
}

// TestRoutedDrops: packets that may not pass a router, or that it has no way for, end there and are counted.
func TestRoutedDrops(t *testing.T) {
	for _, c := range []struct {
		hops   uint8
		gid    func(b *peer) ib.GID
		reason link.Reason
	}{
		{1, (*peer).gid, link.HopLimit},
		{9, func(b *peer) ib.GID { return ib.MakeGID(b.gid().Prefix()+5, b.gid().GUID()) }, link.NoRoute},
		{9, func(b *peer) ib.GID { return ib.MakeGID(b.gid().Prefix(), 0x99) }, link.NoRoute},
	} {
		t.Run(fmt.Sprint(c.reason), func(t *testing.T) {
			g, err := topo.ParseSpec("subnets:2,routers=1,each=star:2")
			check(t, err)
			s, err := New(g, Config{})
			check(t, err)
			_, err = s.BringUp()
			check(t, err)
			a, b := newPeer(t, s, 0, hca.RC, 64), newPeer(t, s, 2, hca.RC, 64)
			connectVia(t, s, a, b, g.Routers()[0], ib.MTU1024, 64)
			router := topo.PortRef{Node: g.Routers()[0].Index, Port: 1}
			a.reconnect(t, b, hca.AHAttr{DLID: s.LID(router), Port: 1, IsGlobal: true, DGID: c.gid(b),
				HopLimit: c.hops}, ib.MTU1024)
			check(t, a.h.PostSend(a.qp, &hca.SendWR{Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled,
				SGList: a.sge(0, 8), RemoteAddr: peerVA, RKey: b.mr.RKey()}))
			s.Wake(0)
			if !s.RunUntilIdle(10 * ib.Second) {
				t.Fatal("not idle")
			}
			var wc [2]hca.WC
			if k := a.cq.Poll(wc[:]); k != 1 || wc[0].Status != hca.WCRetryExcErr {
				t.Errorf("%d completions, %v", k, wc[0].Status)
			}
			if n := s.Drops()[c.reason]; n != 8 || s.Counters(router)[ib.PortRcvSwitchRelayErrors] != n {
				t.Errorf("%d dropped for %v and %d counted: want 8, a try and seven more", n, c.reason,
					s.Counters(router)[ib.PortRcvSwitchRelayErrors])
			}
			mustRest(t, s)
		})
	}
}

// TestRoutedManagers: managers that speak by packets bring up subnets that routers join, and packets go between them.
func TestRoutedManagers(t *testing.T) {
	g, err := topo.ParseSpec("subnets:2,routers=2,each=star:3")
	check(t, err)
	s, err := New(g, Config{})
	check(t, err)
	s.LinksUp()
	for k, host := range []int{0, 3} {
		check(t, s.StartManager(host, ManagerConfig{Config: sm.Config{Prefix: g.Prefix(k)}}))
	}
	s.Run(30 * ib.Second)
	for _, host := range []int{0, 3} {
		m := s.Manager(host)
		if m.Subnet() == nil || len(m.Subnet().Routers) != 2 || len(m.Subnet().Routers[0].Hops) != 1 {
			t.Fatalf("the manager at host %d: %+v", host, m.Subnet())
		}
	}
	a, b := newPeer(t, s, 2, hca.RC, 4096), newPeer(t, s, 5, hca.RC, 4096)
	connectVia(t, s, a, b, g.Routers()[1], ib.MTU1024, 255)
	copy(a.mem, "across")
	check(t, a.h.PostSend(a.qp, &hca.SendWR{Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled, SGList: a.sge(0, 4096),
		RemoteAddr: peerVA, RKey: b.mr.RKey()}))
	s.Wake(2)
	s.Run(31 * ib.Second)
	if a.completions(t) != 1 || !bytes.Equal(a.mem, b.mem) {
		t.Error("a WRITE did not come to the other subnet")
	}
}
