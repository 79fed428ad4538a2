package check

import (
	"fmt"
	"runtime/debug"

	"softib/driver/machine"
	"softib/driver/sim"
	"softib/fabric"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/sm"
)

// Names of the checkers of management.
const (
	loopName     = "loop"
	creditLoop   = "credit loop"
	convergeName = "convergence"
	trafficName  = "traffic"
)

// reign is one run of a Management.
type reign struct {
	scene
	sc        *Management
	t         *tables
	cables    []topo.Cable
	began     ib.Time // when the first subnet was up
	lids      map[ib.GUID]ib.LID
	talks     []*talk
	gone      []bool       // managers that do not come back
	pulled    map[int]bool // cables that stay out
	quiet     bool         // no new messages
	ruler     *sm.Manager  // who has swept last
	overflows uint64
	changes   []ib.Time // when links went or came
	// headless is until when a manager may be missed that was in the middle of something.
	headless ib.Time
	gaps     []gap
	stands   int // the manager, counted from 1, that is to stand still after so many writes
	writes   int
	terms    map[int]uint32 // by node: whose turn it was when it was last written
	mixed    bool           // managers that did not know of each other have written tables
	blind    ib.Time        // until when managers may not have seen all there is

	states map[*sm.Manager]mad.SMState
	log    []string
	tally  MgmtTally
}

// MgmtTally counts what happened to managers.
type MgmtTally struct {
	Sweeps, Masters, Handovers, TableWrites, LoopChecks, CreditChecks, Messages, Problems uint64
	// Attacks of hostile hosts, and looks whether tenants are apart.
	Attacks, ApartChecks uint64
	// Turns are managers that began after another by an agreement of their own, Deposed those that met their successor
	// before they had heard of it.
	Turns, Deposed uint64
	// Slowest is the longest time that a fabric took to converge.
	Slowest ib.Time
}

func (t *MgmtTally) add(o *MgmtTally) {
	t.Sweeps += o.Sweeps
	t.Masters += o.Masters
	t.Handovers += o.Handovers
	t.TableWrites += o.TableWrites
	t.LoopChecks += o.LoopChecks
	t.CreditChecks += o.CreditChecks
	t.Messages += o.Messages
	t.Problems += o.Problems
	t.Attacks += o.Attacks
	t.ApartChecks += o.ApartChecks
	t.Turns += o.Turns
	t.Deposed += o.Deposed
	t.Slowest = max(t.Slowest, o.Slowest)
}

// Timers of a run; the lower bits number what they are about.
const (
	timerFault = uint64(iota+1) << 32
	timerMend
	timerRevive
	timerStart
	timerTalk
	timerAttack
	timerCease
	timerStill
	timerWake
	timerHear
	timerKinds = ^uint64(1<<32 - 1)
)

// RunManagement lets a management scenario happen under all of its checkers.
func RunManagement(sc *Management) Result { return runManagement(sc, runOptions{}) }

func runManagement(sc *Management, opt runOptions) (res Result) {
	r := &reign{sc: sc, terms: map[int]uint32{}, pulled: map[int]bool{}, gone: make([]bool, len(sc.Managers)),
		states: map[*sm.Manager]mad.SMState{}, lids: map[ib.GUID]ib.LID{}}
	defer func() {
		if p := recover(); p != nil {
			r.report("panic", nil, "%v\n%s", p, debug.Stack())
		}
		res.Violations, res.More, res.Log = r.found, r.more, r.log
	}()
	g := sc.graph()
	m, err := machine.New(sc.machine(), func(newHost func(*topo.Node) sim.Host) (*sim.Sim, error) {
		return sim.New(g, sim.Config{
			Seed: sc.Seed, NewHost: newHost, WireExact: opt.wireExact, HashPayload: true, AgentTime: sc.AgentTime,
			Port: link.Config{MTUCap: ib.MTU1024, VLCap: sc.VLs},
		})
	})
	if err != nil {
		r.report("scenario", nil, "%v", err)
		return res
	}
	defer m.Close()
	s := m.Sim
	look := sc.config(0, sm.Memory{}).Config
	if sc.Turns {
		look.MKey = 0 // a key would say whose turn it is
	}
	r.sim, r.machine, r.t, r.cables = s, m, newTables(s, look), g.Cables()
	s.Watch(r)
	s.SetTerms(look.Terms)
	s.LinksUp()
	r.guard()
	r.play()
	r.tally.Messages = 0
	for _, t := range r.talks {
		r.tally.Messages += uint64(t.n)
	}
	res.Hash, res.Hops, res.End, res.Ops = m.TraceHash(), s.Hops(), s.Now(), int(r.tally.Messages)
	res.Tally.Faults, res.Tally.Drops = s.FaultCounts(), s.Drops()
	res.Tally.Mgmt, res.Tally.Machine = r.tally, m.Counted()
	return res
}

