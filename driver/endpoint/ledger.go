package endpoint

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
)

// Ledger is what a process tells the fabric about itself, in memory that both have: what its engine has counted, how
// long acknowledgements took, and how much it sent in each moment. The process writes it when its clock has moved on by
// a millisecond, which is out of the way of packets; the fabric reads it when somebody asks, and believes nothing:
// whatever is there, the reader's methods return.
type Ledger struct{ m *ledgerMemory }

const (
	statsWords = int(unsafe.Sizeof(hca.Stats{}) / 8)
	toldWords  = int(unsafe.Sizeof(hca.Told{}) / 8)
	// ledgerPorts is how many ports have their notices of congestion counted: no adapter has more.
	ledgerPorts = 8
	// ledgerPaths is how many destinations have a histogram at a time, in sets of pathSet.
	ledgerPaths = 256
	pathSet     = 4
	// ledgerBursts is how many windows are remembered: a second's, for 16 destinations that are sent to all the time.
	ledgerBursts = 1 << 14
	// LedgerBytes is the size of a ledger's memory. Most of it is never touched.
	LedgerBytes = int(unsafe.Sizeof(ledgerMemory{}))
	// BurstWindow is how long the moments are, in which bytes are counted.
	BurstWindow = time.Millisecond
)

type ledgerMemory struct {
	stats  [statsWords]uint64
	qps    [hca.NumQPType][hca.NumState]uint32
	_      [60]byte
	told   [ledgerPorts][toldWords]uint64 // of port n+1
	paths  [ledgerPaths]pathTimes
	burst  uint64 // how many were ever written
	_      [56]byte
	bursts [ledgerBursts]burst
}

// pathTimes is how long acknowledgements from one destination took.
type pathTimes struct {
	life    uint32 // odd while it changes hands
	dlid    uint32
	last    uint64 // when it was last counted in, by the process's own count of samples
	buckets [NumBuckets]uint32
}

// burst is what was sent by one way in one window.
type burst struct {
	window uint64 // of the machine's monotonic clock
	slot   uint32
	words  uint32
}

// NewLedger is a ledger in memory of LedgerBytes.
func NewLedger(mem []byte) (*Ledger, error) {
	if len(mem) < LedgerBytes {
		return nil, fmt.Errorf("endpoint: a ledger of %d bytes: want %d: %w", len(mem), LedgerBytes, ErrMemory)
	}
	return &Ledger{(*ledgerMemory)(unsafe.Pointer(unsafe.SliceData(mem)))}, nil
}

// words is a Stats as words.
func words(s *hca.Stats) *[statsWords]uint64 { return (*[statsWords]uint64)(unsafe.Pointer(s)) }

// put publishes what an engine has counted.
func (l *Ledger) put(e *hca.HCA) {
	store := func(at, now []uint64) {
		for i, v := range now {
			if at[i] != v {
				atomic.StoreUint64(&at[i], v)
			}
		}
	}
	store(l.m.stats[:], words(&e.Stats)[:])
	l.m.qps = e.QPCounts()
	if told := e.Told(); told != nil {
		for i := range told[1:min(len(told), ledgerPorts+1)] {
			store(l.m.told[i][:], toldIn(&told[i+1])[:])
		}
	}
}

// PutBurst remembers what went by a way in a window.
func (l *Ledger) PutBurst(b Burst) {
	n := l.m.burst
	l.m.bursts[n%ledgerBursts] = burst{uint64(b.Window), uint32(b.Slot), uint32(min(b.Words, 1<<32-1))}
	atomic.StoreUint64(&l.m.burst, n+1)
}

// putTime counts how long the acknowledgement of a packet took. Where all places that a destination may have are taken,
// the one that has not been counted in for the longest time is given up.
func (l *Ledger) putTime(sample uint64, dlid ib.LID, d time.Duration) {
	set := l.m.paths[int(dlid)*pathSet%ledgerPaths:][:pathSet]
	at := &set[0]
	for i := range set {
		p := &set[i]
		if p.dlid == uint32(dlid) {
			at = p
			break
		}
		if p.last < at.last {
			at = p
		}
	}
	if at.dlid != uint32(dlid) {
		atomic.AddUint32(&at.life, 1)
		clear(at.buckets[:])
		at.dlid = uint32(dlid)
		atomic.AddUint32(&at.life, 1)
	}
	at.last = sample
	atomic.AddUint32(&at.buckets[bucketOf(d)], 1)
}

// The fabric's side.

// countMax bounds what the fabric believes a process to have counted of anything: more takes years.
const countMax = 1 << 56

// Counted brings s up to what the process has counted. A counter that has gone backwards, or to where none can be, is
// left alone.
func (l *Ledger) Counted(s *hca.Stats) {
	w := words(s)
	for i := range w {
		if v := atomic.LoadUint64(&l.m.stats[i]); v > w[i] && v < countMax {
			w[i] = v
		}
	}
}

