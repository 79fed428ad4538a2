package workload

import (
	"errors"

	"softib/node/hca"
	"softib/proto/ib"
)

// post posts what a flow can post now.
func (r *Runner) post(i int, f *FlowState) {
	e := f.From
	for f.next < len(f.Ops) {
		o := &f.Ops[f.next]
		if o.After > 0 || o.Local() {
			open, never := r.gate(f, o.After-1)
			if never || open && r.pointless(o) {
				o.Skipped = true
				f.next++
				f.waited = false
				r.touch(f.To.Host) // which may wait for it
				continue
			}
			if !open {
				return
			}
		}
		if o.Delay > 0 && !f.waited {
			if !f.waiting {
				f.waiting = true
				r.Sim.At(r.Sim.Now()+o.Delay, timerPost|uint64(i))
			}
			return
		}
		if e.QP.State() == hca.StateSQE {
			if r.Sim.Outstanding(e.Host, e.QP) > 0 || e.unpolled > 0 {
				return // the rest of the flushed ones first
			}
			if err := r.Sim.Use(e.Host).ModifyQP(e.QP, hca.QPAttr{State: hca.StateRTS}, hca.MaskState); err != nil {
				r.obs.Refused(r.Sim.Now(), e.Host, "modify_qp", err)
				return
			}
		}
		if r.Sim.Outstanding(e.Host, e.QP) >= f.Spec.SendDepth || e.unpolled >= f.Spec.SendDepth {
			return
		}
		if o.Drain && !f.draining && e.QP.State() == hca.StateRTS {
			r.drain(f)
		}
		f.next++
		f.waited = false
		r.postOp(o)
		if e.QP.State() == hca.StateErr {
			r.poll(e.Host)
		}
	}
	if !r.ended[i] && r.allDone(f) {
		r.ended[i] = true
		r.open--
	}
}

// drain moves a flow's queue pair to SQD. What is posted there waits.
func (r *Runner) drain(f *FlowState) {
	e := f.From
	f.draining = true
	if err := r.Sim.Use(e.Host).ModifyQP(e.QP, hca.QPAttr{State: hca.StateSQD, EnSQDNotify: true},
		hca.MaskState|hca.MaskEnSQDNotify); err != nil {
		r.obs.Refused(r.Sim.Now(), e.Host, "modify_qp", err)
		f.draining = false
	}
}

// drained moves it back.
func (r *Runner) drained(e *End) {
	if !e.Flow.draining {
		return
	}
	e.Flow.draining = false
	if e.QP.State() != hca.StateSQD {
		return // it failed meanwhile
	}
	if err := r.Sim.Use(e.Host).ModifyQP(e.QP, hca.QPAttr{State: hca.StateRTS}, hca.MaskState); err != nil {
		r.obs.Refused(r.Sim.Now(), e.Host, "modify_qp", err)
	}
}

func (r *Runner) allDone(f *FlowState) bool {
	for ; f.lastSeen < len(f.Ops); f.lastSeen++ {
		if o := &f.Ops[f.lastSeen]; !o.Done && !o.Skipped {
			return false
		}
	}
	return true
}

// pointless reports whether an op is about a window that is not in the state for it,
// because an op that should have come before was skipped.
func (r *Runner) pointless(o *OpState) bool {
	if !o.Local() || o.Misuse == BadBind {
		return false
	}
	w := &o.Flow.Opposite().Windows[o.Window-1]
	if o.Code == hca.WRLocalInv {
		return !w.bound
	}
	return w.bound && w.MW.Type() == hca.MWType2
}

// gate looks whether the op of the opposite flow that another waits for has
// succeeded, or never will.
func (r *Runner) gate(f *FlowState, n int) (open, never bool) {
	if n < 0 {
		return true, false
	}
	for i := range f.Opposite().Ops {
		if o := &f.Opposite().Ops[i]; o.N == n {
			if o.Done && o.Status == hca.WCSuccess {
				return true, false
			}
			return false, o.Done || o.Skipped || r.stopped[o.Flow.From.Host]
		}
	}
	return false, true // shrunk away
}

