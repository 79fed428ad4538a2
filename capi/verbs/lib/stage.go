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

// postStaged posts what C has staged: list is the first of the stages that have something.
func postStaged(h *hca.HCA, list *uint64) {
	at := atomic.SwapUint64(list, 0)
	for at != 0 {
		s := *(**C.struct_softib_stage)(unsafe.Pointer(&at))
		at = uint64(s.next)
		atomic.StoreUint32((*uint32)(&s.queued), 0)
		if o := table.qps.get(uint32(s.handle)); o != nil {
			o.takeStaged(h, s)
		}
	}
}

// takeStaged posts the receives of one queue pair.
func (o *qpObj) takeStaged(h *hca.HCA, s *C.struct_softib_stage) {
	tail := atomic.LoadUint32((*uint32)(&s.tail))
	taken := uint32(s.taken)
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
	atomic.StoreUint32((*uint32)(&s.taken), taken)
	atomic.StoreUint32((*uint32)(&s.limit), taken+uint32(o.it.Caps().MaxRecvWR-o.it.RecvPosted()))
}
