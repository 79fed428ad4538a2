package sm

import (
	"errors"
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
)

// Fabric takes datagrams straight to agents, in no time: for fabrics that live in the same process as their manager.
type Fabric interface { // tidy: calls out, BringUp drives the manager and is not driven itself
	// SMP hands a request to the agent of a node, as if it had come in by inPort (0: from the node itself). False means
	// that there is no answer.
	SMP(node int, inPort ib.PortNum, req, resp *[mad.Size]byte) bool
}

// Report is what a bring-up has done.
type Report struct {
	SweepReport
	// SMLID is the address that ports know the manager by.
	SMLID ib.LID
	// LIDs are the base LIDs by node and port of the graph; a switch's is at port 0.
	LIDs [][]ib.LID
	// Down are cabled ports that have no link.
	Down []topo.PortRef

	parts []*subnet.Subnet
}

// Level is the service level that packets from one port to another have to have, 0 if any will do.
func (r *Report) Level(from, to ib.LID) ib.SL {
	for _, s := range r.parts {
		if src, ok := s.ByLID(from); ok && s.Levels != nil {
			return s.Levels.Level(src, to)
		}
	}
	return 0
}

// LID is the address of a port; a switch's is its port 0's.
func (r *Report) LID(ref topo.PortRef) ib.LID {
	if ref.Node < 0 || ref.Node >= len(r.LIDs) || int(ref.Port) >= len(r.LIDs[ref.Node]) {
		return ib.LIDReserved
	}
	return r.LIDs[ref.Node][ref.Port]
}

// ErrBringUp is matched when a fabric cannot be brought up.
var ErrBringUp = errors.New("the subnet cannot be brought up")

// Call takes a request to where it goes and brings the answer, in no time; false if there is none.
type Call func(req []byte, resp *[mad.Size]byte) bool

// BringUp runs a manager on the first host of every part of a fabric until the subnet is up. The directed routes of its
// datagrams are walked along the graph's cables, whose ports must be up.
func BringUp(g *topo.Graph, f Fabric, cfg Config) (Report, error) {
	return BringUpParts(g, cfg, func(from topo.PortRef) Call {
		return func(req []byte, resp *[mad.Size]byte) bool { return walk(g, f, from, req, resp) }
	})
}

// BringUpParts is BringUp for one who can say how requests travel from a port.
func BringUpParts(g *topo.Graph, cfg Config, call func(from topo.PortRef) Call) (Report, error) {
	var rep Report
	rep.LIDs = make([][]ib.LID, len(g.Nodes))
	for i, n := range g.Nodes {
		rep.LIDs[i] = make([]ib.LID, len(n.Ports))
	}
	if cfg.Memory.LIDs == nil {
		cfg.Memory.LIDs, cfg.LMCs = HintedLIDs(g)
	}
	subnets, given := g.Subnets(), cfg.Memory
	seen := map[topo.PortRef]bool{}      // ports of hosts
	inPart := make([]bool, len(g.Nodes)) // and hosts
	for _, from := range firstPorts(g) {
		h := g.Nodes[from.Node]
		if seen[from] || inPart[h.Index] && g.Planes <= 1 {
			continue
		}
		if len(g.Routers()) > 0 {
			// Where packets go from one to another by GIDs, each has its own prefix and all LIDs.
			cfg.Prefix, cfg.Memory = g.Prefix(subnets.Of(from)), given
		}
		m := New(cfg)
		if err := m.Settle(call(from)); err != nil {
			return rep, fmt.Errorf("sm: from %s: %w", h.Name, err)
		}
		for _, n := range m.sub.Nodes {
			at := g.ByGUID(n.Info.NodeGUID)
			if at == nil || len(at.Ports) != len(n.Ports) {
				return rep, fmt.Errorf("sm: from %s: node %v is not what the graph says: %w", h.Name, n.Info.NodeGUID,
					ErrBringUp)
			}
			inPart[at.Index] = true
			for p := range n.Ports {
				if p > 0 && !n.IsSwitch() && !n.Ports[p].Up() && (g.Planes > 1 || at.Type == ib.NodeRouter) {
					continue // it is of another part
				}
				seen[topo.PortRef{Node: at.Index, Port: ib.PortNum(p)}] = true
				if n.IsSwitch() == (p == 0) {
					rep.LIDs[at.Index][p] = n.Ports[p].Info.LID
				}
			}
		}
		cfg.Memory = m.memory()
		rep.parts = append(rep.parts, m.sub)
		for _, ref := range downPorts(g, m) {
			if subnets.Of(ref) == subnets.Of(from) {
				rep.Down = append(rep.Down, ref)
			}
		}
		if rep.SMLID == 0 {
			rep.SweepReport, rep.SMLID = m.last, m.lids.of[m.guid]
		} else {
			rep.Hosts, rep.Switches, rep.Links, rep.MADs = rep.Hosts+m.last.Hosts, rep.Switches+m.last.Switches,
				rep.Links+m.last.Links, rep.MADs+m.last.MADs
		}
	}
	if rep.SMLID == 0 {
		return rep, fmt.Errorf("sm: no host has a cable: %w", ErrBringUp)
	}
	return rep, nil
}

