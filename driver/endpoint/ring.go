package endpoint

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"softib/internal/cacheline"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
)

// ErrMemory is matched by errors about shared memory that is not as it must be.
var ErrMemory = errors.New("unusable shared memory")

const (
	// ringCells is a ring's room: the credit of one source on one lane.
	ringCells = 256
	// areaBytes is its room for payloads that do not fit into cells. It fits into a core's second cache.
	areaBytes = 256 << 10
	// copyMax is the most that one packet, or bundle, has in the area.
	copyMax = 16 << 10
	// creditEvery is how many cells the receiver empties before it says so.
	creditEvery = 32
	// creditBytes is how much of the area may be emptied before it says so.
	creditBytes = areaBytes / 4
	// ownAhead is how far ahead of its position the sender asks for cells.
	ownAhead = 16

	// cellStride is how far apart cells that follow each other lie, in cells: more than the 2 KiB that prefetchers
	// follow, and odd, so that all have their turn.
	cellStride = 37

	headBytes = 4096
	cellBytes = 64

	// RingHeadBytes is how much of a ring's memory says what is in the rest: a ring is new when all of that is zero.
	RingHeadBytes = headBytes + ringCells*cellBytes
	// RingBytes is the size of a ring's memory.
	RingBytes = headBytes + ringCells*cellBytes + areaBytes
)

// ringHead is what the two ends and the fabric tell each other.
type ringHead struct {
	taken   uint32 // receiver: cells emptied, the credit that went back
	_       [60]byte
	wants   uint32 // sender: waits for credit
	_       [60]byte
	pull    uint32 // receiver: what it can take; see pullsMemory
	_       [60]byte
	revoked uint32 // fabric: nobody is at the other end any more
	_       [60]byte
	ahead   ahead  // sender: it may be writing to the receiver's memory
	pulling uint32 // receiver, where both are in one process: it reads the sender's memory
	_       [60]byte
	grants  [numGrants]grant // receiver
	// void has, at a cell's place, voidMark of its number if the sender has taken back what it refers to.
	void [ringCells]uint64
}

var _ [headBytes - unsafe.Sizeof(ringHead{})]struct{}

// memory is a ring as both ends map it.
//
// A payload by reference lies in the sender's registered memory, which is the program's again once the request has
// ended. A request that ends well was acknowledged, so its packets were used, or are duplicates whose payload nobody
// looks at. One that is given up may have packets in the ring: the sender then declares their cells void, and only then
// tells the program. The receiver looks at the mark after it has copied: whatever it copied from a void cell counts as
// lost.
type memory struct {
	head  *ringHead
	cells *[ringCells]cell
	area  *[areaBytes]byte
	keep  *Local // what they lie in, if it is a Local
}

