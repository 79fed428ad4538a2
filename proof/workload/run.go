package workload

import (
	"encoding/binary"

	"softib/driver/sim"
	"softib/node/hca"
	"softib/proto/ib"
)

// Timers of the runner: the kind in the top byte, what it is about below. A
// user of the same simulation has the kinds from UserTimer on.
const (
	timerPost   = 1 << 56
	timerRecv   = 2 << 56
	timerMisuse = 3 << 56
	timerHangup = 4 << 56
	timerKind   = 0xFF << 56
	// UserTimer is the first timer that Handle leaves alone.
	UserTimer uint64 = 0x80 << 56
)

// prepare decides which ops are signalled, so that somebody is always told when
// there is room again or a gate has opened, and what they will touch.
func (r *Runner) prepare(f *FlowState) {
	for i := range f.CellsAt.Len / 8 {
		f.cells = append(f.cells, binary.LittleEndian.Uint64(r.Mem[f.CellsAt.Host][f.CellsAt.Off+8*i:]))
	}
	gate := map[int]bool{}
	for i := range f.Opposite().Ops {
		if n := f.Opposite().Ops[i].After; n > 0 {
			gate[n-1] = true
		}
	}
	quiet := 0
	for i := range f.Ops {
		o := &f.Ops[i]
		o.Signaled = o.Flags&hca.SendSignaled != 0 || f.From.Conn.SigAll
		if quiet++; !o.Signaled && (gate[o.N] || r.mayEnd(f, i) || quiet >= max(1, f.Spec.SendDepth/2) ||
			o.Misuse != None) {
			o.Signaled = true
		}
		if o.Signaled {
			quiet = 0
		}
		switch {
		case o.Misuse.Fails() && o.Misuse != BadInvKey && o.Misuse != TooLong && o.Misuse != BadLKey:
		case o.Writes() || o.Code == hca.WRRDMARead:
			o.Remote = f.Slots.part(o.Slot*f.Spec.SlotSize, o.Size)
		case o.Atomic() && o.Shared:
			o.Remote = r.Counter[f.To.Host]
		case o.Atomic():
			o.Remote = f.CellsAt.part(8*o.Cell, 8)
		}
	}
}

// mayEnd reports whether op i may turn out to be the last that a flow posts: those
// that wait for another may be skipped.
func (r *Runner) mayEnd(f *FlowState, i int) bool {
	return i+1 == len(f.Ops) || f.Ops[i+1].After > 0 || f.Ops[i+1].Local()
}

// Start posts the receives and the first sends.
func (r *Runner) Start() {
	for i, hs := range r.hosts {
		for e, ok := r.Sim.PollEvent(i); ok; e, ok = r.Sim.PollEvent(i) {
			r.obs.Event(r.Sim.Now(), i, e)
		}
		for _, cq := range hs.cqs {
			r.Sim.Arm(i, cq)
		}
	}
	for _, v := range r.recvs {
		r.postRecv(v)
	}
	r.started = true
	for i := range r.hosts {
		r.touch(i)
	}
	r.settle()
}

// Stop tells the runner that a host is no more: nothing is expected of it.
func (r *Runner) Stop(host int) {
	if host < len(r.hosts) && !r.stopped[host] {
		r.stopped[host] = true
		for i := range r.hosts {
			r.touch(i)
		}
		for _, e := range r.Ends {
			if e.Host == host {
				r.hangUp(r.peer(e))
			}
		}
		r.settle()
	}
}

// hangupAfter is how long a program takes to learn that its peer has failed.
const hangupAfter = 200 * ib.Microsecond

// hangUp has an end failed whose peer is no more, if it draws from a shared receive
// queue: half a message of the dead peer may hold a receive that others need.
func (r *Runner) hangUp(e *End) {
	if e.SRQ == nil || e.hungUp {
		return
	}
	e.hungUp = true
	for i := range r.Ends {
		if r.Ends[i] == e {
			r.Sim.At(r.Sim.Now()+hangupAfter, timerHangup|uint64(i))
		}
	}
}

