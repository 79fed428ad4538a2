package wiring

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Options say what to check a fabric against.
type Options struct {
	// Plan is the fabric as it should be; nil: infer it.
	Plan *topo.Graph
	// Net and Tables are the network and the forwarding tables in force. Without them, tables are computed by Engines,
	// a chain such as "ftree,updn"; without these, nothing is said about routing.
	Net     *route.Network
	Tables  *route.Tables
	Engines string
	// Seed chooses the permutations that judge the tables.
	Seed uint64
}

// Level is one level of a tree, the leaves first.
type Level struct {
	Name     string `json:"name"`
	Switches int    `json:"switches"`
	// Down and Up count cables to the level below (at leaves: to hosts) and above.
	Down int `json:"down"`
	Up   int `json:"up"`
	// DownMbps and UpMbps are what they carry in one direction, and Oversubscription is Down to Up of the level; 0 at
	// the top. Worst is that of the switch that has the most for the least, and WorstAt which it is.
	DownMbps         int64   `json:"down_mbps"`
	UpMbps           int64   `json:"up_mbps"`
	Oversubscription float64 `json:"oversubscription,omitempty"`
	Worst            float64 `json:"worst,omitempty"`
	WorstAt          string  `json:"worst_at,omitempty"`
	// Cut are the switches of the level that have something below and nothing above.
	Cut int `json:"cut_off,omitempty"`
}

// Report is the answer of Check.
type Report struct {
	// Kind is "fat tree", or what the fabric calls itself; NotATree is why it is none.
	Kind     string `json:"kind"`
	IsTree   bool   `json:"is_fat_tree"`
	NotATree string `json:"not_a_fat_tree,omitempty"`
	Describe string `json:"describe"`
	Hosts    int    `json:"hosts"`
	// ServiceNodes are part of switches, and no hosts.
	ServiceNodes int `json:"service_nodes,omitempty"`
	Switches     int `json:"switches"`
	Cables       int `json:"cables"`
	// Planned says that there was a plan, and Matched how its nodes were found.
	Planned bool     `json:"planned"`
	Matched *Matched `json:"matched,omitempty"`
	// PortRules says whether the ports of cables follow a rule that the findings could use; without a plan only.
	PortRules bool       `json:"port_rules"`
	Levels    []Level    `json:"levels,omitempty"`
	Bisection *Bisection `json:"bisection,omitempty"`
	Findings  []Finding  `json:"findings"`
	OK        bool       `json:"ok"`
}

// Count is how many findings have a severity.
func (r *Report) Count(s Severity) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// Check judges the wiring of a fabric.
func Check(g *topo.Graph, o Options) *Report {
	x := newShape(g)
	hosts, service := g.HostsApart()
	r := &Report{Hosts: len(hosts), ServiceNodes: len(service), Switches: len(g.Switches()), Cables: g.NumCables(),
		Describe: topo.Describe(g), Planned: o.Plan != nil}
	r.Findings = fabricFindings(g)
	var p *pattern
	if x.isTree() {
		p = findPattern(x)
	}
	switch {
	case o.Plan != nil:
		m := match(o.Plan, g)
		r.Matched = &m.Matched
		if m.Fits() {
			r.Findings = append(r.Findings, m.compare()...)
			break
		}
		r.Findings = append(r.Findings, m.compareShapes(x)...)
		fallthrough
	default:
		if x.isTree() {
			list, rules := p.check()
			r.Findings, r.PortRules = append(r.Findings, list...), rules
		}
		r.Findings = append(r.Findings, checkRates(x)...)
		r.Findings = append(r.Findings, checkEnds(x)...)
		placeLonely(x, r.Findings)
	}
	r.Findings = dropSaid(r.Findings)
	r.IsTree, r.NotATree, r.Kind = x.isTree(), x.why, g.Kind
	if r.IsTree {
		r.Kind = "fat tree"
		r.Levels = x.describeLevels()
	} else if r.Kind == "" || r.Kind == "fat tree" {
		r.Kind = "fabric"
	}
	r.Bisection = bisect(x)
	r.judgeRoutes(g, o)
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	sortFindings(r.Findings)
	r.OK = r.Count(Note) == len(r.Findings)
	return r
}

