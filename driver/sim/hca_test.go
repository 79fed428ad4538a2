package sim

import (
	"bytes"
	"testing"

	"softib/fabric"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// peer is a queue pair on a host of the fabric and all that it needs.
type peer struct {
	h   *hca.HCA
	lid ib.LID
	pd  *hca.PD
	cq  *hca.CQ
	qp  *hca.QP
	mr  *hca.MR
	mem []byte

	// For posting without allocating.
	rkey uint32
	wr   hca.SendWR
	sges [1]hca.SGE
}

const peerVA = 0x10000

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPeer(t testing.TB, s *Sim, host int, typ hca.QPType, size int) *peer {
	t.Helper()
	return newPeerOn(t, s, host, typ, make([]byte, size))
}

func newPeerOn(t testing.TB, s *Sim, host int, typ hca.QPType, mem []byte) *peer {
	t.Helper()
	p := &peer{h: s.Host(host).(*hca.HCA), lid: s.LID(topo.PortRef{Node: s.HostNode(host).Index, Port: 1}), mem: mem}
	var err error
	p.pd, err = p.h.AllocPD()
	check(t, err)
	p.cq, err = p.h.CreateCQ(1024)
	check(t, err)
	p.qp, err = p.h.CreateQP(hca.QPInit{Type: typ, PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: hca.Caps{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 1, MaxRecvSGE: 1}})
	check(t, err)
	p.mr, err = p.h.RegMR(p.pd, p.mem, peerVA, hca.AccessLocalWrite|hca.AccessRemoteWrite|hca.AccessRemoteRead|
		hca.AccessRemoteAtomic)
	check(t, err)
	return p
}

// connectRC takes two queue pairs to RTS.
func connectRC(t testing.TB, a, b *peer, mtu ib.MTU, timeout uint8) {
	t.Helper()
	for _, p := range []struct{ me, peer *peer }{{a, b}, {b, a}} {
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateInit, Port: 1,
			Access: hca.AccessRemoteWrite | hca.AccessRemoteRead | hca.AccessRemoteAtomic},
			hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess))
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateRTR, AH: hca.AHAttr{DLID: p.peer.lid, Port: 1},
			PathMTU: mtu,
			DestQPN: p.peer.qp.Num(), RQPSN: 100, MaxDestRD: 8, MinRNRTimer: 12},
			hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|hca.MaskMaxDestRD|
				hca.MaskMinRNRTimer))
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateRTS, SQPSN: 100, Timeout: timeout, RetryCnt: 7,
			RNRRetry: 7, MaxRDAtomic: 8},
			hca.MaskState|hca.MaskSQPSN|hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|hca.MaskMaxRDAtomic))
	}
}

func (p *peer) sge(off, n int) []hca.SGE {
	return []hca.SGE{{Addr: peerVA + uint64(off), Length: uint32(n), LKey: p.mr.LKey()}}
}

// completions drains the queue and fails on any that is not a success.
func (p *peer) completions(t testing.TB) (n int) {
	t.Helper()
	var wc [16]hca.WC
	for k := p.cq.Poll(wc[:]); k > 0; k = p.cq.Poll(wc[:]) {
		for _, c := range wc[:k] {
			if c.Status != hca.WCSuccess {
				t.Fatalf("completion %d: %v", c.WRID, c.Status)
			}
		}
		n += k
	}
	return n
}

