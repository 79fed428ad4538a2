package place

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

func graph(t testing.TB, spec string) *topo.Graph {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func machines(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("m%d", i+1))
	}
	return list
}

func do(t testing.TB, g *topo.Graph, list []string, rule string, record Placement) Placement {
	t.Helper()
	r, err := ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Do(g, list, r, record)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Missing("it", g); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRules: what each rule makes of fabrics, and how many cables cross.
func TestRules(t *testing.T) {
	for _, tc := range []struct {
		spec, rule string
		machines   int
		crossing   int
		most       int // nodes of the machine that has most
	}{
		// 4 leafs of 4 hosts, 4 spines: two leafs and two spines each, and half of the cables to spines cross.
		{"fat-tree:radix=8,levels=2,hosts=16", "leaf", 2, 8, 12},
		{"fat-tree:radix=8,levels=2,hosts=16", "machine=m1", 2, 0, 24},
		// Pods stay whole: only cables to the 16 cores cross, and of those three quarters.
		{"fat-tree:radix=8,levels=3", "leaf", 4, 96, 52},
		{"star:8", "leaf", 3, 0, 9},
		{"star:8", "spread", 3, 5, 4},
	} {
		t.Run(tc.spec+" "+tc.rule, func(t *testing.T) {
			g := graph(t, tc.spec)
			f := do(t, g, machines(tc.machines), tc.rule, nil).Figures(g)
			most, sum := 0, 0
			for _, m := range f.Machines {
				most, sum = max(most, m.Hosts+m.Switches), sum+m.Crossing
			}
			if f.Crossing != tc.crossing || most != tc.most || sum != 2*f.Crossing || f.Cables != g.NumCables() {
				t.Errorf("%+v: want %d crossing, %d nodes at most", f, tc.crossing, tc.most)
			}
		})
	}
}

// TestLeafStaysTogether: under the rule leaf no cable between a host and its first switch crosses, leafs differ by one
// at most, and the order in which machines are named does not matter.
func TestLeafStaysTogether(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		g := graph(t, []string{"fat-tree:radix=4,levels=3", "fat-tree:radix=8,levels=2", "torus:3x3,hosts=2",
			"random:switches=8,hosts=16,seed=1", "dragonfly:a=2,h=1,p=1", "star:5"}[rng.IntN(6)])
		list := machines(1 + rng.IntN(12))
		p := do(t, g, list, "leaf", nil)
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if again := do(t, g, list, "leaf", nil); !maps.Equal(p, again) {
			t.Fatalf("seed %d: another order of machines gives another placement", seed)
		}
		leafs := map[string]int{}
		seen := map[string]bool{}
		for _, h := range g.Hosts() {
			leaf := g.Nodes[h.Ports[1].Peer]
			if p[h.Name] != p[leaf.Name] {
				t.Fatalf("seed %d: %s is on %s, its switch %s on %s", seed, h.Name, p[h.Name], leaf.Name, p[leaf.Name])
			}
			if !seen[leaf.Name] {
				seen[leaf.Name] = true
				leafs[p[leaf.Name]]++
			}
		}
		least, most := len(g.Nodes), 0
		for _, m := range list {
			least, most = min(least, leafs[m]), max(most, leafs[m])
		}
		if most-least > 1 {
			t.Fatalf("seed %d: leafs by machine: %v", seed, leafs)
		}
	}
}

// TestRecordStays: machines come and go and the fabric grows; what was placed is where it was.
func TestRecordStays(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		rule := []string{"leaf", "spread"}[rng.IntN(2)]
		var p Placement
		for round := range 5 {
			g := graph(t, fmt.Sprintf("star:%d", 2+round*3))
			var list []string
			for _, m := range machines(6) {
				if rng.IntN(2) == 0 {
					list = append(list, m)
				}
			}
			if len(list) == 0 {
				list = machines(1)
			}
			next := do(t, g, list, rule, p)
			for name, m := range p {
				if next[name] != m {
					t.Fatalf("seed %d: %s moved from %s to %s", seed, name, m, next[name])
				}
			}
			for name, m := range next {
				if _, had := p[name]; !had && !slices.Contains(list, m) {
					t.Fatalf("seed %d: %s went to %s, which is not there", seed, name, m)
				}
			}
			p = next
		}
	}
}

// TestRefused: what cannot be placed, and in which words.
func TestRefused(t *testing.T) {
	g := graph(t, "star:2")
	for _, s := range []string{"", "leaves", "machine", "machine=", "machine=a/b", "leaf=x", "spread=", "machine=-a"} {
		if _, err := ParseRule(s); err == nil {
			t.Errorf("rule %q is taken", s)
		}
	}
	for _, tc := range []struct {
		list []string
		rule Rule
		want error
	}{
		{nil, Rule{}, ErrNoMachine},
		{[]string{"a", "b c"}, Rule{}, ErrName},
		{[]string{"a"}, Rule{One, "b"}, ErrMachine},
		{[]string{"a"}, Rule{Kind: NumKind}, ErrRule},
	} {
		if _, err := Do(g, tc.list, tc.rule, nil); !errors.Is(err, tc.want) {
			t.Errorf("%v %v: %v: want %v", tc.list, tc.rule, err, tc.want)
		}
	}
}

