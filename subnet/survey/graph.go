package survey

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/route"
)

// duplicateGUID marks the GUIDs that AddNode makes up: locally administered, like those of generated nodes, of a kind
// that these do not use.
const duplicateGUID ib.GUID = 0x0250_f11b_ff00_0000

// Graph is the shape of what was found. Nodes and ports have the same numbers as in the survey. Since a graph has each
// GUID once, the second node of a GUID gets one that is made up.
func (s *Survey) Graph() (*topo.Graph, error) {
	g := &topo.Graph{}
	for _, n := range s.Nodes {
		guids := make([]ib.GUID, len(n.Ports))
		for p := range n.Ports {
			guids[p] = n.Ports[p].GUID
		}
		at, err := AddNode(g, n.Name, n.Desc, &n.Info, guids)
		if err != nil {
			return nil, err
		}
		for p := range min(len(n.Ports), len(at.Ports)) {
			x := &n.Ports[p]
			at.Ports[p].LID, at.Ports[p].LMC = 0, 0
			if n.EndPort(ib.PortNum(p)) == ib.PortNum(p) && x.Known {
				at.Ports[p].LID, at.Ports[p].LMC = x.Info.LID, x.Info.LMC
			}
		}
	}
	for _, c := range s.Cables() {
		a, b := s.Port(c.A), s.Port(c.B)
		near, far := spec(a), spec(b)
		if err := g.ConnectAsym(c.A.Node, c.A.Port, c.B.Node, c.B.Port, near, far); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// AddNode adds a node to a graph as it says that it is, with the GUIDs of its ports, 0 where one is not known. One
// whose own GUID is another's already gets one that is made up.
func AddNode(g *topo.Graph, name, desc string, info *mad.NodeInfo, guids []ib.GUID) (*topo.Node, error) {
	guid := info.NodeGUID
	if g.ByGUID(guid) != nil {
		guid = duplicateGUID + ib.GUID(len(g.Nodes))
	}
	n, err := g.Add(topo.Node{
		Name: name, Type: info.NodeType, GUID: guid, SystemGUID: info.SystemImageGUID,
		VendorID: info.VendorID, DeviceID: info.DeviceID, Desc: desc,
	}, int(info.NumPorts))
	if err != nil {
		return nil, err
	}
	for p, x := range guids {
		if (p == 0) != n.IsSwitch() || x == 0 {
			continue
		}
		if _, taken := g.ByPortGUID(x); !taken {
			if err := g.SetPortGUID(n.Index, ib.PortNum(p), x); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// spec is what a port says of its link.
func spec(p *Port) topo.LinkSpec {
	r := p.Info.Rate()
	l := topo.LinkSpec{}
	if r.Width.Lanes() > 0 {
		l.Width = r.Width
	}
	if r.Speed.IsValid() {
		l.Speed = r.Speed
	}
	return l
}

// Routing is the fabric as routing sees it: switches by number, the links that are ACTIVE, and the tables that switches
// hold.
type Routing struct {
	Net *route.Network
	// Tables take service levels and lanes into account if the survey has them. They share its tables: nobody changes
	// them.
	Tables *route.Tables
	// Nodes are the nodes of switches by number.
	Nodes []int
	// Unread are the switches, by number, whose table is not known or not whole.
	Unread []int32
}

// Routing makes the network and its tables. Of ports that share a LID only the first is a destination. With lanes false
// all packets are taken to use one lane: what is then free of deadlock is so with any lanes.
func (s *Survey) Routing(lanes bool) *Routing {
	r := &Routing{Net: &route.Network{}}
	number := make([]int32, len(s.Nodes))
	for i, n := range s.Nodes {
		number[i] = route.NoSwitch
		if n.IsSwitch() {
			number[i] = int32(len(r.Nodes))
			r.Nodes = append(r.Nodes, i)
		}
	}
	net := r.Net
	net.Switches = make([]route.Switch, len(r.Nodes))
	taken := make([]bool, int(ib.LIDUnicastMax)+1)
	dests := func(sw int32, port ib.PortNum, p *Port) bool {
		base := p.Info.LID
		if !p.Known || !base.IsUnicast() || int(base)+1<<p.Info.LMC > len(taken) {
			return false
		}
		for k := range 1 << p.Info.LMC {
			if taken[int(base)+k] {
				return false
			}
		}
		for k := range 1 << p.Info.LMC {
			d := route.Dest{LID: base + ib.LID(k), Switch: sw, Port: port, PathBits: uint8(k)}
			taken[d.LID] = true
			net.Dests = append(net.Dests, d)
			net.Top = max(net.Top, d.LID)
		}
		return true
	}
	for k, i := range r.Nodes {
		n := s.Nodes[i]
		sw := &net.Switches[k]
		sw.GUID = n.Info.NodeGUID
		sw.Ports = make([]route.Hop, len(n.Ports))
		dests(int32(k), 0, &n.Ports[0])
		for p := range n.Ports {
			sw.Ports[p].To = route.NoSwitch
			x := &n.Ports[p]
			if p == 0 || !x.Cabled() || x.Peer == i || !x.active() {
				continue
			}
			far := &s.Nodes[x.Peer].Ports[x.PeerPort]
			if !far.active() {
				continue
			}
			if s.Nodes[x.Peer].IsSwitch() {
				sw.Ports[p] = route.Hop{To: number[x.Peer], Port: x.PeerPort}
			} else if dests(int32(k), ib.PortNum(p), far) {
				sw.Ends++
			}
		}
	}
	r.tables(s, lanes)
	return r
}

func (p *Port) active() bool { return p.Known && p.Info.PortState == ib.PortActive }

// tables takes the tables over.
func (r *Routing) tables(s *Survey, lanes bool) {
	t := &route.Tables{Engine: "in force", VLs: 1, LFT: make([][]ib.PortNum, len(r.Nodes))}
	for k, i := range r.Nodes {
		n := s.Nodes[i]
		if top := int(r.Net.Top) + 1; len(n.LFT) >= top {
			t.LFT[k] = n.LFT[:top:top] // as most are: together they may have hundreds of megabytes
		} else {
			t.LFT[k] = append(slices.Clip(n.LFT), slices.Repeat([]ib.PortNum{route.NoPort}, top-len(n.LFT))...)
		}
		if n.LFT == nil {
			r.Unread = append(r.Unread, int32(k))
		}
	}
	r.Tables = t
	if !lanes {
		return
	}
	t.SLtoVL = &heldLanes{s, r.Nodes}
	number := map[int]int{}
	for k, i := range r.Nodes {
		number[i] = k
	}
	if s.Levels == nil {
		return
	}
	t.SL = make([][]ib.SL, len(r.Nodes))
	for _, w := range s.Levels {
		k, ok := number[w.Switch]
		if !ok {
			continue
		}
		t.SL[k] = make([]ib.SL, len(r.Net.Dests))
		for d, dest := range r.Net.Dests {
			if int(dest.LID) < len(w.SL) && w.SL[dest.LID] != NoLevel {
				t.SL[k][d] = ib.SL(w.SL[dest.LID])
			}
		}
	}
}

// heldLanes are the lanes that switches give to levels.
type heldLanes struct {
	s     *Survey
	nodes []int
}

// VL is the lane that a switch's own mapping gives. A port with one data lane has no choice.
func (h *heldLanes) VL(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	if sw < 0 || int(sw) >= len(h.nodes) {
		return 0
	}
	n := h.s.Nodes[h.nodes[sw]]
	if int(out) >= len(n.Ports) {
		return 0
	}
	p := &n.Ports[out]
	if p.Info.OperationalVLs.VLs() < 2 || int(in) >= len(p.SLtoVL) || int(sl) >= ib.NumSL {
		return 0
	}
	if vl := p.SLtoVL[in][sl]; vl < ib.VLMgmt {
		return vl
	}
	return 0
}
