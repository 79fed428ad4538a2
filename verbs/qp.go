package verbs

import (
	"errors"
	"slices"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
)

// QPInit says what a queue pair shall be: ibv_qp_init_attr.
type QPInit struct {
	Type           QPType
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // takes the place of the receive queue
	XRCD           *XRCD
	Caps           Caps
	SigAll         bool // every request is signaled
	BlockSelfMC    bool // a datagram sender does not hear its own multicasts
	IPoIB          bool // it is part of a network: counters and the doctor take what it carries for IP
}

// QP is a queue pair: ibv_qp.
type QP struct {
	ctx *Context
	qp  *hca.QP
	// groups is what AttachMcast has attached; the device's lock guards it.
	groups []group
}

type group struct {
	gid ib.GID
	lid ib.LID
}

// CreateQP makes a queue pair in StateReset: ibv_create_qp.
func (p *PD) CreateQP(init QPInit) (*QP, error) { return p.ctx.createQP(p.pd, init) }

// CreateQP makes an XRC target, which belongs to an XRC domain and to no
// protection domain.
func (x *XRCD) CreateQP(init QPInit) (*QP, error) {
	init.Type, init.XRCD = XRCRecv, x
	return x.ctx.createQP(nil, init)
}

func (c *Context) createQP(pd *hca.PD, init QPInit) (*QP, error) {
	i := hca.QPInit{Type: hca.QPType(init.Type), PD: pd, Caps: hca.Caps(init.Caps), SigAll: init.SigAll,
		BlockSelfMC: init.BlockSelfMC, IPoIB: init.IPoIB}
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
		return nil, refused(err)
	}
	return add(c, q, &QP{ctx: c, qp: q}), nil
}

// Num is the queue pair number, by which peers name it.
func (q *QP) Num() ib.QPN { return q.qp.Num() }

// Type is the transport service.
func (q *QP) Type() QPType { return QPType(q.qp.Type()) }

// Caps are the sizes that were granted, at least what was asked for.
func (q *QP) Caps() Caps { return Caps(q.qp.Caps()) }

// Modify sets the attributes that mask names: ibv_modify_qp. Connect and Ready do what most programs need of it.
func (q *QP) Modify(a QPAttr, mask AttrMask) error {
	if mask&MaskState != 0 {
		q.ctx.dev.TakeIn(a.State == StateErr || a.State == StateReset)
	}
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return refused(h.ModifyQP(q.qp, *(*hca.QPAttr)(unsafe.Pointer(&a)), hca.AttrMask(mask)))
}

// Query returns attributes and state: ibv_query_qp.
func (q *QP) Query() (QPAttr, error) {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	a, err := h.QueryQP(q.qp)
	return *(*QPAttr)(unsafe.Pointer(&a)), refused(err)
}

// State is the current state.
func (q *QP) State() State {
	q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	return State(q.qp.State())
}

// PostSend posts a request: ibv_post_send. It does not block and does not
// allocate; wr and its list may be reused at once, but not the memory that the list names.
func (q *QP) PostSend(wr *SendWR) error {
	h := q.ctx.dev.Enter()
	err := h.PostSend(q.qp, sendRequest(wr))
	q.ctx.dev.Leave()
	return refused(err)
}

// PostSends posts requests in order until one is refused, and returns how many
// were taken.
func (q *QP) PostSends(wrs []SendWR) (int, error) {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	for i := range wrs {
		if err := h.PostSend(q.qp, sendRequest(&wrs[i])); err != nil {
			return i, refused(err)
		}
	}
	return len(wrs), nil
}

// PostRecv posts a receive: ibv_post_recv. wr and its list may be reused at once.
func (q *QP) PostRecv(wr *RecvWR) error {
	h := q.ctx.dev.Enter()
	err := h.PostRecv(q.qp, recvRequest(wr))
	q.ctx.dev.LeaveQuiet()
	return refused(err)
}

// PostRecvs posts receives in order until one is refused, and returns how many were taken.
func (q *QP) PostRecvs(wrs []RecvWR) (int, error) {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.LeaveQuiet()
	for i := range wrs {
		if err := h.PostRecv(q.qp, recvRequest(&wrs[i])); err != nil {
			return i, refused(err)
		}
	}
	return len(wrs), nil
}

// AttachMcast makes a datagram queue pair get what is sent to a group: ibv_attach_mcast. The port has to be a member
// of the group: see JoinMulticast.
func (q *QP) AttachMcast(gid ib.GID, lid ib.LID) error {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	if err := h.AttachMcast(q.qp, gid, lid); err != nil {
		return refused(err)
	}
	if g := (group{gid, lid}); !slices.Contains(q.groups, g) {
		q.groups = append(q.groups, g)
	}
	return nil
}

// DetachMcast ends that: ibv_detach_mcast.
func (q *QP) DetachMcast(gid ib.GID, lid ib.LID) error {
	h := q.ctx.dev.Enter()
	defer q.ctx.dev.Leave()
	if err := h.DetachMcast(q.qp, gid, lid); err != nil {
		return refused(err)
	}
	q.groups = slices.DeleteFunc(q.groups, func(g group) bool { return g == group{gid, lid} })
	return nil
}

