package sm

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/route"
)

// sweep is one pass over the subnet, in phases. It works on a copy of what is known;
// the copy is published when the sweep is done.
type sweep struct {
	m     *Manager
	why   string
	full  bool
	began ib.Time

	nodes   []*subnet.Node
	own     []bool // nodes that are this sweep's to change
	byGUID  map[ib.GUID]int32
	self    subnet.Ref
	paths   [][]ib.PortNum // directed routes to switches and to the manager's own node
	scratch []ib.PortNum
	prev    *subnet.Subnet

	phase   int
	waiting int  // answers under way, or yet to be asked for again
	writing int  // writes under way
	started bool // the present phase

	repeats []repeat // writes that were not answered

	// ownState is the state of the manager's own port when the sweep found it. Answers to what was written there since
	// may have brought another, and hide that the link was down.
	ownState ib.PortState

	blind  bool // the manager's own port has to be asked before the next block is written
	asking bool

	work   []probe        // discovery's queue
	at     int            // its head
	looked map[int32]bool // nodes that a sweep that is not full reads anew
	// newcomers says that there are GUIDs that were not there before.
	newcomers bool
	// cursor walks over nodes, ports and blocks in the phases that write.
	cursor cursor

	switches []int32 // by number of routing
	cold     []bool  // by node: a switch whose tables are to be written whole
	unread   []bool  // by node: a switch whose tables must be read
	net      *route.Network
	job      *Job
	plan     route.Plan
	round    int
	hold     ib.Time // no writes before
	prompt   int     // rounds that need not wait
	late     map[int32]bool
	// lateFailed says that a switch did not take a block that had waited.
	lateFailed bool
	stopped    bool          // no more of them are written
	was        *route.Tables // what the switches held
	levels     *levels
	managers   []subnet.Manager
	successor  *subnet.Manager // who goes before this manager and stands by
	lanes      lanePlan

	reads      []reading
	readFailed bool // a block of a forwarding table could not be read
	keyWrites  []keyWrite
	mftWrites  []mftWrite
	guidWrites []guidWrite
	inv        inventory
	partitions []subnet.Partition
	keyed      *membership
	enforce    bool
	ticket     uint64 // of the last decision when partitions were looked at
	refusals   []Refusal
	keyTrouble map[subnet.Ref]bool // switch ports that do not hold the keys they should
	keysKnown  []uint64            // M_Keys in use
	locked     []subnet.Ref        // ports behind which somebody has another M_Key than was thought
	present    map[ib.GUID]bool    // end ports that have been found, where keys are looked for
	foreign    map[ib.GUID]bool    // ports whose M_Key is not known
	ccWrites   []ccWrite
	ccUnable   int // ports that turned out not to do congestion control
	ccFailed   map[ib.GUID]bool
	tables     *route.Tables
	groups     *route.Groups // what switches may choose from; nil if they do not
	arAsk      []int32       // switches to be asked whether they choose,
	arSet      []arStep      // and those to be told
	arOn       bool          // they are told to begin
	arMembers  map[int32][]uint16
	// Of routers: what is asked and told, and what they are told of who has which LID.
	routerStage  int
	routerSteps  []routerStep
	guidsByLID   []ib.GUID
	routedGroups []routedGroup
	groupsTold   map[subnet.Ref][]mad.RouterGroup // what each router port is to be told of them
	// incomplete are switches that did not take all of their tables.
	incomplete map[int32]bool
	stuck      map[int32]bool // those of them that did not take their forwarding table
	cleared    []int32        // switches that were told that a change was seen

	report   SweepReport
	problems int
	twins    []subnet.Twin
	failed   map[int32]int // answers that did not come, by node
	silent   int           // neighbours that did not answer
	abandon  bool
}

// SweepReport is what a sweep has done.
type SweepReport struct {
	Why    string
	Full   bool
	Began  ib.Time
	Took   ib.Time
	Phases []PhaseReport

	Nodes, Hosts, Switches int
	Links, Degraded        int
	MADs                   int
	Engine                 string
	Refused                []string // engines that did not fit, with their reasons
	VLs                    int
	// Blocks counts the blocks of forwarding tables that were written.
	Blocks int
	// Problems counts what went wrong.
	Problems int
}

