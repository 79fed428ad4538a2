package aggregate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestCombine holds every type and operation against arithmetic that is done another way.
func TestCombine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for typ := range NumType {
		for op := range NumOp {
			if !Fits(op, typ) {
				if typ.IsFloat() != (op > Max) {
					t.Errorf("%v of %v does not fit", op, typ)
				}
				continue
			}
			size := typ.Size()
			for range 60 {
				a, b := make([]byte, 3*size), make([]byte, 3*size)
				for i := range a {
					a[i], b[i] = byte(r.Uint32()), byte(r.Uint32())
				}
				if r.IntN(3) == 0 {
					clear(a[:size])
				}
				got := append([]byte(nil), a...)
				Combine(op, typ, got, b)
				for i := 0; i < 3; i++ {
					x, y, z := a[i*size:][:size], b[i*size:][:size], got[i*size:][:size]
					if want, ok := slow(op, typ, load(x), load(y)); ok && load(z) != want {
						t.Fatalf("%v of %v: %x and %x are %x, want %x", op, typ, x, y, load(z), want)
					}
				}
			}
		}
	}
}

// slow computes one element; ok is false where there is no one right pattern of bits.
func slow(op Op, typ Type, a, b uint64) (uint64, bool) {
	bits := 8 * typ.Size()
	mask := ^uint64(0) >> (64 - bits)
	if typ.IsFloat() {
		x, y := value(typ, a), value(typ, b)
		z := x + y
		switch op {
		case Min:
			z = math.Min(x, y)
		case Max:
			z = math.Max(x, y)
		}
		// The sum of two short numbers is exact in 64 bits, and so is rounded once here. Zeros have two signs.
		if math.IsNaN(z) || z == 0 || typ == Float64 && math.IsInf(z, 0) {
			return 0, false
		}
		return nearest(typ, z), true
	}
	signed := func(v uint64) int64 { return int64(v<<(64-bits)) >> (64 - bits) }
	less := a < b
	if typ <= Int64 {
		less = signed(a) < signed(b)
	}
	truth := func(is bool) uint64 {
		if is {
			return 1
		}
		return 0
	}
	switch op {
	case Sum:
		return (a + b) & mask, true
	case Min, Max:
		if less == (op == Min) {
			return a, true
		}
		return b, true
	case LogicalAnd:
		return truth(a != 0 && b != 0), true
	case LogicalOr:
		return truth(a != 0 || b != 0), true
	case LogicalXor:
		return truth((a != 0) != (b != 0)), true
	case BitAnd:
		return a & b, true
	case BitOr:
		return a | b, true
	}
	return a ^ b, true
}

// shape of a floating-point type: bits of its exponent and of its fraction.
var shape = map[Type][2]int{Float16: {5, 10}, BFloat16: {8, 7}, Float32: {8, 23}, Float64: {11, 52}}

// value is what bits mean, by the definition.
func value(typ Type, v uint64) float64 {
	e, f := shape[typ][0], shape[typ][1]
	exp, frac := int(v>>f)&(1<<e-1), float64(v&(1<<f-1))/float64(uint64(1)<<f)
	bias := 1<<(e-1) - 1
	x := math.Ldexp(1+frac, exp-bias)
	switch {
	case exp == 1<<e-1 && frac != 0:
		return math.NaN()
	case exp == 1<<e-1:
		x = math.Inf(1)
	case exp == 0:
		x = math.Ldexp(frac, 1-bias)
	}
	if v>>(e+f) != 0 {
		x = -x
	}
	return x
}

// nearest is the pattern whose value is nearest, found by halving; ties go to the even one.
func nearest(typ Type, x float64) uint64 {
	e, f := shape[typ][0], shape[typ][1]
	sign := uint64(0)
	if x < 0 {
		sign, x = 1<<(e+f), -x
	}
	lo, hi := uint64(0), uint64(1<<e-1)<<f // zero and infinity
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; value(typ, mid) <= x {
			lo = mid
		} else {
			hi = mid
		}
	}
	if typ == Float64 || value(typ, lo) == x {
		return sign | lo
	}
	// Infinity stands where the next number would.
	top := math.Ldexp(1, 1<<(e-1))
	up := value(typ, hi)
	if math.IsInf(up, 1) {
		up = top
	}
	below, above := x-value(typ, lo), up-x
	if below < above || below == above && lo&1 == 0 {
		return sign | lo
	}
	return sign | hi
}
