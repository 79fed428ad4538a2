package history

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCodes(t *testing.T) {
	golden := map[uint64]code{0: 0, 1: 1, 511: 511, 512: 512, 513: 513, 1023: 768, 1024: 768, 1 << 20: 3328,
		math.MaxUint64: codeMax}
	for v, want := range golden {
		if got := encode(v); got != want {
			t.Errorf("encode(%d) = %d, want %d", v, got, want)
		}
	}
	last := uint64(0)
	for c := code(0); c <= codeMax; c++ {
		v := decode(c)
		if c > 0 && v <= last {
			t.Fatalf("code %d is %d, not above %d", c, v, last)
		}
		if got := encode(v); got != c {
			t.Fatalf("code %d is %d, whose code is %d", c, v, got)
		}
		last = v
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		v := rng.Uint64() >> rng.IntN(64)
		got := decode(encode(v))
		if off := math.Abs(float64(got)-float64(v)) / max(1, float64(v)); v < 512 && got != v || off > 0.002 {
			t.Fatalf("%d is kept as %d", v, got)
		}
	}
	if decode(math.MaxUint16) != decode(codeMax) {
		t.Error("a code that stands for nothing is decoded")
	}
}

func TestSeriesGolden(t *testing.T) {
	tests := []struct {
		series []code
		want   []byte
	}{
		{[]code{7, 7, 7, 7, 7}, []byte{0, 7}},                                    // constant
		{[]code{300, 301, 302, 303}, []byte{2, 0xac, 2, 0b11_10_01_00}},          // packed in 2 bits
		{[]code{0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0}, []byte{isSparse, 2, 6, 9}},  // sparse
		{[]code{1, 0x3000}, []byte{14, 1, 0x00, 0xc0, 0xff, 0x0b}},               // wide
		{[]code{0, 1, 0, 1, 0, 1, 0, 1, 1}, []byte{1, 0, 0b10101010, 0b0000001}}, // bits
	}
	for _, tc := range tests {
		got := appendSeries(nil, tc.series)
		if !bytes.Equal(got, tc.want) {
			t.Errorf("%v is %#v, want %#v", tc.series, got, tc.want)
		}
		checkSeries(t, tc.series)
	}
}

// checkSeries wants a series to come back, and none of its beginnings to be taken for one.
func checkSeries(t *testing.T, s []code) {
	t.Helper()
	b := appendSeries(nil, s)
	back := make([]code, len(s))
	n, err := readSeries(b, back)
	if err != nil || n != len(b) || !slices.Equal(back, s) {
		t.Fatalf("%v came back as %v (%d of %d bytes), %v", s, back, n, len(b), err)
	}
	if n, err := skipSeries(append(b, 1, 2, 3), len(s)); err != nil || n != len(b) {
		t.Fatalf("%v: skipped %d bytes of %d, %v", s, n, len(b), err)
	}
	for i := range b {
		if _, err := readSeries(b[:i], back); err == nil {
			t.Fatalf("%v: %d bytes of %d were enough", s, i, len(b))
		}
	}
}

func TestSeriesRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 3000 {
		s := make([]code, 1+rng.IntN(90))
		base, spread, zeros := code(rng.IntN(codeMax)), rng.IntN(14), rng.IntN(100)
		for i := range s {
			if rng.IntN(100) >= zeros {
				s[i] = min(codeMax, base+code(rng.IntN(1<<spread)))
			}
		}
		checkSeries(t, s)
	}
}

func randomBlock(rng *rand.Rand, points int, peaks bool) *block {
	b := &block{}
	b.reset(points, peaks)
	for m := range NumMetric {
		if rng.IntN(3) == 0 {
			continue
		}
		b.active[m] = rng.Uint64() & rng.Uint64()
		for port := range blockPorts {
			if b.active[m]>>port&1 == 0 {
				continue
			}
			counts, high := b.series(m, port)
			for i := range counts {
				counts[i] = code(rng.IntN(codeMax + 1))
			}
			for i := range high {
				high[i] = code(rng.IntN(codeMax + 1))
			}
		}
	}
	return b
}

func TestBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 60 {
		points, peaks := 1+rng.IntN(20), round%2 == 0
		b := randomBlock(rng, points, peaks)
		rec := appendBlock(nil, b)
		var back block
		back.reset(points, peaks)
		if err := readBlock(rec, &back); err != nil || back.active != b.active ||
			!slices.Equal(back.counts, b.counts) || !slices.Equal(back.peak, b.peak) {
			t.Fatalf("round %d: not what it was: %v", round, err)
		}
		for m := range NumMetric {
			for port := range blockPorts {
				counts, high := make([]code, points), []code(nil)
				if peaks {
					high = make([]code, points)
				}
				has, err := readPort(rec, m, port, counts, high)
				wantCounts, wantHigh := b.series(m, port)
				if err != nil || has != (b.active[m]>>port&1 == 1) || has &&
					(!slices.Equal(counts, wantCounts) || !slices.Equal(high, wantHigh)) {
					t.Fatalf("round %d: %v of port %d: %v, %v", round, m, port, has, err)
				}
			}
		}
		if round < 2 {
			for i := range rec {
				if readBlock(rec[:i], &back) == nil {
					t.Fatalf("%d bytes of %d were enough", i, len(rec))
				}
			}
			for i := range rec {
				rec[i] ^= 4
				if readBlock(rec, &back) == nil {
					t.Fatalf("a bit of byte %d was turned and nobody saw it", i)
				}
				rec[i] ^= 4
			}
		}
	}
	var idle block
	idle.reset(5, true)
	if rec := appendBlock(nil, &idle); len(rec) != 0 {
		t.Errorf("an idle block has %d bytes", len(rec))
	}
}

