package hca

import "softib/proto/wire"

// PD is a protection domain.
type PD struct {
	h     *HCA
	num   uint32
	users int
	dead  bool
}

// AllocPD makes a protection domain.
func (h *HCA) AllocPD() (*PD, error) {
	if h.npd >= h.cfg.Limits.MaxPD {
		return nil, attrErr(ErrNoMemory, "alloc_pd", "pd", h.npd, "fewer protection domains")
	}
	h.npd++
	h.pdSeq++
	return &PD{h: h, num: h.pdSeq}, nil
}

// DeallocPD frees a protection domain that nothing uses any more.
func (h *HCA) DeallocPD(pd *PD) error {
	if pd == nil || pd.dead || pd.h != h {
		return attrErr(ErrDestroyed, "dealloc_pd", "pd", pd, "a live protection domain of this device")
	}
	if pd.users > 0 {
		return attrErr(ErrBusy, "dealloc_pd", "pd", pd.users, "no object left in it")
	}
	pd.dead = true
	h.npd--
	return nil
}

func (h *HCA) checkPD(verb string, pd *PD) error {
	if pd == nil || pd.dead || pd.h != h {
		return badAttr(verb, "pd", pd, "a live protection domain of this device")
	}
	return nil
}

// region is memory that a key opens: a memory region or a bound window.
type region struct {
	key    uint32
	valid  bool
	access Access
	va     uint64 // address of mem[0] as work requests and peers name it
	mem    []byte
	pd     *PD
	qp     *QP // a type 2 window opens for its own queue pair only
	mr     *MR
	mw     *MW
	pager  Pager // nil: the memory is always there
	null   bool  // mem is zeros, whatever the address, and is not written to
}

// slice is the memory at [va, va+n), or false if the region does not hold it.
func (r *region) slice(va uint64, n int) ([]byte, bool) {
	off := va - r.va
	if r.null {
		off = 0
	}
	if off > uint64(len(r.mem)) || uint64(n) > uint64(len(r.mem))-off {
		return nil, false
	}
	return r.mem[off : off+uint64(n) : off+uint64(n)], true
}

// keyTable gives out memory keys: an index above, eight varying bits below,
// so that a key that was freed and given out again differs from the old one.
type keyTable struct {
	regions []*region
	free    []uint32
	seed    uint8
	live    int
}

func (t *keyTable) alloc(r *region) {
	t.live++
	t.seed += 0x35
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		r.key = i<<8 | uint32(uint8(t.regions[i].key)+1)
		t.regions[i] = r
		return
	}
	if len(t.regions) == 0 {
		t.regions = append(t.regions, &region{}) // index 0: key 0 never opens anything
	}
	i := uint32(len(t.regions))
	r.key = i<<8 | uint32(t.seed)
	t.regions = append(t.regions, r)
}

func (h *HCA) release(r *region) {
	t := &h.keys
	h.withdrawn = true
	if h.cfg.ByRefMin > 0 {
		h.abortReferring(r)
	}
	i := r.key >> 8
	t.live--
	t.regions[i] = &region{key: r.key}
	t.free = append(t.free, i)
}

// abortReferring finds the queue pairs whose packets on their way may refer to a region: a program may take memory away
// from requests that are not complete.
func (h *HCA) abortReferring(r *region) {
	for _, q := range h.qps {
		if q != nil && q.isRC() && q.refersTo(r) {
			h.abort(q)
		}
	}
}

func (q *QP) refersTo(r *region) bool {
	for i := q.sqOldest; i != q.sqNext; i++ {
		w := &q.sq[i&q.sqMask]
		if !w.started {
			break
		}
		for k := range w.segs {
			if w.segs[k].reg == r && int(w.length) >= q.h.cfg.ByRefMin {
				return true
			}
		}
	}
	return false
}

// lookup finds the region that key opens right now.
func (t *keyTable) lookup(key uint32) *region {
	i := key >> 8
	if int(i) >= len(t.regions) {
		return nil
	}
	r := t.regions[i]
	if r.key != key || !r.valid {
		return nil
	}
	return r
}

// MR is registered memory.
type MR struct {
	h       *HCA
	reg     region
	windows int
	dead    bool
}

// LKey opens the region for local work requests.
func (m *MR) LKey() uint32 { return m.reg.key }

