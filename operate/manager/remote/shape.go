package remote

import (
	"cmp"
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// shape is every node and cable that was ever seen. Nodes keep their numbers: what was a port once is the same port for
// ever.
type shape struct {
	members []*member
	index   map[nodeKey]int
	names   map[string]bool
}

// nodeKey is what a node is known again by. Nth tells nodes apart that have one GUID.
type nodeKey struct {
	guid  ib.GUID
	ports uint8
	nth   int
}

// member is a node.
type member struct {
	key  nodeKey
	name string
	desc string
	info mad.NodeInfo
	// By port:
	guids []ib.GUID
	specs []topo.LinkSpec // what it can do
	peers []topo.PortRef  // where its cable leads; Node is survey.None for nowhere
}

func (m *member) isSwitch() bool { return m.info.NodeType == ib.NodeSwitch }

func newShape() *shape { return &shape{index: map[nodeKey]int{}, names: map[string]bool{}} }

// keysOf gives every node of a survey its key. Nodes that share a GUID are told apart by where they are plugged in,
// since the order in which they are found depends on who answers first.
func keysOf(s *survey.Survey) []nodeKey {
	keys := make([]nodeKey, len(s.Nodes))
	same := map[nodeKey][]int{}
	var order []nodeKey
	for i, n := range s.Nodes {
		keys[i] = nodeKey{guid: n.Info.NodeGUID, ports: n.Info.NumPorts}
		if same[keys[i]] == nil {
			order = append(order, keys[i])
		}
		same[keys[i]] = append(same[keys[i]], i)
	}
	plug := func(i int) (ib.GUID, ib.PortNum) {
		for _, p := range s.Nodes[i].Ports {
			if p.Cabled() {
				return s.Nodes[p.Peer].Info.NodeGUID, p.PeerPort
			}
		}
		return 0, 0
	}
	for _, k := range order {
		list := same[k]
		slices.SortStableFunc(list, func(a, b int) int {
			ga, pa := plug(a)
			gb, pb := plug(b)
			return cmp.Or(cmp.Compare(ga, gb), cmp.Compare(pa, pb))
		})
		for nth, i := range list {
			keys[i].nth = nth
		}
	}
	return keys
}

// absorb takes over what is new in a survey. At is the number of each of the survey's nodes, and news says what is new:
// nothing if the graph stays as it is.
func (h *shape) absorb(s *survey.Survey) (at []int, news []string) {
	at = make([]int, len(s.Nodes))
	for i, k := range keysOf(s) {
		j, known := h.index[k]
		if !known {
			j = h.add(k, s.Nodes[i])
			news = append(news, fmt.Sprintf("%s is new", h.members[j].name))
		}
		at[i] = j
		m := h.members[j]
		for p := range s.Nodes[i].Ports {
			x := &s.Nodes[i].Ports[p]
			if m.guids[p] == 0 {
				m.guids[p] = x.GUID
			}
			if x.Known && (x.Linked() || m.specs[p] == (topo.LinkSpec{})) {
				m.specs[p] = topo.LinkSpec{Width: x.Info.LinkWidthSupported.Widest(), Speed: x.Info.SupportedSpeed()}
			}
		}
	}
	for _, c := range s.Cables() {
		a, b := topo.PortRef{Node: at[c.A.Node], Port: c.A.Port}, topo.PortRef{Node: at[c.B.Node], Port: c.B.Port}
		if *h.peer(a) == b {
			continue
		}
		moved := ""
		for _, r := range [2]topo.PortRef{a, b} {
			if old := *h.peer(r); old.Node != survey.None {
				moved = fmt.Sprintf("; it was %s %s", h.portName(r), h.portName(old))
				h.peer(old).Node = survey.None
			}
		}
		*h.peer(a), *h.peer(b) = b, a
		news = append(news, fmt.Sprintf("the cable %s %s is new%s", h.portName(a), h.portName(b), moved))
	}
	return at, news
}

func (h *shape) peer(r topo.PortRef) *topo.PortRef { return &h.members[r.Node].peers[r.Port] }

func (h *shape) portName(r topo.PortRef) string {
	if r.Port == 0 {
		return h.members[r.Node].name
	}
	return fmt.Sprintf("%s[%d]", h.members[r.Node].name, r.Port)
}

// add takes a node in.
func (h *shape) add(k nodeKey, n *survey.Node) int {
	m := &member{key: k, name: n.Name, desc: n.Desc, info: n.Info}
	for i := 2; h.names[m.name]; i++ {
		m.name = fmt.Sprintf("%s-%d", n.Name, i)
	}
	h.names[m.name] = true
	ports := int(n.Info.NumPorts) + 1
	m.guids, m.specs, m.peers = make([]ib.GUID, ports), make([]topo.LinkSpec, ports), make([]topo.PortRef, ports)
	for p := range m.peers {
		m.peers[p].Node = survey.None
	}
	h.members = append(h.members, m)
	h.index[k] = len(h.members) - 1
	return len(h.members) - 1
}

// graph is the shape as others want it. The links of its cables are what both ends could be.
func (h *shape) graph() (*topo.Graph, error) {
	g := &topo.Graph{}
	for _, m := range h.members {
		if _, err := survey.AddNode(g, m.name, m.desc, &m.info, m.guids); err != nil {
			return nil, err
		}
	}
	for i, m := range h.members {
		for p, far := range m.peers {
			if far.Node == survey.None || far.Node < i || far.Node == i && int(far.Port) < p {
				continue
			}
			err := g.ConnectAsym(i, ib.PortNum(p), far.Node, far.Port, m.specs[p], h.members[far.Node].specs[far.Port])
			if err != nil {
				return nil, err
			}
		}
	}
	return g, nil
}