func FuzzBlock(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, peaks := range []bool{false, true} {
		rec := appendBlock(nil, randomBlock(rng, 3, peaks))
		f.Add(rec[:len(rec)-4], 3, peaks)
	}
	f.Add([]byte{0, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5}, 60, false)
	f.Add([]byte{1, 12, 1, 0, 0, 0, 0, 0, 0, 0, isSparse, 2, 1, 9}, 3, false)
	f.Fuzz(func(t *testing.T, body []byte, points int, peaks bool) {
		if points < 1 || points > 200 {
			return
		}
		// The checksum stops nearly everything, so it is always right here.
		rec := seal(bytes.Clone(body), 0)
		var b, again block
		b.reset(points, peaks)
		if readBlock(rec, &b) != nil {
			return
		}
		for _, c := range append(slices.Clone(b.counts), b.peak...) {
			if c > codeMax {
				t.Fatalf("%d is no code", c)
			}
		}
		// What was read is what would be read of what it is written as.
		out := appendBlock(nil, &b)
		again.reset(points, peaks)
		if len(out) == 0 {
			return
		}
		if err := readBlock(out, &again); err != nil || !slices.Equal(again.counts, b.counts) ||
			!slices.Equal(again.peak, b.peak) {
			t.Fatalf("read, written and read is not the same: %v", err)
		}
	})
}

func sampleChunk() *chunk {
	return &chunk{
		from: 1_700_000_000_000, to: 1_700_000_015_000, bytes: 99,
		points: []span{{1_700_000_000_000, 5000}, {1_700_000_005_000, 5000}, {1_700_000_010_001, 4999}},
		set:    newSet([]uint32{0, 1, 2, 3, 64, 65, 1000}),
	}
}

func TestMeta(t *testing.T) {
	c := sampleChunk()
	rec := appendMeta(nil, c)
	golden := []byte{
		1, 0x80, 0xa0, 0xab, 0xfe, 0xf9, 0x62, 0xb0, 0xea, 1, 0xc6, 1, // version, from, length, bytes
		3, 0, 0x90, 0x4e, 0x90, 0x4e, 0x90, 0x4e, 0x92, 0x4e, 0x8e, 0x4e, // three points
		3, 0, 3, 60, 1, 0xa6, 7, 0, // three ranges of ports
	}
	if !bytes.Equal(rec[:len(rec)-4], golden) {
		t.Errorf("a chunk is\n%#v, want\n%#v", rec[:len(rec)-4], golden)
	}
	back, err := readMeta(rec)
	if err != nil || back.from != c.from || back.to != c.to || back.bytes != c.bytes ||
		!slices.Equal(back.points, c.points) || !back.set.equal(c.set) {
		t.Fatalf("came back as %+v, %v", back, err)
	}
	for i := range rec {
		if _, err := readMeta(rec[:i]); err == nil {
			t.Fatalf("%d bytes of %d were enough", i, len(rec))
		}
	}
	for i := range golden {
		if _, err := readMeta(seal(bytes.Clone(golden[:i]), 0)); err == nil {
			t.Fatalf("%d bytes with the right checksum were enough", i)
		}
	}
}

func FuzzMeta(f *testing.F) {
	rec := appendMeta(nil, sampleChunk())
	f.Add(rec[:len(rec)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := readMeta(seal(bytes.Clone(body), 0))
		if err != nil {
			return
		}
		again, err := readMeta(appendMeta(nil, c))
		if err != nil || !slices.Equal(again.points, c.points) || !again.set.equal(c.set) || again.from != c.from ||
			again.to != c.to {
			t.Fatalf("%+v came back as %+v, %v", c, again, err)
		}
	})
}

func TestPortSet(t *testing.T) {
	ids := []uint32{0, 1, 2, 63, 64, 70, 1000}
	s := newSet(ids)
	for id := range uint32(1100) {
		if s.has(id) != slices.Contains(ids, id) {
			t.Errorf("has(%d) = %v", id, s.has(id))
		}
	}
	if got := s.blocks(); !slices.Equal(got, []uint32{0, 1, 15}) {
		t.Errorf("blocks %v", got)
	}
}

func samplePoints() []scalarPoint {
	return []scalarPoint{{1000, 1, 0.5, 0.5}, {2000, 3, 0.5, 0.75}, {1500, 1, -3e9, -3e9}}
}

func TestScalars(t *testing.T) {
	rec := appendScalars(nil, samplePoints())
	back, err := readScalars(rec)
	if err != nil || !slices.Equal(back, samplePoints()) {
		t.Fatalf("came back as %v, %v", back, err)
	}
	for i := range rec {
		if _, err := readScalars(rec[:i]); err == nil {
			t.Fatalf("%d bytes of %d were enough", i, len(rec))
		}
	}
	for i := range len(rec) - 4 {
		if _, err := readScalars(seal(bytes.Clone(rec[:i]), 0)); err == nil {
			t.Fatalf("%d bytes with the right checksum were enough", i)
		}
	}
	rolled := rollScalars(nil, []scalarPoint{{0, 1, 1, 1}, {10_000, 3, 5, 9}, {60_000, 1, 7, 7}}, 60_000)
	if want := []scalarPoint{{0, 4, 4, 9}, {60_000, 1, 7, 7}}; !slices.Equal(rolled, want) {
		t.Errorf("minutes %v, want %v", rolled, want)
	}
}

func FuzzScalars(f *testing.F) {
	rec := appendScalars(nil, samplePoints())
	f.Add(rec[:len(rec)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		points, err := readScalars(seal(bytes.Clone(body), 0))
		if err != nil {
			return
		}
		again, err := readScalars(appendScalars(nil, points))
		if err != nil || !slices.Equal(again, points) {
			t.Fatalf("%v came back as %v, %v", points, again, err)
		}
	})
}
