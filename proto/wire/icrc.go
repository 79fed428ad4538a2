package wire

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// icrcMaskedLRH is the complemented CRC register after eight bytes of ones:
// a routed packet's LRH changes on every subnet, so the whole of it
// is masked (IBA 7.8.1).
var icrcMaskedLRH = crc32.ChecksumIEEE([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})

// icrcByte takes one byte into the complemented register that hash/crc32
// passes around. Masked bytes go through here, so that the packet itself is
// neither changed nor copied.
func icrcByte(crc uint32, x uint8) uint32 {
	c := ^crc
	return ^(crc32.IEEETable[uint8(c)^x] ^ c>>8)
}

// icrcBytes does so for a short run, below which crc32.Update's call costs
// more than it saves.
func icrcBytes(crc uint32, p []byte) uint32 {
	c := ^crc
	for _, x := range p {
		c = crc32.IEEETable[uint8(c)^x] ^ c>>8
	}
	return ^c
}

// ICRC is the invariant CRC of an IBA packet, local or global, whose bytes
// before the ICRC are b. It is Ethernet's CRC-32 over all that no switch or
// router may change, with ones in the place of what they may (IBA 7.8.1):
//
//	local packet    LRH's VL, BTH's first reserved byte (FECN and BECN)
//	global packet   all of LRH, GRH's traffic class, flow label and hop limit,
//	                BTH's first reserved byte
//
// The result is the number whose big-endian form stands on the wire. b must
// hold the headers up to BTH; whether it does, Parse checks.
func ICRC(b []byte) uint32 {
	var crc uint32
	var bth int
	if LNH(b[lrhSLLNH]&lrhLNHMask) == LNHGlobal {
		g := b[LRHSize:]
		crc = icrcByte(icrcMaskedLRH, g[grhVerClassFlow]|0x0F)
		crc = icrcByte(crc, 0xFF)
		crc = icrcByte(crc, 0xFF)
		crc = icrcByte(crc, 0xFF)
		crc = icrcBytes(crc, g[grhPayLen:grhHopLimit])
		crc = icrcByte(crc, 0xFF)
		bth = LRHSize + GRHSize
		crc = crc32.Update(crc, crc32.IEEETable, b[LRHSize+grhSGID:bth+bthResv8a])
	} else {
		crc = icrcByte(0, b[lrhVLVer]|0xF0)
		bth = LRHSize
		crc = icrcBytes(crc, b[lrhVLVer+1:bth+bthResv8a])
	}
	crc = icrcByte(crc, 0xFF)
	crc = crc32.Update(crc, crc32.IEEETable, b[bth+bthResv8a+1:])
	return bits.ReverseBytes32(crc)
}

// CheckICRC checks the ICRC of a whole packet, VCRC included in its bytes.
// Raw packets have none and pass.
func CheckICRC(b []byte) error {
	if len(b) < LRHSize {
		return truncated("ICRC", len(b), LRHSize)
	}
	need := LRHSize + BTHSize + ICRCSize + VCRCSize
	switch LNH(b[lrhSLLNH] & lrhLNHMask) {
	case LNHRaw, LNHIPv6:
		return nil
	case LNHGlobal:
		need += GRHSize
	}
	if len(b) < need {
		return truncated("ICRC", len(b), need)
	}
	end := len(b) - ICRCSize - VCRCSize
	got, want := binary.BigEndian.Uint32(b[end:]), ICRC(b[:end])
	if got != want {
		return &ParseError{Kind: ErrICRC, Layer: "transport", Field: "ICRC", Got: uint64(got), Want: uint64(want)}
	}
	return nil
}
