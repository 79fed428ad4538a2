package wiring

import (
	"errors"
	"strings"
	"testing"
)

const smallLayout = `# two racks
pitch 0.6m
aisle 2400mm
tray 30cm
slack 250mm
units 48
rack A1 row 1 position 1
rack A2 row 1 position 3
rack B1 row 2 position 1
place leaf1 A1 48    # at the top
place h1..h4 A1 1
place leaf2 A2 48
place h5..h8 A2 2 step 2
place spine1 B1 1
place node08..node11 B1 20
`

func TestParseLayout(t *testing.T) {
	l, err := ParseLayout("racks.txt", smallLayout)
	if err != nil {
		t.Fatal(err)
	}
	if l.PitchMM != 600 || l.AisleMM != 2400 || l.TrayMM != 300 || l.SlackMM != 250 || l.Units != 48 ||
		len(l.Racks) != 3 || l.Racks[2] != (Rack{"B1", 2, 1}) {
		t.Errorf("%+v", l)
	}
	for name, want := range map[string]Place{"leaf1": {"A1", 48}, "h4": {"A1", 4}, "h8": {"A2", 8},
		"node10": {"B1", 22}, "node08": {"B1", 20}} {
		if p, ok := l.Of(name); !ok || p != want {
			t.Errorf("%s: %v, want %v", name, p, want)
		}
	}
	for _, c := range []struct {
		a, b string
		mm   int32
	}{
		{"leaf1", "h1", 47*44450/1000 + 500 + 1},                  // within the rack
		{"leaf1", "leaf2", 300 + 2*600 + 300 + 500},               // both at the top
		{"leaf1", "spine1", 300 + 2400 + 47*4445/100 + 300 + 500}, // across the rows, down to the bottom
		{"h1", "spine1", 2*(47*4445/100+300) + 2400 + 500},        // bottom to bottom
		{"leaf2", "spine1", 300 + 1200 + 2400 + 2089 + 300 + 500}, // along and across
		{"h5", "leaf1", (46*4445/100 + 300) + 1200 + 300 + 500},   // up, along, and in at the top
		{"h5", "h5", 500}, // nothing but slack
	} {
		a, _ := l.Of(c.a)
		b, _ := l.Of(c.b)
		if got := l.CableMM(a, b); got < c.mm-2 || got > c.mm+2 || l.CableMM(b, a) != got {
			t.Errorf("%s to %s: %d mm, want %d", c.a, c.b, got, c.mm)
		}
	}
}

func TestBadLayouts(t *testing.T) {
	const rack = "rack A row 1 position 1\n"
	for text, want := range map[string]struct {
		err  error
		line int
		word string
	}{
		"shelf A":                                {ErrLayoutSyntax, 1, `"shelf"`},
		"\n\npitch":                              {ErrLayoutSyntax, 3, "pitch and its value"},
		"pitch wide":                             {ErrLayoutSyntax, 1, `"wide"`},
		"pitch -1m":                              {ErrLayoutSyntax, 1, `"-1m"`},
		"pitch NaNm":                             {ErrLayoutSyntax, 1, `"NaNm"`},
		"pitch 1e9m":                             {ErrLayoutSyntax, 1, "at most"},
		"units 0":                                {ErrLayoutSyntax, 1, "1 to 100"},
		"units 42\nunits 42":                     {ErrLayoutDuplicate, 2, "units"},
		"rack A":                                 {ErrLayoutSyntax, 1, "rack NAME row N position N"},
		"rack A row 0 position 1":                {ErrLayoutSyntax, 1, "row"},
		"rack A row 1 position x":                {ErrLayoutSyntax, 1, "position"},
		rack + rack:                              {ErrLayoutDuplicate, 2, "rack A"},
		"place h1 A 1":                           {ErrLayoutRack, 1, `"A"`},
		rack + "place h1 A":                      {ErrLayoutSyntax, 2, "place NODE RACK UNIT"},
		rack + "place h1 A 0":                    {ErrLayoutSyntax, 2, "unit"},
		rack + "place h1 A 43":                   {ErrLayoutUnit, 2, "unit 43"},
		rack + "place h1..h50 A 1":               {ErrLayoutUnit, 2, "h43"},
		rack + "place h1 A 1\nplace h1 A 2":      {ErrLayoutDuplicate, 3, "h1"},
		rack + "place h9..h1 A 1":                {ErrLayoutSyntax, 2, "h9..h1"},
		rack + "place h1..g3 A 1":                {ErrLayoutSyntax, 2, "h1..g3"},
		rack + "place h..h3 A 1":                 {ErrLayoutSyntax, 2, "h..h3"},
		rack + "place h1..h999999999 A 1":        {ErrLayoutSyntax, 2, "range"},
		rack + "place h1..h9999999999999999 A 1": {ErrLayoutSyntax, 2, "range"},
		rack + "place h1..h3 A 1 step 0":         {ErrLayoutSyntax, 2, "step"},
		rack + "place h1..h3 A 1 every 2":        {ErrLayoutSyntax, 2, "place"},
	} {
		_, err := ParseLayout("f", text)
		e, ok := errors.AsType[*LayoutError](err)
		if !ok || !errors.Is(err, want.err) || e.Line != want.line || !strings.Contains(err.Error(), want.word) {
			t.Errorf("%q: %v, want %v in line %d with %s", text, err, want.err, want.line, want.word)
		}
	}
}

