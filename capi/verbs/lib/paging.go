package main

// #include "../clib/exports.h"
import "C"

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/node/hca"
)

// What a region of all memory holds: an address below is never mapped (vm.mmap_min_addr), one beyond is none of a
// program's.
const (
	spaceStart = 1 << 12
	spaceEnd   = 1 << 48
)

// regOnDemand registers memory that need not be there. A length of SIZE_MAX is all that the program has and will have.
func regOnDemand(h *hca.HCA, pd *hca.PD, a *C.struct_softib_mr_args) (*hca.MR, error) {
	access := hca.Access(a.access &^ C.IBV_ACCESS_ON_DEMAND)
	if uint64(a.length) == ^uint64(0) {
		first := uintptr(spaceStart)
		mem := unsafe.Slice(*(**byte)(unsafe.Pointer(&first)), spaceEnd-spaceStart)
		return h.RegOnDemand(pd, mem, spaceStart, access, kernelPages{})
	}
	if a.addr == nil || uint64(a.length) > spaceEnd {
		return nil, hca.ErrInvalid
	}
	return h.RegOnDemand(pd, unsafe.Slice((*byte)(a.addr), uint64(a.length)), uint64(a.iova), access, kernelPages{})
}

// kernelPages is memory of this process.
type kernelPages struct{}

// Fetch makes pages present as a touch would, without the signal where there is nothing.
func (kernelPages) Fetch(mem []byte, write bool) bool {
	how := unix.MADV_POPULATE_READ
	if write {
		how = unix.MADV_POPULATE_WRITE
	}
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	start, end := at&^(page-1), (at+uintptr(len(mem))+page-1)&^(page-1)
	for {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, uintptr(how))
		switch errno {
		case 0:
			return true
		case unix.EINTR, unix.EAGAIN:
		default:
			return false
		}
	}
}

//export softib_advise_mr
func softib_advise_mr(pd, advice uint32, list *C.struct_ibv_sge, n uint32) int32 {
	p := table.pds.get(pd)
	if p == nil {
		return einval
	}
	sges := unsafe.Slice((*hca.SGE)(unsafe.Pointer(list)), n)
	err := p.ctx.dev.Enter().AdviseMR(p.it, sges, advice == C.IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		advice == C.IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
	p.ctx.dev.LeaveQuiet()
	return errnoOf(err)
}
