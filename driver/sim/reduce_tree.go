package sim

import (
	"fmt"

	"softib/node/aggregate"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
)

// redSide is what an adapter has for reductions.
type redSide struct {
	*hca.HCA
	pd *hca.PD
	cq *hca.CQ
}

// redEnd is one end of a connection between two neighbours of a tree. Its memory has slots of one message each.
type redEnd struct {
	*redSide
	number int
	node   int
	job    *Reduction
	tree   uint32
	peer   int        // child or aggregate.Up, at a switch
	out    ib.PortNum // the switch's port towards the neighbour
	seat   *seat      // at a host
	qp     *hca.QP
	mr     *hca.MR
	mem    []byte
	slot   int
	free   []int32 // slots to send from
	wait   ib.Queue[[]byte]
	dead   bool
	head   int     // bytes before what it receives
	ah     *hca.AH // of a root, to all members
}

// What a connection has at most of receives, and beside a tree's operations of sends: what comes is taken at once, and
// an abort goes past a window that is full. sendsMax is how many wait for their acknowledgements at a time.
const (
	redRecvs = 8
	redAddr  = 1 << 20
	sendsMax = 256
)

func (e *redEnd) take() int32 {
	s := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	return s
}

func (e *redEnd) sendSlot(i int32) []byte { return e.mem[(redRecvs+int(i))*e.slot:][:e.slot] }

// setUp makes the connections of a job's tree, and its switches part of it.
func (r *Reductions) setUp(j *Reduction) error {
	t := j.Tree
	for i := range t.Nodes {
		sw := r.switches[t.Nodes[i].Switch].Index
		n, err := r.node(sw)
		if err != nil {
			return err
		}
		if err := n.Add(t.Config(i)); err != nil {
			return fmt.Errorf("%s: %w", r.s.graph.Nodes[sw].Name, err)
		}
		n.ends[t.ID] = make([]*redEnd, 1+len(t.Nodes[i].Children))
	}
	for i := range t.Nodes {
		node := &t.Nodes[i]
		sw := r.switches[node.Switch].Index
		for k := range node.Children {
			near := &redEnd{redSide: r.nodes[sw].side, node: sw, peer: k}
			far := &redEnd{peer: aggregate.Up}
			if c := node.Children[k]; c.Node >= 0 {
				child := &t.Nodes[c.Node]
				far.node = r.switches[child.Switch].Index
				far.redSide, near.out, far.out = r.nodes[far.node].side, child.Far, child.Port
			} else {
				st := j.seats[c.Member]
				place := j.places[c.Member]
				side, err := r.host(st.host)
				if err != nil {
					return err
				}
				far.redSide, far.node, far.out, far.seat = side, place.Node, place.Port, st
				near.out = r.s.graph.Port(place).PeerPort
				st.end = far
			}
			if err := r.connect(j, near, far); err != nil {
				return fmt.Errorf("between %s and %s: %w", r.s.graph.Nodes[sw].Name,
					r.s.graph.Nodes[far.node].Name, err)
			}
		}
	}
	if t.Multicast {
		return r.gather(j)
	}
	return nil
}

// node is the aggregation node of a switch.
func (r *Reductions) node(sw int) (*reducer, error) {
	eng := r.s.Port0(sw)
	if r.nodes[sw] == nil {
		side, err := newSide(eng)
		if err != nil {
			return nil, err
		}
		r.nodes[sw] = &reducer{Node: aggregate.New(r.cfg.Node), side: side, dueAt: ib.Never,
			ends: map[uint32][]*redEnd{}, casts: map[uint32]*redEnd{}}
	}
	return r.nodes[sw], nil
}

// host is what a host's adapter has for all its members.
func (r *Reductions) host(i int) (_ *redSide, err error) {
	if r.sides[i] == nil {
		a, ok := r.s.hosts[i].eng.(*hca.HCA)
		if !ok {
			return nil, fmt.Errorf("the engine of %s is no adapter that the simulation drives", r.s.hosts[i].node.Name)
		}
		r.sides[i], err = newSide(a)
	}
	return r.sides[i], err
}

func newSide(h *hca.HCA) (*redSide, error) {
	d := &redSide{HCA: h}
	var err error
	if d.pd, err = h.AllocPD(); err != nil {
		return nil, err
	}
	if d.cq, err = h.CreateCQ(1 << 14); err != nil {
		return nil, err
	}
	d.cq.ReqNotify(false)
	return d, nil
}