// fail moves an end's queue pair to ERR.
func (r *Runner) fail(e *End) {
	if r.stopped[e.Host] || e.closed || e.QP.State() == hca.StateErr {
		return
	}
	r.obs.Failed(r.Sim.Now(), e)
	if err := r.Sim.Use(e.Host).ModifyQP(e.QP, hca.QPAttr{State: hca.StateErr}, hca.MaskState); err != nil {
		r.obs.Refused(r.Sim.Now(), e.Host, "modify_qp", err)
	}
	r.touch(e.Host)
}

// Stopped reports whether Stop was called for the host.
func (r *Runner) Stopped(host int) bool { return r.stopped[host] }

// Handle reacts to what the simulation reports. It is false for a timer that is not
// the runner's.
func (r *Runner) Handle(w sim.Wake) bool {
	switch w.Kind {
	case sim.WakeHost:
		r.touch(w.Host)
	case sim.WakeTimer:
		arg := int(w.ID &^ uint64(timerKind))
		if host, ok := r.actor(w.ID); ok && !r.stopped[host] && r.Sim.Still(host) {
			r.Sim.At(r.Sim.Now()+stillLook, w.ID)
			return true
		}
		switch w.ID & timerKind {
		case timerPost:
			f := r.Flows[arg]
			f.waiting, f.waited = false, true
			r.touch(f.From.Host)
		case timerRecv:
			v := r.recvs[arg]
			host := v.At.Host
			r.poll(host) // room in the completion queue first
			r.postRecv(v)
			r.touch(host)
		case timerMisuse:
			f := r.Flows[arg>>16]
			r.misuse(&f.Ops[arg&0xFFFF])
		case timerHangup:
			r.fail(r.Ends[arg])
		default:
			return false
		}
	}
	r.settle()
	return true
}

// stillLook is when to look again at a program that stands still and has something to do.
const stillLook = 200 * ib.Microsecond

// actor is the host whose program acts when a timer has come.
func (r *Runner) actor(id uint64) (int, bool) {
	arg := int(id &^ uint64(timerKind))
	switch id & timerKind {
	case timerPost:
		return r.Flows[arg].From.Host, true
	case timerRecv:
		return r.recvs[arg].At.Host, true
	case timerMisuse:
		f := r.Flows[arg>>16]
		if f.Ops[arg&0xFFFF].Misuse == DeregRemote {
			return f.To.Host, true
		}
		return f.From.Host, true
	case timerHangup:
		return r.Ends[arg].Host, true
	}
	return 0, false
}

// touch notes that a host is to be looked at.
func (r *Runner) touch(host int) {
	if host < len(r.hosts) && !r.isDirty[host] {
		r.isDirty[host] = true
		r.dirty = append(r.dirty, host)
	}
}

// settle looks at hosts until none has anything new.
func (r *Runner) settle() {
	if !r.started {
		return
	}
	for len(r.dirty) > 0 {
		host := r.dirty[0]
		r.dirty = r.dirty[1:]
		r.isDirty[host] = false
		if r.stopped[host] || r.Sim.Still(host) {
			continue
		}
		r.poll(host)
		for i, f := range r.Flows {
			if f.From.Host == host && !r.ended[i] {
				r.post(i, f)
			}
		}
		r.Sim.Wake(host)
	}
	for i, f := range r.Flows {
		if !r.ended[i] && r.stopped[f.From.Host] {
			r.ended[i] = true
			r.open--
		}
	}
	for i := 0; i < len(r.Flows); i += 2 {
		if e := r.Flows[i].From; e.Conn.Early && !e.closed && r.ended[i] && r.ended[i+1] {
			r.closeEarly(e, r.peer(e))
		}
	}
}