func (r *reign) play() {
	s := r.sim
	for k := range r.sc.Managers {
		if r.sc.Managers[k].At == 0 {
			r.start(k, sm.Memory{})
		}
	}
	if !r.converge("the first subnet", 0) {
		return
	}
	r.began = s.Now()
	for _, e := range r.t.ends() {
		r.lids[e.guid] = e.lid
	}
	r.connect()
	for i := range r.sc.Faults {
		s.At(r.began+r.sc.Faults[i].At, timerFault|uint64(i))
	}
	for i := range r.sc.Attacks {
		s.At(r.began+r.sc.Attacks[i].At, timerAttack|uint64(i))
	}
	for k := range r.sc.Managers {
		if at := r.sc.Managers[k].At; at > 0 {
			s.At(r.began+at, timerStart|uint64(k))
		}
	}
	r.planTurns()
	until := r.began + r.sc.Quiet() + ib.Microsecond
	for s.Now() < until && !r.failed() {
		r.step(until)
	}
	if r.failed() || !r.converge("the fabric", until) {
		return
	}
	// It stays as it is, and is looked after.
	host, _ := r.master()
	sent := s.Manager(host).Sent()
	for end := s.Now() + 3*r.sc.SweepInterval; s.Now() < end && !r.failed(); {
		r.step(end)
	}
	if m := s.Manager(host); !r.failed() && m != nil && m.Sent() == sent {
		r.report(convergeName, nil, "the manager of h%d sleeps for ever", host+1)
	}
	if r.failed() || !r.converge("the fabric, although it had before,", s.Now()) {
		return
	}
	r.mixed = false
	r.checkLoops(1, r.highest(), "all")
	r.checkCredits(r.ruler, "in the end")
	r.finish()
}

// failed reports whether something was found: the first finding ends the run.
func (r *reign) failed() bool { return len(r.found) > 0 || r.sim.Hops() > hopsMax }

// step lets things happen until there is something to handle, or until has come. There always is something to happen:
// a master looks after its switches, a standby after its master, and the machine after its processes.
func (r *reign) step(until ib.Time) { r.handle(r.machine.Next(until)) }

func (r *reign) handle(w sim.Wake) {
	switch {
	case w.Kind == sim.WakeHost:
		r.look(w.Host)
	case w.Kind == sim.WakeTimer:
		i := int(w.ID &^ timerKinds)
		switch w.ID & timerKinds {
		case timerFault:
			r.strike(i)
		case timerMend:
			r.mend(i)
		case timerRevive:
			f := &r.sc.Faults[i]
			memory := r.sim.ManagerMemory(r.sc.Managers[f.Ruler].Host)
			if f.Forgets {
				memory = sm.Memory{}
			}
			r.start(f.Ruler, memory)
		case timerStart:
			if r.sc.Turns {
				r.tally.Turns++
			}
			if r.stands > 0 {
				r.stand(r.stands - 1)
			}
			r.start(i, sm.Memory{})
		case timerTalk:
			r.talk(r.talks[i])
		case timerAttack:
			r.attack(i)
		case timerCease:
			r.cease(i)
		case timerStill, timerWake, timerHear:
			r.atTurn(w.ID&timerKinds, i)
		}
	}
}

