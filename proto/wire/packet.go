package wire

import (
	"strconv"

	"softib/proto/ib"
)

// LNH says what follows LRH (IBA table 13).
type LNH uint8

// Values of LRH's next-header field.
const (
	LNHRaw    LNH = 0 // raw packet, EtherType
	LNHIPv6   LNH = 1 // raw packet, IPv6 header
	LNHLocal  LNH = 2 // BTH
	LNHGlobal LNH = 3 // GRH, then BTH
)

func (l LNH) String() string {
	switch l {
	case LNHRaw:
		return "raw"
	case LNHIPv6:
		return "IPv6"
	case LNHLocal:
		return "local"
	case LNHGlobal:
		return "global"
	}
	return "LNH(" + strconv.Itoa(int(l)) + ")"
}

// Packet is a data packet, decoded. Only the fields that its LNH and opcode
// call for have a meaning; the others may hold anything, so that a sender
// need not clear what the receiver will not read. Payload, FarLen and Count
// always have one.
//
// The order of fields is that of use. Behind the payload's reference everything
// that a SEND, an RDMA WRITE or READ or an ACK has fits into one cache line,
// which is how the live driver lays packets out; atomics and datagrams take
// the next, a routed packet the one after, and what only drivers over shared
// memory know stands last.
type Packet struct {
	// Payload is the data without padding. It may refer to memory that the
	// packet does not own; see Detached.
	Payload []byte

	LRH LRH
	// Count is how many packets of one message this one stands for; 0 and 1
	// both mean that it is itself. See Packets.
	Count uint16
	BTH   BTH
	RETH  RETH
	AETH  AETH
	// Imm is ImmDt or IETH: the immediate value or the R_Key to invalidate; of a FLUSH it is FETH.
	Imm uint32

	DETH DETH
	// FarLen is the length of a payload that is not here but with Far. Payload is
	// empty then; either FarLen 0 or Far nil says that it is here.
	FarLen    int
	AtomicETH AtomicETH
	AtomicAck uint64 // AtomicAckETH: the original value
	XRCSRQ    uint32 // XRCETH: the SRQ number, 24 bits
	EEContext uint32 // RDETH: 24 bits

	GRH GRH

	// RawType is the EtherType of a raw packet (LNHRaw).
	RawType uint16

	// Far has the payload, if there is one elsewhere.
	Far Source
}

// Detached is a copy of p whose payload is its own, appended to buf. One that
// lies elsewhere stays there; see Fetch.
func (p *Packet) Detached(buf []byte) Packet {
	q := *p
	q.Payload = append(buf, p.Payload...)
	return q
}

// Layout, in bytes, of what every packet has.
const (
	LRHSize  = 8
	GRHSize  = 40
	BTHSize  = 12
	ICRCSize = 4
	VCRCSize = 2
	RWHSize  = 4
)

// HeaderSize is the length of all headers in bytes.
func (p *Packet) HeaderSize() int {
	switch p.LRH.LNH {
	case LNHRaw:
		return LRHSize + RWHSize
	case LNHIPv6:
		return LRHSize
	case LNHGlobal:
		return LRHSize + GRHSize + BTHSize + int(p.BTH.Opcode.Info().ExtSize)
	}
	return LRHSize + BTHSize + int(p.BTH.Opcode.Info().ExtSize)
}

// pad is how many bytes complete the payload's last 4-byte word.
func (p *Packet) pad() int { return -p.PayloadLen() & 3 }

// WireSize is the packet's length on a link, both CRCs included.
func (p *Packet) WireSize() int {
	n := p.HeaderSize() + p.PayloadLen() + p.pad() + VCRCSize
	if p.LRH.LNH >= LNHLocal {
		n += ICRCSize
	}
	return n
}