// open makes the queue pair of an end.
func (r *Reductions) open(j *Reduction, e *redEnd, kind hca.QPType) error {
	e.number, e.job, e.tree = len(r.ends), j, j.Tree.ID
	r.ends = append(r.ends, e)
	j.ends = append(j.ends, e)
	sends := min(j.Tree.OSTs+2, sendsMax)
	e.slot = e.head + aggregate.HeaderLen + j.Tree.Payload
	e.mem = make([]byte, (redRecvs+sends)*e.slot)
	for i := sends - 1; i >= 0; i-- {
		e.free = append(e.free, int32(i))
	}
	var err error
	if e.mr, err = e.RegMR(e.pd, e.mem, redAddr, hca.AccessLocalWrite); err != nil {
		return err
	}
	e.qp, err = e.CreateQP(hca.QPInit{Type: kind, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: hca.Caps{MaxSendWR: sends, MaxRecvWR: redRecvs, MaxSendSGE: 1, MaxRecvSGE: 1}})
	return err
}

// connect makes the queue pairs of two ends.
func (r *Reductions) connect(j *Reduction, ends ...*redEnd) error {
	for _, e := range ends {
		if err := r.open(j, e, hca.RC); err != nil {
			return err
		}
		if e.seat == nil {
			r.nodes[e.node].ends[e.tree][1+e.peer] = e
		}
	}
	for i, e := range ends {
		if err := r.toRTS(e, ends[1-i]); err != nil {
			return err
		}
		if err := r.receives(e); err != nil {
			return err
		}
	}
	return nil
}

// firstPSN is where an end's packets begin: elsewhere than those of the queue pair that had its number before, of which
// some may still be on their way.
func (e *redEnd) firstPSN() ib.PSN {
	return ib.PSN(uint64(e.number+1) * 0x9E3779B97F4A7C15 >> 40)
}

func (r *Reductions) toRTS(e, far *redEnd) error {
	port := ib.PortNum(1)
	if e.seat != nil {
		port = e.out
	}
	from := r.s.lidAt(topo.PortRef{Node: e.node, Port: e.out})
	to := r.s.lidAt(topo.PortRef{Node: far.node, Port: far.out})
	ah := hca.AHAttr{DLID: to, Port: port}
	if r.cfg.Level != nil {
		ah.SL = r.cfg.Level(from, to)
	}
	if err := e.ModifyQP(e.qp, hca.QPAttr{State: hca.StateInit, Port: port},
		hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess); err != nil {
		return err
	}
	if err := e.ModifyQP(e.qp, hca.QPAttr{State: hca.StateRTR, PathMTU: r.cfg.MTU, DestQPN: far.qp.Num(),
		RQPSN: far.firstPSN(), MinRNRTimer: 1, AH: ah}, hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|
		hca.MaskRQPSN|hca.MaskMaxDestRD|hca.MaskMinRNRTimer); err != nil {
		return err
	}
	return e.ModifyQP(e.qp, hca.QPAttr{State: hca.StateRTS, SQPSN: e.firstPSN(), Timeout: r.cfg.Timeout,
		RetryCnt: r.cfg.RetryCnt, RNRRetry: 7}, hca.MaskState|hca.MaskSQPSN|hca.MaskTimeout|hca.MaskRetryCnt|
		hca.MaskRNRRetry|hca.MaskMaxRDAtomic)
}

// tearDown takes a job's tree, or what there is of it, away from the switches, and ends its connections.
func (r *Reductions) tearDown(j *Reduction) {
	if t := j.Tree; t != nil {
		for i := range t.Nodes {
			if n := r.nodes[r.switches[t.Nodes[i].Switch].Index]; n != nil {
				n.Remove(t.ID)
				delete(n.ends, t.ID)
				delete(n.casts, t.ID)
			}
		}
		r.scatter(j)
	}
	for _, e := range j.ends {
		r.ends[e.number] = nil
		e.dead = true
		if e.seat != nil {
			e.seat.end = nil
		} else if n := r.nodes[e.node]; n == nil || n.side != e.redSide {
			continue // its switch has started anew
		}
		if e.ah != nil {
			e.DestroyAH(e.ah)
		}
		if e.qp != nil {
			e.DestroyQP(e.qp)
		}
		if e.mr != nil {
			e.DeregMR(e.mr)
		}
	}
	j.ends = j.ends[:0]
}

// forget ends the aggregation node of a switch that starts anew.
func (r *Reductions) forget(node int) { r.nodes[node] = nil }

// receives posts all slots for what comes.
func (r *Reductions) receives(e *redEnd) error {
	for k := range redRecvs {
		if err := r.receive(e, k); err != nil {
			return err
		}
	}
	return nil
}

