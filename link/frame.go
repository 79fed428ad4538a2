package link

import (
	"softib/ib"
	"softib/wire"
)

// BlockSize is the unit of flow-control credits in bytes (IBA 7.9.4.1).
const BlockSize = 64

// FrameFlags are what the driver knows of a packet's bits.
type FrameFlags uint8

// Flags of a frame.
const (
	// BadVCRC marks a packet whose link CRC failed on this hop.
	BadVCRC FrameFlags = 1 << iota
	// BadICRC marks a packet whose end-to-end CRC fails; only the last
	// node looks (IBA 7.8.1).
	BadICRC
	// Copied marks a packet that a fault or multicast has made from another.
	Copied
)

// Frame is a packet on its way. It is in one queue or in one hand at a time.
//
// What a switch reads stands in the first 64 bytes, so that a hop costs one
// cache line of the frame: see TestFrameLayout.
type Frame struct {
	next *Frame
	// Arrived is when the packet entered the node that holds it.
	Arrived ib.Time
	// Bytes is the length on the wire, both CRCs included.
	Bytes uint16
	// Group is for a node's own use while it holds the frame.
	Group uint16
	// Blocks is the length in credits.
	Blocks uint8
	// InPort and InVL say which receive buffer the packet occupies.
	InPort ib.PortNum
	InVL   ib.VL
	Flags  FrameFlags

	Packet wire.Packet

	// Buf is memory for the payload that belongs to the frame.
	Buf []byte

	_ [frameTail]byte
}

// frameTail rounds Frame up to whole cache lines.
const frameTail = 16

// Measure sets Bytes and Blocks from the packet, which was sealed by whoever made
// it.
func (f *Frame) Measure() {
	n := f.Packet.WireSize()
	// Nothing that long passes any MTU check; it only must not wrap.
	f.Bytes = uint16(min(n, 0xFFFF))
	f.Blocks = uint8(min((n+BlockSize-1)/BlockSize, 0xFF))
}

// CopyFrom makes f a packet of its own with the same contents as g.
func (f *Frame) CopyFrom(g *Frame) {
	buf, next := f.Buf, f.next
	*f = *g
	f.Buf, f.next = buf, next
	f.Packet.Payload = append(f.Buf[:0], g.Packet.Payload...)
	f.Buf = f.Packet.Payload[:0:cap(f.Packet.Payload)]
	f.Flags |= Copied
}

// Pool hands out frames and takes them back, last in first out, so that the
// frames in use stay warm in the cache. The zero value is ready.
type Pool struct {
	free *Frame
	// BufSize is the payload memory that each frame is given.
	BufSize int
	made    int
	inUse   int
}

// poolSlab is how many frames are allocated at once.
const poolSlab = 256

// Get is a frame whose contents are whatever its last user left, apart from
// Flags, Group and Payload.
func (p *Pool) Get() *Frame {
	f := p.free
	if f == nil {
		f = p.grow()
	}
	p.free = f.next
	f.next = nil
	f.Flags = 0
	f.Group = 0
	f.Packet.Payload = nil
	p.inUse++
	return f
}

// Put takes a frame back. Its owner forgets it.
func (p *Pool) Put(f *Frame) {
	f.next = p.free
	p.free = f
	p.inUse--
}

func (p *Pool) grow() *Frame {
	slab := make([]Frame, poolSlab)
	bufs := make([]byte, poolSlab*p.BufSize)
	for i := range slab {
		slab[i].Buf = bufs[i*p.BufSize : i*p.BufSize : (i+1)*p.BufSize]
		slab[i].next = p.free
		p.free = &slab[i]
	}
	p.made += poolSlab
	return p.free
}

// InUse counts frames that were taken and not given back.
func (p *Pool) InUse() int { return p.inUse }

// Made counts frames that exist.
func (p *Pool) Made() int { return p.made }

// Queue is a first-in first-out list of frames. The zero value is empty.
type Queue struct {
	head, tail *Frame
}

// Empty reports whether there is nothing in q.
func (q *Queue) Empty() bool { return q.head == nil }

// Push appends f.
func (q *Queue) Push(f *Frame) {
	f.next = nil
	if q.head == nil {
		q.head = f
	} else {
		q.tail.next = f
	}
	q.tail = f
}

// Pop takes the first frame, or nil.
func (q *Queue) Pop() *Frame {
	f := q.head
	if f != nil {
		q.head = f.next
		f.next = nil
	}
	return f
}

// Head is the first frame, or nil.
func (q *Queue) Head() *Frame { return q.head }

// Next is the frame behind f in whatever queue holds it; for walking only.
func (f *Frame) Next() *Frame { return f.next }
