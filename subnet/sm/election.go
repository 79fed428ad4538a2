package sm

import (
	"fmt"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// Commands between managers: the attribute modifier of Set(SMInfo) (IBA 14.4.2).
const (
	cmdHandover    = 1
	cmdAcknowledge = 2
	cmdDisable     = 3
	cmdStandby     = 4
	cmdDiscover    = 5
)

// election is what a manager knows of others and of its talks with them.
type election struct {
	next   ib.Time // when to look after others
	master ib.GUID // whom a standby looks after
	path   []ib.PortNum
	lid    ib.LID
	missed int
	waits  int // for others to make up their minds
	// searched is how many polls in a row have found it discovering.
	searched int
	// meddled says that another manager was at work while a sweep was under way: what the sweep knows of tables may be
	// wrong.
	meddled bool
	// handing is the manager that a handover was offered to and that has not acknowledged yet.
	handing    ib.GUID
	handingLID ib.LID
	// owing says that a handover is to be acknowledged, once the subnet is programmed, to the creditor.
	owing    bool
	creditor ib.GUID
}

func (e *election) init() { e.next = ib.Never }

// outranks reports whether manager a goes before manager b: the higher priority, then the lower GUID (IBA 14.4.1.2).
func outranks(a, b *mad.SMInfo) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.GUID < b.GUID
}

// info is this manager's own SMInfo. ActCount grows with every datagram sent, so that others see that it is alive (IBA
// 14.2.5.13).
func (m *Manager) info() mad.SMInfo {
	return mad.SMInfo{GUID: m.guid, SMKey: m.cfg.SMKey, ActCount: uint32(m.sent), Priority: m.cfg.Priority,
		SMState: m.state}
}

// manager is this manager as one of the subnet's.
func (m *Manager) manager(s *sweep) subnet.Manager {
	i := m.info()
	i.SMState = mad.SMMaster
	return subnet.Manager{Port: m.guid, LID: m.lids.of[m.guid], Info: i}
}

// foundManager takes the SMInfo of another manager.
func (s *sweep) foundManager(node int32, port ib.PortNum, data []byte) {
	var info mad.SMInfo
	if _, err := info.Parse(data); err != nil || info.SMState >= mad.NumSMState {
		return
	}
	p := &s.nodes[node].Ports[port]
	s.managers = append(s.managers, subnet.Manager{Port: p.GUID, LID: p.Info.LID, Info: info})
}

// elect decides, once all managers have been seen, who programs the subnet.
func (s *sweep) elect() {
	m := s.m
	m.guid = s.nodes[s.self.Node].Ports[s.self.Port].GUID
	own := m.info()
	var master, better *subnet.Manager
	searching := false // one that we go before is looking around: it may not have seen us, and be about to rule
	for k := range s.managers {
		o := &s.managers[k]
		if o.Info.GUID == own.GUID || o.Port == m.guid {
			continue
		}
		switch o.Info.SMState {
		case mad.SMMaster:
			if (m.state == mad.SMMaster || m.cfg.MKeyPerPort || m.cfg.Trusted != nil) && s.stranger(o) {
				continue
			}
			if master == nil || outranks(&o.Info, &master.Info) {
				master = o
			}
		case mad.SMStandby, mad.SMDiscovering:
			if s.stranger(o) {
				continue // it would take no command of ours
			}
			if outranks(&o.Info, &own) && (better == nil || outranks(&o.Info, &better.Info)) {
				better = o
			}
			// One in our own subnet finds its master, and stands by, unless that was cut off meanwhile.
			searching = searching || o.Info.SMState == mad.SMDiscovering &&
				(m.state != mad.SMMaster || s.joined(o.Port) || s.wasCut())
		}
	}
	if !searching {
		m.peers.waits = 0
	}
	if master != nil {
		m.doubtAll()            // it may have written anything
		m.peers.meddled = false // this sweep has yet to read the tables
	}
	switch {
	case master != nil && m.state == mad.SMDiscovering && !m.forced:
		// A subnet that has a master keeps it, until the master itself hands over to who goes before it.
		s.yield(master, "the subnet has a master")
	case master != nil && m.state == mad.SMMaster && outranks(&master.Info, &own):
		// Two subnets were joined; the other master goes on.
		s.offer(master)
	case better != nil && m.state == mad.SMDiscovering && !m.forced:
		// It will find out the same and go on; wait for it.
		s.yield(better, "another manager goes before this one")
	case searching && !m.forced && m.peers.waits < m.cfg.PollRetries:
		m.peers.waits++
		s.abandon = true
		m.want(m.now+min(m.cfg.PollInterval, ib.Second), "another manager was discovering too")
	case better != nil && m.state == mad.SMMaster && better.Info.SMState == mad.SMStandby:
		s.successor = better
	case better != nil:
		// It has yet to find this master, or this one was handed the subnet while a better one came; once that stands
		// by the subnet is its.
		m.want(m.now+m.cfg.PollInterval, "a manager that goes before this one is discovering")
	}
}

