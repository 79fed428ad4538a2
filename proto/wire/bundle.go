package wire

import "softib/proto/ib"

// A bundle is a Packet that stands for several consecutive packets of one SEND or
// RDMA WRITE message or of one READ response. It exists between drivers that
// share memory, where handling a packet costs more than moving its bytes, and
// never on a wire. It has the first packet's PSN, all of the payload, and the
// opcode that says whether the message's first and last packets are in it. All
// packets but the message's last are as long as the path MTU.

// Packets is how many packets p stands for.
func (p *Packet) Packets() int { return max(1, int(p.Count)) }

// WireWords is how many 4-byte words, as LRH's length counts them, the packets
// that p stands for have in all: what ports count.
func (p *Packet) WireWords() uint64 {
	k := p.Packets()
	if k == 1 {
		return uint64(p.Words())
	}
	ext := func(i int) int { return int(p.BTH.Opcode.part(i, k).Info().ExtSize) }
	n := k * (p.HeaderSize() - int(p.BTH.Opcode.Info().ExtSize) + ICRCSize)
	// Those between the outer two are alike, and only the last has padding.
	n += ext(0) + (k-2)*ext(1) + ext(k-1)
	return uint64(n+p.PayloadLen()+p.pad()) / 4
}

// Single is packet i of the bundle p, sealed. The payload must be here, and as
// long as Count says.
func (p *Packet) Single(i int) Packet {
	q := *p
	k := p.Packets()
	if k == 1 {
		return q
	}
	mtu := p.bundleMTU()
	last := i == k-1
	q.Count = 0
	q.BTH.Opcode = p.BTH.Opcode.part(i, k)
	q.BTH.PSN = p.BTH.PSN.Add(i)
	q.BTH.AckReq = p.BTH.AckReq && last
	q.BTH.Solicited = p.BTH.Solicited && last
	q.Payload = clip(p.Payload[i*mtu : min((i+1)*mtu, len(p.Payload))])
	q.Seal()
	return q
}

// bundleMTU is the one path MTU that makes as many packets of the payload as
// Count says.
func (p *Packet) bundleMTU() int {
	for m := ib.MTU256; m < ib.MTU4096; m++ {
		if m.Bytes()*p.Packets() >= len(p.Payload) {
			return m.Bytes()
		}
	}
	return ib.MTU4096.Bytes()
}

// part is the opcode of packet i of the k that a bundle with opcode o stands for.
func (o Opcode) part(i, k int) Opcode {
	info := o.Info()
	var first Opcode
	switch info.Kind {
	case KindSend:
		first = OpSendFirst
	case KindWrite:
		first = OpWriteFirst
	case KindReadResponse:
		first = OpReadResponseFirst
	default:
		return o
	}
	starts, ends := i == 0 && info.Is(FlagStart), i == k-1 && info.Is(FlagEnd)
	op := first + (OpSendMiddle - OpSendFirst)
	switch {
	case starts && ends:
		return o
	case starts:
		op = first
	case ends:
		if op = o.Op(); info.Is(FlagStart) {
			op = lastOf[op]
		}
	}
	return MakeOpcode(o.Service(), op)
}

// lastOf is the operation of the last packet of what would be one packet if it
// were shorter.
var lastOf = [32]Opcode{
	OpSendOnly: OpSendLast, OpSendOnlyImm: OpSendLastImm, OpSendOnlyInv: OpSendLastInv,
	OpWriteOnly: OpWriteLast, OpWriteOnlyImm: OpWriteLastImm, OpReadResponseOnly: OpReadResponseLast,
}
