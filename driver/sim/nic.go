package sim

import (
	"softib/node/link"
	"softib/node/nic"
	"softib/proto/ib"
)

// nicNode is what a host's adapter costs, and the packets that wait for it.
type nicNode struct {
	*nic.Adapter
	sendAt    ib.Time // when the pending evSending comes; Never for none
	receiveAt ib.Time
	waiting   ib.Queue[arrival] // packets that have arrived, in their receive buffers
	inside    int               // bytes of packets on their way to ports
	last      int               // bytes of the last of them
}

// portQueue is how many packets such as the last a lane of a port may have waiting. With less, a port would be idle
// while those that were told to go on are on their way to it.
func (n *nicNode) portQueue() int { return nicBuffer / 2 / max(n.last, 1) }

// nicBuffer is how many bytes an adapter has on their way to its ports: what a port of 800 Gb/s sends while memory is
// read.
const nicBuffer = 64 << 10

// arrival is a packet at a port.
type arrival struct {
	at uint32
	f  *link.Frame
}

func newNIC(cfg nic.Config) *nicNode {
	return &nicNode{Adapter: nic.New(cfg), sendAt: ib.Never, receiveAt: ib.Never}
}

// AdapterStats adds up what the adapters of all hosts did; on is false where they cost nothing.
func (s *Sim) AdapterStats() (all nic.Stats, on bool) {
	for i := range s.hosts {
		if n := s.hosts[i].nic; n != nil {
			all.Add(n.Stats())
			on = true
		}
	}
	return all, on
}

// nicBusy reports whether the adapter makes no packet now; it is asked again when it does.
func (s *Sim) nicBusy(host uint32, n *nicNode) bool {
	if n.inside >= nicBuffer {
		return true // until a packet is at its port
	}
	if n.NextSend() <= s.Now() {
		return false
	}
	s.arm(&n.sendAt, n.NextSend(), s.Now(), evSending, host, 0)
	return true
}

func (s *Sim) nicSending(host uint32) {
	if s.rings(&s.hosts[host].nic.sendAt) {
		s.pump(host)
	}
}

// nicSend takes a packet to its port, which takes its time. The lane is kept in what is a node's own of the frame.
func (s *Sim) nicSend(at uint32, n *nicNode, f *link.Frame, q ib.QPN, vl ib.VL, first bool) {
	f.Group = uint16(vl)
	n.last = int(f.Bytes)
	n.inside += n.last
	s.Schedule(n.Send(s.Now(), q, f.Packet, first), evLeave, at, f.Index())
}

func (s *Sim) nicLeave(at uint32, f *link.Frame) {
	vl := ib.VL(f.Group)
	f.Group = 0
	host := uint32(s.PortAt(at).Site.Host)
	h := &s.hosts[host]
	full := h.nic.inside >= nicBuffer
	h.nic.inside -= int(f.Bytes)
	if h.stopped {
		s.pool.Put(f)
		return
	}
	s.Send(at, f, vl)
	if full {
		s.pump(host)
	}
}

// nicReceive takes a packet in when its turn has come. Until then it keeps its receive buffer, so that a slow adapter
// slows its senders down.
func (s *Sim) nicReceive(host uint32, n *nicNode, a arrival) {
	n.waiting.Push(a)
	s.nicTake(host, n)
}

func (s *Sim) nicReceiving(host uint32) {
	if n := s.hosts[host].nic; s.rings(&n.receiveAt) {
		s.nicTake(host, n)
	}
}

func (s *Sim) nicTake(host uint32, n *nicNode) {
	for n.waiting.Len() > 0 {
		if n.NextReceive() > s.Now() {
			s.arm(&n.receiveAt, n.NextReceive(), s.Now(), evReceiving, host, 0)
			return
		}
		a, _ := n.waiting.Pop()
		s.Take(a.at, a.f)
		s.Schedule(n.Receive(s.Now(), a.f.Packet), evReady, a.at, a.f.Index())
	}
}

func (s *Sim) nicReady(at uint32, f *link.Frame) {
	host := uint32(s.PortAt(at).Site.Host)
	if s.hosts[host].stopped {
		s.pool.Put(f)
		return
	}
	s.deliver(at, host, f)
	s.pump(host)
}
