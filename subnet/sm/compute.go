package sm

import (
	"errors"
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/subnet"
	"softib/subnet/route"
)

// Job is the routing of a sweep. It may take a while, so it is handed to the driver, which runs it
// where it likes, at once or beside everything else, and hands it back with HandleJob.
type Job struct {
	// wires is the network with links that ways should go around: old entries may still lead over them.
	wires   *route.Network
	net     *route.Network
	engines string
	opts    route.Options
	old     *route.Tables // what the switches hold, for those that hold anything
	mend    *route.Tables // tables that may be mended instead of computed anew
	planned *planned      // what ways are worked out from instead; nil if there is no such plan
	cold    bool

	tables  *route.Tables
	groups  *route.Groups
	plan    route.Plan
	refused []error
	mended  bool
	static  error // why switches do not choose though they should
	err     error
}

// Run computes. It reads nothing that anybody changes.
func (j *Job) Run() {
	if j.planned != nil {
		if t := j.planned.route(j.net, j.engines, j.opts); t != nil && (t.MayChoose() || !j.opts.Adaptive) {
			j.tables = t
		}
	}
	if j.tables == nil && j.mend != nil {
		if r, err := route.Repair(j.net, j.mend, j.opts); err == nil && (r.Tables.MayChoose() || !j.opts.Adaptive) {
			j.tables, j.mended = r.Tables, !r.Full
		}
	}
	if j.tables == nil {
		res, err := route.Compute(j.net, j.engines, j.opts)
		if err != nil && j.opts.Adaptive {
			// Better no choice than no way.
			j.opts.Adaptive, j.static = false, err
			res, err = route.Compute(j.net, j.engines, j.opts)
		}
		if err != nil {
			j.err = err
			return
		}
		j.tables, j.refused = res.Tables, res.Refused
	}
	if !j.cold {
		j.plan = route.Transition(j.wires, j.old, j.tables)
	}
	if j.opts.Adaptive {
		j.groups, j.err = route.Adaptive(j.net, j.tables)
	}
}

// PollJob gives the routing that waits to be computed, once.
func (m *Manager) PollJob() (*Job, bool) {
	if m.sweep == nil || m.sweep.job == nil || m.jobOut {
		return nil, false
	}
	m.jobOut = true
	return m.sweep.job, true
}

// HandleJob takes a computed routing.
func (m *Manager) HandleJob(now ib.Time, j *Job) {
	m.now = max(m.now, now)
	m.jobOut = false
	s := m.sweep
	if s == nil || s.job != j {
		return // the sweep is gone
	}
	s.job = nil
	if j.err != nil {
		m.event(EventProblem, "routing: %v", j.err)
		s.abandon = true
		m.want(m.retryAt(0), "routing failed")
		return
	}
	s.plan, s.tables, s.groups, s.was = j.plan, j.tables, j.groups, j.old
	s.report.Engine, s.report.VLs = j.tables.Engine, j.tables.VLs
	if j.mended {
		s.report.Refused = m.last.Refused // they still do
	}
	for _, err := range j.refused {
		why := s.refusal(err)
		s.report.Refused = append(s.report.Refused, why)
		m.event(EventRouting, "refused by %s", why)
	}
	if j.static != nil {
		m.event(EventRouting, "switches do not choose among ports: %v", j.static)
	}
	s.levels = newLevels(s, j.tables)
}

// refusal is why an engine does not fit, with the names of switches.
func (s *sweep) refusal(err error) string {
	var unfit *route.UnfitError
	if !errors.As(err, &unfit) {
		return err.Error()
	}
	return unfit.Engine + ": " + unfit.Named(func(sw int32) string { return s.name(s.switches[sw]) })
}

// computeEarly asks for the routing of a fabric that nobody has programmed yet as soon as all addresses are known: it
// is computed while ports are still being written to.
func (s *sweep) computeEarly() {
	for _, i := range s.switches {
		if !s.cold[i] {
			return
		}
	}
	if s.planAddresses(); len(s.switches) > 0 && !s.abandon {
		s.compute()
	}
}

// beginCompute asks for the routing, unless what was asked for early is still right.
func (s *sweep) beginCompute() {
	if s.job != nil || s.tables != nil {
		if early, n := s.net, s.network(); sameNodes(early, n) && sameLinks(early, n) {
			return
		}
		s.job, s.tables = nil, nil
	}
	s.compute()
}

