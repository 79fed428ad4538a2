package history

import "math/bits"

// A code is how a count is kept: 16 bits, of which the upper ones are an exponent. Counts below 512 are exact, and
// others within half of 1/256, 0.2 %, which is finer than a plot shows. Codes are in the order of the counts they stand
// for, and close counts have close codes, which is what lets series of them pack into a few bits each.
type code = uint16

// mantissa is how many bits follow the leading one.
const mantissa = 8

// codeMax is the code of the largest count.
const codeMax = (64-mantissa-1)<<mantissa + 1<<(mantissa+1) - 1

// encode gives a count its code.
func encode(v uint64) code {
	if v < 1<<(mantissa+1) {
		return code(v)
	}
	e := uint(bits.Len64(v)) - mantissa - 1
	m := v >> e
	// Round to the nearest; a carry moves on to the next exponent's first code by itself.
	m += v >> (e - 1) & 1
	return min(code(e<<mantissa)+code(m), codeMax)
}

// decode gives a code's count. Codes above codeMax stand for nothing and are taken as codeMax.
func decode(c code) uint64 {
	if c < 1<<(mantissa+1) {
		return uint64(c)
	}
	c = min(c, codeMax)
	e := uint(c>>mantissa) - 1
	return uint64(c-code(e<<mantissa)) << e
}
