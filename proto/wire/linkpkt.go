package wire

import (
	"encoding/binary"

	"softib/proto/ib"
)

// Layout of a flow-control packet, the only link packet (IBA 7.9.4): Op and
// FCTBS, VL and FCCL, LPCRC, sixteen bits each.
const (
	LinkPacketSize = 6

	linkOpFCTBS = 0
	linkVLFCCL  = 2
	linkLPCRC   = 4

	// CreditMask keeps the 12 bits of FCTBS and FCCL that travel.
	CreditMask = 0x0FFF
)

// LinkOp is a link packet's operand.
type LinkOp uint8

// Operands; all others are reserved and the packet is discarded.
const (
	LinkNormal LinkOp = 0
	LinkInit   LinkOp = 1
)

func (o LinkOp) String() string {
	switch o {
	case LinkNormal:
		return "normal"
	case LinkInit:
		return "init"
	}
	return "reserved"
}

// LinkPacket is a flow-control packet: what the sender has sent on a VL in all
// and up to where it may be sent to, both in blocks of 64 bytes, modulo 4096.
type LinkPacket struct {
	Op    LinkOp
	FCTBS uint16 // flow control total blocks sent, 12 bits
	VL    ib.VL
	FCCL  uint16 // flow control credit limit, 12 bits
}

// ParseLinkPacket reads a flow-control packet and says how many bytes it took.
// LPCRC is checked before anything is believed; a reserved operand is an
// error of kind ErrOpcode.
func ParseLinkPacket(b []byte) (LinkPacket, int, error) {
	if len(b) < LinkPacketSize {
		return LinkPacket{}, 0, truncated("link packet", len(b), LinkPacketSize)
	}
	got, want := binary.BigEndian.Uint16(b[linkLPCRC:]), LPCRC(b[:linkLPCRC])
	if got != want {
		return LinkPacket{}, 0, &ParseError{Kind: ErrLPCRC, Layer: "link packet", Field: "LPCRC", Got: uint64(got),
			Want: uint64(want)}
	}
	p := decodeLinkPacket(b)
	if p.Op > LinkInit {
		return LinkPacket{}, 0, &ParseError{Kind: ErrOpcode, Layer: "link packet", Field: "Op", Got: uint64(p.Op),
			Want: uint64(LinkInit)}
	}
	return p, LinkPacketSize, nil
}

func decodeLinkPacket(b []byte) LinkPacket {
	a, c := binary.BigEndian.Uint16(b[linkOpFCTBS:]), binary.BigEndian.Uint16(b[linkVLFCCL:])
	return LinkPacket{Op: LinkOp(a >> 12), FCTBS: a & CreditMask, VL: ib.VL(c >> 12), FCCL: c & CreditMask}
}

// Append writes the packet and its LPCRC.
func (p *LinkPacket) Append(b []byte) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, uint16(p.Op)<<12|p.FCTBS&CreditMask)
	b = binary.BigEndian.AppendUint16(b, uint16(p.VL)<<12|p.FCCL&CreditMask)
	return binary.BigEndian.AppendUint16(b, LPCRC(b[start:]))
}

// LPCRC is the link packet CRC of the four bytes before it.
func LPCRC(b []byte) uint16 { return crc16(b) }
