package verbs

import (
	"softib/node/hca"
	"softib/proto/ib"
)

// DefaultCaps are sizes that suit most programs.
var DefaultCaps = Caps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}

// QPInit says what a queue pair shall be.
type QPInit struct {
	Type           QPType
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ
	XRCD           *XRCD
	Caps           Caps
	SigAll         bool
	BlockSelfMC    bool
}

// QP is a queue pair.
type QP struct {
	ctx *Context
	qp  *hca.QP
}

// CreateQP makes a queue pair in RESET.
func (p *PD) CreateQP(init QPInit) (*QP, error) { return p.ctx.createQP(p.pd, init) }

// CreateQP makes an XRC target, which belongs to an XRC domain and to no
// protection domain.
func (x *XRCD) CreateQP(init QPInit) (*QP, error) {
	init.Type, init.XRCD = XRCRecv, x
	return x.ctx.createQP(nil, init)
}

func (c *Context) createQP(pd *hca.PD, init QPInit) (*QP, error) {
	i := hca.QPInit{Type: init.Type, PD: pd, Caps: init.Caps, SigAll: init.SigAll, BlockSelfMC: init.BlockSelfMC}
	if init.SendCQ != nil {
		i.SendCQ = init.SendCQ.cq
	}
	if init.RecvCQ != nil {
		i.RecvCQ = init.RecvCQ.cq
	}
	if init.SRQ != nil {
		i.SRQ = init.SRQ.srq
	}
	if init.XRCD != nil {
		i.XRCD = init.XRCD.x
	}
	h := c.dev.Enter()
	defer c.dev.Leave()
	q, err := h.CreateQP(i)
	if err != nil {
		return nil, err
	}
	return &QP{c, q}, nil
}

// Num is the queue pair number.
func (q *QP) Num() ib.QPN { return q.qp.Num() }

// Modify sets the attributes that mask names: ibv_modify_qp.
func (q *QP) Modify(a QPAttr, mask AttrMask) error {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return h.ModifyQP(q.qp, a, mask)
}

// Query returns attributes and state.
func (q *QP) Query() (QPAttr, error) {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return h.QueryQP(q.qp)
}

// State is the current state.
func (q *QP) State() State {
	q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return q.qp.State()
}

// PostSend posts a request: ibv_post_send. It does not block and does not
// allocate; wr and its list may be reused at once.
func (q *QP) PostSend(wr *SendWR) error {
	h := q.ctx.dev.Enter()
	err := h.PostSend(q.qp, wr)
	q.ctx.dev.Leave()
	return err
}

// PostSends posts requests in order until one is refused, and returns how many
// were taken.
func (q *QP) PostSends(wrs []SendWR) (int, error) {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	for i := range wrs {
		if err := h.PostSend(q.qp, &wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// PostRecv posts a receive: ibv_post_recv.
func (q *QP) PostRecv(wr *RecvWR) error {
	h := q.ctx.dev.Enter()
	err := h.PostRecv(q.qp, wr)
	q.ctx.dev.LeaveQuiet()
	return err
}

// AttachMcast makes a datagram queue pair a member of a group.
func (q *QP) AttachMcast(gid ib.GID, lid ib.LID) error {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return h.AttachMcast(q.qp, gid, lid)
}

// DetachMcast ends a membership.
func (q *QP) DetachMcast(gid ib.GID, lid ib.LID) error {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return h.DetachMcast(q.qp, gid, lid)
}

// Close destroys the queue pair.
func (q *QP) Close() error {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return h.DestroyQP(q.qp)
}

// Info is what a peer needs to know to connect.
type Info struct {
	LID  ib.LID
	QPN  ib.QPN
	PSN  ib.PSN
	Port ib.PortNum
	MTU  ib.MTU
}

// Info is this end's part of a connection, on the given port and with the
// first PSN that it will send.
func (q *QP) Info(port ib.PortNum, psn ib.PSN) (Info, error) {
	p, err := q.ctx.QueryPort(port)
	if err != nil {
		return Info{}, err
	}
	return Info{LID: p.LID, QPN: q.Num(), PSN: psn, Port: port, MTU: p.MTU}, nil
}

// ConnectOpts are the attributes of a connection that Connect sets beside
// what the two Infos say.
type ConnectOpts struct {
	Access      Access
	MTU         ib.MTU // the smaller of both ports' if 0
	SL          ib.SL
	PKeyIndex   uint16
	Timeout     uint8
	RetryCnt    uint8
	RNRRetry    uint8
	MinRNRTimer uint8
	MaxRDAtomic uint8
}

// DefaultConnect are the values that perftest uses.
var DefaultConnect = ConnectOpts{
	Access:  AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessLocalWrite,
	Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRDAtomic: 16,
}

// Connect takes an RC or UC queue pair, or either kind of XRC, from RESET to RTS
// towards a peer.
func (q *QP) Connect(self, peer Info, o ConnectOpts) error {
	t := q.qp.Type()
	init := QPAttr{State: StateInit, Port: self.Port, PKeyIndex: o.PKeyIndex, Access: o.Access}
	if err := q.Modify(init, hca.MaskState|hca.MaskPort|hca.MaskPKeyIndex|hca.MaskAccess); err != nil {
		return err
	}
	mtu := o.MTU
	if mtu == 0 {
		mtu = min(self.MTU, peer.MTU)
	}
	rtr := QPAttr{
		State: StateRTR, PathMTU: mtu, DestQPN: peer.QPN, RQPSN: peer.PSN, MaxDestRD: o.MaxRDAtomic,
		MinRNRTimer: o.MinRNRTimer,
		AH:          AHAttr{DLID: peer.LID, SL: o.SL, Port: self.Port},
	}
	mask := hca.MaskState | hca.MaskAV | hca.MaskPathMTU | hca.MaskDestQPN | hca.MaskRQPSN
	if t == RC || t == XRCRecv {
		mask |= hca.MaskMaxDestRD | hca.MaskMinRNRTimer
	}
	if err := q.Modify(rtr, mask); err != nil {
		return err
	}
	rts := QPAttr{
		State: StateRTS, SQPSN: self.PSN, Timeout: o.Timeout, RetryCnt: o.RetryCnt, RNRRetry: o.RNRRetry,
		MaxRDAtomic: o.MaxRDAtomic,
	}
	mask = hca.MaskState | hca.MaskSQPSN
	switch t {
	case RC, XRCSend:
		mask |= hca.MaskTimeout | hca.MaskRetryCnt | hca.MaskRNRRetry | hca.MaskMaxRDAtomic
	case XRCRecv:
		mask |= hca.MaskTimeout
	}
	return q.Modify(rts, mask)
}

// Ready takes a UD queue pair from RESET to RTS.
func (q *QP) Ready(port ib.PortNum, pkeyIndex uint16, qkey ib.QKey) error {
	steps := []struct {
		a QPAttr
		m AttrMask
	}{
		{QPAttr{State: StateInit, Port: port, PKeyIndex: pkeyIndex, QKey: qkey},
			hca.MaskState | hca.MaskPort | hca.MaskPKeyIndex | hca.MaskQKey},
		{QPAttr{State: StateRTR}, hca.MaskState},
		{QPAttr{State: StateRTS}, hca.MaskState | hca.MaskSQPSN},
	}
	for _, s := range steps {
		if err := q.Modify(s.a, s.m); err != nil {
			return err
		}
	}
	return nil
}
