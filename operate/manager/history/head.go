package history

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// head is the newest stretch of time, still in memory: the raw tier before it is a chunk. Rows are only ever added, so
// whoever has a copy of the slice may read it without a lock.
type head struct {
	set      *portSet
	blockNos []uint32 // of set
	rows     []row
	bytes    int
	from, to int64
	scalars  map[string][]scalarPoint
}

// row is one sample of all ports: for every block of the set what its ports counted since the sample before.
//
// A block with something is a bit for each port that has something, then for each of those a bit for each metric that
// it has, then the codes.
type row struct {
	span
	ends []uint32 // where each block ends in data; nil if all are idle
	data []byte
}

// block gives the part of a row that belongs to a block by its place in the set.
func (r *row) block(i int) []byte {
	if r.ends == nil {
		return nil
	}
	from := uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.data[from:r.ends[i]]
}

func newHead(set *portSet) *head {
	return &head{set: set, blockNos: set.blocks(), scalars: map[string][]scalarPoint{}}
}

func (h *head) empty() bool { return len(h.rows) == 0 && len(h.scalars) == 0 }

// cover makes a head's time include a moment.
func (h *head) cover(from, to int64) {
	if h.empty() {
		h.from, h.to = from, to
		return
	}
	h.from, h.to = min(h.from, from), max(h.to, to)
}

// rowBuilder makes rows; its buffers serve again.
type rowBuilder struct {
	data []byte
	ends []uint32
}

// begin starts a row.
func (w *rowBuilder) begin() { w.data, w.ends = w.data[:0], w.ends[:0] }

// openBlock starts a block and says where it is.
func (w *rowBuilder) openBlock() int {
	at := len(w.data)
	w.data = append(w.data, 0, 0, 0, 0, 0, 0, 0, 0)
	return at
}

// closeBlock ends the block at a place, of which these ports have something.
func (w *rowBuilder) closeBlock(at int, ports uint64) {
	if ports == 0 {
		w.data = w.data[:at]
	} else {
		binary.LittleEndian.PutUint64(w.data[at:], ports)
	}
	w.ends = append(w.ends, uint32(len(w.data)))
}

// port adds what a port counted, and reports whether that is anything.
func (w *rowBuilder) port(now, last *Values) bool {
	at := len(w.data)
	mask := byte(0)
	for m := range now {
		// A counter that went back was reset, in part maybe. What it counted since is not known.
		if now[m] <= last[m] {
			continue
		}
		if mask == 0 {
			w.data = append(w.data, 0)
		}
		mask |= 1 << m
		w.data = binary.LittleEndian.AppendUint16(w.data, encode(now[m]-last[m]))
	}
	if mask == 0 {
		return false
	}
	w.data[at] = mask
	return true
}

// end gives the row.
func (w *rowBuilder) end(s span) row {
	if len(w.data) == 0 {
		return row{span: s}
	}
	return row{span: s, ends: slices.Clone(w.ends), data: slices.Clone(w.data)}
}

func (h *head) add(r row) {
	h.cover(r.at, r.at+r.dur)
	h.rows = append(h.rows, r)
	h.bytes += len(r.data) + 4*len(r.ends) + 64
}

// portCode finds a port's code in a block of a row.
func portCode(b []byte, m Metric, port int) code {
	if len(b) == 0 {
		return 0
	}
	ports := binary.LittleEndian.Uint64(b)
	if ports>>port&1 == 0 {
		return 0
	}
	b = b[8:]
	for range bits.OnesCount64(ports & (1<<port - 1)) {
		b = b[1+2*bits.OnesCount8(b[0]):]
	}
	mask := b[0]
	if mask>>m&1 == 0 {
		return 0
	}
	return binary.LittleEndian.Uint16(b[1+2*bits.OnesCount8(mask&(1<<m-1)):])
}

// eachCode calls do for every code of a block of a row.
func eachCode(b []byte, do func(port int, m Metric, c code)) {
	if len(b) == 0 {
		return
	}
	ports := binary.LittleEndian.Uint64(b)
	b = b[8:]
	for ; ports != 0; ports &= ports - 1 {
		mask := b[0]
		b = b[1:]
		for ; mask != 0; mask &= mask - 1 {
			do(bits.TrailingZeros64(ports), Metric(bits.TrailingZeros8(mask)), binary.LittleEndian.Uint16(b))
			b = b[2:]
		}
	}
}
