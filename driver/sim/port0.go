package sim

import (
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// port0 is the adapter of a switch: an enhanced port 0 is an end port with queue pairs like any other (IBA 18.2.4.1),
// at the switch's own LID. It has no cable: packets for it come in by any port, and its own leave by the tables.
type port0 struct {
	eng     *hca.HCA
	timerAt ib.Time
	pumping bool
	own     []int // by port: its packets in the port's queues
}

// Port0 is the adapter of a switch, which is made when it is first asked for. Its port is 1.
func (s *Sim) Port0(node int) *hca.HCA {
	n := &s.nodes[node]
	if n.port0 == nil {
		n.port0 = &port0{timerAt: ib.Never, own: make([]int, len(s.graph.Nodes[node].Ports))}
		n.port0.eng = hca.New(hca.Config{NodeGUID: s.graph.Nodes[node].GUID, Ports: 1})
		s.TellRoom(node)
	}
	// What management wrote at the switch holds for its adapter.
	port := *n.port0.eng.Port(1)
	if lid, _ := s.Switch(node).LID(); port.LID != lid || port.State != ib.PortActive {
		port.LID, port.State = lid, ib.PortActive
		n.port0.eng.SetPort(1, port)
		for _, ok := n.port0.eng.PollEvent(); ok; _, ok = n.port0.eng.PollEvent() {
		}
	}
	return n.port0.eng
}

// resetPort0 ends the adapter of a switch that starts anew, and all that it has.
func (s *Sim) resetPort0(node int) {
	if n := &s.nodes[node]; n.port0 != nil {
		n.port0 = nil
		for num := range s.graph.Nodes[node].Ports {
			lot := s.lot(s.Place(node, ib.PortNum(num)), 0)
			for _, ok := lot.Pop(); ok; _, ok = lot.Pop() {
			}
		}
		s.reductions.forget(node)
	}
}

// toPort0 takes a packet for a switch's adapter, if it has one. The packet is there when its last byte is: switches
// decide by the first ones.
func (s *Sim) toPort0(node int, f *link.Frame) bool {
	if s.nodes[node].port0 == nil {
		return false
	}
	at := s.Place(node, f.InPort)
	rest := ib.Time(0)
	if head, ok := s.CutsThrough(at); ok {
		rest = s.PortAt(at).Rate().ByteTime(max(int(f.Bytes)-head, 0))
	}
	s.Schedule(s.Now()+rest, evPort0, at, f.Index())
	return true
}

// arrivePort0 gives a packet to a switch's adapter.
func (s *Sim) arrivePort0(at uint32, f *link.Frame) {
	node := int(s.PortAt(at).Site.Node)
	p := s.nodes[node].port0
	if p == nil || s.IsStopped(node) {
		s.pool.Put(f)
		return
	}
	s.mixPacket(at, f.Packet)
	p.eng.HandlePacket(s.Now(), 1, f.Sync())
	s.pool.Put(f)
	s.pumpPort0(node)
}

// pumpPort0 moves what a switch's adapter has ready into the queues of the ports that it leaves by.
func (s *Sim) pumpPort0(node int) {
	p, sw := s.nodes[node].port0, s.Switch(node)
	if p == nil || p.pumping || s.IsStopped(node) {
		return
	}
	p.pumping = true
	for {
		for snd, ok := p.eng.NextSend(); ok; snd, ok = p.eng.NextSend() {
			out := sw.Route(snd.DLID)
			if int(out) < len(p.own) && p.own[out] >= s.cfg.HostQueue {
				p.eng.Park(snd)
				s.lot(s.Place(node, out), 0).Push(snd.QP)
				continue
			}
			f := s.pool.Get()
			if !p.eng.Emit(s.Now(), snd, f.Packet, f.Buf()) {
				s.pool.Put(f)
				continue
			}
			f.Measure()
			// The switch may choose another port, by which it leaves then. Copies of a multicast are not counted.
			if out = sw.Decide(0, f).Out; s.SendSwitch(node, 0, f) && out != 0 && int(out) < len(p.own) {
				p.own[out]++
			}
		}
		if !p.eng.HasEvent() {
			break
		}
		for _, ok := p.eng.PollEvent(); ok; _, ok = p.eng.PollEvent() {
		}
		s.reductions.served(node) // which may have it send more
	}
	p.pumping = false
	s.arm(&p.timerAt, p.eng.NextDeadline(), s.Now(), evPort0Timer, uint32(node), 0)
}

// port0Room gives a flow of a switch's adapter its turn when a packet of its own has left a port.
func (s *Sim) port0Room(p *link.Port) {
	node := int(p.Site.Node)
	z := s.nodes[node].port0
	if z == nil || z.own[p.Site.Num] == 0 {
		return // it has started anew since
	}
	z.own[p.Site.Num]--
	for z.own[p.Site.Num] < s.cfg.HostQueue {
		q, ok := s.lot(p.Site.First+uint32(p.Site.Num), 0).Pop()
		if !ok {
			return
		}
		z.eng.Unpark(q)
		s.pumpPort0(node)
	}
}

// port0Timeout lets a switch's adapter look at its timers.
func (s *Sim) port0Timeout(node int) {
	p := s.nodes[node].port0
	if p == nil || !s.rings(&p.timerAt) {
		return
	}
	if p.eng.NextDeadline() <= s.Now() {
		p.eng.HandleTimeout(s.Now())
	}
	s.pumpPort0(node)
}

// lidAt is the address of a host's port, or of a switch.
func (s *Sim) lidAt(ref topo.PortRef) ib.LID {
	if s.Switch(ref.Node) != nil {
		ref.Port = 0
	}
	return s.lidOf(ref.Node, ref.Port)
}
