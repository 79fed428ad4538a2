package check

import (
	"fmt"
	"strings"

	"softib/driver/sim"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// tables looks at what the switches really hold.
type tables struct {
	sim      *sim.Sim
	cfg      sm.Config // that knows the M_Keys
	g        *topo.Graph
	switches []int   // nodes
	number   []int32 // of a switch by node, -1 for a host
	mark     []int32 // by switch: the walk that came by last
	walk     int32
}

func newTables(s *sim.Sim, cfg sm.Config) *tables {
	t := &tables{sim: s, cfg: cfg, g: s.Graph(), number: make([]int32, len(s.Graph().Nodes))}
	for i, n := range t.g.Nodes {
		t.number[i] = -1
		if n.IsSwitch() {
			t.number[i] = int32(len(t.switches))
			t.switches = append(t.switches, i)
		}
	}
	t.mark = make([]int32, len(t.switches))
	return t
}

// active reports whether packets of programs leave by a port and are taken at the far end. A port that is
// armed becomes active with the first packet.
func (t *tables) active(ref topo.PortRef) bool {
	p := t.g.Port(ref)
	return p != nil && p.Connected() && t.sim.Port(ref).State() == ib.PortActive &&
		t.sim.Port(topo.PortRef{Node: p.Peer, Port: p.PeerPort}).State() >= ib.PortArmed
}

// out is the port by which a switch sends packets to a LID on; ok is false where they end there.
func (t *tables) out(node int, lid ib.LID) (topo.PortRef, bool) {
	sw := t.sim.Switch(node)
	out := sw.Route(lid)
	ref := topo.PortRef{Node: node, Port: out}
	if out == 0 || int(out) > sw.NumPorts() || lid > sw.Info().LinearFDBTop || !t.active(ref) {
		return ref, false
	}
	return ref, true
}

// loop finds a switch from which packets to some LID come back to it, over links that are active. A switch that has
// started anew needs no exception: it holds nothing, and its links come back inactive, so that packets pass it only
// when a manager has written its table and activated the links.
func (t *tables) loop(from, to ib.LID) []topo.PortRef {
	choose := false
	for _, node := range t.switches {
		choose = choose || t.sim.Switch(node).Adaptive().On
	}
	for lid := from; lid <= to; lid++ {
		if choose {
			if list := t.chosenLoop(lid); list != nil {
				return list
			}
		}
		clear(t.mark)
		for k := range t.switches {
			t.walk = int32(k + 1)
			for at := int32(k); t.mark[at] == 0; {
				t.mark[at] = t.walk
				ref, ok := t.out(t.switches[at], lid)
				if !ok {
					break
				}
				next := t.number[t.g.Port(ref).Peer]
				if next < 0 {
					break
				}
				if t.mark[next] == t.walk {
					return t.round(next, lid)
				}
				at = next
			}
		}
	}
	return nil
}

// chosenLoop finds a way on which packets to a LID come back to a switch, whatever the switches choose.
func (t *tables) chosenLoop(lid ib.LID) []topo.PortRef {
	for _, mayChoose := range [...]bool{true, false} {
		clear(t.mark)
		for k := range t.switches {
			if list := t.follow(int32(k), lid, mayChoose, nil); list != nil {
				return list
			}
		}
	}
	return nil
}

// follow walks all ways on from a switch, of packets that may choose or of those that do so only where their link is
// lost. It returns the way that ends where it has been.
func (t *tables) follow(at int32, lid ib.LID, mayChoose bool, way []topo.PortRef) []topo.PortRef {
	const underWay, done = 1, 2
	switch t.mark[at] {
	case underWay:
		return way
	case done:
		return nil
	}
	t.mark[at] = underWay
	node := t.switches[at]
	sw := t.sim.Switch(node)
	var ports ib.PortMask
	if in := sw.GroupOf(lid); sw.Adaptive().On && in.Group >= 0 && lid <= sw.Info().LinearFDBTop {
		ports = sw.Group(in.Group)
	}
	if ref, ok := t.out(node, lid); ok && (!mayChoose || ports.Empty()) {
		ports = ib.PortMask{}
		ports.Set(ref.Port)
	}
	for p, ok := ports.Pop(); ok; p, ok = ports.Pop() {
		ref := topo.PortRef{Node: node, Port: p}
		if !t.active(ref) {
			continue
		}
		next := t.number[t.g.Port(ref).Peer]
		if next < 0 {
			continue
		}
		if list := t.follow(next, lid, mayChoose, append(way, ref)); list != nil {
			return list
		}
	}
	t.mark[at] = done
	return nil
}

// round lists the ports of a loop.
func (t *tables) round(at int32, lid ib.LID) (list []topo.PortRef) {
	for first := at; len(list) == 0 || at != first; {
		ref, _ := t.out(t.switches[at], lid)
		list = append(list, ref)
		at = t.number[t.g.Port(ref).Peer]
	}
	return list
}

// names is a list of ports for a message.
func (t *tables) names(list []topo.PortRef) string {
	var words []string
	for _, r := range list {
		words = append(words, t.g.PortName(r))
	}
	return strings.Join(words, " > ")
}

// path is the ports by which packets leave host ports and switches on their way from a host to a LID; ok is false if
// they do not arrive.
func (t *tables) path(host int, lid ib.LID) (list []topo.PortRef, end topo.PortRef, ok bool) {
	ref := topo.PortRef{Node: t.sim.HostNode(host).Index, Port: 1}
	for len(list) <= len(t.switches)+1 {
		list = append(list, ref)
		if !t.active(ref) {
			return list, ref, false
		}
		p := t.g.Port(ref)
		end = topo.PortRef{Node: p.Peer, Port: p.PeerPort}
		if t.number[p.Peer] < 0 {
			return list, end, true
		}
		sw := t.sim.Switch(p.Peer)
		if sw.Route(lid) == 0 && lid <= sw.Info().LinearFDBTop {
			return list, topo.PortRef{Node: p.Peer}, true
		}
		if ref, ok = t.out(p.Peer, lid); !ok {
			return list, ref, false
		}
	}
	return list, ref, false
}

// stop says why packets to a LID end at a port.
func (t *tables) stop(ref topo.PortRef, lid ib.LID) string {
	name := t.g.PortName(ref)
	if t.number[ref.Node] < 0 {
		return name
	}
	if top := t.sim.Switch(ref.Node).Info().LinearFDBTop; lid > top {
		return fmt.Sprintf("%s, whose table ends at %v", name, top)
	}
	if p := t.g.Port(ref); p != nil && p.Connected() {
		return fmt.Sprintf("%s, which is %v (its far end %v)", name, t.sim.Port(ref).State(),
			t.sim.Port(topo.PortRef{Node: p.Peer, Port: p.PeerPort}).State())
	}
	return fmt.Sprintf("node %d, whose entry is %d", ref.Node, ref.Port)
}

// end is an end port: of a host, or port 0 of a switch.
type end struct {
	ref   topo.PortRef
	guid  ib.GUID
	lid   ib.LID
	lmc   uint8
	smLID ib.LID
}

// ends are all end ports that have a cable, as they are.
func (t *tables) ends() []end {
	var list []end
	for i, n := range t.g.Nodes {
		if n.IsSwitch() {
			e := end{ref: topo.PortRef{Node: i}, guid: n.PortGUID(0)}
			e.lid, e.lmc = t.sim.Switch(i).LID()
			e.smLID = t.portInfo(e.ref).MasterSMLID
			list = append(list, e)
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Connected() {
				a := t.adapter(i).Port(ib.PortNum(p))
				list = append(list, end{topo.PortRef{Node: i, Port: ib.PortNum(p)}, n.PortGUID(ib.PortNum(p)), a.LID,
					a.LMC, a.SMLID})
			}
		}
	}
	return list
}

func (t *tables) adapter(node int) *hca.HCA { return t.sim.Adapter(t.host(node)) }

// host is the number of a node among the hosts; -1 for a switch.
func (t *tables) host(node int) int {
	for i := range t.sim.NumHosts() {
		if t.sim.HostNode(i).Index == node {
			return i
		}
	}
	return -1
}

// key is the M_Key of a port.
func (t *tables) key(ref topo.PortRef) uint64 {
	n := t.g.Nodes[ref.Node]
	if n.IsSwitch() {
		ref.Port = 0
	}
	return t.cfg.KeyOf(n.PortGUID(ref.Port))
}

// portInfo asks the agent of a node.
func (t *tables) portInfo(ref topo.PortRef) (pi mad.PortInfo) {
	var buf [mad.Size]byte
	v := mad.View(buf[:])
	smp := mad.SMP{Method: mad.MethodGet, Attr: mad.AttrPortInfo, Modifier: uint32(ref.Port), MKey: t.key(ref)}
	if _, err := smp.Append(buf[:0]); err != nil {
		panic(err)
	}
	if _, ok := t.sim.Agent(ref.Node).HandleMAD(t.sim.Now(), 0, v, v); ok {
		pi.Parse(v.Data())
	}
	return pi
}

// network is the fabric as routing sees it and the tables that are in force; ok is false where two ports have one
// address.
func (t *tables) network() (n *route.Network, tab *route.Tables, ok bool) {
	n = &route.Network{Switches: make([]route.Switch, len(t.switches))}
	tab = &route.Tables{Engine: "as found", VLs: 1, LFT: make([][]ib.PortNum, len(t.switches))}
	seen := map[ib.LID]bool{}
	ok = true
	add := func(lid ib.LID, lmc uint8, sw int32, port ib.PortNum) {
		for k := range ib.LID(1) << lmc {
			if lid == 0 {
				return
			}
			ok = ok && !seen[lid+k]
			seen[lid+k] = true
			n.Dests = append(n.Dests, route.Dest{LID: lid + k, Switch: sw, Port: port, PathBits: uint8(k)})
			n.Top = max(n.Top, lid+k)
		}
	}
	for k, node := range t.switches {
		g := t.g.Nodes[node]
		sw := &n.Switches[k]
		sw.GUID, sw.Ports = g.GUID, make([]route.Hop, len(g.Ports))
		for p := range g.Ports {
			sw.Ports[p].To = route.NoSwitch
			if p == 0 || !t.active(topo.PortRef{Node: node, Port: ib.PortNum(p)}) {
				continue
			}
			peer := &g.Ports[p]
			if to := t.number[peer.Peer]; to >= 0 {
				// Routing knows a cable by both of its ends.
				if t.active(topo.PortRef{Node: peer.Peer, Port: peer.PeerPort}) && peer.Peer != node {
					sw.Ports[p] = route.Hop{To: to, Port: peer.PeerPort}
				}
				continue
			}
			sw.Ends++
			a := t.adapter(peer.Peer).Port(peer.PeerPort)
			add(a.LID, a.LMC, int32(k), ib.PortNum(p))
		}
	}
	for k, node := range t.switches {
		lid, lmc := t.sim.Switch(node).LID()
		add(lid, lmc, int32(k), 0)
	}
	for k, node := range t.switches {
		row := make([]ib.PortNum, int(n.Top)+1)
		sw := t.sim.Switch(node)
		for lid := range row {
			out := sw.Route(ib.LID(lid))
			if out != 0 && (int(out) > sw.NumPorts() || !t.active(topo.PortRef{Node: node, Port: out})) ||
				ib.LID(lid) > sw.Info().LinearFDBTop {
				out = route.NoPort
			}
			row[lid] = out
		}
		tab.LFT[k] = row
	}
	return n, tab, ok
}

// lanes are the switches' own maps of levels to lanes.
type lanes struct{ t *tables }

func (l lanes) VL(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	if sw == route.NoSwitch {
		return ib.VL(sl)
	}
	return l.t.sim.Switch(l.t.switches[sw]).SL2VL(in, out)[sl&15]
}

// groups are what the switches choose from, nil if none does.
func (t *tables) groups(n *route.Network) *route.Groups {
	g := &route.Groups{Sets: make([][]ib.PortMask, len(t.switches)), Of: make([][]uint16, len(t.switches))}
	choose := false
	for k, node := range t.switches {
		sw := t.sim.Switch(node)
		g.Of[k] = make([]uint16, len(n.Dests))
		if !sw.Adaptive().On {
			continue
		}
		choose = true
		for i := range route.MaxGroups {
			g.Sets[k] = append(g.Sets[k], sw.Group(i))
		}
		for d := range n.Dests {
			g.Of[k][d] = uint16(sw.GroupOf(n.Dests[d].LID).Group + 1)
		}
	}
	if !choose {
		return nil
	}
	return g
}

// creditLoop finds a cycle of channels that wait for each other under the tables in force. level, where it is not nil,
// gives the service level from a switch's hosts to a LID.
func (t *tables) creditLoop(level func(node int, lid ib.LID) ib.SL) string {
	n, tab, ok := t.network()
	if !ok {
		return ""
	}
	if level != nil {
		tab.SLtoVL = lanes{t}
		tab.SL = make([][]ib.SL, len(t.switches))
		for k, node := range t.switches {
			tab.SL[k] = make([]ib.SL, len(n.Dests))
			for d := range n.Dests {
				tab.SL[k][d] = level(node, n.Dests[d].LID)
			}
		}
	}
	g := route.NewCDG(n)
	g.Add(tab, route.EndTraffic)
	cycle := g.Cycle()
	if groups := t.groups(n); groups != nil && cycle == nil && level == nil {
		cycle = route.JudgeGroups(n, tab, groups).Cycle
	}
	var words []string
	for _, c := range cycle {
		words = append(words, fmt.Sprintf("%s VL%d", t.g.PortName(topo.PortRef{Node: t.switches[c.Switch],
			Port: c.Port}), c.VL))
	}
	return strings.Join(words, " > ")
}
