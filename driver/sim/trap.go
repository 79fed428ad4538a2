package sim

import (
	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/mad"
)

// stir notes that an agent may have something to tell a manager. It is asked when
// everything of this moment has been done.
func (s *Sim) stir(node int) {
	if s.mgmt.on && s.mgmt.agentAt[node] > s.Now() {
		s.mgmt.agentAt[node] = s.Now()
		s.Schedule(s.Now(), evAgent, uint32(node), 0)
	}
}

// agentTimeout sends the traps of a node that are due.
func (s *Sim) agentTimeout(node int) {
	g := &s.mgmt
	if g.agentAt[node] > s.Now() {
		return // an earlier one has taken this one's place and gone
	}
	g.agentAt[node] = ib.Never
	if s.IsStopped(node) {
		return
	}
	if s.Now() < g.mute[node] {
		g.agentAt[node] = g.mute[node]
		s.Schedule(g.mute[node], evAgent, uint32(node), 0)
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
		f.InPort, f.Arrived = 0, s.Now()
		if s.Switch(node) != nil {
			s.SendSwitch(node, 0, f)
		} else {
			s.sendFrom(s.Place(node, to.Port), f)
		}
	}
	if t := a.NextDeadline(); t < g.agentAt[node] {
		g.agentAt[node] = max(t, s.Now()+ib.Microsecond)
		s.Schedule(g.agentAt[node], evAgent, uint32(node), 0)
	}
}
