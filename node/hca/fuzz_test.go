package hca

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// target is an adapter with a queue pair of each kind, busy in both directions,
// whose peers are whoever makes up the packets.
type target struct {
	w      *world
	h      *host
	ends   []*end
	secret *end // registered, with no rights for anybody but itself
	before []byte
}

func newTarget(t testing.TB) *target {
	w := newWorld(t, 2, 1)
	w.bundles(3)
	g := &target{w: w, h: w.hosts[1]}
	for _, typ := range []QPType{RC, UC, XRCRecv, XRCSend, UD, GSI} {
		c := conf{typ: typ, memLen: 8192, destRD: 2, rd: 2, retry: 1, timeout: 3, sendWR: 8, recvWR: 16, inline: 16,
			cqe: 64}
		if typ == XRCRecv {
			c.srq = 16
		}
		e := w.newEnd(1, c)
		c = c.filled()
		e.toInit(c)
		// The peer is QP 0x100 of host a, whatever it may be.
		e.connect(c, &end{h: w.hosts[0], qp: &QP{num: 0x100}}, 100, 0xFFFFFE)
		g.ends = append(g.ends, e)
		if typ != XRCSend {
			for i := range 8 {
				e.recv(uint64(i), e.sge(0, 100), e.sge(4000, 700))
			}
		}
	}
	ok(t, g.h.AttachMcast(g.ends[4].qp, group, groupLID))
	for _, e := range []*end{g.ends[0], g.ends[3]} {
		for i, op := range []WROpcode{WRSend, WRRDMARead, WRAtomicFetchAdd, WRRDMAWrite, WRRDMARead, WRSend} {
			n := 8
			if op != WRAtomicFetchAdd {
				n = 600
			}
			e.post(SendWR{WRID: uint64(i), Opcode: op, SGList: []SGE{e.sge(1000, n)}, RemoteAddr: memVA, RKey: 1,
				RemoteSRQN: 1})
		}
	}
	g.secret = w.newEnd(1, conf{memLen: 8192, mrAccess: AccessMWBind, sendWR: 1, recvWR: 1, inline: 1, cqe: 4})
	g.before = append([]byte(nil), g.secret.mem...)
	g.drain()
	return g
}

// drain lets the adapter send, and looks at what it sends.
func (g *target) drain() {
	t := g.w.t
	for n := 0; ; n++ {
		if n > 10000 {
			t.Fatal("it never stops sending")
		}
		s, has := g.h.NextSend()
		if !has {
			return
		}
		var p wire.Packet
		if !g.w.emit(g.h, s, &p) {
			continue
		}
		for i := range p.Packets() {
			var q wire.Packet
			single := p.Single(i)
			if err := q.Parse(single.Append(nil)); err != nil {
				t.Fatalf("it sent what does not parse: %v", err)
			}
		}
	}
}

// check looks for damage.
func (g *target) check() {
	t := g.w.t
	for _, e := range g.ends {
		e.intact()
		q := e.qp
		if q.sqCursor-q.sqOldest > q.sqNext-q.sqOldest || int(q.sqNext-q.sqOldest) > q.caps.MaxSendWR {
			t.Fatalf("%v: send queue %d, %d, %d", q.typ, q.sqOldest, q.sqCursor, q.sqNext)
		}
		if early := q.early; early != nil {
			for _, list := range [][]*earlyPacket{early.requests, early.responses} {
				if len(list) > g.h.cfg.Reorder || !slices.IsSortedFunc(list, func(a, b *earlyPacket) int {
					return a.BTH.PSN.Sub(b.BTH.PSN)
				}) {
					t.Fatalf("%v: %d packets before their turn, or in the wrong order", q.typ, len(list))
				}
			}
		}
		if int(q.respTail-q.respHead) > len(q.resp) || q.rdQueued < 0 || q.rdOut < 0 {
			t.Fatalf("%v: responses %d to %d, %d READs queued, %d out", q.typ, q.respHead, q.respTail, q.rdQueued,
				q.rdOut)
		}
	}
	g.secret.intact()
	if !bytes.Equal(g.secret.mem, g.before) {
		t.Fatal("memory without rights was written")
	}
}

// dec takes a packet's fields from fuzz bytes: mostly plausible ones.
type dec struct{ b []byte }

