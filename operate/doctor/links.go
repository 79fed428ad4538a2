package doctor

import (
	"fmt"
	"slices"
	"strings"

	"softib/operate/manager/health"
	"softib/operate/wiring"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// links reports links that are not up, not active, or less than they could be.
func (j *judgement) links(s *Section) {
	s.Looked = count(len(j.cables), "link", "links")
	names := j.s
	var meant []string // links that both ends are configured for
	example := ""
	var asleep []Finding // links that no manager has brought up
	for _, v := range health.Judge(j.states(), 0, j.t) {
		for i := range v.Reasons {
			r := &v.Reasons[i]
			f := Finding{Severity: Fail, Kind: strings.ReplaceAll(r.Kind.String(), " ", "-"),
				Objects: ends(names, v.A, v.B), Measured: v.Name(names) + ": " + r.Text(names), Next: v.Advice(names)}
			switch r.Kind {
			case health.Slow:
				f.Threshold = r.Possible.String()
				if r.Severity == health.Watch {
					f.Severity = Warn
				}
				a, b := j.limited(v.A, r.Rate), j.limited(v.B, r.Rate)
				if a != "" && b != "" {
					meant = append(meant, v.Name(names))
					example = f.Measured
					continue
				}
				if a+b != "" {
					f.Measured += ", because " + a + b
					f.Next = "enable more at that port (ibportstate, or the manager's configuration) and let " +
						"the link train anew"
				}
			case health.NotActive:
				f.Threshold = "Active"
				asleep = append(asleep, f)
				continue
			default:
				f.Threshold = "up"
			}
			s.add(f)
		}
	}
	j.asleep(s, asleep)
	if len(meant) > 0 {
		s.add(Finding{
			Severity: Note, Kind: "configured-rate", Objects: meant,
			Measured: fmt.Sprintf("%s less than they could because both ends are configured so, such as %s",
				count(len(meant), "link does", "links do"), example),
			Threshold: "all that both ends can", Next: "if it is not meant, enable more at both ends (ibportstate, " +
				"or the manager's configuration) and let the links train anew",
		})
	}
	for i := range j.cables {
		j.asymmetric(s, &j.cables[i])
	}
	j.lost(s)
}

// asleep reports links that are not active, as one if there are many: their reason is then one, too.
func (j *judgement) asleep(s *Section, list []Finding) {
	if len(list) <= namesShown {
		for _, f := range list {
			s.add(f)
		}
		return
	}
	all := Finding{Severity: Fail, Kind: list[0].Kind, Threshold: "Active",
		Next: "see that a subnet manager runs (managers, below), and what its log says"}
	var names []string
	for _, f := range list {
		names = append(names, strings.Join(f.Objects, " "))
		all.Objects = append(all.Objects, f.Objects...)
	}
	all.Measured = fmt.Sprintf("%d of %d links are not active: %s", len(list), len(j.cables), few(names))
	s.add(all)
}

// states are the cables without their counters.
func (j *judgement) states() []health.Cable {
	list := make([]health.Cable, len(j.cables))
	for i := range list {
		list[i] = j.cables[i]
		list[i].A.Total, list[i].B.Total = ib.Counters{}, ib.Counters{}
	}
	return list
}

func ends(s *survey.Survey, a, b topo.PortRef) []string {
	return []string{s.PortName(a), s.PortName(b)}
}

// limited says that a port is configured for no more than what its link runs at; empty if it is not.
func (j *judgement) limited(r topo.PortRef, rate ib.LinkRate) string {
	pi := &j.s.Port(r).Info
	if w := (pi.LinkWidthEnabled & pi.LinkWidthSupported).Widest(); w != 0 && w.Lanes() <= rate.Width.Lanes() &&
		w.Lanes() < pi.LinkWidthSupported.Widest().Lanes() {
		return fmt.Sprintf("%s has only width %v enabled", j.s.PortName(r), w)
	}
	if e := pi.EnabledSpeed(); e != 0 && e <= rate.Speed && e < pi.SupportedSpeed() {
		return fmt.Sprintf("%s has only speeds up to %v enabled", j.s.PortName(r), e)
	}
	return ""
}

// asymmetric reports a link of which the two ends say different things.
func (j *judgement) asymmetric(s *Section, c *health.Cable) {
	a, b := j.s.Port(c.A.Ref), j.s.Port(c.B.Ref)
	if !a.Linked() || !b.Linked() {
		return
	}
	var differ []string
	say := func(what string, x, y any) {
		if x != y {
			differ = append(differ, fmt.Sprintf("%s %v and %v", what, x, y))
		}
	}
	say("width", a.Info.LinkWidthActive, b.Info.LinkWidthActive)
	say("speed", a.Info.ActiveSpeed(), b.Info.ActiveSpeed())
	if min(a.Info.PortState, b.Info.PortState) == ib.PortActive {
		say("MTU", a.Info.NeighborMTU, b.Info.NeighborMTU)
		say("lanes", a.Info.OperationalVLs, b.Info.OperationalVLs)
	}
	if len(differ) == 0 {
		return
	}
	objects := ends(j.s, c.A.Ref, c.B.Ref)
	s.add(Finding{
		Severity: Fail, Kind: "asymmetric-link", Objects: objects, Measured: strings.Join(objects, " ") +
			": the ends differ: " + strings.Join(differ, ", "),
		Threshold: "the same at both ends",
		Next:      "let the link train anew and the manager sweep; if it stays, update the firmware of the older end",
	})
}

// lost reports ports that have no link but should have, as the plan or their own counters say.
func (j *judgement) lost(s *Section) {
	index := map[ib.GUID]int{}
	for i, n := range j.s.Nodes {
		if !j.duplicateGUID[n.Info.NodeGUID] {
			index[n.Info.NodeGUID] = i
		}
	}
	said := map[topo.PortRef]bool{}
	if g := j.o.Plan; g != nil {
		dead := j.deadSwitches(s, g, index, said)
		for _, c := range g.Cables() {
			if !dead[c.A.Node] && !dead[c.B.Node] {
				j.lostCable(s, g, c, index, said)
			}
		}
	}
	for i, n := range j.s.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			r := topo.PortRef{Node: i, Port: ib.PortNum(p)}
			x := &n.Ports[p]
			if !x.Known || x.Linked() || said[r] {
				continue
			}
			c := j.s.Reading(r).Counters
			name := j.s.PortName(r)
			if downs, pkts := c[ib.LinkDownedCounter], c[ib.PortRcvPkts]; downs > 0 || pkts > 0 {
				j.down[name] = true
				s.add(Finding{
					Severity: Warn, Kind: "link-lost", Objects: []string{name}, Threshold: "a link where there was one",
					Measured: fmt.Sprintf("%s is down (%v) and had a link: it went down %s and had received %s", name,
						x.Info.PortPhysicalState,
						count(int(downs), "time", "times"), count(int(pkts), "packet", "packets")),
					Next: "see what " + name + " was plugged into: a dead device, a pulled cable, or a port " +
						"that was disabled; clear its counters (perfquery -R) if it is meant to be free",
				})
			}
		}
	}
}