// PhaseReport is how long a phase took and how many datagrams it sent.
type PhaseReport struct {
	Name string
	Took ib.Time
	MADs int
}

// String is what the log says of a sweep.
func (r SweepReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, %s", count(r.Hosts, "host", "hosts"), count(r.Switches, "switch", "switches"),
		count(r.Links, "link", "links"))
	if r.Degraded > 0 {
		fmt.Fprintf(&b, " (%d degraded)", r.Degraded)
	}
	fmt.Fprintf(&b, "; %s routing on %s", r.Engine, count(r.VLs, "lane", "lanes"))
	if r.Blocks > 0 {
		fmt.Fprintf(&b, ", %s written", count(r.Blocks, "table block", "table blocks"))
	}
	if r.Problems > 0 {
		fmt.Fprintf(&b, "; %s", count(r.Problems, "problem", "problems"))
	}
	fmt.Fprintf(&b, "; %s in %s", count(r.MADs, "datagram", "datagrams"), brief(r.Took))
	return b.String()
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// brief is a time as people read it: three digits or so.
func brief(t ib.Time) string {
	switch {
	case t >= ib.Second:
		return fmt.Sprintf("%.2fs", float64(t)/float64(ib.Second))
	case t >= ib.Millisecond:
		return fmt.Sprintf("%.2fms", float64(t)/float64(ib.Millisecond))
	}
	return fmt.Sprintf("%.0fus", float64(t)/float64(ib.Microsecond))
}

// PhasePublish is the phase with which the subnet is up; what comes after it can wait.
const PhasePublish = "publish"

// phase is a step of a sweep. It is over when next gives nothing more, all answers
// are there, and again says that there is not another round.
type phase struct {
	name  string
	start func(*sweep)
	next  func(*sweep, *request) bool
	reply func(*sweep, *request, mad.View)
	again func(*sweep) bool
	wait  func(*sweep) bool // for something that is not a request of the sweep
	// anew says that the sweep starts over if it gets no answer while there is news, see overtaken.
	anew bool
	// of is how many requests the phase has to make, of which cursor.at were; nil where nobody knows.
	of func(*sweep) int
	// spare says that light sweeps go first: all tables are as they were published, and what is left can take long.
	spare bool
}

