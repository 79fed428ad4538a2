package sim

import (
	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/mad"
)

// stir notes that an agent may have something to tell a manager. It is asked when
// everything of this moment has been done.
func (s *Sim) stir(node int) {
	if s.managed {
		s.arm(&s.nodes[node].trapAt, s.Now(), s.Now(), evAgent, uint32(node), 0)
	}
}

// agentTimeout sends the traps of a node that are due.
func (s *Sim) agentTimeout(node int) {
	n := &s.nodes[node]
	if !s.rings(&n.trapAt) || s.IsStopped(node) {
		return
	}
	if s.Now() < n.mute {
		s.arm(&n.trapAt, n.mute, n.mute, evAgent, uint32(node), 0)
		return
	}
	a := s.manager(node)
	a.HandleTimer(s.Now())
	var buf [mad.Size]byte
	for to, ok := a.PollTrap(s.Now(), buf[:]); ok; to, ok = a.PollTrap(s.Now(), buf[:]) {
		f := s.pool.Get()
		agent.NewSMP(f.Packet, to.SLID, to.DLID, to.SL)
		f.Own(buf[:])
		f.Seal()
		if s.Switch(node) != nil {
			s.SendSwitch(node, 0, f)
		} else {
			s.sendFrom(s.Place(node, to.Port), f)
		}
	}
	s.arm(&n.trapAt, a.NextDeadline(), s.Now()+ib.Microsecond, evAgent, uint32(node), 0)
}
