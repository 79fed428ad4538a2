package workload

import "softib/node/hca"

// Range is a piece of a host's memory.
type Range struct{ Host, Off, Len int }

// End is the offset behind the range.
func (r Range) End() int { return r.Off + r.Len }

// Holds reports whether a byte of the host's memory is in the range.
func (r Range) Holds(off int) bool { return off >= r.Off && off < r.Off+r.Len }

// part is the sub-range of n bytes at off.
func (r Range) part(off, n int) Range { return Range{r.Host, r.Off + off, n} }

// Piece is one element of a scatter/gather list, as a place in the host's memory.
type Piece struct{ Off, Len int }

// Gather is what the pieces hold, appended to b.
func Gather(b, mem []byte, pieces []Piece) []byte {
	for _, p := range pieces {
		b = append(b, mem[p.Off:p.Off+p.Len]...)
	}
	return b
}

// Scatter writes data to the pieces, as far as it reaches.
func Scatter(mem []byte, pieces []Piece, data []byte) {
	for _, p := range pieces {
		n := copy(mem[p.Off:p.Off+p.Len], data)
		data = data[n:]
	}
}

// cut divides a range into k pieces. They lie in memory in the opposite
// order of the list, so that a gather that takes memory as it lies is found out.
func cut(r Range, k int, seed uint64) []Piece {
	if r.Len == 0 || k == 0 {
		return nil
	}
	k = min(k, r.Len)
	pieces := make([]Piece, k)
	left, end := r.Len, r.End()
	for i := range pieces {
		n := left
		if rest := k - 1 - i; rest > 0 {
			seed = key(seed, uint64(i))
			n = 1 + int(seed%uint64(left-rest))
		}
		end -= n
		left -= n
		pieces[i] = Piece{end, n}
	}
	return pieces
}

// sges makes a scatter/gather list of pieces that mr holds.
func sges(list []hca.SGE, mr *hca.MR, at Range, pieces []Piece) []hca.SGE {
	for _, p := range pieces {
		list = append(list, hca.SGE{Addr: mr.Addr() + uint64(p.Off-at.Off), Length: uint32(p.Len), LKey: mr.LKey()})
	}
	return list
}

// canary is the least distance between two areas of a host's memory. Nothing may
// ever touch what lies between.
const canary = 32

// layout hands out a host's memory.
type layout struct {
	host, top int
	seed      uint64
}

// take is n bytes, aligned to 8, behind a gap.
func (l *layout) take(n int) Range {
	l.seed = key(l.seed, uint64(n))
	l.top = (l.top + canary + int(l.seed%96) + 7) &^ 7
	r := Range{l.host, l.top, n}
	l.top += n
	return r
}

// arena is the memory itself, filled.
func (l *layout) arena(seed uint64) []byte {
	b := make([]byte, l.top+canary)
	fill(b, key(seed, uint64(l.host)|1<<40))
	return b
}
