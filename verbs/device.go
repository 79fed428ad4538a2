package verbs

import (
	"context"

	"softib/node/hca"
	"softib/proto/ib"
)

// Device is an adapter that somebody drives. Its driver gives out the engine for
// one call at a time.
type Device interface {
	// Name is the device's name, such as h1.
	Name() string
	// Enter gives exclusive use of the engine until Leave.
	Enter() *hca.HCA
	// Leave gives the engine back; what was posted gets under way.
	Leave()
	// LeaveQuiet gives the engine back after a call that put nothing under way,
	// such as posting a receive.
	LeaveQuiet()
	// Poll moves arrived completions of cq to out. It also does what has to be
	// done for them to arrive, so a caller may spin on it.
	Poll(cq *hca.CQ, out []WC) int
	// WaitCQ sleeps until cq's completion event comes. The queue was armed.
	WaitCQ(ctx context.Context, cq *hca.CQ) error
	// WaitEvent sleeps until the next asynchronous event.
	WaitEvent(ctx context.Context) (Event, error)
	// Address is the number under which mem is registered when its owner names none.
	Address(mem []byte) uint64
}

// The types of work requests, completions and attributes are the engine's.
type (
	SendWR    = hca.SendWR
	RecvWR    = hca.RecvWR
	SGE       = hca.SGE
	WC        = hca.WC
	WCStatus  = hca.WCStatus
	WCOpcode  = hca.WCOpcode
	WCFlags   = hca.WCFlags
	WROpcode  = hca.WROpcode
	SendFlags = hca.SendFlags
	Access    = hca.Access
	QPType    = hca.QPType
	State     = hca.State
	Caps      = hca.Caps
	QPAttr    = hca.QPAttr
	AttrMask  = hca.AttrMask
	AHAttr    = hca.AHAttr
	BindInfo  = hca.BindInfo
	MWType    = hca.MWType
	EventType = hca.EventType
	Event     = hca.Event
	AttrError = hca.AttrError
	Limits    = hca.Limits
	Port      = hca.Port
)

// Names of the engine that programs need, as libibverbs has them.
const (
	RC      = hca.RC
	UC      = hca.UC
	UD      = hca.UD
	XRCSend = hca.XRCSend
	XRCRecv = hca.XRCRecv

	StateReset = hca.StateReset
	StateInit  = hca.StateInit
	StateRTR   = hca.StateRTR
	StateRTS   = hca.StateRTS
	StateSQD   = hca.StateSQD
	StateSQE   = hca.StateSQE
	StateErr   = hca.StateErr

	WRRDMAWrite      = hca.WRRDMAWrite
	WRRDMAWriteImm   = hca.WRRDMAWriteImm
	WRSend           = hca.WRSend
	WRSendImm        = hca.WRSendImm
	WRRDMARead       = hca.WRRDMARead
	WRAtomicCmpSwap  = hca.WRAtomicCmpSwap
	WRAtomicFetchAdd = hca.WRAtomicFetchAdd
	WRLocalInv       = hca.WRLocalInv
	WRBindMW         = hca.WRBindMW
	WRSendInv        = hca.WRSendInv

	SendFence     = hca.SendFence
	SendSignaled  = hca.SendSignaled
	SendSolicited = hca.SendSolicited
	SendInline    = hca.SendInline

	AccessLocalWrite   = hca.AccessLocalWrite
	AccessRemoteWrite  = hca.AccessRemoteWrite
	AccessRemoteRead   = hca.AccessRemoteRead
	AccessRemoteAtomic = hca.AccessRemoteAtomic
	AccessMWBind       = hca.AccessMWBind
	AccessZeroBased    = hca.AccessZeroBased

	WCSuccess        = hca.WCSuccess
	WCLocLenErr      = hca.WCLocLenErr
	WCLocQPOpErr     = hca.WCLocQPOpErr
	WCLocProtErr     = hca.WCLocProtErr
	WCWRFlushErr     = hca.WCWRFlushErr
	WCMWBindErr      = hca.WCMWBindErr
	WCBadRespErr     = hca.WCBadRespErr
	WCLocAccessErr   = hca.WCLocAccessErr
	WCRemInvReqErr   = hca.WCRemInvReqErr
	WCRemAccessErr   = hca.WCRemAccessErr
	WCRemOpErr       = hca.WCRemOpErr
	WCRetryExcErr    = hca.WCRetryExcErr
	WCRNRRetryExcErr = hca.WCRNRRetryExcErr
	WCFatalErr       = hca.WCFatalErr
	WCGeneralErr     = hca.WCGeneralErr

	WCSend            = hca.WCSend
	WCRDMAWrite       = hca.WCRDMAWrite
	WCRDMARead        = hca.WCRDMARead
	WCCompSwap        = hca.WCCompSwap
	WCFetchAdd        = hca.WCFetchAdd
	WCBindMW          = hca.WCBindMW
	WCLocalInv        = hca.WCLocalInv
	WCRecv            = hca.WCRecv
	WCRecvRDMAWithImm = hca.WCRecvRDMAWithImm

	WCGRH     = hca.WCGRH
	WCWithImm = hca.WCWithImm
	WCWithInv = hca.WCWithInv

	MWType1 = hca.MWType1
	MWType2 = hca.MWType2
)