// firstPorts are ports of hosts from which managers look around: one of each host and, where a fabric has several
// planes, all.
func firstPorts(g *topo.Graph) (list []topo.PortRef) {
	for _, h := range g.Hosts() {
		for p := firstPort(h); p != 0 && int(p) < len(h.Ports); p++ {
			if h.Ports[p].Connected() {
				list = append(list, topo.PortRef{Node: h.Index, Port: p})
			}
			if g.Planes <= 1 {
				break
			}
		}
	}
	return list
}

// firstPort is the first port of a host that has a cable, 0 if there is none.
func firstPort(h *topo.Node) ib.PortNum {
	for p := 1; p < len(h.Ports); p++ {
		if h.Ports[p].Connected() {
			return ib.PortNum(p)
		}
	}
	return 0
}

// downPorts are the cabled ports without a link.
func downPorts(g *topo.Graph, m *Manager) (list []topo.PortRef) {
	for _, n := range m.sub.Nodes {
		at := g.ByGUID(n.Info.NodeGUID)
		for p := 1; at != nil && p < len(n.Ports); p++ {
			if at.Ports[p].Connected() && !n.Ports[p].Up() {
				list = append(list, topo.PortRef{Node: at.Index, Port: ib.PortNum(p)})
			}
		}
	}
	return list
}

// HintedLIDs are the addresses that a dump names, by port GUID, and the LMCs; nil if it names none. A port without one,
// or with one that overlaps another's, gets a new one and leaves the others theirs.
func HintedLIDs(g *topo.Graph) (lids map[ib.GUID]ib.LID, lmcs map[ib.GUID]uint8) {
	b, _ := newLIDBook(nil)
	for _, r := range g.EndPorts() {
		port, guid := g.Port(r), g.Nodes[r.Node].PortGUID(r.Port)
		if port.LID == 0 || !b.claim(guid, port.LID, port.LMC) {
			continue
		}
		if lids == nil {
			lids, lmcs = map[ib.GUID]ib.LID{}, map[ib.GUID]uint8{}
		}
		lids[guid], lmcs[guid] = port.LID, port.LMC
	}
	return lids, lmcs
}

// patience is how many steps a bring-up may take for each node before something must be wrong.
const patience = 1 << 16

// Settle runs a new manager until its subnet is up, whoever else is there, until ways are open again that it had to
// close to change tables, and until switches choose, if they are to. Everything that a node does not do as asked is an
// error.
func (m *Manager) Settle(call Call) error {
	m.cfg.Window = 1
	m.forced, m.brief = true, true
	m.Start(0)
	var send Send
	var resp [mad.Size]byte
	now := ib.Time(0)
	late := func() bool {
		return m.sweep != nil && (m.sweep.round < len(m.sweep.plan.Rounds) || m.sweep.groups != nil &&
			m.sweep.phase <= phaseChoose)
	}
	for step := 0; m.sub == nil || late(); step++ {
		if j, ok := m.PollJob(); ok {
			j.Run()
			m.HandleJob(now, j)
			continue
		}
		if !m.PollSend(now, &send) {
			if m.sweep != nil && m.sweep.hold > now {
				now = m.sweep.hold // packets by the old ways are gone
				continue
			}
			if m.sweep != nil && m.sweep.job != nil || m.sub != nil && !late() {
				continue
			}
			return fmt.Errorf("%w%s", ErrBringUp, m.complaints())
		}
		if m.sweep != nil && step > patience*(len(m.sweep.nodes)+1) {
			return fmt.Errorf("it does not end: %w%s", ErrBringUp, m.complaints())
		}
		switch {
		case send.Timeout == 0:
		case call(send.Data, &resp):
			m.HandleReply(now, send.Cookie, resp[:])
		default:
			m.HandleReply(now, send.Cookie, nil)
		}
	}
	if m.last.Problems > 0 {
		return fmt.Errorf("%w%s", ErrBringUp, m.complaints())
	}
	return nil
}

// complaints are the problems that a manager has logged.
func (m *Manager) complaints() string {
	text := ""
	for _, e := range m.events {
		if e.Kind == EventProblem {
			text += ": " + e.Text
		}
	}
	return text
}

// walk takes a directed-route request along the cables of a graph.
func walk(g *topo.Graph, f Fabric, from topo.PortRef, data []byte, resp *[mad.Size]byte) bool {
	v := mad.View(data[:mad.Size])
	node, in := from.Node, from.Port
	for h := uint8(1); h <= v.HopCount(); h++ {
		out := v.InitialPath(h)
		n := g.Nodes[node]
		if int(out) >= len(n.Ports) || !n.Ports[out].Connected() || h > 1 && !n.IsSwitch() {
			return false
		}
		node, in = n.Ports[out].Peer, n.Ports[out].PeerPort
	}
	return f.SMP(node, in, (*[mad.Size]byte)(data), resp)
}