// start starts manager k, unless it runs or is to stay dead.
func (r *reign) start(k int, memory sm.Memory) {
	host := r.sc.Managers[k].Host
	if r.gone[k] || r.sim.Manager(host) != nil {
		return
	}
	if err := r.sim.StartManager(host, r.sc.config(k, memory)); err != nil {
		r.report("scenario", nil, "%v", err)
	}
}

// strike lets a fault begin.
func (r *reign) strike(i int) {
	f := &r.sc.Faults[i]
	s, now := r.sim, r.sim.Now()
	r.note("fault: %v", f)
	switch f.Kind {
	case LoseMADs, MuteNode:
		r.blind = max(r.blind, now+f.For+r.sc.longSweep())
	case KillManager:
		r.headless = max(r.headless, now+f.For+r.sc.takeover()+r.sc.longSweep())
	}
	switch f.Kind {
	case LoseMADs:
		r.harm(f, f.Harm)
		s.At(now+f.For, timerMend|uint64(i))
	case FlapCable, PullCable:
		r.changes = append(r.changes, now)
		c := r.cables[f.Cable]
		r.excuse(c.A.Node, c.A.Port)
		r.excuse(c.B.Node, c.B.Port)
		s.PlanDown(now, c.A)
		if f.Kind == FlapCable {
			s.At(now+f.For, timerMend|uint64(i))
		} else {
			r.pulled[f.Cable] = true
		}
	case RebootNode:
		r.changes = append(r.changes, now)
		delete(r.terms, f.Node)
		r.excuse(f.Node, 0)
		s.PlanReboot(now, f.Node)
	case MuteNode:
		// What does not answer is left out by whoever sweeps now: packets to it end.
		r.excuse(f.Node, 0)
		s.PlanMute(now, f.Node, f.For)
	case KillManager:
		s.StopManager(r.sc.Managers[f.Ruler].Host)
		if f.Stays {
			r.gone[f.Ruler] = true
		} else {
			s.At(now+f.For, timerRevive|uint64(i))
		}
	}
}

// changesSince counts how often links have gone or come since a time.
func (r *reign) changesSince(t ib.Time) (n int) {
	for _, at := range r.changes {
		if at >= t {
			n++
		}
	}
	return n
}

// mend ends a fault.
func (r *reign) mend(i int) {
	f := &r.sc.Faults[i]
	if f.Kind == FlapCable {
		r.changes = append(r.changes, r.sim.Now())
	}
	switch f.Kind {
	case LoseMADs:
		r.harm(f, fabric.Faults{})
	case FlapCable:
		if !r.pulled[f.Cable] {
			r.note("cable %d is plugged in again", f.Cable)
			r.sim.PlanUp(r.sim.Now(), r.cables[f.Cable].A)
		}
	}
}

func (r *reign) harm(f *MgmtFault, h fabric.Faults) {
	for i, c := range r.cables {
		if f.Cable == AllCables || f.Cable == i {
			r.sim.SetFaults(c.A, h)
			r.sim.SetFaults(c.B, h)
		}
	}
}

// excuse notes which connections use a port, or a switch if the port is 0, at this moment.
func (r *reign) excuse(node int, port ib.PortNum) {
	for _, t := range r.talks {
		for e := range t.ends {
			list, _, _ := r.t.path(t.ends[e].host, t.ends[1-e].lid)
			for _, ref := range append(list, t.way...) {
				if ref.Node == node && (port == 0 || ref.Port == port) {
					t.excused = true
				}
			}
		}
	}
}

