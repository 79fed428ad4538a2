package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// SGE is one element of a scatter/gather list.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR is a send work request: ibv_send_wr, with its unions laid flat.
type SendWR struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	SGList []SGE
	// InlineData is sent instead of SGList when SendInline is set: it is copied
	// when the request is posted.
	InlineData []byte
	// Imm is the immediate, or the R_Key to invalidate.
	Imm uint32

	RemoteAddr uint64
	RKey       uint32
	CompareAdd uint64
	Swap       uint64
	Flush      Flush

	// Datagrams.
	AH         *AH
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey
	// XRC: the shared receive queue at the target.
	RemoteSRQN uint32

	Bind *BindInfo
}

// Flush is what a FLUSH is to see to, of the memory that the request names: wire.FlushGlobal or wire.FlushPersistent,
// of Length bytes, or of all that the key opens with wire.FlushRegion as Level.
type Flush struct {
	Length      uint32
	Type, Level uint8
}

// RecvWR is a receive work request.
type RecvWR struct {
	WRID   uint64
	SGList []SGE
}

// segment is an element of a posted list and what it opened when the request
// started.
type segment struct {
	sge SGE
	reg *region
	mem []byte
}

// sendWQE is a posted send request with its progress. What every request
// touches stands first.
type sendWQE struct {
	wrID    uint64
	op      WROpcode
	kind    wrKind
	flags   SendFlags
	started bool
	done    bool     // its own response has come, or it was local
	fault   WCStatus // a local error, reported when its turn comes
	length  uint32
	npkts   uint32
	got     uint32 // response packets that have come (READ)
	first   ib.PSN
	imm     uint32
	rkey    uint32
	va      uint64
	segs    []segment
	inline  []byte

	compAdd uint64
	swap    uint64
	ah      *AH
	dqpn    ib.QPN
	qkey    ib.QKey
	srqn    uint32
	bind    *BindInfo
}

func (w *sendWQE) last() ib.PSN { return w.first.Add(int(w.npkts) - 1) }

var (
	errSendFull = attrErr(ErrFull, "post_send", "send queue", "full", "room: poll the completion queue first")
	errRecvFull = attrErr(ErrFull, "post_recv", "receive queue", "full", "room: wait for completions first")
)