// Errors of bad calls, for errors.Is.
var (
	ErrInvalid      = hca.ErrInvalid
	ErrNoMemory     = hca.ErrNoMemory
	ErrBusy         = hca.ErrBusy
	ErrNotSupported = hca.ErrNotSupported
	ErrDestroyed    = hca.ErrDestroyed
	ErrFull         = hca.ErrFull
	ErrState        = hca.ErrState
)

// Context is an opened device: ibv_context.
type Context struct{ dev Device }

// Open opens a device.
func Open(d Device) *Context { return &Context{d} }

// Device is what the context was opened on.
func (c *Context) Device() Device { return c.dev }

// QueryDevice returns the device's limits.
func (c *Context) QueryDevice() Limits {
	h := c.dev.Enter()
	defer c.dev.Leave()
	return h.Limits()
}

// QueryPort returns a port's state and addresses.
func (c *Context) QueryPort(n ib.PortNum) (Port, error) {
	h := c.dev.Enter()
	defer c.dev.Leave()
	p := h.Port(n)
	if p == nil {
		return Port{}, &AttrError{Verb: "query_port", Attr: "port_num", Got: n, Want: "a port of the device",
			Kind: ErrInvalid}
	}
	cp := *p
	cp.GIDs = append([]ib.GID(nil), p.GIDs...)
	cp.PKeys = append([]ib.PKey(nil), p.PKeys...)
	return cp, nil
}

// WaitEvent sleeps until the next asynchronous event, or until ctx ends.
func (c *Context) WaitEvent(ctx context.Context) (Event, error) { return c.dev.WaitEvent(ctx) }

// PD is a protection domain.
type PD struct {
	ctx *Context
	pd  *hca.PD
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	h := c.dev.Enter()
	defer c.dev.Leave()
	pd, err := h.AllocPD()
	if err != nil {
		return nil, err
	}
	return &PD{c, pd}, nil
}

// Close frees the domain.
func (p *PD) Close() error {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	return h.DeallocPD(p.pd)
}

// MR is registered memory.
type MR struct {
	ctx *Context
	mr  *hca.MR
}

// RegMR registers mem. Peers and work requests name it by Addr, LKey and RKey.
// The memory belongs to the adapter as well until Close.
func (p *PD) RegMR(mem []byte, access Access) (*MR, error) {
	return p.RegMRAt(mem, p.ctx.dev.Address(mem), access)
}

// RegMRAt registers mem under an address of the caller's choice (ibv_reg_mr_iova).
func (p *PD) RegMRAt(mem []byte, addr uint64, access Access) (*MR, error) {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	mr, err := h.RegMR(p.pd, mem, addr, access)
	if err != nil {
		return nil, err
	}
	return &MR{p.ctx, mr}, nil
}

