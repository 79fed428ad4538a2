package wire

import (
	"encoding/binary"

	"softib/proto/ib"
)

// Offsets and masks of BTH (IBA 9.2).
const (
	bthOpcode = 0
	bthFlags  = 1 // SE, MigReq, pad count in bits 5-4, TVer in bits 3-0
	bthPKey   = 2
	bthResv8a = 4 // FECN, BECN and 6 reserved bits: outside the ICRC
	bthDestQP = 4 // 24 bits after resv8a
	bthPSN    = 8 // AckReq, 7 reserved bits, 24 bits of PSN

	bthSolicited = 0x80
	bthMigrate   = 0x40
	bthPadShift  = 4
	bthPadMask   = 0x03
	bthTVerMask  = 0x0F
	bthFECN      = 0x80
	bthBECN      = 0x40
	bthAckReq    = 0x80

	mask24 = 0x00FF_FFFF
)

// BTHVersion is the only transport header version there is (IBA 9.2.2).
const BTHVersion = 0

// ParseBTH reads BTH and says how many bytes it took. Any opcode passes;
// whether it exists is Opcode.Info's to say. Reserved bits are ignored.
func ParseBTH(b []byte) (BTH, int, error) {
	var h BTH
	n, err := h.parse(b)
	return h, n, err
}

func (h *BTH) parse(b []byte) (int, error) {
	if len(b) < BTHSize {
		return 0, truncated("BTH", len(b), BTHSize)
	}
	_ = b[BTHSize-1]
	f := b[bthFlags]
	h.Opcode = Opcode(b[bthOpcode])
	h.Solicited = f&bthSolicited != 0
	h.Migrate = f&bthMigrate != 0
	h.Pad = f >> bthPadShift & bthPadMask
	h.TVer = f & bthTVerMask
	h.FECN = b[bthResv8a]&bthFECN != 0
	h.BECN = b[bthResv8a]&bthBECN != 0
	h.AckReq = b[bthPSN]&bthAckReq != 0
	h.PKey = ib.PKey(binary.BigEndian.Uint16(b[bthPKey:]))
	h.DestQP = ib.QPN(binary.BigEndian.Uint32(b[bthDestQP:]) & mask24)
	h.PSN = ib.PSN(binary.BigEndian.Uint32(b[bthPSN:]) & mask24)
	return BTHSize, nil
}

// Append writes BTH, reserved bits zero.
func (h *BTH) Append(b []byte) []byte {
	f := h.Pad&bthPadMask<<bthPadShift | h.TVer&bthTVerMask
	if h.Solicited {
		f |= bthSolicited
	}
	if h.Migrate {
		f |= bthMigrate
	}
	var cn, ack uint8
	if h.FECN {
		cn |= bthFECN
	}
	if h.BECN {
		cn |= bthBECN
	}
	if h.AckReq {
		ack = bthAckReq
	}
	return append(b,
		uint8(h.Opcode), f, uint8(h.PKey>>8), uint8(h.PKey),
		cn, uint8(h.DestQP>>16), uint8(h.DestQP>>8), uint8(h.DestQP),
		ack, uint8(h.PSN>>16), uint8(h.PSN>>8), uint8(h.PSN))
}
