package place

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"softib/proto/topo"
)

// What can be wrong with a placement; match with errors.Is.
var (
	ErrRule       = errors.New("unknown rule")
	ErrNoMachine  = errors.New("no machine")
	ErrMachine    = errors.New("unknown machine")
	ErrName       = errors.New("not a machine's name")
	ErrUnplaced   = errors.New("a node has no machine")
	ErrNoNode     = errors.New("no such node")
	ErrSyntax     = errors.New("syntax error")
	ErrOverlapped = errors.New("two machines for one node")
)

// Placement is the machine of each node, by the node's name.
type Placement map[string]string

// Kind is how a rule decides.
type Kind uint8

// Kinds of rule.
const (
	Leaf   Kind = iota // a leaf switch and its hosts stay together
	Spread             // every node by itself, evenly
	One                // all on one machine
	NumKind
)

var kindNames = [NumKind]string{"leaf", "spread", "machine"}

func (k Kind) String() string {
	if k < NumKind {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Rule decides where nodes go that are not on record. The zero value is Leaf.
type Rule struct {
	Kind    Kind
	Machine string // of One
}

func (r Rule) String() string {
	if r.Kind == One {
		return "machine=" + r.Machine
	}
	return r.Kind.String()
}

// ParseRule reads "leaf", "spread" or "machine=NAME".
func ParseRule(s string) (Rule, error) {
	word, name, named := strings.Cut(s, "=")
	i := slices.Index(kindNames[:], word)
	if i < 0 || named != (Kind(i) == One) {
		return Rule{}, fmt.Errorf("place: %w: %q: want leaf, spread or machine=NAME", ErrRule, s)
	}
	if named {
		if err := CheckMachine(name); err != nil {
			return Rule{}, err
		}
	}
	return Rule{Kind(i), name}, nil
}

// machineMax is how long a machine's name may be: a label of a host's name (RFC 1035 2.3.4).
const machineMax = 63

// CheckMachine refuses what is no name of a machine: letters, digits, dots, underscores and hyphens, a letter or a
// digit in front. A name is part of keys and stands in files, so it has no blanks, slashes or wildcards.
func CheckMachine(name string) error {
	ok := name != "" && len(name) <= machineMax && !strings.ContainsRune("-._", rune(name[0]))
	for _, c := range []byte(name) {
		ok = ok && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '-' || c == '.' || c == '_')
	}
	if !ok {
		return fmt.Errorf("place: %w: %q: want 1 to %d letters, digits, dots, underscores or hyphens, "+
			"a letter or digit first", ErrName, name, machineMax)
	}
	return nil
}

// Do places every node of g on one of the machines. Nodes that the record places stay, even on a machine that is not
// among those given: it may come back, and what it had is nobody else's until the record says so.
func Do(g *topo.Graph, machines []string, rule Rule, record Placement) (Placement, error) {
	names := slices.Clone(machines)
	for _, m := range names {
		if err := CheckMachine(m); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(names, Natural)
	names = slices.Compact(names)
	d := &dealer{g: g, machines: names, at: make([]int32, len(g.Nodes)), p: make(Placement, len(g.Nodes))}
	index := make(map[string]int32, len(names))
	for i, m := range names {
		index[m] = int32(i)
	}
	left := 0
	for i, n := range g.Nodes {
		d.at[i] = nowhere
		m, on := record[n.Name]
		if !on {
			left++
			continue
		}
		d.p[n.Name] = m
		d.at[i] = elsewhere
		if k, here := index[m]; here {
			d.at[i] = k
		}
	}
	if left == 0 {
		return d.p, nil
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("place: %w to place %d nodes on", ErrNoMachine, left)
	}
	switch rule.Kind {
	case Leaf:
		d.byLeaf()
	case Spread:
		d.spread(g.Hosts())
		d.spread(g.Switches())
		d.spread(g.Routers())
	case One:
		k, here := index[rule.Machine]
		if !here {
			return nil, fmt.Errorf("place: %w: %v, and the machines are %s", ErrMachine, rule,
				strings.Join(names, ", "))
		}
		for i := range g.Nodes {
			d.put(i, k)
		}
	default:
		return nil, fmt.Errorf("place: %w: %v", ErrRule, rule)
	}
	return d.p, nil
}

// Where a node is that is on none of the machines: not placed yet, or on one that is not here.
const (
	nowhere   = -1
	elsewhere = -2
)

type dealer struct {
	g        *topo.Graph
	machines []string
	at       []int32 // by node
	p        Placement
}

// put places a node that has no place.
func (d *dealer) put(node int, machine int32) {
	if d.at[node] == nowhere {
		d.at[node] = machine
		d.p[d.g.Nodes[node].Name] = d.machines[machine]
	}
}

// loads counts what each machine has of some nodes.
func (d *dealer) loads(of []*topo.Node) []int {
	load := make([]int, len(d.machines))
	for _, n := range of {
		if k := d.at[n.Index]; k >= 0 {
			load[k]++
		}
	}
	return load
}

// spread deals nodes out one by one, each to who has the fewest.
func (d *dealer) spread(nodes []*topo.Node) {
	load := d.loads(nodes)
	for _, n := range nodes {
		if d.at[n.Index] == nowhere {
			k := least(load)
			load[k]++
			d.put(n.Index, int32(k))
		}
	}
}

func least(load []int) (k int) {
	for i, n := range load {
		if n < load[k] {
			k = i
		}
	}
	return k
}

// byLeaf keeps hosts with their leaf switch, deals leafs out in order, and places what is above by what is below.
func (d *dealer) byLeaf() {
	level, levels := d.levels()
	// A host goes with the switch at its first cable, wherever that is or will be.
	leafOf := make([]int, len(d.g.Nodes))
	var leafs []*topo.Node
	for _, h := range d.g.Hosts() {
		leafOf[h.Index] = nowhere
		for p := 1; p < len(h.Ports); p++ {
			if x := &h.Ports[p]; x.Connected() && d.g.Nodes[x.Peer].IsSwitch() {
				leafOf[h.Index] = x.Peer
				break
			}
		}
	}
	for _, s := range d.g.Switches() {
		if level[s.Index] == 0 {
			leafs = append(leafs, s)
		}
	}
	d.deal(leafs)
	for _, h := range d.g.Hosts() {
		if l := leafOf[h.Index]; l >= 0 && d.at[l] >= 0 {
			d.put(h.Index, d.at[l])
		}
	}
	for l := 1; l < levels; l++ {
		var here []*topo.Node
		for _, s := range d.g.Switches() {
			if level[s.Index] == l {
				here = append(here, s)
			}
		}
		d.above(here, level)
	}
	// What no leaf leads to: hosts at a machine that has left, or without a cable, and routers.
	d.spread(d.g.Hosts())
	d.spread(d.g.Switches())
	d.spread(d.g.Routers())
}

// levels says how far each switch is from the next one with a host; nowhere if there is none.
func (d *dealer) levels() (level []int, count int) {
	level = make([]int, len(d.g.Nodes))
	var queue []int
	for i, n := range d.g.Nodes {
		level[i] = nowhere
		if n.IsSwitch() && slices.ContainsFunc(n.Ports[1:], func(x topo.Port) bool {
			return x.Connected() && !d.g.Nodes[x.Peer].IsSwitch()
		}) {
			level[i] = 0
			queue = append(queue, i)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		i := queue[0]
		count = level[i] + 1
		for _, x := range d.g.Nodes[i].Ports[1:] {
			if x.Connected() && d.g.Nodes[x.Peer].IsSwitch() && level[x.Peer] == nowhere {
				level[x.Peer] = level[i] + 1
				queue = append(queue, x.Peer)
			}
		}
	}
	return level, count
}

// deal hands nodes out in order, neighbours to one machine, so that in the end all machines have as many as they can.
func (d *dealer) deal(nodes []*topo.Node) {
	load := d.loads(nodes)
	var free []*topo.Node
	for _, n := range nodes {
		if d.at[n.Index] == nowhere {
			free = append(free, n)
		}
	}
	share := make([]int, len(load))
	for range free {
		k := least(load)
		load[k]++
		share[k]++
	}
	k := 0
	for _, n := range free {
		for share[k] == 0 {
			k++
		}
		share[k]--
		d.put(n.Index, int32(k))
	}
}

// above places switches of one level: where more than half of the cables to the level below lead to one machine, as
// within a pod, there; else evenly, as spines.
func (d *dealer) above(nodes []*topo.Node, level []int) {
	var rest []*topo.Node
	for _, s := range nodes {
		votes, all := make([]int, len(d.machines)), 0
		for _, x := range s.Ports[1:] {
			if x.Connected() && level[x.Peer] == level[s.Index]-1 {
				all++
				if k := d.at[x.Peer]; k >= 0 {
					votes[k]++
				}
			}
		}
		best := 0
		for k, v := range votes {
			if v > votes[best] {
				best = k
			}
		}
		if 2*votes[best] > all {
			d.put(s.Index, int32(best))
		} else {
			rest = append(rest, s)
		}
	}
	d.spread(rest)
}

// Figures are what a placement costs.
type Figures struct {
	Machines []MachineFigures // in the order of their names
	// Cables counts those of the fabric, Crossing those whose ends are on two machines.
	Cables, Crossing int
}

// MachineFigures is one machine's part.
type MachineFigures struct {
	Name            string
	Hosts, Switches int
	// Crossing counts its cables to other machines.
	Crossing int
}

// Figures counts. Nodes without a machine are left out.
func (p Placement) Figures(g *topo.Graph) Figures {
	by := map[string]*MachineFigures{}
	for _, n := range g.Nodes {
		m, ok := p[n.Name]
		if !ok {
			continue
		}
		f := by[m]
		if f == nil {
			f = &MachineFigures{Name: m}
			by[m] = f
		}
		if n.IsSwitch() {
			f.Switches++
		} else {
			f.Hosts++
		}
	}
	out := Figures{Cables: g.NumCables()}
	for _, c := range g.Cables() {
		a, b := p[g.Nodes[c.A.Node].Name], p[g.Nodes[c.B.Node].Name]
		if a != b && a != "" && b != "" {
			out.Crossing++
			by[a].Crossing++
			by[b].Crossing++
		}
	}
	for _, f := range by { // tidy: order-free
		out.Machines = append(out.Machines, *f)
	}
	slices.SortFunc(out.Machines, func(a, b MachineFigures) int { return Natural(a.Name, b.Name) })
	return out
}

// Natural orders names as people count: m2 before m10.
func Natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if isDigit(x[0]) && isDigit(y[0]) {
			i, j := digits(x), digits(y)
			m, n := strings.TrimLeft(x[:i], "0"), strings.TrimLeft(y[:j], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n)); c != 0 {
				return c
			}
			x, y = x[i:], y[j:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// digits counts those in front.
func digits(s string) (n int) {
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}
