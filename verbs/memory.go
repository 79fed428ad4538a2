package verbs

import "softib/node/hca"

// MR is registered memory: ibv_mr.
type MR struct {
	ctx *Context
	mr  *hca.MR
}

// RegMR registers mem: ibv_reg_mr. Peers and work requests name it by Addr, LKey and RKey. The memory belongs to the
// adapter as well until Close: it must not be garbage to the program before, and what peers may write changes whenever
// they like.
func (p *PD) RegMR(mem []byte, access Access) (*MR, error) {
	return p.RegMRAt(mem, p.ctx.dev.Address(mem), access)
}

// RegMRAt registers mem under an address of the caller's choice: ibv_reg_mr_iova.
func (p *PD) RegMRAt(mem []byte, addr uint64, access Access) (*MR, error) {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	mr, err := h.RegMR(p.pd, mem, addr, hca.Access(access))
	if err != nil {
		return nil, refused(err)
	}
	return add(p.ctx, mr, &MR{p.ctx, mr}), nil
}

// Close deregisters the memory. Keys that were given out stop working at once, and nobody writes to it any more.
func (m *MR) Close() error { return free(m.ctx, m.mr, (*hca.HCA).DeregMR) }

// Rereg changes domain, memory or rights; nil leaves a part as it is: ibv_rereg_mr.
func (m *MR) Rereg(pd *PD, mem []byte, access *Access) error {
	h := m.ctx.dev.Enter()
	defer m.ctx.dev.Leave()
	var p *hca.PD
	if pd != nil {
		p = pd.pd
	}
	return refused(h.ReregMR(m.mr, p, mem, m.ctx.dev.Address(mem), (*hca.Access)(access)))
}

// LKey opens the memory for local work requests.
func (m *MR) LKey() uint32 { return m.mr.LKey() }

// RKey opens the memory for peers.
func (m *MR) RKey() uint32 { return m.mr.RKey() }

// Addr is the address of the first byte in work requests, of this program and of peers.
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

// MWType tells the two kinds of memory window apart (IBA 10.6.7).
type MWType uint8

// Window types.
const (
	MWType1 MWType = 1 // opens for every queue pair of its domain
	MWType2 MWType = 2 // opens for the queue pair that bound it; peers can close it (2B)
)

// MW is a memory window: a part of a region that is opened and closed by work requests, with a key of its own.
type MW struct {
	ctx *Context
	mw  *hca.MW
}

// AllocMW makes an unbound window: ibv_alloc_mw.
func (p *PD) AllocMW(t MWType) (*MW, error) {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	w, err := h.AllocMW(p.pd, hca.MWType(t))
	if err != nil {
		return nil, refused(err)
	}
	return add(p.ctx, w, &MW{p.ctx, w}), nil
}

// RKey opens the window for peers, once it is bound.
func (w *MW) RKey() uint32 {
	w.ctx.dev.Enter()
	defer w.ctx.dev.Leave()
	return w.mw.RKey()
}

// BindInfo is what a WRBindMW request is to open: MW.Bind makes it.
type BindInfo struct {
	bind hca.BindInfo // first: see SendWR
}

// Bind is what a WRBindMW request carries to open n bytes at off of mr. The window gets the key rkey: the one that it
// has, with the lowest byte chosen by the caller. A type 1 window gets its next key if rkey is 0.
func (w *MW) Bind(mr *MR, off, n int, access Access, rkey uint32) *BindInfo {
	return &BindInfo{hca.BindInfo{MW: w.mw, MR: mr.mr, Addr: mr.mr.Addr() + uint64(off), Length: uint64(n),
		Access: hca.Access(access), RKey: rkey}}
}

// Close frees the window, bound or not.
func (w *MW) Close() error { return free(w.ctx, w.mw, (*hca.HCA).DeallocMW) }