// Words is LRH's packet length: 4-byte words from LRH's first byte to
// the last before VCRC (IBA 7.7.8). A bundle may be longer than the field can
// say; then it holds the most it can, and WireWords tells.
func (p *Packet) Words() uint16 { return uint16(min((p.WireSize()-VCRCSize)/4, maxPacketWord)) }

// Seal sets the fields that follow from the others: LRH's length and BTH's pad
// count, and GRH's payload length if there is one.
func (p *Packet) Seal() {
	n := p.PayloadLen()
	pad := -n & 3
	p.BTH.Pad = uint8(pad)
	// Spelled out for the common case: this runs once a packet.
	if p.LRH.LNH == LNHLocal && p.Count <= 1 {
		p.LRH.Length = uint16((LRHSize + BTHSize + ICRCSize + int(opcodes[p.BTH.Opcode].ExtSize) + n + pad) / 4)
		return
	}
	p.LRH.Length = p.Words()
	if p.LRH.LNH == LNHGlobal {
		p.GRH.PayLen = uint16(int(p.LRH.Length)*4 - LRHSize - GRHSize)
	}
}

// LRH is the local route header (IBA 7.7).
type LRH struct {
	VL     ib.VL
	LVer   uint8
	SL     ib.SL
	LNH    LNH
	DLID   ib.LID
	Length uint16 // in 4-byte words
	SLID   ib.LID
}

// GRH is the global route header (IBA 8.3).
type GRH struct {
	IPVer    uint8
	TClass   uint8
	Flow     uint32 // 20 bits
	PayLen   uint16
	NxtHdr   uint8
	HopLimit uint8
	SGID     ib.GID
	DGID     ib.GID
}

// GRHNextIBA is GRH's next header for an IBA transport (IBA 8.3.5).
const GRHNextIBA = 0x1B

// BTH is the base transport header (IBA 9.2).
type BTH struct {
	Opcode    Opcode
	Solicited bool
	Migrate   bool
	Pad       uint8
	TVer      uint8
	FECN      bool
	BECN      bool
	AckReq    bool
	PKey      ib.PKey
	DestQP    ib.QPN
	PSN       ib.PSN
}

// DETH is the datagram extended header (IBA 9.3.2).
type DETH struct {
	QKey  ib.QKey
	SrcQP ib.QPN
}

// RETH is the RDMA extended header (IBA 9.3.3).
type RETH struct {
	VA     uint64
	RKey   uint32
	DMALen uint32
}

// AtomicETH is the atomic extended header (IBA 9.3.4).
type AtomicETH struct {
	VA      uint64
	RKey    uint32
	Swap    uint64 // or the value to add
	Compare uint64
}

// AETH is the acknowledge extended header (IBA 9.3.5).
type AETH struct {
	Syndrome Syndrome
	MSN      uint32 // 24 bits
}

// Syndrome is AETH's code: ACK with credits, RNR NAK with a timer, or NAK
// with a reason (IBA table 44 to 46).
type Syndrome uint8

// Syndromes. The low five bits of an ACK are a credit count, 31 for none given;
// those of an RNR NAK are the timer code.
const (
	SynAck       Syndrome = 0x00
	SynAckNoCred Syndrome = 0x1F
	SynRNR       Syndrome = 0x20
	SynNAK       Syndrome = 0x60

	NAKSeq       Syndrome = SynNAK     // PSN sequence error
	NAKInvReq    Syndrome = SynNAK | 1 // invalid request
	NAKAccess    Syndrome = SynNAK | 2 // remote access error
	NAKOp        Syndrome = SynNAK | 3 // remote operational error
	NAKInvRDReq  Syndrome = SynNAK | 4 // invalid RD request
	SynTypeMask  Syndrome = 0x60
	SynValueMask Syndrome = 0x1F
)

// Type is SynAck, SynRNR, SynNAK, or the reserved 0x40.
func (s Syndrome) Type() Syndrome { return s & SynTypeMask }

// Value is the code below the type.
func (s Syndrome) Value() uint8 { return uint8(s & SynValueMask) }
