package hca

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// QPType is a queue pair's transport service: ibv_qp_type.
type QPType uint8

// Queue pair types.
const (
	RC QPType = iota
	UC
	UD
	XRCSend // initiator
	XRCRecv // target
	SMI     // QP0
	GSI     // QP1
	NumQPType
)

// qpTypes says, per type: its name, the service on the wire and the operations it has.
var qpTypes = [NumQPType]struct {
	name string
	wire wire.Service
	ops  qpTypeSet
}{
	RC: {"RC", wire.RC, onRC}, UC: {"UC", wire.UC, onUC}, UD: {"UD", wire.UD, onUD},
	XRCSend: {"XRC_SEND", wire.XRC, onXRC}, XRCRecv: {"XRC_RECV", wire.XRC, 0},
	SMI: {"SMI", wire.UD, onUD}, GSI: {"GSI", wire.UD, onUD},
}

func (t QPType) String() string {
	if t < NumQPType {
		return qpTypes[t].name
	}
	return fmt.Sprintf("QPType(%d)", uint8(t))
}

// State is a queue pair's state: ibv_qp_state.
type State uint8

// Queue pair states (IBA figure 124).
const (
	StateReset State = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
	NumState
)

var stateNames = [NumState]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

func (s State) String() string {
	if s < NumState {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Caps are a queue pair's sizes.
type Caps struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int
}

// QPInit says what a queue pair shall be.
type QPInit struct {
	Type        QPType
	PD          *PD
	SendCQ      *CQ
	RecvCQ      *CQ
	SRQ         *SRQ
	XRCD        *XRCD
	Caps        Caps
	SigAll      bool
	BlockSelfMC bool // a datagram sender does not hear its own multicasts
	IPoIB       bool // it is part of a network, so that all that it carries counts as IP

	// Owner is the driver's; the engine ignores it.
	Owner any
}

// QP is a queue pair. Fields stand by use: what every packet touches comes
// first, line by line, because a fabric of thousands of them lives in memory
// that is far away.
type QP struct {
	_ cacheLine

	h        *HCA
	num      ib.QPN
	typ      QPType
	services qpTypeSet
	state    State
	dead     bool
	sigAll   bool
	commEst  bool
	onReady  bool
	parked   bool
	paced    bool // waits until freeAt; see pace
	ipoib    bool // see QPInit
	ackWaits bool // a request went before an acknowledgement that was due
	cnpDue   bool // see cnp.go
	path     path // where packets go now
	mtu      int
	mtuShift uint8    // mtu is 1<<mtuShift
	lrh      wire.LRH // of every packet of a connected queue pair
	bth      wire.BTH
	pd       *PD
	next     *QP // in the ready list
	attr     QPAttr

	// Requester. Requests [sqOldest, sqCursor) are sent at least once and
	// not yet completed, [sqCursor, sqNext) wait; sqPkt packets of the one at
	// the cursor have gone.
	sq       []sendWQE // a ring, which grows
	sqMask   uint32
	sqRoom   uint32 // how many there may be before it has to
	sqOldest uint32
	sqCursor uint32
	sqNext   uint32
	sqPkt    uint32
	segOff   uint32
	seg      int    // gather position of the next packet
	nextPSN  ib.PSN // first PSN of the next new request
	sentPSN  ib.PSN // one past the highest PSN ever sent
	ackPSN   ib.PSN // oldest PSN without acknowledgement
	retry    uint8  // tries left
	rnrRetry uint8
	rewound  bool // a gap in responses was seen, until progress
	drained  bool // SQD: the event has been raised
	draining bool // SQD: and one was asked for
	rdOut    int  // READs and atomics in flight
	sinceAck int  // packets since one asked for an ACK
	burst    int
	rnrUntil ib.Time
	freeAt   ib.Time
	slow     slowing // see Congestion
	roce     *roceQP // nil on InfiniBand
	limit    *limit  // see LimitRate
	ackDue   ib.Time
	timerAt  ib.Time
	// timerLater is a second entry in the timer heap, behind timerAt.
	timerLater ib.Time
	expired    uint32 // local ACK timeouts, ever
	sendCQ     *CQ
	shown      *uint32 // see Show

	// Responder.
	resp     []respItem // a ring, which grows
	respHead uint32
	respTail uint32
	ePSN     ib.PSN
	msn      uint32
	rdQueued int // READ and atomic responses not yet sent
	nakSent  bool
	early    *early // nil if nothing came before its turn
	tellBECN bool   // the peer is to hear that its packets met congestion
	cnps     []cnpTo
	msgOp    respMsg
	curDone  uint32
	curPD    *PD
	cur      *recvWQE // receive being filled
	fresh    *SRQ     // has cur still, until the packet that needs it is there
	curCQ    *CQ
	writeVA  uint64
	writeKey uint32
	writeLen uint32 // of the whole message
	writeRem uint32
	recvCQ   *CQ
	srq      *SRQ
	xrcd     *XRCD
	rq       recvQueue
	res      []rdRes // replay resources, a ring; nil until the first
	resNext  int
	held     recvWQE // cur, when it came from a shared queue
	heldSGE  []SGE
	heldOf   uint32  // the number of that queue, if it is one of XRC; see WC.xrcSRQ
	tagged   *tagged // of one whose shared queue matches tags

	grh      wire.GRH // of the path, if it is global
	oldPath  path     // where packets went before a migration
	caps     Caps
	blockSMC bool
	lives    uint32 // resets so far

	// Owner is the driver's; the engine ignores it.
	Owner any

	_ cacheLine
}

// path is where a connected queue pair's packets go.
type path struct {
	port   ib.PortNum
	dlid   ib.LID
	slid   ib.LID
	sl     ib.SL
	pkey   ib.PKey
	global bool
	loop   bool     // to ourselves
	rate   mad.Rate // that packets are held back by, or 0
}

// Num is the queue pair number.
func (q *QP) Num() ib.QPN { return q.num }

// Type is the transport service.
func (q *QP) Type() QPType { return q.typ }

// State is the current state.
func (q *QP) State() State { return q.state }

// Caps are the sizes that were granted.
func (q *QP) Caps() Caps { return q.caps }

// Outstanding is how many send requests have not completed.
func (q *QP) Outstanding() int { return int(q.sqNext - q.sqOldest) }

// Show keeps Outstanding in a word for somebody who looks at it without asking; nil ends it.
func (q *QP) Show(at *uint32) {
	q.shown = at
	q.show()
}

func (q *QP) show() {
	if q.shown != nil {
		*q.shown = q.sqNext - q.sqOldest
	}
}

// RecvPosted is how many receives wait in the queue pair's own queue.
func (q *QP) RecvPosted() int { return q.rq.len() }

func (q *QP) isUD() bool { return q.services&onUD != 0 }
func (q *QP) isRC() bool { return q.typ == RC || q.typ == XRCSend || q.typ == XRCRecv }

// CreateQP makes a queue pair in RESET.
func (h *HCA) CreateQP(init QPInit) (*QP, error) {
	const verb = "create_qp"
	if init.Type >= NumQPType {
		return nil, badAttr(verb, "qp_type", init.Type, "RC, UC, UD, XRC_SEND, XRC_RECV, SMI or GSI")
	}
	c, l := init.Caps, h.cfg.Limits
	if init.Type == XRCRecv {
		if init.XRCD == nil || init.XRCD.dead || init.XRCD.h != h {
			return nil, badAttr(verb, "xrcd", init.XRCD, "a live XRC domain of this device")
		}
		if init.PD != nil {
			if err := h.checkPD(verb, init.PD); err != nil {
				return nil, err
			}
		}
		// A target has neither send nor receive queue of its own.
		init.SendCQ, init.RecvCQ, init.SRQ, c = nil, nil, nil, Caps{}
	} else {
		if err := h.checkPD(verb, init.PD); err != nil {
			return nil, err
		}
		if init.SendCQ == nil || init.SendCQ.dead || init.SendCQ.h != h {
			return nil, badAttr(verb, "send_cq", init.SendCQ, "a live completion queue of this device")
		}
		if init.Type == XRCSend {
			init.RecvCQ, init.SRQ, c.MaxRecvWR, c.MaxRecvSGE = nil, nil, 0, 0
		} else if init.RecvCQ == nil || init.RecvCQ.dead || init.RecvCQ.h != h {
			return nil, badAttr(verb, "recv_cq", init.RecvCQ, "a live completion queue of this device")
		}
	}
	if init.SRQ != nil {
		if init.SRQ.dead || init.SRQ.h != h || init.SRQ.xrcd != nil {
			return nil, badAttr(verb, "srq", init.SRQ.num, "a live basic shared receive queue of this device")
		}
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0
		if init.SRQ.tags != nil {
			if init.Type != RC {
				return nil, badAttr(verb, "qp_type", init.Type, "RC where tags are matched")
			}
			// The send queue is the shared queue's own, for what is fetched.
			init.SendCQ, init.RecvCQ, init.SigAll = init.SRQ.cq, init.SRQ.cq, false
			c = Caps{MaxSendWR: min(2*init.SRQ.tags.most, l.MaxQPWR), MaxSendSGE: init.SRQ.tags.maxSGE,
				MaxInline: tmhSize + rvhSize}
		}
	}
	for _, f := range []struct {
		attr     string
		got, max int
	}{
		{"cap.max_send_wr", c.MaxSendWR, l.MaxQPWR},
		{"cap.max_recv_wr", c.MaxRecvWR, l.MaxQPWR},
		{"cap.max_send_sge", c.MaxSendSGE, l.MaxSGE},
		{"cap.max_recv_sge", c.MaxRecvSGE, l.MaxSGE},
		{"cap.max_inline_data", c.MaxInline, l.MaxInline},
	} {
		if f.got < 0 || f.got > f.max {
			return nil, badAttr(verb, f.attr, f.got, fmt.Sprintf("0 to %d", f.max))
		}
	}
	q := &QP{
		h: h, typ: init.Type, services: qpTypes[init.Type].ops, pd: init.PD, sendCQ: init.SendCQ, recvCQ: init.RecvCQ,
		srq: init.SRQ, xrcd: init.XRCD, caps: c, sigAll: init.SigAll, blockSMC: init.BlockSelfMC, ipoib: init.IPoIB,
		Owner: init.Owner,
	}
	if err := h.numberQP(q); err != nil {
		return nil, err
	}
	if q.srq != nil && q.srq.tags != nil {
		q.tagged, q.services = &tagged{}, 0
	}
	q.rq = recvQueue{cap: c.MaxRecvWR, maxSGE: c.MaxRecvSGE}
	if q.pd != nil {
		q.pd.users++
	}
	for _, cq := range []*CQ{q.sendCQ, q.recvCQ} {
		if cq != nil {
			cq.users++
		}
	}
	if q.srq != nil {
		q.srq.users++
	}
	if q.xrcd != nil {
		q.xrcd.users++
	}
	q.reset()
	h.qpCounts[q.typ][q.state]++
	return q, nil
}

func (h *HCA) numberQP(q *QP) error {
	switch q.typ {
	case SMI, GSI:
		q.num = ib.QPNSMI
		if q.typ == GSI {
			q.num = ib.QPNGSI
		}
		if h.special[q.num] != nil {
			return attrErr(ErrBusy, "create_qp", "qp_type", q.typ, "no other "+q.typ.String()+" queue pair")
		}
		h.special[q.num] = q
		return nil
	}
	// Numbers rest in a FIFO before they come back, so that packets of a dead
	// connection do not meet its successor at once.
	if len(h.qps)-len(h.qpFree) >= h.cfg.Limits.MaxQP {
		return attrErr(ErrNoMemory, "create_qp", "qp", len(h.qps), "fewer queue pairs")
	}
	if len(h.qpFree) > 64 || len(h.qps) >= h.cfg.Limits.MaxQP {
		q.num = h.qpFree[0]
		h.qpFree = h.qpFree[1:]
		h.qps[q.num-h.cfg.FirstQPN] = q
		return nil
	}
	q.num = h.cfg.FirstQPN + ib.QPN(len(h.qps))
	h.qps = append(h.qps, q)
	return nil
}

// DestroyQP frees a queue pair. Its completions that nobody polled go too.
func (h *HCA) DestroyQP(q *QP) error {
	if q == nil || q.dead {
		return attrErr(ErrDestroyed, "destroy_qp", "qp", q, "a live queue pair")
	}
	for i := range h.mcast {
		for _, m := range h.mcast[i].qps {
			if m == q {
				return attrErr(ErrBusy, "destroy_qp", "qp", q.num, "detached from its multicast groups")
			}
		}
	}
	q.abandonHeld()
	q.giveUp()
	q.reset()
	h.qpCounts[q.typ][q.state]--
	q.state = StateReset
	q.dead, q.shown = true, nil
	h.ready.remove(q)
	if q.num < 2 {
		h.special[q.num] = nil
	} else {
		h.qps[q.num-h.cfg.FirstQPN] = nil
		h.qpFree = append(h.qpFree, q.num)
	}
	for _, cq := range []*CQ{q.sendCQ, q.recvCQ} {
		if cq != nil {
			cq.purge(q.num, 0)
			cq.users--
		}
	}
	if q.pd != nil {
		q.pd.users--
	}
	if q.srq != nil {
		q.srq.users--
	}
	if q.xrcd != nil {
		q.xrcd.users--
	}
	h.unbindWindows(q)
	return nil
}

// unbindWindows closes the type 2 windows that open for q alone.
func (h *HCA) unbindWindows(q *QP) {
	for _, r := range h.keys.regions {
		if r.mw != nil && r.qp == q {
			r.mw.unbind()
		}
	}
}

// reset clears everything but identity and sizes.
func (q *QP) reset() {
	q.h.withdrawn = true
	q.lives++
	q.attr = QPAttr{PathMigState: Migrated}
	q.path, q.oldPath = path{}, path{}
	q.setMTU(0)
	q.lrh, q.bth = wire.LRH{}, wire.BTH{}
	q.commEst, q.parked, q.paced, q.burst, q.timerAt, q.timerLater = false, false, false, 0, ib.Never, ib.Never
	q.freeAt = -ib.Never // nothing was sent: no time is too early
	q.sqOldest, q.sqCursor, q.sqNext, q.sqPkt, q.seg, q.segOff = 0, 0, 0, 0, 0, 0
	q.nextPSN, q.sentPSN, q.ackPSN = 0, 0, 0
	q.rdOut, q.sinceAck, q.rnrUntil, q.ackDue = 0, 0, 0, ib.Never
	q.rewound, q.drained, q.draining = false, false, false
	q.rq.head, q.rq.tail = 0, 0
	q.ePSN, q.msn, q.nakSent, q.msgOp = 0, 0, false, msgNone
	q.cur, q.fresh, q.curPD, q.curCQ, q.curDone = nil, nil, nil, nil, 0
	q.respHead, q.respTail, q.resNext, q.rdQueued = 0, 0, 0, 0
	q.resp, q.res = nil, nil
	q.forgetEarly()
	q.slow, q.limit, q.tellBECN = slowing{}, nil, false
	q.forgetCNPs()
	if q.roce = nil; q.h.cfg.RoCE.On {
		q.roce = new(roceQP)
	}
	q.show()
}

// transition moves the state machine. Which moves a user may ask for is
// qptable.go's business; any that is not in IBA figure 124 is a bug here.
func (q *QP) transition(to State) {
	legal := to == StateReset || to == StateErr
	switch q.state {
	case StateReset:
		legal = legal || to == StateInit
	case StateInit:
		legal = legal || to == StateInit || to == StateRTR
	case StateRTR:
		legal = legal || to == StateRTS
	case StateRTS, StateSQD:
		legal = legal || to == StateRTS || to == StateSQD || to == StateSQE
	case StateSQE:
		legal = legal || to == StateRTS
	}
	if !legal {
		panic(fmt.Sprintf("hca: QP %v: illegal transition %v to %v", q.num, q.state, to))
	}
	q.setState(to)
	q.h.withdrawn = true
}

func (q *QP) setState(to State) {
	q.h.qpCounts[q.typ][q.state]--
	q.h.qpCounts[q.typ][to]++
	q.state = to
}

// toError moves to ERR and flushes both queues in order.
func (q *QP) toError() {
	if q.state == StateErr {
		return
	}
	q.transition(StateErr)
	q.ackDue, q.rnrUntil, q.paced = ib.Never, 0, false
	q.forgetCNPs()
	q.respHead, q.respTail, q.rdQueued = 0, 0, 0
	q.abandonHeld()
	q.forgetEarly()
	q.flushSend()
	q.flushRecv()
	if q.srq != nil {
		q.h.events.push(Event{Type: EventQPLastWQEReached, QP: q})
	}
}

// flushSend completes every send request that is left with WR_FLUSH_ERR.
func (q *QP) flushSend() {
	q.giveUp()
	for q.sqOldest != q.sqNext {
		w := &q.sq[q.sqOldest&q.sqMask]
		q.completeSend(w, WCWRFlushErr)
		q.sqOldest++
	}
	q.sqCursor, q.sqPkt, q.rdOut = q.sqNext, 0, 0
	q.ackPSN = q.sentPSN
	q.show()
}

// giveUp notes that requests under way will not be finished.
func (q *QP) giveUp() {
	if q.h.cfg.ByRefMin > 0 && q.isRC() && q.sqOldest != q.sqNext && q.sq[q.sqOldest&q.sqMask].started {
		q.h.abort(q)
	}
}

// flushRecv completes every posted receive with WR_FLUSH_ERR.
func (q *QP) flushRecv() {
	for w := q.rq.peek(); w != nil; w = q.rq.peek() {
		q.completeRecv(q.recvCQ, w.wrID, WCWRFlushErr)
		q.rq.head++
	}
}

// abandonHeld completes a receive that was taken from a shared queue for a
// message that will not end.
func (q *QP) abandonHeld() {
	if q.cur == &q.held && q.curCQ != nil {
		q.completeRecv(q.curCQ, q.held.wrID, WCWRFlushErr)
	}
	q.cur, q.msgOp = nil, msgNone
}

// completeSend reports the end of a send request: always if it failed, else
// if it asked for it.
func (q *QP) completeSend(w *sendWQE, status WCStatus) {
	if status == WCSuccess && !q.sigAll && w.flags&SendSignaled == 0 {
		return
	}
	if status != WCSuccess {
		q.h.Stats.CompletionErrors++
		q.h.Stats.SendErrors[status]++
	}
	c := q.sendCQ.slot()
	if c == nil {
		q.cqBroken()
		return
	}
	row := &wrTable[w.op]
	c.WRID, c.Status, c.Opcode, c.QPN = w.wrID, status, row.wc, q.num
	if status == WCSuccess {
		c.ByteLen, c.Flags = w.length, row.flags
	}
	q.sendCQ.commit(q.h.now, status != WCSuccess)
}

// completeRecv reports a receive that failed.
func (q *QP) completeRecv(cq *CQ, wrID uint64, status WCStatus) {
	q.h.Stats.CompletionErrors++
	q.h.Stats.RecvErrors[status]++
	c := cq.slot()
	if c == nil {
		return
	}
	c.WRID, c.Status, c.Opcode, c.QPN, c.VendorErr = wrID, status, WCRecv, q.num, q.heldOf
	cq.commit(q.h.now, true)
}

// cqBroken stops a queue pair whose completion queue has overflowed: its
// completions would be lost (IBA 10.8.2.2).
func (q *QP) cqBroken() {
	if q.state != StateErr && q.state != StateReset {
		q.h.events.push(Event{Type: EventQPFatal, QP: q})
		q.transition(StateErr)
		q.ackDue, q.rnrUntil, q.paced = ib.Never, 0, false
		q.respHead, q.respTail, q.rdQueued = 0, 0, 0
		q.abandonHeld()
		q.flushRecv()
		if q.srq != nil {
			q.h.events.push(Event{Type: EventQPLastWQEReached, QP: q})
		}
	}
}