// stranger reports whether a manager has another SM_Key than this one. One that hides its key may have the same, but
// not where nodes are guarded: those of ours show it to each other there. So is one at a port where none is trusted.
func (s *sweep) stranger(o *subnet.Manager) bool {
	if t := s.m.cfg.Trusted; t != nil && !slices.Contains(t, o.Port) {
		s.m.event(EventProblem, "a manager runs at %s, where none is trusted: it is left out", s.peer(o.Port))
		return true
	}
	if o.Info.SMKey == s.m.cfg.SMKey || o.Info.SMKey == 0 && !s.m.cfg.MKeyPerPort {
		return false
	}
	s.m.event(EventProblem, "the manager at %s has another SM_Key than this one: nothing can be handed over to it",
		s.peer(o.Port))
	return true
}

// peer is what the log calls another manager: its node, and the port if there are several.
func (s *sweep) peer(port ib.GUID) string {
	ref, ok := s.refOf(port)
	if !ok {
		return port.String()
	}
	name := s.name(ref.Node)
	if ref.Port > 0 && len(s.nodes[ref.Node].Ports) > 2 {
		name += fmt.Sprintf(" port %d", ref.Port)
	}
	return name
}

// joined reports whether a port was not part of this manager's subnet before.
func (s *sweep) joined(port ib.GUID) bool {
	if s.prev == nil {
		return true
	}
	_, known := s.prev.ByPortGUID(port)
	return !known
}

// yield makes this manager a standby.
func (s *sweep) yield(to *subnet.Manager, why string) {
	m := s.m
	m.become(mad.SMStandby, fmt.Sprintf("%s: %s, priority %d (ours is %d)", why, s.peer(to.Port), to.Info.Priority,
		m.cfg.Priority))
	s.watch(to)
	s.abandon = true
}

// watch makes a standby look after its master.
func (s *sweep) watch(to *subnet.Manager) {
	m := s.m
	m.peers.master, m.peers.lid, m.peers.missed, m.peers.waits, m.peers.searched = to.Port, to.LID, 0, 0, 0
	if ref, ok := s.refOf(to.Port); ok {
		m.peers.path = append([]ib.PortNum(nil), s.pathTo(ref.Node, ref.Port)...)
	}
	m.peers.next = m.now + m.cfg.PollInterval
	m.forced = false
	m.forget()
	if to.Info.SMState == mad.SMMaster {
		m.askRegistrations(to.LID) // it may hand over at once
	}
}

// forget drops what a manager that does not manage cannot know.
func (m *Manager) forget() {
	m.sub, m.net, m.tables, m.arGroups = nil, nil, nil, nil
	clear(m.routers)
	clear(m.choosing)
	clear(m.doubt)
	clear(m.unsure)
	clear(m.actual)
	clear(m.failing)
	clear(m.deaf)
	m.unanswered = unanswered{}
	m.setbacks, m.restarts, m.overtaken, m.cutOffs = 0, 0, 0, 0
	m.wants = noWants()
	m.light.active, m.light.next = false, ib.Never
}

// doubtAll makes the next sweep read all tables: another manager has been at work.
func (m *Manager) doubtAll() {
	m.peers.meddled = m.sweep != nil
	clear(m.actual)
	if m.sub == nil {
		return
	}
	for _, i := range m.sub.Switches {
		m.doubt[m.sub.Nodes[i].Info.NodeGUID] = true
	}
}

// regiven reports whether an end port that was known has been given another address or another manager by somebody
// else. One that has none has only forgotten them.
func (m *Manager) regiven(p *subnet.Port, was *mad.PortInfo) bool {
	news := func(is, was, ours ib.LID) bool { return is != 0 && is != was && is != ours }
	return was.LID != 0 && (news(p.Info.LID, was.LID, m.lids.of[p.GUID]) ||
		news(p.Info.MasterSMLID, was.MasterSMLID, m.lids.of[m.guid]))
}