// RKey opens the region for peers, who have nothing of a null region.
func (m *MR) RKey() uint32 {
	if m.reg.null {
		return 0
	}
	return m.reg.key
}

// Addr is the address of the region's first byte in work requests.
func (m *MR) Addr() uint64 { return m.reg.va }

// Len is the region's length.
func (m *MR) Len() int { return len(m.reg.mem) }

// Bytes is the registered memory itself.
func (m *MR) Bytes() []byte { return m.reg.mem }

// Access is what the region allows.
func (m *MR) Access() Access { return m.reg.access }

// RegMR registers mem under the address va.
func (h *HCA) RegMR(pd *PD, mem []byte, va uint64, access Access) (*MR, error) {
	return h.RegOnDemand(pd, mem, va, access, nil)
}

// RegOnDemand registers memory that need not be there: pager is asked before it is touched, each time. It may be a
// whole address space.
func (h *HCA) RegOnDemand(pd *PD, mem []byte, va uint64, access Access, pager Pager) (*MR, error) {
	const verb = "reg_mr"
	if err := h.checkPD(verb, pd); err != nil {
		return nil, err
	}
	if err := checkAccess(verb, access); err != nil {
		return nil, err
	}
	if uint64(len(mem)) > h.cfg.Limits.MaxMRSize && pager == nil {
		return nil, badAttr(verb, "length", len(mem), "at most max_mr_size")
	}
	if va+uint64(len(mem)) < va {
		return nil, badAttr(verb, "addr", va, "a range that does not wrap around")
	}
	if h.keys.live >= h.cfg.Limits.MaxMR {
		return nil, attrErr(ErrNoMemory, verb, "mr", h.keys.live, "fewer regions")
	}
	if access&AccessZeroBased != 0 {
		va = 0
	}
	m := &MR{h: h}
	m.reg = region{valid: true, access: access, va: va, mem: mem, pd: pd, mr: m, pager: pager}
	h.keys.alloc(&m.reg)
	pd.users++
	return m, nil
}

// AllocNullMR makes a region that reads as zeros and drops what is written, at every address, for as many bytes an
// element as zeros has: ibv_alloc_null_mr.
func (h *HCA) AllocNullMR(pd *PD, zeros []byte) (*MR, error) {
	m, err := h.RegMR(pd, zeros, 0, AccessLocalWrite)
	if err == nil {
		m.reg.null = true
	}
	return m, err
}

func checkAccess(verb string, a Access) error {
	if a&^accessAll != 0 {
		return badAttr(verb, "access", a, "known access flags")
	}
	if a&accessNeedsLocal != 0 && a&AccessLocalWrite == 0 {
		return badAttr(verb, "access", a, "LOCAL_WRITE beside REMOTE_WRITE or REMOTE_ATOMIC")
	}
	return nil
}

// ReregMR changes a region's domain, memory or rights; nil and negative values
// leave a part as it was. Its keys change with its memory, and only then: programs go on using them after a change of
// domain or rights.
func (h *HCA) ReregMR(m *MR, pd *PD, mem []byte, va uint64, access *Access) error {
	const verb = "rereg_mr"
	if m == nil || m.dead {
		return attrErr(ErrDestroyed, verb, "mr", m, "a live region")
	}
	if m.reg.null {
		return badAttr(verb, "mr", m, "a region with memory")
	}
	if m.windows > 0 {
		return attrErr(ErrBusy, verb, "mr", m.windows, "no window bound to it")
	}
	if pd != nil {
		if err := h.checkPD(verb, pd); err != nil {
			return err
		}
	}
	if access != nil {
		if err := checkAccess(verb, *access); err != nil {
			return err
		}
	}
	if uint64(len(mem)) > h.cfg.Limits.MaxMRSize {
		return badAttr(verb, "length", len(mem), "at most max_mr_size")
	}
	if mem != nil && va+uint64(len(mem)) < va {
		return badAttr(verb, "addr", va, "a range that does not wrap around")
	}
	h.withdrawn = true
	if pd != nil && pd != m.reg.pd {
		m.reg.pd.users--
		pd.users++
		m.reg.pd = pd
	}
	if access != nil {
		m.reg.access = *access
	}
	if mem != nil {
		h.release(&m.reg)
		m.reg.mem, m.reg.va, m.reg.valid = mem, va, true
		h.keys.alloc(&m.reg)
	}
	return nil
}