// TestFile: names, ranges and patterns; mistakes are named with their line.
func TestFile(t *testing.T) {
	g := graph(t, "fat-tree:radix=4,levels=3") // h1-h16, and switches
	p, err := Parse("f", []byte("# all\nh[1-3,5] h7 a\n\nh? b # the rest of nine\nh1[0-2] c\n* d\n"), g)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"h1": "a", "h3": "a", "h4": "b", "h5": "a", "h7": "a", "h9": "b",
		"h12": "c", "h13": "d", "h16": "d"} {
		if p[name] != want {
			t.Errorf("%s is on %q: want %s", name, p[name], want)
		}
	}
	if err := p.Missing("f", g); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		text string
		line int
		want error
	}{
		{"h1 a\nh2\n", 2, ErrSyntax},
		{"h1 a\n\nh77 a\n", 3, ErrNoNode},
		{"h[1-99] a\n", 1, ErrNoNode},
		{"h1 a\nh[1-2] b\n", 2, ErrOverlapped},
		{"h[1-2 b\n", 1, ErrSyntax},
		{"h1] b\n", 1, ErrSyntax},
		{"h[2-1] b\n", 1, ErrSyntax},
		{"h[] b\n", 1, ErrSyntax},
		{"h[-1] b\n", 1, ErrSyntax},
		{"h[1-999999999] b\n", 1, ErrSyntax},
		{"h[0-9][0-9][0-9][0-9][0-9] b\n", 1, ErrSyntax},
		{"h1 a/b\n", 1, ErrName},
	} {
		_, err := Parse("f", []byte(tc.text), g)
		var e *Error
		if !errors.As(err, &e) || e.Line != tc.line || !errors.Is(err, tc.want) ||
			!strings.HasPrefix(err.Error(), fmt.Sprintf("f:%d: ", tc.line)) {
			t.Errorf("%q: %v: want %v in line %d", tc.text, err, tc.want, tc.line)
		}
	}
	part, err := Parse("f", []byte("h[1-12] a\n"), g)
	if err != nil {
		t.Fatal(err)
	}
	if err := part.Missing("f", g); !errors.Is(err, ErrUnplaced) || !strings.Contains(err.Error(), "h13, h14") {
		t.Errorf("%v", err)
	}
}

// TestText: what is written is read as it was, and is short.
func TestText(t *testing.T) {
	g := graph(t, "fat-tree:radix=36,levels=3") // 11,664 hosts
	p := do(t, g, machines(64), "leaf", nil)
	text, err := p.Text()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("record", text, g)
	if err != nil || !maps.Equal(p, again) {
		t.Fatalf("%v: read again it is another", err)
	}
	f := p.Figures(g)
	t.Logf("%d nodes on 64 machines: %d of %d cables cross, %d bytes", len(p), f.Crossing, f.Cables, len(text))
	if len(text) > 64<<10 {
		t.Errorf("%d bytes", len(text))
	}
	for _, bad := range []Placement{{"a b": "m"}, {"": "m"}, {"h1": "m m"}, {"h*": "m"}, {"\u00a0": "m"}} {
		if _, err := bad.Text(); err == nil {
			t.Errorf("%v is written", bad)
		}
	}
}

// FuzzParse: never panics; what was read and written is read as the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"h1 a\n", "h[1-4] leaf1 a\n* b\n", "h[01-02,7] a", "??[1-2]* x\n#", "h[1-3]x[2] y\n"} {
		f.Add([]byte(s))
	}
	g := &topo.Graph{}
	for i, name := range []string{"h1", "h2", "h3", "h04", "leaf1", "leaf2", "h3x2", "sw", "h10"} {
		if _, err := g.Add(topo.Node{Name: name, Type: ib.NodeCA, GUID: ib.GUID(i + 1)}, 1); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse("f", text, g)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line == 0 {
				t.Fatalf("%v does not name a line", err)
			}
			return
		}
		out, err := p.Text()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("f", out, g)
		if err != nil || !maps.Equal(p, again) {
			t.Fatalf("%v: %v became %v by %q", err, p, again, out)
		}
		whole, err := Do(g, []string{"a", "b"}, Rule{}, p)
		if err != nil {
			t.Fatal(err)
		}
		for name, m := range p {
			if whole[name] != m {
				t.Fatalf("%s moved from %s to %s", name, m, whole[name])
			}
		}
	})
}

// FuzzFits holds the matcher against a dumb one.
func FuzzFits(f *testing.F) {
	f.Add("h*[1-12]?", "h123")
	f.Add("*a*a*a*", "aaaa")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		parts, err := compile(pattern)
		if err != nil || len(pattern) > 8 || len(name) > 8 {
			return
		}
		if got, want := fits(parts, name), dumb(parts, name); got != want {
			t.Fatalf("%q fits %q: %t: want %t", pattern, name, got, want)
		}
	})
}

func dumb(parts []part, name string) bool {
	if len(parts) == 0 {
		return name == ""
	}
	for n := 0; n <= len(name); n++ {
		p, head := parts[0], name[:n]
		ok := p.wild == '*' || p.wild == '?' && n == 1 || p.wild == 0 && p.spans == nil && head == p.text
		for _, s := range p.spans {
			for k := s.from; k <= s.to && k < s.from+1e5 && n > 0; k++ {
				ok = ok || s.name(k) == head
			}
		}
		if ok && dumb(parts[1:], name[n:]) {
			return true
		}
	}
	return false
}
