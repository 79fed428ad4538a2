package wiring

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// renamed is a fabric with other GUIDs and other names.
func renamed(t testing.TB, g *topo.Graph, guid func(*topo.Node) ib.GUID, name func(*topo.Node) string,
	desc func(*topo.Node) string) *topo.Graph {
	t.Helper()
	w := &topo.Graph{Kind: g.Kind}
	for _, n := range g.Nodes {
		x := *n
		x.GUID, x.SystemGUID, x.Name, x.Desc = guid(n), 0, name(n), desc(n)
		if _, err := w.Add(x, n.NumPorts()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range g.Cables() {
		if err := w.Connect(c.A.Node, c.A.Port, c.B.Node, c.B.Port, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func sameGUID(n *topo.Node) ib.GUID  { return n.GUID }
func otherGUID(n *topo.Node) ib.GUID { return n.GUID + 1<<40 }
func sameName(n *topo.Node) string   { return n.Name }
func otherName(n *topo.Node) string  { return "x" + n.Name }

func pull(t testing.TB, g *topo.Graph, node string, port int) {
	t.Helper()
	if err := g.Disconnect(g.ByName(node).Index, ib.PortNum(port)); err != nil {
		t.Fatal(err)
	}
}

func TestNodesAreFound(t *testing.T) {
	plan := gen(t, "fat-tree:radix=8,levels=2")
	for _, c := range []struct {
		name  string
		g     *topo.Graph
		words string
	}{
		{"GUID", renamed(t, plan, sameGUID, otherName, otherName), "44 of 44 nodes, 44 by GUID"},
		{"name", renamed(t, plan, otherGUID, sameName, sameName), "44 of 44 nodes, 44 by name"},
		{"place", renamed(t, plan, func(n *topo.Node) ib.GUID {
			if n.IsSwitch() {
				return n.GUID
			}
			return otherGUID(n)
		}, otherName, otherName), "44 of 44 nodes, 12 by GUID, 32 by place"},
		{"switches by place", renamed(t, plan, func(n *topo.Node) ib.GUID {
			if isSpine(n) {
				return otherGUID(n)
			}
			return n.GUID
		}, otherName, otherName), "44 of 44 nodes, 40 by GUID, 4 by place"},
		{"names that are made up mean nothing", renamed(t, plan, otherGUID, sameName,
			func(*topo.Node) string { return "" }), "none of 44 nodes"},
	} {
		pull(t, c.g, nameIn(c.g, "leaf3"), 6)
		r := Check(c.g, Options{Plan: plan})
		if r.Matched.String() != c.words {
			t.Errorf("%s: %v, want %s", c.name, r.Matched, c.words)
		}
		leaf, spine := nameIn(c.g, "leaf3"), nameIn(c.g, "spine2")
		w := warnings(r)
		if !r.Matched.Fits() {
			// The number of cables differs, and the fabric's own pattern says which.
			if len(w) != 2 || w[0].Text != "the plan has 32 cables between leaves and roots, the fabric 31" ||
				w[1].Wanted[0] != (Wire{leaf + "[6]", spine + "[3]"}) {
				t.Errorf("%s: %v", c.name, r.Findings)
			}
			continue
		}
		if len(w) != 1 || w[0].Kind != Missing || w[0].Wanted[0] != (Wire{leaf + "[6]", spine + "[3]"}) {
			t.Errorf("%s: %v", c.name, r.Findings)
		}
	}
}

// TestPlaceBeforeName: of nodes with other GUIDs, two that have exchanged names are where they are plugged in. Their
// names are what differs, and no cable does.
func TestPlaceBeforeName(t *testing.T) {
	a := gen(t, "fat-tree:radix=8,levels=2")
	for _, c := range []struct {
		name    string
		foreign func(n *topo.Node) bool
		x, y    string
		words   string
	}{
		{"adapters", func(n *topo.Node) bool { return !n.IsSwitch() }, "h5", "h9",
			"44 of 44 nodes, 12 by GUID, 32 by place"},
		{"switches", isSpine, "spine1", "spine3", "44 of 44 nodes, 40 by GUID, 4 by place"},
		{"all but one leaf", func(n *topo.Node) bool { return n.Name != "leaf1" }, "leaf2", "leaf3",
			"44 of 44 nodes, 1 by GUID, 43 by place"},
	} {
		exchanged := func(n *topo.Node) string {
			switch n.Name {
			case c.x:
				return c.y
			case c.y:
				return c.x
			}
			return n.Name
		}
		b := renamed(t, a, func(n *topo.Node) ib.GUID {
			if c.foreign(n) {
				return otherGUID(n)
			}
			return n.GUID
		}, exchanged, exchanged)
		d := Diff(a, b)
		var names []string
		for _, x := range d.Changes {
			if x.Kind != Renamed {
				t.Errorf("%s: %v %s", c.name, x.Kind, x.Text)
				continue
			}
			if a.ByName(x.Node).GUID == a.ByName(c.x).GUID || a.ByName(x.Node).GUID == a.ByName(c.y).GUID {
				names = append(names, x.Text)
			}
		}
		want := []string{
			fmt.Sprintf("A has %s (%v), B %s (%v) in its place", c.x, a.ByName(c.x).GUID, c.y, b.ByName(c.y).GUID),
			fmt.Sprintf("A has %s (%v), B %s (%v) in its place", c.y, a.ByName(c.y).GUID, c.x, b.ByName(c.x).GUID)}
		if d.Matched.String() != c.words || !slices.Equal(names, want) {
			t.Errorf("%s: %v, %q, want %q", c.name, d.Matched, names, want)
		}
	}
}

// nameIn is a node's name in a fabric that may have other names.
func nameIn(g *topo.Graph, name string) string {
	if g.ByName(name) != nil {
		return name
	}
	return "x" + name
}

func TestNodesThatOneLacks(t *testing.T) {
	plan := gen(t, "fat-tree:radix=8,levels=2,hosts=30")
	more := gen(t, "fat-tree:radix=8,levels=2")
	r := Check(more, Options{Plan: plan})
	w := warnings(r)
	if len(w) != 2 || w[0].Kind != ExtraNode || w[0].Node != "h31" ||
		!strings.Contains(w[0].Text, "it is at leaf8[3]") || r.OK {
		t.Errorf("%v", r.Findings)
	}
	r = Check(plan, Options{Plan: more})
	w = warnings(r)
	if len(w) != 2 || w[0].Kind != MissingNode || w[0].Node != "h31" ||
		!strings.Contains(w[0].Text, "it would be at leaf8[3]") {
		t.Errorf("%v", r.Findings)
	}
}

func TestAReplacedSwitchIsANote(t *testing.T) {
	plan := gen(t, "fat-tree:radix=8,levels=2")
	g := renamed(t, plan, func(n *topo.Node) ib.GUID {
		if n.Name == "leaf3" {
			return otherGUID(n)
		}
		return n.GUID
	}, sameName, sameName)
	r := Check(g, Options{Plan: plan})
	if !r.OK || len(r.Findings) != 1 || r.Findings[0].Kind != Renamed || r.Findings[0].Node != "leaf3" {
		t.Errorf("%v", r.Findings)
	}
}

func TestAnotherGenerationIsOneFinding(t *testing.T) {
	r := Check(gen(t, "fat-tree:radix=8,levels=2,speed=HDR"), Options{Plan: gen(t, "fat-tree:radix=8,levels=2")})
	if len(r.Findings) != 1 || r.Findings[0].Text != "64 of 64 cables run at 4x HDR, the plan says 4x NDR" || r.OK {
		t.Errorf("%v", r.Findings)
	}
	r = Check(gen(t, "fat-tree:radix=8,levels=2,speed=XDR"), Options{Plan: gen(t, "fat-tree:radix=8,levels=2")})
	if len(r.Findings) != 1 || r.Findings[0].Kind != Faster || !r.OK {
		t.Errorf("%v", r.Findings)
	}
}

func TestAnotherShape(t *testing.T) {
	plan := gen(t, "fat-tree:radix=8,levels=3")
	g := renamed(t, gen(t, "fat-tree:radix=8,levels=2"), otherGUID, otherName, otherName)
	r := Check(g, Options{Plan: plan})
	var words []string
	for _, f := range r.Findings {
		words = append(words, f.Text)
	}
	for _, want := range []string{"the plan is a fat tree of 3 levels, the fabric a fat tree of 2 levels",
		"the plan has 128 hosts, the fabric 32", "the plan has 80 switches, the fabric 12"} {
		if !slices.Contains(words, want) {
			t.Errorf("lacks %q: %q", want, words)
		}
	}
	plan = gen(t, "torus:3x3")
	if r := Check(g, Options{Plan: plan}); !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Text == "the plan is no fat tree, the fabric a fat tree of 2 levels"
	}) {
		t.Errorf("%v", r.Findings)
	}
}

func TestDiff(t *testing.T) {
	a := gen(t, "fat-tree:radix=8,levels=2")
	if d := Diff(a, a.Clone()); !d.Same || len(d.Changes) != 0 {
		t.Errorf("with itself: %+v", d)
	}
	b := a.Clone()
	p := &planter{t: t, r: newRand(1), g: b, used: map[topo.PortRef]bool{}, pairs: map[[2]int]bool{}}
	at := func(node string, port int) topo.PortRef {
		return topo.PortRef{Node: b.ByName(node).Index, Port: ib.PortNum(port)}
	}
	p.swap(at("leaf1", 5), at("spine1", 1), at("leaf2", 6), at("spine2", 2)) // leaf1[5] spine1[1], leaf2[6] spine2[2]
	pull(t, b, "leaf3", 7)
	b.Port(at("leaf4", 8)).Speed, b.Port(at("spine4", 4)).Speed = ib.EDR, ib.EDR
	b.Port(at("leaf5", 8)).LengthMM, b.Port(at("spine4", 5)).LengthMM = 3000, 3000
	want := []string{
		"missing only in A: leaf3[7] spine3[3]",
		"swapped A has leaf1[5] spine1[1] and leaf2[6] spine2[2], B leaf1[5] spine2[2] and leaf2[6] spine1[1]",
		"degraded leaf4[8] spine4[4] runs at 4x EDR, in A at 4x NDR",
		"length leaf5[8] spine4[5] is 2 m long in A, 3 m in B",
	}
	check := func(d *Difference, want []string) {
		t.Helper()
		var got []string
		for _, c := range d.Changes {
			got = append(got, fmt.Sprintf("%v %s", c.Kind, c.Text))
		}
		if d.Same || !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check(Diff(a, b), want)
	check(Diff(b, a), []string{
		"extra only in B: leaf3[7] spine3[3]",
		"swapped A has leaf1[5] spine2[2] and leaf2[6] spine1[1], B leaf1[5] spine1[1] and leaf2[6] spine2[2]",
		"faster leaf4[8] spine4[4] runs at 4x NDR, in A at 4x EDR",
		"length leaf5[8] spine4[5] is 3 m long in A, 2 m in B",
	})
	check(Diff(gen(t, "star:3"), gen(t, "star:4,length=3m")), []string{
		"extra node only in B: host h4 (0x0250f11b01000040), at sw1[4]",
		"length 3 of 3 cables are 2 m long in A, 3 m in B",
	})
	check(Diff(a, renamed(t, a, func(n *topo.Node) ib.GUID {
		if n.Name == "h7" {
			return otherGUID(n)
		}
		return n.GUID
	}, sameName, sameName)), []string{"renamed A has h7 (0x0250f11b01000070), B h7 (0x0250f21b01000070) in its place"})
	none := Diff(a, renamed(t, gen(t, "star:2"), otherGUID, otherName, otherName))
	if none.Same || none.Matched.Found() != 0 || len(none.Changes) != 44+3 {
		t.Errorf("nothing in common: %v, %d changes", none.Matched, len(none.Changes))
	}
}

func TestFindingsAreJSON(t *testing.T) {
	g := gen(t, "fat-tree:radix=8,levels=2")
	pull(t, g, "leaf3", 6)
	r := Check(g, Options{})
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil || len(back.Findings) != 1 || back.Findings[0].Kind != Missing ||
		back.Findings[0].Severity != Warning ||
		!slices.Equal(back.Findings[0].Wanted, r.Findings[0].Wanted) {
		t.Errorf("%v: %s", err, text)
	}
	for k := range NumKind {
		var same Kind
		b, _ := k.MarshalText()
		if err := same.UnmarshalText(b); err != nil || same != k {
			t.Errorf("%v: %v", k, err)
		}
		if is, unless := k.DetectableWithoutPlan(); !is && unless == "" {
			t.Errorf("%v: no reason", k)
		}
	}
	var k Kind
	var s Severity
	if k.UnmarshalText([]byte("nothing")) == nil || s.UnmarshalText([]byte("nothing")) == nil {
		t.Error("unknown words are taken")
	}
}

// TestSameEveryTime: the findings of a badly wired tree come in the same order every time.
func TestSameEveryTime(t *testing.T) {
	p := newPlanter(t, 9, widen(t, gen(t, "fat-tree:radix=36,levels=2"), 64))
	for n := range 100 {
		kindsOfMistakes[n%len(kindsOfMistakes)].plant(p)
	}
	first, _ := json.Marshal(Check(p.g, Options{}))
	for range 5 {
		if again, _ := json.Marshal(Check(p.g, Options{})); string(again) != string(first) {
			t.Fatal("two runs differ")
		}
	}
}

// TestDumpsOfOneFabric has no difference between a fabric as one tool tells it and as another does, nor as
// ibnetdiscover tells it from another node, whose order gives nodes without names of their own other numbers.
func TestDumpsOfOneFabric(t *testing.T) {
	read := func(text string) *topo.Graph {
		g, err := topo.Parse("dump", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	file := func(name string) string {
		text, err := os.ReadFile("../../proto/topo/testdata/dumps/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := file("small.ibnetdiscover")
	for _, name := range []string{"small.ports", "small.linkinfo", "small.linkinfo-l", "small.opensm.lst",
		"small.ibdiagnet2.ibnetdiscover", "small.ibdiagnet2.net_dump", "small.ibdiagnet2.db_csv"} {
		if d := Diff(read(first), read(file(name))); !d.Same || d.Matched.ByGUID != 4 {
			t.Errorf("%s: %v, %+v", name, d.Matched, d.Changes)
		}
	}
	// All switches of a kind have one description.
	const chip = "MT4099 Mellanox Technologies"
	first = strings.NewReplacer("MF0;leaf1:SX6036/U1", "SwitchX", "MF0;leaf2:SX6036/U1", "SwitchX",
		"node01 HCA-1", chip, "node02 [a] HCA-1", chip).Replace(first)
	parts := strings.Split(first, "\n\n")
	slices.Reverse(parts[1:])
	a, b := read(first), read(strings.Join(parts, "\n\n"))
	if n := b.ByGUID(a.ByName("SwitchX").GUID); n.Name == "SwitchX" {
		t.Fatalf("the order makes no difference to names: %v", n.Name)
	}
	if d := Diff(a, b); !d.Same {
		t.Errorf("dumped from two nodes: %+v", d.Changes)
	}
}
