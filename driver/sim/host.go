package sim

import (
	"encoding/binary"
	"math/bits"

	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// hostNode is a host and what the driver keeps for it.
type hostNode struct {
	eng     Host
	keeper  Keeper // the same, if it is one
	node    *topo.Node
	at      uint32  // its first end
	room    uint32  // lanes that a packet has left since flows were last roused
	timerAt ib.Time // when the pending timer event comes; Never for none
	waking  bool    // Next will report the host
	pumping bool
	stopped bool
	manager *managerPort          // nil where none runs
	nic     *nicNode              // nil where an adapter costs nothing
	loop    ib.Queue[*link.Frame] // packets to itself
}

// loopLane is the parking lot of flows to the same adapter; the others are those of the virtual lanes.
const loopLane = ib.NumVL

// lot is where flows wait for room in a lane of a host's port. Lots lie by lane,
// for the same reason as link's lanes do.
func (s *Sim) lot(at uint32, lane int) *ib.Queue[*hca.QP] {
	return &s.lots[lane*int(s.Places())+int(at)]
}

// loopDelay is how long a packet to the same adapter takes.
const loopDelay = 200 * ib.Nanosecond

// ReorderTime is how long an adapter waits for packets that others have overtaken.
const ReorderTime = ib.Millisecond

func newHCA(n *topo.Node, sim *Config) *hca.HCA {
	cfg := hca.Config{NodeGUID: n.GUID, Ports: n.NumPorts(), ByRefMin: sim.ByRefMin, Reorder: sim.Reorder,
		ReorderTime: ReorderTime, RoCE: sim.RoCE, ReadTurns: sim.Adapter.On(), CNP: sim.CNP}
	for p := 1; p < len(n.Ports); p++ {
		cfg.PortGUID = append(cfg.PortGUID, n.PortGUID(ib.PortNum(p)))
	}
	return hca.New(cfg)
}

// Wake tells the driver that work was posted to a host, or that its engine was otherwise touched from outside.
func (s *Sim) Wake(host int) { s.pump(uint32(host)) }

// accept gives a received packet to the adapter and its buffer back to the link.
func (s *Sim) accept(at uint32, f *link.Frame) {
	site := &s.PortAt(at).Site
	host := uint32(site.Host)
	h := &s.hosts[host]
	if f.Packet.BTH.DestQP > ib.QPNGSI {
		if h.nic != nil {
			s.nicReceive(host, h.nic, arrival{at, f})
			return
		}
		if h.keeper != nil {
			f.Sync()
			h.keeper.Keep(at, site.Num, f)
			s.pump(host)
			return
		}
	}
	s.Take(at, f)
	s.deliver(at, host, f)
	s.pump(host)
}

// deliver gives a packet to the agent or the engine, and folds what it says into the hash.
func (s *Sim) deliver(at, host uint32, f *link.Frame) {
	b := &f.Packet.BTH
	s.mixPacket(at, f.Packet)
	if b.DestQP <= ib.QPNGSI {
		if f.Flags&forManager == 0 && s.hostMgmt(at, false, f) {
			return
		}
		if st := s.hosts[host].manager; st != nil && st.at == at {
			s.toManager(st, f)
			return
		}
	}
	s.hosts[host].eng.HandlePacket(s.Now(), s.PortAt(at).Site.Num, f.Sync())
	s.pool.Put(f)
}

// mixPacket adds what a packet that is there says to the digest of the history.
func (s *Sim) mixPacket(at uint32, p *wire.Packet) {
	h := uint64(p.BTH.Opcode)<<56 | uint64(p.BTH.DestQP)<<24 | uint64(p.BTH.PSN)
	if s.cfg.HashPayload {
		h = mixBytes(h, p.Payload)
	}
	s.Mix(at, h)
}

func mixBytes(h uint64, b []byte) uint64 {
	fold := func(v uint64) {
		h = (h ^ v) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	fold(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		fold(binary.LittleEndian.Uint64(b))
	}
	for _, x := range b {
		fold(uint64(x))
	}
	return h
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
		busy := false
		for snd, ok := h.eng.NextSend(); ok; snd, ok = h.eng.NextSend() {
			if busy = h.nic != nil && s.nicBusy(host, h.nic); busy {
				break
			}
			s.take(host, h, snd)
		}
		// A flow that was roused and has nothing to send leaves the room to the next:
		// no packet of its own will leave to rouse it.
		if h.room == 0 || busy {
			break
		}
	}
	h.pumping = false
	if s.cfg.ByRefMin > 0 {
		s.detachAborted(h)
	}
	s.arm(&h.timerAt, h.eng.NextDeadline(), s.Now(), evHost, host, 0)
	if !h.waking && h.eng.HasEvent() && int(host) < s.NumHosts() {
		h.waking = true
		s.wakes.Push(Wake{Kind: WakeHost, Host: int(host)})
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
func (s *Sim) take(host uint32, h *hostNode, snd *hca.Send) {
	if int(snd.Port) >= len(h.node.Ports) {
		snd.Port = 1
	}
	at := h.at + uint32(snd.Port)
	lane := int(s.PortAt(at).SL2VL(snd.SL))
	switch {
	case snd.Loopback:
		lane = loopLane
	case snd.QP != nil && snd.QP.Num() == ib.QPNSMI:
		lane = int(ib.VLMgmt)
	}
	if s.full(h, at, lane) {
		h.eng.Park(snd)
		s.lot(at, lane).Push(snd.QP)
		return
	}
	f := s.pool.Get()
	first := h.nic != nil && snd.QP.Outstanding() <= 1
	if !h.eng.Emit(s.Now(), snd, f.Packet, f.Buf()) {
		s.pool.Put(f)
		return
	}
	f.Measure()
	switch {
	case h.nic != nil && lane < int(ib.VLMgmt) && snd.QP.Num() > ib.QPNGSI:
		s.nicSend(at, h.nic, f, snd.QP.Num(), ib.VL(lane), first)
	case snd.Loopback:
		s.loopBack(host, at, f)
	case lane == int(ib.VLMgmt) && f.Packet.BTH.DestQP == ib.QPNSMI:
		s.sendSMP(host, at, f)
	default:
		s.Send(at, f, ib.VL(lane))
	}
}

// full reports whether a lane of a host's port, or its way to itself, takes no packet more.
func (s *Sim) full(h *hostNode, at uint32, lane int) bool {
	if lane == loopLane {
		return h.loop.Len() >= s.cfg.HostQueue
	}
	return s.PortAt(at).Queued(ib.VL(lane)) >= s.laneQueue(h)
}

// laneQueue is how many packets a lane of a host's port takes.
func (s *Sim) laneQueue(h *hostNode) int {
	if h.nic != nil {
		return max(s.cfg.HostQueue, h.nic.portQueue())
	}
	return s.cfg.HostQueue
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
		s.manage(s.hosts[host].manager)
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
			if s.full(h, at, lane) {
				continue
			}
			turns := 1
			if h.nic != nil && lane != loopLane {
				turns = s.laneQueue(h) - s.PortAt(at).Queued(ib.VL(lane)) // so that each sends one
			}
			for range turns {
				q, ok := s.lot(at, lane).Pop()
				if !ok {
					break
				}
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
	f, _ := h.loop.Pop()
	if h.stopped {
		s.pool.Put(f)
	} else {
		s.MixFrame(h.at, f)
		s.deliver(h.at+uint32(port), host, f)
	}
	h.room |= 1 << loopLane
	s.pump(host)
	s.manage(h.manager)
}

// hostTimeout lets an adapter look at its timers.
func (s *Sim) hostTimeout(host uint32) {
	h := &s.hosts[host]
	if !s.rings(&h.timerAt) || h.stopped {
		return
	}
	if h.eng.NextDeadline() <= s.Now() {
		h.eng.HandleTimeout(s.Now())
	}
	s.pump(host)
}
