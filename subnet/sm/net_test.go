package sm

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// network is a world in virtual time: managers at several hosts, each behind the management service of its port;
// packets that take a while; nodes that misbehave as told; cables that come and go.
type network struct {
	*world
	t      testing.TB
	now    ib.Time
	agenda agenda
	seq    int
	hosts  []*host // managers and clients, in the order in which they came

	// latency is how long a packet takes one way.
	latency ib.Time
	// answers, by node, decides what becomes of an agent's answer. It may change the answer.
	answers map[int]func(req, resp mad.View) fate
	// deaf nodes see nothing at all of what is sent to their agent.
	deaf map[int]bool
	// before, by the number of a packet, is what happens just before it is carried.
	before map[int]func()
	// lose, if there, says which packets are lost before they leave.
	lose func(at topo.PortRef, v mad.View) bool
	// see, if there, looks at every request that an agent answered, before misbehaviour.
	see func(node int, req, resp mad.View)
	// carried counts packets, sets the Set requests that agents answered, by attribute.
	carried int
	sets    map[mad.AttrID]int
	gets    map[int]int  // requests of any kind that a node's agent answered
	traps   bool         // agents send theirs
	mum     map[int]bool // but these do not
}

// fate is what becomes of an answer.
type fate struct {
	drop  bool
	late  ib.Time
	twice bool
}

// host is a program at a port: a manager, or a client of administration.
type host struct {
	n     *network
	ref   topo.PortRef
	rpc   *madrpc.Port
	ids   map[mad.Class]madrpc.AgentID
	m     *Manager // nil at a client
	dead  bool
	log   []string
	times []ib.Time // of the log's lines
	inbox [][]byte  // what a client got
	slow  ib.Time   // how long routing takes
	at    int       // of the log, see since
}

type event struct {
	at  ib.Time
	seq int
	do  func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

func newNetwork(t testing.TB, shape string) *network {
	t.Helper()
	return networkOf(t, spec(t, shape))
}

func networkOf(t testing.TB, g *topo.Graph) *network {
	t.Helper()
	return &network{
		world: build(t, g), t: t, latency: 5 * ib.Microsecond, traps: true,
		answers: map[int]func(req, resp mad.View) fate{}, deaf: map[int]bool{}, before: map[int]func(){},
		sets: map[mad.AttrID]int{}, gets: map[int]int{}, mum: map[int]bool{},
	}
}

func (n *network) later(d ib.Time, do func()) {
	n.seq++
	heap.Push(&n.agenda, event{n.now + d, n.seq, do})
}

// hostRef is the first cabled port of the k-th host.
func (n *network) hostRef(k int) topo.PortRef {
	h := n.g.Hosts()[k]
	return topo.PortRef{Node: h.Index, Port: firstPort(h)}
}

// open makes a program at a port.
func (n *network) open(ref topo.PortRef) *host {
	h := &host{n: n, ref: ref, rpc: madrpc.New(madrpc.Config{AgentAfter: madrpc.AgentID(1000 * (len(n.hosts) + 1))}),
		ids: map[mad.Class]madrpc.AgentID{}}
	n.hosts = append(n.hosts, h)
	return h
}

func (h *host) register(r madrpc.Registration) {
	id, err := h.rpc.Register(r)
	if err != nil {
		h.n.t.Fatal(err)
	}
	h.ids[r.Class] = id
}

// manage starts a manager at the k-th host.
func (n *network) manage(k int, cfg Config) *host {
	n.t.Helper()
	h := n.open(n.hostRef(k))
	h.run(cfg)
	return h
}

// run starts a manager at a port.
func (h *host) run(cfg Config) {
	for _, c := range []mad.Class{mad.ClassSMDirect, mad.ClassSMLID} {
		h.register(madrpc.Registration{Class: c, ClassVersion: 1,
			Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodTrap)})
	}
	h.register(madrpc.Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
		Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodDelete, mad.MethodGetTable)})
	h.register(madrpc.Registration{Class: mad.ClassCC, ClassVersion: 2})
	h.m = New(cfg)
	h.n.agents[h.ref.Node].SetCapability(h.ref.Port, mad.CapIsSM, true)
	h.m.Start(h.n.now)
}

// die ends a program without a word, as when its process is killed.
func (h *host) die() {
	h.dead = true
	if h.m != nil {
		h.n.agents[h.ref.Node].SetCapability(h.ref.Port, mad.CapIsSM, false)
	}
}

