package sm

import (
	"softib/proto/ib"
	"softib/subnet"
)

// failingPort is a link that does not become active, by its node and port; port 0 is a switch that does not take its
// forwarding table. Ways of others go around them. Every sweep tries again, and the ways come back when it works.
type failingPort struct {
	node ib.GUID
	port ib.PortNum
}

// failingAfter is how many sweeps in a row it takes until ways go around: a lost datagram is no reason.
const failingAfter = 2

// noteFailing notes that a link or a switch did not do what it was told. Another sweep comes soon, unless it is known
// already.
func (m *Manager) noteFailing(at failingPort, why string) {
	if m.failing[at]++; m.failing[at] <= failingAfter {
		m.want(m.now+m.cfg.Timeout, why)
	}
}

// noteWorking notes that it did.
func (m *Manager) noteWorking(at failingPort, why string) {
	if n, known := m.failing[at]; known {
		delete(m.failing, at)
		if n >= failingAfter {
			m.want(m.now+m.cfg.Timeout, why)
		}
	}
}

// isFailing reports whether ways should go around the link at a switch's port.
func (s *sweep) isFailing(ref subnet.Ref) bool {
	if len(s.m.failing) == 0 {
		return false
	}
	far := subnet.Ref{Node: s.nodes[ref.Node].Ports[ref.Port].Peer, Port: s.nodes[ref.Node].Ports[ref.Port].PeerPort}
	for _, r := range [...]subnet.Ref{ref, far} {
		guid := s.nodes[r.Node].Info.NodeGUID
		if s.m.failing[failingPort{guid, r.Port}] >= failingAfter || s.m.failing[failingPort{guid, 0}] >= failingAfter {
			return true
		}
	}
	return false
}

// forgetFailing forgets what is not there any more, and links that somebody else has made active.
func (s *sweep) forgetFailing() {
	for at := range s.m.failing { // tidy: order-free
		if i, ok := s.byGUID[at.node]; !ok || int(at.port) >= len(s.nodes[i].Ports) || at.port != 0 &&
			!s.nodes[i].Ports[at.port].Up() {
			delete(s.m.failing, at)
		} else if at.port != 0 {
			p := &s.nodes[i].Ports[at.port]
			if p.Info.PortState == ib.PortActive && s.nodes[p.Peer].Ports[p.PeerPort].Info.PortState == ib.PortActive {
				s.m.noteWorking(at, "a link has become active at last")
			}
		}
	}
}
