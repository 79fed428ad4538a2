package madrpc

import (
	"encoding/binary"

	"softib/proto/mad"
)

// Ranges of classes that vendors use (IBA 13.4.4).
const (
	vendorOUIFirst mad.Class = 0x30 // from here on a datagram names its vendor by OUI
	vendorOUILast  mad.Class = 0x4F
	classMax       mad.Class = 0x4F // beyond are reserved ones, and ClassSMDirect
)

// Classes with RMPP that package mad has no attributes of.
const (
	classDevAdm mad.Class = 0x10
	classBIS    mad.Class = 0x12
)

// offOUI is where a datagram of a vendor class from 0x30 on names its vendor, after a reserved byte.
const offOUI = mad.RMPPClassOff + 1

// headerLen is what every segment of a class's messages repeats before its
// share of the payload; 0 for a class without RMPP (IBA 13.6.2 and each class's own format).
func headerLen(c mad.Class) int {
	switch {
	case c == mad.ClassSA:
		return 56
	case c == mad.ClassDevMgt || c == classDevAdm || c == classBIS:
		return 64
	case needsOUI(c):
		return 40
	}
	return 0
}

func needsOUI(c mad.Class) bool { return c >= vendorOUIFirst && c <= vendorOUILast }

// HeaderLen is the number of bytes that stand before the payload of a message of class c that RMPP
// carries; 0 for a class that does not use RMPP.
func HeaderLen(c mad.Class) int { return headerLen(c) }

// segments is how many a message of n bytes takes; a message without payload takes one.
func segments(n, hdr int) uint32 {
	per := mad.Size - hdr
	return uint32(max(1, (n-hdr+per-1)/per))
}

// attrModResponse marks a response in the baseboard management class, which has no method for it (IBA 16.2.1).
const attrModResponse = 1

// IsResponse reports whether a datagram answers another one: its transaction ID is
// then the other side's. Besides the methods that say so there are TrapRepress, and BM's own marking.
func IsResponse(dgram []byte) bool {
	m := mad.Method(dgram[3])
	return m.IsResponse() || m == mad.MethodTrapRepress ||
		mad.Class(dgram[1]) == mad.ClassBM && binary.BigEndian.Uint32(dgram[20:])&attrModResponse != 0
}

// rmppActive reports whether RMPP carries the datagram.
func rmppActive(dgram []byte) bool {
	return headerLen(mad.Class(dgram[1])) != 0 && dgram[mad.RMPPOff+2]&mad.RMPPActive != 0
}