// Structure is the part of Check that structure alone shows: cables of a tree that are not where its brothers have
// theirs. It is empty for a fabric that is no tree.
func Structure(g *topo.Graph) (findings []Finding, isTree bool) {
	x := newShape(g)
	if !x.isTree() {
		return nil, false
	}
	list, _ := findPattern(x).check()
	list = append(list, checkEnds(x)...)
	placeLonely(x, list)
	list = dropSaid(list)
	sortFindings(list)
	return list, true
}

// fabricFindings are the faults of the whole that topo.Check knows; what it says about single cables is said better
// here.
func fabricFindings(g *topo.Graph) []Finding {
	var list []Finding
	for _, p := range topo.Check(g) {
		switch p.Kind {
		case topo.LoopbackCable, topo.WidthMismatch, topo.SpeedMismatch, topo.SlowLink:
			continue
		}
		f := Finding{Kind: Fabric, Severity: Warning, Text: p.Text, at: p.At}
		if p.Severity == topo.Broken {
			f.Severity = Broken
		}
		if p.At.Node >= 0 {
			f.Node = g.Nodes[p.At.Node].Name
		}
		switch p.Kind {
		case topo.Isolated:
			f.isolated = true
			f.Do = "plug it in, or take it out of the fabric"
		case topo.Islands:
			f.Do = "look for the cables between the two parts"
		case topo.DuplicateLID:
			f.Do = "have the subnet manager assign LIDs anew"
		case topo.TooManyLIDs:
			f.Do = "split the fabric into subnets"
		}
		list = append(list, f)
	}
	return list
}

// check compares the fabric with its own pattern. Ports count only if the rules hold for most cables; rules reports
// that.
func (p *pattern) check() (list []Finding, rules bool) {
	x := p.x
	g := x.g
	var cables []topo.Cable
	for _, c := range g.Cables() {
		a, b := c.A, c.B
		if x.nodeLevel(a.Node) != endLevel {
			a, b = b, a
		}
		// A host at a leaf is where it should be.
		if x.nodeLevel(a.Node) == endLevel && x.number[b.Node] >= 0 &&
			(x.nodeLevel(b.Node) == 0 || topo.IsPart(g.Nodes[a.Node], g.Nodes[b.Node])) {
			continue
		}
		cables = append(cables, c)
	}
	c := newComparison(g, p.links, cables)
	right := 0
	for _, l := range p.links {
		if at := g.Port(l.a); l.a.Port != 0 && l.b.Port != 0 && at.Peer == l.b.Node && at.PeerPort == l.b.Port {
			right++
		}
	}
	rules = len(p.links) > 0 && float64(right) >= explainedMin*float64(len(p.links))
	if !rules {
		for i := range c.links {
			c.links[i].a.Port, c.links[i].b.Port = 0, 0
		}
		clear(c.linkAt)
	}
	c.portSeverity = Note
	c.strayEnd = func(at topo.PortRef) bool { return x.number[at.Node] < 0 }
	c.free = func(at topo.PortRef) bool { return x.number[at.Node] >= 0 && x.nodeLevel(at.Node) == 0 && !c.named(at) }
	list = c.run()
	for i := range list {
		p.explain(c, &list[i])
	}
	return list, rules
}

