package sim

import (
	"errors"
	"fmt"
	"math"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
)

// Faults are what a cable does to packets that leave one port. Probabilities are
// for each packet; the zero value is a perfect cable.
type Faults struct {
	Drop      float64 // the packet vanishes
	Corrupt   float64 // some of its bits flip; the CRCs decide
	Duplicate float64 // it is sent twice
	Delay     float64 // it and what follows come later, by up to DelayMax
	Reorder   float64 // a UD packet is overtaken at its destination's port
	FCLoss    float64 // a flow-control packet vanishes
	DelayMax  ib.Time // 0 is 10 us
	// BER is the bit error rate of the cable.
	BER float64
	// MgmtOnly spares all packets but those of management: to the queue pairs 0 and 1.
	MgmtOnly bool
}

// DefaultDelayMax is how late a delayed packet is at most.
const DefaultDelayMax = 10 * ib.Microsecond

// FaultKind is what was done to a packet or a link.
type FaultKind uint8

// Kinds of fault.
const (
	FaultDrop FaultKind = iota
	FaultCorrupt
	FaultDuplicate
	FaultDelay
	FaultReorder
	FaultFCLoss
	FaultLinkDown
	FaultLinkUp
	FaultNodeStop
	FaultLostInFlight // was on a cable that went down
	FaultReboot
	FaultMute
	FaultManagerStart
	FaultManagerStop
	NumFaultKind
)

var faultNames = [NumFaultKind]string{
	"drop", "corrupt", "duplicate", "delay", "reorder", "flow-control loss", "link down", "link up", "node stop",
	"lost in flight",
	"reboot", "mute", "manager start", "manager stop",
}

func (k FaultKind) String() string {
	if k < NumFaultKind {
		return faultNames[k]
	}
	return fmt.Sprintf("FaultKind(%d)", uint8(k))
}

// FaultRecord is one injected fault. The fields of a packet are zero where there
// was none.
type FaultRecord struct {
	Time   ib.Time
	Kind   FaultKind
	Port   topo.PortRef
	DLID   ib.LID
	SLID   ib.LID
	Opcode wire.Opcode
	DestQP ib.QPN
	PSN    ib.PSN
}

func (r FaultRecord) String() string {
	if r.DLID == 0 {
		return fmt.Sprintf("%v node %d[%d] %v", r.Time, r.Port.Node, r.Port.Port, r.Kind)
	}
	return fmt.Sprintf("%v node %d[%d] %v: %v %v->%v QP %v PSN %d", r.Time, r.Port.Node, r.Port.Port, r.Kind, r.Opcode,
		r.SLID, r.DLID, r.DestQP, r.PSN)
}

// cable is what one direction of a cable does beyond carrying packets.
type cable struct {
	f    Faults
	bits float64 // until the next bit error
	last ib.Time // when the last packet arrives: the next comes no earlier
}

// faultState is what the driver keeps of faults.
type faultState struct {
	log    []FaultRecord
	counts [NumFaultKind]uint64
	plans  []plan
	held   []heldFrame
	free   []uint32
	down   map[uint32]bool // ends whose cable is pulled
}

// plan is something that will be done at a time.
type plan struct {
	do  planKind
	ref topo.PortRef
	f   Faults
	d   ib.Time
}

type planKind uint8

const (
	planDown planKind = iota
	planUp
	planStop
	planFaults
	planReboot
	planMute
)

// heldFrame is a UD packet that others overtake.
type heldFrame struct {
	f  *link.Frame
	at uint32
}

// FaultLog lists the injected faults in order. It is the simulation's own.
func (s *Sim) FaultLog() []FaultRecord { return s.faults.log }

// FaultCounts counts the injected faults by kind.
func (s *Sim) FaultCounts() [NumFaultKind]uint64 { return s.faults.counts }

func (s *Sim) logFault(k FaultKind, at uint32, f *link.Frame) {
	s.faults.counts[k]++
	r := FaultRecord{Time: s.now, Kind: k, Port: s.ref(at)}
	if f != nil {
		p := f.Sync()
		r.DLID, r.SLID, r.Opcode, r.DestQP, r.PSN = p.LRH.DLID, p.LRH.SLID, p.BTH.Opcode, p.BTH.DestQP, p.BTH.PSN
	}
	s.faults.log = append(s.faults.log, r)
	s.mix(uint64(s.now) ^ uint64(k)<<56 ^ uint64(at)<<32)
}