// phases of every sweep, in order. One that has nothing to do costs nothing.
var phases = [...]phase{
	{name: "discover", start: (*sweep).beginDiscovery, next: (*sweep).nextProbe, reply: (*sweep).probed,
		again: (*sweep).unlock, anew: true},
	{name: "settle", start: (*sweep).settle},
	{name: "ask registrations", start: (*sweep).beginTakeover, wait: (*sweep).awaitsTakeover},
	{name: "registrations", start: (*sweep).importRegistrations},
	{name: "read tables", start: (*sweep).beginRead, next: (*sweep).nextRead, reply: (*sweep).readReply,
		again: (*sweep).unreadable, anew: true},
	{name: "addresses", start: (*sweep).beginAddresses, next: (*sweep).nextAddress, reply: (*sweep).portReply,
		of: func(s *sweep) int { return len(s.cursor.ends) }},
	{name: "partitions", start: (*sweep).beginKeys, next: (*sweep).nextKeys, reply: (*sweep).keysReply,
		of: func(s *sweep) int { return len(s.keyWrites) }},
	{name: "guids", start: (*sweep).beginGUIDs, next: (*sweep).nextGUIDs, reply: (*sweep).guidsReply,
		of: func(s *sweep) int { return len(s.guidWrites) }},
	{name: "compute", start: (*sweep).beginCompute, wait: (*sweep).awaitsJob},
	{name: "lanes", start: (*sweep).beginLanes, next: (*sweep).nextLanes, reply: (*sweep).lanesReply},
	{name: "stop choosing", start: (*sweep).beginStop, next: (*sweep).nextStop, reply: (*sweep).stopReply,
		again: (*sweep).moreStops, anew: true},
	{name: "tables", start: (*sweep).beginTables, next: (*sweep).nextTable, reply: (*sweep).tableReply,
		again: (*sweep).nextRound, anew: true},
	{name: "multicast", start: (*sweep).beginMulticast, next: (*sweep).nextMulticast, reply: (*sweep).multicastReply,
		of: func(s *sweep) int { return len(s.mftWrites) }},
	{name: "arm", start: (*sweep).beginLinks, next: (*sweep).nextArm, reply: (*sweep).portReply},
	{name: "activate", start: (*sweep).beginLinks, next: (*sweep).nextActivate, reply: (*sweep).portReply},
	{name: "routers", start: (*sweep).beginRouters, next: (*sweep).nextRouters, reply: (*sweep).routersReply,
		again: (*sweep).moreRouters},
	{name: PhasePublish, start: (*sweep).publish},
	{name: "recheck", start: (*sweep).beginRecheck, next: (*sweep).nextRecheck, reply: (*sweep).rechecked},
	{name: "late tables", start: (*sweep).beginLate, next: (*sweep).nextLateWrite, reply: (*sweep).tableReply,
		again: (*sweep).nextLate, wait: (*sweep).drains},
	{name: "choose", start: (*sweep).beginChoosing, next: (*sweep).nextChoosing, reply: (*sweep).choosingReply,
		again: (*sweep).beginAll},
	{name: "hand over", start: (*sweep).handOver},
	{name: "congestion info", start: (*sweep).beginCongestionInfo, next: (*sweep).nextCongestionInfo,
		reply: (*sweep).congestionInfoReply, spare: true},
	{name: "congestion control", start: (*sweep).beginCongestion, next: (*sweep).nextCongestion,
		reply: (*sweep).congestionReply, spare: true},
	{name: "inventory", start: (*sweep).beginInventory, next: (*sweep).nextInventory, reply: (*sweep).inventoryReply,
		spare: true},
	{name: "inventory done", start: (*sweep).endInventory},
}

// startSweep begins the sweep that is wanted, if its time has come.
func (m *Manager) startSweep() {
	if m.sweep != nil || !m.due() {
		return
	}
	m.takeMKey()
	w := m.wants
	m.wants = noWants()
	m.peers.meddled = false // it has yet to read anything
	s := &sweep{m: m, why: w.full.why, full: true, began: m.now, prev: m.sub, failed: map[int32]int{}}
	if m.now < w.full.at {
		s.why = w.look.why
		// What a sweep has found that was given up is not known any more: a look would ask along links that it found
		// lost.
		if m.sub != nil && m.state == mad.SMMaster && m.setbacks == 0 {
			s.full = false
			m.wants.full = w.full // in its own time
		}
	}
	s.report = SweepReport{Why: s.why, Full: s.full, Began: m.now}
	if !s.full {
		s.adopt(w.lookAt)
	}
	m.sweep = s
	m.phases++
}

// phaseChoose is the phase in which switches are told to choose.
var phaseChoose = slices.IndexFunc(phases[:], func(p phase) bool { return p.name == "choose" })

// next gives the next request of the sweep, moving through the phases as they end.
func (s *sweep) next(r *request) bool {
	for {
		ph := &phases[s.phase]
		if !s.started {
			s.started = true
			s.report.Phases = append(s.report.Phases, PhaseReport{Name: ph.name, Took: s.m.now, MADs: s.report.MADs})
			if ph.start != nil {
				ph.start(s)
			}
		}
		if s.abandon {
			// What it has written last may still be under way: the next sweep reads tables only after that.
			if s.writing == 0 {
				s.end()
			}
			return false
		}
		if ph.wait != nil && ph.wait(s) {
			return false
		}
		if ph.next != nil && ph.next(s, r) {
			s.waiting++
			if r.set {
				s.writing++
			}
			s.report.MADs++
			return true
		}
		if s.waiting > 0 {
			return false
		}
		if ph.again != nil && ph.again(s) {
			continue
		}
		last := &s.report.Phases[len(s.report.Phases)-1]
		last.Took = s.m.now - last.Took
		last.MADs = s.report.MADs - last.MADs
		s.phase++
		s.started = false
		s.m.phases++
		if s.phase == len(phases) {
			s.end()
			return false
		}
	}
}