// Close deregisters the memory.
func (m *MR) Close() error {
	h := m.ctx.dev.Enter()
	defer m.ctx.dev.Leave()
	return h.DeregMR(m.mr)
}

// Rereg changes domain, memory or rights; nil leaves a part as it is.
func (m *MR) Rereg(pd *PD, mem []byte, access *Access) error {
	h := m.ctx.dev.Enter()
	defer m.ctx.dev.Leave()
	var p *hca.PD
	if pd != nil {
		p = pd.pd
	}
	return h.ReregMR(m.mr, p, mem, m.ctx.dev.Address(mem), access)
}

// LKey opens the memory for local work requests.
func (m *MR) LKey() uint32 { return m.mr.LKey() }

// RKey opens the memory for peers.
func (m *MR) RKey() uint32 { return m.mr.RKey() }

// Addr is the address of the first byte in work requests.
func (m *MR) Addr() uint64 { return m.mr.Addr() }

// Len is the length in bytes.
func (m *MR) Len() int { return m.mr.Len() }

// Bytes is the registered memory.
func (m *MR) Bytes() []byte { return m.mr.Bytes() }

// SGE is the element for n bytes at off.
func (m *MR) SGE(off, n int) SGE {
	return SGE{Addr: m.mr.Addr() + uint64(off), Length: uint32(n), LKey: m.mr.LKey()}
}

// SGEs is a list of the one element for n bytes at off. It allocates: on a
// data path, make the list once.
func (m *MR) SGEs(off, n int) []SGE { return []SGE{m.SGE(off, n)} }

// MW is a memory window.
type MW struct {
	ctx *Context
	mw  *hca.MW
}

// AllocMW makes an unbound window.
func (p *PD) AllocMW(t MWType) (*MW, error) {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	w, err := h.AllocMW(p.pd, t)
	if err != nil {
		return nil, err
	}
	return &MW{p.ctx, w}, nil
}

// RKey opens the window for peers, once it is bound.
func (w *MW) RKey() uint32 {
	w.ctx.dev.Enter()
	defer w.ctx.dev.Leave()
	return w.mw.RKey()
}

// Bind is what a WRBindMW request carries to open n bytes at off of mr.
func (w *MW) Bind(mr *MR, off, n int, access Access, rkey uint32) *BindInfo {
	return &BindInfo{MW: w.mw, MR: mr.mr, Addr: mr.mr.Addr() + uint64(off), Length: uint64(n), Access: access,
		RKey: rkey}
}

// Close frees the window.
func (w *MW) Close() error {
	h := w.ctx.dev.Enter()
	defer w.ctx.dev.Leave()
	return h.DeallocMW(w.mw)
}

// AH is an address handle.
type AH struct {
	ctx *Context
	ah  *hca.AH
}

// CreateAH makes an address handle.
func (p *PD) CreateAH(a AHAttr) (*AH, error) {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	ah, err := h.CreateAH(p.pd, a)
	if err != nil {
		return nil, err
	}
	return &AH{p.ctx, ah}, nil
}

// Handle is what a datagram work request carries.
func (a *AH) Handle() *hca.AH { return a.ah }

// Close frees the handle.
func (a *AH) Close() error {
	h := a.ctx.dev.Enter()
	defer a.ctx.dev.Leave()
	return h.DestroyAH(a.ah)
}

// XRCD is an XRC domain.
type XRCD struct {
	ctx *Context
	x   *hca.XRCD
}

// OpenXRCD makes an XRC domain.
func (c *Context) OpenXRCD() *XRCD {
	h := c.dev.Enter()
	defer c.dev.Leave()
	return &XRCD{c, h.OpenXRCD()}
}

// Close frees the domain.
func (x *XRCD) Close() error {
	h := x.ctx.dev.Enter()
	defer x.ctx.dev.Leave()
	return h.CloseXRCD(x.x)
}
