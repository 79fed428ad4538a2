package metrics

import (
	"strconv"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
)

// texts are many pieces of text, end to end.
type texts struct {
	b   []byte
	end []uint32
}

// add makes what more appends the next piece.
func (t *texts) add(more func([]byte) []byte) {
	t.b = more(t.b)
	t.end = append(t.end, uint32(len(t.b)))
}

func (t *texts) at(i int) []byte {
	if i == 0 {
		return t.b[:t.end[0]]
	}
	return t.b[t.end[i-1]:t.end[i]]
}

// side is the ports of switches, or those of hosts, under the names of infiniband_exporter.
type side struct {
	word    string         // "switch" or "hca": in names, and the label that has the node's description
	devs    []topo.PortRef // devices that have a cable: switches, and ports of hosts, which have GUIDs of their own
	first   []int32        // of devices: the place of the first of their ports below
	ports   []int32        // places in Manager.Ports of the ports that have a cable: nothing is said of an empty socket
	peer    []topo.PortRef // of ports: what is at the other end
	labels  texts          // of ports: {guid="…",port="…"} and a blank
	uplink  texts          // of ports: all labels of what is at the other end but its LID, from the brace on
	dev     texts          // of devices: guid and description, from the brace on
	guid    texts          // of devices: {guid="…"} and a blank
	devices texts          // of devices: {guid="…",collector="… up to the end of the word
}

// index is all text that stays the same as long as the fabric's shape does.
type index struct {
	sides [2]side
	ports []int32 // all that have a cable
	ufm   texts   // of those: {node_guid="…",port_guid="…",port_num="…"} and a blank
}

func newIndex(m *manager.Manager) *index {
	x := &index{}
	x.sides[0].word, x.sides[1].word = "switch", "hca"
	g := m.Graph()
	last := -1
	for i, r := range m.Ports() {
		n := g.Nodes[r.Node]
		p := &n.Ports[r.Port]
		if !p.Connected() {
			continue
		}
		s := &x.sides[1]
		if n.IsSwitch() {
			s = &x.sides[0]
		}
		if last != r.Node || !n.IsSwitch() {
			last = r.Node
			s.addDevice(n, r)
		}
		s.addPort(g, r, int32(i))
		x.ports = append(x.ports, int32(i))
		x.ufm.add(func(b []byte) []byte {
			// UFM Telemetry writes GUIDs as plain hexadecimal numbers.
			b = strconv.AppendUint(append(b, `{node_guid="`...), uint64(n.GUID), 16)
			b = strconv.AppendUint(append(b, `",port_guid="`...), uint64(n.PortGUID(r.Port)), 16)
			b = strconv.AppendUint(append(b, `",port_num="`...), uint64(r.Port), 10)
			return append(b, `"} `...)
		})
	}
	return x
}

func (s *side) addDevice(n *topo.Node, r topo.PortRef) {
	guid := guidText(n.PortGUID(r.Port))
	s.devs = append(s.devs, r)
	s.first = append(s.first, int32(len(s.ports)))
	s.dev.add(func(b []byte) []byte {
		return appendLabel(appendLabel(append(b, '{'), "guid", guid), s.word, description(n))
	})
	s.guid.add(func(b []byte) []byte { return append(appendLabel(append(b, '{'), "guid", guid), "} "...) })
	s.devices.add(func(b []byte) []byte {
		return append(append(appendLabel(append(b, '{'), "guid", guid), `,collector="`...), s.word...)
	})
}

func (s *side) addPort(g *topo.Graph, r topo.PortRef, place int32) {
	n := g.Nodes[r.Node]
	p := &n.Ports[r.Port]
	peer := g.Nodes[p.Peer]
	s.ports = append(s.ports, place)
	s.peer = append(s.peer, topo.PortRef{Node: p.Peer, Port: p.PeerPort})
	guid, port := guidText(n.PortGUID(r.Port)), strconv.Itoa(int(r.Port))
	s.labels.add(func(b []byte) []byte {
		return append(appendLabel(appendLabel(append(b, '{'), "guid", guid), "port", port), "} "...)
	})
	s.uplink.add(func(b []byte) []byte {
		b = appendLabel(append(b, '{'), "guid", guid)
		b = appendLabel(b, "port", port)
		b = appendLabel(b, s.word, description(n))
		b = appendLabel(b, "uplink", description(peer))
		b = appendLabel(b, "uplink_guid", guidText(peer.PortGUID(p.PeerPort)))
		b = appendLabel(b, "uplink_port", strconv.Itoa(int(p.PeerPort)))
		return appendLabel(b, "uplink_type", typeWord(peer))
	})
}

// guidText is a GUID as ibnetdiscover writes it.
func guidText(g ib.GUID) string {
	const digits = "0123456789abcdef"
	b := [18]byte{'0', 'x'}
	for i := range 16 {
		b[2+i] = digits[g>>(60-4*i)&15]
	}
	return string(b[:])
}

// description is what ibnetdiscover shows of a node.
func description(n *topo.Node) string {
	if n.Desc != "" {
		return n.Desc
	}
	return n.Name
}

// typeWord is a node's type as ibnetdiscover --ports abbreviates it.
func typeWord(n *topo.Node) string {
	switch n.Type {
	case ib.NodeSwitch:
		return "SW"
	case ib.NodeRouter:
		return "RT"
	}
	return "CA"
}

// lids are the addresses of all nodes' ports: of a switch one, of any other node one each.
type lids struct {
	epoch uint64
	first []int32
	lid   []ib.LID
}

func readLIDs(m *manager.Manager) *lids {
	g := m.Graph()
	l := &lids{epoch: m.Fabric().Epoch(), first: make([]int32, len(g.Nodes))}
	for i, n := range g.Nodes {
		l.first[i] = int32(len(l.lid))
		if n.IsSwitch() {
			l.lid = append(l.lid, m.LID(topo.PortRef{Node: i}))
			continue
		}
		for p := 1; p <= n.NumPorts(); p++ {
			l.lid = append(l.lid, m.LID(topo.PortRef{Node: i, Port: ib.PortNum(p)}))
		}
	}
	return l
}

// of is the address of a port, or of the switch that it is part of.
func (l *lids) of(g *topo.Graph, r topo.PortRef) ib.LID {
	at := int(l.first[r.Node])
	if !g.Nodes[r.Node].IsSwitch() {
		at += int(r.Port) - 1
	}
	return l.lid[at]
}
