package perf

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// arrived gives a side what a test without a fault brings to it.
func arrived(s *side, size, ops int) (mem []byte) {
	from := byte(activeTx)
	if s.active {
		from = passiveTx
	}
	switch s.cfg.Test {
	case ReadLat, ReadBW:
		if !s.active {
			return nil
		}
		fill(s.tx.Bytes(), passiveRx)
		return s.tx.Bytes()
	case AtomicLat:
		if s.active {
			mem = s.tx.Bytes()
			ops--
		} else {
			mem = s.rx.Bytes()
		}
		binary.LittleEndian.PutUint64(mem, uint64(ops))
		return mem
	case SendBW, WriteBW:
		if s.active {
			return nil
		}
	}
	fill(s.rx.Bytes(), from)
	if s.cfg.Test == WriteLat {
		s.rx.Bytes()[size-1] = byte(ops)
	}
	return s.rx.Bytes()
}

// Every byte that a test brings is looked at.
func TestVerify(t *testing.T) {
	const ops = 301
	a, b := fabric(t, "star:2")
	for test := range NumTest {
		for _, dev := range []*side{{active: true, end: &end{dev: a.Device()}}, {end: &end{dev: b.Device()}}} {
			cfg, err := Config{Test: test, Sizes: []int{8, 100}[:1+min(int(AtomicLat-test), 1)]}.complete()
			if err == nil && !test.IsLatency() {
				cfg.QPs = 3
			}
			s := dev
			s.cfg = cfg
			if err := errors.Join(err, s.create(cfg)); err != nil {
				t.Fatal(err)
			}
			size := cfg.maxSize()
			s.prepare(size)
			if mem := arrived(s, size, ops); mem != nil {
				if err := s.verify(size, ops); err != nil {
					t.Errorf("%v, active %v: %v though all is well", test, s.active, err)
				}
				for i := range mem {
					mem[i] ^= 0x40
					var e *DataError
					if err := s.verify(size, ops); !errors.As(err, &e) || e.Offset != i || e.Got != mem[i] ||
						e.Want != mem[i]^0x40 {
						t.Fatalf("%v, active %v: byte %d is wrong, and the verdict is %v", test, s.active, i, err)
					}
					mem[i] ^= 0x40
				}
				// What was there before is not taken for what has come.
				s.prepare(size)
				if err := s.verify(size, ops); err == nil {
					t.Errorf("%v, active %v: nothing has come, and that is fine?", test, s.active)
				}
			} else if err := s.verify(size, ops); err != nil {
				t.Errorf("%v, active %v: %v where nothing comes", test, s.active, err)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		}
	}
	mem := make([]byte, 1<<17)
	fill(mem, 1)
	if slices.Equal(mem[:256], mem[256:512]) || slices.Equal(mem[:4096], mem[4096:8192]) {
		t.Error("neighbouring pages have the same pattern")
	}
}