func (q *QP) detachAll() error {
	q.ctx.dev.Enter()
	groups := slices.Clone(q.groups)
	q.ctx.dev.LeaveQuiet()
	var errs error
	for _, g := range groups {
		errs = errors.Join(errs, q.DetachMcast(g.gid, g.lid))
	}
	return errs
}

// Close destroys the queue pair, which must not be in a multicast group any more. What was posted goes without a
// completion; to see completions of everything, modify to StateErr before and poll.
func (q *QP) Close() error {
	q.ctx.dev.TakeIn(true)
	return free(q.ctx, q.qp, (*hca.HCA).DestroyQP)
}

// Info is what a peer needs to know to connect. It is plain data, and goes through encoding/json or a format of the
// program's own.
type Info struct {
	LID  ib.LID     // of the port; 0 on Ethernet
	GID  ib.GID     // of the port, its first; for peers that know hosts by it
	QPN  ib.QPN     // of the queue pair
	PSN  ib.PSN     // the first that the queue pair will send
	Port ib.PortNum // of its own adapter
	MTU  ib.MTU     // of the port
}

// Info is this end's part of a connection, on the given port and with the
// first PSN that it will send.
func (q *QP) Info(port ib.PortNum, psn ib.PSN) (Info, error) {
	p, err := q.ctx.QueryPort(port)
	if err != nil {
		return Info{}, err
	}
	i := Info{LID: p.LID, QPN: q.Num(), PSN: psn, Port: port, MTU: p.MTU}
	if len(p.GIDs) > 0 {
		i.GID = p.GIDs[0]
	}
	return i, nil
}

// defaultHops is IP's usual hop limit.
const defaultHops = 64

// ConnectOpts are the attributes of a connection that Connect sets beside
// what the two Infos say.
type ConnectOpts struct {
	Access      Access // what the peer may do with memory that is open for it
	MTU         ib.MTU // the smaller of both ports' if 0
	SL          ib.SL
	PKeyIndex   uint16 // see Port.PKeyIndex
	Timeout     uint8  // for an acknowledgement: 4.096 µs · 2^n; 0 waits for ever
	RetryCnt    uint8  // tries after that, 0 to 7, before WCRetryExcErr
	RNRRetry    uint8  // tries while the peer has no receive, 0 to 6, before WCRNRRetryExcErr; 7 is without end
	MinRNRTimer uint8  // how long peers wait that find no receive here, as a code
	MaxRDAtomic uint8  // reads and atomics under way at once, in each direction
	Router      ib.LID // that leads to the peer, where that is in another subnet; 0 where it is in this one
}

// DefaultConnect are the values that perftest uses.
var DefaultConnect = ConnectOpts{
	Access:  AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessLocalWrite,
	Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRDAtomic: 16,
}

// Connect takes an RC or UC queue pair, or either kind of XRC, from StateReset to StateRTS towards a peer, which does
// the same with the two Infos the other way around. What is sent before the peer has done so is lost, and tried again
// by a reliable connection.
func (q *QP) Connect(self, peer Info, o ConnectOpts) error {
	t := q.Type()
	init := QPAttr{State: StateInit, Port: self.Port, PKeyIndex: o.PKeyIndex, Access: o.Access}
	if err := q.Modify(init, MaskState|MaskPort|MaskPKeyIndex|MaskAccess); err != nil {
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
	if o.Router != 0 {
		rtr.AH.DLID = o.Router
	}
	if o.Router != 0 || peer.LID == 0 { // it is known by its GID alone
		rtr.AH.IsGlobal, rtr.AH.DGID, rtr.AH.HopLimit = true, peer.GID, defaultHops
	}
	mask := MaskState | MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN
	if t == RC || t == XRCRecv {
		mask |= MaskMaxDestRD | MaskMinRNRTimer
	}
	if err := q.Modify(rtr, mask); err != nil {
		return err
	}
	rts := QPAttr{
		State: StateRTS, SQPSN: self.PSN, Timeout: o.Timeout, RetryCnt: o.RetryCnt, RNRRetry: o.RNRRetry,
		MaxRDAtomic: o.MaxRDAtomic,
	}
	mask = MaskState | MaskSQPSN
	switch t {
	case RC, XRCSend:
		mask |= MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskMaxRDAtomic
	case XRCRecv:
		mask |= MaskTimeout
	}
	return q.Modify(rts, mask)
}

// Ready takes a UD queue pair from StateReset to StateRTS. It takes datagrams that have the same Q_Key.
func (q *QP) Ready(port ib.PortNum, pkeyIndex uint16, qkey ib.QKey) error {
	steps := []struct {
		a QPAttr
		m AttrMask
	}{
		{QPAttr{State: StateInit, Port: port, PKeyIndex: pkeyIndex, QKey: qkey},
			MaskState | MaskPort | MaskPKeyIndex | MaskQKey},
		{QPAttr{State: StateRTR}, MaskState},
		{QPAttr{State: StateRTS}, MaskState | MaskSQPSN},
	}
	for _, s := range steps {
		if err := q.Modify(s.a, s.m); err != nil {
			return err
		}
	}
	return nil
}