// Served checks the tables after each write that may have changed where packets go.
func (r *reign) Served(node int, q *sim.Request) {
	r.checkTurn(node, q)
	if !q.Set {
		return
	}
	attr, mod := q.Attr, q.Mod
	if attr == mad.AttrPKeyTable || attr == mad.AttrPortInfo {
		r.checkApart(fmt.Sprintf("Set(%s) %#x at %s", mad.AttrName(mad.ClassSMLID, attr), mod,
			r.sim.Graph().Nodes[node].Name))
	}
	if r.failed() || r.t.number[node] < 0 {
		return
	}
	from, to := ib.LID(1), r.highest()
	switch attr {
	case mad.AttrLFT:
		r.tally.TableWrites++
		r.wrote()
		from = ib.LID(max(1, int(mod&0xFFFF)*mad.LFTPerBlock))
		to = min(to, ib.LID(int(mod&0xFFFF)*mad.LFTPerBlock+mad.LFTPerBlock-1))
		if r.sc.VLs == 1 && r.tally.TableWrites%4 == 0 && r.whole() {
			// Where there are more lanes than one it depends on what hosts have been told.
			r.checkCredits(nil, "between two tables")
		}
	case mad.AttrPortInfo, mad.AttrSwitchInfo:
	default:
		return
	}
	r.checkLoops(from, to, fmt.Sprintf("%s(%s) %#x at %s", "Set", mad.AttrName(mad.ClassSMLID, attr), mod,
		r.sim.Graph().Nodes[node].Name))
}

// highest is the last LID that is looked at: none is given beyond it.
func (r *reign) highest() ib.LID { return ib.LID(2 * len(r.sim.Graph().Nodes) << r.sc.LMC) }

// rivals reports whether managers that cannot know of each other may both be writing: management packets are lost or
// agents are mute, or were until lately, and more than one manager rules or is about to. Each plans from the tables
// that it has read, and the other changes those; the standard's own remedy is the M_Key. What is left must be whole
// when they have found each other.
func (r *reign) rivals() bool {
	// Buffers of management that overflow lose packets as a fault does.
	if n := r.sim.Drops()[link.VL15Full]; n > r.overflows {
		r.overflows, r.blind = n, max(r.blind, r.sim.Now()+r.sc.longSweep())
	}
	rulers := 0
	for k := range r.sc.Managers {
		if m := r.sim.Manager(r.sc.Managers[k].Host); m != nil && m.State() != mad.SMStandby {
			rulers++
		}
	}
	return rulers > 1 && r.sim.Now() < r.blind
}

func (r *reign) checkLoops(from, to ib.LID, when string) {
	if r.rivals() {
		r.mixed = true
		return
	}
	if r.mixed {
		// What rivals left is mended by the one that goes on, when it sees that switches hold other tables than it has
		// written.
		r.mixed = r.t.loop(1, r.highest()) != nil
		return
	}
	r.tally.LoopChecks++
	if list := r.t.loop(from, to); list != nil {
		lid := from
		for r.t.loop(lid, lid) == nil {
			lid++
		}
		r.report(loopName, nil, "after %s packets to LID %v run in a circle: %s", when, lid, r.t.names(list))
	}
}

// checkCredits looks for cycles of channels under the tables as they are. m, where it is not nil, has just swept: what
// it tells of service levels counts.
func (r *reign) checkCredits(m *sm.Manager, when string) {
	if !r.sc.promises() || r.failed() {
		return
	}
	var level func(node int, lid ib.LID) ib.SL
	if m != nil && m.Subnet() != nil && m.Subnet().Levels != nil {
		sub := m.Subnet()
		nodes := map[int]int32{}
		for i, n := range sub.Nodes {
			if at := r.sim.Graph().ByGUID(n.Info.NodeGUID); at != nil {
				nodes[at.Index] = int32(i)
			}
		}
		level = func(node int, lid ib.LID) ib.SL {
			i, ok := nodes[node]
			if !ok {
				return 0
			}
			return sub.Levels.Level(subnet.Ref{Node: i}, lid)
		}
	}
	r.tally.CreditChecks++
	if cycle := r.t.creditLoop(level); cycle != "" {
		r.report(creditLoop, nil, "%s packets can wait for each other in a circle: %s", when, cycle)
	}
}

