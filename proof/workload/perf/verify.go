package perf

import "encoding/binary"

// Seeds of the patterns that memory is filled with: what each side sends, and what is there before anything comes.
const (
	activeTx  = 1
	activeRx  = 51
	passiveTx = 101
	passiveRx = 201
)

// pattern is the byte at i of memory that was filled.
func pattern(i int, seed byte) byte { return byte(i) ^ byte(i>>8)*31 + seed }

// fill gives every slot a pattern of its own.
func fill(mem []byte, seed byte) {
	for i := range mem {
		mem[i] = pattern(i, seed)
	}
}

// prepare gives a side data to recognise.
func (s *side) prepare(size int) {
	tx, rx := byte(activeTx), byte(activeRx)
	if !s.active {
		tx, rx = passiveTx, passiveRx
	}
	fill(s.tx.Bytes(), tx)
	fill(s.rx.Bytes(), rx)
	switch s.cfg.Test {
	case WriteLat:
		s.rx.Bytes()[size-1] = 0
	case AtomicLat:
		clear(s.rx.Bytes())
	}
}

// verify looks at what came to this side: it knows what the other one had. ops is how many operations there were.
func (s *side) verify(size, ops int) error {
	switch s.cfg.Test {
	case ReadLat, ReadBW:
		if s.active {
			return s.recognise(s.tx.Bytes(), size, passiveRx)
		}
	case AtomicLat:
		// Each operation added one, and the last one fetched what was there before it.
		if s.active {
			return s.counted(s.tx.Bytes(), ops-1)
		}
		return s.counted(s.rx.Bytes(), ops)
	case SendLat, WriteLat:
		seed := byte(activeTx)
		if s.active {
			seed = passiveTx
		}
		rx := s.rx.Bytes()
		if s.cfg.Test == SendLat {
			return s.recognise(rx, size, seed)
		}
		if err := s.recognise(rx, size-1, seed); err != nil {
			return err
		}
		return s.same(rx, size-1, byte(ops)) // the last mark
	case SendBW, WriteBW:
		if !s.active {
			return s.recognise(s.rx.Bytes(), size, activeTx)
		}
	}
	return nil
}

// recognise wants the pattern in the first bytes of every slot.
func (s *side) recognise(mem []byte, size int, seed byte) error {
	for qp := range s.qps {
		at := qp * s.slot
		for i := at; i < at+size; i++ {
			if mem[i] != pattern(i, seed) {
				return &DataError{s.dev.Name(), i, mem[i], pattern(i, seed)}
			}
		}
	}
	return nil
}

// counted wants a number in memory.
func (s *side) counted(mem []byte, n int) error {
	var want [atomicSize]byte
	binary.LittleEndian.PutUint64(want[:], uint64(n))
	for i, b := range want {
		if err := s.same(mem, i, b); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) same(mem []byte, i int, want byte) error {
	if mem[i] != want {
		return &DataError{s.dev.Name(), i, mem[i], want}
	}
	return nil
}