// explain says better what an inferred finding is about, where the ends are nodes that don't go together at all.
func (p *pattern) explain(c *comparison, f *Finding) {
	x := p.x
	if f.Kind == Extra && len(f.Wired) == 1 {
		w := c.cab[c.cableAt[f.at]]
		a, b := w.a, w.b
		la, lb := x.nodeLevel(a.Node), x.nodeLevel(b.Node)
		switch {
		case a.Node == b.Node:
			f.Text = fmt.Sprintf("%v joins two ports of one switch", f.Wired[0])
		case la == endLevel && lb == endLevel:
			f.Text = fmt.Sprintf("%v joins two hosts", f.Wired[0])
		case la == endLevel || lb == endLevel:
			f.Text = fmt.Sprintf("%v is a host's cable at a switch above the leaves", f.Wired[0])
			f.Do = "move it to a free port of a leaf, unless that is on purpose"
		case la == lb:
			f.Text = fmt.Sprintf("%v joins two switches of one level (%s)", f.Wired[0], x.levelName(la))
		case la-lb != 1 && lb-la != 1:
			f.Text = fmt.Sprintf("%v skips a level", f.Wired[0])
		default:
			f.Text = fmt.Sprintf("%v is one more than the pattern has between these two", f.Wired[0])
		}
	}
}

// placeLonely says where the cable of a host without one belongs, if there is one such host and one hole: a free port
// of a leaf that has too few hosts, where most leaves have one.
func placeLonely(x *shape, list []Finding) {
	lonely := -1
	for i, f := range list {
		if f.isolated && x.g.Nodes[f.at.Node].Type == ib.NodeCA {
			if lonely >= 0 {
				return
			}
			lonely = i
		}
	}
	hole, ok := onlyHole(x)
	if lonely < 0 || !ok {
		return
	}
	f := &list[lonely]
	f.at, f.to = topo.PortRef{Node: f.at.Node, Port: 1}, hole
	w := Wire{x.g.PortName(f.at), x.g.PortName(f.to)}
	f.Kind, f.Wanted, f.isolated = Missing, []Wire{w}, false
	f.Text = fmt.Sprintf("%s has no cable, and %s none where most leaves have a host", f.Node, w.B)
	f.Do = fmt.Sprintf("plug in a cable %v, or see why the link is down", w)
}

// onlyHole is the one free port among leaves where more than half of the leaves have a host.
func onlyHole(x *shape) (topo.PortRef, bool) {
	var hosts []int
	leaves := 0
	each := func(do func(n *topo.Node, p int)) {
		for s, n := range x.g.Switches() {
			for p := 1; p < len(n.Ports) && x.level[s] == 0; p++ {
				do(n, p)
			}
		}
	}
	for s := range x.level {
		if x.level[s] == 0 {
			leaves++
		}
	}
	each(func(n *topo.Node, p int) {
		for len(hosts) <= p {
			hosts = append(hosts, 0)
		}
		if at := &n.Ports[p]; at.Connected() && x.number[at.Peer] < 0 {
			hosts[p]++
		}
	})
	var hole topo.PortRef
	holes := 0
	each(func(n *topo.Node, p int) {
		if !n.Ports[p].Connected() && 2*hosts[p] > leaves {
			hole = topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			holes++
		}
	})
	return hole, holes == 1
}

// dropSaid leaves out that a node has no cable where a missing cable of it is listed.
func dropSaid(list []Finding) []Finding {
	said := map[string]bool{}
	for _, f := range list {
		if f.Kind == Missing {
			for _, w := range f.Wanted {
				said[nodeOf(w.A)], said[nodeOf(w.B)] = true, true
			}
		}
	}
	return slices.DeleteFunc(list, func(f Finding) bool { return f.Kind == Fabric && f.isolated && said[f.Node] })
}

// nodeOf is the node of a port's name.
func nodeOf(port string) string {
	name, _, _ := strings.Cut(port, "[")
	return name
}

