package sim

import (
	"fmt"
	"slices"

	"softib/node/aggregate"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/am"
	"softib/subnet/route"
)

// ReductionConfig is how reductions are done.
type ReductionConfig struct {
	// Node is what the aggregation nodes of all switches are.
	Node aggregate.Config
	// Path is what the queue pairs of the trees have: MTU, ACK timeout and retries. Level, if there is one, is the
	// service level from one address to another.
	MTU      ib.MTU
	Timeout  uint8
	RetryCnt uint8
	Level    func(from, to ib.LID) ib.SL
	// Patience is how long a member waits for a result before it takes its tree for lost; 0 for ever.
	Patience ib.Time
	// Mend is how long the manager takes from hearing of a lost tree to its next, and Tries how often it looks for one
	// before it gives the job up.
	Mend  ib.Time
	Tries int

	// Fill writes a part of a member's vector. Got is told of what a member has got; the vector is the driver's. Failed
	// is told that a member's tree has failed; the member goes on by itself when there is another. Ended is told that
	// there is none, and the job is given up. None of them may come back here but by Start.
	Fill   func(j *Reduction, member int, id, offset uint64, vector []byte)
	Got    func(j *Reduction, member int, n aggregate.News)
	Failed func(j *Reduction, member int, why aggregate.Reason)
	Ended  func(j *Reduction, err error)
}

// Reductions are the aggregation nodes of a fabric's switches, the jobs that use them, and what joins them: a reliable
// connection between any two neighbours of a tree, of queue pairs of the hosts' adapters and of the switches' (Port0).
// Loss is thus repaired hop by hop, as in SHARP, by the same code that repairs it for everybody else.
type Reductions struct {
	s        *Sim
	cfg      ReductionConfig
	am       *am.Manager
	net      *route.Network
	switches []*topo.Node // by the network's number
	number   []int32      // of a node in the network
	nodes    []*reducer   // by node; nil where there is none yet
	hosts    [][]*seat    // by host
	sides    []*redSide   // of hosts
	ends     []*redEnd
	jobs     []*Reduction
	casts    ib.LID // the last address that was given to a group of multicasts

	// For working without allocating.
	wc   [16]hca.WC
	wr   hca.SendWR
	recv hca.RecvWR
	sge  [1]hca.SGE
}

// Reduction is a job.
type Reduction struct {
	*am.Job
	places  []topo.PortRef
	seats   []*seat
	ends    []*redEnd
	cast    ib.LID // its group of multicasts, if there is one
	mending bool
	tries   int
	over    bool
	// Trees counts those that it has had.
	Trees int
}

// seat is a member of a job at its host.
type seat struct {
	*aggregate.Member
	job   *Reduction
	index int
	host  int
	port  ib.PortNum
	end   *redEnd
	told  bool // that its tree has failed
	timed bool // a timer is set
}

// reducer is the aggregation node of a switch.
type reducer struct {
	*aggregate.Node
	side  *redSide
	dueAt ib.Time
	ends  map[uint32][]*redEnd // by tree: 1 + the neighbour's number, the parent's first
	casts map[uint32]*redEnd   // by tree of which it is the root: what sends to all members
}

// Reductions sets up the aggregation nodes. It is called once, when the fabric is up.
func (s *Sim) Reductions(cfg ReductionConfig) *Reductions {
	r := &Reductions{s: s, cfg: cfg, net: route.FromGraph(s.graph), switches: s.graph.Switches(),
		number: make([]int32, len(s.graph.Nodes)), nodes: make([]*reducer, len(s.graph.Nodes)),
		hosts: make([][]*seat, len(s.hosts)), sides: make([]*redSide, len(s.hosts))}
	for i, n := range r.switches {
		r.number[n.Index] = int32(i)
	}
	r.am = am.New(r.fabric(), cfg.Node.Limits)
	s.reductions = r
	return r
}