// at finds the program at a port.
func (n *network) programAt(node int, port ib.PortNum, client bool) *host {
	for k := len(n.hosts) - 1; k >= 0; k-- {
		if h := n.hosts[k]; !h.dead && h.ref.Node == node && h.ref.Port == port && (h.m == nil) == client {
			return h
		}
	}
	return nil
}

// step lets everybody do what can be done now and reports whether there was anything.
func (n *network) step() bool {
	moved := false
	for _, h := range n.hosts {
		if !h.dead && h.step() {
			moved = true
		}
	}
	if n.traps {
		for i, a := range n.agents {
			var buf [mad.Size]byte
			if n.mum[i] {
				continue
			}
			if to, ok := a.PollTrap(n.now, buf[:]); ok {
				moved = true
				p := &packet{data: buf, slid: to.SLID, dlid: to.DLID, smi: true}
				from := i
				n.later(n.latency, func() { n.carry(spot{from, to.Port, true}, p) })
			}
		}
	}
	return moved
}

func (h *host) step() bool {
	n, moved := h.n, false
	h.rpc.HandleTimer(n.now)
	if h.m != nil {
		if n.now >= h.m.NextDeadline() {
			h.m.HandleTimer(n.now)
		}
		var send Send
		for h.m.PollSend(n.now, &send) {
			moved = true
			if err := h.rpc.Send(n.now, h.ids[mad.Class(send.Data[1])], send); err != nil && send.Timeout > 0 {
				h.m.HandleReply(n.now, send.Cookie, nil)
			}
		}
		if len(h.m.out) > 0 {
			n.t.Fatal("PollSend reports that there is nothing to send, and there is: its driver would sleep")
		}
		if j, ok := h.m.PollJob(); ok {
			moved = true
			n.later(h.slow, func() {
				if !h.dead {
					j.Run()
					h.m.HandleJob(n.now, j)
				}
			})
		}
		for e, ok := h.m.PollEvent(); ok; e, ok = h.m.PollEvent() {
			h.log, h.times = append(h.log, e.String()), append(h.times, e.At)
		}
	}
	for env, data, ok := h.rpc.PollSend(); ok; env, data, ok = h.rpc.PollSend() {
		moved = true
		p := &packet{data: *data, dlid: env.LID, smi: env.QPN == ib.QPNSMI}
		p.slid = n.lid(h.ref)
		if mad.Class(data[1]) == mad.ClassSMDirect {
			p.slid = ib.LIDPermissive
		}
		n.later(n.latency, func() { n.carry(spot{h.ref.Node, h.ref.Port, true}, p) })
	}
	for d, ok := h.rpc.PollRecv(); ok; d, ok = h.rpc.PollRecv() {
		moved = true
		d.Data = append([]byte(nil), d.Data...)
		if h.m != nil {
			h.m.HandleDelivery(n.now, d)
		} else if d.Kind == madrpc.Response || d.Kind == madrpc.Unsolicited {
			h.inbox = append(h.inbox, d.Data)
		}
	}
	return moved
}

// next is when something is to be done.
func (n *network) next() ib.Time {
	at := ib.Never
	if len(n.agenda) > 0 {
		at = n.agenda[0].at
	}
	for _, h := range n.hosts {
		if h.dead {
			continue
		}
		at = ib.Earlier(at, h.rpc.NextDeadline())
		if h.m != nil {
			at = ib.Earlier(at, h.m.NextDeadline())
		}
	}
	if n.traps {
		for i, a := range n.agents {
			if !n.mum[i] {
				at = ib.Earlier(at, a.NextDeadline())
			}
		}
	}
	return at
}

// stepsMax bounds what a test may do without time going by.
const stepsMax = 200_000

// until lets time go by until cond holds, at most d.
func (n *network) until(d ib.Time, cond func() bool) bool {
	n.t.Helper()
	end := n.now + d
	idle := 0
	for {
		for n.step() {
			if idle++; idle > stepsMax {
				n.t.Fatalf("no end at %v\n%s", n.now, n.logs())
			}
		}
		if cond() {
			return true
		}
		at := n.next()
		if at > end {
			n.now = end
			for n.step() {
			}
			return cond()
		}
		if at > n.now {
			n.now, idle = at, 0
		} else if idle++; idle > stepsMax {
			n.t.Fatalf("nothing moves at %v, but a deadline has passed\n%s", n.now, n.logs())
		}
		for len(n.agenda) > 0 && n.agenda[0].at <= n.now {
			heap.Pop(&n.agenda).(event).do()
		}
	}
}

