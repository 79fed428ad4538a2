package main

// #include "../clib/exports.h"
import "C"

//export softib_post_batch
func softib_post_batch(qp uint32, wr *C.struct_ibv_send_wr) int32 {
	o := table.qps.get(qp)
	if o == nil {
		return einval
	}
	h := o.enterToSend()
	defer o.ctx.dev.Leave()
	for n := 0; wr != nil; wr = wr.next {
		if errno := o.post(h, wr); errno != 0 {
			h.Retract(o.qp, n)
			return errno
		}
		n++
	}
	return 0
}
