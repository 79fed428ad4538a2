package history

import (
	"encoding/binary"
	"math/bits"
)

// A series is so many codes as its chunk has points. It is kept in whichever is smaller:
//
//	packed: width, least code (uvarint), then every code less the least in width bits, from the lowest bit on
//	sparse: 255, length of the rest in bytes (uvarint), then for each code that is not 0 how many zeros
//	        precede it and the code (uvarints)
//
// A constant series is packed with width 0. A series of zeros is not kept at all.
const (
	maxWidth = 16
	isSparse = 255
)

// appendSeries encodes a series.
func appendSeries(dst []byte, s []code) []byte {
	low, high, sparse, gap := s[0], s[0], 0, 0
	for _, c := range s {
		low, high = min(low, c), max(high, c)
		if c == 0 {
			gap++
			continue
		}
		sparse += uvarintLen(uint64(gap)) + uvarintLen(uint64(c))
		gap = 0
	}
	width := bits.Len16(high - low)
	packed := 1 + uvarintLen(uint64(low)) + (len(s)*width+7)/8
	if 1+uvarintLen(uint64(sparse))+sparse < packed {
		return appendSparse(dst, s, sparse)
	}
	dst = append(dst, byte(width))
	dst = binary.AppendUvarint(dst, uint64(low))
	var acc uint64
	var n int
	for _, c := range s {
		acc |= uint64(c-low) << n
		for n += width; n >= 8; n -= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
		}
	}
	if n > 0 {
		dst = append(dst, byte(acc))
	}
	return dst
}

func appendSparse(dst []byte, s []code, length int) []byte {
	dst = append(dst, isSparse)
	dst = binary.AppendUvarint(dst, uint64(length))
	gap := 0
	for _, c := range s {
		if c == 0 {
			gap++
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(gap))
		dst = binary.AppendUvarint(dst, uint64(c))
		gap = 0
	}
	return dst
}

// uvarintLen is how many bytes a number takes.
func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// skipSeries is how many bytes a series of n codes takes, without a look at them.
func skipSeries(b []byte, n int) (int, error) {
	if len(b) == 0 {
		return 0, damage("series", 0, "is missing")
	}
	v, k := binary.Uvarint(b[1:])
	if k <= 0 {
		return 0, damage("series", 1, "has no number")
	}
	length := uint64(n*int(b[0])+7) / 8
	switch {
	case b[0] == isSparse:
		length = v
	case b[0] > maxWidth:
		return 0, damage("series", uint64(b[0]), "is no width")
	case v > codeMax:
		return 0, damage("series", v, "is no code")
	}
	if length > uint64(len(b)-1-k) {
		return 0, damage("series", length, "bytes are more than there are")
	}
	return 1 + k + int(length), nil
}

// readSeries decodes a series into s, as many codes as s has room for, and says how many bytes it took.
func readSeries(b []byte, s []code) (int, error) {
	size, err := skipSeries(b, len(s))
	if err != nil {
		return 0, err
	}
	v, k := binary.Uvarint(b[1:])
	rest := b[1+k : size]
	if b[0] == isSparse {
		return size, readSparse(rest, s)
	}
	width, low := int(b[0]), code(v)
	mask := uint64(1)<<width - 1
	var acc uint64
	var n int
	for i := range s {
		for n < width {
			acc |= uint64(rest[0]) << n
			rest = rest[1:]
			n += 8
		}
		c := low + code(acc&mask)
		if c > codeMax || c < low {
			return 0, damage("series", uint64(c), "is no code")
		}
		s[i] = c
		acc >>= width
		n -= width
	}
	return size, nil
}

func readSparse(b []byte, s []code) error {
	clear(s)
	at := uint64(0)
	for len(b) > 0 {
		gap, k := binary.Uvarint(b)
		if k <= 0 {
			return damage("series", at, "has no gap")
		}
		c, j := binary.Uvarint(b[k:])
		if j <= 0 || c == 0 || c > codeMax {
			return damage("series", c, "is no code")
		}
		if gap >= uint64(len(s))-at {
			return damage("series", gap, "is a gap beyond its end")
		}
		b = b[k+j:]
		at += gap
		s[at] = code(c)
		at++
	}
	return nil
}
