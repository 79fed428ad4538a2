package live

import (
	"unsafe"

	"softib/proto/wire"
)

// cell is one packet in a ring. Its first cache line holds a short packet whole: the
// headers that all have, and in tail the extended ones, packed, with
// the payload behind them if there is room. An 8-byte SEND, WRITE, READ request or
// atomic, and every ACK, is thus one line that crosses from core to core.
type cell struct {
	seq  uint32 // index+1 once the packet is complete; see cacheline.StoreRelease
	kind cellKind
	n    uint8 // payload bytes in tail
	lrh  wire.LRH
	bth  wire.BTH
	tail [tailBytes]byte

	payload []byte       // long: in buf, or in the sender's memory
	buf     []byte       // made when first needed
	whole   *wire.Packet // likewise
	_       [8]byte
}

// cellKind says where the packet is; 0 is all in the first line.
type cellKind uint8

const (
	cellLong  cellKind = 1 << iota // the payload is elsewhere
	cellByRef                      // and that is the sender's memory
	cellWhole                      // has headers that do not fit: a GRH, or XRC's with an atomic's
)

// tailBytes is what the first line has left.
const tailBytes = wire.CompactMax

// bufBytes is the largest payload.
const bufBytes = 4096

// copyTo is where Emit may copy a payload of up to n bytes: short ones to scratch, from
// where put takes them, others to the cell's own buffer at once.
func (c *cell) copyTo(n int, scratch []byte) []byte {
	if n <= tailBytes {
		return scratch
	}
	return c.buffer()
}

func (c *cell) buffer() []byte {
	if c.buf == nil {
		c.buf = make([]byte, bufBytes)
	}
	return c.buf
}

// put fills the cell with p. A payload in scratch, which will be used again, is copied.
func (c *cell) put(p *wire.Packet, scratch []byte) {
	ext := p.BTH.Opcode.Info().Ext
	if p.LRH.LNH != wire.LNHLocal || ext&wire.ExtRDETH != 0 ||
		ext&(wire.ExtXRCETH|wire.ExtAtomicETH) == wire.ExtXRCETH|wire.ExtAtomicETH {
		c.putWhole(p, scratch)
		return
	}
	c.lrh, c.bth = p.LRH, p.BTH
	off := 0
	if ext != 0 {
		off = p.PackExt(ext, &c.tail)
	}
	n := len(p.Payload)
	if off+n <= tailBytes {
		c.kind, c.n = 0, uint8(n)
		copy(c.tail[off:], p.Payload)
		return
	}
	c.kind = cellLong
	c.putPayload(p.Payload, scratch)
}

// putPayload refers to a payload that is not in the first line.
func (c *cell) putPayload(b, scratch []byte) {
	if len(b) > 0 && unsafe.SliceData(b) == unsafe.SliceData(scratch) {
		own := c.buffer()
		b = own[:copy(own, b)]
	}
	c.payload = b
	if len(b) >= byRefMin && unsafe.SliceData(b) != unsafe.SliceData(c.buf) {
		c.kind |= cellByRef
	}
}

func (c *cell) putWhole(p *wire.Packet, scratch []byte) {
	if c.whole == nil {
		c.whole = new(wire.Packet)
	}
	c.kind = cellWhole | cellLong
	*c.whole = *p
	c.putPayload(p.Payload, scratch)
	c.whole.Payload = c.payload
}

// get is the cell's packet, in p or in the cell itself. It is valid until the cell is
// given back.
func (c *cell) get(p *wire.Packet) *wire.Packet {
	if c.kind&cellWhole != 0 {
		return c.whole
	}
	p.LRH, p.BTH = c.lrh, c.bth
	off := 0
	if ext := p.BTH.Opcode.Info().Ext; ext != 0 {
		off = p.UnpackExt(ext, &c.tail)
	}
	if c.kind == 0 {
		p.Payload = c.tail[off : off+int(c.n)]
	} else {
		p.Payload = c.payload
	}
	return p
}
