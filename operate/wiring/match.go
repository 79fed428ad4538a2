package wiring

import (
	"fmt"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
)

// Matched says how the nodes of a plan were found in a fabric.
type Matched struct {
	// Nodes is how many the plan has, and the others how many of them were found by what.
	Nodes       int `json:"nodes"`
	ByGUID      int `json:"by_guid"`
	ByName      int `json:"by_name"`
	ByStructure int `json:"by_structure"`
	// Switches is how many of the nodes are switches, and SwitchesFound how many of these were found.
	Switches      int `json:"switches"`
	SwitchesFound int `json:"switches_found"`
}

// Found is how many were.
func (m Matched) Found() int { return m.ByGUID + m.ByName + m.ByStructure }

// Fits reports whether plan and fabric have enough in common to compare cable by cable: at least half of the switches,
// or of the nodes where there are no switches.
func (m Matched) Fits() bool {
	if m.Switches == 0 {
		return 2*m.Found() >= m.Nodes
	}
	return 2*m.SwitchesFound >= m.Switches
}

func (m Matched) String() string {
	var by []string
	for _, w := range [...]struct {
		n   int
		how string
	}{{m.ByGUID, "GUID"}, {m.ByName, "name"}, {m.ByStructure, "place"}} {
		if w.n > 0 {
			by = append(by, fmt.Sprintf("%d by %s", w.n, w.how))
		}
	}
	if len(by) == 0 {
		return fmt.Sprintf("none of %s", numbered(m.Nodes, "node", "nodes"))
	}
	return fmt.Sprintf("%d of %s, %s", m.Found(), numbered(m.Nodes, "node", "nodes"), strings.Join(by, ", "))
}

// matching is which node of a fabric is which node of the plan.
type matching struct {
	Matched
	plan, g *topo.Graph
	to      []int // by node of the plan; -1 where there is none
	from    []int // by node of the fabric
}

// match finds the nodes of a plan: by GUID, a node's or that of one of its ports; those left by where they are plugged
// in; those left by name, where the name is the device's own and not made up by whoever read the file.
func match(plan, g *topo.Graph) *matching {
	m := &matching{plan: plan, g: g, to: make([]int, len(plan.Nodes)), from: make([]int, len(g.Nodes))}
	for i := range m.to {
		m.to[i] = -1
	}
	for i := range m.from {
		m.from[i] = -1
	}
	for _, p := range plan.Nodes {
		if n := g.ByGUID(p.GUID); n != nil && n.Type == p.Type {
			m.join(p, n, &m.ByGUID)
		}
	}
	for _, p := range plan.Nodes {
		if n := m.byPort(p); m.to[p.Index] < 0 && n != nil {
			m.join(p, n, &m.ByGUID)
		}
	}
	for m.byPlace() {
	}
	for _, p := range plan.Nodes {
		n := g.ByName(p.Name)
		if m.to[p.Index] < 0 && n != nil && m.from[n.Index] < 0 && n.Type == p.Type && hasOwnName(p) && hasOwnName(n) {
			m.join(p, n, &m.ByName)
		}
	}
	for m.byPlace() {
	}
	m.Nodes, m.Switches = len(plan.Nodes), len(plan.Switches())
	return m
}

// byPort is the node that has a port of a planned node: some formats know hosts by their ports alone.
func (m *matching) byPort(p *topo.Node) *topo.Node {
	for num := range p.Ports {
		if !p.Ports[num].Connected() && !p.IsSwitch() {
			continue // whose GUID may be made up
		}
		at, ok := m.g.ByPortGUID(p.Ports[num].GUID)
		if !ok || int(at.Port) != num || m.from[at.Node] >= 0 || m.g.Nodes[at.Node].Type != p.Type {
			continue
		}
		return m.g.Nodes[at.Node]
	}
	return nil
}

// sharesPort reports whether two nodes have a port in common.
func sharesPort(p, n *topo.Node) bool {
	for num := 0; num < min(len(p.Ports), len(n.Ports)); num++ {
		if guid := p.Ports[num].GUID; guid != 0 && guid == n.Ports[num].GUID {
			return true
		}
	}
	return false
}

// hasOwnName reports whether a node's description has its name.
func hasOwnName(n *topo.Node) bool { return strings.Contains(n.Desc, n.Name) }

func (m *matching) join(p, n *topo.Node, by *int) {
	m.to[p.Index], m.from[n.Index] = n.Index, p.Index
	*by++
	if p.IsSwitch() {
		m.SwitchesFound++
	}
}