// postOp posts one request.
func (r *Runner) postOp(o *OpState) {
	f, e, now := o.Flow, o.Flow.From, r.Sim.Now()
	wr := hca.SendWR{WRID: o.ID(), Opcode: o.Code, Flags: o.Flags &^ hca.SendSignaled}
	if o.Signaled {
		wr.Flags |= hca.SendSignaled
	}
	if !o.Local() && o.Code != hca.WRRDMARead && !o.Atomic() {
		r.fillOp(o)
	}
	mr, at := e.Local, e.LocalAt
	if o.Misuse == DeregLocal {
		fl := &failing{}
		o.doomed = r.reg(fl, o.Area, e.pd, hca.AccessLocalWrite)
		if fl.err != nil {
			r.obs.Refused(now, e.Host, "reg_mr", fl.err)
			return
		}
		mr, at = o.doomed, o.Area
	}
	wr.SGList = sges(r.list[:0], mr, at, o.Pieces)
	r.list = wr.SGList
	if o.Misuse == BadLKey && len(wr.SGList) > 0 {
		wr.SGList[len(wr.SGList)-1].LKey ^= 0x00ABCD00
	}
	if o.HasImm() {
		wr.Imm = Immediate(f.ID, o.N)
	}
	r.aim(o, &wr)
	if e.Conn.Type == hca.XRCSend {
		wr.RemoteSRQN = f.To.SRQ.Q.Num()
	}
	if e.Conn.Type == hca.UD {
		r.address(o, &wr)
	}
	// The books first: a queue pair in ERR completes within the call.
	o.Posted, o.PostedAt, o.Key = true, now, wr.RKey
	if o.Signaled {
		e.unpolled++
	}
	r.obs.OpPosted(now, o)
	if err := r.Sim.PostSend(e.Host, e.QP, &wr); err != nil {
		o.Posted, o.Skipped = false, true
		if o.Signaled {
			e.unpolled--
		}
		r.obs.Refused(now, e.Host, "post_send", err)
		return
	}
	if o.Flags&hca.SendInline != 0 && o.Area.Len > 0 {
		r.scribble(o.Area, o.ID()^0x33) // it was copied
	}
	switch o.Misuse {
	case DeregLocal, DeregRemote, KillQP:
		delay := ib.Time(key(r.Spec.Seed, o.ID())%8) * 700 * ib.Nanosecond
		for i, g := range r.Flows {
			if g == f {
				r.Sim.At(now+delay, timerMisuse|uint64(i)<<16|uint64(o.Index))
			}
		}
	}
}

// fillOp writes the op's data to its memory.
func (r *Runner) fillOp(o *OpState) {
	b := make([]byte, o.Size)
	Payload(b, r.Spec.Seed, o.Flow.ID, o.N)
	Scatter(r.Mem[o.Area.Host], o.Pieces, b)
	r.obs.Scribbled(r.Sim.Now(), o.Area)
}

