package sim

import (
	"fmt"
	"slices"

	"softib/fabric"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// BringUp makes the fabric carry traffic: all links train, and every node is programmed through its agent, in no
// virtual time, as a subnet manager would do it by packets. A link that goes down and comes back afterwards is Active
// again at once.
func (s *Sim) BringUp() (sm.Report, error) {
	s.LinksUp()
	if s.groups == nil {
		var all []topo.PortRef
		for _, h := range s.graph.Hosts() {
			for p := 1; p < len(h.Ports); p++ {
				all = append(all, topo.PortRef{Node: h.Index, Port: ib.PortNum(p)})
			}
		}
		s.setGroup(sm.BroadcastMLID, all)
	}
	return s.bringUp()
}

// Program does what BringUp does on the links that are up by now: for switches that have started anew.
func (s *Sim) Program() (sm.Report, error) { return s.bringUp() }

// noLife is the code of a life time that does not end (IBA 14.2.5.6): packets get old in a simulation only where a
// scenario says so.
const noLife = 20

func (s *Sim) bringUp() (sm.Report, error) {
	report, err := sm.BringUp(s.graph, s,
		sm.Config{Engines: s.cfg.Engines, Adaptive: s.cfg.Adaptive, Groups: s.groups, HOQLife: noLife,
			LeafHOQLife: noLife, PacketLife: noLife})
	s.autoActive = s.autoActive || err == nil
	return report, err
}

// LinksUp trains every link at once, to Initialize, where a subnet manager begins.
func (s *Sim) LinksUp() {
	for at := range s.Places() {
		p := s.PortAt(at)
		if p.Site.Peer != fabric.NoEnd && at < p.Site.Peer && p.Train() {
			s.PortAt(p.Site.Peer).Train()
			s.trained(at)
		}
	}
	s.drain()
}

// ProgramMulticast makes a multicast LID reach the given ports of hosts, and no other.
func (s *Sim) ProgramMulticast(mlid ib.LID, members []topo.PortRef) error {
	for _, m := range members {
		if p := s.graph.Port(m); p == nil || m.Port == 0 || s.graph.Nodes[m.Node].IsSwitch() {
			return fmt.Errorf("sim: group %v: member %s: want a port of a host", mlid, s.graph.PortName(m))
		}
	}
	if !mlid.IsMulticast() {
		return fmt.Errorf("sim: multicast LID %v: want 0x%x to 0x%x", mlid, int(ib.LIDMulticastMin),
			int(ib.LIDMulticastMax))
	}
	s.setGroup(mlid, members)
	_, err := s.bringUp()
	return err
}

// setGroup replaces the members of a group.
func (s *Sim) setGroup(mlid ib.LID, members []topo.PortRef) {
	s.groups = slices.DeleteFunc(s.groups, func(g sm.Group) bool { return g.MLID == mlid })
	g := sm.Group{MLID: mlid}
	for _, m := range members {
		g.Members = append(g.Members, s.graph.Nodes[m.Node].PortGUID(m.Port))
	}
	s.groups = append(s.groups, g)
}

// LID is the address that BringUp gave a port, or a manager has given it by now; a switch's is its port 0's.
func (s *Sim) LID(ref topo.PortRef) ib.LID {
	if s.graph.Nodes[ref.Node].IsSwitch() != (ref.Port == 0) {
		return ib.LIDReserved
	}
	return s.lidOf(ref.Node, ref.Port)
}

// SMP hands a request to the agent of a node, in no virtual time.
func (s *Sim) SMP(node int, inPort ib.PortNum, req, resp *[mad.Size]byte) bool {
	_, ok := s.manager(node).HandleMAD(s.Now(), inPort, req[:], resp[:])
	if v := mad.View(req[:]); v.Method() == mad.MethodSet && v.AttrID() == mad.AttrPortInfo {
		s.Managed(node)
	}
	return ok
}