// pass lets time go by.
func (n *network) pass(d ib.Time) {
	n.t.Helper()
	n.until(d, func() bool { return false })
}

// must waits for something that has to happen.
func (n *network) must(d ib.Time, what string, cond func() bool) {
	n.t.Helper()
	if !n.until(d, cond) {
		n.t.Fatalf("not within %s: %s\n%s", brief(d), what, n.logs())
	}
}

func (n *network) logs() string {
	var b strings.Builder
	for _, h := range n.hosts {
		if h.m == nil {
			continue
		}
		fmt.Fprintf(&b, "manager at %s, %v:\n", n.g.PortName(h.ref), h.m.State())
		for k := max(0, len(h.log)-40); k < len(h.log); k++ {
			fmt.Fprintf(&b, "  %10.6fs %s\n", float64(h.times[k])/float64(ib.Second), h.log[k])
		}
	}
	return b.String()
}

// rests reports whether a manager is master and has nothing to do now.
func (h *host) rests() bool {
	return h.m.State() == mad.SMMaster && h.m.sub != nil && h.m.sweep == nil && !h.m.due() && h.m.inFlight == 0 &&
		len(h.m.out) == 0
}

// up waits until a manager's subnet is up and all is done.
func (n *network) up(h *host) {
	n.t.Helper()
	n.must(60*ib.Second, "the subnet is up", h.rests)
}

// said reports whether a line of the log, from where since was called last, has all of some words.
func (h *host) said(words ...string) bool {
	return slices.ContainsFunc(h.log[h.at:], func(line string) bool {
		for _, w := range words {
			if !strings.Contains(line, w) {
				return false
			}
		}
		return true
	})
}

// since makes said forget what was logged before.
func (h *host) since() { h.at = len(h.log) }

// resetCounts makes the counters start anew.
func (n *network) resetCounts() {
	n.carried = 0
	clear(n.sets)
	clear(n.gets)
}

func (n *network) allSets() (sum int) {
	for _, c := range n.sets {
		sum += c
	}
	return sum
}

// packet is a management packet under way.
type packet struct {
	data       [mad.Size]byte
	slid, dlid ib.LID
	smi        bool
}

// spot is where a packet is.
type spot struct {
	node int
	port ib.PortNum
	here bool // made at the node
}

func (n *network) lid(ref topo.PortRef) ib.LID {
	if s := n.switches[ref.Node]; s != nil {
		l, _ := s.LID()
		return l
	}
	return n.hcas[ref.Node].Port(max(ref.Port, 1)).LID
}

func (n *network) isLID(ref topo.PortRef, l ib.LID) bool {
	if s := n.switches[ref.Node]; s != nil {
		own, lmc := s.LID()
		return own != 0 && own>>lmc == l>>lmc
	}
	p := n.hcas[ref.Node].Port(max(ref.Port, 1))
	return p.LID != 0 && p.LID>>p.LMC == l>>p.LMC
}

// carry takes a packet to where it comes to rest. An answer goes on its way back as another one, after the latency.
func (n *network) carry(at spot, p *packet) {
	n.carried++
	if f := n.before[n.carried]; f != nil {
		delete(n.before, n.carried)
		f()
	}
	if n.lose != nil && n.lose(topo.PortRef{Node: at.node, Port: at.port}, p.data[:]) {
		return
	}
	for range 256 {
		v := mad.View(p.data[:])
		ref := topo.PortRef{Node: at.node, Port: at.port}
		if n.switches[at.node] != nil {
			ref.Port = 0
		}
		directed := v.Class() == mad.ClassSMDirect
		if !directed && !n.isLID(ref, p.dlid) {
			if !n.forward(&at, p) {
				return
			}
			continue
		}
		if !v.Class().IsSubnet() {
			n.gmp(at, ref, p)
			return
		}
		if !directed && (v.Method().IsResponse() || v.Method() == mad.MethodTrap) {
			n.rest(ref, p)
			return
		}
		// A deaf agent still lets packets pass through its node.
		if n.deaf[at.node] && !v.Method().IsResponse() && (!directed || v.HopPointer() == v.HopCount()) {
			return
		}
		req := append(mad.View(nil), v...)
		wasResponse := v.Method().IsResponse()
		verdict := n.agents[at.node].DeliverFrom(n.now, at.port, p.slid, at.here, v)
		answered := !wasResponse && v.Method().IsResponse()
		switch verdict.Do {
		case agent.SendPort:
			if answered {
				n.answer(at, ref, req, p, func(q *packet) {
					next := at
					if n.cross(&next, verdict.Port, q) {
						n.carry(next, q)
					}
				})
				return
			}
			if !n.cross(&at, verdict.Port, p) {
				return
			}
		case agent.AsAddressed:
			if !answered {
				return
			}
			p.dlid, p.slid = p.slid, n.lid(ref)
			n.answer(at, ref, req, p, func(q *packet) { n.carry(spot{at.node, at.port, true}, q) })
			return
		case agent.ToManager:
			if answered {
				n.answer(at, ref, req, p, func(q *packet) { n.rest(ref, q) })
				return
			}
			n.rest(ref, p)
			return
		default:
			return
		}
	}
}