// closeEarly destroys the queue pairs of a conn that has nothing more to do. A failed
// one stays: half a message may hold a receive of a shared queue.
func (r *Runner) closeEarly(ends ...*End) {
	for _, e := range ends {
		if r.stopped[e.Host] || r.Sim.Still(e.Host) || e.QP.State() == hca.StateErr {
			return
		}
	}
	for _, e := range ends {
		r.poll(e.Host)
	}
	for _, e := range ends {
		e.closed = true
		if err := r.hosts[e.Host].h.DestroyQP(e.QP); err != nil {
			r.obs.Refused(r.Sim.Now(), e.Host, "destroy_qp", err)
		}
	}
	r.obs.Closed(r.Sim.Now(), ends[0].Conn)
}

// Finished reports whether every flow has ended: each of its ops has completed, or was
// skipped, or its host is no more.
func (r *Runner) Finished() bool { return r.open == 0 }

// Unfinished lists the flows that have not ended.
func (r *Runner) Unfinished() []*FlowState {
	var list []*FlowState
	for i, f := range r.Flows {
		if !r.ended[i] {
			list = append(list, f)
		}
	}
	return list
}

// Drain polls everything that is left, as at the end of a program.
func (r *Runner) Drain() {
	for i := range r.hosts {
		if !r.stopped[i] {
			r.poll(i)
		}
	}
}

// poll takes a host's events and completions, all of them.
func (r *Runner) poll(host int) {
	hs, now := r.hosts[host], r.Sim.Now()
	for e, ok := r.Sim.PollEvent(host); ok; e, ok = r.Sim.PollEvent(host) {
		if e.Type != hca.EventCompletion {
			r.obs.Event(now, host, e)
		}
		if e.Type == hca.EventSQDrained {
			if end := r.EndAt(e.QP); end != nil {
				r.drained(end)
				r.touch(host)
			}
		}
	}
	// Completion queues change their size while they are in use.
	if hs.polls++; hs.polls%16 == 0 {
		k := hs.polls / 16 % len(hs.cqs)
		if err := hs.h.ResizeCQ(hs.cqs[k], hs.cqNeed[k]+hs.polls%64); err != nil {
			r.obs.Refused(now, host, "resize_cq", err)
		}
	}
	for _, cq := range hs.cqs {
		r.Sim.Arm(host, cq)
		for n := r.Sim.Poll(host, cq, r.wcs[:]); n > 0; n = r.Sim.Poll(host, cq, r.wcs[:]) {
			for i := range r.wcs[:n] {
				wc := r.wcs[i]
				if wc.WRID&sendID != 0 {
					r.sendDone(host, &wc)
				} else {
					r.recvDone(host, &wc)
				}
			}
		}
	}
}

// op finds a send request by its identifier.
func (r *Runner) op(id uint64) *OpState {
	f := r.byFlow[int(id>>32&0x3FFFFFFF)]
	if i := int(uint32(id)); id&sendID != 0 && f != nil && i < len(f.Ops) {
		return &f.Ops[i]
	}
	return nil
}

// Op finds a send request by its identifier, nil if there is none.
func (r *Runner) Op(id uint64) *OpState { return r.op(id) }

// Recv finds a receive buffer by the identifier of its request, nil if there is
// none.
func (r *Runner) Recv(id uint64) *Recv {
	if i := int(uint32(id)); id>>32 == recvID>>32 && i < len(r.recvs) {
		return r.recvs[i]
	}
	return nil
}

// EndOf finds the end whose queue pair has a number on a host.
func (r *Runner) EndOf(host int, n ib.QPN) *End {
	if q := r.hosts[host].h.QP(n); q != nil {
		return r.EndAt(q)
	}
	return nil
}

// EndAt finds the end that a queue pair is; nil if there is none.
func (r *Runner) EndAt(q *hca.QP) *End { return r.byQP[q] }

// FlowByID finds a flow, nil if there is none.
func (r *Runner) FlowByID(id int) *FlowState { return r.byFlow[id] }

// Adapter is a host's engine.
func (r *Runner) Adapter(host int) *hca.HCA { return r.hosts[host].h }

