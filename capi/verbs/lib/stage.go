package main

// #include "../clib/exports.h"
import "C"

import (
	"sync/atomic"
	"unsafe"

	"softib/node/hca"
)

// stagedMax is how many receives C keeps for a queue pair before it has to call. As many more than a program asked for
// can be posted, so that C knows of room without asking: a queue pair may be larger than it was asked to be (IBA
// 11.2.4.1).
const stagedMax = C.SOFTIB_STAGED

// postStaged posts the receives that C has staged: list is the first of the stages that have something.
func postStaged(h *hca.HCA, list *uint64) {
	eachStage(list, func(o *qpObj, s unsafe.Pointer) { o.takeStaged(h, (*C.struct_softib_stage)(s)) })
}

// postSends posts the send requests that C has staged, likewise.
func postSends(h *hca.HCA, list *uint64) {
	eachStage(list, func(o *qpObj, s unsafe.Pointer) { o.takeSends(h, (*C.struct_softib_sends)(s)) })
}

// eachStage empties a list of stages and has take called for each and its queue pair.
func eachStage(list *uint64, take func(o *qpObj, s unsafe.Pointer)) {
	at := atomic.SwapUint64(list, 0)
	for at != 0 {
		s := *(**C.struct_softib_staged)(unsafe.Pointer(&at))
		at = uint64(s.next)
		atomic.StoreUint32((*uint32)(&s.queued), 0)
		if o := table.qps.get(uint32(s.handle)); o != nil {
			take(o, unsafe.Pointer(s))
		}
	}
}

// takeSends posts the requests of one queue pair. C has checked what can be wrong, and that there is room.
func (o *qpObj) takeSends(h *hca.HCA, s *C.struct_softib_sends) {
	tail := atomic.LoadUint32((*uint32)(&s.is.tail))
	taken := uint32(s.is.taken)
	at := unsafe.Slice(s.at, sendsMax)
	for ; taken != tail; taken++ {
		o.post(h, &at[taken%sendsMax].wr)
	}
	atomic.StoreUint32((*uint32)(&s.is.taken), taken)
}

const sendsMax = C.SOFTIB_SENDS

// takeStaged posts the receives of one queue pair.
func (o *qpObj) takeStaged(h *hca.HCA, s *C.struct_softib_stage) {
	tail := atomic.LoadUint32((*uint32)(&s.is.tail))
	taken := uint32(s.is.taken)
	most := uint32(s.max_sge)
	sges := unsafe.Slice((*hca.SGE)(unsafe.Add(unsafe.Pointer(s), unsafe.Sizeof(*s))), stagedMax*most)
	for taken != tail {
		i := taken % stagedMax
		n := min(uint32(s.num_sge[i]), most)
		o.recv.WRID = uint64(s.wr_id[i])
		o.recv.SGList = sges[i*most : i*most+n]
		// C has checked what can be wrong, and the limit keeps it from staging more than fits; in RESET a receive is
		// forgotten, as are those before it.
		_ = h.PostRecv(o.it, &o.recv)
		taken++
	}
	atomic.StoreUint32((*uint32)(&s.is.taken), taken)
	atomic.StoreUint32((*uint32)(&s.limit), taken+uint32(o.it.Caps().MaxRecvWR-o.it.RecvPosted()))
}