func (d *dec) u8() uint8 {
	if len(d.b) == 0 {
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *dec) u32() uint32 {
	return uint32(d.u8()) | uint32(d.u8())<<8 | uint32(d.u8())<<16 | uint32(d.u8())<<24
}

func (g *target) packet(d *dec, p *wire.Packet) {
	sel := d.u8()
	e := g.ends[int(sel&7)%len(g.ends)]
	p.LRH = wire.LRH{LNH: wire.LNHLocal, DLID: lidOf(1, 1), SLID: lidOf(0, 1)}
	p.BTH = wire.BTH{Opcode: wire.MakeOpcode(qpTypes[e.qp.typ].wire, wire.Opcode(d.u8()&31)), PKey: ib.PKeyDefault,
		DestQP: e.qp.num}
	base := e.qp.ePSN
	if !p.BTH.Opcode.Info().Is(wire.FlagRequest) {
		base = e.qp.ackPSN
	}
	f := d.u8()
	p.BTH.PSN = base.Add(int(f>>4) - 4)
	if f&8 != 0 {
		p.BTH.PSN = base
	}
	p.BTH.AckReq, p.BTH.Solicited, p.BTH.Migrate = f&1 != 0, f&2 != 0, f&4 != 0
	switch sel >> 5 {
	case 1:
		p.LRH.LNH = wire.LNHGlobal
		p.GRH = wire.GRH{IPVer: 6, NxtHdr: wire.GRHNextIBA, DGID: g.h.Port(1).GIDs[0]}
	case 2:
		p.LRH.LNH, p.LRH.DLID, p.BTH.DestQP = wire.LNHGlobal, groupLID, ib.QPNMulticast
		p.GRH = wire.GRH{IPVer: 6, NxtHdr: wire.GRHNextIBA, DGID: group}
	case 3: // anything at all
		p.BTH.Opcode, p.BTH.PSN, p.BTH.DestQP, p.LRH.DLID, p.LRH.SLID = wire.Opcode(d.u8()), ib.PSN(d.u32())&ib.PSNMask,
			ib.QPN(d.u32()), ib.LID(d.u32()), ib.LID(d.u32())
		p.LRH.LNH = wire.LNH(d.u8() & 3)
	}
	p.BTH.FECN, p.BTH.BECN = f&0x28 == 0x28, f&0x48 == 0x48
	keys := []uint32{e.mr.RKey(), g.secret.mr.RKey(), g.ends[0].mr.RKey(), 0, d.u32()}
	k := d.u8()
	key := keys[int(k&7)%len(keys)]
	va := uint64(memVA) + uint64(int64(int32(d.u32()<<8)>>14))
	n := uint32(d.u8()) * 8
	if k&0x80 != 0 {
		n = d.u32()
	}
	p.RETH = wire.RETH{VA: va, RKey: key, DMALen: n}
	p.AtomicETH = wire.AtomicETH{VA: va, RKey: key, Swap: 3, Compare: uint64(k)}
	p.AETH = wire.AETH{Syndrome: wire.Syndrome(d.u8())}
	p.Imm, p.XRCSRQ = key, uint32(d.u8()&3)
	p.DETH = wire.DETH{QKey: 0x1234, SrcQP: 0x100}
	pay := int(d.u8()) * 2
	switch pay & 6 {
	case 2:
		pay = 256
	case 4:
		pay = int(min(n, 256))
	}
	p.Payload = bytes.Repeat([]byte{0x5E}, pay)
	if k&0x40 == 0 {
		return
	}
	// A bundle, often as long as it says, and often with its payload elsewhere.
	f = d.u8()
	p.Count = uint16(f & 7)
	if f&8 != 0 {
		p.Payload = bytes.Repeat([]byte{0x5E}, max(0, int(p.Count)*256-int(f&16)))
	}
	if f&32 != 0 && len(p.Payload) > 0 {
		left := int(f >> 6)
		p.Far, p.FarLen, p.Payload = &elsewhere{p.Payload, func() bool { left--; return left >= 0 }}, len(p.Payload),
			nil
	}
}

// FuzzPackets hands an adapter arbitrary decoded packets, lets it answer and
// time out in between.
func FuzzPackets(f *testing.F) {
	f.Add([]byte{})
	// A SEND First and Last, a WRITE, a READ, an atomic, an ACK, to each queue pair.
	for sel := range uint8(6) {
		var b []byte
		for _, op := range []wire.Opcode{wire.OpSendFirst, wire.OpSendLast, wire.OpWriteOnly, wire.OpReadRequest,
			wire.OpFetchAdd, wire.OpAck, wire.OpReadResponseFirst, wire.OpAtomicAck} {
			b = append(b, sel, byte(op), 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0x1F, 1, 1)
		}
		f.Add(b)
	}
	for sel := range uint8(4) { // the same in bundles of three, here and elsewhere
		for _, k := range []byte{0x0B, 0xEB} {
			var b []byte
			for _, op := range []wire.Opcode{wire.OpSendFirst, wire.OpSendLast, wire.OpWriteOnly, wire.OpReadRequest,
				wire.OpReadResponseFirst} {
				b = append(b, sel, byte(op), 0x09, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 96, 0x1F, 1, 1, k)
			}
			f.Add(b)
		}
	}
	f.Add(bytes.Repeat([]byte{0x40, 4, 8, 1, 2, 3, 4, 0x81, 0, 0, 0, 0, 1, 2, 3, 4, 0x60, 1, 200}, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2000 {
			return
		}
		g := newTarget(t)
		if len(b)&1 != 0 { // as where switches choose the ways of packets, and mark them
			g.h.cfg.Reorder, g.h.cfg.ReorderTime = 4, ib.Microsecond
			c := Congestion{Levels: 0xFFFF, Table: [CongestionSteps]uint16{0, 1, 0xFFFF, 7}, Limit: uint16(b[0] & 7)}
			c.Entries[0] = CongestionEntry{Timer: uint16(b[0] >> 6), Increase: b[0] >> 4}
			g.h.SetCongestion(1, c)
		}
		d := &dec{b}
		for len(d.b) > 0 {
			var p wire.Packet
			g.packet(d, &p)
			g.h.HandlePacket(g.w.now, ib.PortNum(1+p.BTH.PSN>>20&1), &p)
			if p.BTH.AckReq {
				g.drain()
			}
			if p.BTH.Solicited {
				if at := g.h.NextDeadline(); at != ib.Never {
					g.w.now = max(g.w.now, at)
					g.h.HandleTimeout(g.w.now)
				}
			}
		}
		g.drain()
		g.check()
		for _, m := range g.h.mcast {
			for _, q := range m.qps {
				ok(t, g.h.DetachMcast(q, m.gid, m.lid))
			}
		}
		g.w.close()
	})
}

// FuzzBytes makes packets of raw bytes, with the CRCs and the length made
// right, and hands over what parses.
func FuzzBytes(f *testing.F) {
	seed := func(p wire.Packet) {
		p.Seal()
		b := p.Append(nil)
		f.Add(b[:len(b)-wire.ICRCSize-wire.VCRCSize])
	}
	w := newWorld(f, 2, 1)
	a, _ := w.pair(conf{})
	for op := range wire.Opcode(24) {
		for i, s := range []wire.Service{wire.RC, wire.UC, wire.XRC, wire.XRC, wire.UD} {
			var p wire.Packet
			a.qp.header(&p, op, 0xFFFFFE)
			p.BTH.Opcode = wire.MakeOpcode(s, op)
			p.BTH.DestQP = ib.QPN(0x200 + i)
			p.RETH.DMALen = 8
			p.Payload = make([]byte, 8)
			if p.BTH.Opcode.Info().Valid() {
				seed(p)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < wire.LRHSize+wire.GRHSize+wire.BTHSize &&
			(len(b) < wire.LRHSize+wire.BTHSize || wire.LNH(b[1]&3) == wire.LNHGlobal) || len(b) > 4200 {
			return // no ICRC
		}
		b = append([]byte(nil), b...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		words := (len(b) + wire.ICRCSize) / 4
		binary.BigEndian.PutUint16(b[4:], uint16(words))
		b = binary.BigEndian.AppendUint32(b, wire.ICRC(b))
		b = append(b, 0, 0)
		wire.SetVCRC(b)
		var p wire.Packet
		if p.Parse(b) != nil {
			return
		}
		g := newTarget(t)
		for range 3 {
			g.h.HandlePacket(0, 1, &p)
			p.BTH.PSN = p.BTH.PSN.Add(1)
		}
		g.drain()
		g.check()
	})
}
