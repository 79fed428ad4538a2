package ib

// PSN is a 24-bit packet sequence number. Its order is circular: a PSN is
// before another when less than half the space lies between them (IBA 9.7.1).
type PSN uint32

const (
	// PSNMask keeps the 24 bits that travel.
	PSNMask PSN = 0xFFFFFF
	// PSNWindow is half the space: more packets must never be outstanding.
	PSNWindow = 1 << 23
)

// Add moves p forward by n, around the circle.
func (p PSN) Add(n int) PSN { return PSN(uint32(p)+uint32(n)) & PSNMask }

// Sub is the signed circular distance p - q, in [-2^23, 2^23).
func (p PSN) Sub(q PSN) int { return int(int32((uint32(p)-uint32(q))<<8) >> 8) }

// Before reports whether p precedes q.
func (p PSN) Before(q PSN) bool { return p.Sub(q) < 0 }

// After reports whether p follows q.
func (p PSN) After(q PSN) bool { return p.Sub(q) > 0 }