// aim sets the target of one-sided operations, binds and invalidations.
func (r *Runner) aim(o *OpState, wr *hca.SendWR) {
	f := o.Flow
	target := f.To.Target
	addr := func(at Range) uint64 { return target.Addr() + uint64(at.Off-f.To.TargetAt.Off) }
	switch {
	case o.Code == hca.WRBindMW:
		// A window at this end, over a slot that the opposite flow writes.
		in := f.Opposite()
		slot := in.Slots.part(o.Slot*in.Spec.SlotSize, in.Spec.SlotSize)
		own := f.From.Target
		w := &in.Windows[o.Window-1]
		if w.asked == 0 {
			w.asked = w.MW.RKey()
		}
		w.asked = w.asked&^0xFF | uint32(uint8(w.asked+1))
		if o.Misuse == BadBind {
			own, slot = f.From.Local, f.From.LocalAt.part(0, 1)
			slot.Off += f.From.TargetAt.Off - f.From.LocalAt.Off
		} else {
			w.bound = true
		}
		wr.Bind = &hca.BindInfo{
			MW: w.MW, MR: own, Addr: own.Addr() + uint64(slot.Off-f.From.TargetAt.Off), Length: uint64(slot.Len),
			Access: hca.AccessRemoteRead | hca.AccessRemoteWrite, RKey: w.asked,
		}
		return
	case o.Code == hca.WRLocalInv:
		w := &f.Opposite().Windows[o.Window-1]
		w.bound = false
		wr.Imm = w.asked
		return
	case o.Code == hca.WRSendInv:
		wr.Imm = 0x00BADB00
		if o.Window > 0 && o.Misuse != BadInvKey {
			wr.Imm = f.Windows[o.Window-1].Key
		}
		return
	case o.Atomic():
		wr.RemoteAddr, wr.RKey = addr(f.CellsAt.part(8*o.Cell, 8)), target.RKey()
		if o.Shared {
			mr := r.hosts[f.To.Host].counterPD[r.domain(f.To)]
			wr.RemoteAddr, wr.RKey, wr.CompareAdd = mr.Addr(), mr.RKey(), 1
			break
		}
		cell := &f.cells[o.Cell]
		o.Orig, o.Left = *cell, *cell
		x := key(r.Spec.Seed, o.ID()^0x77)
		if o.Code == hca.WRAtomicFetchAdd {
			wr.CompareAdd = x
			o.Left += x
		} else {
			wr.Swap, wr.CompareAdd = x, *cell
			if x%3 == 0 {
				wr.CompareAdd++ // must fail
			} else {
				o.Left = x
			}
		}
		if !o.Misuse.Fails() {
			*cell = o.Left
		}
	case o.Writes() || o.Code == hca.WRRDMARead:
		wr.RemoteAddr, wr.RKey = addr(f.Slots.part(o.Slot*f.Spec.SlotSize, o.Size)), target.RKey()
		if o.Window > 0 {
			wr.RKey = f.Windows[o.Window-1].Key
		}
	default:
		return
	}
	switch o.Misuse {
	case BadRKey:
		wr.RKey ^= 0x00F00D00
	case OutOfBounds:
		wr.RemoteAddr = target.Addr() + uint64(target.Len()-o.Size/2)&^7
		if o.Size/2 < 8 {
			wr.RemoteAddr = target.Addr() + uint64(target.Len()+7)&^7
		}
	case ForeignPD:
		mr := r.hosts[f.To.Host].foreign
		wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
	case NoAccess:
		mr := f.To.Local
		wr.RemoteAddr, wr.RKey = (mr.Addr()+7)&^7, mr.RKey()
	case OtherWindow:
		wr.RKey ^= 0x00F00D00 // where there is none
		if g, w := r.otherWindow(f); w != nil {
			slot := g.Slots.part((w.slot)*g.Spec.SlotSize, o.Size)
			wr.RemoteAddr, wr.RKey = g.To.Target.Addr()+uint64(slot.Off-g.To.TargetAt.Off), w.Key
		}
	case StaleWindow:
		if o.Window > 0 && f.Windows[o.Window-1].Stale != 0 {
			wr.RKey = f.Windows[o.Window-1].Stale
		} else {
			wr.RKey ^= 0x00F00D00
		}
	}
}

// otherWindow finds a window at a flow's target host that opens for another queue pair
// alone, in the same domain.
func (r *Runner) otherWindow(f *FlowState) (*FlowState, *WindowState) {
	for _, g := range r.Flows {
		if g == f || g.To.Host != f.To.Host || g.To.targetPD != f.To.targetPD {
			continue
		}
		for i := range g.Windows {
			if w := &g.Windows[i]; w.Key != 0 && w.MW.Type() == hca.MWType2 {
				return g, w
			}
		}
	}
	return nil, nil
}

// domain is the number of the domain in which an end's peer may reach memory.
func (r *Runner) domain(e *End) int {
	for i, pd := range r.hosts[e.Host].pds {
		if pd == e.targetPD {
			return i
		}
	}
	return 0
}

