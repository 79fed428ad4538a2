package sm

import (
	"testing"

	"softib/node/agent"
	"softib/node/hca"
	"softib/node/ibrouter"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// world is a fabric of real engines whose agents answer at once.
type world struct {
	g        *topo.Graph
	agents   []*agent.Agent
	switches []*ibswitch.Switch // by node
	hcas     []*hca.HCA
	routers  []*ibrouter.Router
	links    [][]*link.Port // by node and port
	pool     link.Pool
	mads     int
	mute     int // a node that does not answer; -1 for none
	vls      func(node int) uint8
	mtu      func(node int) ib.MTU
}

func (w *world) SMP(node int, in ib.PortNum, req, resp *[mad.Size]byte) bool {
	w.mads++
	if node == w.mute {
		return false
	}
	_, ok := w.agents[node].HandleMAD(0, in, req[:], resp[:])
	return ok
}

func build(t testing.TB, g *topo.Graph, opts ...func(*world)) *world {
	t.Helper()
	n := len(g.Nodes)
	w := &world{
		g: g, agents: make([]*agent.Agent, n), switches: make([]*ibswitch.Switch, n), hcas: make([]*hca.HCA, n),
		routers: make([]*ibrouter.Router, n),
		links:   make([][]*link.Port, n), mute: -1,
	}
	for _, o := range opts {
		o(w)
	}
	for i, n := range g.Nodes {
		cfg := link.Config{MTUCap: ib.MTU4096, VLCap: 8}
		if w.vls != nil {
			cfg.VLCap = w.vls(i)
		}
		if w.mtu != nil {
			cfg.MTUCap = w.mtu(i)
		}
		id := agent.Identity{Type: n.Type, GUID: n.GUID, SystemGUID: n.SystemGUID, VendorID: n.VendorID,
			DeviceID: n.DeviceID, Desc: n.Desc}
		w.links[i] = make([]*link.Port, len(n.Ports))
		if n.IsSwitch() {
			s := ibswitch.New(ibswitch.Config{Ports: n.NumPorts(), Port: cfg}, &w.pool)
			w.switches[i] = s
			for p := range n.Ports {
				w.links[i][p] = s.Port(ib.PortNum(p))
			}
			w.agents[i] = agent.New(ibswitch.NewNode(s, ibswitch.NodeConfig{Identity: id}))
		} else {
			ports := link.NewPorts(len(n.Ports), cfg)
			for p := 1; p < len(n.Ports); p++ {
				w.links[i][p] = &ports[p]
			}
			guids := make([]ib.GUID, n.NumPorts())
			for p := range guids {
				guids[p] = n.PortGUID(ib.PortNum(p + 1))
			}
			w.hcas[i] = hca.New(hca.Config{NodeGUID: n.GUID, Ports: n.NumPorts(), PortGUID: guids})
			view := hca.NewNode(w.hcas[i], w.links[i], hca.NodeConfig{Identity: id})
			w.agents[i] = agent.New(view)
			if n.Type == ib.NodeRouter {
				w.routers[i] = ibrouter.New(w.links[i], guids, &link.Pool{})
				w.agents[i] = agent.New(ibrouter.NewNode(view, w.routers[i]))
			}
		}
	}
	for _, c := range g.Cables() {
		for _, r := range []topo.PortRef{c.A, c.B} {
			p := w.links[r.Node][r.Port]
			p.SetRate(g.LinkRate(r))
			p.Train()
			p.LinkUp(0)
		}
	}
	return w
}

func spec(t testing.TB, s string) *topo.Graph {
	t.Helper()
	g, err := topo.ParseSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustBringUp(t testing.TB, w *world) Report {
	t.Helper()
	r, err := BringUp(w.g, w, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// walk follows the switches' own tables from a host port to a LID and returns the
// cables on the way, by the port that they are left by; ok is false if the packet
// does not arrive.
func (w *world) walk(from topo.PortRef, lid ib.LID) (hops []topo.PortRef, at topo.PortRef, ok bool) {
	ref := from
	for len(hops) <= len(w.g.Nodes) {
		hops = append(hops, ref)
		x := w.g.Port(ref)
		if x == nil || !x.Connected() || w.links[ref.Node][ref.Port].State() != ib.PortActive ||
			w.links[x.Peer][x.PeerPort].State() != ib.PortActive {
			return hops, ref, false
		}
		at = topo.PortRef{Node: x.Peer, Port: x.PeerPort}
		s := w.switches[at.Node]
		if s == nil {
			return hops, at, true
		}
		out := s.Route(lid)
		if out == 0 {
			return hops, topo.PortRef{Node: at.Node}, true
		}
		if int(out) > s.NumPorts() || out == at.Port {
			return hops, at, false
		}
		ref = topo.PortRef{Node: at.Node, Port: out}
	}
	return hops, at, false
}

// hostPorts are the cabled ports of hosts.
func hostPorts(g *topo.Graph) (list []topo.PortRef) {
	for _, h := range g.Hosts() {
		for p := 1; p < len(h.Ports); p++ {
			if h.Ports[p].Connected() {
				list = append(list, topo.PortRef{Node: h.Index, Port: ib.PortNum(p)})
			}
		}
	}
	return list
}