// SetFaults sets what happens to packets that leave a port from now on.
func (s *Sim) SetFaults(ref topo.PortRef, f Faults) {
	at := s.firstEnd[ref.Node] + uint32(ref.Port)
	p := s.ports[at]
	if p.Site.Peer == noEnd {
		return
	}
	if f.DelayMax == 0 {
		f.DelayMax = DefaultDelayMax
	}
	c := s.cables[at]
	if c == nil {
		if f == (Faults{DelayMax: f.DelayMax}) {
			return
		}
		c = &cable{}
		s.cables[at] = c
		p.Site.Flags |= endFaulty
	}
	c.f = f
	c.bits = s.errorDistance(f.BER)
}

// SetFaultsAll sets the same faults in both directions of every cable.
func (s *Sim) SetFaultsAll(f Faults) {
	for i := range s.ports {
		s.SetFaults(s.ref(uint32(i)), f)
	}
}

// errorDistance draws how many bits pass before the next error.
func (s *Sim) errorDistance(ber float64) float64 {
	if ber <= 0 {
		return math.Inf(1)
	}
	return -math.Log(1-s.rng.Float64()) / ber
}

// chance draws whether something of probability p happens.
func (s *Sim) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// harm does to a packet what the cable does. It reports whether the packet is gone.
// t is when it arrives.
func (s *Sim) harm(at uint32, p *link.Port, f *link.Frame, t *ib.Time) bool {
	c := s.cables[at]
	if c.f.MgmtOnly && f.Packet.BTH.DestQP > ib.QPNGSI {
		*t = max(*t, c.last)
		c.last = *t
		return false
	}
	if s.chance(c.f.Drop) {
		s.logFault(FaultDrop, at, f)
		s.lossy(at, p)
		if s.cfg.Sink != nil {
			s.traceDrop(at, f, trace.Fault)
		}
		s.pool.Put(f)
		return true
	}
	flipped := s.chance(c.f.Corrupt)
	if c.bits -= float64(f.Bytes) * 8; c.bits < 0 {
		c.bits = s.errorDistance(c.f.BER)
		s.ports[p.Site.Peer].SymbolError()
		flipped = true
	}
	if flipped && f.Flags&(link.BadVCRC|link.BadICRC) == 0 {
		s.corrupt(at, p, f)
	}
	if s.chance(c.f.Duplicate) {
		s.duplicate(at, p, f)
	}
	if s.chance(c.f.Delay) {
		s.logFault(FaultDelay, at, f)
		*t += ib.Time(s.rng.Int64N(int64(c.f.DelayMax)))
	}
	// What was sent later comes later: a cable does not reorder.
	*t = max(*t, c.last)
	c.last = *t
	return false
}

// harmFC does to a flow-control packet what the cable does.
func (s *Sim) harmFC(at uint32, p *link.Port, t *ib.Time) bool {
	c := s.cables[at]
	bad := false
	if c.bits -= float64(wire.LinkPacketSize * 8); c.bits < 0 {
		c.bits = s.errorDistance(c.f.BER)
		s.ports[p.Site.Peer].SymbolError()
		s.ports[p.Site.Peer].Count(link.Physical) // its LPCRC fails there
		bad = true
	}
	if bad || s.chance(c.f.FCLoss) {
		s.logFault(FaultFCLoss, at, nil)
		s.lossy(at, p)
		return true
	}
	*t = max(*t, c.last-p.Site.Delay)
	return false
}

// corrupt flips up to three bits of the packet's bytes, and lets the CRCs judge. One
// time in four the fault is inside a node: the link's CRC is made after it,
// and only the end-to-end one can tell.
func (s *Sim) corrupt(at uint32, p *link.Port, f *link.Frame) {
	s.logFault(FaultCorrupt, at, f)
	b := f.Sync().Append(s.scratch[:0])
	s.scratch = b
	inside := s.rng.IntN(4) == 0 && f.LRH.LNH >= wire.LNHLocal
	lo, hi := 0, len(b)
	if inside {
		lo, hi = f.Packet.HeaderSize()-4, len(b)-wire.VCRCSize // not what a switch may change
	}
	for range 1 + s.rng.IntN(3) {
		i := lo*8 + s.rng.IntN((hi-lo)*8)
		b[i/8] ^= 1 << (i % 8)
	}
	if inside {
		b = b[:len(b)-wire.VCRCSize]
		v := wire.VCRC(b)
		b = append(b, byte(v>>8), byte(v))
	}
	if s.cfg.Sink != nil {
		s.traceBytes(at, b)
	}
	was, vcrcOK := *f.Packet, wire.CheckVCRC(b) == nil
	err := f.Packet.Parse(b)
	if err == nil { // the flips undid each other, or fooled both CRCs
		f.Own(f.Packet.Payload)
		f.LRH = f.Packet.LRH
		return
	}
	*f.Packet = was // for whoever prints what was lost
	if vcrcOK && errors.Is(err, wire.ErrICRC) {
		f.Flags |= link.BadICRC
		return
	}
	f.Flags |= link.BadVCRC
	s.lossy(at, p)
}

