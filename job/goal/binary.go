package goal

import (
	"encoding/binary"
	"fmt"
	"math"

	"softib/job"
)

// The binary form, all of it little endian and without padding:
//
//	8  the cookie
//	4  ranks, 1 the highest processor's number, 1 the highest port's
//	16 for each rank: where its part begins and ends, counted from behind the cookie
//
// and a rank's part:
//
//	4  operations, 4 of them that wait for nothing, and 4 for the number of each of those
//	39 for each operation: 4 how many it waits for, 1 kind, 4 peer, 8 size, 4 tag, 1 processor, 1 port, and twice
//	   4 how many wait for its end (its beginning) and 4 where in the appendix they are
//	4  for each entry of the appendix: the number of an operation that waits
const (
	cookie      = 4223
	cookieSpent = 2342 // a run that saved memory has spoilt the file
	headSize    = 8 + 4 + 1 + 1
	opSize      = 4 + 1 + 4 + 8 + 4 + 1 + 1 + 4*4
)

func isBinary(data []byte) bool {
	if len(data) < headSize {
		return false
	}
	c := binary.LittleEndian.Uint64(data)
	return c == cookie || c == cookieSpent
}

func parseBinary(file string, data []byte) (*job.Schedule, error) {
	wrong := func(format string, args ...any) error {
		return &Error{File: file, What: fmt.Sprintf(format, args...)}
	}
	if binary.LittleEndian.Uint64(data) == cookieSpent {
		return nil, wrong("a run of LogGOPSim with --save-mem has used this file up; next: make it anew with txt2bin")
	}
	ranks := uint64(binary.LittleEndian.Uint32(data[8:]))
	body := data[8:]
	if ranks == 0 || ranks > MaxRanks || headSize+16*ranks > uint64(len(data)) {
		return nil, wrong("it says that it has %d ranks and has %d bytes", ranks, len(data))
	}
	b := job.NewBuilder(int(ranks))
	for r := range int(ranks) {
		table := data[headSize+16*r:]
		from, to := binary.LittleEndian.Uint64(table), binary.LittleEndian.Uint64(table[8:])
		if from > to || to > uint64(len(body)) {
			return nil, wrong("rank %d is said to be at bytes %d to %d of %d", r, from, to, len(body))
		}
		if err := parseRank(b, r, body[from:to]); err != nil {
			return nil, wrong("rank %d: %v", r, err)
		}
	}
	s, err := b.Schedule()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func parseRank(b *job.Builder, rank int, part []byte) error {
	if len(part) < 8 {
		return fmt.Errorf("its part has %d bytes", len(part))
	}
	ops, roots := uint64(binary.LittleEndian.Uint32(part)), uint64(binary.LittleEndian.Uint32(part[4:]))
	appendix := 8 + 4*roots + opSize*ops
	if appendix > uint64(len(part)) {
		return fmt.Errorf("%d operations do not fit into %d bytes", ops, len(part))
	}
	list, end := part[8+4*roots:appendix], part[appendix:]
	for i := range ops {
		p := list[opSize*i:]
		o := job.Op{Kind: job.Kind(p[4]), Peer: binary.LittleEndian.Uint32(p[5:]),
			Size: binary.LittleEndian.Uint64(p[9:]), Tag: binary.LittleEndian.Uint32(p[17:]), CPU: p[21], NIC: p[22]}
		if o.Kind == job.Calc {
			o.Peer, o.Tag = 0, 0
		}
		if o.Size > maxBytes {
			return fmt.Errorf("operation %d: a size of %d", i, o.Size)
		}
		b.Add(rank, o)
	}
	for i := range ops {
		p := list[opSize*i+23:]
		for k := range 2 {
			count, first := binary.LittleEndian.Uint32(p[8*k:]), binary.LittleEndian.Uint32(p[8*k+4:])
			if count > 0 && 4*(uint64(first)+uint64(count)) > uint64(len(end)) {
				return fmt.Errorf("operation %d: who waits for it is said to be at %d to %d of %d", i, first,
					uint64(first)+uint64(count), len(end)/4)
			}
			for n := range count {
				op := binary.LittleEndian.Uint32(end[4*(uint64(first)+uint64(n)):])
				if uint64(op) >= ops {
					return fmt.Errorf("operation %d is waited for by %d, and there are %d", i, op, ops)
				}
				if k == 0 {
					b.After(rank, op, uint32(i))
				} else {
					b.AfterBegun(rank, op, uint32(i))
				}
			}
		}
	}
	return nil
}

// AppendBinary appends a schedule as txt2bin writes it.
func AppendBinary(dst []byte, s *job.Schedule) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = le.AppendUint64(dst, cookie)
	dst = le.AppendUint32(dst, uint32(len(s.Ranks)))
	dst = append(dst, uint8(s.CPUs-1), uint8(s.NICs-1))
	table := len(dst)
	dst = append(dst, make([]byte, 16*len(s.Ranks))...)
	for i := range s.Ranks {
		r := &s.Ranks[i]
		le.PutUint64(dst[table+16*i:], uint64(len(dst)-start-8))
		var roots []uint32
		for n := range r.Ops {
			if r.Waits(uint32(n)) == 0 {
				roots = append(roots, uint32(n))
			}
		}
		dst = le.AppendUint32(le.AppendUint32(dst, uint32(len(r.Ops))), uint32(len(roots)))
		for _, n := range roots {
			dst = le.AppendUint32(dst, n)
		}
		at := uint32(0)
		for n, o := range r.Ops {
			dst = append(le.AppendUint32(dst, r.Waits(uint32(n))), uint8(o.Kind))
			dst = le.AppendUint32(le.AppendUint64(le.AppendUint32(dst, o.Peer), o.Size), o.Tag)
			dst = append(dst, o.CPU, o.NIC)
			for _, who := range [2][]uint32{r.Ended(uint32(n)), r.Begun(uint32(n))} {
				dst = le.AppendUint32(le.AppendUint32(dst, uint32(len(who))), at)
				at += uint32(len(who))
			}
		}
		for n := range r.Ops {
			for _, who := range [2][]uint32{r.Ended(uint32(n)), r.Begun(uint32(n))} {
				for _, op := range who {
					dst = le.AppendUint32(dst, op)
				}
			}
		}
		le.PutUint64(dst[table+16*i+8:], uint64(len(dst)-start-8))
	}
	return dst
}

