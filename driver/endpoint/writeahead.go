package endpoint

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/internal/cacheline"
	"softib/node/hca"
	"softib/proto/wire"
)

// Writing ahead. A program that waits for an RDMA WRITE may do so by looking at its own memory, without ever calling
// us; an adapter of silicon would write there all the same. Its attendant could, but on a machine with no idle core
// that takes a switch of threads, which is long against a microsecond. So the sender of a single WRITE writes to the
// receiver's memory itself, by a system call, and then sends the packet, which the receiver takes note of when it next
// looks. The request is complete by then: its data are where they belong, and what is in a ring is heard of, unless the
// receiver ends. The receiver may hear of it long after it has changed what the grant rested upon; it does not check
// the packet again (wire.Placed).
//
// The sender does so only where the receiver has granted it: to memory that the same queue pair has written to before,
// under the same key, with every check passed; and only if the receiver has seen everything that was sent before, so
// that nothing gets ahead of anything.
//
// The receiver withdraws its grants whenever something changes on which one might rest. When that returns, no byte of
// what was granted changes any more, wherever the sender was stopped and for however long. The two do this:
//
//	sender                                   receiver
//	1 list = where the payload is, length    A grant is not valid
//	2 number = odd, fence                    B fence; number even: nobody writes, done
//	3 is the grant valid?                    C length = 0
//	4 system call: write what the list says  D wait until the number is another one, or the sender
//	5 number = the next even one               cannot be within the system call's copy
//
// By the fences either 3 sees A, or B sees 2. In the latter case C comes after 1, and stays until the sender is past 5.
// The list lies in the ring, and the kernel reads it at the beginning of the system call: a sender that was stopped
// before that, in the program, by a signal or at the door of the kernel, writes nothing when it goes on, and takes the
// result, 0 bytes, for "not written": the packet then goes through the ring and is checked like all others. What is
// left is a sender within the copy. That ends by itself, so D waits for it; usually for less than a microsecond. Where
// it takes longer, the receiver looks at the states of the sender's threads (peer.quiet). Once it has seen that a write
// is void it remembers its number, and withdrawing the next grant does not wait for it again.
//
// A sender that says for ever that it writes, and runs in a circle, keeps the receiver waiting at D: this cannot be
// told from one that is short of processor time. It is a process of the same user, which could stop us as well. So does
// a sender of which a debugger has stopped just this thread, if another one computes all the time: until it goes on.
//
// The list is the sender's local one, because only a descriptor of the address space leads surely to the receiver, and
// there the address is an argument of the call. process_vm_writev would take a list of remote addresses, which is the
// better one to share, but it takes a process's number (see peer.go). Both ends in one process: the sender copies, and
// D waits, since threads of one process are not stopped apart.

const (
	// numGrants is how many a ring has; a grant's place follows from its queue pair and key.
	numGrants = 8
	// aheadMax is the longest payload that is written ahead.
	aheadMax = 4096
	// aheadSpins is how often a receiver looks whether a sender has finished, two microseconds apart, before it looks
	// what keeps it, and aheadNap how long it then sleeps between looks.
	aheadSpins = 16
	aheadNap   = 100 * time.Microsecond
)

// grant is what a receiver lets the sender write to.
type grant struct {
	valid uint32
	qp    uint32
	rkey  uint32
	_     uint32
	va    uint64
	size  uint64
	addr  uint64
	_     [24]byte
}

// ahead is what the sender says of its writing, and where the receiver makes it void.
type ahead struct {
	number uint64 // odd while the sender may be writing
	list   iovec
	_      [40]byte
}

func grantPlace(qp, rkey uint32) uint32 { return (qp ^ rkey ^ rkey>>8) % numGrants }

// give grants what the engine has just let a peer do.
func (r *In) give(g hca.Grant) {
	i := grantPlace(uint32(g.QP), g.RKey)
	n := grant{
		valid: 1, qp: uint32(g.QP), rkey: g.RKey, va: g.VA, size: uint64(len(g.Mem)),
		addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(g.Mem)))),
	}
	if r.given[i] == n || !r.far.open() { // what we could not see stopped we could not take back
		return
	}
	s := &r.head.grants[i]
	if r.given[i].valid != 0 {
		cacheline.StoreFence(&s.valid, 0)
		r.settle()
	}
	r.given[i] = n
	s.qp, s.rkey, s.va, s.size, s.addr = n.qp, n.rkey, n.va, n.size, n.addr
	atomic.StoreUint32(&s.valid, 1)
}