// DeregMR frees a region. Keys that were given out stop working at once.
func (h *HCA) DeregMR(m *MR) error {
	const verb = "dereg_mr"
	if m == nil || m.dead {
		return attrErr(ErrDestroyed, verb, "mr", m, "a live region")
	}
	if m.windows > 0 {
		return attrErr(ErrBusy, verb, "mr", m.windows, "no window bound to it")
	}
	m.dead = true
	m.reg.valid = false
	h.release(&m.reg)
	m.reg.pd.users--
	return nil
}

// MWType tells the two kinds of memory window apart (IBA 10.6.7).
type MWType uint8

// Window types.
const (
	MWType1 MWType = 1 // bound by the bind verb, opens for its whole domain
	MWType2 MWType = 2 // bound by a work request, opens for one queue pair (2B)
)

// MW is a memory window.
type MW struct {
	h    *HCA
	typ  MWType
	reg  region
	dead bool
}

// RKey opens the window for peers, once it is bound.
func (w *MW) RKey() uint32 { return w.reg.key }

// Type is the window's kind.
func (w *MW) Type() MWType { return w.typ }

// AllocMW makes an unbound window.
func (h *HCA) AllocMW(pd *PD, t MWType) (*MW, error) {
	const verb = "alloc_mw"
	if err := h.checkPD(verb, pd); err != nil {
		return nil, err
	}
	if t != MWType1 && t != MWType2 {
		return nil, badAttr(verb, "type", t, "1 or 2")
	}
	if h.keys.live >= h.cfg.Limits.MaxMR+h.cfg.Limits.MaxMW {
		return nil, attrErr(ErrNoMemory, verb, "mw", h.keys.live, "fewer windows")
	}
	w := &MW{h: h, typ: t}
	w.reg = region{pd: pd, mw: w}
	h.keys.alloc(&w.reg)
	pd.users++
	return w, nil
}

// DeallocMW frees a window, bound or not.
func (h *HCA) DeallocMW(w *MW) error {
	if w == nil || w.dead {
		return attrErr(ErrDestroyed, "dealloc_mw", "mw", w, "a live window")
	}
	w.unbind()
	w.dead = true
	h.release(&w.reg)
	w.reg.pd.users--
	return nil
}

func (w *MW) unbind() {
	w.h.withdrawn = true
	if w.reg.mr != nil {
		w.reg.mr.windows--
	}
	w.reg.mr, w.reg.qp, w.reg.mem, w.reg.valid, w.reg.pager = nil, nil, nil, false, nil
}

// BindInfo says what a window is to open.
type BindInfo struct {
	MW     *MW
	MR     *MR
	Addr   uint64
	Length uint64
	Access Access
	// RKey is the key that the window shall have: its old index, with the low
	// byte chosen by the caller. A type 1 window gets the next key if it is 0.
	RKey uint32
}

// bind performs a bind work request on q; false means MW_BIND_ERR (IBA 10.6.7.2).
func (q *QP) bind(b *BindInfo) bool {
	w, m := b.MW, b.MR
	if w == nil || w.dead || w.reg.pd != q.pd {
		return false
	}
	if w.typ == MWType2 && w.reg.valid {
		return false // must be invalidated first (IBA o10-37.2.8)
	}
	if w.typ == MWType2 || b.RKey != 0 {
		if b.RKey>>8 != w.reg.key>>8 {
			return false
		}
	}
	if b.Length == 0 {
		if w.typ == MWType2 {
			return false
		}
		w.unbind()
		w.setKey(b.RKey)
		return true
	}
	if m == nil || m.dead || !m.reg.valid || m.reg.pd != w.reg.pd || m.reg.access&AccessMWBind == 0 {
		return false
	}
	if b.Access&^(AccessRemoteWrite|AccessRemoteRead|AccessRemoteAtomic|AccessZeroBased) != 0 {
		return false
	}
	// Writing through a window needs the right to write the region (C10-106).
	if b.Access&accessNeedsLocal != 0 && m.reg.access&AccessLocalWrite == 0 {
		return false
	}
	mem, ok := m.reg.slice(b.Addr, int(b.Length))
	if !ok {
		return false
	}
	w.unbind()
	w.setKey(b.RKey)
	if w.typ == MWType2 {
		w.reg.qp = q
	}
	w.reg.mr, w.reg.mem, w.reg.va, w.reg.access, w.reg.valid = m, mem, b.Addr, b.Access, true
	w.reg.pager = m.reg.pager
	if b.Access&AccessZeroBased != 0 {
		w.reg.va = 0
	}
	m.windows++
	return true
}

