package manager

import (
	"fmt"
	"slices"
	"strings"

	"softib/operate/manager/health"
	"softib/operate/wiring"
	"softib/proto/ib"
	"softib/proto/topo"
)

// AlarmAt names what an alarm is about: a cable as LinkName does, whichever end was found first, or a node.
func (m *Manager) AlarmAt(a *health.Alarm) string {
	if a.OfNode() {
		return m.g.Nodes[a.A.Node].Name
	}
	if i, ok := m.CableOf(a.A); ok && (m.cables[i].A == a.B || m.cables[i].B == a.B) {
		return m.LinkName(i)
	}
	return m.endName(a.A) + " " + m.endName(a.B)
}

// endName is a port's name, or its node's where a cable is missing that would do in several of its ports.
func (m *Manager) endName(r topo.PortRef) string {
	if r.Port == 0 {
		return m.g.Nodes[r.Node].Name
	}
	return m.g.PortName(r)
}

// about is a verdict on a node, or on a cable where two ports are named.
func about(k health.Kind, s health.Severity, a, b topo.PortRef, said, do string) health.Verdict {
	return health.Verdict{Cable: -1, A: a, B: b, Severity: s,
		Reasons: []health.Reason{{Kind: k, Severity: s, At: a, Peer: b, Said: said, Do: do}}}
}

// oneDead makes one verdict of the cables of a switch whose links are all down, with the hosts that it cuts off, where
// there would be one of each.
func (m *Manager) oneDead(list []health.Verdict) []health.Verdict {
	down := map[int]int{} // by switch, where there are any
	isDown := func(r *health.Reason) bool { return r.Kind == health.LinkDown }
	for i := range list {
		if slices.ContainsFunc(list[i].Reasons, func(r health.Reason) bool { return isDown(&r) }) {
			down[list[i].A.Node]++
			down[list[i].B.Node]++
		}
	}
	dead := map[int]bool{}
	var said []health.Verdict
	for _, n := range m.g.Switches() {
		cables := 0
		var hosts []string
		for p := 1; p < len(n.Ports); p++ {
			if !n.Ports[p].Connected() {
				continue
			}
			cables++
			if far := m.g.Nodes[n.Ports[p].Peer]; !far.IsSwitch() && !slices.Contains(hosts, far.Name) {
				hosts = append(hosts, far.Name)
			}
		}
		if cables < 2 || down[n.Index] < cables {
			continue
		}
		dead[n.Index] = true
		text := fmt.Sprintf("all %d links of %s are down", cables, n.Name)
		if len(hosts) > 0 {
			text += "; cut off by it: " + words(hosts)
		}
		at := topo.PortRef{Node: n.Index}
		said = append(said, about(health.DeadSwitch, health.Down, at, at, text,
			"see that "+n.Name+" has power and runs; then its cables"))
	}
	if len(dead) == 0 {
		return slices.Clone(list)
	}
	for _, v := range list {
		if dead[v.A.Node] || dead[v.B.Node] {
			v.Reasons = slices.DeleteFunc(slices.Clone(v.Reasons), func(r health.Reason) bool {
				return isDown(&r) || r.Kind == health.Flapping // by which it went down
			})
		}
		if len(v.Reasons) > 0 {
			said = append(said, v)
		}
	}
	return said
}

// conditions are verdicts on what is not a cable's state: the wiring and the names, which are as they are for as long
// as the fabric is, and who manages it.
func (m *Manager) conditions() []health.Verdict {
	m.static.once.Do(func() {
		go func() { // it takes a while where there are thousands of switches
			list := append(m.doubleNames(), m.miswired()...)
			m.static.list.Store(&list)
		}()
	})
	var list []health.Verdict
	if p := m.static.list.Load(); p != nil {
		list = slices.Clone(*p)
	}
	if p := m.watched.Load(); p != nil {
		list = append(list, *p...)
	}
	if own, ok := m.g.ByPortGUID(ib.GUID(m.static.own.Load())); ok {
		if pi, ok := m.opts.Fabric.PortInfo(own); ok && pi.LID != 0 && pi.MasterSMLID != 0 && pi.MasterSMLID != pi.LID {
			list = append(list, about(health.TakenOver, health.Watch, own, own,
				fmt.Sprintf("the fabric is managed from %s, not by its own manager at %s", m.nameOfLID(pi.MasterSMLID),
					m.g.Nodes[own.Node].Name),
				"stop the other manager if nobody wants it, or give the own one a higher priority (softib up "+
					"--sm-priority)"))
		}
	}
	return list
}

// nameOfLID is the node that has an address.
func (m *Manager) nameOfLID(lid ib.LID) string {
	for _, r := range m.g.EndPorts() {
		if pi, ok := m.opts.Fabric.PortInfo(r); ok && pi.LID != 0 && lid >= pi.LID && lid < pi.LID+1<<pi.LMC {
			return fmt.Sprintf("%s (LID %d)", m.g.Nodes[r.Node].Name, lid)
		}
	}
	return fmt.Sprintf("LID %d", lid)
}

// doubleNames are nodes of different machines that have one description.
func (m *Manager) doubleNames() (list []health.Verdict) {
	first := map[string]*topo.Node{}
	for _, n := range m.g.Nodes {
		if !topo.NamesNode(n.Desc) {
			continue
		}
		was := first[n.Desc]
		if was == nil {
			first[n.Desc] = n
			continue
		}
		if was.SystemGUID != n.SystemGUID {
			at := topo.PortRef{Node: n.Index}
			list = append(list, about(health.DoubleName, health.Watch, at, at,
				fmt.Sprintf("%v is called %q, as is %v", n.GUID, n.Desc, was.GUID),
				"set the host name of the wrong one and restart its driver"))
		}
	}
	return list
}

// miswired are cables that are not where the tree has them that most of the fabric is.
func (m *Manager) miswired() (list []health.Verdict) {
	findings, _ := wiring.Structure(m.g)
	type place struct{ a, b topo.PortRef }
	first := map[place]*health.Reason{} // what is said of a place already
	for _, f := range findings {
		if f.Severity < wiring.Warning {
			continue
		}
		a, b := f.Place(m.g)
		if m.g.Peer(a) == b {
			if i, ok := m.CableOf(a); ok {
				a, b = m.cables[i].A, m.cables[i].B // by the name that the cable has elsewhere
			}
		}
		do := f.Do + "; softib topo check live shows the whole"
		// One alarm says all of a place, such as of two missing cables for which any ports of their switches would do.
		if r := first[place{a, b}]; r != nil {
			if r.Said += "; " + f.Text; !strings.Contains(r.Do, f.Do) {
				r.Do = f.Do + "; " + r.Do
			}
			continue
		}
		list = append(list, about(health.Miswired, health.Watch, a, b, f.Text, do))
		first[place{a, b}] = &list[len(list)-1].Reasons[0]
	}
	return list
}
