package topo

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// Severity tells what can't work from what is only odd.
type Severity uint8

// Severities.
const (
	// Warning is odd, and works.
	Warning Severity = iota
	// Broken keeps some part of the fabric from working.
	Broken
)

func (s Severity) String() string {
	if s == Broken {
		return "broken"
	}
	return "warning"
}

// ProblemKind is what Check found, for callers that act on it.
type ProblemKind uint8

// The kinds, in the order in which Check reports them.
const (
	NoHosts ProblemKind = iota
	NoSwitches
	TooManyLIDs
	Isolated
	Islands
	LoopbackCable
	WidthMismatch
	SpeedMismatch
	SlowLink
	DuplicateLID
	NumProblemKind
)

var problemNames = [NumProblemKind]string{
	"no hosts", "no switches", "too many LIDs", "isolated node", "islands", "loopback cable",
	"width mismatch", "speed mismatch", "slow link", "duplicate LID",
}

func (k ProblemKind) String() string {
	if k < NumProblemKind {
		return problemNames[k]
	}
	return fmt.Sprintf("ProblemKind(%d)", uint8(k))
}

// Problem is one thing that Check found.
type Problem struct {
	Kind     ProblemKind
	Severity Severity
	// At is where; Node is -1 when the whole fabric is meant, and Port 0 the whole node.
	At   PortRef
	Text string
}

func (p Problem) String() string { return fmt.Sprintf("%v: %v: %s", p.Severity, p.Kind, p.Text) }

// Check looks for what is wrong or odd about a fabric. A graph that it has
// nothing to say about answers with nil.
func Check(g *Graph) []Problem {
	var ps []Problem
	whole := func(k ProblemKind, s Severity, format string, v ...any) {
		ps = append(ps, Problem{k, s, PortRef{Node: -1}, fmt.Sprintf(format, v...)})
	}
	if len(g.hosts) == 0 {
		whole(NoHosts, Warning, "the fabric has no host, so nothing can send")
	}
	if len(g.switches) == 0 && !isBackToBack(g) {
		whole(NoSwitches, Broken, "the fabric has no switch, and is not two hosts back to back")
	}
	if need := g.lidsMost(); checkLIDs(need) != nil {
		whole(TooManyLIDs, Broken, "%d LIDs are needed, a subnet has %d", need, int(ib.LIDUnicastMax))
	}
	ps = append(ps, checkIslands(g)...)
	ps = append(ps, checkCables(g)...)
	ps = append(ps, checkSlow(g)...)
	ps = append(ps, checkLIDHints(g)...)
	slices.SortStableFunc(ps, func(a, b Problem) int { return int(a.Kind) - int(b.Kind) })
	return ps
}

