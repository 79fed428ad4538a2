package sim

import (
	"math/bits"

	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// hostNode is a host and what the driver keeps for it.
type hostNode struct {
	eng     Host
	node    *topo.Node
	at      uint32  // its first end
	timerAt ib.Time // when the pending timer event comes; Never for none
	waking  bool    // Next will report the host
	pumping bool
	stopped bool
	loop    link.Queue // packets to itself
	loopN   int
	room    uint32 // lanes that a packet has left since flows were last roused
}

// parking is a FIFO of flows that wait for room in one lane.
type parking struct {
	flows []*hca.QP
	at    int
}

func (p *parking) push(q *hca.QP) { p.flows = append(p.flows, q) }

func (p *parking) pop() (*hca.QP, bool) {
	if p.at == len(p.flows) {
		return nil, false
	}
	q := p.flows[p.at]
	p.flows[p.at] = nil
	if p.at++; p.at == len(p.flows) {
		p.flows, p.at = p.flows[:0], 0
	} else if p.at >= 64 && p.at*2 >= len(p.flows) {
		n := copy(p.flows, p.flows[p.at:])
		clear(p.flows[n:])
		p.flows, p.at = p.flows[:n], 0
	}
	return q, true
}

// loopLane is the parking lot of flows to the same adapter; the others are those of the virtual lanes.
const (
	loopLane = ib.NumVL
	numLots  = ib.NumVL + 1
)

// lot is where flows wait for room in a lane of a host's port. Lots lie by lane,
// for the same reason as link's lanes do.
func (s *Sim) lot(at uint32, lane int) *parking {
	return &s.lots[lane*int(s.Places())+int(at)]
}

// loopDelay is how long a packet to the same adapter takes.
const loopDelay = 200 * ib.Nanosecond

func (s *Sim) newHost(n *topo.Node) hostNode {
	h := hostNode{node: n, at: s.Place(n.Index, 0), timerAt: ib.Never}
	if s.cfg.NewHost != nil {
		h.eng = s.cfg.NewHost(n)
	} else {
		h.eng = newHCA(n, s.cfg.ByRefMin)
	}
	return h
}

func newHCA(n *topo.Node, byRefMin int) *hca.HCA {
	cfg := hca.Config{NodeGUID: n.GUID, Ports: n.NumPorts(), ByRefMin: byRefMin}
	for p := 1; p < len(n.Ports); p++ {
		cfg.PortGUID = append(cfg.PortGUID, n.PortGUID(ib.PortNum(p)))
	}
	return hca.New(cfg)
}

// Wake tells the driver that work was posted to a host, or that its engine was otherwise touched from outside.
func (s *Sim) Wake(host int) {
	s.pump(uint32(host))
}

// accept gives a received packet to the adapter and its buffer back to the link.
func (s *Sim) accept(at uint32, f *link.Frame) {
	host := uint32(s.PortAt(at).Site.Host)
	s.Take(at, f)
	s.deliver(at, host, f)
	s.pump(host)
}

// deliver gives a packet to the agent or the engine, and folds what it says into the hash.
func (s *Sim) deliver(at, host uint32, f *link.Frame) {
	b := &f.Packet.BTH
	s.Mix(uint64(b.Opcode)<<56 | uint64(b.DestQP)<<24 | uint64(b.PSN))
	if s.cfg.HashPayload {
		s.mixBytes(f.Packet.Payload)
	}
	if b.DestQP <= ib.QPNGSI && f.Flags&forManager == 0 && s.hostMgmt(at, false, f) {
		return
	}
	if b.DestQP <= ib.QPNGSI && s.mgmt.on {
		if st := s.managerPortAt(at); st != nil {
			s.toManager(st, f)
			return
		}
	}
	s.hosts[host].eng.HandlePacket(s.Now(), s.PortAt(at).Site.Num, f.Sync())
	s.pool.Put(f)
}

func (s *Sim) mixBytes(b []byte) {
	s.Mix(uint64(len(b)))
	for len(b) >= 8 {
		s.Mix(uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56)
		b = b[8:]
	}
	for _, x := range b {
		s.Mix(uint64(x))
	}
}

// pump moves what the adapter has ready into the port's queues, until there is no more or no room.
func (s *Sim) pump(host uint32) {
	h := &s.hosts[host]
	if h.stopped || h.pumping {
		return
	}
	h.pumping = true
	for {
		if h.room != 0 {
			s.rouse(h)
		}
		for snd, ok := h.eng.NextSend(); ok; snd, ok = h.eng.NextSend() {
			s.take(host, h, snd)
		}
		// A flow that was roused and has nothing to send leaves the room to the next:
		// no packet of its own will leave to rouse it.
		if h.room == 0 {
			break
		}
	}
	h.pumping = false
	if s.cfg.ByRefMin > 0 {
		s.detachAborted(h)
	}
	if t := h.eng.NextDeadline(); t < h.timerAt {
		h.timerAt = max(t, s.Now())
		s.Schedule(h.timerAt, evHost, host, 0)
	}
	if !h.waking && h.eng.HasEvent() {
		h.waking = true
		s.wakes = append(s.wakes, Wake{Kind: WakeHost, Host: int(host)})
	}
}

// detachAborted copies payloads that refer to memory whose owner is told that it
// has it back although packets are still on their way.
func (s *Sim) detachAborted(h *hostNode) {
	if a, ok := h.eng.(*hca.HCA); ok && a.TakeAborted() != nil {
		for i := range s.pool.Made() {
			s.pool.At(uint32(i)).Detach()
		}
	}
}

// take lets one flow make its next packet, or parks it.
func (s *Sim) take(host uint32, h *hostNode, snd hca.Send) {
	if int(snd.Port) >= len(h.node.Ports) {
		snd.Port = 1
	}
	at := h.at + uint32(snd.Port)
	p := s.PortAt(at)
	vl := p.SL2VL(snd.SL)
	if snd.QP != nil && snd.QP.Num() == ib.QPNSMI {
		vl = ib.VLMgmt
	}
	lot := s.lot(at, int(vl))
	full := p.Queued(vl) >= s.cfg.HostQueue
	if snd.Loopback {
		lot = s.lot(at, loopLane)
		full = h.loopN >= s.cfg.HostQueue
	}
	if full {
		h.eng.Park(snd)
		lot.push(snd.QP)
		return
	}
	f := s.pool.Get()
	if !h.eng.Emit(s.Now(), snd, f.Packet, f.Buf()) {
		s.pool.Put(f)
		return
	}
	f.Measure()
	f.InPort, f.Arrived = 0, s.Now()
	if vl == ib.VLMgmt && f.Packet.BTH.DestQP == ib.QPNSMI && !snd.Loopback {
		s.sendSMP(host, at, f)
		return
	}
	if snd.Loopback {
		h.loop.Push(f)
		h.loopN++
		s.Schedule(s.Now()+loopDelay, evLoop, host, uint32(snd.Port))
		return
	}
	s.Send(at, f, vl)
}

// sendSMP takes a packet of the host's own subnet manager through the agent, which
// knows the first hop of a directed route; what is for this very node comes back.
func (s *Sim) sendSMP(host, at uint32, f *link.Frame) {
	f.LRH.VL = ib.VLMgmt
	if s.hostMgmt(at, true, f) {
		return
	}
	f.Flags |= forManager
	s.loopBack(host, at, f)
}

// hostRoom gives a parked flow its turn when a packet of its lane has left.
func (s *Sim) hostRoom(p *link.Port, vl ib.VL) {
	host := uint32(p.Site.Host)
	s.hosts[host].room |= 1 << vl
	s.pump(host)
	if vl == ib.VLMgmt {
		if st := s.managerPortOf(int(host)); st != nil {
			s.manage(st)
		}
	}
}

// rouse gives one parked flow of each lane that has room its turn. A lane in which
// nobody waits, or that is full again, is done with until a packet leaves it.
func (s *Sim) rouse(h *hostNode) {
	for m := h.room; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m)
		roused := false
		for port := 1; port < len(h.node.Ports); port++ {
			at := h.at + uint32(port)
			full := h.loopN >= s.cfg.HostQueue
			if lane != loopLane {
				full = s.PortAt(at).Queued(ib.VL(lane)) >= s.cfg.HostQueue
			}
			if full {
				continue
			}
			if q, ok := s.lot(at, lane).pop(); ok {
				h.eng.Unpark(q)
				roused = true
			}
		}
		if !roused {
			h.room &^= 1 << lane
		}
	}
}

// arriveLoop hands the adapter a packet that it sent to itself.
func (s *Sim) arriveLoop(host uint32, port ib.PortNum) {
	h := &s.hosts[host]
	f := h.loop.Pop()
	h.loopN--
	if h.stopped {
		s.pool.Put(f)
	} else {
		s.MixFrame(h.at, f)
		s.deliver(h.at+uint32(port), host, f)
	}
	h.room |= 1 << loopLane
	s.pump(host)
	if st := s.managerPortOf(int(host)); st != nil {
		s.manage(st)
	}
}

// hostTimeout lets an adapter look at its timers.
func (s *Sim) hostTimeout(host uint32) {
	h := &s.hosts[host]
	if h.timerAt > s.Now() {
		return // an earlier deadline has taken this one's place and gone
	}
	h.timerAt = ib.Never
	if h.stopped {
		return
	}
	if h.eng.NextDeadline() <= s.Now() {
		h.eng.HandleTimeout(s.Now())
	}
	s.pump(host)
}