// AppendText appends a schedule as text.
func AppendText(dst []byte, s *job.Schedule) []byte {
	number := func(v uint32) int64 {
		if v == math.MaxUint32 {
			return -1
		}
		return int64(v)
	}
	dst = fmt.Appendf(dst, "num_ranks %d\n", len(s.Ranks))
	for i := range s.Ranks {
		r := &s.Ranks[i]
		dst = fmt.Appendf(dst, "\nrank %d {\n", i)
		for n, o := range r.Ops {
			switch o.Kind {
			case job.Calc:
				dst = fmt.Appendf(dst, "l%d: calc %d cpu %d\n", n+1, o.Size, o.CPU)
			case job.Send:
				dst = fmt.Appendf(dst, "l%d: send %db to %d tag %d cpu %d nic %d\n", n+1, o.Size, o.Peer, o.Tag,
					o.CPU, o.NIC)
			case job.Recv:
				dst = fmt.Appendf(dst, "l%d: recv %db from %d tag %d cpu %d nic %d\n", n+1, o.Size, number(o.Peer),
					number(o.Tag), o.CPU, o.NIC)
			}
		}
		for n := range r.Ops {
			for _, op := range r.Ended(uint32(n)) {
				dst = fmt.Appendf(dst, "l%d requires l%d\n", op+1, n+1)
			}
			for _, op := range r.Begun(uint32(n)) {
				dst = fmt.Appendf(dst, "l%d irequires l%d\n", op+1, n+1)
			}
		}
		dst = append(dst, "}\n"...)
	}
	return dst
}