// Logged keeps what managers say, and looks at the tables when a sweep is done.
func (r *reign) Logged(host int, e sm.Event) {
	r.note("h%d %v", host+1, e)
	if !r.rules(host) {
		return // an attacker's own
	}
	switch e.Kind {
	case sm.EventProblem:
		r.tally.Problems++
	case sm.EventSweep:
		r.tally.Sweeps++
		if m := r.sim.Manager(host); m != nil && m.State() == mad.SMMaster && !r.failed() {
			r.checkLoops(1, r.highest(), "a sweep")
			if r.ruler = m; r.whole() {
				r.checkCredits(m, "after a sweep")
			}
		}
	case sm.EventState:
		if m := r.sim.Manager(host); m != nil {
			switch was := r.states[m]; {
			case was != mad.SMMaster && m.State() == mad.SMMaster:
				r.tally.Masters++
			case was == mad.SMMaster && m.State() == mad.SMStandby:
				r.tally.Handovers++
			case m.State() == mad.SMNotActive:
				r.tally.Deposed++
			}
			r.states[m] = m.State()
		}
	}
}

// whole reports whether one manager rules all of the fabric, so that ways are free of credit loops: the last sweep has
// seen every node, and no other manager writes tables. Managers that cannot see each other, switches that do not answer
// and keep what they hold, or hosts that send although they do not answer, make a mixture that none of them plans. Such
// a fabric may lock up until packets have lived out their time in a switch.
func (r *reign) whole() bool {
	if r.sim.Now() < r.blind || r.ruler == nil || r.ruler.Subnet() == nil ||
		len(r.ruler.Subnet().Nodes) != len(r.sim.Graph().Nodes) {
		return false
	}
	for k := range r.sc.Managers {
		if m := r.sim.Manager(r.sc.Managers[k].Host); m != nil && m != r.ruler && m.State() != mad.SMStandby {
			return false
		}
	}
	return true
}

// logKept is how many lines of what managers say are kept.
const logKept = 60

func (r *reign) note(format string, args ...any) {
	if len(r.log) >= logKept {
		r.log = append(r.log[:0], r.log[1:]...)
	}
	r.log = append(r.log, fmt.Sprintf("%14v  ", r.sim.Now())+fmt.Sprintf(format, args...))
}

// converge runs until the fabric is as it should be. since is when it began to be left alone.
func (r *reign) converge(what string, since ib.Time) bool {
	s := r.sim
	limit := since + r.sc.Bound()
	for !r.failed() {
		why := r.unsettled()
		if host, _ := r.master(); why == "" && r.sim.Manager(host).Sweeping() {
			why = fmt.Sprintf("the manager of h%d sweeps", host+1)
		}
		if why == "" {
			if since > 0 {
				r.tally.Slowest = max(r.tally.Slowest, s.Now()-since)
			}
			return true
		}
		if s.Now() >= limit {
			r.report(convergeName, nil, "%s has not converged %v after the last fault: %s", what, s.Now()-since, why)
			return false
		}
		for until := s.Now() + ib.Millisecond/2; s.Now() < until && !r.failed(); {
			r.step(until)
		}
	}
	return false
}

// finish lets the connections end, and wants them to have come through.
func (r *reign) finish() {
	r.quiet = true
	budget := 10 * (ib.Time(4096*ib.Nanosecond) << patientTimeout)
	limit := r.sim.Now() + budget
	for !r.failed() && r.sim.Now() < limit && r.talking() {
		r.step(min(limit, r.sim.Now()+slice))
	}
	for _, text := range append(r.machine.Neglected, r.machine.Early...) {
		r.report(progressName, nil, "%s", text)
	}
	for _, t := range r.talks {
		switch {
		case r.moved(t) || !r.quiet:
		case t.busy && !t.excused:
			r.report(trafficName, nil, "%v: message %d of %v ago has not completed", t, t.n, r.sim.Now()-t.sentAt)
		case t.busy && t.Patient:
			r.report(trafficName, nil, "%v: message %d of %v ago has not completed although the fabric is well", t, t.n,
				r.sim.Now()-t.sentAt)
		}
	}
}