// setKey gives the window the key that a bind asked for; 0 varies the low byte,
// so that the old key stops working.
func (w *MW) setKey(rkey uint32) {
	if rkey == 0 {
		rkey = w.reg.key&^0xFF | uint32(uint8(w.reg.key)+1)
	}
	w.reg.key = rkey
}

// invalidate closes what rkey opens, on behalf of q: a type 2 window of q. A
// region is not invalidated: only fast-registered ones could be, and
// there are none.
func (q *QP) invalidate(rkey uint32) bool {
	r := q.h.keys.lookup(rkey)
	if r == nil || r.mw == nil || r.mw.typ != MWType2 || r.qp != q {
		return false
	}
	r.mw.unbind()
	return true
}

// remote finds what a peer may reach with rkey in domain pd, for n bytes at va.
func (q *QP) remote(pd *PD, rkey uint32, va uint64, n int, need Access) (*region, []byte) {
	r := q.h.keys.lookup(rkey)
	if r == nil || r.pd != pd || r.access&need != need && !plantRKey {
		return nil, nil
	}
	if r.mw != nil && r.mw.typ == MWType2 && r.qp != q {
		return nil, nil
	}
	mem, ok := r.slice(va, n)
	if !ok {
		return nil, nil
	}
	return r, mem
}

// local finds what a scatter/gather element names, in domain pd.
func (h *HCA) local(pd *PD, s *SGE, need Access) (*region, []byte) {
	r := h.keys.lookup(s.LKey)
	if r == nil || r.mr == nil || r.mw != nil || r.pd != pd || r.access&need != need {
		return nil, nil
	}
	mem, ok := r.slice(s.Addr, int(s.Length))
	if !ok {
		return nil, nil
	}
	return r, mem
}

// deposit copies src to dst so that the last byte becomes visible last:
// programs poll the end of a buffer to learn that a write has landed.
func deposit(dst, src []byte) {
	n := len(src)
	if n <= 8 {
		copy(dst, src)
		return
	}
	copy(dst[:n-8], src[:n-8])
	copy(dst[n-8:n], src[n-8:])
}

// farOf has p's payload, nil if that is in p itself.
func farOf(p *wire.Packet) wire.Source {
	if len(p.Payload) == 0 && p.FarLen > 0 {
		return p.Far
	}
	return nil
}

// AH is an address handle: the way to a datagram's destination.
type AH struct {
	h    *HCA
	pd   *PD
	attr AHAttr
	dead bool
}

// Attr is what the handle was made from.
func (a *AH) Attr() AHAttr { return a.attr }

// CreateAH makes an address handle.
func (h *HCA) CreateAH(pd *PD, attr AHAttr) (*AH, error) {
	a := new(AH)
	if err := h.InitAH(a, pd, attr); err != nil {
		return nil, err
	}
	return a, nil
}

// InitAH is CreateAH for a caller who has the memory, such as a part of a record of its own.
func (h *HCA) InitAH(a *AH, pd *PD, attr AHAttr) error {
	const verb = "create_ah"
	if err := h.checkPD(verb, pd); err != nil {
		return err
	}
	if err := h.checkAHAttr(verb, "ah_attr", &attr, true); err != nil {
		return err
	}
	if h.nah >= h.cfg.Limits.MaxAH {
		return attrErr(ErrNoMemory, verb, "ah", h.nah, "fewer address handles")
	}
	h.nah++
	pd.users++
	*a = AH{h: h, pd: pd, attr: attr}
	return nil
}

// DestroyAH frees an address handle.
func (h *HCA) DestroyAH(a *AH) error {
	if a == nil || a.dead {
		return attrErr(ErrDestroyed, "destroy_ah", "ah", a, "a live address handle")
	}
	a.dead = true
	h.nah--
	a.pd.users--
	return nil
}
