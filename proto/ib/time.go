package ib

import "fmt"

// Time counts picoseconds since the driver's own epoch. Engines are handed
// the time and never read a clock; picoseconds because one bit of an XDR
// lane lasts 5 ps, so nothing shorter has a meaning on a link.
type Time int64

// Units of Time.
const (
	Picosecond  Time = 1
	Nanosecond       = 1000 * Picosecond
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Never is a deadline that does not come.
const Never Time = 1<<63 - 1

// Earlier is the earlier of two deadlines.
func Earlier(a, b Time) Time {
	if a < b {
		return a
	}
	return b
}

func (t Time) String() string {
	switch {
	case t == Never:
		return "never"
	case t >= Second || t <= -Second:
		return fmt.Sprintf("%.6fs", float64(t)/float64(Second))
	case t >= Microsecond || t <= -Microsecond:
		return fmt.Sprintf("%.3fus", float64(t)/float64(Microsecond))
	}
	return fmt.Sprintf("%.3fns", float64(t)/float64(Nanosecond))
}

// AckTimeout is 4.096 us * 2^code, the encoding of local ACK timeouts,
// packet lifetimes and response times; code 0 means never (IBA 9.7.6.1.3).
func AckTimeout(code uint8) Time {
	if code &= 31; code == 0 {
		return Never
	}
	return 4096 * Nanosecond << code
}

// HOQLife is the head-of-queue life time of IBA 18.2.5.4: 4.096 us * 2^code, codes
// above 19 mean that packets wait for ever.
func HOQLife(code uint8) Time {
	if code > 19 {
		return Never
	}
	return 4096 * Nanosecond << code
}

// rnrDelays are the RNR NAK timer values of IBA table 46, in units of 10 us.
var rnrDelays = [32]Time{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRDelay is the wait that a 5-bit RNR NAK timer code asks for.
func RNRDelay(code uint8) Time { return rnrDelays[code&31] * 10 * Microsecond }
