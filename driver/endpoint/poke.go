package endpoint

import (
	"encoding/binary"
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
// that nothing gets ahead of anything. The receiver withdraws its grants whenever something changes on which one might
// rest, and waits until the sender is not in the middle of using one.

const (
	// numGrants is how many a ring has; a grant's place follows from its queue pair and key.
	numGrants = 8
	// pokeMax is the longest payload that is written ahead.
	pokeMax = 4096
	// pokePatience bounds how long a receiver waits for a sender that was stopped in the middle.
	pokePatience = 50 * time.Millisecond
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

func grantPlace(qp, rkey uint32) uint32 { return (qp ^ rkey ^ rkey>>8) % numGrants }

// give grants what the engine has just let a peer do.
func (r *In) give(g hca.Grant) {
	i := grantPlace(uint32(g.QP), g.RKey)
	n := grant{
		valid: 1, qp: uint32(g.QP), rkey: g.RKey, va: g.VA, size: uint64(len(g.Mem)),
		addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(g.Mem)))),
	}
	if r.given[i] == n {
		return
	}
	s := &r.head.grants[i]
	r.retract(s)
	r.given[i] = n
	s.qp, s.rkey, s.va, s.size, s.addr = n.qp, n.rkey, n.va, n.size, n.addr
	atomic.StoreUint32(&s.valid, 1)
}

// retract ends a grant.
func (r *In) retract(s *grant) {
	if s.valid == 0 {
		return
	}
	cacheline.StoreFence(&s.valid, 0)
	if atomic.LoadUint32(&r.head.poking) == 0 {
		return
	}
	for start := time.Now(); atomic.LoadUint32(&r.head.poking) != 0; {
		if atomic.LoadUint32(&r.head.revoked) != 0 || time.Since(start) > pokePatience {
			return
		}
		cacheline.YieldCore()
	}
}

// withdraw ends all of a ring's grants.
func (r *In) withdraw() {
	for i := range r.given {
		if r.given[i].valid != 0 {
			r.given[i] = grant{}
			r.retract(&r.head.grants[i])
		}
	}
}

// poke writes the payload of p to where it belongs, if the receiver lets us.
func (r *Out) poke(p *wire.Packet) bool {
	n := uint64(len(p.Payload))
	if p.BTH.Opcode != wire.MakeOpcode(wire.RC, wire.OpWriteOnly) || n == 0 || n > pokeMax {
		return false
	}
	g := &r.head.grants[grantPlace(uint32(p.BTH.DestQP), p.RETH.RKey)]
	if atomic.LoadUint32(&g.valid) == 0 {
		return false
	}
	cacheline.StoreFence(&r.head.poking, 1)
	ok := false
	// Only now is what the grant says sure to stay.
	if off := p.RETH.VA - g.va; atomic.LoadUint32(&g.valid) != 0 && g.qp == uint32(p.BTH.DestQP) &&
		g.rkey == p.RETH.RKey && off <= g.size && n <= g.size-off {
		ok = writeTo(r.pid, g.addr+off, p.Payload)
	}
	cacheline.StoreRelease(&r.head.poking, 0)
	return ok
}

func writeTo(pid int, addr uint64, data []byte) bool {
	if pid == self {
		copy(unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), len(data)), data)
		return true
	}
	local := iovec{uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data))}
	remote := iovec{uintptr(addr), uintptr(len(data))}
	n, _, e := syscall.RawSyscall6(unix.SYS_PROCESS_VM_WRITEV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), 1, 0)
	return e == 0 && int(n) == len(data)
}

// deliveredAt is where a cell has the length of a payload that was delivered: behind the WRITE's RETH.
const deliveredAt = 16

func putDelivered(c *cell, n int) { binary.LittleEndian.PutUint32(c.tail[deliveredAt:], uint32(n)) }

func getDelivered(c *cell) int { return int(binary.LittleEndian.Uint32(c.tail[deliveredAt:])) }