// moved reports whether an end of a connection has another address than it had, as it may.
func (r *reign) moved(t *talk) bool {
	for e := range t.ends {
		if lid := r.sim.LID(topo.PortRef{Node: r.sim.HostNode(t.ends[e].host).Index, Port: 1}); lid != t.ends[e].lid &&
			!r.mustKeep() {
			return true
		}
	}
	return false
}

func (r *reign) talking() bool {
	for _, t := range r.talks {
		if t.busy {
			return true
		}
	}
	return false
}

// connect sets the connections up.
func (r *reign) connect() {
	for host := range r.sim.NumHosts() {
		r.machine.Learn(host)
	}
	for i := range r.sc.Conns {
		c := &r.sc.Conns[i]
		t, err := newTalk(r.machine, i, c, [2]ib.SL{r.level(c.From, c.To), r.level(c.To, c.From)})
		if err != nil {
			r.report("scenario", nil, "%v", err)
			return
		}
		r.talks = append(r.talks, t)
		r.machine.Wake(c.From)
		r.machine.Wake(c.To)
		r.sim.At(r.sim.Now()+c.Every, timerTalk|uint64(i))
	}
}

// level is the service level that the master tells for a way.
func (r *reign) level(from, to int) ib.SL {
	for k := range r.sc.Managers {
		m := r.sim.Manager(r.sc.Managers[k].Host)
		if m == nil || m.State() != mad.SMMaster || m.Subnet().Levels == nil {
			continue
		}
		sub := m.Subnet()
		if i, ok := sub.ByGUID(r.sim.HostNode(from).GUID); ok {
			return sub.Levels.Level(subnet.Ref{Node: i, Port: 1},
				r.sim.LID(topo.PortRef{Node: r.sim.HostNode(to).Index, Port: 1}))
		}
	}
	return 0
}

// look is a step of a host's program: it takes what its connections have completed. One that is only written to need
// not look again.
func (r *reign) look(host int) {
	for _, ok := r.machine.PollEvent(host); ok; _, ok = r.machine.PollEvent(host) {
	}
	writes := false
	for _, t := range r.talks {
		if t.From == host {
			writes = true
			r.took(t)
		}
	}
	if writes {
		r.machine.Wake(host)
	}
}

// took takes the completion of a connection's message, if it is there.
func (r *reign) took(t *talk) {
	done, wrong := t.poll(r.machine)
	switch {
	case wrong != "":
		r.report(trafficName, nil, "%v: %s", t, wrong)
	case done && t.failed != hca.WCSuccess:
		if (t.Patient || !t.excused && t.sentAt > max(r.blind, r.headless) &&
			r.changesSince(t.sentAt-r.sc.SweepInterval) < 2 && !r.inGap(t.sentAt)) && !r.moved(t) {
			r.report(trafficName, nil, "%v has failed: message %d, sent %v before, ended with %v; %s", t, t.n,
				r.sim.Now()-t.sentAt, t.failed, r.whereabouts(t))
		}
	case done:
		// While tables change a way may be closed for a moment; then this is the one that the next message will wait
		// for.
		t.way = t.way[:0]
		for e := range t.ends {
			list, _, _ := r.t.path(t.ends[e].host, t.ends[1-e].lid)
			t.way = append(t.way, list...)
		}
	}
}

// talk sends a connection's next message, unless there is one under way.
func (r *reign) talk(t *talk) {
	if t.failed != hca.WCSuccess || r.quiet {
		return
	}
	if !t.busy && !r.machine.Still(t.From) {
		if err := t.post(r.machine); err != nil {
			r.report(trafficName, nil, "%v: %v", t, err)
			return
		}
	}
	r.sim.At(r.sim.Now()+t.Every, timerTalk|uint64(t.id))
}

// whereabouts says where the packets of a connection go now.
func (r *reign) whereabouts(t *talk) string {
	var words []string
	for e := range t.ends {
		list, at, ok := r.t.path(t.ends[e].host, t.ends[1-e].lid)
		word := r.t.names(list)
		if !ok {
			word += " and ends at " + r.t.stop(at, t.ends[1-e].lid)
		}
		words = append(words, word)
	}
	return "its way now: " + words[0] + "; back: " + words[1]
}
