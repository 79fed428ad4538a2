package sim

import (
	"softib/fabric"
	"softib/node/agent"
	"softib/node/hca"
	"softib/node/ibrouter"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
)

// manager is the management side of a node: its agent, and which rates the
// agent lets its ports train at. It is made when it is first needed.
type manager struct {
	*agent.Agent
	adapter *hca.HCA // nil for a switch
	rates   interface {
		TrainRate(ib.PortNum) ib.LinkRate
	}
}

// SetTerms tells all nodes the secret of managers that rule in turn: agent.SetTerms says what for. It comes before
// there is a manager.
func (s *Sim) SetTerms(secret uint64) { s.terms = secret }

// Agent is the management agent of a node, for bringing a fabric up by the same calls that a subnet manager's datagrams
// make. After a call that changes the node, call Managed.
func (s *Sim) Agent(node int) *agent.Agent { return s.manager(node).Agent }

func (s *Sim) manager(node int) *manager {
	if m := s.nodes[node].manager; m != nil {
		return m
	}
	n := s.graph.Nodes[node]
	id := agent.IdentityOf(n)
	var m *manager
	if sw := s.Switch(node); sw != nil {
		view := ibswitch.NewNode(sw, ibswitch.NodeConfig{Identity: id, PortGUID: n.PortGUID(0)})
		m = &manager{agent.New(view), nil, view}
	} else {
		h := adapterOf(s.hosts[s.nodes[node].host].eng)
		if h == nil {
			h = newHCA(n, &Config{}) // an engine without management borrows one
		}
		links := make([]*link.Port, len(n.Ports))
		for num := 1; num < len(links); num++ {
			links[num] = s.PortAt(s.Place(node, ib.PortNum(num)))
		}
		view := hca.NewNode(h, links, hca.NodeConfig{Identity: id})
		if rt := s.Router(node); rt != nil {
			m = &manager{agent.New(ibrouter.NewNode(view, rt)), h, view}
		} else {
			m = &manager{agent.New(view), h, view}
		}
	}
	m.SetTerms(s.terms)
	s.nodes[node].manager = m
	return m
}

// Adapter is a host's adapter as management sees it; nil if it has none.
func (s *Sim) Adapter(host int) *hca.HCA { return adapterOf(s.hosts[host].eng) }

// adapterOf is the adapter of a host as management sees it, nil if it has none: the engine itself, or what it says.
func adapterOf(e Host) *hca.HCA {
	switch e := e.(type) {
	case *hca.HCA:
		return e
	case interface{ Adapter() *hca.HCA }:
		return e.Adapter()
	}
	return nil
}

// Managed lets the links follow what management has written at a node: one that was
// taken down loses its far end and trains again, if both ends may.
func (s *Sim) Managed(node int) {
	for num := range s.graph.Nodes[node].Ports {
		at := s.Place(node, ib.PortNum(num))
		s.Settle(at)
		if s.PortAt(at).Site.Peer != fabric.NoEnd {
			s.portChanged(at)
		}
	}
	s.stir(node)
	for w, ok := s.served.Pop(); ok; w, ok = s.served.Pop() {
		s.watcher.Served(w.node, &w.Request)
	}
}

// served is a request that an agent has answered.
type served struct {
	node int
	Request
}

// switchMgmt hands a packet that came for a switch itself, if there is one, to its agent, and sends
// on what the agent says.
func (s *Sim) switchMgmt(node int) {
	f := s.TakeMgmt(node)
	if f == nil || f.Packet.BTH.DestQP > ib.QPNGSI && s.toPort0(node, f) {
		return
	}
	out, ok := s.answer(node, f.InPort, false, f)
	s.Managed(node)
	if ok {
		s.SendSwitch(node, out, f)
	} else {
		s.pool.Put(f)
	}
}

// hostMgmt takes a packet to QP0 or QP1 of a host through its agent. It reports whether the packet is dealt with;
// otherwise it is for the adapter's own special queue pairs.
func (s *Sim) hostMgmt(at uint32, fromHere bool, f *link.Frame) bool {
	p := s.PortAt(at)
	_, ok := s.answer(int(p.Site.Node), p.Site.Num, fromHere, f)
	mine := f.Flags&forManager != 0
	f.Flags &^= forManager
	if !mine || fromHere { // from here: the node may have answered itself
		s.Managed(int(p.Site.Node))
	}
	if mine {
		return false
	}
	if ok {
		s.sendMgmt(at, f)
	} else {
		s.pool.Put(f)
	}
	return true
}

// sendMgmt sends a management packet of a host by the lane that it is for.
func (s *Sim) sendMgmt(at uint32, f *link.Frame) {
	vl := f.LRH.VL
	if vl != ib.VLMgmt {
		vl = s.PortAt(at).SL2VL(f.LRH.SL)
	}
	s.Send(at, f, vl)
}

// forManager marks a packet that the agent leaves to the manager of its node.
const forManager link.FrameFlags = 0x80

// answer lets an agent work on a management packet in place. It reports whether
// the frame is now to be sent, and out of which port: 0 means by its LIDs.
func (s *Sim) answer(node int, in ib.PortNum, fromHere bool, f *link.Frame) (out ib.PortNum, send bool) {
	m, pkt := s.manager(node), f.Sync()
	if s.Now() < s.nodes[node].mute {
		return 0, false
	}
	if !agent.IsMAD(pkt) {
		f.Flags |= forManager // no management datagram: whoever has the queue pair counts it
		return 0, false
	}
	f.Own(pkt.Payload) // it is worked on in place
	if pkt.BTH.DestQP != ib.QPNSMI {
		if _, ok := m.HandleMAD(s.Now(), in, pkt.Payload, pkt.Payload); !ok {
			f.Flags |= forManager
			return 0, false
		}
		agent.Turn(pkt, s.lidOf(node, in))
		f.Seal()
		return 0, true
	}
	smp := mad.View(pkt.Payload)
	asked := Request{Set: smp.Method() == mad.MethodSet, Attr: smp.AttrID(), Mod: smp.AttrMod(), MKey: smp.MKey()}
	wasResponse := smp.Method().IsResponse()
	v := m.DeliverFrom(s.Now(), in, pkt.LRH.SLID, fromHere, pkt.Payload)
	if !wasResponse && smp.Method().IsResponse() && s.watcher != nil {
		s.served.Push(served{node, asked})
	}
	switch v.Do {
	case agent.SendPort, agent.SendLID, agent.AsAddressed:
		v.Readdress(pkt, s.lidOf(node, in), !wasResponse && smp.Method().IsResponse())
	case agent.ToManager:
		f.Flags |= forManager
		return 0, false
	default:
		return 0, false
	}
	pkt.LRH.VL = ib.VLMgmt
	f.Seal()
	return v.Port, true
}

// lidOf is the address that management gave a port; a switch's is its port 0's.
func (s *Sim) lidOf(node int, port ib.PortNum) ib.LID {
	if sw := s.Switch(node); sw != nil {
		lid, _ := sw.LID()
		return lid
	}
	return s.manager(node).adapter.Port(max(port, 1)).LID
}

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