// answer sends an agent's answer off as the node's misbehaviour has it.
func (n *network) answer(at spot, ref topo.PortRef, req mad.View, p *packet, send func(*packet)) {
	v := mad.View(p.data[:])
	n.gets[at.node]++
	if req.Method() == mad.MethodSet {
		n.sets[req.AttrID()]++
	}
	if n.see != nil {
		n.see(at.node, req, v)
	}
	var f fate
	if hook := n.answers[at.node]; hook != nil {
		f = hook(req, v)
	}
	if f.drop {
		return
	}
	n.later(n.latency+f.late, func() { q := *p; send(&q) })
	if f.twice {
		n.later(n.latency+f.late+ib.Microsecond, func() { q := *p; send(&q) })
	}
}

// rest gives a packet to the program at a port.
func (n *network) rest(ref topo.PortRef, p *packet) {
	env := mad.Envelope{LID: p.slid, QPN: ib.QPNSMI}
	if !p.smi {
		env.QPN, env.QKey = ib.QPNGSI, ib.QKeyGSI
	}
	for _, client := range []bool{false, true} {
		if h := n.programAt(ref.Node, ref.Port, client); h != nil && h.rpc.Handle(n.now, env, &p.data) {
			return
		}
	}
}

// gmp offers a packet to programs, then to the agent.
func (n *network) gmp(at spot, ref topo.PortRef, p *packet) {
	v := mad.View(p.data[:])
	if v.Class() == mad.ClassSA || v.Method().IsResponse() {
		n.rest(ref, p)
		return
	}
	req := append(mad.View(nil), v...)
	if n.deaf[at.node] {
		return
	}
	if _, ok := n.agents[at.node].HandleFrom(n.now, at.port, p.slid, v, v); !ok {
		return
	}
	p.dlid, p.slid = p.slid, n.lid(ref)
	n.answer(at, ref, req, p, func(q *packet) { n.carry(spot{at.node, at.port, true}, q) })
}

// forward sends a packet on by its LID.
func (n *network) forward(at *spot, p *packet) bool {
	s := n.switches[at.node]
	if s == nil {
		return at.here && n.cross(at, at.port, p)
	}
	out := s.Route(p.dlid)
	if out == 0 || int(out) > s.NumPorts() || p.dlid > s.Info().LinearFDBTop || !at.here && out == at.port {
		return false
	}
	return n.cross(at, out, p)
}

// cross takes a packet over a cable.
func (n *network) cross(at *spot, out ib.PortNum, p *packet) bool {
	ref := topo.PortRef{Node: at.node, Port: out}
	x := n.g.Port(ref)
	if x == nil || !x.Connected() {
		return false
	}
	for _, l := range []*link.Port{n.links[at.node][out], n.links[x.Peer][x.PeerPort]} {
		if l.State() < ib.PortInit || !p.smi && l.State() != ib.PortActive {
			return false
		}
	}
	*at = spot{x.Peer, x.PeerPort, false}
	return true
}

// cut takes the link at a port down, at both ends; join brings it back.
func (n *network) cut(ref topo.PortRef) {
	x := n.g.Port(ref)
	n.links[ref.Node][ref.Port].Down(n.now)
	n.links[x.Peer][x.PeerPort].Down(n.now)
	n.sync(ref.Node, x.Peer)
}

func (n *network) join(ref topo.PortRef) {
	x := n.g.Port(ref)
	for _, p := range []*link.Port{n.links[ref.Node][ref.Port], n.links[x.Peer][x.PeerPort]} {
		p.Train()
		p.LinkUp(n.now)
	}
	n.sync(ref.Node, x.Peer)
}

// flap is a cut and a join without time in between.
func (n *network) flap(ref topo.PortRef) { n.cut(ref); n.join(ref) }