func TestLayoutTruncated(t *testing.T) {
	for i := range smallLayout {
		l, err := ParseLayout("f", smallLayout[:i])
		if _, ok := errors.AsType[*LayoutError](err); (l == nil || err != nil) && !ok {
			t.Fatalf("%d bytes: %v, %v", i, l, err)
		}
	}
}

func FuzzParseLayout(f *testing.F) {
	f.Add(smallLayout)
	f.Add("rack A row 1 position 1\nplace h1..h18 A 1 step 2\n")
	f.Add("pitch 1e300mm\n")
	f.Add("place h0001..h0000 A 1")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLayout("f", text)
		if err != nil {
			if e, ok := errors.AsType[*LayoutError](err); !ok || e.Line < 1 {
				t.Fatalf("%v", err)
			}
			return
		}
		if l.PitchMM < 0 || l.AisleMM < 0 || l.TrayMM < 0 || l.SlackMM < 0 || l.Units < 1 {
			t.Fatalf("%+v", l)
		}
		for _, p := range l.place {
			if p.Unit < 1 || p.Unit > l.Units {
				t.Fatalf("unit %d of %d", p.Unit, l.Units)
			}
			for _, q := range l.place {
				if l.CableMM(p, q) < 0 || l.CableMM(p, q) != l.CableMM(q, p) {
					t.Fatalf("%v to %v: %d mm", p, q, l.CableMM(p, q))
				}
				break
			}
		}
	})
}

func TestDefaultLayout(t *testing.T) {
	for _, spec := range []string{
		"star:4", "star:200", "pair", "fat-tree:radix=8,levels=2", "fat-tree:radix=36,levels=2",
		"fat-tree:radix=16,levels=3", "fat-tree:radix=128,levels=2,pods=20", "torus:4x4x4",
		"fat-tree:radix=8,levels=3,hosts=33",
	} {
		g := gen(t, spec)
		l := DefaultLayout(g)
		if list := l.unplaced(g); len(list) > 0 {
			t.Errorf("%s: no place for %v", spec, list)
		}
		taken := map[Place]string{}
		for _, n := range g.Nodes {
			p, ok := l.Of(n.Name)
			if !ok || p.Unit < 1 || p.Unit > l.Units {
				t.Fatalf("%s: %s is at %v", spec, n.Name, p)
			}
			if other, dup := taken[p]; dup {
				t.Fatalf("%s: %s and %s are both at %v", spec, n.Name, other, p)
			}
			taken[p] = n.Name
		}
		at := map[[2]int]string{}
		for _, r := range l.Racks {
			if other, dup := at[[2]int{r.Row, r.Position}]; dup {
				t.Fatalf("%s: racks %s and %s stand in one place", spec, r.Name, other)
			}
			at[[2]int{r.Row, r.Position}] = r.Name
		}
		// A leaf and its hosts share a rack if they fit.
		if strings.HasPrefix(spec, "fat-tree:radix=36") {
			for _, h := range g.Hosts() {
				p, _ := l.Of(h.Name)
				q, _ := l.Of(g.Nodes[h.Ports[1].Peer].Name)
				if p.Rack != q.Rack {
					t.Fatalf("%s is in %s, its leaf in %s", h.Name, p.Rack, q.Rack)
				}
			}
		}
	}
}
