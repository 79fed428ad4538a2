package endpoint

import (
	"unsafe"

	"softib/proto/wire"
)

// cell is one packet in a ring: a cache line, which holds a short packet whole. There are the headers that all have,
// and in tail the extended ones, packed, with the payload behind them if there is room. An 8-byte SEND, WRITE, READ
// request or atomic, and every ACK, is thus one line that crosses from core to core.
type cell struct {
	seq  uint32 // index+1 once the packet is complete; see cacheline.StoreRelease
	kind cellKind
	n    uint8 // payload bytes in tail
	lrh  wire.LRH
	bth  wire.BTH
	tail [tailBytes]byte
}

// cellKind says where the packet is; 0 is all in the cell.
type cellKind uint8

const (
	cellLong      cellKind = 1 << iota // there is a chunk in the area
	cellByRef                          // which says where in the sender's memory the payload is
	cellGlobal                         // and has a GRH
	cellXRC                            // and the SRQ of an XRC atomic, whose other headers fill the tail
	cellDelivered                      // the payload was written to the receiver's memory; its length is in the tail
	cellPiped                          // of those by reference: the payload is the next one in a pipe
)

// tailBytes is what a cell has left for extended headers and payload.
const tailBytes = wire.CompactMax

// byRefMin is the payload size from which a packet refers to the sender's memory. To read from another process is
// a system call; what is shorter is copied to the ring and from it in less.
const byRefMin = 8 << 10

// chunkDesc begins what a long packet has in the area.
type chunkDesc struct {
	length uint32 // of the payload
	count  uint16
	_      uint16
	addr   uint64 // by reference: the sender's address
	grh    wire.GRH
}

const (
	// chunkHead is where the payload is in its chunk, and what chunks are multiples of.
	chunkHead = 64
	// chunkSkip in place of a length: what follows is at the beginning of the area.
	chunkSkip = 0xFFFFFFFF
)

// chunk is how long the chunk of a payload of n bytes is.
func chunk(n int) int { return chunkHead + (n+chunkHead-1)&^(chunkHead-1) }

const (
	_ = uint(cellBytes - unsafe.Sizeof(cell{}))
	_ = uint(chunkHead - unsafe.Sizeof(chunkDesc{}))
	_ = uint(headBytes - unsafe.Sizeof(ringHead{}))
	_ = uint(PageBytes - unsafe.Sizeof(pageHead{}))
)

// put fills the cell with p. True means that it needs a chunk besides.
func (c *cell) put(p *wire.Packet) bool {
	c.lrh, c.bth, c.kind = p.LRH, p.BTH, 0
	ext := p.BTH.Opcode.Info().Ext
	if p.LRH.LNH != wire.LNHLocal {
		c.kind = cellLong | cellGlobal
	}
	off := 0
	if ext != 0 {
		if ext&(wire.ExtXRCETH|wire.ExtAtomicETH) == wire.ExtXRCETH|wire.ExtAtomicETH {
			c.kind |= cellLong | cellXRC
		}
		off = p.PackExt(ext, &c.tail)
	}
	n := len(p.Payload)
	if c.kind == 0 && off+n <= tailBytes {
		c.n = uint8(n)
		copy(c.tail[off:], p.Payload)
		return false
	}
	c.kind |= cellLong
	return true
}

// get is the cell's packet, but for what is in its chunk: false says that there is one.
func (c *cell) get(p *wire.Packet) bool {
	p.LRH, p.BTH = c.lrh, c.bth
	if c.kind&cellGlobal != 0 {
		p.LRH.LNH = wire.LNHGlobal
	} else {
		p.LRH.LNH = wire.LNHLocal
	}
	off := 0
	if ext := p.BTH.Opcode.Info().Ext; ext != 0 {
		off = p.UnpackExt(ext, &c.tail)
	}
	if c.kind == 0 {
		end := min(off+int(c.n), tailBytes)
		p.Payload = c.tail[off:end]
		return true
	}
	return false
}
