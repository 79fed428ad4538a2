package link

import (
	"slices"

	"softib/proto/ib"
)

// Marking is how a port of a switch tells receivers of congestion: packets that join a long queue are marked (FECN),
// and their receivers tell the senders (IBA A10.2.1).
type Marking struct {
	// Threshold says how long a queue is when marking begins: 0 never does, 1 is the longest and 15 the shortest.
	Threshold uint8
	// PacketSize is how many blocks a packet has at least that is marked.
	PacketSize uint8
	// Rate is how many packets pass between two that are marked.
	Rate uint16
	// Victim: packets are marked also where the queue waits for credit, as it does where congestion is further on.
	Victim bool
	// Starvation is the threshold of a queue that waits for credit, where that is not because of congestion further on
	// but because who is there is slow: at the port of a host. 0 never marks there.
	Starvation uint8
}

// Marked is a flow of which a packet was marked, and when last.
type Marked struct {
	SLID, DLID ib.LID
	SL         ib.SL
	At         ib.Time
}

// logMax is how many flows a port remembers: as many as a switch tells of.
const logMax = 15

// marks is what a port needs for it.
type marks struct {
	Marking
	at, starvedAt uint32 // packets of a queue that is too long; 0 never
	passed        uint16 // packets since one was marked
	counted       [ib.NumVL]uint64
	log           []Marked // the last flows of which packets were marked, since somebody took them
	logged        uint64   // how many packets that were
	// The lanes whose queue is too long, since when, for how many packets, and how long queues were so before.
	long  uint16
	since [ib.NumVL]ib.Time
	under [ib.NumVL]uint32
	took  [ib.NumVL]ib.Time
}

// on reports whether packets may be marked.
func (k *marks) on() bool { return k != nil && k.at|k.starvedAt != 0 }

// marker is what the port has for it. Most have nothing, ever.
func (p *Port) marker() *marks {
	if p.cold.marks == nil {
		p.cold.marks = new(marks)
	}
	return p.cold.marks
}

// Marking is how the port marks packets.
func (p *Port) Marking() Marking {
	if p.cold.marks == nil {
		return Marking{}
	}
	return p.cold.marks.Marking
}

// SetMarking sets it. The longest queue is what a receive buffer holds.
func (p *Port) SetMarking(m Marking) {
	if p.cold.marks == nil && m == (Marking{}) {
		return
	}
	k := p.marker()
	k.Marking, k.passed, k.long = m, 0, 0
	longest := p.cold.cfg.BufferBlocks / mtuBlocks(p.cold.cfg.MTUCap)
	packets := func(threshold uint8) uint32 {
		if t := int(threshold & 15); t > 0 {
			return uint32(max(1, longest*(16-t)/16))
		}
		return 0
	}
	k.at, k.starvedAt = packets(m.Threshold), packets(m.Starvation)
	p.watch()
}

// Marked counts the packets of a lane that were marked.
func (p *Port) Marked(vl ib.VL) uint64 {
	if p.cold.marks == nil {
		return 0
	}
	return p.cold.marks.counted[vl&15]
}

// congestedFor is for how long the queue of a lane was too long.
func (p *Port) congestedFor(vl int) ib.Time {
	if p.cold.marks == nil {
		return 0
	}
	return p.cold.marks.took[vl]
}

// TakeMarked is how many packets were marked since it was last asked, and of which flows the last were, oldest first.
func (p *Port) TakeMarked() (n uint64, flows []Marked) {
	if k := p.cold.marks; k != nil {
		n, flows = k.logged, k.log
		k.logged, k.log = 0, nil
	}
	return n, flows
}

// note remembers a packet that was marked.
func (k *marks) note(now ib.Time, f *Frame) {
	k.logged++
	flow := Marked{f.LRH.SLID, f.LRH.DLID, f.LRH.SL, now}
	at := slices.IndexFunc(k.log, func(o Marked) bool {
		return o.SLID == flow.SLID && o.DLID == flow.DLID && o.SL == flow.SL
	})
	if at < 0 && len(k.log) == logMax {
		at = 0
	}
	if at >= 0 {
		k.log = slices.Delete(k.log, at, at+1)
	}
	k.log = append(k.log, flow)
}

// mark marks a packet that joins the queue of a lane, if that is to be.
func (p *Port) mark(now ib.Time, f *Frame, vl ib.VL) {
	k := p.cold.marks
	if !k.on() || vl >= ib.VLMgmt {
		return
	}
	tx := p.tx(int(vl))
	k.relieve(ib.Earlier(now, tx.headSince), int(vl), tx.n)
	if tx.n == 0 {
		return
	}
	limit := k.at
	if !k.Victim && !maySend(tx.fccl, tx.fctbs, tx.q.head.Blocks) {
		// Without credit the queue is long because of what is further on. The root of the congestion is there, unless
		// this is the last port of the way.
		limit = k.starvedAt
	}
	if limit == 0 || tx.n < limit {
		return
	}
	if k.long>>vl&1 == 0 {
		k.long |= 1 << vl
		k.since[vl], k.under[vl] = now, limit
	}
	if f.Blocks < k.PacketSize {
		return
	}
	if k.passed++; k.passed <= k.Rate {
		return
	}
	k.passed = 0
	k.counted[vl]++
	k.note(now, f)
	f.Packet.BTH.FECN = true
}

// relieve ends the congestion of a lane in whose queue few packets are left.
func (k *marks) relieve(now ib.Time, vl int, left uint32) {
	if k.long>>vl&1 != 0 && left < k.under[vl] {
		k.long &^= 1 << vl
		k.took[vl] += max(now-k.since[vl], 0)
	}
}
