package wire

// Source has a payload that lies in another process. The bytes cross when they
// are put where they belong, and not before.
type Source interface { // tidy: calls out, it stands for memory and knows no engine
	// CopyTo fills dst with the payload from byte off on; the end of dst is to
	// be written last, since programs poll it. False means that the owner is
	// gone: dst may hold anything then.
	CopyTo(dst []byte, off int) bool
}

// Placed is the source of a payload that is where it belongs already: its sender was allowed to put it there, and did.
type Placed struct{}

// CopyTo has nothing left to do.
func (Placed) CopyTo([]byte, int) bool { return true }

// PayloadLen is the payload's length, wherever it lies.
func (p *Packet) PayloadLen() int {
	if n := len(p.Payload); n > 0 || !p.isFar() {
		return n
	}
	return p.FarLen
}

// isFar reports whether the payload is elsewhere. FarLen lies where a receiver
// looks anyway, so that it is asked first.
func (p *Packet) isFar() bool { return p.FarLen > 0 && p.Far != nil }

// Fetch brings a payload that lies elsewhere to buf, which must have room for
// it, and makes it the packet's. False means that it is gone; p is then as it was.
func (p *Packet) Fetch(buf []byte) bool {
	if !p.isFar() {
		return true
	}
	b := buf[:p.FarLen]
	if !p.Far.CopyTo(b, 0) {
		return false
	}
	p.Payload, p.FarLen, p.Far = b, 0, nil
	return true
}
