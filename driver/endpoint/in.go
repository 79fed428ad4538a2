package endpoint

import (
	"sync/atomic"
	"unsafe"

	"softib/internal/cacheline"
	"softib/proto/ib"
	"softib/proto/wire"
)

// In is the receiving end of a ring.
type In struct {
	memory
	src  *Page
	port ib.PortNum
	far  far
	pipe piped
	// origin is what the sender may be; nil where it is not checked.
	origin *OriginReader
	// given are the grants as last written, and voided the number of the last write that is known to be void.
	given  [numGrants]grant
	voided uint64

	_        [64]byte
	next     uint32 // next cell to empty
	lastTold uint32
	pos      uint64 // next byte of the area
	posTold  uint64
	broken   bool
	hint     int
	_        [64]byte
}

// NewIn is the receiving end of the ring in mem, from the endpoint that has the page and lives in process pid, at
// port of this adapter. Pid 0 is for a receiver that does not read the sender's memory.
func NewIn(mem []byte, src *Page, pid int, port ib.PortNum) (*In, error) {
	m, err := mapRing(mem)
	if err != nil {
		return nil, err
	}
	r := &In{memory: m, src: src, port: port, hint: -1}
	r.far.peer, r.far.head = newPeer(src, pid), m.head
	if src.isLocal() {
		r.far.pulling = &m.head.pulling
	}
	if r.far.read(nil, 0) { // it lets us
		r.say(pullsMemory)
	} else {
		r.say(pullsLittle)
	}
	return r, nil
}

// say tells the sender what we can take.
func (r *In) say(pull uint32) { atomic.StoreUint32(&r.head.pull, pull) }

// Check has every packet compared with what its sender may be. It comes before the first one.
func (r *In) Check(o *OriginReader) { r.origin = o }

// ready is the oldest packet's cell, nil if there is none.
func (r *In) ready() *cell {
	c := r.cell(r.next)
	if atomic.LoadUint32(&c.seq) != r.next+1 || r.broken {
		return nil
	}
	return c
}

// backlog reports whether at least two packets wait.
func (r *In) backlog() bool {
	if r.ready() == nil {
		return false
	}
	c := r.cell(r.next + 1)
	return atomic.LoadUint32(&c.seq) == r.next+2
}

// get is the cell's packet. It is valid until release. False means that it counts as lost.
func (r *In) get(c *cell, p *wire.Packet) bool {
	if r.origin != nil {
		// What lies elsewhere than in the ring nobody can have put there.
		return r.take(c, p) && p.Far == nil && r.origin.Sends(p)
	}
	return r.take(c, p)
}

func (r *In) take(c *cell, p *wire.Packet) bool {
	p.Far, p.Count = nil, 0
	if c.kind&cellDelivered != 0 {
		c.get(p)
		p.Payload, p.Far, p.FarLen = nil, wire.Placed{}, getDelivered(c)
		return true
	}
	if c.get(p) {
		return true
	}
	return r.getChunk(c, p)
}

// getChunk takes what putChunk has put. A ring whose sender writes nonsense is not read any more.
func (r *In) getChunk(c *cell, p *wire.Packet) bool {
	kind := c.kind
	at := r.pos % areaBytes
	d := (*chunkDesc)(unsafe.Pointer(&r.area[at]))
	if d.length == chunkSkip {
		r.pos += areaBytes - at
		at = 0
		d = (*chunkDesc)(unsafe.Pointer(&r.area[0]))
	}
	n := uint64(d.length)
	p.Count = d.count
	if kind&cellGlobal != 0 {
		p.GRH = d.grh
	}
	if kind&cellXRC != 0 {
		p.XRCSRQ = uint32(d.addr)
	}
	if kind&cellByRef != 0 {
		r.pos += chunkHead
		if n > farMax {
			r.broken = true
			return false
		}
		r.far.addr, r.far.cell = d.addr, r.next+1
		p.Payload, p.Far, p.FarLen = nil, &r.far, int(n)
		if kind&cellPiped != 0 {
			if p.Far = &r.pipe; !r.pipe.begin(int(n)) {
				return false
			}
		}
		return !r.far.isVoid()
	}
	if at+chunkHead+n > areaBytes {
		r.broken = true
		return false
	}
	p.Payload = r.area[at+chunkHead : at+chunkHead+n]
	r.pos += uint64(chunk(int(n)))
	return true
}

// Done gives the oldest packet's cell back to the sender.
func (r *In) Done() {
	r.next++
	freed := r.pipe.begun && r.pipe.end(r) // the sender may wait for room in a pipe
	if r.next-r.lastTold >= creditEvery || r.pos-r.posTold >= creditBytes || freed {
		r.tell()
	}
}

// tell returns credit to the sender, and wakes it if it waits for some and nobody looks.
func (r *In) tell() {
	if r.lastTold == r.next {
		return
	}
	r.lastTold, r.posTold = r.next, r.pos
	cacheline.StoreRelease(&r.head.taken, r.next)
	if atomic.LoadUint32(&r.head.wants) != 0 && atomic.CompareAndSwapUint32(&r.head.wants, 1, 0) {
		r.src.wake()
	}
}