// awaitsJob holds the sweep until its routing is computed.
func (s *sweep) awaitsJob() bool { return s.job != nil }

// compute makes a network of the subnet and asks for its routing.
func (s *sweep) compute() {
	n := s.network()
	s.net = n
	j := &Job{net: n, wires: s.wires(n), engines: s.m.cfg.Engines, cold: true}
	j.planned = s.m.plannedRoutes()
	j.opts = route.Options{VLs: s.dataLanes(), Roots: s.roots(), Adaptive: s.m.cfg.Adaptive != route.NoChoice}
	old := &route.Tables{Engine: "as found", LFT: make([][]ib.PortNum, len(s.switches)), VLs: 1}
	for at, i := range s.switches {
		if s.cold[i] {
			continue
		}
		j.cold = false
		old.LFT[at] = fitted(s.held(s.nodes[i]), int(n.Top)+1)
	}
	if !j.cold {
		blank := make([]ib.PortNum, int(n.Top)+1)
		for k := range blank {
			blank[k] = route.NoPort
		}
		for at := range old.LFT {
			if old.LFT[at] == nil {
				old.LFT[at] = blank
			}
		}
		j.old = old
		if s.m.tables != nil && s.sameDests() {
			j.mend = s.mendable(old)
			switch {
			case j.mend == nil:
			case len(s.m.actual) == 0:
				// What the engine says about its tables holds for what is left of them in the switches.
				t := *j.mend
				t.LFT = old.LFT
				j.old = &t
			default:
				// Some switches wait for late rounds and hold entries of tables before these: only what hosts were told
				// holds.
				old.SL, old.SLtoVL, old.ByLane, old.VLs = j.mend.SL, j.mend.SLtoVL, j.mend.ByLane, j.mend.VLs
			}
		}
	}
	if j.mend != nil && len(s.m.actual) == 0 && sameLinks(s.m.net, n) {
		s.tables, s.was, s.plan = j.mend, j.old, route.Plan{} // nothing that routing looks at has changed
		s.groups = s.m.arGroups
		s.report.Engine, s.report.VLs, s.report.Refused = s.tables.Engine, s.tables.VLs, s.m.last.Refused
		s.levels = newLevels(s, s.tables)
		return
	}
	s.job = j
}

// plannedRoutes is the routing of the plan, if the subnet is that.
func (m *Manager) plannedRoutes() *planned {
	if m.cfg.Whole && m.cfg.Plan != nil && m.planned == nil {
		m.planned = newPlanned(m.cfg.Plan, &m.cfg, m.lids.of)
	}
	return m.planned
}

// sameLinks reports whether two networks of the same switches have the same cables.
func sameLinks(a, b *route.Network) bool {
	for i := range a.Switches {
		if !slices.Equal(a.Switches[i].Ports, b.Switches[i].Ports) {
			return false
		}
	}
	return true
}

// fitted is a row with exactly n entries.
func fitted(row []ib.PortNum, n int) []ib.PortNum {
	if len(row) == n {
		return row
	}
	out := make([]ib.PortNum, n)
	for k := copy(out, row); k < n; k++ {
		out[k] = route.NoPort
	}
	return out
}

// wires is the network with all of its links, those too that ways go around.
func (s *sweep) wires(n *route.Network) *route.Network {
	if len(s.m.failing) == 0 {
		return n
	}
	all := *n
	all.Switches = slices.Clone(n.Switches)
	for at, i := range s.switches {
		node := s.nodes[i]
		sw := &all.Switches[at]
		sw.Ports = slices.Clone(sw.Ports)
		for p := 1; p < len(node.Ports); p++ {
			if x := &node.Ports[p]; x.Up() && s.nodes[x.Peer].IsSwitch() && x.Peer != i {
				sw.Ports[p] = route.Hop{To: s.nodes[x.Peer].RouteIndex, Port: x.PeerPort}
			}
		}
	}
	return &all
}