// replug takes a cable out and puts it back.
func (n *network) replug(ref topo.PortRef) {
	n.t.Helper()
	n.cut(ref)
	n.pass(ib.Millisecond)
	n.join(ref)
}

// sync lets adapters see that their links have changed.
func (n *network) sync(nodes ...int) {
	for _, i := range nodes {
		if h := n.hcas[i]; h != nil {
			for p := 1; p < len(n.links[i]); p++ {
				h.Port(ib.PortNum(p)).State = n.links[i][p].State()
			}
		}
		if rt := n.routers[i]; rt != nil {
			rt.Refresh()
		}
	}
}

// isolate cuts or joins all cables of a node.
func (n *network) isolate(node int, on bool) {
	for p := 1; p < len(n.g.Nodes[node].Ports); p++ {
		if !n.g.Nodes[node].Ports[p].Connected() {
			continue
		}
		ref := topo.PortRef{Node: node, Port: ib.PortNum(p)}
		if on {
			n.cut(ref)
		} else {
			n.join(ref)
		}
	}
}

// reboot makes a switch lose its power for a moment.
func (n *network) reboot(node int) {
	n.isolate(node, true)
	n.switches[node].Reset()
	n.isolate(node, false)
}

// switchLinks are the cables between switches.
func (n *network) switchLinks() (list []topo.PortRef) {
	for _, c := range n.g.Cables() {
		if n.switches[c.A.Node] != nil && n.switches[c.B.Node] != nil {
			list = append(list, c.A)
		}
	}
	return list
}

// works checks that all hosts reach each other and all switches, but for some that are left out.
func (n *network) works(without ...int) {
	n.t.Helper()
	if why := n.broken(without...); why != "" {
		n.t.Fatalf("%s\n%s", why, n.logs())
	}
}

// broken says what does not work.
func (n *network) broken(without ...int) string {
	var ends []topo.PortRef
	for _, ref := range hostPorts(n.g) {
		if !slices.Contains(without, ref.Node) {
			ends = append(ends, ref)
		}
	}
	seen := map[ib.LID]string{}
	for _, ref := range ends {
		l := n.lid(ref)
		if !l.IsUnicast() {
			return n.g.PortName(ref) + " has no address"
		}
		if o := seen[l]; o != "" {
			return fmt.Sprintf("%s and %s have one address, %v", o, n.g.PortName(ref), l)
		}
		seen[l] = n.g.PortName(ref)
	}
	for _, from := range ends {
		for _, to := range ends {
			if from == to {
				continue
			}
			for k := range ib.LID(1) << n.hcas[to.Node].Port(to.Port).LMC {
				if hops, at, ok := n.walk(from, n.lid(to)+k); !ok || at != to {
					return fmt.Sprintf("%s to %s (LID %v): ended at %s after %d hops", n.g.PortName(from),
						n.g.PortName(to), n.lid(to)+k, n.g.PortName(at), len(hops))
				}
			}
		}
		for _, s := range n.g.Switches() {
			if slices.Contains(without, s.Index) {
				continue
			}
			if _, at, ok := n.walk(from, n.lid(topo.PortRef{Node: s.Index})); !ok || at.Node != s.Index {
				return fmt.Sprintf("%s to %s: ended at %s", n.g.PortName(from), s.Name, n.g.PortName(at))
			}
		}
	}
	return ""
}

// whole waits until a manager rests and everything works.
func (n *network) whole(d ib.Time, h *host, without ...int) {
	n.t.Helper()
	if !n.until(d, func() bool { return h.rests() && n.broken(without...) == "" }) {
		n.t.Fatalf("not within %s: rests %v, %s\n%s", brief(d), h.rests(), n.broken(without...), n.logs())
	}
}

// lids are the addresses of all end ports.
func (n *network) lids() map[topo.PortRef]ib.LID {
	all := map[topo.PortRef]ib.LID{}
	for _, ref := range hostPorts(n.g) {
		all[ref] = n.lid(ref)
	}
	for _, s := range n.g.Switches() {
		all[topo.PortRef{Node: s.Index}] = n.lid(topo.PortRef{Node: s.Index})
	}
	return all
}

// keptLIDs checks that no address is another than before.
func (n *network) keptLIDs(was map[topo.PortRef]ib.LID) {
	n.t.Helper()
	for ref, l := range n.lids() {
		if was[ref] != 0 && l != 0 && was[ref] != l {
			n.t.Errorf("%s had LID %v and has %v", n.g.PortName(ref), was[ref], l)
		}
	}
}
