package link

import "softib/proto/ib"

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
}

// marks is what a port needs for it.
type marks struct {
	Marking
	at      uint32 // packets of a queue that is too long; 0 never
	passed  uint16 // packets since one was marked
	counted [ib.NumVL]uint64
}

// Marking is how the port marks packets.
func (p *Port) Marking() Marking { return p.cold.marks.Marking }

// SetMarking sets it. The longest queue is what a receive buffer holds.
func (p *Port) SetMarking(m Marking) {
	k := &p.cold.marks
	k.Marking, k.at, k.passed = m, 0, 0
	if t := int(m.Threshold & 15); t > 0 {
		longest := p.cold.cfg.BufferBlocks / mtuBlocks(p.cold.cfg.MTUCap)
		k.at = uint32(max(1, longest*(16-t)/16))
	}
	p.watch()
}

// Marked counts the packets of a lane that were marked.
func (p *Port) Marked(vl ib.VL) uint64 { return p.cold.marks.counted[vl&15] }

// mark marks a packet that joins the queue of a lane, if that is to be.
func (p *Port) mark(f *Frame, vl ib.VL) {
	k := &p.cold.marks
	tx := p.tx(int(vl))
	if k.at == 0 || tx.n < k.at || f.Blocks < k.PacketSize || vl >= ib.VLMgmt {
		return
	}
	// Without credit the queue is long because of what is further on: the root of the congestion is there.
	if !k.Victim && !maySend(tx.fccl, tx.fctbs, tx.q.head.Blocks) {
		return
	}
	if k.passed++; k.passed <= k.Rate {
		return
	}
	k.passed = 0
	k.counted[vl]++
	f.Packet.BTH.FECN = true
}