// receive posts a slot for what comes.
func (r *Reductions) receive(e *redEnd, k int) error {
	r.sge[0] = hca.SGE{Addr: redAddr + uint64(k*e.slot), Length: uint32(e.slot), LKey: e.mr.LKey()}
	r.recv = hca.RecvWR{WRID: uint64(e.number)<<16 | uint64(k), SGList: r.sge[:]}
	return e.PostRecv(e.qp, &r.recv)
}

// post sends what is in a slot.
func (r *Reductions) post(e *redEnd, slot int32, size int) {
	r.sge[0] = hca.SGE{Addr: redAddr + uint64((redRecvs+int(slot))*e.slot), Length: uint32(size), LKey: e.mr.LKey()}
	r.wr = hca.SendWR{WRID: uint64(e.number)<<16 | 1<<15 | uint64(slot), Opcode: hca.WRSend, Flags: hca.SendSignaled,
		SGList: r.sge[:]}
	if e.ah != nil {
		r.wr.AH, r.wr.RemoteQPN, r.wr.RemoteQKey = e.ah, ib.QPNMulticast, castQKey
	}
	if e.PostSend(e.qp, &r.wr) != nil {
		r.lost(e) // it is in no state to send any more
	}
}

// send copies a message into a slot and sends it, or keeps it until one is free.
func (r *Reductions) send(e *redEnd, data []byte) {
	if len(e.free) == 0 {
		e.wait.Push(append([]byte(nil), data...))
		return
	}
	slot := e.take()
	r.post(e, slot, copy(e.sendSlot(slot), data))
}

// lost tells whoever is at an end that its connection is no more.
func (r *Reductions) lost(e *redEnd) {
	if e.dead {
		return
	}
	e.dead = true
	if e.head > 0 {
		return // the tree brings what it would have
	}
	if e.seat != nil {
		e.seat.HandleLost(aggregate.Lost)
	} else if n := r.nodes[e.node]; n != nil && n.side == e.redSide {
		n.HandleLost(r.s.Now(), e.tree, e.peer)
	}
}

// served takes what the adapter of a switch has completed.
func (r *Reductions) served(node int) {
	n := r.nodes[node]
	if n == nil {
		return
	}
	r.complete(n.side)
	r.settle(node)
}

// ServeHost takes what a host's adapter has completed of reductions. The workload calls it when Next reports the host.
func (r *Reductions) ServeHost(host int) {
	if r.sides[host] == nil {
		return
	}
	r.complete(r.sides[host])
	for _, st := range r.hosts[host] {
		r.drive(st)
	}
}

func (r *Reductions) complete(d *redSide) {
	d.cq.ReqNotify(false)
	for k := d.cq.Poll(r.wc[:]); k > 0; k = d.cq.Poll(r.wc[:]) {
		for i := range k {
			wc := &r.wc[i]
			if e := r.ends[wc.WRID>>16]; e != nil {
				r.completion(e, wc)
			}
		}
	}
}

func (r *Reductions) completion(e *redEnd, wc *hca.WC) {
	slot := int(wc.WRID & (1<<15 - 1))
	switch {
	case wc.Status != hca.WCSuccess:
		r.lost(e)
	case wc.WRID&(1<<15) != 0:
		e.free = append(e.free, int32(slot))
		if b, ok := e.wait.Pop(); ok {
			r.send(e, b)
		}
	case e.dead:
	default:
		b := e.mem[slot*e.slot:][:wc.ByteLen]
		if e.seat != nil {
			handle := e.seat.HandleMessage
			if e.head > 0 {
				handle = e.seat.HandleMulticast
			}
			if n, ok := handle(r.s.Now(), b[e.head:]); ok {
				r.cfg.Got(e.job, e.seat.index, n)
			}
		} else {
			r.nodes[e.node].HandleMessage(r.s.Now(), e.tree, e.peer, b)
		}
		if r.ends[e.number] == e && r.receive(e, slot) != nil {
			r.lost(e)
		}
	}
}

// settle sends what an aggregation node has to say by now, and comes back when it has more.
func (r *Reductions) settle(node int) {
	n := r.nodes[node]
	said := false
	for o, ok := n.Poll(r.s.Now()); ok; o, ok = n.Poll(r.s.Now()) {
		e := n.casts[o.Tree]
		if o.To != aggregate.All {
			e = n.ends[o.Tree][1+o.To]
		}
		if e != nil && !e.dead {
			r.send(e, o.Data)
			said = true
		}
	}
	r.s.arm(&n.dueAt, n.NextDeadline(), r.s.Now(), evAggregate, uint32(node), 0)
	if said {
		r.s.pumpPort0(node)
	}
}

// timeout lets an aggregation node say what is due.
func (r *Reductions) timeout(node int) {
	if n := r.nodes[node]; n != nil && r.s.rings(&n.dueAt) {
		r.settle(node)
	}
}
