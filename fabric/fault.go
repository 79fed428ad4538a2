package fabric

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
	// MgmtOnly spares all packets but those of management: to the queue pairs 0 and 1. SpareFC spares flow control.
	MgmtOnly, SpareFC bool
	// Lag is how much longer everything takes, flow control too.
	Lag ib.Time
	// Rate is how many bits leave in a second at most; 0 is what the link's rate says, or any number where cables are
	// Instant.
	Rate int64
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
	"lost in flight", "reboot", "mute", "manager start", "manager stop",
}

func (k FaultKind) String() string {
	if k < NumFaultKind {
		return faultNames[k]
	}
	return fmt.Sprintf("FaultKind(%d)", uint8(k))
}

// Record is what was done to a packet or a link: an injected fault or, with a Reason, a drop. The fields of a packet
// are zero where there was none.
type Record struct {
	Time   ib.Time
	Port   topo.PortRef
	Kind   FaultKind
	Reason link.Reason
	DLID   ib.LID
	SLID   ib.LID
	Opcode wire.Opcode
	DestQP ib.QPN
	PSN    ib.PSN
}

func (r Record) String() string {
	what := r.Kind.String()
	if r.Reason != link.OK {
		what = r.Reason.String()
	}
	if r.DLID == 0 {
		return fmt.Sprintf("%v node %d[%d] %s", r.Time, r.Port.Node, r.Port.Port, what)
	}
	return fmt.Sprintf("%v node %d[%d] %s: %v %v->%v QP %v PSN %d", r.Time, r.Port.Node, r.Port.Port, what, r.Opcode,
		r.SLID, r.DLID, r.DestQP, r.PSN)
}

// record logs what was done to a packet, if there is one, at a port.
func (e *Engine) record(at uint32, f *link.Frame, k FaultKind, reason link.Reason) {
	r := Record{Time: e.now, Port: e.Ref(at), Kind: k, Reason: reason}
	if f != nil {
		p := f.Sync()
		r.DLID, r.SLID, r.Opcode, r.DestQP, r.PSN = p.LRH.DLID, p.LRH.SLID, p.BTH.Opcode, p.BTH.DestQP, p.BTH.PSN
	}
	e.log = append(e.log, r)
}

// cable is what one direction of a cable does beyond carrying packets.
type cable struct {
	f    Faults
	bits float64 // until the next bit error
	last ib.Time // when the last packet arrives: the next comes no earlier
	done Harm
}

// Harm is what a cable has done to packets that left one port.
type Harm struct{ Dropped, Corrupted uint64 }

// Log lists the injected faults, and the drops since LogDrops was turned on, in order. It is the engine's own.
func (e *Engine) Log() []Record { return e.log }

// FaultCounts counts the injected faults by kind.
func (e *Engine) FaultCounts() [NumFaultKind]uint64 { return e.faults }

// LogFault notes that something was done, by the engine or by its driver.
func (e *Engine) LogFault(k FaultKind, at uint32, f *link.Frame) {
	e.faults[k]++
	e.Mix(at, 1<<56|uint64(k)<<48)
	if e.cfg.Logs {
		e.record(at, f, k, link.OK)
	}
}

// SetFaults sets what happens to packets that leave a port from now on.
func (e *Engine) SetFaults(at uint32, f Faults) {
	p := e.ports[at]
	if !cabled(p) {
		return
	}
	if f.DelayMax == 0 {
		f.DelayMax = DefaultDelayMax
	}
	c, none := e.cables[at], f == Faults{DelayMax: f.DelayMax}
	if c == nil {
		if none {
			return
		}
		c = &cable{}
		e.cables[at] = c
		p.Site.Flags |= endFaulty
	}
	if none {
		c.done = Harm{}
	}
	c.f = f
	c.bits = e.errorDistance(f.BER)
}

// HarmAt is what the cable has done to packets that left a port, since it has had faults without a break.
func (e *Engine) HarmAt(at uint32) Harm {
	if c := e.cables[at]; c != nil {
		return c.done
	}
	return Harm{}
}

// rateTime is how long so many bytes take to leave a port whose cable is a slow one. It keeps out of the way of others.
//
//go:noinline
func (e *Engine) rateTime(at uint32, bytes uint16) ib.Time {
	if c := e.cables[at]; c != nil && c.f.Rate > 0 {
		return ib.Time(float64(bytes) * 8 / float64(c.f.Rate) * float64(ib.Second))
	}
	return 0
}

