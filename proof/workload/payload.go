package workload

import "encoding/binary"

// headerSize is what identifies a message at its start, where it is that long: its
// flow and its number. Datagrams and UC messages are known by it, because
// some of them may be lost.
const headerSize = 8

// Payload fills b with what op n of a flow carries.
func Payload(b []byte, seed uint64, flow, n int) {
	fill(b, key(seed, uint64(flow)<<32|uint64(uint32(n))))
	if len(b) >= headerSize {
		binary.LittleEndian.PutUint32(b, uint32(flow))
		binary.LittleEndian.PutUint32(b[4:], uint32(n))
	}
}

// Identify reads the header of a message.
func Identify(b []byte) (flow, n int, ok bool) {
	if len(b) < headerSize {
		return 0, 0, false
	}
	return int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:])), true
}

// Immediate is what op n of a flow carries as immediate.
func Immediate(flow, n int) uint32 { return uint32(flow)<<16 | uint32(n)&0xFFFF }

// FromImmediate undoes Immediate.
func FromImmediate(imm uint32) (flow, n int) { return int(imm >> 16), int(imm & 0xFFFF) }

// key spreads a seed and a name over 64 bits.
func key(seed, name uint64) uint64 {
	x := (seed ^ name*0x9E3779B97F4A7C15) + 0x632BE59BD9B4E019
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// fill writes a stream that follows from x.
func fill(b []byte, x uint64) {
	for len(b) >= 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b, x^x>>29)
		b = b[8:]
	}
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 40)
	}
}
