package hca

import "fmt"

// Queues grow on use: a queue pair costs what it has had under way at once, and not what it was allowed, which
// programs with thousands of them hardly ever use. None shrinks.

// How long queues are at first, powers of two. Most queue pairs have few requests of their own under way, but many
// receives posted from the start.
const (
	firstSends = 4
	firstRecvs = 16
	firstResps = 4
)

// grown is how long a ring becomes that has n elements, for at most most; 0 if it has room for them.
func grown(n, first, most int) int {
	if n >= most {
		return 0
	}
	return min(max(2*n, first), pow2(most))
}

// enlarged is a ring of n elements with those of a smaller one from head to tail, each under its number.
func enlarged[T any](ring []T, n int, head, tail uint32) []T {
	to := make([]T, n)
	for i := head; i != tail; i++ {
		to[i&uint32(n-1)] = ring[i&uint32(len(ring)-1)]
	}
	return to
}

// growSend makes room in a send queue that has none left; false if it is as long as was asked for.
func (q *QP) growSend() bool {
	c, had := &q.caps, len(q.sq)
	n := grown(had, firstSends, c.MaxSendWR)
	if n == 0 {
		return false
	}
	q.sq = enlarged(q.sq, n, q.sqOldest, q.sqNext)
	q.sqMask, q.sqRoom = uint32(n-1), uint32(min(n, c.MaxSendWR))
	segs := make([]segment, (n-had)*c.MaxSendSGE)
	inline := make([]byte, (n-had)*c.MaxInline)
	for i := range n - had { // behind the last request all are new: the others were taken
		w, s, b := &q.sq[(q.sqNext+uint32(i))&q.sqMask], i*c.MaxSendSGE, i*c.MaxInline
		w.segs = segs[s : s : s+c.MaxSendSGE]
		w.inline = inline[b : b : b+c.MaxInline]
	}
	return true
}

// grow makes room in a receive queue that has none left; false if it is as long as was asked for. Who
// fills the oldest receive may still look at it in the former ring, where nothing changes any more.
func (q *recvQueue) grow() bool {
	n := grown(len(q.wqes), firstRecvs, q.cap)
	if n == 0 {
		return false
	}
	sges := make([]SGE, n*q.maxSGE)
	for i := q.head; i != q.tail; i++ {
		from, to := int(i)&(len(q.wqes)-1), int(i)&(n-1)
		copy(sges[to*q.maxSGE:][:q.maxSGE], q.sges[from*q.maxSGE:])
	}
	q.wqes, q.sges, q.room = enlarged(q.wqes, n, q.head, q.tail), sges, uint32(min(n, q.cap))
	return true
}

// ResizeQP allows a queue pair's own queues to be as long as that, or as long as they are if that is more:
// ibv_modify_qp with IBV_QP_CAP. It works in every state (IBA 11.2.5.2).
func (h *HCA) ResizeQP(q *QP, sendWR, recvWR int) error {
	const verb = "modify_qp"
	if q == nil || q.dead {
		return attrErr(ErrDestroyed, verb, "qp", q, "a live queue pair")
	}
	most := h.cfg.Limits.MaxQPWR
	if sendWR < 0 || sendWR > most {
		return badAttr(verb, "cap.max_send_wr", sendWR, fmt.Sprintf("0 to %d", most))
	}
	if recvWR < 0 || recvWR > most {
		return badAttr(verb, "cap.max_recv_wr", recvWR, fmt.Sprintf("0 to %d", most))
	}
	c := &q.caps
	if q.sendCQ != nil && q.tagged == nil {
		c.MaxSendWR = max(c.MaxSendWR, sendWR)
		q.sqRoom = uint32(min(len(q.sq), c.MaxSendWR))
	}
	if q.recvCQ != nil && q.srq == nil {
		c.MaxRecvWR = max(c.MaxRecvWR, recvWR)
		q.rq.cap, q.rq.room = c.MaxRecvWR, uint32(min(len(q.rq.wqes), c.MaxRecvWR))
	}
	return nil
}

// mostResp is how many responses may wait: more only a peer wants that breaks its own READ limit.
func (q *QP) mostResp() uint32 {
	n := 2*int(q.attr.MaxDestRD) + 4
	if q.selects() != nil {
		n += q.h.cfg.RoCE.Selective.Window // each packet that comes before its turn is answered
	}
	return uint32(max(len(q.resp), pow2(n)))
}

// growResp makes room for more responses that wait; false if there are as many as there may be.
func (q *QP) growResp() bool {
	n := grown(len(q.resp), firstResps, int(q.mostResp()))
	if n == 0 {
		return false
	}
	q.resp = enlarged(q.resp, n, q.respHead, q.respTail)
	return true
}