// duplicate queues a second copy at the port that the packet has just left,
// so that it pays for its own credit.
func (s *Sim) duplicate(at uint32, p *link.Port, f *link.Frame) {
	if f.Flags&link.Copied != 0 {
		return
	}
	g := s.pool.Get()
	g.CopyFrom(f)
	g.InPort, g.Group, g.Arrived = 0, 0, s.now
	if p.Enqueue(s.now, g, f.LRH.VL).IsDrop() {
		s.pool.Put(g)
		return
	}
	s.logFault(FaultDuplicate, at, g)
}

// holdBack keeps a UD packet in its receive buffer while others overtake it.
func (s *Sim) holdBack(at uint32, c *cable, f *link.Frame) bool {
	if f.Packet.BTH.Opcode.Service() != wire.UD || f.LRH.VL == ib.VLMgmt || !s.chance(c.f.Reorder) {
		return false
	}
	s.logFault(FaultReorder, at, f)
	s.hold(at, f, ib.Time(s.rng.Int64N(int64(c.f.DelayMax))))
	return true
}

// hold keeps a packet in its receive buffer for a while.
func (s *Sim) hold(at uint32, f *link.Frame, d ib.Time) {
	var slot uint32
	if n := len(s.faults.free); n > 0 {
		slot = s.faults.free[n-1]
		s.faults.free = s.faults.free[:n-1]
	} else {
		slot = uint32(len(s.faults.held))
		s.faults.held = append(s.faults.held, heldFrame{})
	}
	s.faults.held[slot] = heldFrame{f, at}
	s.q.push(s.now+d, code(evLate, 0, slot))
}

// late delivers a packet that was held back.
func (s *Sim) late(slot uint32) {
	h := s.faults.held[slot]
	s.faults.held[slot] = heldFrame{}
	s.faults.free = append(s.faults.free, slot)
	s.accept(h.at, s.ports[h.at], h.f)
}

// refused notes that a port has not counted a packet which its neighbour has: the one is active, the other not yet, or
// they have not the same lanes. Only a refresh tells the neighbour.
func (s *Sim) refused(at uint32, p *link.Port, f *link.Frame, r link.Reason) {
	if (r == link.NotReady || r == link.Malformed) && p.State() >= ib.PortInit && f.LRH.VL != ib.VLMgmt {
		s.lossy(at, p)
	}
}

// lossy notes that credits went astray on a cable: both ends refresh until that
// has healed.
func (s *Sim) lossy(at uint32, p *link.Port) {
	for _, i := range [2]uint32{at, p.Site.Peer} {
		p := s.ports[i]
		if !p.Refreshing() {
			p.SetRefresh(s.now, true)
		}
		s.armRefresh(i)
	}
}

func (s *Sim) armRefresh(at uint32) {
	p := s.ports[at]
	if t := p.NextRefresh(); t != ib.Never && p.Site.Flags&endRefresh == 0 {
		p.Site.Flags |= endRefresh
		s.q.push(max(t, s.now), code(evRefresh, at, 0))
	}
}

// refresh tells a port's credits anew. The timer goes off when both ends know all
// that the other has to tell; a further loss turns it on again.
func (s *Sim) refresh(at uint32) {
	p := s.ports[at]
	p.Site.Flags &^= endRefresh
	if p.Site.Flags&endStopped != 0 || p.State() < ib.PortInit {
		return
	}
	if !s.cfg.AlwaysRefresh && s.agree(p, s.ports[p.Site.Peer]) {
		p.SetRefresh(s.now, false)
		return
	}
	p.HandleTimeout(s.now)
	s.flush(at, p)
	s.kick(at)
	s.armRefresh(at)
}

// agree reports whether two ends of a cable have the same view of all credits,
// which implies that no data flies between them.
func (s *Sim) agree(p, q *link.Port) bool {
	for vl := ib.VL(0); vl < ib.VLMgmt; vl++ {
		a, b := p.Credit(vl), q.Credit(vl)
		if a.FCTBS != b.ABR || b.FCTBS != a.ABR || a.FCCL != b.Advertised || b.FCCL != a.Advertised {
			return false
		}
	}
	return true
}