// TestRC moves a megabyte by RDMA WRITE across a fabric, with and without loss, and
// holds every byte.
func TestRC(t *testing.T) {
	for name, f := range map[string]fabric.Faults{
		"clean": {},
		"lossy": {Drop: 0.01, Corrupt: 0.01, Duplicate: 0.01, Delay: 0.01, FCLoss: 0.01},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
			check(t, err)
			s, err := New(g, Config{Seed: 9, HashPayload: true})
			check(t, err)
			_, err = s.BringUp()
			check(t, err)
			s.SetFaultsAll(f)
			const size = 1 << 20
			a, b := newPeer(t, s, 0, hca.RC, size), newPeer(t, s, s.NumHosts()-1, hca.RC, size)
			connectRC(t, a, b, ib.MTU4096, 10)
			for i := range a.mem {
				a.mem[i] = byte(i*31 + i>>12)
			}
			const n = 64
			for i := range n {
				check(t, a.h.PostSend(a.qp, &hca.SendWR{WRID: uint64(i), Opcode: hca.WRRDMAWrite,
					Flags:  hca.SendSignaled,
					SGList: a.sge(i*size/n, size/n), RemoteAddr: peerVA + uint64(i*size/n), RKey: b.mr.RKey()}))
			}
			s.Wake(0)
			if !s.RunUntilIdle(10 * ib.Second) {
				t.Fatal("not idle")
			}
			if got := a.completions(t); got != n {
				t.Errorf("%d completions, want %d", got, n)
			}
			if !bytes.Equal(a.mem, b.mem) {
				t.Error("memory differs")
			}
			mustRest(t, s)
		})
	}
}

// TestDirectedRoute asks the far host who it is, by the way of the switch, before
// anybody has an address.
func TestDirectedRoute(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	check(t, err)
	s, err := New(g, Config{Seed: 1})
	check(t, err)
	s.LinksUp()
	s.Run(ib.Microsecond)
	a := newPeer(t, s, 0, hca.SMI, 4096)
	check(t, a.h.ModifyQP(a.qp, hca.QPAttr{State: hca.StateInit}, hca.MaskState|hca.MaskPKeyIndex|hca.MaskQKey))
	check(t, a.h.ModifyQP(a.qp, hca.QPAttr{State: hca.StateRTR}, hca.MaskState))
	check(t, a.h.ModifyQP(a.qp, hca.QPAttr{State: hca.StateRTS}, hca.MaskState|hca.MaskSQPSN))

	ask := func(path ...ib.PortNum) mad.NodeInfo {
		t.Helper()
		smp := mad.SMP{Method: mad.MethodGet, Attr: mad.AttrNodeInfo, TID: 7, Directed: true, Path: path}
		_, err := smp.Append(a.mem[:0])
		check(t, err)
		check(t, a.h.PostRecv(a.qp, &hca.RecvWR{WRID: 2, SGList: a.sge(1024, 512)}))
		ah, err := a.h.CreateAH(a.pd, hca.AHAttr{DLID: ib.LIDPermissive, Port: 1})
		check(t, err)
		check(t, a.h.PostSend(a.qp, &hca.SendWR{WRID: 1, Opcode: hca.WRSend, Flags: hca.SendSignaled,
			SGList: a.sge(0, mad.Size), AH: ah}))
		s.Wake(0)
		s.RunUntilIdle(s.Now() + ib.Millisecond)
		if n := a.completions(t); n != 2 {
			t.Fatalf("path %v: %d completions, want the send's and the answer's", path, n)
		}
		var ni mad.NodeInfo
		resp := mad.View(a.mem[1024+40 : 1024+40+mad.Size])
		if resp.Method() != mad.MethodGetResp || resp.Status() != mad.StatusOK {
			t.Fatalf("path %v: method %v status %v", path, resp.Method(), resp.Status())
		}
		_, err = ni.Parse(resp.Data())
		check(t, err)
		return ni
	}
	if ni := ask(); ni.NodeGUID != s.HostNode(0).GUID {
		t.Errorf("no hops: GUID %v, want the host's own %v", ni.NodeGUID, s.HostNode(0).GUID)
	}
	sw := g.Switches()[0]
	if ni := ask(1); ni.NodeGUID != sw.GUID || ni.NodeType != ib.NodeSwitch {
		t.Errorf("one hop: %v %v, want the switch %v", ni.NodeType, ni.NodeGUID, sw.GUID)
	}
	far := s.HostNode(1)
	if ni := ask(1, far.Ports[1].PeerPort); ni.NodeGUID != far.GUID || ni.LocalPortNum != 1 {
		t.Errorf("two hops: %v port %d, want %v port 1", ni.NodeGUID, ni.LocalPortNum, far.GUID)
	}
}