// end leaves the sweep. What it did after the subnet was up is in its report too.
func (s *sweep) end() {
	s.m.sweep = nil
	if s.abandon {
		s.leaveTables()
	}
	if s.phase == len(phases) {
		s.m.amend(s.report.Phases)
	}
}

// leaveTables notes, of a sweep that is given up, which nodes may hold other tables than the last subnet says.
// Forwarding tables are in doubt since the sweep began to write them.
func (s *sweep) leaveTables() {
	if s.prev == nil || s.m.sub == nil { // or forgotten, by a manager that yields
		return
	}
	for _, n := range s.nodes {
		guid := n.Info.NodeGUID
		i, ok := s.prev.ByGUID(guid)
		if !ok {
			continue
		}
		old := s.prev.Nodes[i]
		same := func(a, b subnet.Port) bool { return a.Tables == b.Tables }
		switch {
		case sameRow(old.MFT, n.MFT) && slices.EqualFunc(old.Ports, n.Ports, same):
		case n.IsSwitch():
			s.m.doubt[guid] = true
		default:
			s.m.unsure[guid] = true
		}
	}
}

// Progress is what the sweep under way is at, and how far it is with that; total is 0 where nobody knows.
func (m *Manager) Progress() (phase string, done, total int) {
	s := m.sweep
	if s == nil {
		return "not begun", 0, 0
	}
	ph := &phases[s.phase]
	if ph.of != nil && s.started {
		total = ph.of(s)
		done = max(s.cursor.at-s.waiting, 0)
	}
	return ph.name, done, total
}

// overtaken gives up a sweep that gets no answer while there is news, a trap most often: the way along which it asked
// may have gone since. It would wait for each node behind the change, leave out what can be reached by another way, and
// keep closed what it has closed. It is done a few times in a row only: there may always be news, and a node may be
// silent for other reasons.
func (s *sweep) overtaken() bool {
	if s.abandon || !phases[s.phase].anew || !s.m.due() || s.m.overtaken >= setbacksMax {
		return false
	}
	s.m.overtaken++
	s.m.want(s.m.now, "something changed during a sweep")
	s.abandon = true
	return true
}

// reply hands an answer to the present phase.
func (s *sweep) reply(r *request, v mad.View) {
	s.waiting--
	if s.abandon {
		return
	}
	if v == nil && r.what != askMlnx { // which nobody has to answer
		if s.failed[r.node]++; s.fellSilent(r) {
			return
		}
	}
	phases[s.phase].reply(s, r, v)
}

// fellSilent gives the sweep up, to be started over, if a node has fallen silent that it has found: it may be cut off,
// and others with it, which would all be waited for, request by request. A node for which a sweep was given up is
// waited for from then on, until it has answered everything. Forwarding tables are left to setback, which counts for
// itself: their order must not suffer from a host.
func (s *sweep) fellSilent(r *request) bool {
	m := s.m
	if s.phase == 0 || s.late != nil || r.attr == mad.AttrLFT || m.brief {
		return false
	}
	guid := s.nodes[r.node].Info.NodeGUID
	_, known := m.deaf[guid]
	m.deaf[guid] = s.began
	if known || m.restarts >= setbacksMax {
		return false
	}
	m.restarts++
	m.want(m.now, s.name(r.node)+" has fallen silent")
	s.abandon = true
	return true
}

// answered reports whether a request was answered well; if not it says so in the log.
func (s *sweep) answered(r *request, v mad.View) bool { return s.answeredIn(mad.ClassSMLID, r, v) }

// answeredIn is answered for a request of any class.
func (s *sweep) answeredIn(class mad.Class, r *request, v mad.View) bool {
	switch {
	case v == nil && s.guarded(r):
	case v == nil:
		s.problem("%s: no answer to %s(%s) %#x", s.name(r.node), verb(r.set), mad.AttrName(class, r.attr), r.mod)
	case v.Status() != mad.StatusOK:
		s.failed[r.node]++
		s.problem("%s: %s(%s) %#x was answered with %s", s.name(r.node), verb(r.set), mad.AttrName(class, r.attr),
			r.mod, v.Status())
	default:
		return true
	}
	return false
}