// byPlace matches nodes that are plugged in where the plan has them: more than half of the planned cables to nodes that
// were found have to lead to one and the same node. It is false when there are none left.
func (m *matching) byPlace() bool {
	found := false
	for _, p := range m.plan.Nodes {
		if m.to[p.Index] >= 0 {
			continue
		}
		votes := map[int]int{}
		total, best := 0, -1
		for num := 1; num < len(p.Ports); num++ {
			at := &p.Ports[num]
			if !at.Connected() || m.to[at.Peer] < 0 {
				continue
			}
			total++
			far := m.g.Port(topo.PortRef{Node: m.to[at.Peer], Port: at.PeerPort})
			if far == nil || !far.Connected() || m.from[far.Peer] >= 0 || m.g.Nodes[far.Peer].Type != p.Type {
				continue
			}
			if votes[far.Peer]++; best < 0 || votes[far.Peer] > votes[best] {
				best = far.Peer
			}
		}
		if best >= 0 && 2*votes[best] > total {
			m.join(p, m.g.Nodes[best], &m.ByStructure)
			found = true
		}
	}
	return found
}

// links are the plan's cables between nodes that were found.
func (m *matching) links() []link {
	var list []link
	for _, c := range m.plan.Cables() {
		a, b := m.to[c.A.Node], m.to[c.B.Node]
		if a >= 0 && b >= 0 {
			list = append(list, link{topo.PortRef{Node: a, Port: c.A.Port}, topo.PortRef{Node: b, Port: c.B.Port},
				m.plan.LinkRate(c.A)})
		}
	}
	return list
}

// compared is what is left after a comparison with a plan.
type compared struct {
	*comparison
	cableFindings []Finding
}

// compareCables compares cable by cable. A cable of a node that the plan doesn't have counts only if it takes a planned
// port.
func (m *matching) compareCables() compared {
	links := m.links()
	planned := make(map[topo.PortRef]bool, 2*len(links))
	for _, l := range links {
		planned[l.a], planned[l.b] = true, true
	}
	var cables []topo.Cable
	for _, c := range m.g.Cables() {
		if m.from[c.A.Node] >= 0 && m.from[c.B.Node] >= 0 || planned[c.A] || planned[c.B] {
			cables = append(cables, c)
		}
	}
	c := newComparison(m.g, links, cables)
	return compared{c, c.run()}
}

// compare is the whole comparison with a plan.
func (m *matching) compare() []Finding {
	list := m.nodeFindings()
	c := m.compareCables()
	list = append(list, c.cableFindings...)
	return append(list, m.rateFindings(c, "the plan says")...)
}

// nodeFindings are nodes that only one has, and such as changed their name or GUID.
func (m *matching) nodeFindings() []Finding {
	var list []Finding
	for _, p := range m.plan.Nodes {
		if m.to[p.Index] < 0 {
			list = append(list, Finding{Kind: MissingNode, Severity: Warning, Node: p.Name,
				at: topo.PortRef{Node: p.Index},
				Text: fmt.Sprintf("%s %s (%v) of the plan is not there; %s", typeWord(p), p.Name, p.GUID,
					whereCabled(m.plan, p, "it would be at")),
				Do: "plug it in and power it on, or take it out of the plan"})
			continue
		}
		n := m.g.Nodes[m.to[p.Index]]
		if n.GUID != p.GUID && m.ByGUID > 0 && !sharesPort(p, n) {
			list = append(list, Finding{Kind: Renamed, Severity: Note, Node: n.Name, at: topo.PortRef{Node: n.Index},
				Text: fmt.Sprintf("%s is where the plan has %s, with GUID %v instead of %v", n.Name, p.Name, n.GUID,
					p.GUID), Do: "nothing, if it was replaced: write the new GUID into the plan"})
		} else if n.Name != p.Name && n.Desc != p.Desc {
			// Else whoever read the files made the names up, in the order that each has.
			list = append(list, Finding{Kind: Renamed, Severity: Note, Node: n.Name, at: topo.PortRef{Node: n.Index},
				Text: fmt.Sprintf("%s is %s in the plan", n.Name, p.Name)})
		}
	}
	for _, n := range m.g.Nodes {
		if m.from[n.Index] < 0 {
			list = append(list, Finding{Kind: ExtraNode, Severity: Warning, Node: n.Name,
				at: topo.PortRef{Node: n.Index},
				Text: fmt.Sprintf("%s %s (%v) is not in the plan; %s", typeWord(n), n.Name, n.GUID,
					whereCabled(m.g, n, "it is at")),
				Do: "take it out, or into the plan"})
		}
	}
	return list
}

var typeWords = [ib.NodeRouter + 1]string{ib.NodeCA: "host", ib.NodeSwitch: "switch", ib.NodeRouter: "router"}

func typeWord(n *topo.Node) string { return typeWords[n.Type] }

