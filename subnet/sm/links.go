package sm

import (
	"softib/proto/ib"
	"softib/subnet"
)

// beginLinks starts a walk over all ports that have a link.
func (s *sweep) beginLinks() { s.cursor = cursor{port: 1} }

// nextLink moves to the next port that has a link.
func (s *sweep) nextLink() (subnet.Ref, bool) {
	c := &s.cursor
	for ; c.node < len(s.nodes); c.node, c.port = c.node+1, 1 {
		n := s.nodes[c.node]
		for c.port < len(n.Ports) {
			p := c.port
			c.port++
			if n.Ports[p].Up() {
				return subnet.Ref{Node: int32(c.node), Port: ib.PortNum(p)}, true
			}
		}
	}
	return subnet.Ref{}, false
}

// nextArm configures links and takes them from Initialize to Armed. All are armed before the first is active, since
// packets that come to a port that is not armed yet would be lost (IBA 7.2.7).
func (s *sweep) nextArm(r *request) bool {
	for ref, ok := s.nextLink(); ok; ref, ok = s.nextLink() {
		n := s.nodes[ref.Node]
		have := n.Ports[ref.Port].Info
		want := have
		want.PortState, want.PortPhysicalState = ib.PortNoChange, ib.PhysNoChange
		if have.PortState == ib.PortInit {
			want.PortState = ib.PortArmed
		}
		if n.IsSwitch() {
			s.wantedLink(ref, &want)
			s.wantedEnforcement(ref, &want)
			if have.PortState == ib.PortActive && want.OperationalVLs != have.OperationalVLs {
				want.OperationalVLs = have.OperationalVLs // lanes of a link in use stay as they are
			}
		}
		if want.PortState == ib.PortNoChange && sameConfig(&want, &have) {
			continue
		}
		s.writePort(r, ref, &want)
		return true
	}
	return false
}

// nextActivate takes links from Armed to Active.
func (s *sweep) nextActivate(r *request) bool {
	for ref, ok := s.nextLink(); ok; ref, ok = s.nextLink() {
		p := &s.nodes[ref.Node].Ports[ref.Port]
		far := &s.nodes[p.Peer].Ports[p.PeerPort]
		if p.Info.PortState != ib.PortArmed || far.Info.PortState < ib.PortArmed {
			continue
		}
		want := p.Info
		want.PortState, want.PortPhysicalState = ib.PortActive, ib.PhysNoChange
		s.writePort(r, ref, &want)
		return true
	}
	return false
}