// Told calls visit with what each port of the process was told of congestion since seen, which it brings up to date.
func (l *Ledger) Told(seen *Seen, visit func(ib.PortNum, *hca.Told)) {
	for port := range seen {
		var since hca.Told
		some := false
		for i, was := range seen[port] {
			if v := atomic.LoadUint64(&l.m.told[port][i]); v > was && v < countMax {
				seen[port][i] = v
				toldIn(&since)[i] = v - was
				some = true
			}
		}
		if some {
			visit(ib.PortNum(port+1), &since)
		}
	}
}

// Seen is what a reader has seen of what ports were told.
type Seen [ledgerPorts][toldWords]uint64

// toldIn is a Told as words.
func toldIn(t *hca.Told) *[toldWords]uint64 { return (*[toldWords]uint64)(unsafe.Pointer(t)) }

// QPs is how many queue pairs the process says to have, no more than it can have.
func (l *Ledger) QPs() (c hca.QPCounts) {
	left := uint32(1)<<BlockBits + 2 // and the two special ones
	for t := range c {
		for s := range c[t] {
			c[t][s] = min(atomic.LoadUint32(&l.m.qps[t][s]), left)
			left -= c[t][s]
		}
	}
	return c
}

// AddStats adds what one has counted since it was like from, and stops at the end of numbers.
func AddStats(sum, now, from *hca.Stats) {
	s, n, f := words(sum), words(now), words(from)
	for i := range s {
		if n[i] > f[i] {
			s[i] = max(s[i], s[i]+n[i]-f[i])
		}
	}
}

// PathReader remembers what was read of the histograms of a ledger.
type PathReader struct {
	seen map[int]*seenPath
}

type seenPath struct {
	life, dlid uint32
	buckets    [NumBuckets]uint32
}

// Times calls visit for each destination with what was counted since the reader last looked, where that is something.
func (l *Ledger) Times(r *PathReader, visit func(ib.LID, *Histogram)) {
	for i := range l.m.paths {
		p := &l.m.paths[i]
		life, dlid := atomic.LoadUint32(&p.life), atomic.LoadUint32(&p.dlid)
		if life == 0 || life&1 != 0 || dlid == 0 || dlid > 0xFFFF {
			continue
		}
		now := seenPath{life: life, dlid: dlid}
		for b := range now.buckets {
			now.buckets[b] = atomic.LoadUint32(&p.buckets[b])
		}
		if atomic.LoadUint32(&p.life) != life {
			continue // it has just been given up
		}
		if r.seen == nil {
			r.seen = map[int]*seenPath{}
		}
		old := r.seen[i]
		if old == nil {
			old = &seenPath{}
			r.seen[i] = old
		}
		if old.life != life || old.dlid != dlid {
			*old = seenPath{life: life, dlid: dlid}
		}
		var h Histogram
		some := false
		for b, v := range now.buckets {
			if d := v - old.buckets[b]; int32(d) > 0 {
				h[b] = uint64(d)
				old.buckets[b] = v
				some = true
			}
		}
		if some {
			visit(ib.LID(dlid), &h)
		}
	}
}

// Burst is what a process has sent by the way of a slot in one window of the machine's monotonic clock.
type Burst struct {
	Window int64
	Slot   int
	Words  uint64
}

// Bursts appends those that were written since number from, and returns the number to go on from, and how many were
// overwritten before anybody looked. Windows that are not in [oldest, newest], and slots that do not exist, are left
// out.
func (l *Ledger) Bursts(list []Burst, from uint64, oldest, newest int64) (_ []Burst, next, missed uint64) {
	next = atomic.LoadUint64(&l.m.burst)
	switch n := next - from; {
	case n > 1<<63: // it runs backwards
		return list, next, 0
	case n > ledgerBursts:
		missed = n - ledgerBursts
		from = next - ledgerBursts
	}
	first := len(list)
	for i := from; i != next; i++ {
		b := &l.m.bursts[i%ledgerBursts]
		list = append(list, Burst{Window: int64(atomic.LoadUint64(&b.window)), Slot: int(atomic.LoadUint32(&b.slot)),
			Words: uint64(atomic.LoadUint32(&b.words))})
	}
	// What the process has overwritten meanwhile may be half of one and half of another.
	if over := atomic.LoadUint64(&l.m.burst) - next; over > 0 && over < 1<<63 {
		lost := min(int(min(over, ledgerBursts)), len(list)-first)
		if room := ledgerBursts - int(next-from); room > 0 {
			lost = max(lost-room, 0)
		}
		list = append(list[:first], list[first+lost:]...)
		missed += uint64(lost)
	}
	kept := list[:first]
	for _, b := range list[first:] {
		if b.Window >= oldest && b.Window <= newest && b.Slot < NumSlots {
			kept = append(kept, b)
		}
	}
	return kept, next, missed
}