// whereCabled says where a node is plugged in: its first cable and how many more.
func whereCabled(g *topo.Graph, n *topo.Node, lead string) string {
	first, more := "", 0
	for p := 1; p < len(n.Ports); p++ {
		at := &n.Ports[p]
		switch {
		case !at.Connected():
		case first == "":
			first = g.PortName(topo.PortRef{Node: at.Peer, Port: at.PeerPort})
		default:
			more++
		}
	}
	switch {
	case first == "":
		return "it has no cable"
	case more > 0:
		return fmt.Sprintf("%s %s and %d more", lead, first, more)
	}
	return lead + " " + first
}

// rateChange is a planned rate and what runs instead.
type rateChange struct{ plan, is ib.LinkRate }

// rateFindings compares the rates of cables that are where they should be; other is who says what else. A change that
// most cables share is one finding.
func (m *matching) rateFindings(c compared, other string) []Finding {
	count := map[rateChange]int{}
	total := 0
	for i, w := range c.matched {
		if w >= 0 {
			total++
			if r := (rateChange{c.links[i].rate, m.g.LinkRate(c.cab[w].a)}); r.plan != r.is {
				count[r]++
			}
		}
	}
	var list []Finding
	said := map[rateChange]bool{}
	for i, w := range c.matched {
		if w < 0 {
			continue
		}
		at := c.cab[w].a
		r := rateChange{c.links[i].rate, m.g.LinkRate(at)}
		if r.plan == r.is || said[r] {
			continue
		}
		f := Finding{Kind: Degraded, Severity: Warning, at: at, Do: degradedAdvice(r.is, r.plan)}
		if r.is.Mbps() >= r.plan.Mbps() {
			f.Kind, f.Severity, f.Do = Faster, Note, ""
		}
		if count[r] > 2 && 2*count[r] > total {
			said[r] = true
			f.at = topo.PortRef{Node: -1}
			f.Text = fmt.Sprintf("%d of %d cables run at %v, %s %v", count[r], total, r.is, other, r.plan)
			if f.Kind == Degraded {
				f.Do = "see whether the plan or the devices are of another generation"
			}
		} else {
			wire := c.wire(c.cab[w].a, c.cab[w].b)
			f.Wired = []Wire{wire}
			f.Text = fmt.Sprintf("%v runs at %v, %s %v", wire, r.is, other, r.plan)
		}
		list = append(list, f)
	}
	return list
}

// compareShapes says how a fabric differs from a plan whose nodes cannot be found in it: level by level.
func (m *matching) compareShapes(x *shape) []Finding {
	whole := topo.PortRef{Node: -1}
	list := []Finding{{Kind: Renamed, Severity: Note, at: whole,
		Text: fmt.Sprintf("the plan's nodes are not found by GUID or name (%v): only numbers are compared, "+
			"and cables with the fabric's own pattern", m.Matched),
		Do: "give both files the same GUIDs or names to have each cable compared"}}
	add := func(what string, plan, is int) {
		f := Finding{Kind: MissingNode, Severity: Warning, at: whole,
			Text: fmt.Sprintf("the plan has %d %s, the fabric %d", plan, what, is)}
		if is > plan {
			f.Kind = ExtraNode
		}
		if is != plan {
			list = append(list, f)
		}
	}
	y := newShape(m.plan)
	planned, _ := m.plan.HostsApart()
	hosts, _ := m.g.HostsApart()
	add("hosts", len(planned), len(hosts))
	if !y.isTree() || !x.isTree() || y.levels != x.levels {
		add("switches", len(m.plan.Switches()), len(m.g.Switches()))
		if y.isTree() != x.isTree() || y.levels != x.levels {
			list = append(list, Finding{Kind: Fabric, Severity: Warning, at: whole,
				Text: fmt.Sprintf("the plan is %s, the fabric %s", y.inWords(), x.inWords())})
		}
		return list
	}
	plan, is := y.describeLevels(), x.describeLevels()
	for l := range plan {
		add(fmt.Sprintf("switches among the %s", y.levelName(l)), plan[l].Switches, is[l].Switches)
		if l+1 < len(plan) && plan[l].Switches == is[l].Switches && plan[l].Up != is[l].Up {
			f := Finding{Kind: Missing, Severity: Warning, at: whole,
				Text: fmt.Sprintf("the plan has %d %s, the fabric %d", plan[l].Up, y.linkName(l), is[l].Up)}
			if is[l].Up > plan[l].Up {
				f.Kind = Extra
			}
			list = append(list, f)
		}
	}
	return list
}

// inWords says what a shape is.
func (x *shape) inWords() string {
	if !x.isTree() {
		return "no fat tree"
	}
	return fmt.Sprintf("a fat tree of %s", numbered(x.levels, "level", "levels"))
}