// fabric is how the switches are joined now, as far as their tables lead there and links are up.
func (r *Reductions) fabric() *am.Fabric {
	s := r.s
	return am.NewFabric(r.net, func(from, to int32) ib.PortNum {
		a, b := r.switches[from].Index, r.switches[to].Index
		lid, _ := s.Switch(b).LID()
		p := s.Switch(a).Route(lid)
		if lid == 0 || int(p) >= len(s.graph.Nodes[a].Ports) || s.IsStopped(b) ||
			s.Switch(a).Port(p).State() != ib.PortActive {
			return route.NoPort
		}
		return p
	})
}

// Create makes a job of the hosts' ports at these places, or has it wait for its turn.
func (r *Reductions) Create(places []topo.PortRef, req am.Request) (*Reduction, error) {
	req.Members = nil
	for _, p := range places {
		end := r.s.graph.Port(p)
		if end == nil || !end.Connected() || !r.s.graph.Nodes[end.Peer].IsSwitch() {
			return nil, fmt.Errorf("a reduction: %s is at no switch: nobody is there who could add",
				r.s.graph.PortName(p))
		}
		req.Members = append(req.Members, r.number[end.Peer])
	}
	j, err := r.am.Create(req)
	if err != nil {
		return nil, err
	}
	job := &Reduction{Job: j, places: places}
	for i, p := range places {
		host := int(r.s.nodes[p.Node].host)
		st := &seat{Member: aggregate.NewMember(aggregate.Place{}), job: job, index: i, host: host, port: p.Port}
		st.Timeout = r.cfg.Patience
		job.seats = append(job.seats, st)
		r.hosts[host] = append(r.hosts[host], st)
	}
	r.jobs = append(r.jobs, job)
	if j.Tree != nil {
		err = r.begin(job)
	}
	return job, err
}

// Member is a member of a job.
func (j *Reduction) Member(i int) *aggregate.Member { return j.seats[i].Member }

// Start begins an operation of a member.
func (r *Reductions) Start(j *Reduction, member int, o aggregate.Operation) {
	st := j.seats[member]
	st.Start(r.s.Now(), o)
	r.drive(st)
}

// Release ends a job, and begins those that have waited for its places. Where a fault is in the way of one, it is tried
// again like one whose tree has failed.
func (r *Reductions) Release(j *Reduction) {
	j.over = true
	r.tearDown(j)
	for _, st := range j.seats {
		list := r.hosts[st.host]
		for i, o := range list {
			if o == st {
				r.hosts[st.host] = append(list[:i:i], list[i+1:]...)
				break
			}
		}
	}
	r.am.SetFabric(r.fabric())
	ready, stuck := r.am.Release(j.Job)
	for _, o := range r.jobs {
		if slices.Contains(stuck, o.Job) || slices.Contains(ready, o.Job) && r.begin(o) != nil {
			r.mendLater(o)
		}
	}
}

// begin sets a job's tree up and lets the members go on from the first operation that one of them has not done.
func (r *Reductions) begin(j *Reduction) error {
	j.Trees++
	if err := r.setUp(j); err != nil {
		r.tearDown(j)
		return err
	}
	t, from := j.Tree, j.seats[0].Done()
	for _, st := range j.seats {
		from = min(from, st.Done())
	}
	for i, st := range j.seats {
		st.told = false
		st.Restart(r.s.Now(), aggregate.Place{Tree: t.ID, Me: uint32(i), OSTs: t.OSTs, Payload: t.Payload}, from)
	}
	for _, st := range j.seats {
		r.drive(st)
	}
	return nil
}

