package remote

import (
	"fmt"
	"slices"
	"strings"

	"softib/node/inspect"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// view is what nodes said of themselves when they were last asked. It is not changed once others see it.
type view struct {
	epoch uint64
	from  topo.PortRef // where it is looked at from
	nodes []nodeView
	// master is the port at which the subnet manager is that our own port obeys; Node is survey.None where nobody
	// knows.
	master topo.PortRef
	// blind: our own port has no link, so all else is as it was before.
	blind bool
}

type nodeView struct {
	seen  bool
	route []ib.PortNum
	ports []portView
	lft   []ib.PortNum // nil if it is not known, or no switch
}

type portView struct {
	known bool
	info  mad.PortInfo
	keys  []ib.PKey // nil if they are not known
}

func (v *view) port(r topo.PortRef) *portView {
	if r.Node < 0 || r.Node >= len(v.nodes) || int(r.Port) >= len(v.nodes[r.Node].ports) {
		return nil
	}
	return &v.nodes[r.Node].ports[r.Port]
}

// state is how far a port's link is.
func (v *view) state(r topo.PortRef) ib.PortState {
	if p := v.port(r); p != nil && p.known {
		return p.info.PortState
	}
	return ib.PortDown
}

// look makes a view of a survey whose nodes have the numbers at in the shape, after the view was.
func (h *shape) look(s *survey.Survey, at []int, was *view) *view {
	v := &view{from: topo.PortRef{Node: at[s.From.Node], Port: s.From.Port}, nodes: make([]nodeView, len(h.members)),
		master: topo.PortRef{Node: survey.None}}
	v.blind = len(s.Nodes) == 1 && len(h.members) > 1
	if was != nil {
		copy(v.nodes, was.nodes)
		v.epoch, v.master = was.epoch, was.master
	}
	for i := range v.nodes {
		n := &v.nodes[i]
		n.ports = append(make([]portView, 0, len(h.members[i].peers)), n.ports...)[:len(h.members[i].peers)]
		n.seen = n.seen && v.blind
	}
	for i, x := range s.Nodes {
		n := &v.nodes[at[i]]
		n.seen, n.route, n.lft = true, x.Route, x.LFT
		for p := range x.Ports {
			if q := &x.Ports[p]; q.Known {
				n.ports[p] = portView{known: true, info: q.Info}
				if q.HasPKeys {
					n.ports[p].keys = append([]ib.PKey{}, q.PKeys...)
				}
			} else if n.ports[p].known {
				h.guess(v, topo.PortRef{Node: at[i], Port: ib.PortNum(p)})
			}
		}
	}
	if v.blind {
		return v
	}
	for i := range v.nodes {
		for p := range v.nodes[i].ports {
			if !v.nodes[i].seen {
				h.guess(v, topo.PortRef{Node: i, Port: ib.PortNum(p)})
			}
		}
	}
	v.master = h.masterOf(s, at, v)
	return v
}

// guess is for a port that does not answer: its link is as the far end says. If that does not answer either, nobody
// knows, and it is down.
func (h *shape) guess(v *view, r topo.PortRef) {
	p := v.port(r)
	if !p.known {
		return
	}
	p.info.PortState, p.info.PortPhysicalState = ib.PortDown, ib.PhysPolling
	far := *h.peer(r)
	if far.Node == survey.None || !v.nodes[far.Node].seen {
		return
	}
	if q := v.port(far); q.known && q.info.PortState > ib.PortDown {
		p.info.PortState, p.info.PortPhysicalState = q.info.PortState, q.info.PortPhysicalState
	}
}

// masterOf is where the manager is that our own port obeys.
func (h *shape) masterOf(s *survey.Survey, at []int, v *view) topo.PortRef {
	lid := v.port(v.from).info.MasterSMLID
	found := topo.PortRef{Node: survey.None}
	if lid == 0 {
		return found
	}
	s.EndPorts(func(r topo.PortRef, p *survey.Port) {
		if p.Known && p.Info.LID.IsUnicast() && lid >= p.Info.LID && int(lid) < int(p.Info.LID)+1<<p.Info.LMC {
			found = topo.PortRef{Node: at[r.Node], Port: r.Port}
		}
	})
	return found
}

// sameAs reports whether two views say the same of states, addresses, tables and keys.
func (v *view) sameAs(o *view) bool {
	if o == nil || v.master != o.master || v.blind != o.blind {
		return false
	}
	return slices.EqualFunc(v.nodes, o.nodes, func(a, b nodeView) bool {
		return a.seen == b.seen && slices.Equal(a.lft, b.lft) &&
			slices.EqualFunc(a.ports, b.ports, func(x, y portView) bool {
				return x.known == y.known && settled(x.info) == settled(y.info) && slices.Equal(x.keys, y.keys)
			})
	})
}

// settled is a PortInfo without what counts or is measured.
func settled(pi mad.PortInfo) mad.PortInfo {
	pi.MKeyViolations, pi.PKeyViolations, pi.QKeyViolations, pi.LinkRoundTripLatency = 0, 0, 0, 0
	return pi
}

// eventsMax is how many links and nodes are named at a time; more are counted.
const eventsMax = 50

// changes says what is different from the view before, for the journal.
func (h *shape) changes(was, now *view) (list []manager.Event) {
	if was == nil {
		return nil
	}
	named, more := 0, 0
	add := func(s manager.Severity, object, text string) {
		if named++; named > eventsMax {
			more++
			return
		}
		list = append(list, manager.Event{Kind: "topology", Severity: s, Object: object, Text: text})
	}
	if now.blind != was.blind {
		if now.blind {
			add(manager.Critical, h.portName(now.from), fmt.Sprintf("%s, from where this fabric is watched, "+
				"has lost its link: nothing else can be seen", h.portName(now.from)))
			return list
		}
		add(manager.Info, h.portName(now.from), h.portName(now.from)+
			", from where this fabric is watched, has its link again")
	}
	for i := range was.nodes {
		switch name := h.members[i].name; {
		case was.nodes[i].seen && !now.nodes[i].seen:
			add(manager.Warning, name, name+" is gone: it does not answer")
		case !was.nodes[i].seen && now.nodes[i].seen:
			add(manager.Info, name, name+" is back")
		}
	}
	for i := range was.nodes {
		for p, far := range h.members[i].peers {
			r := topo.PortRef{Node: i, Port: ib.PortNum(p)}
			if far.Node == survey.None || far.Node < i || far.Node == i && int(far.Port) < p ||
				far.Node >= len(was.nodes) {
				continue
			}
			if !now.nodes[i].seen && !now.nodes[far.Node].seen {
				continue // that the nodes are gone was said
			}
			before, after := min(was.state(r), was.state(far)), min(now.state(r), now.state(far))
			if before == after {
				continue
			}
			link := h.portName(r) + " " + h.portName(far)
			s := manager.Info
			if after < before {
				s = manager.Warning
			}
			add(s, link, fmt.Sprintf("the link %s is %s; it was %s", link, inspect.StateName(after),
				inspect.StateName(before)))
		}
	}
	if more > 0 {
		list = append(list, manager.Event{Kind: "topology", Severity: manager.Warning,
			Text: fmt.Sprintf("and %d more nodes and links have changed", more)})
	}
	return append(list, h.tableChanges(was, now)...)
}

// tableChanges says whose tables have changed.
func (h *shape) tableChanges(was, now *view) (list []manager.Event) {
	var routes, keys []string
	for i := range was.nodes {
		if !was.nodes[i].seen || !now.nodes[i].seen {
			continue
		}
		if was.nodes[i].lft != nil && !slices.Equal(was.nodes[i].lft, now.nodes[i].lft) {
			routes = append(routes, h.members[i].name)
		}
		for p := range was.nodes[i].ports {
			if a, b := was.nodes[i].ports[p].keys, now.nodes[i].ports[p].keys; a != nil && b != nil &&
				!slices.Equal(a, b) {
				keys = append(keys, h.portName(topo.PortRef{Node: i, Port: ib.PortNum(p)}))
			}
		}
	}
	say := func(kind, what string, names []string) {
		if len(names) == 0 {
			return
		}
		text := strings.Join(names[:min(len(names), 4)], ", ")
		if n := len(names) - 4; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		list = append(list, manager.Event{Kind: kind, Text: what + text})
	}
	say("routes", "there are other routes in the tables of ", routes)
	say("partitions", "there are other keys in the tables of ", keys)
	if was.master != now.master {
		e := manager.Event{Kind: "manager", Severity: manager.Warning,
			Text: "no subnet manager looks after this fabric"}
		if now.master.Node != survey.None {
			e.Severity, e.Object = manager.Info, h.portName(now.master)
			e.Text = "the subnet manager at " + e.Object + " looks after this fabric"
		}
		list = append(list, e)
	}
	return list
}
