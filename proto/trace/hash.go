package trace

import (
	"encoding/binary"
	"fmt"

	"softib/proto/wire"
)

// Hash is a running hash of events, by which two runs are compared: the same
// events in the same order, and only they, give the same sum. It is FNV-1a over
// 64-bit words rather than bytes, with a shift that brings high bits down, so
// that it costs little enough to be always on. The zero value is ready.
//
// A packet counts by its headers and the length of its payload; with
// Payloads set, by every byte.
type Hash struct {
	Payloads bool

	sum   uint64
	count uint64
}

const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x00000100000001b3
)

func (h *Hash) word(v uint64) {
	s := (h.sum ^ v) * fnvPrime
	h.sum = s ^ s>>29
}

// bytes takes p with its length, so that neighbours cannot run together.
func (h *Hash) bytes(p []byte) {
	h.word(uint64(len(p)))
	for len(p) >= 8 {
		h.word(binary.LittleEndian.Uint64(p))
		p = p[8:]
	}
	if len(p) > 0 {
		var last uint64
		for i, x := range p {
			last |= uint64(x) << (8 * i)
		}
		h.word(last)
	}
}

func (h *Hash) text(s string) {
	h.word(uint64(len(s)))
	for len(s) >= 8 {
		h.word(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
		s = s[8:]
	}
	if len(s) > 0 {
		var last uint64
		for i := range len(s) {
			last |= uint64(s[i]) << (8 * i)
		}
		h.word(last)
	}
}

// Add takes one event in.
func (h *Hash) Add(e *Event) {
	if h.count == 0 {
		h.sum = fnvOffset
	}
	h.count++
	h.word(uint64(e.Time))
	h.word(uint64(e.Node)<<32 | uint64(e.Port)<<24 | uint64(e.Kind)<<16 | uint64(e.Dir)<<8 | uint64(e.Reason))
	switch e.Kind {
	case Packet, Drop:
		switch {
		case e.Bytes != nil:
			h.bytes(e.Bytes)
		case e.Packet != nil:
			h.packet(e.Packet)
		}
	case Link:
		h.word(uint64(e.Link.Op)<<48 | uint64(e.Link.VL)<<32 | uint64(e.Link.FCTBS)<<16 | uint64(e.Link.FCCL))
	case State:
		h.word(uint64(e.QP))
		h.text(e.What)
		h.text(e.From)
		h.text(e.To)
	}
	if e.Note != "" {
		h.text(e.Note)
	}
}

// packet takes in what the packet has, and nothing of what it does not: the
// other fields may hold anything.
func (h *Hash) packet(p *wire.Packet) {
	l := &p.LRH
	h.word(uint64(l.DLID)<<48 | uint64(l.SLID)<<32 | uint64(l.Length)<<16 |
		uint64(l.VL&15)<<12 | uint64(l.SL&15)<<8 | uint64(l.LVer&15)<<4 | uint64(l.LNH))
	switch l.LNH {
	case wire.LNHRaw:
		h.word(uint64(p.RawType))
		h.payload(p)
		return
	case wire.LNHIPv6:
		h.payload(p)
		return
	case wire.LNHGlobal:
		g := &p.GRH
		h.word(uint64(g.IPVer)<<60 | uint64(g.TClass)<<52 | uint64(g.Flow)<<32 | uint64(g.PayLen)<<16 |
			uint64(g.NxtHdr)<<8 | uint64(g.HopLimit))
		h.word(binary.BigEndian.Uint64(g.SGID[:8]))
		h.word(binary.BigEndian.Uint64(g.SGID[8:]))
		h.word(binary.BigEndian.Uint64(g.DGID[:8]))
		h.word(binary.BigEndian.Uint64(g.DGID[8:]))
	}
	t := &p.BTH
	h.word(uint64(t.Opcode)<<56 | uint64(t.DestQP)<<32 | uint64(t.PSN)<<8 | uint64(t.Pad&3)<<6 |
		bit(t.Solicited)<<5 | bit(t.Migrate)<<4 | bit(t.FECN)<<3 | bit(t.BECN)<<2 | bit(t.AckReq)<<1)
	h.word(uint64(t.PKey)<<8 | uint64(t.TVer))
	if e := t.Opcode.Info().Ext; e != 0 {
		h.ext(p, e)
	}
	h.payload(p)
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (h *Hash) ext(p *wire.Packet, e wire.Ext) {
	if e&wire.ExtRDETH != 0 {
		h.word(uint64(p.EEContext))
	}
	if e&wire.ExtDETH != 0 {
		h.word(uint64(p.DETH.QKey)<<32 | uint64(p.DETH.SrcQP))
	}
	if e&wire.ExtXRCETH != 0 {
		h.word(uint64(p.XRCSRQ))
	}
	if e&wire.ExtRETH != 0 {
		h.word(p.RETH.VA)
		h.word(uint64(p.RETH.RKey)<<32 | uint64(p.RETH.DMALen))
	}
	if e&wire.ExtAtomicETH != 0 {
		h.word(p.AtomicETH.VA)
		h.word(uint64(p.AtomicETH.RKey))
		h.word(p.AtomicETH.Swap)
		h.word(p.AtomicETH.Compare)
	}
	if e&wire.ExtAETH != 0 {
		h.word(uint64(p.AETH.Syndrome)<<24 | uint64(p.AETH.MSN))
	}
	if e&wire.ExtAtomicAckETH != 0 {
		h.word(p.AtomicAck)
	}
	if e&(wire.ExtImmDt|wire.ExtIETH) != 0 {
		h.word(uint64(p.Imm))
	}
}

func (h *Hash) payload(p *wire.Packet) {
	if h.Payloads {
		h.bytes(p.Payload)
		return
	}
	h.word(uint64(len(p.Payload)))
}

// Sum is the hash of the events so far.
func (h *Hash) Sum() uint64 { return h.sum }

// Count is how many events there were.
func (h *Hash) Count() uint64 { return h.count }

func (h *Hash) String() string { return fmt.Sprintf("%016x", h.sum) }