// usurped has a full sweep find out who rules: a node has been given another address or another manager. A look that
// is under way is given up. Even if it has read all tables, the other plans from its own, and would not know what it
// wrote.
func (m *Manager) usurped(n *subnet.Node) {
	m.doubtAll()
	if m.sweep != nil && !m.sweep.full {
		m.sweep.abandon = true
	}
	m.want(m.now, nodeName(n)+" has been given another address or another manager")
}

// stillDoubted doubts again, after a sweep, what it was told to doubt while it was under way.
func (m *Manager) stillDoubted() {
	if m.peers.meddled {
		m.doubtAll()
		m.peers.meddled = false
	}
}

// handOver offers the subnet to the successor that was found. It is the last that a sweep does to the subnet: ways are
// closed while tables change, and who takes over would find them so, and have to look around first.
func (s *sweep) handOver() {
	m := s.m
	switch {
	case s.successor == nil || m.state != mad.SMMaster:
	case len(m.actual) > 0:
		m.want(m.now+2*m.drainTime()+m.cfg.Timeout, "a manager that goes before this one stands by")
	default:
		s.offer(s.successor)
	}
}

// offer hands the subnet over to a manager that goes before this one (IBA 14.4.1.7). Until it has
// answered, this one goes on.
func (s *sweep) offer(to *subnet.Manager) {
	m := s.m
	ref, ok := s.refOf(to.Port)
	if !ok || m.peers.handing != 0 {
		return
	}
	m.peers.handing, m.peers.handingLID = to.Port, to.LID
	m.peers.path = append([]ib.PortNum(nil), s.pathTo(ref.Node, ref.Port)...)
	m.event(EventState, "handing over to %s, priority %d (ours is %d)", s.peer(to.Port), to.Info.Priority,
		m.cfg.Priority)
	own := m.info()
	m.tellPeer(to.Port, m.peers.path, cmdHandover, &own)
	m.peers.next = m.now + m.cfg.PollInterval
}

// Resign offers the subnet to the foremost of the others: this manager is about to end, and without a word they would
// find out by asking in vain, which takes them a minute (IBA 14.4.1.7). It reports whether there is somebody to answer.
// Once State is Standby the other has taken over; the sooner this one is gone then, the better.
func (m *Manager) Resign(now ib.Time) bool {
	m.now = now
	s := m.Subnet()
	if m.state != mad.SMMaster || s == nil {
		return false
	}
	var successor *subnet.Manager
	for i := range s.Managers {
		if o := &s.Managers[i]; o.Port != m.guid && o.LID != 0 && o.Info.SMState != mad.SMNotActive &&
			(successor == nil || outranks(&o.Info, &successor.Info)) {
			successor = o
		}
	}
	if successor == nil {
		return false
	}
	e := &m.peers
	e.handing, e.handingLID, e.lid, e.path = successor.Port, successor.LID, successor.LID, nil
	m.event(EventState, "this manager ends, and hands over to %v", successor.Port)
	own := m.info()
	m.tellPeer(successor.Port, nil, cmdHandover, &own)
	e.next = ib.Never // it is not asked twice
	return true
}

// tellPeer sends a Set(SMInfo) to the manager at a port along a directed route, or to its LID where no route is known.
// OpenSM wants to see the port's M_Key.
func (m *Manager) tellPeer(port ib.GUID, path []ib.PortNum, cmd uint32, info *mad.SMInfo) {
	r := request{what: tell, set: true, attr: mad.AttrSMInfo, mod: cmd, node: subnet.None}
	info.Append(m.directed(&r, path, m.mkey(port)))
	m.queue(r)
}

// askPeer sends a Get(SMInfo) in the same way.
func (m *Manager) askPeer(port ib.GUID, path []ib.PortNum) {
	r := request{what: askManager, attr: mad.AttrSMInfo, node: subnet.None}
	m.directed(&r, path, m.mkey(port))
	m.queue(r)
}

// queue sends what is in the buffer, ahead of the sweep's requests.
func (m *Manager) queue(r request) {
	data := append([]byte(nil), m.buf[:]...)
	to := ib.LIDPermissive
	if mad.View(data).HopCount() == 0 {
		// A directed route without hops would lead to ourselves: who sent us a command by LID gets its answer by LID.
		to = m.peers.lid
		data[1] = byte(mad.ClassSMLID)
		clear(data[32:36])
	}
	m.out = append(m.out, outgoing{
		env: mad.Envelope{LID: to, QPN: ib.QPNSMI}, data: data, timeout: m.cfg.Timeout, retries: m.cfg.Retries, req: r,
		tracked: true,
	})
}

