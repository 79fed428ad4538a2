package endpoint

import (
	"encoding/binary"
	"unsafe"

	"softib/ib"
	"softib/wire"
)

// cell is one packet in a ring: a cache line, which holds a short packet whole. There are the
// headers that all have, and in tail the extended ones, packed, with
// the payload behind them if there is room. An 8-byte SEND, WRITE, READ request or
// atomic, and every ACK, is thus one line that crosses from core to core.
type cell struct {
	seq  uint32 // index+1 once the packet is complete; see storeRelease
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
)

// tailBytes is what a cell has left for extended headers and payload.
const tailBytes = 28

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
		off = c.putExt(p, ext)
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

// putExt packs the extended headers and returns how long they are.
func (c *cell) putExt(p *wire.Packet, ext wire.Ext) int {
	le, t, o := binary.LittleEndian, c.tail[:], 0
	if ext&wire.ExtRETH != 0 {
		le.PutUint64(t[0:], p.RETH.VA)
		le.PutUint32(t[8:], p.RETH.RKey)
		le.PutUint32(t[12:], p.RETH.DMALen)
		o = 16
	}
	if ext&wire.ExtAETH != 0 {
		le.PutUint32(t[o:], uint32(p.AETH.Syndrome)<<24|p.AETH.MSN&0xFFFFFF)
		o += 4
	}
	if ext&wire.ExtAtomicETH != 0 {
		le.PutUint64(t[0:], p.AtomicETH.VA)
		le.PutUint32(t[8:], p.AtomicETH.RKey)
		le.PutUint64(t[12:], p.AtomicETH.Swap)
		le.PutUint64(t[20:], p.AtomicETH.Compare)
		return 28
	}
	if ext&wire.ExtAtomicAckETH != 0 {
		le.PutUint64(t[o:], p.AtomicAck)
		o += 8
	}
	if ext&(wire.ExtImmDt|wire.ExtIETH) != 0 {
		le.PutUint32(t[o:], p.Imm)
		o += 4
	}
	if ext&wire.ExtXRCETH != 0 {
		le.PutUint32(t[o:], p.XRCSRQ)
		o += 4
	}
	if ext&wire.ExtDETH != 0 {
		le.PutUint32(t[o:], uint32(p.DETH.QKey))
		le.PutUint32(t[o+4:], uint32(p.DETH.SrcQP))
		o += 8
	}
	return o
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
		off = c.getExt(p, ext)
	}
	if c.kind == 0 {
		end := min(off+int(c.n), tailBytes)
		p.Payload = c.tail[off:end]
		return true
	}
	return false
}

// getExt unpacks what putExt has packed.
func (c *cell) getExt(p *wire.Packet, ext wire.Ext) int {
	le, t, o := binary.LittleEndian, c.tail[:], 0
	if ext&wire.ExtRETH != 0 {
		p.RETH = wire.RETH{VA: le.Uint64(t[0:]), RKey: le.Uint32(t[8:]), DMALen: le.Uint32(t[12:])}
		o = 16
	}
	if ext&wire.ExtAETH != 0 {
		v := le.Uint32(t[o:])
		p.AETH = wire.AETH{Syndrome: wire.Syndrome(v >> 24), MSN: v & 0xFFFFFF}
		o += 4
	}
	if ext&wire.ExtAtomicETH != 0 {
		p.AtomicETH = wire.AtomicETH{VA: le.Uint64(t[0:]), RKey: le.Uint32(t[8:]), Swap: le.Uint64(t[12:]), Compare: le.Uint64(t[20:])}
		return 28
	}
	if ext&wire.ExtAtomicAckETH != 0 {
		p.AtomicAck = le.Uint64(t[o:])
		o += 8
	}
	if ext&(wire.ExtImmDt|wire.ExtIETH) != 0 {
		p.Imm = le.Uint32(t[o:])
		o += 4
	}
	if ext&wire.ExtXRCETH != 0 {
		p.XRCSRQ = le.Uint32(t[o:])
		o += 4
	}
	if ext&wire.ExtDETH != 0 {
		p.DETH.QKey = ib.QKey(le.Uint32(t[o:]))
		p.DETH.SrcQP = ib.QPN(le.Uint32(t[o+4:]))
		o += 8
	}
	return o
}
