package subnet

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// two is a host with two ports, one of them cabled to a switch of four ports.
func two() *Subnet {
	sw := &Node{Info: mad.NodeInfo{NodeType: ib.NodeSwitch, NodeGUID: 0x10, NumPorts: 4}, Ports: make([]Port, 5)}
	ca := &Node{Info: mad.NodeInfo{NodeType: ib.NodeCA, NodeGUID: 0x20, NumPorts: 2}, Ports: make([]Port, 3)}
	for _, n := range []*Node{sw, ca} {
		for p := range n.Ports {
			n.Ports[p].Peer = None
		}
	}
	sw.Ports[0].GUID, sw.Ports[0].Info.LID = 0x10, 9
	sw.Ports[3].Peer, sw.Ports[3].PeerPort = 1, 1
	ca.Ports[1] = Port{GUID: 0x21, Peer: 0, PeerPort: 3, Info: mad.PortInfo{LID: 4, LMC: 2}}
	ca.Ports[2].GUID = 0x22
	s := &Subnet{Nodes: []*Node{sw, ca}, Switches: []int32{0}, Self: Ref{1, 1}}
	s.Index()
	return s
}

func TestLookUps(t *testing.T) {
	s := two()
	host, sw := Ref{1, 1}, Ref{0, 0}
	for lid := range ib.LID(20) {
		want, ok := Ref{Node: None}, false
		switch {
		case lid >= 4 && lid < 8: // 2^LMC addresses
			want, ok = host, true
		case lid == 9:
			want, ok = sw, true
		}
		if r, found := s.ByLID(lid); r != want || found != ok {
			t.Errorf("LID %d: %v, %v", lid, r, found)
		}
	}
	if s.TopLID() != 9 {
		t.Errorf("the highest LID is %v", s.TopLID())
	}
	if i, ok := s.ByGUID(0x20); i != 1 || !ok {
		t.Errorf("node 0x20: %d, %v", i, ok)
	}
	if r, ok := s.ByPortGUID(0x21); r != host || !ok {
		t.Errorf("port 0x21: %v, %v", r, ok)
	}
	if r, ok := s.ByPortGUID(0x22); ok {
		t.Errorf("a port without a link is in use: %v", r)
	}
	if _, ok := s.ByGUID(0x99); ok {
		t.Error("a node that is not there was found")
	}
	var ends []Ref
	s.EachEnd(func(r Ref, p *Port) { ends = append(ends, r) })
	if len(ends) != 2 || ends[0] != sw || ends[1] != host {
		t.Errorf("end ports: %v", ends)
	}
	if n := s.Nodes[0]; n.BaseLID(3) != 9 || n.EndPort(3) != 0 || !n.IsSwitch() || s.Nodes[1].BaseLID(1) != 4 {
		t.Error("addresses of ports")
	}
}

// TestTwoWithOneAddress: the first keeps it; somebody who is lied to must not be led elsewhere by the order of a map.
func TestTwoWithOneAddress(t *testing.T) {
	s := two()
	s.Nodes[1].Ports[1].Info.LID, s.Nodes[1].Ports[1].Info.LMC = 9, 0
	s.Index()
	if r, _ := s.ByLID(9); r != (Ref{0, 0}) {
		t.Errorf("LID 9 leads to %v", r)
	}
}