// PostSend posts a request to the send queue.
func (h *HCA) PostSend(q *QP, wr *SendWR) error {
	const verb = "post_send"
	if q == nil || q.dead {
		return attrErr(ErrDestroyed, verb, "qp", q, "a live queue pair")
	}
	switch q.state {
	case StateRTS, StateSQD, StateSQE, StateErr:
	default:
		return attrErr(ErrState, verb, "qp_state", q.state, "RTS (or SQD, SQE, ERR)")
	}
	if wr.Opcode >= NumWROpcode || wrTable[wr.Opcode].services&q.services == 0 {
		return badAttr(verb, "opcode", wr.Opcode, "an operation that a "+q.typ.String()+" queue pair has")
	}
	if q.sqNext-q.sqOldest >= q.sqRoom && !q.growSend() {
		return errSendFull
	}
	if wr.Flags > sendFlagsAll {
		return badAttr(verb, "send_flags", wr.Flags, "FENCE, SIGNALED, SOLICITED or INLINE")
	}
	if len(wr.SGList) > q.caps.MaxSendSGE {
		return badAttr(verb, "num_sge", len(wr.SGList), "at most max_send_sge")
	}
	row := &wrTable[wr.Opcode]
	w := &q.sq[q.sqNext&q.sqMask]
	w.wrID, w.op, w.kind, w.flags = wr.WRID, wr.Opcode, row.kind, wr.Flags
	w.started, w.done, w.fault, w.got = false, false, WCSuccess, 0
	w.imm = wr.Imm

	var length uint64
	if wr.Flags&SendInline != 0 {
		if row.kind != kindSend && row.kind != kindWrite && row.kind != kindAtomicWrite {
			return badAttr(verb, "send_flags", "INLINE", "no INLINE with "+row.name)
		}
		var err error
		if length, err = q.copyInline(w, wr); err != nil {
			return err
		}
		w.segs = w.segs[:0]
	} else {
		w.inline = w.inline[:0]
		w.segs = w.segs[:len(wr.SGList)]
		for i := range wr.SGList {
			w.segs[i].sge = wr.SGList[i]
			length += uint64(wr.SGList[i].Length)
		}
	}
	if length > uint64(h.cfg.Limits.MaxMsgSize) {
		return badAttr(verb, "sg_list", length, "at most max_msg_sz bytes in all")
	}
	w.length = uint32(length)

	switch row.kind {
	case kindWrite, kindRead:
		w.va, w.rkey = wr.RemoteAddr, wr.RKey
	case kindFlush:
		if length != 0 {
			return badAttr(verb, "sg_list", length, "nothing for a FLUSH")
		}
		const known = wire.FlushGlobal | wire.FlushPersistent
		if f := &wr.Flush; f.Type == 0 || f.Type&^known != 0 || f.Level > wire.FlushRegion {
			return badAttr(verb, "flush", f.Type, "a known placement and level")
		}
		w.va, w.rkey, w.length = wr.RemoteAddr, wr.RKey, wr.Flush.Length
		w.swap, w.compAdd = uint64(wr.Flush.Type), uint64(wr.Flush.Level)
	case kindAtomic, kindAtomicWrite:
		if length != 8 {
			return badAttr(verb, "sg_list", length, "8 bytes for an atomic")
		}
		if wr.RemoteAddr&7 != 0 {
			return badAttr(verb, "remote_addr", wr.RemoteAddr, "a multiple of 8 for an atomic")
		}
		w.va, w.rkey, w.compAdd, w.swap = wr.RemoteAddr, wr.RKey, wr.CompareAdd, wr.Swap
	case kindLocal:
		if wr.Opcode == WRBindMW {
			if wr.Bind == nil || wr.Bind.MW == nil {
				return badAttr(verb, "bind_mw", wr.Bind, "a window")
			}
			b := *wr.Bind
			w.bind = &b
		}
	}
	if q.isUD() {
		if wr.AH == nil || wr.AH.dead || wr.AH.pd != q.pd {
			return badAttr(verb, "ah", wr.AH, "a live address handle of the queue pair's domain")
		}
		if wr.RemoteQPN > ib.QPNMask {
			return badAttr(verb, "remote_qpn", wr.RemoteQPN, "24 bits")
		}
		if length > uint64(q.mtu) {
			return badAttr(verb, "sg_list", length, "at most the port's MTU for a datagram")
		}
		w.ah, w.dqpn, w.qkey = wr.AH, wr.RemoteQPN, wr.RemoteQKey
	}
	if q.typ == XRCSend {
		if wr.RemoteSRQN > 0xFFFFFF {
			return badAttr(verb, "remote_srqn", wr.RemoteSRQN, "24 bits")
		}
		w.srqn = wr.RemoteSRQN
	}
	q.sqNext++
	q.show()
	if q.state == StateErr || q.state == StateSQE {
		q.flushSend()
		return nil
	}
	q.markReady()
	return nil
}

// copyInline takes the data of an inline request, from InlineData or from the
// memory that its list names.
func (q *QP) copyInline(w *sendWQE, wr *SendWR) (uint64, error) {
	const verb = "post_send"
	n := len(wr.InlineData)
	for i := range wr.SGList {
		n += int(wr.SGList[i].Length)
	}
	if n > q.caps.MaxInline {
		return 0, badAttr(verb, "inline length", n, "at most max_inline_data")
	}
	w.inline = append(w.inline[:0], wr.InlineData...)
	for i := range wr.SGList {
		// libibverbs reads inline data through the caller's own pointer, without
		// a key; here the key finds the memory.
		r, mem := q.h.local(q.pd, &wr.SGList[i], 0)
		if wr.SGList[i].Length > 0 && (r == nil || !r.fetch(mem, false)) {
			return 0, badAttr(verb, "sg_list", wr.SGList[i], "registered memory")
		}
		w.inline = append(w.inline, mem...)
	}
	return uint64(n), nil
}

// PostRecv posts a receive to the queue pair's own receive queue.
func (h *HCA) PostRecv(q *QP, wr *RecvWR) error {
	const verb = "post_recv"
	if q == nil || q.dead {
		return attrErr(ErrDestroyed, verb, "qp", q, "a live queue pair")
	}
	if q.srq != nil || q.typ == XRCSend || q.typ == XRCRecv {
		return badAttr(verb, "qp", q.num, "a queue pair with a receive queue of its own")
	}
	if q.state == StateReset {
		return attrErr(ErrState, verb, "qp_state", q.state, "INIT or later")
	}
	if err := q.rq.post(wr); err != nil {
		return err
	}
	if q.state == StateErr {
		q.flushRecv()
	}
	return nil
}
