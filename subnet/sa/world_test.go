package sa

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
)

const testKey = 0x1122334455667788

// world is a subnet as a sweep would leave it: LIDs, shortest paths, tables.
func world(t testing.TB, spec string, lmc uint8) *subnet.Subnet {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return fromGraph(g, lmc)
}

func fromGraph(g *topo.Graph, lmc uint8) *subnet.Subnet {
	s := &subnet.Subnet{Prefix: ib.DefaultGIDPrefix, Routing: "shortest"}
	tables := &subnet.PortTables{PKeys: make([]ib.PKey, 32), SLtoVL: []mad.SLtoVL{{0, 1, 2, 3}}}
	tables.PKeys[0] = ib.PKeyDefault
	tables.VLArb[0] = []mad.VLArbEntry{{VL: 0, Weight: 64}}
	tables.VLArb[1] = []mad.VLArbEntry{{VL: 1, Weight: 32}}
	lid := ib.LID(1)
	for i, gn := range g.Nodes {
		n := &subnet.Node{Desc: gn.Desc, RouteIndex: subnet.None, Ports: make([]subnet.Port, len(gn.Ports)),
			Info: mad.NodeInfo{
				BaseVersion: 1, ClassVersion: 1, NodeType: gn.Type, NumPorts: uint8(gn.NumPorts()),
				SystemImageGUID: gn.SystemGUID, NodeGUID: gn.GUID,
				PortGUID: gn.PortGUID(1), PartitionCap: 32, DeviceID: gn.DeviceID, VendorID: gn.VendorID,
				LocalPortNum: 1,
			}}
		if n.IsSwitch() {
			n.RouteIndex = int32(len(s.Switches))
			s.Switches = append(s.Switches, int32(i))
			n.Switch = mad.SwitchInfo{LinearFDBCap: 0xC000, MulticastFDBCap: 1024, LifeTimeValue: 18}
		}
		for p := range gn.Ports {
			gp, sp := &gn.Ports[p], &n.Ports[p]
			sp.Peer = subnet.None
			sp.GUID = gn.PortGUID(ib.PortNum(p))
			sp.Info = mad.PortInfo{MKey: 0xABCD, GidPrefix: s.Prefix, MasterSMLID: 1, MTUCap: ib.MTU4096,
				LocalPortNum: ib.PortNum(p), PortState: ib.PortDown}
			if gp.Connected() {
				sp.Peer, sp.PeerPort = int32(gp.Peer), gp.PeerPort
				sp.Info.NeighborMTU, sp.Info.PortState, sp.Info.LinkWidthActive = ib.MTU4096, ib.PortActive, gp.Width
				sp.Info.SetSpeeds(gp.Speed, gp.Speed, gp.Speed)
			}
			if n.IsSwitch() == (p == 0) && (p == 0 || gp.Connected()) {
				sp.Info.LID = lid
				if p != 0 {
					sp.Info.LMC = lmc
					lid = (lid + 1<<lmc - 1) &^ (1<<lmc - 1)
					sp.Info.LID = lid
				}
				lid += 1 << sp.Info.LMC
			}
			if p != 0 || n.IsSwitch() {
				sp.Tables = tables
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i, n := range s.Nodes {
		if !n.IsSwitch() {
			s.Self = subnet.Ref{Node: int32(i), Port: 1}
			n.Ports[1].Info.CapabilityMask |= mad.CapIsSM
			s.Managers = []subnet.Manager{{Port: n.Ports[1].GUID, LID: n.Ports[1].Info.LID, Info: mad.SMInfo{
				GUID: n.Ports[1].GUID, SMKey: testKey, ActCount: 7, Priority: 4, SMState: mad.SMMaster}}}
			break
		}
	}
	s.Index()
	fillLFTs(s)
	return s
}

// fillLFTs writes shortest paths, spread over equal ports by destination.
func fillLFTs(s *subnet.Subnet) {
	size := int(s.TopLID()) + 1
	// The LIDs behind each switch.
	behind := map[int32][]ib.LID{}
	for _, i := range s.Switches {
		n := s.Nodes[i]
		n.LFT = make([]ib.PortNum, size)
		for l := range n.LFT {
			n.LFT[l] = mad.LFTNone
		}
		n.Switch.LinearFDBTop = s.TopLID()
		n.LFT[n.Ports[0].Info.LID] = 0
		behind[i] = append(behind[i], n.Ports[0].Info.LID)
		for p := 1; p < len(n.Ports); p++ {
			port := &n.Ports[p]
			if !port.Up() || s.Nodes[port.Peer].IsSwitch() {
				continue
			}
			far := &s.Nodes[port.Peer].Ports[port.PeerPort]
			for k := range 1 << far.Info.LMC {
				n.LFT[far.Info.LID+ib.LID(k)] = ib.PortNum(p)
				behind[i] = append(behind[i], far.Info.LID+ib.LID(k))
			}
		}
	}
	dist := make([]int32, len(s.Nodes))
	for _, root := range s.Switches {
		for i := range dist {
			dist[i] = -1
		}
		dist[root] = 0
		queue := []int32{root}
		for len(queue) > 0 {
			at := queue[0]
			queue = queue[1:]
			var ways []ib.PortNum
			for p := 1; p < len(s.Nodes[at].Ports); p++ {
				port := &s.Nodes[at].Ports[p]
				if !port.Up() || !s.Nodes[port.Peer].IsSwitch() {
					continue
				}
				switch d := dist[port.Peer]; {
				case d < 0:
					dist[port.Peer] = dist[at] + 1
					queue = append(queue, port.Peer)
				case d == dist[at]-1:
					ways = append(ways, ib.PortNum(p))
				}
			}
			if at != root && len(ways) > 0 {
				for _, l := range behind[root] {
					s.Nodes[at].LFT[l] = ways[int(l)%len(ways)]
				}
			}
		}
	}
}

// client asks an administrator.
type client struct {
	t   testing.TB
	a   *Admin
	env mad.Envelope
	key uint64
	now ib.Time
}

// clientAt asks from the n-th host, untrusted.
func clientAt(t testing.TB, a *Admin, n int) *client {
	t.Helper()
	r := hosts(a.net)[n]
	return &client{t: t, a: a, env: mad.Envelope{LID: a.net.Port(r).Info.LID, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}}
}

func (c *client) trusted() *client {
	d := *c
	d.key = testKey
	return &d
}

// hosts are the ports of channel adapters.
func hosts(s *subnet.Subnet) (list []subnet.Ref) {
	s.EachEnd(func(r subnet.Ref, p *subnet.Port) {
		if !s.Nodes[r.Node].IsSwitch() {
			list = append(list, r)
		}
	})
	return list
}

func hostGID(s *subnet.Subnet, n int) ib.GID {
	return ib.MakeGID(s.Prefix, s.Port(hosts(s)[n]).GUID)
}

// request makes a request's bytes.
func request(method mad.Method, attr mad.AttrID, mod uint32, key, comps uint64, rec record) []byte {
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion, Method: method,
		TransactionID: 0x1234, AttributeID: attr, AttributeModifier: mod}
	b := h.Append(nil)
	b = (&mad.RMPP{}).Append(b)
	b = (&mad.SAHeader{SMKey: key, ComponentMask: comps}).Append(b)
	if rec != nil {
		b = rec.Append(b)
	}
	for len(b) < mad.Size {
		b = append(b, 0)
	}
	return b
}

// answer is a response taken apart.
type answer struct {
	mad.Header
	mad.SAHeader
	rmpp    mad.RMPP
	records [][]byte
	raw     []byte
}

// ask sends a request and takes the response apart; it fails the test if there is none.
func (c *client) ask(method mad.Method, attr mad.AttrID, comps uint64, rec record) answer {
	c.t.Helper()
	return c.askMod(method, attr, 0, comps, rec)
}

func (c *client) askMod(method mad.Method, attr mad.AttrID, mod uint32, comps uint64, rec record) answer {
	c.t.Helper()
	resp, ok := c.a.Handle(c.now, c.env, request(method, attr, mod, c.key, comps, rec))
	if !ok {
		c.t.Fatalf("%v(%s): no answer; counters %+v", method, mad.AttrName(mad.ClassSA, attr), c.a.Counters())
	}
	return parseAnswer(c.t, resp)
}

func parseAnswer(t testing.TB, resp []byte) answer {
	t.Helper()
	an := answer{raw: append([]byte(nil), resp...)}
	if _, err := an.Header.Parse(an.raw); err != nil {
		t.Fatal(err)
	}
	if _, err := an.rmpp.Parse(an.raw[mad.RMPPOff:]); err != nil {
		t.Fatal(err)
	}
	if _, err := an.SAHeader.Parse(an.raw[mad.SAHeaderOff:]); err != nil {
		t.Fatal(err)
	}
	if an.SMKey != 0 {
		t.Fatalf("a response carries SM_Key %#x", an.SMKey)
	}
	if an.Status != mad.StatusOK {
		return an
	}
	step := int(an.AttributeOffset) * 8
	data := an.raw[mad.SADataOff:]
	if an.rmpp.Active() {
		if step == 0 && len(data) != 0 || step != 0 && len(data)%step != 0 {
			t.Fatalf("%d bytes of records of %d", len(data), step)
		}
		for ; len(data) > 0; data = data[step:] {
			an.records = append(an.records, data[:step])
		}
	} else if step > 0 {
		if len(an.raw) != mad.Size {
			t.Fatalf("a response of one datagram has %d bytes", len(an.raw))
		}
		an.records = [][]byte{data[:step]}
	}
	return an
}

// want fails the test unless the status is as expected.
func (an answer) want(t testing.TB, s mad.Status, records int) answer {
	t.Helper()
	if an.Status != s || records >= 0 && len(an.records) != records {
		t.Fatalf("%v: %d records, want %v and %d", an.Header, len(an.records), s, records)
	}
	return an
}

// newAdmin is an administrator of a subnet.
func newAdmin(s *subnet.Subnet) *Admin {
	a := New(Config{SMKey: testKey})
	a.SetSubnet(s)
	return a
}
