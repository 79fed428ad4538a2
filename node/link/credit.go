package link

import "softib/proto/wire"

// Flow control counts blocks modulo 4096 (IBA 7.9.4.2).
const (
	fcMask = wire.CreditMask
	// fcHalf is half the circle: a limit that is at most this far ahead
	// permits sending, and a receiver never grants more.
	fcHalf = 2048
)

// FCBytes is how much of the link's time a flow-control packet takes: four bytes,
// its CRC and two delimiting symbols.
const FCBytes = 8

// maySend is the transmit rule of IBA 7.9.4.3: with tbs blocks sent so far and
// limit cl, a packet of n blocks may go if (CL - CR) mod 4096 <= 2048, where CR
// is what will have been sent with it.
func maySend(cl, tbs uint16, n uint8) bool {
	return (cl-tbs-uint16(n))&fcMask <= fcHalf
}

// limit is the receiver's FCCL: what it received plus what it has room for,
// but at most half the circle.
func limit(abr, free uint16) uint16 {
	return (abr + min(free, fcHalf)) & fcMask
}