// deadSwitches reports switches of the plan that do not answer and whose links are down at every far end that was
// found: one finding each, with who is cut off by it, instead of one for each of its cables.
func (j *judgement) deadSwitches(s *Section, g *topo.Graph, index map[ib.GUID]int, said map[topo.PortRef]bool) (
	dead map[int]bool) {
	dead = map[int]bool{}
	for _, n := range g.Switches() {
		if _, found := index[n.GUID]; found || j.duplicateGUID[n.GUID] {
			continue
		}
		var hosts, down []string
		var ports []topo.PortRef
		up := false
		for p := 1; p < len(n.Ports); p++ {
			if !n.Ports[p].Connected() {
				continue
			}
			far := g.Nodes[n.Ports[p].Peer]
			at := topo.PortRef{Node: far.Index, Port: n.Ports[p].PeerPort}
			if !far.IsSwitch() {
				hosts = append(hosts, far.Name)
			}
			if i, found := index[far.GUID]; found && int(at.Port) < len(j.s.Nodes[i].Ports) {
				at.Node = i
				ports, down = append(ports, at), append(down, j.s.PortName(at))
				up = up || j.s.Port(at).Linked()
			}
		}
		if up || len(ports) == 0 {
			continue
		}
		dead[n.Index] = true
		for i, at := range ports {
			said[at], j.down[down[i]] = true, true
		}
		hosts = slices.Compact(hosts)
		f := Finding{Severity: Fail, Kind: "dead-switch", Objects: append([]string{n.Name}, hosts...),
			Measured: fmt.Sprintf("%s (%v) does not answer, and all its links are down: %s", n.Name, n.GUID,
				few(down)),
			Threshold: "a switch that answers, as planned",
			Next:      "see that " + n.Name + " has power and runs; then its cables",
		}
		if len(hosts) > 0 {
			f.Measured += "; cut off by it: " + few(hosts)
		}
		s.add(f)
	}
	return dead
}

