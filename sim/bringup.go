package sim

import (
	"softib/ib"
	"softib/mad"
	"softib/sm"
	"softib/topo"
)

// BringUp makes the fabric carry traffic: all links train, and every node is
// programmed through its agent, in no virtual time, as a subnet manager would do it by
// packets. A link that goes down and comes back afterwards is Active again
// at once.
func (s *Sim) BringUp() (sm.Report, error) {
	s.LinksUp()
	report, err := sm.BringUp(s.graph, (*fabric)(s))
	if err != nil {
		return report, err
	}
	s.autoActive = true
	s.lids = report.LIDs
	return report, nil
}

// LinksUp trains every link at once, to Initialize, where a subnet manager begins.
func (s *Sim) LinksUp() {
	for at, p := range s.ports {
		if p.Site.Peer != noEnd && uint32(at) < p.Site.Peer && p.Train() {
			s.ports[p.Site.Peer].Train()
			s.trained(uint32(at))
		}
	}
}

// ProgramMulticast makes a multicast LID reach the given ports of hosts, and no other.
func (s *Sim) ProgramMulticast(mlid ib.LID, members []topo.PortRef) error {
	return sm.ProgramMulticast(s.graph, (*fabric)(s), mlid, members)
}

// LID is the address that BringUp gave a port; a switch's is its port 0's.
func (s *Sim) LID(ref topo.PortRef) ib.LID {
	if s.lids == nil {
		return ib.LIDReserved
	}
	return s.lids[ref.Node][ref.Port]
}

// fabric is a Sim as package sm sees it.
type fabric Sim

// SMP hands a request to the agent of a node.
func (f *fabric) SMP(node int, inPort ib.PortNum, req, resp *[mad.Size]byte) bool {
	s := (*Sim)(f)
	_, ok := s.manager(node).HandleMAD(s.now, inPort, req[:], resp[:])
	if v := mad.View(req[:]); v.Method() == mad.MethodSet && v.AttrID() == mad.AttrPortInfo {
		s.Managed(node)
	}
	return ok
}
