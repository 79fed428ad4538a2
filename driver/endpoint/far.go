package endpoint

import (
	"sync/atomic"

	"softib/internal/cacheline"
	"softib/proto/wire"
)

// farMax bounds a payload by reference: no bundle is longer.
const farMax = 4 << 20

// far is a payload in the sender's memory, copied once, by the receiver, as DMA would.
//
// What was copied counts only if, after the copy, three things are seen to have held until then: it came from the
// sender's address space (peer.read), the sender has not given the request up (the void mark, which it sets before it
// tells its program), and the fabric has not ended the ring. So whoever has stopped where and for how long, nothing is
// taken for the payload that is not: what came too late is a lost packet. The copy goes to the receiver's memory under
// the lock of its endpoint, which whoever deregisters that memory takes first.
type far struct {
	peer
	head *ringHead
	// pulling is set while the memory of a sender in this process is read, which waits for it; see Out.revoke.
	pulling *uint32
	addr    uint64
	cell    uint32 // number of the cell that refers to it, from 1
}

var _ wire.Source = (*far)(nil)

// isVoid reports whether the sender has taken its memory back, or is gone.
func (f *far) isVoid() bool {
	taken := atomic.LoadUint64(&f.head.void[(f.cell-1)%ringCells]) == voidMark(f.cell)
	return taken && !plantVoid || atomic.LoadUint32(&f.head.revoked) != 0
}

// CopyTo copies from off on. False means that the packet counts as lost: the sender is gone, or has given the request
// up.
func (f *far) CopyTo(dst []byte, off int) bool {
	if len(dst) == 0 {
		return true
	}
	if f.pulling == nil {
		return f.read(dst, f.addr+uint64(off)) && !f.isVoid()
	}
	cacheline.StoreFence(f.pulling, 1)
	ok := !f.isVoid() && f.read(dst, f.addr+uint64(off))
	cacheline.StoreRelease(f.pulling, 0)
	return ok
}
