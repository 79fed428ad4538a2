package endpoint

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/internal/cacheline"
	"softib/proto/wire"
)

// Whose memory it is. A number of a process says nothing once the process has ended: the kernel gives it to the next
// one. What is meant is an address space, so that is what is known of a peer: every process that has an endpoint keeps
// a random nonce in its memory and shows it, with its address, in the page that it shares. Whoever reads the peer's
// memory reads the nonce in the same system call, which looks the process up once for both; whoever writes does so by a
// descriptor of the address space (/proc/PID/mem), through which it has read the nonce before. Such a descriptor stays
// with the address space: when that has ended, or the process executes another program, it leads nowhere.
//
// To read the nonce costs a pull some 0.2 µs, about as much as asking a pidfd after the copy whether the process lives,
// and needs no descriptor. Reading by /proc/PID/mem would copy twice.
//
// The number itself is the kernel's word, told by the fabric. So a process that shows somebody else's nonce can only
// shut itself out.

// nonceBytes is how many bytes tell an address space from all others.
const nonceBytes = 16

// identity is what a process shows of its address space; at is 0 if it shows nothing.
type identity struct {
	at    uint64
	nonce [nonceBytes]byte
}

// ownIdentity is that of this process. Its page is wiped in a forked child, which cannot pass for its parent.
var ownIdentity = sync.OnceValue(func() identity {
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return identity{}
	}
	if err := unix.Madvise(mem, unix.MADV_WIPEONFORK); err != nil {
		return identity{} // nobody reads or writes our memory then
	}
	_, _ = rand.Read(mem[:nonceBytes]) // which never fails
	return identity{uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), [nonceBytes]byte(mem)}
})

// sign shows whose page it is.
func (p *Page) sign() {
	id := ownIdentity()
	p.h.owner.nonce = id.nonce
	atomic.StoreUint64(&p.h.owner.at, id.at)
}

// owner is who has signed the page.
func (p *Page) owner() identity {
	return identity{atomic.LoadUint64(&p.h.owner.at), p.h.owner.nonce}
}

// iovec is the kernel's, with addresses that are not pointers to us.
type iovec struct{ base, length uintptr }

// peer is the memory of the process at the other end of a ring.
type peer struct {
	pid   int
	id    identity
	own   bool // it is this process
	tried bool // to open it
	fd    int  // its address space, if that could be opened; else -1

	// Of a read: the bytes, and the nonce.
	local, remote [2]iovec
	nonce         [nonceBytes]byte
}

// nobody is who has no memory that can be used.
var nobody = peer{fd: -1}

// newPeer is the process with a number that has signed a page; number 0 is nobody.
func newPeer(page *Page, pid int) peer {
	p := nobody
	if pid > 0 {
		p.pid, p.id = pid, page.owner()
		p.own = p.id.at != 0 && p.id == ownIdentity()
	}
	return p
}

// read copies from the peer's memory. False means that it is not there, or not the peer's; what is in dst is
// worthless then.
func (p *peer) read(dst []byte, addr uint64) bool {
	if p.own {
		// The engines made sure that it is registered.
		copy(dst, unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), len(dst)))
		return true
	}
	if p.id.at == 0 {
		return false
	}
	p.local = [2]iovec{{uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(len(dst))},
		{uintptr(unsafe.Pointer(&p.nonce)), nonceBytes}}
	p.remote = [2]iovec{{uintptr(addr), uintptr(len(dst))}, {uintptr(p.id.at), nonceBytes}}
	for {
		n, _, e := syscall.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(p.pid),
			uintptr(unsafe.Pointer(&p.local)), 2, uintptr(unsafe.Pointer(&p.remote)), 2, 0)
		if e != syscall.EINTR {
			return e == 0 && int(n) == len(dst)+nonceBytes && p.nonce == p.id.nonce
		}
	}
}

// open opens the peer's address space, once, and reports whether it has it.
func (p *peer) open() bool {
	if p.tried {
		return p.own || p.fd >= 0
	}
	p.tried = true
	if p.own || p.id.at == 0 {
		return p.own
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", p.pid), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	// Who may change the list of what we write (see writeahead.go) could have us write out all that we can read. A
	// peer of the same user can read that anyway; to one of another user, which only root meets, it stays closed.
	var st unix.Stat_t
	if p.fd = fd; !p.alive() || unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() {
		p.close()
	}
	return p.fd >= 0
}

// alive reports whether the address space that was opened is the peer's and still there.
func (p *peer) alive() bool {
	var b [nonceBytes]byte
	n, err := unix.Pread(p.fd, b[:], int64(p.id.at))
	return err == nil && n == nonceBytes && b == p.id.nonce
}

// close gives the descriptor back; the peer's memory is not written to any more.
func (p *peer) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
	p.fd, p.own, p.id, p.tried = -1, false, identity{}, true
}

// quiet reports whether every thread of the peer was seen, in this call or in one before with the same list, where it
// cannot be within a copy to our memory. The kernel copies to another process's memory without a stop: whoever does it
// runs, is ready to run (R), or waits for a page or a lock of memory, which no signal interrupts (D). A thread that
// sleeps (S), was stopped (T, t) or has ended (Z, X) is elsewhere: signals, debuggers and freezers stop threads when
// they enter a system call or leave for the program. The list of what is written must not lie in memory whose faults
// the program serves itself (userfaultfd), which are waited for in S; a ring does not.
func (p *peer) quiet(seen map[string]bool) bool {
	if !p.alive() {
		return true // nobody has this address space any more, so nobody is in the middle of a system call there
	}
	dir := fmt.Sprintf("/proc/%d/task", p.pid)
	st, err := os.Stat(dir)
	if err != nil {
		return os.IsNotExist(err)
	}
	tasks, err := os.ReadDir(dir)
	// A thread that ends while the kernel lists them can cut the list short. The number of links is 2 more than there
	// were threads.
	if err != nil || len(tasks) < int(st.Sys().(*syscall.Stat_t).Nlink)-2 {
		return false
	}
	all := true
	for _, t := range tasks {
		if seen[t.Name()] {
			continue
		}
		if s := threadState(dir + "/" + t.Name() + "/stat"); bytes.IndexByte([]byte("STtZX"), s) >= 0 {
			seen[t.Name()] = true
		} else {
			all = false
		}
	}
	return all
}

// threadState is the letter that a thread's stat file has behind its name, which may have anything in it; X for a
// thread that has ended, and 0 where it cannot be read.
func threadState(path string) byte {
	stat, err := os.ReadFile(path)
	if os.IsNotExist(err) || errors.Is(err, syscall.ESRCH) {
		return 'X'
	}
	if i := bytes.LastIndexByte(stat, ')') + 2; err == nil && i < len(stat) {
		return stat[i]
	}
	return 0
}

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