// address sets where a datagram goes.
func (r *Runner) address(o *OpState, wr *hca.SendWR) {
	f, e := o.Flow, o.Flow.From
	hs := r.hosts[e.Host]
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah, f.To.QP.Num(), QKey
	attr := e.ah.Attr()
	switch {
	case o.Group > 0:
		g := &r.Spec.Groups[o.Group-1]
		attr.DLID, attr.IsGlobal, attr.DGID, attr.HopLimit = g.MLID, true, g.MGID, 1
		wr.RemoteQPN = ib.QPNMulticast
	case o.Misuse == WrongLID:
		attr.DLID = ib.LIDUnicastMax
	default:
		switch o.Misuse {
		case WrongQKey:
			wr.RemoteQKey ^= 0x55
		case WrongQPN:
			wr.RemoteQPN = 0xFFFF00
		}
		return
	}
	ah, err := hs.h.CreateAH(e.pd, attr)
	if err != nil {
		r.obs.Refused(r.Sim.Now(), e.Host, "create_ah", err)
		return
	}
	hs.ahs = append(hs.ahs, ah)
	wr.AH = ah
}

// misuse does what an op's misuse does some time after its post.
func (r *Runner) misuse(o *OpState) {
	f, now := o.Flow, r.Sim.Now()
	if f.From.closed {
		return
	}
	switch o.Misuse {
	case DeregLocal:
		h := r.Sim.Use(f.From.Host)
		if o.doomed == nil || r.stopped[f.From.Host] {
			return
		}
		if err := h.DeregMR(o.doomed); err != nil {
			r.obs.Refused(now, f.From.Host, "dereg_mr", err)
		}
		r.Sim.Wake(f.From.Host) // the program has its memory back when the call returns
		r.obs.Freed(now, o.Area)
	case DeregRemote:
		h := r.Sim.Use(f.To.Host)
		if f.To.Target == nil || r.stopped[f.To.Host] {
			return
		}
		if err := h.DeregMR(f.To.Target); err != nil && !errors.Is(err, hca.ErrDestroyed) {
			r.obs.Refused(now, f.To.Host, "dereg_mr", err)
		}
		r.Sim.Wake(f.To.Host)
		r.obs.Freed(now, f.To.TargetAt)
		r.reuse(now, f.To.TargetAt)
	case KillQP:
		r.fail(f.From)
	}
}

// reuse is what a program does with memory that it has back: a peer that still reads it brings nonsense.
func (r *Runner) reuse(now ib.Time, at Range) {
	for i := range at.Len {
		r.Mem[at.Host][at.Off+i] ^= 0x5A
	}
	r.obs.Scribbled(now, at)
}

// Close destroys everything in the order in which a careful program does. An
// error means that something still holds on to an object that nothing uses.
func (r *Runner) Close() error {
	f := &failing{}
	do := func(err error) { try(f, 0, err) }
	for _, e := range r.Ends {
		h := r.hosts[e.Host].h
		for _, g := range e.joined {
			do(h.DetachMcast(e.QP, r.Spec.Groups[g].MGID, r.Spec.Groups[g].MLID))
		}
		if !e.closed {
			do(h.DestroyQP(e.QP))
		}
	}
	for _, hs := range r.hosts {
		for _, w := range hs.mws {
			do(hs.h.DeallocMW(w))
		}
		for _, a := range hs.ahs {
			do(hs.h.DestroyAH(a))
		}
	}
	dereg := func(h *hca.HCA, m *hca.MR) {
		if err := h.DeregMR(m); !errors.Is(err, hca.ErrDestroyed) {
			do(err)
		}
	}
	for _, e := range r.Ends {
		dereg(r.hosts[e.Host].h, e.Local)
		dereg(r.hosts[e.Host].h, e.Target)
		for i := range e.Flow.Ops {
			if m := e.Flow.Ops[i].doomed; m != nil {
				dereg(r.hosts[e.Host].h, m)
			}
		}
	}
	for _, q := range r.SRQs {
		h := r.hosts[q.Host].h
		do(h.DestroySRQ(q.Q))
		dereg(h, q.MR)
	}
	for _, hs := range r.hosts {
		dereg(hs.h, hs.foreign)
		for _, m := range hs.counterPD {
			dereg(hs.h, m)
		}
		for _, cq := range hs.cqs {
			do(hs.h.DestroyCQ(cq))
		}
		for _, pd := range hs.pds {
			do(hs.h.DeallocPD(pd))
		}
		do(hs.h.CloseXRCD(hs.xrcd))
	}
	return f.err
}