// errorDistance draws how many bits pass before the next error.
func (e *Engine) errorDistance(ber float64) float64 {
	if ber <= 0 {
		return math.Inf(1)
	}
	return -math.Log(1-e.cfg.Rand.Float64()) / ber
}

// chance draws whether something of probability p happens.
func (e *Engine) chance(p float64) bool { return p > 0 && e.cfg.Rand.Float64() < p }

// loses draws whether a packet vanishes on a cable.
func (e *Engine) loses(c *cable) bool {
	if !e.chance(c.f.Drop) {
		return false
	}
	c.done.Dropped++
	return true
}

// flips draws whether so many bytes have bits flipped on a cable, which its far end sees as symbol errors.
func (e *Engine) flips(c *cable, p *link.Port, bytes int) bool {
	if c.bits -= float64(bytes) * 8; c.bits >= 0 {
		return false
	}
	for c.bits < 0 {
		c.bits += e.errorDistance(c.f.BER)
		if p.Site.Peer != NoEnd {
			e.ports[p.Site.Peer].SymbolError()
		}
	}
	return true
}

// Strike draws what becomes of so many bytes which leave a port and go another way than through the engine, and reports
// whether the cable spares them. Those with bit errors the far end counts.
func (e *Engine) Strike(at uint32, bytes int) bool {
	c, p := e.cables[at], e.ports[at]
	if c == nil {
		return true
	}
	if e.loses(c) {
		return false
	}
	if e.flips(c, p, bytes) {
		c.done.Corrupted++
		if far := p.Site.Peer; far != NoEnd {
			e.ports[far].Count(link.Physical)
		}
		return false
	}
	return true
}

// harm does to a packet what the cable does. It reports whether the packet is gone. t is when it arrives.
func (e *Engine) harm(at uint32, p *link.Port, f *link.Frame, t *ib.Time) bool {
	c := e.cables[at]
	*t += c.f.Lag
	if !c.f.MgmtOnly || f.Packet.BTH.DestQP <= ib.QPNGSI {
		if e.loses(c) {
			e.lose(FaultDrop, at, f, trace.Fault)
			e.lossy(at)
			return true
		}
		inside := e.chance(c.f.Corrupt)
		flipped := e.flips(c, p, int(f.Bytes))
		if (inside || flipped) && f.Flags&(link.BadVCRC|link.BadICRC) == 0 {
			c.done.Corrupted++
			e.corrupt(at, p, f, inside)
		}
		if f.Flags&link.BadVCRC != 0 {
			e.lossy(at) // it may also be a copy of one that was corrupted before
		}
		if e.chance(c.f.Duplicate) {
			e.duplicate(at, p, f)
		}
		if e.chance(c.f.Delay) {
			e.LogFault(FaultDelay, at, f)
			*t += ib.Time(e.cfg.Rand.Int64N(int64(c.f.DelayMax)))
		}
	}
	// What was sent later comes later: a cable does not reorder.
	*t = max(*t, c.last)
	c.last = *t
	return false
}

// harmFC does to a flow-control packet what the cable does.
func (e *Engine) harmFC(at uint32, p *link.Port, t *ib.Time) bool {
	c := e.cables[at]
	*t += c.f.Lag
	if !c.f.SpareFC {
		bad := e.flips(c, p, wire.LinkPacketSize)
		if bad && p.Site.Peer != NoEnd {
			e.ports[p.Site.Peer].Count(link.Physical) // its LPCRC fails there
		}
		if bad || e.chance(c.f.FCLoss) {
			e.LogFault(FaultFCLoss, at, nil)
			e.lossy(at)
			return true
		}
	}
	*t = max(*t, c.last-p.Site.Delay)
	return false
}

