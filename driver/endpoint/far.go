package endpoint

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/internal/cacheline"
	"softib/proto/wire"
)

// farMax bounds a payload by reference: no bundle is longer.
const farMax = 4 << 20

// far is a payload in the sender's memory, copied once, by the receiver, as DMA would.
type far struct {
	pid  int
	void *uint32
	// pulling is set while the memory of a sender in this process is read, which waits for it; see Out.revoke.
	pulling *uint32
	addr    uint64
	cell    uint32 // number of the cell that refers to it, from 1

	local, remote iovec
}

// iovec is the kernel's, with addresses that are not pointers to us.
type iovec struct{ base, length uintptr }

var _ wire.Source = (*far)(nil)

// isVoid reports whether the sender has taken its memory back.
func (f *far) isVoid() bool { return int32(atomic.LoadUint32(f.void)-f.cell) >= 0 }

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

// probe finds out whether the process lets us read what lies at addr.
func (f *far) probe(addr uint64) bool {
	var b [1]byte
	return addr != 0 && f.read(b[:], addr)
}

func (f *far) read(dst []byte, addr uint64) bool {
	if f.pid == self {
		// In our own process: the engines made sure that it is registered.
		copy(dst, unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), len(dst)))
		return true
	}
	for len(dst) > 0 {
		f.local = iovec{uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(len(dst))}
		f.remote = iovec{uintptr(addr), uintptr(len(dst))}
		n, _, e := syscall.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(f.pid),
			uintptr(unsafe.Pointer(&f.local)), 1, uintptr(unsafe.Pointer(&f.remote)), 1, 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 || n == 0 {
			return false
		}
		dst = dst[n:]
		addr += uint64(n)
	}
	return true
}

var self = os.Getpid()