// withdraw ends all of a ring's grants.
func (r *In) withdraw() {
	any := false
	for i := range r.given {
		if r.given[i].valid != 0 {
			r.given[i] = grant{}
			cacheline.StoreFence(&r.head.grants[i].valid, 0)
			any = true
		}
	}
	if any {
		r.settle()
	}
}

// drop ends the part that either end has in the other's memory.
func (r *In) drop() {
	r.withdraw()
	r.far.close()
	r.closePipes()
}

// settle makes sure that nothing is written by grants that are not valid any more.
func (r *In) settle() {
	a := &r.head.ahead
	n := atomic.LoadUint64(&a.number)
	if n&1 == 0 || n == r.voided {
		return
	}
	atomic.StoreUintptr(&a.list.length, 0)
	var seen map[string]bool
	for turn := 0; atomic.LoadUint64(&a.number) == n; turn++ {
		if turn < aheadSpins {
			cacheline.Pause()
			continue
		}
		if seen == nil {
			seen = map[string]bool{}
		}
		if !r.far.own && r.far.quiet(seen) {
			r.voided = n
			return
		}
		time.Sleep(aheadNap)
	}
}

// writeAhead writes the payload of p to where it belongs, if the receiver lets us.
func (r *Out) writeAhead(p *wire.Packet) bool {
	n := uint64(len(p.Payload))
	if p.BTH.Opcode != wire.MakeOpcode(wire.RC, wire.OpWriteOnly) || n == 0 || n > aheadMax {
		return false
	}
	g := &r.head.grants[grantPlace(uint32(p.BTH.DestQP), p.RETH.RKey)]
	if atomic.LoadUint32(&g.valid) == 0 || r.Gone() {
		return false
	}
	if !r.to.tried {
		r.to = newPeer(r.peer, r.pid) // whoever grants has signed its page
	}
	if !r.to.open() {
		return false
	}
	a := &r.head.ahead
	a.list = iovec{uintptr(unsafe.Pointer(unsafe.SliceData(p.Payload))), uintptr(n)}
	atomic.StoreUint64(&a.number, r.ahead+1) // and a fence
	ok := false
	// Only now is what the grant says sure to stay, or what is written by it to be void.
	if off := p.RETH.VA - g.va; atomic.LoadUint32(&g.valid) != 0 && g.qp == uint32(p.BTH.DestQP) &&
		g.rkey == p.RETH.RKey && off <= g.size && n <= g.size-off {
		ok = r.to.write(&a.list, g.addr+off, p.Payload)
	}
	r.ahead += 2
	atomic.StoreUint64(&a.number, r.ahead)
	return ok
}

// write writes data, which is what the list says, to the peer's memory.
func (p *peer) write(list *iovec, addr uint64, data []byte) bool {
	if p.own {
		copy(unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), len(data)), data)
		return true
	}
	if len(data) >= backwardMin && int8(addr) > 0 && !forward() {
		return false
	}
	n, _, e := syscall.RawSyscall6(unix.SYS_PWRITEV, uintptr(p.fd), uintptr(unsafe.Pointer(list)), 1, uintptr(addr), 0,
		0)
	return e == 0 && int(n) == len(data)
}

// backwardMin is from how many bytes on Linux on amd64 may copy from a page's beginning to addr backwards: where addr's
// low byte is above the source's, as signed numbers, and the processor has no fast short strings (arch/x86/lib/
// memcpy_64.S). Programs wait for the last byte of a WRITE and expect that it comes last.
const backwardMin = 32

var forward = sync.OnceValue(func() bool {
	if runtime.GOARCH != "amd64" {
		return true
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && bytes.Contains(info, []byte(" fsrm"))
})

// deliveredAt is where a cell has the length of a payload that was delivered: behind the WRITE's RETH.
const deliveredAt = 16

func putDelivered(c *cell, n int) { binary.LittleEndian.PutUint32(c.tail[deliveredAt:], uint32(n)) }

func getDelivered(c *cell) int { return int(binary.LittleEndian.Uint32(c.tail[deliveredAt:])) }