// checkIslands finds nodes without cables and parts that can't reach each other.
// Hosts are ends here, as in Distances: one with a port in each of two parts
// doesn't join them. A router does.
func checkIslands(g *Graph) []Problem {
	var ps []Problem
	island := make([]int, len(g.Nodes))
	var members [][]int
	queue := make([]int, 0, len(g.Nodes))
	// Switches first: a host belongs to the island of the switch it hangs off.
	for _, set := range [][]*Node{g.switches, g.hosts, g.routers} {
		for _, start := range set {
			if island[start.Index] != 0 {
				continue
			}
			cables := 0
			for p := 1; p < len(start.Ports); p++ {
				if start.Ports[p].Connected() {
					cables++
				}
			}
			if cables == 0 && len(g.Nodes) > 1 {
				ps = append(ps, Problem{Isolated, Broken, PortRef{Node: start.Index},
					fmt.Sprintf("%s has no cable", start.Name)})
				continue
			}
			members = append(members, nil)
			queue = append(queue[:0], start.Index)
			island[start.Index] = len(members)
			for at := 0; at < len(queue); at++ {
				n := g.Nodes[queue[at]]
				if n != start && n.Type == ib.NodeCA {
					continue
				}
				for p := 1; p < len(n.Ports); p++ {
					if x := &n.Ports[p]; x.Connected() && island[x.Peer] == 0 {
						island[x.Peer] = len(members)
						queue = append(queue, x.Peer)
					}
				}
			}
			members[len(members)-1] = slices.Clone(queue)
		}
	}
	if len(members) < 2 || len(members) == g.Planes {
		return ps
	}
	largest := 0
	for i := range members {
		if len(members[i]) > len(members[largest]) {
			largest = i
		}
	}
	for i, m := range members {
		if i != largest {
			ps = append(ps, Problem{Islands, Broken, PortRef{Node: m[0]},
				fmt.Sprintf("%s %s cut off from the %d nodes around %s", nameSome(g, m), isAre(len(m)),
					len(members[largest]), g.Nodes[members[largest][0]].Name)})
		}
	}
	return ps
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// nameSome names a few nodes and counts the rest.
func nameSome(g *Graph, nodes []int) string {
	const most = 4
	var names []string
	for _, i := range nodes[:min(most, len(nodes))] {
		names = append(names, g.Nodes[i].Name)
	}
	s := strings.Join(names, ", ")
	if more := len(nodes) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// checkCables compares the two ends of each cable.
func checkCables(g *Graph) []Problem {
	var ps []Problem
	for _, c := range g.Cables() {
		x, y := g.Port(c.A), g.Port(c.B)
		if c.A.Node != c.B.Node && x.Width == y.Width && x.Speed == y.Speed {
			continue // as nearly all are: names are for complaints
		}
		a, b := g.PortName(c.A), g.PortName(c.B)
		add := func(k ProblemKind, format string, v ...any) {
			ps = append(ps, Problem{k, Warning, c.A, fmt.Sprintf(format, v...)})
		}
		if c.A.Node == c.B.Node {
			add(LoopbackCable, "%s is cabled to %s, a port of the same node", a, b)
		}
		if x.Width != y.Width {
			add(WidthMismatch, "%s is %v wide, its far end %s %v: the link runs at %v", a, x.Width, b, y.Width,
				g.LinkRate(c.A).Width)
		}
		if x.Speed != y.Speed {
			add(SpeedMismatch, "%s runs at %v, its far end %s at %v: the link runs at %v", a, x.Speed, b, y.Speed,
				g.LinkRate(c.A).Speed)
		}
	}
	return ps
}

// checkSlow finds cables that are slower than more than half of those of their
// kind: between switches, or at a host. A link that trained to one lane looks so.
func checkSlow(g *Graph) []Problem {
	var ps []Problem
	var byKind [2][]Cable
	for _, c := range g.Cables() {
		kind := 0
		if g.Nodes[c.A.Node].IsSwitch() && g.Nodes[c.B.Node].IsSwitch() {
			kind = 1
		}
		byKind[kind] = append(byKind[kind], c)
	}
	for kind, cables := range byKind {
		count := map[ib.LinkRate]int{}
		var usual ib.LinkRate
		for _, c := range cables {
			r := g.LinkRate(c.A)
			if count[r]++; 2*count[r] > len(cables) {
				usual = r
			}
		}
		for _, c := range cables {
			if r := g.LinkRate(c.A); r.Mbps() < usual.Mbps() {
				ps = append(ps, Problem{SlowLink, Warning, c.A,
					fmt.Sprintf("%s to %s runs at %v, %d of %d cables %s run at %v",
						g.PortName(c.A), g.PortName(c.B), r, count[usual], len(cables),
						[2]string{"at hosts", "between switches"}[kind], usual)})
			}
		}
	}
	return ps
}

// checkLIDHints finds LIDs that a dump gives twice, counting the 2^LMC that a
// port owns (IBA 4.1.3).
func checkLIDHints(g *Graph) []Problem {
	var ps []Problem
	owner := map[ib.LID]PortRef{}
	for i, n := range g.Nodes {
		for p := range n.Ports {
			x := &n.Ports[p]
			if x.LID == 0 {
				continue
			}
			at := PortRef{i, ib.PortNum(p)}
			for l := range 1 << min(x.LMC, 7) {
				lid := x.LID + ib.LID(l)
				if other, dup := owner[lid]; dup {
					ps = append(ps, Problem{DuplicateLID, Warning, at,
						fmt.Sprintf("%s has LID %d, as has %s", g.PortName(at), lid, g.PortName(other))})
					break
				}
				owner[lid] = at
			}
		}
	}
	return ps
}