// checkEnds finds leaves with more or fewer hosts than most, and hosts that a hole awaits.
func checkEnds(x *shape) []Finding {
	if !x.isTree() || x.levels < 2 {
		return nil
	}
	var count tally
	for s := range x.out {
		if x.level[s] == 0 && x.ends[s] > 0 {
			count.add(x.ends[s])
		}
	}
	usual, share := count.most()
	if share < agreeCount || count.total < 3 {
		return nil
	}
	var list []Finding
	var lack []string
	for s := range x.out {
		if x.level[s] == 0 && x.ends[s] < usual {
			lack = append(lack, x.name(int32(s)))
		}
	}
	for s := range x.out {
		if x.level[s] != 0 || x.ends[s] == usual {
			continue
		}
		n := x.g.Switches()[s]
		f := Finding{Kind: Uneven, Severity: Note, Node: n.Name, at: topo.PortRef{Node: n.Index},
			Text: fmt.Sprintf("%s has %s, most leaves have %d", n.Name, numbered(x.ends[s], "host", "hosts"), usual)}
		if x.ends[s] < usual {
			f.Do = "look whether hosts are down or missing"
		} else {
			f.Severity = Warning
			f.Do = "nothing, if that is on purpose"
			if len(lack) > 0 {
				f.Do = fmt.Sprintf("move %s to a leaf that has fewer, such as %s",
					numbered(x.ends[s]-usual, "host", "hosts"), lack[0])
			}
		}
		list = append(list, f)
	}
	return list
}

// describeLevels sums up each level of a tree.
func (x *shape) describeLevels() []Level {
	list := make([]Level, x.levels)
	for l := range list {
		list[l].Name = x.levelName(l)
	}
	for s := range x.out {
		if x.level[s] < 0 {
			continue
		}
		at := &list[x.level[s]]
		at.Switches++
		n := x.g.Switches()[s]
		var down, up int64
		for p := 1; p < len(n.Ports); p++ {
			port := &n.Ports[p]
			if !port.Connected() {
				continue
			}
			mbps := x.g.LinkRate(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}).Mbps()
			far := x.nodeLevel(port.Peer)
			switch {
			case far == endLevel && topo.IsPart(x.g.Nodes[port.Peer], n):
			case far == x.level[s]-1:
				at.Down++
				down += mbps
			case far == x.level[s]+1:
				at.Up++
				up += mbps
			}
		}
		at.DownMbps += down
		at.UpMbps += up
		if x.level[s] == x.levels-1 || down == 0 {
			continue
		}
		if up == 0 {
			at.Cut++
			continue
		}
		if ratio := float64(down) / float64(up); ratio > at.Worst {
			at.Worst, at.WorstAt = ratio, n.Name
		}
	}
	for l := range list[:x.levels-1] {
		if list[l].UpMbps > 0 {
			list[l].Oversubscription = float64(list[l].DownMbps) / float64(list[l].UpMbps)
		}
	}
	return list
}

// judgeRoutes adds what forwarding tables leave of the bisection.
func (r *Report) judgeRoutes(g *topo.Graph, o Options) {
	b := r.Bisection
	if b == nil || len(g.Switches()) == 0 || o.Tables == nil && o.Engines == "" {
		return
	}
	n, t := o.Net, o.Tables
	if t == nil || n == nil {
		n = route.FromGraph(g)
		res, err := route.Compute(n, o.Engines, route.Options{})
		if err != nil {
			b.RoutedBad = err.Error()
			return
		}
		t = res.Tables
	}
	judged := route.Judge(n, t, route.JudgeOptions{Seed: o.Seed})
	b.Engine = t.Engine
	if !math.IsNaN(judged.Bisection) {
		b.Routed, b.Shift = &judged.Bisection, &judged.Shift.Bandwidth
	}
	switch {
	case judged.Looping > 0:
		b.RoutedBad = "packets go round in a loop"
	case judged.Unreached > 0:
		b.RoutedBad = fmt.Sprintf("%d of %d pairs are not reached", judged.Unreached, judged.Pairs)
	case judged.Cycle != nil:
		b.RoutedBad = "packets can wait for each other in a circle"
	}
}