func mapRing(mem []byte) (memory, error) {
	if len(mem) < RingBytes {
		return memory{}, fmt.Errorf("endpoint: a ring of %d bytes: want %d: %w", len(mem), RingBytes, ErrMemory)
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	return memory{
		head:  (*ringHead)(base),
		cells: (*[ringCells]cell)(unsafe.Add(base, headBytes)),
		area:  (*[areaBytes]byte)(unsafe.Add(base, headBytes+ringCells*cellBytes)),
	}, nil
}

// cell is where the cell of a number lies. Neighbours in time are none in memory: a receiver that keeps up reads each
// cell soon after it was written, and its core's prefetchers would take the next ones away from the sender, which is
// about to write them.
func (m *memory) cell(n uint32) *cell { return &m.cells[n*cellStride%ringCells] }

// Revoke tells both ends of a ring that there is nobody at the other one. Whoever waits for
// credit has to be woken besides.
func Revoke(mem []byte) {
	if r, err := mapRing(mem); err == nil {
		atomic.StoreUint32(&r.head.revoked, 1)
	}
}

// Out is the sending end of a ring.
type Out struct {
	memory
	peer *Page
	pid  int       // of the receiver
	to   peer      // the same, once it is needed
	line *lineRing // if it leads into a tunnel
	// refers: the payload that is sent now may be by reference, or, where there are pipes that are used, go by one.
	refers, piping bool
	pipes          *outPipes
	// wish asks the fabric for pipes; nil where that was done, or is of no use.
	wish func()
	// ahead is the last number of head.ahead.
	ahead uint64

	_      [64]byte
	tail   uint32 // next cell to fill
	limit  uint32 // tail may not reach it: taken+ringCells as last read
	ptail  uint64 // next byte of the area, counted from the beginning of time
	plimit uint64
	window uint64 // of the area that may be in use, and the most that one packet, or bundle, has of it; see narrow
	most   int
	buf    uint64 // where the reserved payload is
	parked []*hca.QP
	// heard is where tail was behind the last packet that the receiver has to act upon soon; what follows it was
	// delivered ahead.
	heard uint32
	ends  [ringCells]uint64 // ptail behind each cell
	// from is who sends by reference now, owners who has, in each cell.
	from   *hca.QP
	owners [ringCells]*hca.QP
	// Of knocking: where taken was when last looked at, and since when.
	seen  uint32
	since ib.Time
	// idle: the receiver has been waited for in vain, when taken was idleAt.
	idle   bool
	idleAt uint32
	_      [64]byte
}

// OtherUser stands for the number of a process whose memory is none of our business, nor ours of its.
const OtherUser = -1

// NewOut is the sending end of the ring in mem, towards the endpoint that has the page and lives in process pid. Pid 0
// is the fabric, which has no memory to write ahead to.
func NewOut(mem []byte, peer *Page, pid int) (*Out, error) {
	m, err := mapRing(mem)
	if err != nil {
		return nil, err
	}
	return &Out{memory: m, peer: peer, pid: pid, to: nobody, limit: ringCells, plimit: areaBytes,
		window: areaBytes, most: copyMax}, nil
}

// narrowPackets is how many of the longest packets a narrow ring has room for: two at least, since one that does not
// fit behind the last begins the area anew.
const narrowPackets = 4

// narrow makes a ring into the fabric hold few packets and no bundles, or many again. Who is told of congestion slows
// down with what it has not sent yet: an adapter has no more than a few packets on their way to its port.
func (r *Out) narrow(on bool) {
	if r.window, r.most = areaBytes, copyMax; on && r.pid == 0 {
		r.most = ib.MTU4096.Bytes()
		r.window = uint64(narrowPackets * chunk(r.most))
	}
	r.plimit = min(r.plimit, r.ptail+r.window)
}

// canRefer looks whether the receiver can read our memory, or our pages from a pipe. Its answer may change at any time,
// since it lies in memory that the receiver writes: what is made of it has to hold for the whole packet. Long says that
// it would be of use now.
func (r *Out) canRefer(long bool) bool {
	pull := atomic.LoadUint32(&r.head.pull)
	r.piping = pull == pullsPipes && r.pipes != nil
	r.refers = r.pid > 0 && (pull == pullsMemory || r.piping)
	if pull == pullsLittle && long && r.wish != nil && r.pid > 0 {
		r.wish()
		r.wish = nil
	}
	return r.refers
}

// Unseen reports whether the receiver has packets to take in that somebody waits for.
func (r *Out) Unseen() bool {
	return int32(r.heard-r.Taken()) > 0 && !r.Gone()
}

// rouse wakes the receiver if nobody looks. Packets that were delivered ahead may lie until there are many.
func (r *Out) rouse() {
	if r.heard == r.tail || r.tail-r.Taken() >= ringCells/2 {
		r.peer.wake()
	}
}

// Gone reports whether nobody receives any more.
func (r *Out) Gone() bool { return atomic.LoadUint32(&r.head.revoked) != 0 }

// room makes sure of a cell, and of n bytes for its payload in one piece.
func (r *Out) room(n int) bool {
	need := uint64(chunk(n))
	if r.fits(need) {
		return true
	}
	taken := r.Taken()
	if r.tail-taken > ringCells {
		return false // nonsense
	}
	r.limit = taken + ringCells
	if r.pipes != nil && taken != 0 {
		r.pipes.taken((taken - 1) % ringCells)
	}
	if taken == r.tail {
		r.plimit = r.ptail + r.window
	} else if taken != 0 {
		r.plimit = r.ends[(taken-1)%ringCells] + r.window
	}
	return r.fits(need)
}

func (r *Out) fits(need uint64) bool {
	if r.tail == r.limit || r.pipes != nil && !r.pipes.fits() {
		return false
	}
	r.buf = r.ptail
	if off := r.ptail % areaBytes; off+need > areaBytes {
		r.buf += areaBytes - off
	}
	return r.buf+need <= r.plimit
}

// space is where the payload of the packet that room was made for goes.
func (r *Out) space(n int) []byte {
	at := r.buf%areaBytes + chunkHead
	return r.area[at : at+uint64(n) : at+uint64(n)]
}

// publish hands a packet to the receiver. Room was made for it; a payload in the space is there already, and one
// that is neither there nor short is referred to. Delivered says that the payload is where it belongs by now.
func (r *Out) publish(p *wire.Packet, delivered bool) {
	c := r.cell(r.tail)
	if delivered {
		n := len(p.Payload)
		p.Payload = nil
		c.put(p)
		c.kind |= cellDelivered
		putDelivered(c, n)
	} else if c.put(p) {
		r.putChunk(c, p)
	}
	r.ends[r.tail%ringCells] = r.ptail
	if r.pipes != nil {
		r.pipes.ends[r.tail%ringCells] = r.pipes.put
	}
	r.tail++
	if !delivered {
		r.heard = r.tail
	}
	cacheline.StoreRelease(&c.seq, r.tail)
	cacheline.Own(unsafe.Pointer(r.cell(r.tail + ownAhead)))
}

// putChunk fills the part of the area that belongs to a long packet.
func (r *Out) putChunk(c *cell, p *wire.Packet) {
	if r.buf != r.ptail { // it does not fit behind the last one
		(*chunkDesc)(unsafe.Pointer(&r.area[r.ptail%areaBytes])).length = chunkSkip
	}
	at := r.buf % areaBytes
	d := (*chunkDesc)(unsafe.Pointer(&r.area[at]))
	n := len(p.Payload)
	d.length, d.count, d.addr = uint32(n), p.Count, 0
	if c.kind&cellGlobal != 0 {
		d.grh = p.GRH
	}
	if c.kind&cellXRC != 0 {
		d.addr = uint64(p.XRCSRQ)
	}
	used := n
	if n > 0 {
		// A reference needs no room behind the head, which may be the area's last bytes.
		if src := unsafe.Pointer(unsafe.SliceData(p.Payload)); at+chunkHead >= areaBytes ||
			src != unsafe.Pointer(&r.area[at+chunkHead]) {
			if n >= byRefMin && c.kind&cellXRC == 0 && r.refers {
				c.kind |= cellByRef
				r.owners[r.tail%ringCells] = r.from
				d.addr = uint64(uintptr(src))
				used = 0
				if r.piping {
					c.kind |= cellPiped
					if d.addr = 0; !r.pipes.give(p.Payload) {
						atomic.StoreUint64(&r.head.void[r.tail%ringCells], voidMark(r.tail+1))
						r.closePipes()
					}
				}
			} else {
				copy(r.area[at+chunkHead:at+chunkHead+uint64(n)], p.Payload)
			}
		}
	}
	r.ptail = r.buf + uint64(chunk(used))
}

// voidMark is a number that no ring has from the beginning.
func voidMark(cell uint32) uint64 { return 1<<32 | uint64(cell) }

// revoke makes the payloads by reference void that queue pairs have put into the ring. Those of others stay good: to
// lose a packet is to lose a try, and one queue pair's end is no reason for that. None is all. Within one process,
// where nothing else keeps a receiver from memory that is the program's again, it waits until the receiver has ended
// what it is in the middle of.
func (r *Out) revoke(gone []*hca.QP) {
	for i, q := range r.owners {
		if q != nil && (gone == nil || slices.Contains(gone, q)) {
			atomic.StoreUint64(&r.head.void[i], voidMark(r.tail-(r.tail-1-uint32(i))%ringCells))
			r.owners[i] = nil
		}
	}
	for r.peer.isLocal() && atomic.LoadUint32(&r.head.pulling) != 0 {
		runtime.Gosched()
	}
}