// pollPeers looks after the master, or repeats the offer of a handover.
func (m *Manager) pollPeers() {
	e := &m.peers
	e.next = ib.Never
	switch {
	case m.state == mad.SMStandby:
		m.askPeer(e.master, e.path)
		m.askRegistrations(e.lid)
		e.next = m.now + m.cfg.PollInterval
	case m.state == mad.SMMaster && e.handing != 0:
		// No acknowledgement: it may be gone. A full sweep finds out, and offers again if it is not.
		e.handing = 0
		m.want(m.now, "a handover was not acknowledged")
	}
}

// searchMax is how many polls a manager may be found discovering before it counts as dead: a sweep does not take that
// long.
const searchMax = 30

// peerReply takes the answer of another manager.
func (m *Manager) peerReply(r *request, v mad.View) {
	if r.what == tell && r.mod == cmdHandover {
		m.offered(v)
		return
	}
	if r.what != askManager || m.state != mad.SMStandby {
		return
	}
	e := &m.peers
	var info mad.SMInfo
	ok := v != nil && v.Status() == mad.StatusOK
	if ok {
		_, err := info.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen])
		ok = err == nil && info.GUID == e.master || err == nil && info.SMState == mad.SMMaster
	}
	own := m.info()
	switch {
	case !ok:
		if e.missed++; e.missed >= m.cfg.PollRetries {
			m.rediscover("the master does not answer")
		}
	case info.SMState == mad.SMMaster:
		e.missed, e.searched = 0, 0
	case info.SMState == mad.SMStandby || info.SMState == mad.SMNotActive:
		// It is no master: somebody else may be, or nobody.
		if e.missed++; e.missed >= m.cfg.PollRetries || outranks(&own, &info) {
			m.rediscover("the one that was master is not any more")
		}
	case info.SMState == mad.SMDiscovering && e.searched < searchMax:
		e.missed = 0 // it is about to become one
		e.searched++
	default:
		if e.missed++; e.missed >= m.cfg.PollRetries {
			m.rediscover("the one that was to be master is not")
		}
	}
}

// offered takes the answer to a handover. The one that has answered goes on from there; its acknowledgement is optional
// and OpenSM sends none.
func (m *Manager) offered(v mad.View) {
	e := &m.peers
	if m.state != mad.SMMaster || e.handing == 0 {
		return
	}
	if v == nil || v.Status() != mad.StatusOK {
		m.event(EventState, "manager %v does not take over; it is asked again", e.handing)
		return // pollPeers asks again
	}
	m.stepDown(e.handing, e.handingLID)
}

// stepDown makes a standby of a master that another has taken over from.
func (m *Manager) stepDown(to ib.GUID, lid ib.LID) {
	e := &m.peers
	if plantKeep {
		e.handing = 0
		return
	}
	m.become(mad.SMStandby, "handed over to "+to.String())
	e.master, e.lid, e.handing, e.missed, e.waits = to, lid, 0, 0, 0
	e.next = m.now + m.cfg.PollInterval
	m.mayAskUntil = m.now + mayAskFor
	if m.sweep != nil {
		m.sweep.abandon = true
	}
	m.forget()
}

// mayAskFor is how long a manager that has handed over still answers its successor's questions about what hosts had
// registered.
const mayAskFor = 10 * ib.Second

// rediscover starts over.
func (m *Manager) rediscover(why string) {
	m.become(mad.SMDiscovering, why)
	m.tookOver = true
	m.peers.next, m.peers.waits = ib.Never, 0
	m.want(m.now, why)
}

// handleSMInfo answers another manager, or a tool that asks.
func (m *Manager) handleSMInfo(env mad.Envelope, v mad.View) {
	resp := append(mad.View(nil), v...)
	resp.SetMethod(mad.MethodGetResp)
	if v.Class() == mad.ClassSMDirect {
		resp.SetReturning(true)
	}
	if term, ok := m.termOf(v.MKey()); ok && term != m.cfg.Term {
		if mad.TermAfter(m.cfg.Term, term) {
			return // it has been deposed, and will hear of that
		}
		m.depose(term)
	}
	own := m.info()
	if v.Method() == mad.MethodSet {
		var theirs mad.SMInfo
		status := mad.StatusOK
		if _, err := theirs.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil || !m.command(env, v, &theirs) {
			status = mad.StatusInvalidField
		}
		resp.SetStatus(status)
		own = m.info()
	}
	// The key is shown to whoever asks: OpenSM takes a manager that does not show the right one for a stranger's, and
	// only privileged programs can send to QP0 at all. Where every port has a key of its own, who asks has to know it.
	if m.cfg.MKeyPerPort && v.MKey() != m.MKey(m.guid) {
		own.SMKey = 0
	}
	clear(resp[mad.SMPDataOff:][:mad.SMPDataLen])
	own.Append(resp[mad.SMPDataOff:mad.SMPDataOff])
	m.out = append(m.out, outgoing{env: env.Reply(), data: resp})
}

