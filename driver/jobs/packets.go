package jobs

import (
	"cmp"
	"fmt"

	"softib/driver/sim"
	"softib/job/play"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// Packets is a Network of the engines themselves.
type Packets struct {
	*sim.Sim
	f       *Fabric
	hosts   []adapter
	index   []int32 // by node: its number among the hosts
	pairs   map[pair]*conn
	turns   map[pair]int // messages of two ports that have several queue pairs
	planes  planeTurns
	conns   []*conn
	mem     []byte // what all messages are written from: their content is nobody's
	ready   ib.Queue[done]
	out     int // messages on their way, and those that their senders wait to hear of
	rep     sm.Report
	*groups // that switches work for
	// What goes down, and the fabric that is left, once its tables are to be written; see Loss.
	lost   int
	healed *Fabric

	// Since when no packet has crossed a link, and how many had before: see jammed.
	hops   uint64
	hopsAt ib.Time

	// For working without allocating.
	wr   hca.SendWR
	sges [1]hca.SGE
	wc   [32]hca.WC
}

// pair is a rank's port that talks to another, of one job.
type pair struct {
	from, to topo.PortRef
	job      uint8
	number   int // among those of the two, where there are several
}

type done struct {
	id   uint32
	sent bool
}

// adapter is what a host has for all its ranks.
type adapter struct {
	*hca.HCA
	pd     *hca.PD
	cq     *hca.CQ
	source *hca.MR // what is sent,
	sink   *hca.MR // and where what comes is written to
}

// conn is a queue pair at the sender with its peer, and the messages that wait for their turn in it.
type conn struct {
	from, to int // hosts
	qp, far  *hca.QP
	wait     ib.Queue[play.Message]
	now      play.Message // the message that is being posted,
	left     uint64       // what of it was not,
	has      bool         // if there is one
	busy     int          // requests that have not completed
	number   uint64
}

// What a request and a queue have at most. Receives are posted for as many messages as may be under way.
const (
	chunk   = 256 << 10
	depth   = 16
	anyAddr = 1 << 20
)

// Packets makes a network of packets, with all links up and all tables written.
func (f *Fabric) Packets() (*Packets, error) {
	cfg := sim.Config{Seed: f.opt.Seed, ByRefMin: 1024, SwitchLatency: f.opt.SwitchLatency, Engines: f.opt.Routing,
		Adapter: f.opt.Adapter, ByPlace: f.opt.divisible(),
		Port: link.Config{BufferBlocks: (f.opt.Buffer + link.BlockSize - 1) / link.BlockSize}}
	if f.Groups != nil && !f.opt.hashes() {
		cfg.Reorder = reorder
	}
	cfg.CNP = f.opt.Congestion.CNP
	f.setEthernet(&cfg)
	s, err := sim.New(f.Graph, cfg)
	if err != nil {
		return nil, err
	}
	rep, err := s.BringUp()
	if err != nil {
		return nil, err
	}
	n := &Packets{Sim: s, f: f, rep: rep, hosts: make([]adapter, s.NumHosts()),
		index: make([]int32, len(f.Graph.Nodes)), pairs: map[pair]*conn{}, turns: map[pair]int{},
		mem: make([]byte, chunk)}
	n.groups = &groups{net: n}
	sink := make([]byte, chunk)
	for i := range n.hosts {
		n.index[s.HostNode(i).Index] = int32(i)
		a := &n.hosts[i]
		a.HCA = s.Host(i).(*hca.HCA)
		if a.pd, err = a.AllocPD(); err == nil {
			a.cq, err = a.CreateCQ(cqEntries)
		}
		if err == nil {
			a.source, err = a.RegMR(a.pd, n.mem, anyAddr, hca.AccessRemoteRead)
		}
		if err == nil {
			err = a.setSink(sink)
		}
		if err != nil {
			return nil, fmt.Errorf("the adapter of %s: %w", s.HostNode(i).Name, err)
		}
		a.cq.ReqNotify(false)
	}
	n.control(f.opt.Congestion)
	if err := n.breakHost(); err != nil {
		return nil, err
	}
	if err := n.lose(f.opt.Loss); err != nil {
		return nil, err
	}
	return n, n.writeTables()
}

// setSink says where to write what comes.
func (a *adapter) setSink(mem []byte) (err error) {
	if a.sink != nil {
		if err = a.DeregMR(a.sink); err != nil {
			return err
		}
	}
	a.sink, err = a.RegMR(a.pd, mem, anyAddr, hca.AccessLocalWrite|hca.AccessRemoteWrite)
	return err
}

// control sets congestion control up.
func (n *Packets) control(c Congestion) {
	if !c.On {
		return
	}
	def := policy.CongestionFor(ccRate)
	mark := link.Marking{Threshold: cmp.Or(c.Threshold, def.Threshold), Rate: cmp.Or(c.Rate, def.MarkingRate+1) - 1}
	for _, node := range n.f.Graph.Switches() {
		for p := 1; p < len(node.Ports); p++ {
			n.Switch(node.Index).Port(ib.PortNum(p)).SetMarking(mark)
		}
	}
	slow := hca.Congestion{Levels: def.CAControlMap, Limit: uint16(len(def.Table) - 1)}
	for i, e := range def.CA {
		slow.Entries[i] = hca.CongestionEntry{Timer: cmp.Or(c.Timer, e.Timer), Increase: cmp.Or(c.Increase, e.Increase)}
	}
	for i, e := range def.Table {
		slow.Table[i] = uint16(e.Shift)<<14 | e.Multiplier
	}
	for i := range n.hosts {
		for p := 1; p <= n.hosts[i].NumPorts(); p++ {
			n.hosts[i].SetCongestion(ib.PortNum(p), slow)
		}
	}
}

const (
	cqEntries = 1 << 14
	// reorder is how many packets an adapter keeps that came before their turn: more than the buffers of the longest
	// way hold.
	reorder = 512
)

// writeTables gives the switches the fabric's own tables, which flows use too: the manager has numbered the switches
// in another order, and chosen otherwise where ways are as good as each other. Tables with service levels stay the
// manager's, since their lanes are.
func (n *Packets) writeTables() error {
	if n.f.Tables.SL != nil {
		return nil
	}
	switches := n.f.Graph.Switches()
	for i := range n.f.Net.Dests {
		d := &n.f.Net.Dests[i]
		ref := topo.PortRef{Node: switches[d.Switch].Index}
		if d.IsEnd() {
			port := n.f.Graph.Port(topo.PortRef{Node: ref.Node, Port: d.Port})
			ref = topo.PortRef{Node: port.Peer, Port: port.PeerPort}
		}
		for s, node := range switches {
			sw := n.Switch(node.Index)
			if err := sw.SetRoute(n.LID(ref), n.f.Tables.LFT[s][d.LID]); err != nil {
				return err
			}
			if g := n.f.Groups; g != nil {
				m := ibswitch.Membership{Group: int(g.Of[s][i]) - 1, Bounded: n.f.opt.Adaptive != route.ByPacket &&
					!n.f.opt.hashes()}
				if err := sw.SetGroupOf(n.LID(ref), m); err != nil {
					return err
				}
			}
		}
	}
	return n.writeGroups(switches)
}

// writeGroups lets the switches choose, if they are to.
func (n *Packets) writeGroups(switches []*topo.Node) error {
	if n.f.Groups == nil {
		return nil
	}
	for s, node := range switches {
		sw := n.Switch(node.Index)
		for i, m := range n.f.Groups.Sets[s] {
			if err := sw.SetGroup(i, m); err != nil {
				return err
			}
		}
		a := sw.Adaptive()
		a.On, a.Ageing, a.Detours = true, n.f.opt.FlowletGap, n.f.Groups.Detours
		if n.f.opt.Adaptive == route.ByMessage {
			a.Ageing = ib.Never
		}
		if a.Hash = n.f.opt.hashes(); a.Hash {
			a.Salt = n.f.salt(s)
		}
		a.Notify = !a.Hash && !n.f.opt.Loss.Mute // Ethernet's switches do not
		sw.SetAdaptive(a)
	}
	return nil
}

// Send puts a message into the queue of its two ports.
func (n *Packets) Send(_ ib.Time, m play.Message) error {
	if m.Group > 0 {
		return n.groups.start(m)
	}
	from, to, err := n.f.ends(m, &n.planes)
	if err != nil {
		return err
	}
	if n.f.opt.Read {
		from, to = to, from // the receiver asks
	}
	c, err := n.conn(from, to, m.From)
	if err != nil {
		return err
	}
	n.out++
	c.wait.Push(m)
	return n.post(c)
}

// conn is what the next message of a rank between two ports goes by.
func (n *Packets) conn(from, to topo.PortRef, rank uint32) (*conn, error) {
	key := n.turn(n.f.pair(from, to, rank))
	c := n.pairs[key]
	if c == nil {
		var err error
		if c, err = n.connect(from, to); err != nil {
			return nil, fmt.Errorf("from %s to %s: %w", n.f.Graph.PortName(from), n.f.Graph.PortName(to), err)
		}
		n.pairs[key] = c
	}
	return c, nil
}

// connect makes the two queue pairs of a pair of ports.
func (n *Packets) connect(from, to topo.PortRef) (*conn, error) {
	c := &conn{from: int(n.index[from.Node]), to: int(n.index[to.Node]), number: uint64(len(n.conns))}
	a, b := &n.hosts[c.from], &n.hosts[c.to]
	var err error
	if c.qp, err = a.CreateQP(hca.QPInit{Type: hca.RC, PD: a.pd, SendCQ: a.cq, RecvCQ: a.cq,
		Caps: hca.Caps{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return nil, err
	}
	if c.far, err = b.CreateQP(hca.QPInit{Type: hca.RC, PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq,
		Caps: hca.Caps{MaxSendWR: 1, MaxRecvWR: 2 * depth, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return nil, err
	}
	if err := n.toRTS(a, c.qp, c.far, from, to); err != nil {
		return nil, err
	}
	if err := n.toRTS(b, c.far, c.qp, to, from); err != nil {
		return nil, err
	}
	for range 2 * depth {
		if err := b.PostRecv(c.far, &hca.RecvWR{WRID: c.number}); err != nil {
			return nil, err
		}
	}
	n.conns = append(n.conns, c)
	return c, nil
}

// toRTS connects a queue pair to its peer. Where nothing gets lost there is no ACK timer, and who waits for ever is
// found by the fabric being at rest.
func (n *Packets) toRTS(a *adapter, q, peer *hca.QP, from, to topo.PortRef) error {
	if err := a.ModifyQP(q, hca.QPAttr{State: hca.StateInit, Port: from.Port, Access: remote},
		hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess); err != nil {
		return err
	}
	ah := hca.AHAttr{DLID: n.LID(to), Port: from.Port, SL: n.rep.Level(n.LID(from), n.LID(to))}
	if err := a.ModifyQP(q, hca.QPAttr{State: hca.StateRTR, PathMTU: n.f.opt.MTU, DestQPN: peer.Num(), MinRNRTimer: 1,
		MaxDestRD: depth, AH: ah}, hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|
		hca.MaskMaxDestRD|hca.MaskMinRNRTimer); err != nil {
		return err
	}
	return a.ModifyQP(q, hca.QPAttr{State: hca.StateRTS, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: depth,
		Timeout: cmp.Or(n.f.opt.Loss.timeout(), n.f.opt.Ethernet.timeout())},
		hca.MaskState|hca.MaskSQPSN|hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|hca.MaskMaxRDAtomic)
}

// post fills the send queue with what waits: pieces of a message, the last with an immediate that names it.
func (n *Packets) post(c *conn) error {
	a, far := &n.hosts[c.from], &n.hosts[c.to]
	local, away := a.source, far.sink
	if n.f.opt.Read {
		local, away = a.sink, far.source
	}
	posted := false
	for c.busy < depth {
		if !c.has {
			if c.now, c.has = c.wait.Pop(); !c.has {
				break
			}
			c.left = c.now.Size
		}
		size := min(c.left, chunk)
		n.wr = hca.SendWR{WRID: c.number<<33 | uint64(c.now.ID)<<1, Opcode: hca.WRRDMAWrite, Flags: hca.SendSignaled,
			SGList: n.sges[:0], RemoteAddr: anyAddr, RKey: away.RKey()}
		if size > 0 {
			n.sges[0] = hca.SGE{Addr: anyAddr, Length: uint32(size), LKey: local.LKey()}
			n.wr.SGList = n.sges[:1]
		}
		if c.left -= size; c.left == 0 {
			n.wr.WRID |= 1
			n.wr.Opcode, n.wr.Imm = hca.WRRDMAWriteImm, c.now.ID
			c.has = false
		}
		if n.f.opt.Read {
			n.wr.Opcode = hca.WRRDMARead
		}
		if err := a.PostSend(c.qp, &n.wr); err != nil {
			return err
		}
		c.busy++
		posted = true
	}
	if posted {
		n.Wake(c.from)
	}
	return nil
}

// Advance goes on until something has arrived.
func (n *Packets) Advance(until ib.Time) (ib.Time, error) {
	for n.ready.Len() == 0 {
		if err := n.jammed(); err != nil {
			return n.Now(), err
		}
		stop := until
		if n.f.opt.Ethernet.isOn() {
			stop = min(until, n.Now()+stillTime/4)
		}
		w := n.Next(stop)
		if w.Kind == sim.WakeLimit && stop < until {
			continue
		}
		switch w.Kind {
		case sim.WakeLimit:
			return until, nil
		case sim.WakeIdle:
			if until != ib.Never {
				n.Run(until)
			}
			return n.Now(), nil
		case sim.WakeTimer:
			if err := n.heal(); err != nil {
				return n.Now(), err
			}
		case sim.WakeHost:
			if err := n.completions(w.Host); err != nil {
				return n.Now(), err
			}
			if err := n.groups.serve(w.Host); err != nil {
				return n.Now(), err
			}
		}
	}
	return n.Now(), nil
}

// completions takes what a host's adapter has completed.
func (n *Packets) completions(host int) error {
	a := &n.hosts[host]
	for _, ok := a.PollEvent(); ok; _, ok = a.PollEvent() {
	}
	a.cq.ReqNotify(false)
	for k := a.cq.Poll(n.wc[:]); k > 0; k = a.cq.Poll(n.wc[:]) {
		for i := range k {
			if err := n.completion(a, &n.wc[i]); err != nil {
				return err
			}
		}
	}
	n.Wake(host)
	return nil
}

func (n *Packets) completion(a *adapter, wc *hca.WC) error {
	if wc.Status != hca.WCSuccess && n.lost > 0 {
		return fmt.Errorf("at %v a message ended with %v, after %d links were lost; next: let a sweep mend the tables "+
			"sooner, or wait longer for acknowledgements", n.Now(), wc.Status, n.lost)
	}
	if wc.Status != hca.WCSuccess {
		return fmt.Errorf("at %v a message ended with %v", n.Now(), wc.Status)
	}
	if wc.Opcode == hca.WCRecvRDMAWithImm {
		c := n.conns[wc.WRID]
		n.ready.Push(done{id: wc.ImmData})
		return a.PostRecv(c.far, &hca.RecvWR{WRID: wc.WRID})
	}
	c := n.conns[wc.WRID>>33]
	c.busy--
	if wc.WRID&1 != 0 {
		if n.f.opt.Read {
			n.ready.Push(done{id: uint32(wc.WRID >> 1)})
		}
		n.ready.Push(done{id: uint32(wc.WRID >> 1), sent: true})
		n.out--
	}
	return n.post(c)
}

// Poll is the next message that has arrived.
func (n *Packets) Poll() (id uint32, sent, ok bool) {
	d, ok := n.ready.Pop()
	return d.id, d.sent, ok
}

// Idle reports whether no message is on its way.
func (n *Packets) Idle() bool { return n.out == 0 && n.ready.Len() == 0 }

// Stuck says why packets do not move though there are some.
func (n *Packets) Stuck() error {
	if n.out == 0 || n.ready.Len() > 0 || !n.NothingLeft() {
		return nil
	}
	return &StuckError{At: n.Now(), What: n.jam()}
}

// Carried is how many bytes a link has carried.
func (n *Packets) Carried(link int32) float64 {
	return 4 * float64(n.Port(n.f.Ways.Port(link)).Counter(ib.PortXmitData))
}

// jam says why packets do not move though there are some: their ways wait for each other in a circle.
func (n *Packets) jam() string {
	says := fmt.Sprintf("%d messages are on their way and no packet can move", n.out)
	judged := route.Judge(n.f.Net, n.f.Tables, route.JudgeOptions{Shifts: 1, Randoms: 1})
	for i, c := range judged.Cycle {
		if i == 0 {
			says += fmt.Sprintf(": with the tables of %s links wait for each other's buffers in a circle, ", n.f.Engine)
		} else {
			says += " → "
		}
		if i == jamNames {
			says += fmt.Sprintf("and %d more", len(judged.Cycle)-i)
			break
		}
		says += n.f.Graph.PortName(topo.PortRef{Node: n.f.Graph.Switches()[c.Switch].Index, Port: c.Port})
	}
	return says + "; next: choose a routing that is free of deadlock here, such as dor or nue"
}

// jamNames is how many ports of a circle are named.
const jamNames = 16