// sendDone keeps the books of a send completion.
func (r *Runner) sendDone(host int, wc *hca.WC) {
	r.obs.SendDone(r.Sim.Now(), host, wc)
	o := r.op(wc.WRID)
	if o == nil || o.Done || !o.Posted {
		return // the observer has seen it
	}
	f := o.Flow
	for i := f.lastSeen; i < o.Index; i++ { // unsignalled ones before it are done too
		if p := &f.Ops[i]; p.Posted && !p.Done {
			p.Done, p.Status = true, hca.WCSuccess
			r.after(p)
		}
	}
	f.lastSeen = max(f.lastSeen, o.Index+1)
	o.Done, o.Status = true, wc.Status
	if o.Signaled {
		f.From.unpolled--
	}
	r.after(o)
	if f.From.QP.State() == hca.StateErr {
		r.hangUp(f.To)
	}
	r.touch(f.To.Host) // it may wait for this one
	r.touch(host)
}

// after does what the program does when it knows that a request has ended.
func (r *Runner) after(o *OpState) {
	if o.Window > 0 && o.Status == hca.WCSuccess {
		switch o.Code {
		case hca.WRBindMW:
			w := &o.Flow.Opposite().Windows[o.Window-1]
			if w.Key != 0 {
				w.Stale = w.Key
			}
			w.Key = w.MW.RKey()
		case hca.WRLocalInv:
			w := &o.Flow.Opposite().Windows[o.Window-1]
			w.Stale, w.Key = w.Key, 0
		case hca.WRSendInv:
			w := &o.Flow.Windows[o.Window-1]
			w.Stale, w.Key, w.bound = w.Key, 0, false
		}
	}
	// What was sent is the program's again: it writes over it, so that an
	// adapter that still needs it is found out.
	if o.Code != hca.WRRDMARead && !o.Atomic() && o.doomed == nil && o.Area.Len > 0 {
		r.scribble(o.Area, o.ID())
	}
}

func (r *Runner) scribble(at Range, salt uint64) {
	fill(r.memory(at), key(r.Spec.Seed, salt^0xA5A5<<20))
	r.obs.Scribbled(r.Sim.Now(), at)
}

// recvDone keeps the books of a receive completion.
func (r *Runner) recvDone(host int, wc *hca.WC) {
	r.obs.RecvDone(r.Sim.Now(), host, wc)
	v := r.Recv(wc.WRID)
	if v == nil || !v.Posted {
		return
	}
	v.Posted = false
	late := ib.Time(0)
	switch {
	case v.SRQ != nil:
		late = v.SRQ.Late
	default:
		late = v.End.In.Spec.Late
		if v.End.QP.State() == hca.StateErr {
			return
		}
	}
	if late > 0 {
		r.Sim.At(r.Sim.Now()+late, timerRecv|v.ID&0xFFFFFFFF)
		return
	}
	r.postRecv(v)
}

// postRecv posts a buffer.
func (r *Runner) postRecv(v *Recv) {
	if v.Posted || r.stopped[v.At.Host] || v.End != nil && v.End.closed {
		return
	}
	h, now := r.hosts[v.At.Host].h, r.Sim.Now()
	r.scribble(v.At, v.ID^uint64(now))
	wr := hca.RecvWR{WRID: v.ID}
	var err error
	// Posted first: in ERR the request completes within the call.
	v.Posted = true
	r.obs.RecvPosted(now, v)
	if v.SRQ != nil {
		wr.SGList = sges(r.list[:0], v.SRQ.MR, v.SRQ.At, v.Pieces)
		err = h.PostSRQRecv(v.SRQ.Q, &wr)
	} else {
		wr.SGList = sges(r.list[:0], v.End.Local, v.End.LocalAt, v.Pieces)
		err = h.PostRecv(v.End.QP, &wr)
	}
	r.list = wr.SGList
	if err != nil {
		v.Posted = false
		r.obs.Refused(now, v.At.Host, "post_recv", err)
	}
}