// drive sends what a member may send, and sees whether its tree has failed.
func (r *Reductions) drive(st *seat) {
	e := st.end
	for e != nil && !e.dead && len(e.free) > 0 && st.Failed() == aggregate.NoReason {
		snd, ok := st.Poll()
		if !ok {
			break
		}
		slot := e.take()
		b := snd.Header.Append(e.sendSlot(slot)[:0])
		b = b[:len(b)+snd.Bytes]
		if snd.Bytes > 0 {
			r.cfg.Fill(st.job, st.index, snd.ID, snd.Offset, b[aggregate.HeaderLen:])
		}
		r.post(e, slot, len(b))
	}
	if e != nil {
		r.s.Wake(st.host)
	}
	if st.Failed() != aggregate.NoReason && !st.told {
		st.told = true
		if r.cfg.Failed != nil {
			r.cfg.Failed(st.job, st.index, st.Failed())
		}
		r.mendLater(st.job)
	}
	r.timer(st)
}

// timer sees to it that a member which waits looks at the clock.
func (r *Reductions) timer(st *seat) {
	at := st.NextDeadline()
	if st.timed || at == ib.Never {
		return
	}
	st.timed = true
	r.s.plan(at, func() {
		st.timed = false
		if !st.job.over {
			st.HandleTimeout(r.s.Now())
			r.drive(st)
		}
	})
}

// mendLater has the manager look for another tree.
func (r *Reductions) mendLater(j *Reduction) {
	if !j.mending && !j.over {
		j.mending = true
		r.s.plan(r.s.Now()+r.cfg.Mend, func() { r.mend(j) })
	}
}

// mend takes a job's tree away from everybody who still has it, and gives them another.
func (r *Reductions) mend(j *Reduction) {
	j.mending = false
	if j.over {
		return
	}
	r.tearDown(j)
	for _, st := range j.seats {
		if j.Trees == 0 {
			break // it has waited so far, and lost nothing
		}
		st.HandleLost(aggregate.Reassigned)
		if !st.told {
			st.told = true
			if r.cfg.Failed != nil {
				r.cfg.Failed(j, st.index, st.Failed())
			}
		}
	}
	r.am.SetFabric(r.fabric())
	err := r.reach(j)
	if err == nil {
		err = r.am.Replace(j.Job)
	}
	if err == nil && j.Tree != nil {
		err = r.begin(j)
	}
	if err == nil {
		j.tries = 0
		return
	}
	if j.tries++; j.tries < r.cfg.Tries {
		r.mendLater(j)
		return
	}
	j.over = true
	if r.cfg.Ended != nil {
		r.cfg.Ended(j, err)
	}
}

// reach says which host of a job has no link.
func (r *Reductions) reach(j *Reduction) error {
	for _, p := range j.places {
		if r.s.Port(p).State() != ib.PortActive || r.s.IsStopped(p.Node) {
			return fmt.Errorf("%w: %s has no link", am.ErrNoWay, r.s.graph.PortName(p))
		}
	}
	return nil
}

// portDown tells those of a link's ends that their neighbour is out of reach: a message that comes too late to be sent
// would never tell them.
func (r *Reductions) portDown(at uint32) {
	site := &r.s.PortAt(at).Site
	if site.Host >= 0 {
		for _, st := range r.hosts[site.Host] {
			if st.port == site.Num && st.end != nil {
				st.HandleLost(aggregate.Lost)
				r.drive(st)
			}
		}
		return
	}
	node := int(site.Node)
	if r.nodes[node] == nil {
		return
	}
	for _, j := range r.jobs {
		if j.over {
			continue
		}
		for _, e := range j.ends {
			if e.node == node && e.seat == nil && e.out == site.Num && !e.dead {
				r.lost(e)
			}
		}
	}
	r.settle(node)
}

// Used is what of all aggregation nodes' places is taken.
func (r *Reductions) Used() (sum aggregate.Limits) {
	for _, n := range r.nodes {
		if n != nil {
			u := n.Used()
			sum.Trees, sum.Streams = sum.Trees+u.Trees, sum.Streams+u.Streams
			sum.OSTs, sum.Buffer = sum.OSTs+u.OSTs, sum.Buffer+u.Buffer
		}
	}
	return sum
}
