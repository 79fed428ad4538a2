package hca

import (
	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// maxViolations is how many packets with a wrong key are kept until somebody asks. What matters to
// a manager is that there were some.
const maxViolations = 4

// violate counts a packet whose P_Key or Q_Key did not fit, and notes it for the manager (IBA 10.9.4).
func (h *HCA) violate(trap uint16, port ib.PortNum, p *wire.Packet) {
	hp, key := &h.ports[port], uint32(p.BTH.PKey)
	n := &hp.PKeyViolations
	if trap == mad.TrapBadQKey {
		n, key = &hp.QKeyViolations, uint32(p.DETH.QKey)
	}
	if *n != 0xFFFF { // PortInfo's counters stay at their end
		*n++
	}
	if len(h.violations) == maxViolations {
		return
	}
	d := mad.KeyDetails{LID1: p.LRH.SLID, LID2: p.LRH.DLID, Key: key, SL: p.LRH.SL, QP2: p.BTH.DestQP}
	if p.BTH.Opcode.Service() == wire.UD {
		d.QP1 = p.DETH.SrcQP
	}
	if p.LRH.LNH == wire.LNHGlobal {
		d.GID1, d.GID2 = p.GRH.SGID, p.GRH.DGID
	}
	h.violations = append(h.violations, agent.Notice{Trap: trap, Port: port, Packet: d})
}

// PollViolation is the oldest packet with a wrong key, for a driver whose adapter is managed elsewhere; HandleViolation
// is what is done with it there.
func (h *HCA) PollViolation() (agent.Notice, bool) {
	v := h.violations
	if len(v) == 0 {
		return agent.Notice{}, false
	}
	first := v[0]
	h.violations = v[:copy(v, v[1:])]
	return first, true
}

// HasViolation reports whether PollViolation would return one.
func (h *HCA) HasViolation() bool { return len(h.violations) > 0 }

// HandleViolation counts a packet with a wrong key that came to a part of this adapter which somebody else drives.
func (h *HCA) HandleViolation(v agent.Notice) {
	hp := h.Port(v.Port)
	if hp == nil {
		return
	}
	n := &hp.PKeyViolations
	switch v.Trap {
	case mad.TrapBadPKey:
	case mad.TrapBadQKey:
		n = &hp.QKeyViolations
	default:
		return
	}
	if *n != 0xFFFF {
		*n++
	}
	if len(h.violations) < maxViolations {
		h.violations = append(h.violations, v)
	}
}

// PollNotice tells of packets with wrong keys and of errors of the links.
func (n *Node) PollNotice() (agent.Notice, bool) {
	if v, ok := n.hca.PollViolation(); ok {
		return v, true
	}
	for i := 1; i < len(n.links); i++ {
		p := &n.ports[i]
		p.alarms |= n.links[i].TakeAlarms()
		if p.alarms&link.AlarmIntegrity != 0 {
			p.alarms &^= link.AlarmIntegrity
			return agent.Notice{Trap: mad.TrapLinkIntegrity, Port: ib.PortNum(i)}, true
		}
		if p.alarms&link.AlarmOverrun != 0 {
			p.alarms &^= link.AlarmOverrun
			return agent.Notice{Trap: mad.TrapBufferOverrun, Port: ib.PortNum(i)}, true
		}
	}
	return agent.Notice{}, false
}
