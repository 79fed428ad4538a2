package sm

import (
	"softib/proto/ib"
	"softib/subnet"
)

// lamePort is a link that does not become active, by its node and port; port 0 is a switch that does not take its
// forwarding table. Ways of others go around them. Every sweep tries again, and the ways come back when it works.
type lamePort struct {
	node ib.GUID
	port ib.PortNum
}

// lameAfter is how many sweeps in a row it takes until ways go around: a lost datagram is no reason.
const lameAfter = 2

// limps notes that a link or a switch did not do what it was told. Another sweep comes soon, unless it is known
// already.
func (m *Manager) limps(at lamePort, why string) {
	if m.lame[at]++; m.lame[at] <= lameAfter {
		m.want(m.now+m.cfg.Timeout, why)
	}
}

// walks notes that it did.
func (m *Manager) walks(at lamePort, why string) {
	if n, known := m.lame[at]; known {
		delete(m.lame, at)
		if n >= lameAfter {
			m.want(m.now+m.cfg.Timeout, why)
		}
	}
}

// lame reports whether ways should go around the link at a switch's port.
func (s *sweep) lame(ref subnet.Ref) bool {
	if len(s.m.lame) == 0 {
		return false
	}
	far := subnet.Ref{Node: s.nodes[ref.Node].Ports[ref.Port].Peer, Port: s.nodes[ref.Node].Ports[ref.Port].PeerPort}
	for _, r := range [...]subnet.Ref{ref, far} {
		guid := s.nodes[r.Node].Info.NodeGUID
		if s.m.lame[lamePort{guid, r.Port}] >= lameAfter || s.m.lame[lamePort{guid, 0}] >= lameAfter {
			return true
		}
	}
	return false
}

// forgetLame forgets what is not there any more, and links that somebody else has made active.
func (s *sweep) forgetLame() {
	for at := range s.m.lame { // tidy: order-free
		if i, ok := s.byGUID[at.node]; !ok || int(at.port) >= len(s.nodes[i].Ports) || at.port != 0 &&
			!s.nodes[i].Ports[at.port].Up() {
			delete(s.m.lame, at)
		} else if at.port != 0 {
			p := &s.nodes[i].Ports[at.port]
			if p.Info.PortState == ib.PortActive && s.nodes[p.Peer].Ports[p.PeerPort].Info.PortState == ib.PortActive {
				s.m.walks(at, "a link has become active at last")
			}
		}
	}
}