func verb(set bool) string {
	if set {
		return "Set"
	}
	return "Get"
}

// name is what the log calls a node.
func (s *sweep) name(i int32) string {
	if i < 0 || int(i) >= len(s.nodes) {
		return "an unknown node"
	}
	return nodeName(s.nodes[i])
}

func nodeName(n *subnet.Node) string {
	if n.Desc != "" {
		return fmt.Sprintf("%q (%v)", n.Desc, n.Info.NodeGUID)
	}
	return n.Info.NodeGUID.String()
}

// edit gives a node that this sweep may change: its own copy.
func (s *sweep) edit(i int32) *subnet.Node {
	if !s.own[i] {
		n := *s.nodes[i]
		n.Ports = append([]subnet.Port(nil), n.Ports...)
		s.nodes[i] = &n
		s.own[i] = true
	}
	return s.nodes[i]
}

// adopt starts from what is known, to look at some switches only.
func (s *sweep) adopt(look map[ib.GUID]bool) {
	p := s.prev
	s.nodes = append([]*subnet.Node(nil), p.Nodes...)
	s.own = make([]bool, len(s.nodes))
	s.self = p.Self
	s.byGUID = make(map[ib.GUID]int32, len(s.nodes))
	for i, n := range s.nodes {
		s.byGUID[n.Info.NodeGUID] = int32(i)
		if s.m.unsure[n.Info.NodeGUID] {
			n = s.edit(int32(i))
			for p := range n.Ports {
				n.Ports[p].Tables = nil
			}
		}
	}
	s.repath()
	for i, n := range s.nodes { // in the order of the nodes, so that the map's does not matter
		if look[n.Info.NodeGUID] {
			s.lookAt(int32(i))
		}
	}
}

// lookAt reads a node that is known anew, once in a sweep.
func (s *sweep) lookAt(i int32) {
	if s.looked == nil {
		s.looked = map[int32]bool{}
	}
	if s.looked[i] {
		return
	}
	s.looked[i] = true
	n := s.nodes[i]
	if n.IsSwitch() {
		s.push(probe{askSwitch, i, 0, 0})
		for port := range n.Ports {
			s.push(probe{askPort, i, ib.PortNum(port), 0})
		}
		s.push(probe{askDesc, i, 0, 0})
		return
	}
	for port := 1; port < len(n.Ports); port++ {
		if n.Ports[port].Up() || s.self == (subnet.Ref{Node: i, Port: ib.PortNum(port)}) {
			s.push(probe{askPort, i, ib.PortNum(port), 0})
		}
	}
	s.push(probe{askDesc, i, 0, 0})
}

// repath finds the shortest directed routes to all switches over links that are up. It reports
// which nodes can be reached.
func (s *sweep) repath() []bool {
	s.paths = make([][]ib.PortNum, len(s.nodes))
	reached := make([]bool, len(s.nodes))
	queue := make([]int32, 0, len(s.nodes))
	reached[s.self.Node] = true
	queue = append(queue, s.self.Node)
	// The routes are cut from one piece of memory: most fabrics have few hops.
	arena := make([]ib.PortNum, 0, 8*len(s.nodes))
	for at := 0; at < len(queue); at++ {
		i := queue[at]
		n := s.nodes[i]
		if !n.IsSwitch() && i != s.self.Node {
			continue
		}
		base := s.paths[i]
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if !x.Up() || reached[x.Peer] || !n.IsSwitch() && ib.PortNum(p) != s.self.Port || len(base) >= mad.MaxHops {
				continue
			}
			reached[x.Peer] = true
			queue = append(queue, x.Peer)
			from := len(arena)
			arena = append(append(arena, base...), ib.PortNum(p))
			s.paths[x.Peer] = arena[from:len(arena):len(arena)]
		}
	}
	return reached
}
