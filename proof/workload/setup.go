package workload

import (
	"fmt"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Sizes of what New makes on each host.
const (
	mainPDs   = 2   // domains that queue pairs are in
	cqPerHost = 3   // completion queues, shared by the queue pairs
	maxInline = 256 // bytes of an inline request
	vaBase    = 0x7F0000000000
)

// remoteAll are the rights of a region that peers may use fully.
const remoteAll = hca.AccessLocalWrite | hca.AccessRemoteWrite | hca.AccessRemoteRead | hca.AccessRemoteAtomic |
	hca.AccessMWBind

// QKey is the Q_Key of every datagram queue pair.
const QKey ib.QKey = 0x11110000

// New makes the objects of spec on the adapters of s, which must be up, and connects
// them. Nothing is posted yet.
func New(s Fabric, spec *Spec, obs Observer) (*Runner, error) {
	if s.NumHosts() < spec.Hosts {
		return nil, fmt.Errorf("workload: spec wants %d hosts: the fabric has %d", spec.Hosts, s.NumHosts())
	}
	r := &Runner{
		Sim: s, Spec: spec, obs: obs, byFlow: map[int]*FlowState{}, byQP: map[*hca.QP]*End{},
		stopped: make([]bool, s.NumHosts()), isDirty: make([]bool, s.NumHosts()),
	}
	for i := range spec.Hosts {
		h := s.Engine(i)
		if h == nil {
			return nil, fmt.Errorf("workload: host %d has no adapter: want an *hca.HCA", i)
		}
		r.hosts = append(r.hosts, &hostState{h: h, cqNeed: make([]int, cqPerHost),
			layout: layout{host: i, seed: key(spec.Seed, uint64(i))}})
		s.SetPKeys(i, spec.PKeys[i])
	}
	r.lay()
	for i := range r.hosts {
		r.Mem = append(r.Mem, r.hosts[i].layout.arena(spec.Seed))
	}
	if err := r.make(); err != nil {
		return nil, err
	}
	for _, e := range r.Ends {
		if err := r.connect(e); err != nil {
			return nil, fmt.Errorf("workload: conn %d end %d: %w", e.Conn.ID, e.E, err)
		}
	}
	if err := r.join(); err != nil {
		return nil, err
	}
	for _, f := range r.Flows {
		r.prepare(f)
	}
	r.open = len(r.Flows)
	r.ended = make([]bool, len(r.Flows))
	return r, nil
}

// lay decides where everything lies in the hosts' memory.
func (r *Runner) lay() {
	s := r.Spec
	for i := range r.hosts {
		r.Counter = append(r.Counter, r.hosts[i].layout.take(8))
		r.Foreign = append(r.Foreign, r.hosts[i].layout.take(4096))
	}
	for i := range s.SRQs {
		q := &SRQState{SRQ: &s.SRQs[i]}
		q.At = r.hosts[q.Host].layout.take(q.Depth * q.BufSize)
		for k := range q.Depth {
			q.Recvs = append(q.Recvs, r.newRecv(nil, q, q.At.part(k*q.BufSize, q.BufSize), q.SGEs))
		}
		r.SRQs = append(r.SRQs, q)
	}
	for i := range s.Conns {
		c := &s.Conns[i]
		ends := [2]*End{}
		for e := range ends {
			ends[e] = &End{Conn: c, E: e, Host: c.Host[e]}
			if n := c.SRQ[e]; n > 0 {
				ends[e].SRQ = r.SRQs[n-1]
			}
		}
		for e := range ends {
			f := &FlowState{ID: 2*c.ID + e, Spec: &c.Flows[e], From: ends[e], To: ends[1-e]}
			ends[e].Flow, ends[1-e].In = f, f
		}
		for _, e := range ends {
			r.layEnd(e)
			r.Ends = append(r.Ends, e)
		}
		for _, e := range ends {
			r.Flows = append(r.Flows, e.Flow)
			r.byFlow[e.Flow.ID] = e.Flow
		}
	}
}

// layEnd places the memory of one end: the data of its ops and its receive buffers, in
// one region, and what its peer writes and reads, in another.
func (r *Runner) layEnd(e *End) {
	l, out, in := &r.hosts[e.Host].layout, e.Flow.Spec, e.In.Spec
	size := 0
	for i := range out.Ops {
		size += (opBytes(&out.Ops[i]) + 15) &^ 7
	}
	depth := in.RecvDepth
	if e.SRQ != nil || e.Conn.Type == hca.XRCSend {
		depth = 0
	}
	bufs := size
	size += depth * ((in.RecvSize + 15) &^ 7)
	e.LocalAt = l.take(size)
	e.Flow.Ops = make([]OpState, len(out.Ops))
	off := 0
	for i := range out.Ops {
		o := &e.Flow.Ops[i]
		*o = OpState{Op: &out.Ops[i], Flow: e.Flow, Index: i}
		o.Area = e.LocalAt.part(off, opBytes(o.Op))
		o.Pieces = cut(o.Area, o.SGEs, key(r.Spec.Seed, uint64(e.Flow.ID)<<20|uint64(o.N)))
		off += (o.Area.Len + 15) &^ 7
	}
	for k := range depth {
		at := e.LocalAt.part(bufs+k*((in.RecvSize+15)&^7), in.RecvSize)
		e.Recvs = append(e.Recvs, r.newRecv(e, nil, at, in.RecvSGEs))
	}
	e.TargetAt = l.take((in.Slots*in.SlotSize+7)&^7 + in.Cells*8)
	e.In.Slots = e.TargetAt.part(0, in.Slots*in.SlotSize)
	e.In.CellsAt = e.TargetAt.part((in.Slots*in.SlotSize+7)&^7, in.Cells*8)
}

// opBytes is how much memory an op needs at its sender.
func opBytes(o *Op) int {
	if o.Local() {
		return 0
	}
	return o.Size
}

func (r *Runner) newRecv(e *End, q *SRQState, at Range, pieces int) *Recv {
	v := &Recv{ID: recvID | uint64(len(r.recvs)), End: e, SRQ: q, At: at, Size: at.Len}
	v.Pieces = cut(at, max(pieces, 1), key(r.Spec.Seed, v.ID))
	r.recvs = append(r.recvs, v)
	return v
}

// failing collects the first error of a list of calls.
type failing struct{ err error }

func try[T any](f *failing, v T, err error) T {
	if f.err == nil && err != nil {
		f.err = err
	}
	return v
}

// make creates every object.
func (r *Runner) make() error {
	f := &failing{}
	r.sizeCQs()
	for i, hs := range r.hosts {
		for range mainPDs + 1 {
			pd, err := hs.h.AllocPD()
			hs.pds = append(hs.pds, try(f, pd, err))
		}
		hs.xrcd = hs.h.OpenXRCD()
		for k := range cqPerHost {
			cq, err := hs.h.CreateCQ(hs.cqNeed[k])
			hs.cqs = append(hs.cqs, try(f, cq, err))
			// One queue is polled at each completion, one in bursts.
			if k > 0 && f.err == nil {
				f.err = hs.h.ModifyCQ(cq, 2*k, 20*ib.Microsecond)
			}
		}
		if f.err != nil {
			return f.err
		}
		hs.foreign = r.reg(f, r.Foreign[i], hs.pds[mainPDs], remoteAll)
		for _, pd := range hs.pds[:mainPDs] {
			hs.counterPD = append(hs.counterPD, r.reg(f, r.Counter[i], pd, remoteAll))
		}
	}
	for i, q := range r.SRQs {
		hs := r.hosts[q.Host]
		q.pd = hs.pds[i%mainPDs]
		init := hca.SRQInit{PD: q.pd, MaxWR: q.Depth, MaxSGE: max(q.SGEs, 1), Limit: q.Limit}
		if q.XRC {
			q.cq = hs.cqs[0]
			init.XRCD, init.CQ = hs.xrcd, q.cq
		}
		srq, err := hs.h.CreateSRQ(init)
		q.Q = try(f, srq, err)
		q.MR = r.reg(f, q.At, q.pd, hca.AccessLocalWrite)
	}
	for _, e := range r.Ends {
		r.makeEnd(f, e)
	}
	return f.err
}

// sizeCQs makes the completion queues as long as can ever be needed.
func (r *Runner) sizeCQs() {
	for _, hs := range r.hosts {
		for k := range hs.cqNeed {
			hs.cqNeed[k] = 4
		}
	}
	for _, q := range r.SRQs {
		for k := range cqPerHost {
			r.hosts[q.Host].cqNeed[k] += q.Depth + 1
		}
	}
	for _, e := range r.Ends {
		need := r.hosts[e.Host].cqNeed
		need[e.Conn.CQ[e.E]] += 2*e.Flow.Spec.SendDepth + len(e.Recvs) + 1
	}
}

func (r *Runner) reg(f *failing, at Range, pd *hca.PD, access hca.Access) *hca.MR {
	if f.err != nil {
		return nil
	}
	mr, err := r.hosts[at.Host].h.RegMR(pd, r.memory(at), vaBase+uint64(at.Off), access)
	return try(f, mr, err)
}

// memory is a range's bytes.
func (r *Runner) memory(at Range) []byte { return r.Mem[at.Host][at.Off:at.End():at.End()] }

// makeEnd makes an end's regions, queue pair and windows.
func (r *Runner) makeEnd(f *failing, e *End) {
	if f.err != nil {
		return
	}
	hs, c := r.hosts[e.Host], e.Conn
	e.pd = hs.pds[c.ID%mainPDs]
	e.targetPD = e.pd
	e.scq, e.rcq = hs.cqs[c.CQ[e.E]], hs.cqs[c.CQ[e.E]]
	typ := c.Type
	if typ == hca.XRCSend && e.E == 1 {
		typ, e.targetPD = hca.XRCRecv, e.SRQ.pd // what an XRC peer reaches is the shared queue's domain
	}
	e.Local = r.reg(f, e.LocalAt, e.pd, hca.AccessLocalWrite)
	access := remoteAll
	if e.In.Spec.ZeroBased {
		access |= hca.AccessZeroBased
	}
	e.Target = r.reg(f, e.TargetAt, e.targetPD, access)
	init := hca.QPInit{
		Type: typ, PD: e.pd, SendCQ: e.scq, RecvCQ: e.rcq, SigAll: c.SigAll, XRCD: hs.xrcd, BlockSelfMC: e.E == 1,
		Caps: hca.Caps{
			MaxSendWR: e.Flow.Spec.SendDepth, MaxSendSGE: max(e.Flow.Spec.SendSGEs, 1), MaxInline: maxInline,
			MaxRecvWR: max(len(e.Recvs), 1), MaxRecvSGE: max(e.In.Spec.RecvSGEs, 1),
		},
	}
	if typ != hca.XRCSend && typ != hca.XRCRecv {
		init.XRCD = nil
		if e.SRQ != nil {
			init.SRQ = e.SRQ.Q
		}
	}
	if typ == hca.XRCSend {
		init.XRCD = nil
	}
	qp, err := hs.h.CreateQP(init)
	e.QP = try(f, qp, err)
	r.byQP[qp] = e
	for _, t := range e.In.Spec.Windows {
		mw, err := hs.h.AllocMW(e.targetPD, t)
		hs.mws = append(hs.mws, try(f, mw, err))
		e.In.Windows = append(e.In.Windows, WindowState{MW: mw, slot: len(e.In.Windows)})
	}
}

// lid is a host's address.
func (r *Runner) lid(host int) ib.LID {
	return r.Sim.LID(topo.PortRef{Node: r.Sim.HostNode(host).Index, Port: 1})
}

// path is the way from an end to a host.
func (r *Runner) path(e *End, host int) hca.AHAttr {
	a := hca.AHAttr{DLID: r.lid(host), SL: e.Conn.SL, Port: 1}
	if e.Conn.Global {
		a.IsGlobal, a.DGID, a.HopLimit = true, r.hosts[host].h.Port(1).GIDs[0], 4
	}
	return a
}

// connect brings an end's queue pair to RTS.
func (r *Runner) connect(e *End) error {
	h, c := r.hosts[e.Host].h, e.Conn
	peer := r.peer(e)
	a := hca.QPAttr{
		State: hca.StateInit, Port: 1, PKeyIndex: c.PKeyIndex[e.E], QKey: QKey,
		Access: hca.AccessRemoteWrite | hca.AccessRemoteRead | hca.AccessRemoteAtomic,
	}
	if c.NoAtomic {
		a.Access &^= hca.AccessRemoteAtomic
	}
	typ := e.QP.Type()
	mask := hca.MaskState | hca.MaskPKeyIndex | hca.MaskPort | hca.MaskAccess
	if typ == hca.UD {
		mask = hca.MaskState | hca.MaskPKeyIndex | hca.MaskPort | hca.MaskQKey
	}
	if err := h.ModifyQP(e.QP, a, mask); err != nil {
		return err
	}
	a.State, a.PathMTU, a.DestQPN, a.RQPSN = hca.StateRTR, c.MTU, peer.QP.Num(), c.PSN[1-e.E]
	a.AH, a.MaxDestRD, a.MinRNRTimer = r.path(e, peer.Host), c.MaxRD, c.MinRNRTimer
	mask = hca.MaskState
	switch typ {
	case hca.RC, hca.XRCRecv:
		mask |= hca.MaskMaxDestRD | hca.MaskMinRNRTimer
		fallthrough
	case hca.UC, hca.XRCSend:
		mask |= hca.MaskAV | hca.MaskPathMTU | hca.MaskDestQPN | hca.MaskRQPSN
	}
	if err := h.ModifyQP(e.QP, a, mask); err != nil {
		return err
	}
	if c.Passive && e.E == 1 {
		return nil
	}
	a.State, a.SQPSN, a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRDAtomic = hca.StateRTS, c.PSN[e.E], c.Timeout, c.Retry,
		c.RNRRetry, c.MaxRD
	mask = hca.MaskState | hca.MaskSQPSN
	switch typ {
	case hca.RC, hca.XRCSend:
		mask |= hca.MaskTimeout | hca.MaskRetryCnt | hca.MaskRNRRetry | hca.MaskMaxRDAtomic
	case hca.XRCRecv:
		mask |= hca.MaskTimeout
	}
	if err := h.ModifyQP(e.QP, a, mask); err != nil {
		return err
	}
	if typ == hca.UD {
		ah, err := h.CreateAH(e.pd, r.path(e, peer.Host))
		e.ah = ah
		r.hosts[e.Host].ahs = append(r.hosts[e.Host].ahs, ah)
		return err
	}
	return nil
}

// peer is the other end.
func (r *Runner) peer(e *End) *End { return e.Flow.To }

// member finds the end that a group's member is; nil if it was shrunk away.
func (r *Runner) member(m EndRef) *End {
	if f := r.byFlow[2*m.Conn+m.End]; f != nil {
		return f.From
	}
	return nil
}

// join attaches the members of multicast groups and writes the switches' tables: a
// tree that spans the members' switches.
func (r *Runner) join() error {
	for i := range r.Spec.Groups {
		g := &r.Spec.Groups[i]
		hosts := map[int]bool{}
		for _, m := range g.Members {
			e := r.member(m)
			if e == nil {
				continue
			}
			if err := r.hosts[e.Host].h.AttachMcast(e.QP, g.MGID, g.MLID); err != nil {
				return err
			}
			e.joined = append(e.joined, i)
			hosts[e.Host] = true
		}
		if err := r.routeGroup(g.MLID, hosts); err != nil {
			return err
		}
	}
	return nil
}

// routeGroup writes the multicast tables. Every switch is on the tree, because
// a sender need not be a member.
func (r *Runner) routeGroup(mlid ib.LID, hosts map[int]bool) error {
	g := r.Sim.Graph()
	masks := make([]ib.PortMask, len(g.Nodes))
	seen := make([]bool, len(g.Nodes))
	var queue []int
	if len(g.Switches()) > 0 {
		queue = append(queue, g.Switches()[0].Index)
		seen[queue[0]] = true
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for num := 1; num < len(g.Nodes[n].Ports); num++ {
			p := &g.Nodes[n].Ports[num]
			if !p.Connected() || !g.Nodes[p.Peer].IsSwitch() || seen[p.Peer] {
				continue
			}
			seen[p.Peer] = true
			queue = append(queue, p.Peer)
			masks[n].Set(ib.PortNum(num))
			masks[p.Peer].Set(p.PeerPort)
		}
	}
	for i := range r.Spec.Hosts {
		if p := &r.Sim.HostNode(i).Ports[1]; hosts[i] && g.Nodes[p.Peer].IsSwitch() {
			masks[p.Peer].Set(p.PeerPort)
		}
	}
	for _, n := range g.Switches() {
		if err := r.Sim.Switch(n.Index).SetMulticastPorts(mlid, masks[n.Index]); err != nil {
			return err
		}
	}
	return nil
}
