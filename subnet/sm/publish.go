package sm

import (
	"maps"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// publish makes what the sweep has found and left the subnet that all questions are answered from.
func (s *sweep) publish() {
	m := s.m
	s.late = s.lateSwitches()
	s.forgetFailing()
	for guid := range m.actual { // tidy: order-free
		if _, there := s.byGUID[guid]; !there {
			delete(m.actual, guid)
		}
	}
	for at, i := range s.switches {
		n := s.nodes[i]
		guid := n.Info.NodeGUID
		if s.incomplete[i] {
			m.doubt[guid] = true
			if s.stuck[i] {
				m.noteFailing(failingPort{guid, 0}, "a switch did not take its table")
			}
			continue
		}
		m.noteWorking(failingPort{guid, 0}, "a switch takes its table again")
		if !s.late[i] {
			delete(m.doubt, guid)
		}
		delete(m.actual, guid)
		if !sameRow(n.LFT, s.tables.LFT[at]) {
			s.edit(i).LFT = s.tables.LFT[at]
		}
	}
	sub := &subnet.Subnet{
		Prefix: m.cfg.Prefix, Nodes: s.nodes, Switches: s.switches, Self: s.self,
		Routing: s.tables.Engine, Managers: append([]subnet.Manager{m.manager(s)}, s.others()...),
		Partitions: s.partitions, Routers: s.routed(), Twins: s.twins,
	}
	if s.levels != nil {
		sub.Levels = s.levels
	}
	sub.Index()
	first := m.sub == nil
	m.sub, m.net, m.tables, m.arGroups = sub, s.net, s.tables, s.groups
	if first || s.full || len(s.looked) > 0 {
		m.noteNeighbors()
	}
	if len(s.incomplete) > 0 {
		m.tables = nil // nothing to mend: some switches hold something else
	}
	clear(m.unsure)
	m.force = Force{s.ticket, s.refusals}
	m.setbacks, m.restarts, m.overtaken, m.cutOffs = 0, 0, 0, 0
	if s.full {
		maps.DeleteFunc(m.deaf, func(_ ib.GUID, last ib.Time) bool { return last != s.began })
	}
	m.stillDoubted()
	m.sweeps++
	m.tookOver = false
	r := &s.report
	r.Took = m.now - s.began
	if s.full {
		m.fullTook = r.Took
	}
	r.Problems = s.problems
	done := *r
	done.Phases = slices.Clone(r.Phases[:len(r.Phases)-1]) // the present one is not over
	m.remember(done)
	if m.state != mad.SMMaster {
		m.become(mad.SMMaster, "the subnet is programmed")
	}
	if s.problems > grumbles {
		m.event(EventProblem, "%d problems in this sweep, of which %d are named above", s.problems, grumbles)
	}
	if first {
		m.event(EventSweep, "SUBNET UP: %v", *r)
	} else {
		m.event(EventSweep, "swept (%s): %v", s.why, *r)
	}
	m.published()
	m.retryUnanswered(s.full, s.silent+len(s.failed))
	m.resumeLight()
}

// retryUnanswered sees to it that what did not answer is asked again. What is new is tried again soon: it may have been
// a link that went down under a question. Then the pauses grow, so that a dead node does not keep the manager busy.
func (m *Manager) retryUnanswered(full bool, count int) {
	g := &m.unanswered
	if count == 0 {
		if full {
			*g = unanswered{soon: g.soon}
		}
		return
	}
	if !full || count != g.count {
		g.tries = 0
	}
	if full {
		g.count = count
	}
	at := m.retryAt(g.tries)
	if g.tries == 0 && m.now >= g.soon {
		g.soon = m.now + soonest*m.cfg.Timeout
		at = m.now + m.cfg.Timeout
	} else {
		g.tries++
	}
	m.want(at, "some nodes did not answer")
}

// soonest is how many timeouts lie between tries without a pause.
const soonest = 10

// unanswered is what did not answer: how much in the last full sweep, and how often it was tried since.
type unanswered struct {
	count, tries int
	soon         ib.Time // a try without a pause comes no sooner
}

// others are the managers beside this one. A look at a few nodes does not see them all: those that it does not see are
// as they were.
func (s *sweep) others() []subnet.Manager {
	if s.full || s.prev == nil {
		return s.managers
	}
	var list []subnet.Manager
	for _, o := range s.prev.Managers[1:] {
		seen := slices.ContainsFunc(s.managers, func(m subnet.Manager) bool { return m.Port == o.Port })
		if ref, there := s.refOf(o.Port); there && !seen &&
			s.nodes[ref.Node].Ports[ref.Port].Info.CapabilityMask&mad.CapIsSM != 0 {
			list = append(list, o)
		}
	}
	return append(list, s.managers...)
}