// termOf is the term that a key shown to our port is of; false if it is of none.
func (m *Manager) termOf(key uint64) (term uint32, ok bool) {
	if m.cfg.Terms == 0 || key == 0 {
		return 0, false
	}
	if term, ok = mad.TermOf(m.cfg.Terms, m.guid, key); !ok {
		term, ok = mad.TermOf(m.cfg.Terms, 0, key)
	}
	return term, ok
}

// depose ends what this manager does: another rules by the agreement by which this one did. Whoever runs it ends it
// when it hears of that, which may be later.
func (m *Manager) depose(term uint32) {
	if m.state == mad.SMNotActive {
		return
	}
	m.become(mad.SMNotActive, "another manager rules, in term "+itoa(int(term)))
	m.peers.next, m.peers.handing = ib.Never, 0
	if m.sweep != nil {
		m.sweep.abandon = true
	}
}

// command carries out a Set(SMInfo) (IBA 14.4.1, figure of the state machine). False: it does not fit the state.
func (m *Manager) command(env mad.Envelope, v mad.View, theirs *mad.SMInfo) bool {
	if m.cfg.SMKey != 0 && theirs.SMKey != m.cfg.SMKey {
		m.event(EventProblem, "manager %v sends a command with another SM_Key: ignored", theirs.GUID)
		return false
	}
	switch v.AttrMod() {
	case cmdHandover:
		if m.state == mad.SMNotActive {
			return false
		}
		if m.state == mad.SMStandby {
			m.become(mad.SMDiscovering, "handed over by "+theirs.GUID.String())
			m.tookOver = true
		}
		m.doubtAll() // whatever this manager wrote, the other may have written since
		if m.sweep != nil {
			m.sweep.abandon = true // it may have read tables before the other wrote its last
		}
		m.forced = true
		m.peers.next = ib.Never
		m.peers.owing, m.peers.creditor = true, theirs.GUID
		m.peers.handing = 0
		m.peers.path = backPath(v)
		if len(m.peers.path) == 0 {
			m.peers.lid = env.LID
		}
		m.want(m.now, "handover")
		return true
	case cmdAcknowledge:
		if m.state != mad.SMMaster || m.peers.handing == 0 {
			return m.state == mad.SMStandby
		}
		m.stepDown(m.peers.handing, m.peers.handingLID)
		return true
	case cmdDisable:
		if m.state != mad.SMStandby {
			return false
		}
		m.become(mad.SMNotActive, "disabled by "+theirs.GUID.String())
		m.peers.next = ib.Never
		return true
	case cmdStandby:
		if m.state != mad.SMNotActive || m.cfg.Terms != 0 {
			return false
		}
		m.become(mad.SMStandby, "told to stand by by "+theirs.GUID.String())
		m.peers.master, m.peers.missed = theirs.GUID, 0
		m.peers.path = backPath(v)
		if len(m.peers.path) == 0 {
			m.peers.lid = env.LID
		}
		m.peers.next = m.now + m.cfg.PollInterval
		return true
	case cmdDiscover:
		if m.state != mad.SMStandby {
			return false
		}
		m.rediscover("told to discover by " + theirs.GUID.String())
		return true
	}
	return false
}

// backPath is the directed route back to the sender of a directed request; nil for one that came by LID.
func backPath(v mad.View) []ib.PortNum {
	if v.Class() != mad.ClassSMDirect {
		return nil
	}
	var path []ib.PortNum
	for h := int(v.HopCount()); h >= 1; h-- {
		path = append(path, v.ReturnPath(uint8(h)))
	}
	return path
}

// acknowledge tells the former master that the subnet is in good hands.
func (m *Manager) acknowledge() {
	if !m.peers.owing {
		return
	}
	m.peers.owing = false
	m.forced = false
	own := m.info()
	m.tellPeer(m.peers.creditor, m.peers.path, cmdAcknowledge, &own)
}

// takingOver reports whether clients have to register with this manager anew.
func (m *Manager) takingOver() bool { return m.tookOver || m.sub == nil }
