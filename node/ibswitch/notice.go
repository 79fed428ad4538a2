package ibswitch

import (
	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// maxRefused is how many refused packets are kept until somebody asks. What matters to a manager is
// that there were some.
const maxRefused = 4

// refusal is a packet that partition enforcement stopped at a port.
type refusal struct {
	port   ib.PortNum
	packet mad.KeyDetails
}

// refuse notes a packet that a port's filter stopped, if for its P_Key.
func (s *Switch) refuse(port ib.PortNum, f *link.Frame, r link.Reason) {
	if r != link.PKeyIn && r != link.PKeyOut || len(s.refused) == maxRefused || f.Packet == nil {
		return
	}
	p := f.Packet
	d := mad.KeyDetails{
		LID1: f.LRH.SLID, LID2: f.LRH.DLID, Key: uint32(p.BTH.PKey), SL: f.LRH.SL, QP2: p.BTH.DestQP,
	}
	if p.BTH.Opcode.Service() == wire.UD {
		d.QP1 = p.DETH.SrcQP
	}
	if f.LRH.LNH == wire.LNHGlobal {
		d.GID1, d.GID2 = p.GRH.SGID, p.GRH.DGID
	}
	s.refused = append(s.refused, refusal{port, d})
}

// note takes notice of a port's state. A change counts that the link made by itself, down or up
// (IBA 14.2.5.4): a port that is further down than it was has been down in between.
func (n *Node) note(port ib.PortNum) {
	was, is := n.seen[port], n.sw.ports[port].State()
	if was == is {
		return
	}
	n.seen[port] = is
	if is < was || was == ib.PortDown {
		n.changed, n.told = true, false
	}
}

// noteAll looks at all external ports.
func (n *Node) noteAll() {
	for i := 1; i < len(n.seen); i++ {
		n.note(ib.PortNum(i))
	}
}

// PollNotice tells of links that went up or down, of errors at ports and of packets that were refused.
func (n *Node) PollNotice() (agent.Notice, bool) {
	n.noteAll()
	if n.changed && !n.told {
		n.told = true
		return agent.Notice{Trap: mad.TrapLinkStateChange}, true
	}
	for {
		port, ok := n.sw.alarmed.Pop()
		if !ok {
			break
		}
		a := n.sw.ports[port].TakeAlarms()
		if a&link.AlarmIntegrity != 0 {
			if a&link.AlarmOverrun != 0 {
				n.overruns.Set(port)
			}
			return agent.Notice{Trap: mad.TrapLinkIntegrity, Port: port}, true
		}
		n.overruns.Set(port)
	}
	if port, ok := n.overruns.Pop(); ok {
		return agent.Notice{Trap: mad.TrapBufferOverrun, Port: port}, true
	}
	if len(n.sw.refused) > 0 {
		r := n.sw.refused[0]
		n.sw.refused = n.sw.refused[:copy(n.sw.refused, n.sw.refused[1:])]
		return agent.Notice{Trap: mad.TrapBadPKeySwitch, Port: r.port, Packet: r.packet}, true
	}
	return agent.Notice{}, false
}
