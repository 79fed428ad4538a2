package sm

import (
	"errors"
	"fmt"

	"softib/ib"
	"softib/mad"
	"softib/topo"
)

// ErrMismatch is matched when a node is not what the graph says.
var ErrMismatch = errors.New("node is not what the graph says")

// MismatchError says in which way.
type MismatchError struct {
	Node, Field string
	Got, Want   any
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("sm: %s: NodeInfo.%s %v: want %v as in the graph", e.Node, e.Field, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// subnet is what the nodes have told, by node index.
type subnet struct {
	client
	ports    [][]mad.PortInfo // by number
	switches []mad.SwitchInfo // of switches
	swOf     []int32          // number among the switches; -1 for others
	swNodes  []int32          // and back
}

// discover reads every node.
func discover(g *topo.Graph, f Fabric) (*subnet, error) {
	s := &subnet{
		client: client{f: f, g: g}, ports: make([][]mad.PortInfo, len(g.Nodes)),
		switches: make([]mad.SwitchInfo, len(g.Nodes)), swOf: make([]int32, len(g.Nodes)),
	}
	for i, n := range g.Nodes {
		s.swOf[i] = -1
		if n.IsSwitch() {
			s.swOf[i] = int32(len(s.swNodes))
			s.swNodes = append(s.swNodes, int32(i))
		}
		if err := s.readNode(i, n); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *subnet) readNode(i int, n *topo.Node) error {
	first := ib.PortNum(1)
	if n.IsSwitch() {
		first = 0
	}
	var info mad.NodeInfo
	if err := s.get(i, first, mad.AttrNodeInfo, 0, &info); err != nil {
		return err
	}
	for _, c := range [...]struct {
		field     string
		got, want any
	}{{"NodeGUID", info.NodeGUID, n.GUID}, {"NodeType", info.NodeType, n.Type}, {"NumPorts", int(info.NumPorts), n.NumPorts()}} {
		if c.got != c.want {
			return &MismatchError{n.Name, c.field, c.got, c.want}
		}
	}
	s.ports[i] = make([]mad.PortInfo, len(n.Ports))
	for p := int(first); p < len(n.Ports); p++ {
		if p > 0 && !n.Ports[p].Connected() {
			continue
		}
		if err := s.get(i, s.through(n, ib.PortNum(p)), mad.AttrPortInfo, uint32(p), &s.ports[i][p]); err != nil {
			return err
		}
	}
	if !n.IsSwitch() {
		return nil
	}
	return s.get(i, 0, mad.AttrSwitchInfo, 0, &s.switches[i])
}

// through is the port by which requests about port p reach a node: a switch's agent
// answers for all ports, an adapter's for the one that was asked.
func (s *subnet) through(n *topo.Node, p ib.PortNum) ib.PortNum {
	if n.IsSwitch() {
		return 0
	}
	return p
}

// up reports whether the cable at a port joins two ports that are logically up.
func (s *subnet) up(node int, p ib.PortNum) bool {
	x := &s.g.Nodes[node].Ports[p]
	return x.Connected() && s.ports[node][p].PortState >= ib.PortInit && s.ports[x.Peer][x.PeerPort].PortState >= ib.PortInit
}

// wiring is the fabric as routing sees it.
func (s *subnet) wiring() *wiring {
	w := &wiring{out: make([][]edge, len(s.swNodes)), ends: make([]uint32, len(s.swNodes)), stride: 1}
	for at, i := range s.swNodes {
		n := s.g.Nodes[i]
		w.stride = max(w.stride, len(n.Ports))
		for p := 1; p < len(n.Ports); p++ {
			if !s.up(int(i), ib.PortNum(p)) {
				continue
			}
			peer := s.swOf[n.Ports[p].Peer]
			switch {
			case peer < 0:
				w.ends[at]++
			case peer != int32(at): // a cable from a switch to itself leads nowhere
				w.out[at] = append(w.out[at], edge{ib.PortNum(p), n.Ports[p].PeerPort, peer})
			}
		}
	}
	return w
}