// wiring reports cables that are not where the tree has them that most of the fabric is: swapped, between two leaves,
// in the wrong place, or not there. A fabric that is no tree is not judged.
func (j *judgement) wiring(s *Section) {
	g, err := j.s.Graph()
	if err != nil {
		s.skip("what was found makes no graph: %v", err)
		return
	}
	list, isTree := wiring.Structure(g)
	if !isTree {
		s.skip("the fabric is no fat tree; softib topo check live --plan TOPOLOGY compares it with a plan")
		return
	}
	s.Looked = count(g.NumCables(), "cable", "cables")
	for _, f := range list {
		if f.Severity < wiring.Warning || f.Kind == wiring.Fabric {
			continue
		}
		x := Finding{Severity: Warn, Kind: "wiring-" + strings.ReplaceAll(f.Kind.String(), " ", "-"), Measured: f.Text,
			Threshold: "as most switches of the level are cabled",
			Next:      f.Do + "; softib topo check live shows the whole"}
		lost := false
		for _, w := range append(slices.Clone(f.Wired), f.Wanted...) {
			for _, end := range [2]string{w.A, w.B} {
				if !slices.Contains(x.Objects, end) {
					x.Objects = append(x.Objects, end)
				}
				lost = lost || j.down[end]
			}
		}
		if f.Node != "" {
			x.Objects = append(x.Objects, f.Node)
		}
		if f.Kind == wiring.Missing && lost {
			continue // the cable is there and down, which was said
		}
		s.add(x)
	}
}

// lostCable reports a cable of the plan that is not up: an end that was found says that it has no link.
func (j *judgement) lostCable(s *Section, g *topo.Graph, c topo.Cable, index map[ib.GUID]int,
	said map[topo.PortRef]bool) {
	var states, missing []string
	for _, r := range []topo.PortRef{c.A, c.B} {
		n := g.Nodes[r.Node]
		i, ok := index[n.GUID]
		if !ok {
			if !j.duplicateGUID[n.GUID] {
				missing = append(missing, n.Name+" is not found")
			}
			continue
		}
		at := topo.PortRef{Node: i, Port: r.Port}
		if int(r.Port) >= len(j.s.Nodes[i].Ports) {
			continue
		}
		if x := j.s.Port(at); x.Known && !x.Linked() {
			said[at] = true
			j.down[j.s.PortName(at)] = true
			states = append(states, fmt.Sprintf("%s is %v (%v)", g.PortName(r), x.Info.PortState,
				x.Info.PortPhysicalState))
		}
	}
	if len(states) == 0 {
		return
	}
	a, b := g.PortName(c.A), g.PortName(c.B)
	s.add(Finding{
		Severity: Fail, Kind: "link-down", Objects: []string{a, b},
		Measured:  fmt.Sprintf("%s %s: down: %s", a, b, strings.Join(append(states, missing...), ", ")),
		Threshold: "up, as planned",
		Next: fmt.Sprintf("see that the cable is plugged in at %s and %s, that neither port is disabled, "+
			"and that both devices run", a, b),
	})
}
