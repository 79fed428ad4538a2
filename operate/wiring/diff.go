package wiring

import (
	"fmt"

	"softib/proto/topo"
)

// Change is one difference between two fabrics.
type Change struct {
	// Kind is that of a finding with A for a plan: missing is only in A, extra only in B.
	Kind Kind `json:"kind"`
	// Node is the node that a change without cables is about.
	Node string `json:"node,omitempty"`
	// A and B are the cables as each has them.
	A    []Wire `json:"a,omitempty"`
	B    []Wire `json:"b,omitempty"`
	Text string `json:"text"`
}

// Difference is the answer of Diff.
type Difference struct {
	A       string   `json:"a"`
	B       string   `json:"b"`
	Same    bool     `json:"same"`
	Matched Matched  `json:"matched"`
	Changes []Change `json:"changes"`
}

// Diff compares two fabrics as equals: nodes and cables that only one has, cables with other ends, rates, lengths, and
// nodes with other names.
func Diff(a, b *topo.Graph) *Difference {
	m := match(a, b)
	list := m.nodeFindings()
	c := m.compareCables()
	list = append(list, c.cableFindings...)
	list = append(list, m.rateFindings(c, "in A at")...)
	list = append(list, m.lengthFindings(c)...)
	for i := range list {
		list[i].Severity = Warning // the order goes by kind
	}
	sortFindings(list)
	d := &Difference{A: topo.Describe(a), B: topo.Describe(b), Matched: m.Matched, Same: len(list) == 0,
		Changes: []Change{}}
	for _, f := range list {
		x := Change{Kind: f.Kind, Node: f.Node, A: f.Wanted, B: f.Wired, Text: f.Text}
		switch f.Kind {
		case MissingNode:
			n := a.ByName(f.Node)
			x.Text = fmt.Sprintf("only in A: %s %s (%v), %s", typeWord(n), n.Name, n.GUID, whereCabled(a, n, "at"))
		case ExtraNode:
			n := b.ByName(f.Node)
			x.Text = fmt.Sprintf("only in B: %s %s (%v), %s", typeWord(n), n.Name, n.GUID, whereCabled(b, n, "at"))
		case Missing:
			x.Text = fmt.Sprintf("only in A: %v", f.Wanted[0])
		case Extra:
			x.Text = fmt.Sprintf("only in B: %v", f.Wired[0])
		case Swapped:
			x.Text = fmt.Sprintf("A has %v and %v, B %v and %v", f.Wanted[0], f.Wanted[1], f.Wired[0], f.Wired[1])
		case Miswired, WrongPort:
			x.Text = fmt.Sprintf("A has %v, B %v", f.Wanted[0], f.Wired[0])
		}
		d.Changes = append(d.Changes, x)
	}
	m.restate(d)
	return d
}

// restate words rates and names as differences.
func (m *matching) restate(d *Difference) {
	for i := range d.Changes {
		x := &d.Changes[i]
		switch x.Kind {
		case Degraded, Faster:
			x.A = x.B // the same cable, by B's names
		case Renamed:
			n := m.g.ByName(x.Node)
			p := m.plan.Nodes[m.from[n.Index]]
			x.Text = fmt.Sprintf("A has %s (%v), B %s (%v) in its place", p.Name, p.GUID, n.Name, n.GUID)
		}
	}
}

// lengthFindings compares the lengths of cables that both have. A change that most share is one finding.
func (m *matching) lengthFindings(c compared) []Finding {
	type change struct{ a, b int32 }
	count := map[change]int{}
	total := 0
	each := func(do func(w int, x change)) {
		for i, w := range c.matched {
			if w >= 0 {
				l := c.links[i]
				do(w, change{m.plan.Port(topo.PortRef{Node: m.from[l.a.Node], Port: l.a.Port}).LengthMM,
					m.g.Port(c.cab[w].a).LengthMM})
			}
		}
	}
	each(func(_ int, x change) {
		total++
		count[x]++
	})
	var list []Finding
	said := map[change]bool{}
	each(func(w int, x change) {
		if x.a == x.b || said[x] {
			return
		}
		wire := c.wire(c.cab[w].a, c.cab[w].b)
		f := Finding{Kind: Length, at: c.cab[w].a, Wired: []Wire{wire}, Wanted: []Wire{wire},
			Text: fmt.Sprintf("%v is %s long in A, %s in B", wire, metres(x.a), metres(x.b))}
		if count[x] > 2 && 2*count[x] > total {
			said[x] = true
			f.at, f.Wired, f.Wanted = topo.PortRef{Node: -1}, nil, nil
			f.Text = fmt.Sprintf("%d of %d cables are %s long in A, %s in B", count[x], total, metres(x.a), metres(x.b))
		}
		list = append(list, f)
	})
	return list
}