// corrupt flips up to three bits of the packet's bytes, and lets the CRCs judge. One time in four, where that may be,
// the fault is inside a node: the link's CRC is made after it, and only the end-to-end one can tell.
func (e *Engine) corrupt(at uint32, p *link.Port, f *link.Frame, inside bool) {
	e.LogFault(FaultCorrupt, at, f)
	b := f.Sync().Append(e.scratch[:0])
	e.scratch = b
	inside = inside && e.cfg.Rand.IntN(4) == 0 && f.LRH.LNH >= wire.LNHLocal
	lo, hi := 0, len(b)
	if inside {
		lo, hi = f.Packet.HeaderSize()-4, len(b)-wire.VCRCSize // not what a switch may change
	}
	for range 1 + e.cfg.Rand.IntN(3) {
		i := lo*8 + e.cfg.Rand.IntN((hi-lo)*8)
		b[i/8] ^= 1 << (i % 8)
	}
	if inside {
		b = b[:len(b)-wire.VCRCSize]
		v := wire.VCRC(b)
		b = append(b, byte(v>>8), byte(v))
	}
	if e.sink != nil && p.Site.Peer != NoEnd {
		e.emit(e.ports[p.Site.Peer], trace.Event{Time: e.now, Kind: trace.Packet, Dir: trace.In, Bytes: b,
			Note: "corrupted on the way"})
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
}

// duplicate queues a second copy at the port that the packet has just left, so that it pays for its own credit.
func (e *Engine) duplicate(at uint32, p *link.Port, f *link.Frame) {
	if f.Flags&link.Copied != 0 {
		return
	}
	g := e.pool.Get()
	g.CopyFrom(f)
	g.InPort, g.Group, g.Arrived = 0, 0, e.now
	if p.Enqueue(e.now, g, f.LRH.VL).IsDrop() {
		e.pool.Put(g)
		return
	}
	e.LogFault(FaultDuplicate, at, g)
}

// holdBack keeps a UD packet in its receive buffer while others overtake it.
func (e *Engine) holdBack(at uint32, c *cable, f *link.Frame) bool {
	if f.Packet.BTH.Opcode.Service() != wire.UD || f.LRH.VL == ib.VLMgmt || !e.chance(c.f.Reorder) {
		return false
	}
	e.LogFault(FaultReorder, at, f)
	e.hold(at, f, ib.Time(e.cfg.Rand.Int64N(int64(c.f.DelayMax))))
	return true
}

// hold keeps a packet in its receive buffer for a while.
func (e *Engine) hold(at uint32, f *link.Frame, d ib.Time) {
	e.q.push(e.now+d, code(Arrived, at, f.Index()))
}

// refuse drops a packet where it came in. The port may not have counted it while its neighbour has: the one is active,
// the other not yet, or they have not the same lanes. Only a refresh tells the neighbour.
func (e *Engine) refuse(at uint32, p *link.Port, f *link.Frame, r link.Reason) {
	if (r == link.NotReady || r == link.Malformed) && p.State() >= ib.PortInit && f.LRH.VL != ib.VLMgmt {
		e.lossy(at)
	}
	e.note(Refused, at, 0)
	e.Drop(at, f, r)
}

// lossy notes that credits went astray on a cable: both ends refresh until that has healed.
func (e *Engine) lossy(at uint32) {
	for _, i := range e.ends(at) {
		if p := e.ports[i]; !p.Refreshing() {
			p.SetRefresh(e.now, true)
		}
		e.armRefresh(i)
	}
}

func (e *Engine) armRefresh(at uint32) {
	p := e.ports[at]
	if t := p.NextRefresh(); t != ib.Never && p.Site.Flags&endRefresh == 0 {
		p.Site.Flags |= endRefresh
		e.q.push(max(t, e.now+e.cfg.RefreshMin), code(evRefresh, at, 0))
	}
}

// refresh tells a port's credits anew. The timer goes off when both ends know all
// that the other has to tell; a further loss turns it on again.
func (e *Engine) refresh(at uint32) {
	p := e.ports[at]
	p.Site.Flags &^= endRefresh
	if p.Site.Flags&endStopped != 0 || p.State() < ib.PortInit {
		return
	}
	if !e.cfg.AlwaysRefresh && p.Site.Peer != NoEnd && agree(p, e.ports[p.Site.Peer]) {
		p.SetRefresh(e.now, false)
		return
	}
	p.HandleTimeout(e.now)
	e.flush(at, p)
	e.kick(at)
	if e.cfg.Instant && p.Site.Flags&endOutside != 0 {
		if p.SetRefresh(e.now, false); !e.rested(at) {
			e.moved(at)
		}
		return
	}
	e.armRefresh(at)
}

// agree reports whether two ends of a cable have the same view of all credits,
// which implies that no data flies between them.
func agree(p, q *link.Port) bool {
	for vl := ib.VL(0); vl < ib.VLMgmt; vl++ {
		a, b := p.Credit(vl), q.Credit(vl)
		if a.FCTBS != b.ABR || b.FCTBS != a.ABR || a.FCCL != b.Advertised || b.FCCL != a.Advertised {
			return false
		}
	}
	return true
}