// network is the subnet as routing sees it.
func (s *sweep) network() *route.Network {
	n := &route.Network{Switches: make([]route.Switch, len(s.switches))}
	add := func(ref subnet.Ref, sw int32, port ib.PortNum) {
		p := &s.nodes[ref.Node].Ports[ref.Port]
		base := s.m.lids.of[p.GUID]
		if base == 0 {
			return
		}
		for k := range ib.LID(1) << s.lmcOf(ref) {
			n.Dests = append(n.Dests, route.Dest{LID: base + k, Switch: sw, Port: port, PathBits: uint8(k)})
			n.Top = max(n.Top, base+k)
		}
	}
	for at, i := range s.switches {
		node := s.nodes[i]
		sw := &n.Switches[at]
		sw.GUID = node.Info.NodeGUID
		sw.Ports = make([]route.Hop, len(node.Ports))
		for p := range node.Ports {
			sw.Ports[p].To = route.NoSwitch
			x := &node.Ports[p]
			if p == 0 || !x.Up() {
				continue
			}
			peer := s.nodes[x.Peer]
			switch {
			case peer.IsSwitch() && x.Peer != i && !s.isFailing(subnet.Ref{Node: i, Port: ib.PortNum(p)}):
				sw.Ports[p] = route.Hop{To: peer.RouteIndex, Port: x.PeerPort}
			case !peer.IsSwitch():
				sw.Ends++
				add(subnet.Ref{Node: x.Peer, Port: x.PeerPort}, int32(at), ib.PortNum(p))
			}
		}
	}
	for at, i := range s.switches {
		add(subnet.Ref{Node: i}, int32(at), 0)
	}
	return n
}

// roots are the operator's top switches, by number.
func (s *sweep) roots() []int32 {
	var list []int32
	for _, g := range s.m.cfg.Roots {
		if i, ok := s.byGUID[g]; ok && s.nodes[i].IsSwitch() {
			list = append(list, s.nodes[i].RouteIndex)
		}
	}
	return list
}

// dataLanes is how many lanes all links between switches have.
func (s *sweep) dataLanes() int {
	vls := 15
	if s.m.cfg.MaxVLs > 0 {
		vls = s.m.cfg.MaxVLs
	}
	for _, i := range s.switches {
		n := s.nodes[i]
		for p := 1; p < len(n.Ports); p++ {
			if x := &n.Ports[p]; x.Up() && s.nodes[x.Peer].IsSwitch() && x.Info.VLCap.IsValid() {
				vls = min(vls, x.Info.VLCap.VLs())
			}
		}
	}
	return vls
}

// sameDests reports whether the destinations are those that the present tables were computed for.
func (s *sweep) sameDests() bool { return s.m.net != nil && sameNodes(s.m.net, s.net) }

// sameNodes reports whether two networks have the same switches and destinations.
func sameNodes(a, b *route.Network) bool {
	return a.Top == b.Top && slices.Equal(a.Dests, b.Dests) &&
		slices.EqualFunc(a.Switches, b.Switches, func(x, y route.Switch) bool {
			return x.GUID == y.GUID && len(x.Ports) == len(y.Ports)
		})
}

// mendable is the present tables if the switches still hold them.
func (s *sweep) mendable(old *route.Tables) *route.Tables {
	for at, i := range s.switches {
		if s.cold[i] || s.unread[i] || len(s.m.tables.LFT[at]) != len(old.LFT[at]) {
			return nil
		}
	}
	return s.m.tables
}

// levels tells the service level of a way, from the tables of one sweep.
type levels struct {
	tables *route.Tables
	dest   []int32 // by LID
	peers  func(subnet.Ref) int32
}

func newLevels(s *sweep, t *route.Tables) *levels {
	if t.SL == nil {
		return nil
	}
	l := &levels{tables: t, dest: make([]int32, int(s.net.Top)+1)}
	for i := range l.dest {
		l.dest[i] = -1
	}
	for i, d := range s.net.Dests {
		l.dest[d.LID] = int32(i)
	}
	nodes := s.nodes
	l.peers = func(r subnet.Ref) int32 {
		n := nodes[r.Node]
		if n.IsSwitch() {
			return n.RouteIndex
		}
		if p := &n.Ports[r.Port]; p.Up() {
			return nodes[p.Peer].RouteIndex
		}
		return route.NoSwitch
	}
	return l
}

// Level is the service level from an end port to a LID.
func (l *levels) Level(src subnet.Ref, dst ib.LID) ib.SL {
	if int(dst) >= len(l.dest) || l.dest[dst] < 0 {
		return 0
	}
	return l.tables.Level(l.peers(src), int(l.dest[dst]))
}

func (j *Job) String() string {
	return fmt.Sprintf("routing of %d switches by %s", len(j.net.Switches), j.engines)
}
