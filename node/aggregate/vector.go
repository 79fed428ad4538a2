package aggregate

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Type is what a vector's elements are. They are in little-endian order, as hosts have them.
type Type uint8

// Types of elements.
const (
	Int8 Type = iota
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	NumType
)

var types = [NumType]struct {
	name string
	size int
}{{"int8", 1}, {"int16", 2}, {"int32", 4}, {"int64", 8}, {"uint8", 1}, {"uint16", 2}, {"uint32", 4}, {"uint64", 8},
	{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}}

func (t Type) String() string {
	if t < NumType {
		return types[t].name
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Size is how many bytes an element has.
func (t Type) Size() int { return types[t].size }

// IsFloat reports whether elements are floating-point numbers.
func (t Type) IsFloat() bool { return t >= Float16 && t < NumType }

// Op is what is done with two elements.
type Op uint8

// Operations.
const (
	Sum Op = iota
	Min
	Max
	LogicalAnd
	LogicalOr
	LogicalXor
	BitAnd
	BitOr
	BitXor
	NumOp
)

var opNames = [NumOp]string{"sum", "min", "max", "logical and", "logical or", "logical xor", "bitwise and",
	"bitwise or", "bitwise xor"}

func (o Op) String() string {
	if o < NumOp {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Fits reports whether elements of a type can be combined by an operation: floating-point numbers have no logic, as in
// MPI.
func Fits(o Op, t Type) bool { return o < NumOp && t < NumType && (o <= Max || !t.IsFloat()) }

// Combine does dst = dst op src, element by element. The vectors are of one length, and the operation fits the type.
func Combine(o Op, t Type, dst, src []byte) {
	switch {
	case o == Sum && t.Size() == 4 && !t.IsFloat(): // the common ones, without a call for each element
		for i := 0; i+4 <= len(dst); i += 4 {
			binary.LittleEndian.PutUint32(dst[i:], binary.LittleEndian.Uint32(dst[i:])+
				binary.LittleEndian.Uint32(src[i:]))
		}
	case o == Sum && t == Float32:
		for i := 0; i+4 <= len(dst); i += 4 {
			a, b := binary.LittleEndian.Uint32(dst[i:]), binary.LittleEndian.Uint32(src[i:])
			binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(math.Float32frombits(a)+math.Float32frombits(b)))
		}
	case t == Float64:
		each(8, dst, src, func(a, b uint64) uint64 {
			return math.Float64bits(float(o, math.Float64frombits(a), math.Float64frombits(b)))
		})
	case t == Float32:
		each(4, dst, src, func(a, b uint64) uint64 {
			return uint64(math.Float32bits(float(o, math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b)))))
		})
	case t == Float16:
		each(2, dst, src, func(a, b uint64) uint64 { return uint64(toHalf(float(o, fromHalf(a), fromHalf(b)))) })
	case t == BFloat16:
		each(2, dst, src, func(a, b uint64) uint64 { return uint64(toBrain(float(o, fromBrain(a), fromBrain(b)))) })
	case t <= Int64:
		shift := 64 - 8*t.Size()
		each(t.Size(), dst, src, func(a, b uint64) uint64 {
			return uint64(integer(o, int64(a<<shift)>>shift, int64(b<<shift)>>shift))
		})
	default:
		each(t.Size(), dst, src, func(a, b uint64) uint64 { return integer(o, a, b) })
	}
}

// each combines elements of so many bytes, as bits.
func each(size int, dst, src []byte, do func(a, b uint64) uint64) {
	for i := 0; i+size <= len(dst); i += size {
		store(dst[i:i+size], do(load(dst[i:i+size]), load(src[i:i+size])))
	}
}

func load(b []byte) (v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

func store(b []byte, v uint64) {
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
}

func float[T float32 | float64](o Op, a, b T) T {
	switch o {
	case Min:
		return min(a, b)
	case Max:
		return max(a, b)
	}
	return a + b
}

func integer[T int64 | uint64](o Op, a, b T) T {
	truth := func(is bool) T {
		if is {
			return 1
		}
		return 0
	}
	switch o {
	case Min:
		return min(a, b)
	case Max:
		return max(a, b)
	case LogicalAnd:
		return truth(a != 0 && b != 0)
	case LogicalOr:
		return truth(a != 0 || b != 0)
	case LogicalXor:
		return truth((a != 0) != (b != 0))
	case BitAnd:
		return a & b
	case BitOr:
		return a | b
	case BitXor:
		return a ^ b
	}
	return a + b
}

// fromBrain and toBrain are bfloat16: the upper half of a float32, rounded to even.
func fromBrain(v uint64) float32 { return math.Float32frombits(uint32(v) << 16) }

func toBrain(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16) | 0x40 // still no number
	}
	return uint16((bits + 0x7FFF + bits>>16&1) >> 16)
}

// fromHalf and toHalf are IEEE 754's binary16, rounded to even.
func fromHalf(v uint64) float32 {
	sign, exp, frac := uint32(v>>15&1)<<31, uint32(v>>10&31), uint32(v&0x3FF)
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xFF<<23 | frac<<13)
	case exp == 0: // of 2^-24 each
		f := float32(frac) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

func toHalf(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, rest := uint16(bits>>16&0x8000), bits&^(1<<31)
	switch {
	case rest > 0xFF<<23:
		return sign | 0x7E00
	case rest >= 0x477FF000: // 65520 and beyond round to infinity
		return sign | 0x7C00
	case rest < 0x38800000: // below 2^-14: in steps of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(rest))*(1<<24)))
	}
	return sign | uint16((rest-112<<23+0xFFF+rest>>13&1)>>13)
}
