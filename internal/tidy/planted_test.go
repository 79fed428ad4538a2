package tidy

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// planted is a module of a few sources that break rules, and the complaints
// that they must earn, in order, each as a piece of its text. No wants means
// that the sources are fine.
type planted struct {
	name  string
	files map[string]string
	wants []string
}

func runPlanted(t *testing.T, check func(*Module) []Complaint, cases []planted) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			m, err := Load(root)
			if err != nil {
				t.Fatal(err)
			}
			got := check(m)
			for i, complaint := range got {
				if i >= len(c.wants) {
					t.Errorf("unwanted complaint: %s", complaint)
				} else if !strings.Contains(complaint.String(), c.wants[i]) {
					t.Errorf("complaint %d: %s\nwant one with: %s", i, complaint, c.wants[i])
				}
			}
			for _, want := range c.wants[min(len(got), len(c.wants)):] {
				t.Errorf("no complaint with: %s", want)
			}
		})
	}
}

// one is a module of a single file.
func one(name, text string) map[string]string { return map[string]string{name: text} }

func TestCheckRanks(t *testing.T) {
	runPlanted(t, CheckRanks, []planted{
		{"downward", one("node/hca/a.go",
			"package hca\nimport (\n\"fmt\"\n\"softib/proto/ib\"\n\"softib/node/link\"\n)\n"), nil},
		{"upward", one("proto/wire/a.go", "package wire\n\nimport \"softib/node/hca\"\n"),
			[]string{"proto/wire/a.go:3: imports softib/node/hca of rank 3 from rank 1"}},
		{"sibling", one("subnet/sa/a.go", "package sa\nimport \"softib/node/cm\"\n"),
			[]string{"subnet/sa/a.go:2: imports its sibling softib/node/cm (both of rank 3)"}},
		{"driver sibling", one("driver/live/a.go", "package live\nimport \"softib/driver/sim\"\n"),
			[]string{"sibling softib/driver/sim"}},
		{"itself in an external test", one("proto/ib/a_test.go", "package ib_test\nimport \"softib/proto/ib\"\n"), nil},
		{"tests look anywhere", one("proto/ib/a_test.go",
			"package ib_test\nimport (\n\"softib/driver/sim\"\n\"github.com/google/go-cmp/cmp\"\n)\n"), nil},
		{"new package", one("magic/a.go", "package magic\n"),
			[]string{"magic: package has no rank: add it to the table ranks in internal/tidy/rules.go"}},
		{"new package below a ranked one", one("hca/deep/a.go", "package deep\n"),
			[]string{"hca/deep: package has no rank"}},
		{"import of an unranked package", one("driver/sim/a.go", "package sim\nimport \"softib/magic\"\n"),
			[]string{"softib/magic, which has no rank"}},
		{"library in an engine", one("verbs/a.go", "package verbs\nimport \"golang.org/x/sys/unix\"\n"),
			[]string{"imports golang.org/x/sys/unix: ranks 0 to 4 use the standard library alone"}},
		{"cgo in an engine", one("proto/wire/a.go", "package wire\nimport \"C\"\n"), []string{"imports C:"}},
		{"library in a driver", one("driver/live/a.go", "package live\nimport \"golang.org/x/sys/unix\"\n"), nil},
		{"engine imports internal", one("node/hca/a.go", "package hca\nimport \"softib/internal/ring\"\n"),
			[]string{"outside the ranks"}},
		{"engine imports bench", one("proto/ib/a.go", "package ib\nimport \"softib/proof/bench\"\n"),
			[]string{"outside the ranks"}},
		{"driver imports internal", one("driver/live/a.go", "package live\nimport \"softib/internal/ring\"\n"), nil},
		{"free trees import anything", map[string]string{
			"examples/pingpong/main.go": "package main\nimport \"softib/driver/live\"\n",
			"internal/ring/a.go":        "package ring\nimport \"softib/cmd/softib\"\n",
			"proof/bench/a.go":          "package bench\nimport \"softib/proof/workload\"\n",
		}, nil},
		{"a name that only begins like a free tree", one("benchmark/a.go", "package benchmark\n"), []string{"no rank"}},
	})
}

func TestCheckBansImports(t *testing.T) {
	var cases []planted
	for _, imported := range []string{
		"time", "net", "net/http", "os", "os/exec", "os/signal", "syscall", "sync", "sync/atomic",
		"log", "log/slog", "crypto/rand", "hash/maphash",
	} {
		source := fmt.Sprintf("import _ %q\n", imported)
		cases = append(cases,
			planted{imported, one("node/link/a.go", "package link\n\n"+source),
				[]string{"node/link/a.go:3: imports " + imported + ": "}},
			planted{imported + " in a test", one("node/link/a_test.go", "package link\n"+source), nil},
			planted{imported + " in a driver", one("driver/live/a.go", "package live\n"+source), nil},
			planted{imported + " in the last engine rank", one("verbs/a.go", "package verbs\n"+source),
				[]string{"imports " + imported}},
		)
	}
	for _, imported := range []string{"net/netip", "io", "context", "math/rand/v2", "timeout", "network"} {
		cases = append(cases, planted{imported + " is fine", one("proto/ib/a.go",
			fmt.Sprintf("package ib\nimport _ %q\n", imported)), nil})
	}
	cases = append(cases, planted{"dot import", one("proto/ib/a.go", "package ib\nimport . \"math/rand/v2\"\n"),
		[]string{"dot-imports math/rand/v2"}})
	runPlanted(t, CheckBans, cases)
}

func TestCheckBansStatements(t *testing.T) {
	runPlanted(t, CheckBans, []planted{
		{"go", one("node/hca/a.go", "package hca\nfunc f() {\n\tgo f()\n}\n"),
			[]string{"node/hca/a.go:3: go statement"}},
		{"go in a closure", one("node/hca/a.go", "package hca\nvar f = func() { go func() {}() }\n"),
			[]string{"go statement"}},
		{"go in a driver", one("driver/sim/a.go", "package sim\nfunc f() { go f() }\n"), nil},
		{"go in a test", one("node/hca/a_test.go", "package hca\nfunc f() { go f() }\n"), nil},
		{"select", one("node/cm/a.go", "package cm\nfunc f(c chan int) {\n\tselect {\n\tcase <-c:\n\tdefault:\n"+
			"\t}\n}\n"), []string{"node/cm/a.go:3: select statement"}},
		{"global rand", one("subnet/sm/a.go", "package sm\nimport \"math/rand/v2\"\nvar x = rand.IntN(6)\n"),
			[]string{"subnet/sm/a.go:3: math/rand/v2.IntN draws from the process-wide source"}},
		{"global rand of the first version", one("subnet/sm/a.go",
			"package sm\nimport \"math/rand\"\nfunc f() { rand.Shuffle(0, nil) }\n"), []string{"math/rand.Shuffle"}},
		{"global rand under another name", one("subnet/sm/a.go",
			"package sm\nimport dice \"math/rand/v2\"\nvar x = dice.Uint64()\n"), []string{"math/rand/v2.Uint64"}},
		{"global rand as a value", one("subnet/sm/a.go", "package sm\nimport \"math/rand/v2\"\nvar roll = rand.IntN\n"),
			[]string{"math/rand/v2.IntN"}},
		{"rand passed in", one("subnet/sm/a.go", "package sm\nimport \"math/rand/v2\"\n"+
			"var r = rand.New(rand.NewPCG(1, 2))\nfunc f(r *rand.Rand) int { return r.IntN(6) }\n"), nil},
		{"a variable called rand", one("subnet/sm/a.go",
			"package sm\nimport \"math/rand/v2\"\nfunc f(rand *rand.Rand) int { return rand.IntN(6) }\n"), nil},
	})
}

func TestCheckMapOrder(t *testing.T) {
	const head = "package route\n"
	runPlanted(t, CheckMapOrder, []planted{
		{"map", one("subnet/route/a.go", head+"func f(m map[int]int) (s []int) {\n\tfor k := range m {\n"+
			"\t\ts = append(s, k)\n\t}\n\treturn\n}\n"), []string{"subnet/route/a.go:3: range over a map"}},
		{"named map", one("subnet/route/a.go", head+"type set map[int]bool\nfunc f(m set) {\n\tfor range m {\n"+
			"\t}\n}\n"), []string{"subnet/route/a.go:4: range over a map"}},
		{"map in a field of another package", map[string]string{
			"proto/topo/a.go": "package topo\ntype Graph struct{ Nodes map[string]int }\n",
			"subnet/route/a.go": head +
				"import \"softib/proto/topo\"\nfunc f(g *topo.Graph) {\n\tfor range g.Nodes {\n\t}\n}\n",
		}, []string{"subnet/route/a.go:4: range over a map"}},
		{"map behind a type parameter", one("subnet/route/a.go", head+
			"func f[M ~map[K]V, K comparable, V any](m M) {\n\tfor range m {\n\t}\n}\n"), []string{"range over a map"}},
		{"map from the standard library", one("subnet/route/a.go", head+"import \"go/types\"\nfunc f(i *types.Info) "+
			"{\n\tfor range i.Defs {\n\t}\n}\n"), []string{"range over a map"}},
		{"slice, string, integer, channel, function", one("subnet/route/a.go",
			head+"func f(s []int, c chan int, it func(func(int) bool)) {\n\tfor range s {\n\t}\n\tfor range \"x\" {\n"+
				"\t}\n\tfor range 3 {\n\t}\n\tfor range c {\n\t}\n\tfor range it {\n\t}\n}\n"), nil},
		{"slice behind a type parameter", one("subnet/route/a.go",
			head+"func f[S ~[]E, E any](s S) {\n\tfor range s {\n\t}\n}\n"), nil},
		{"vouched on the line", one("subnet/route/a.go", head+
			"func f(m map[int]int) (n int) {\n\tfor range m { // tidy: order-free\n\t\tn++\n\t}\n\treturn\n}\n"), nil},
		{"vouched above, with the reason", one("subnet/route/a.go", head+"func f(m map[int]int) (n int) {\n"+
			"\t// tidy: order-free, it only counts\n\tfor range m {\n\t\tn++\n\t}\n\treturn\n}\n"), nil},
		{"vouched too far away", one("subnet/route/a.go", head+"func f(m map[int]int) (n int) {\n\t// tidy: "+
			"order-free\n\tn = 0\n\tfor range m {\n\t\tn++\n\t}\n\treturn\n}\n"), []string{"subnet/route/a.go:5"}},
		{"keys of a map", one("subnet/route/a.go", head+"import (\n\"maps\"\n\"slices\"\n)\nfunc f(m map[int]int) "+
			"[]int { return slices.Collect(maps.Keys(m)) }\n"), []string{"maps.Keys yields in map order"}},
		{"range over the values of a map", one("subnet/route/a.go", head+"import \"maps\"\nfunc f(m map[int]int) {\n"+
			"\tfor range maps.Values(m) {\n\t}\n}\n"), []string{"subnet/route/a.go:4: maps.Values"}},
		{"sorted keys", one("subnet/route/a.go", head+"import (\n\"maps\"\n\"slices\"\n)\nfunc f(m map[int]int) "+
			"[]int { return slices.Sorted(maps.Keys(m)) }\n"), nil},
		{"unknown type", one("subnet/route/a.go", head+"func f() {\n\tfor range missing {\n\t}\n}\n"),
			[]string{"subnet/route/a.go:3: the type of this range is unknown"}},
		{"tests may", one("subnet/route/a_test.go", head+"func f(m map[int]int) {\n\tfor range m {\n\t}\n}\n"), nil},
		{"drivers may", one("driver/sim/a.go", "package sim\nfunc f(m map[int]int) {\n\tfor range m {\n\t}\n}\n"), nil},
	})
}

func TestCheckDoc(t *testing.T) {
	runPlanted(t, CheckDoc, []planted{
		{"package", one("ib/doc.go", "// Package ib is words.\npackage ib\n"), nil},
		{"command", one("cmd/softib/doc.go", "// Command softib does it all.\npackage main\n"), nil},
		{"no doc.go", one("proto/ib/a.go", "// Package ib is words.\npackage ib\n"), []string{"ib: no doc.go"}},
		{"no comment", one("ib/doc.go", "package ib\n"), []string{"ib: no doc.go"}},
		{"detached comment", one("ib/doc.go", "// Package ib is words.\n\npackage ib\n"), []string{"ib: no doc.go"}},
		{"comment of another package", one("ib/doc.go", "// Package ibx is words.\npackage ib\n"),
			[]string{"ib: no doc.go"}},
		{"example", one("examples/ping/main.go", "// Command ping sends.\npackage main\n"), nil},
		{"example without a comment", one("examples/ping/main.go", "package main\n"), []string{"examples/ping"}},
	})
}

func TestCheckNames(t *testing.T) {
	var cases []planted
	for _, name := range []string{"util", "utils", "common", "types", "helper", "helpers", "misc"} {
		cases = append(cases, planted{name, one("internal/"+name+"/a.go", "package "+name+"\n"),
			[]string{`"` + name + `" says nothing`}})
	}
	cases = append(cases,
		planted{"hidden by the folder", one("internal/ring/a.go", "package util\n"), []string{"says nothing"}},
		planted{"hidden by the package", one("internal/util/a.go", "package ring\n"), []string{"says nothing"}},
		planted{"good", one("internal/ring/a.go", "package ring\n"), nil},
	)
	runPlanted(t, CheckNames, cases)
}

func TestCheckLength(t *testing.T) {
	lines := func(first string, n int) string { return first + strings.Repeat("\n", n-1) }
	runPlanted(t, CheckLength, []planted{
		{"at the limit", one("proto/ib/a.go", lines("package ib\n", 900)), nil},
		{"over it", one("proto/ib/a.go", lines("package ib\n", 901)),
			[]string{"proto/ib/a.go: 901 lines, at most 900"}},
		{"last line not ended", one("proto/ib/a.go", lines("package ib\n", 900)+"var x int"), []string{"901 lines"}},
		{"test", one("proto/ib/a_test.go", lines("package ib\n", 2000)), nil},
		{"generated", one("proto/ib/a.go", lines("// Code generated by stringer. DO NOT EDIT.\npackage ib\n", 2000)),
			nil},
	})
}

func TestCheckFormat(t *testing.T) {
	runPlanted(t, CheckFormat, []planted{
		{"good", one("proto/ib/a.go", "package ib\n\nvar x = 1\n"), nil},
		{"bad", one("proto/ib/a.go", "package ib\n\nvar  x = 1\n"),
			[]string{"proto/ib/a.go:3: not as gofmt writes it"}},
		{"bad test", one("proto/ib/a_test.go", "package ib\nvar x = 1\n\n\n"), []string{"proto/ib/a_test.go:2"}},
	})
}

func TestCheckWords(t *testing.T) {
	const todo, fixme, xxx = "TO" + "DO", "FIX" + "ME", "XX" + "X"
	const work, root = "/wo" + "rk/main", "/ro" + "ot/x"
	runPlanted(t, CheckWords, []planted{
		{"good", map[string]string{"proto/ib/a.go": "package ib\n\n// homework/ is done, mktemp x.XXXXXX too\n",
			"README.md": "see docs/root/x\n"}, nil},
		{"notes", one("proto/ib/a.go", "package ib\n\n// "+todo+": later\n// "+fixme+"\nvar s = \""+xxx+"\"\n"),
			[]string{"proto/ib/a.go:3: " + todo, "proto/ib/a.go:4: " + fixme, "proto/ib/a.go:5: " + xxx}},
		{"note in a document", one("docs/a.md", "one\n"+todo+" two\n"), []string{"docs/a.md:2: " + todo}},
		{"note in a script", one("scripts/a.sh", "# "+fixme+"\n"), []string{"scripts/a.sh:1"}},
		{"note in the Makefile and the CI script", map[string]string{"Makefile": "# " + todo + "\n",
			".ci/run": "# " + todo + "\n"}, []string{".ci/run:1", "Makefile:1"}},
		{"conflict", one("docs/a.md", "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> 1234567 (x)\n======= is a line\n"),
			[]string{"docs/a.md:2: a conflict", "docs/a.md:4: a conflict", "docs/a.md:6: a conflict"}},
		{"path", one("proto/ib/a.go", "package ib\n\nvar p = \""+work+"\"\n"), []string{"proto/ib/a.go:3: "}},
		{"path at the start of a line", one("a.md", work+"\n"), []string{"a.md:1: "}},
		{"path of a person", one("a.md", "cd "+"/ho"+"me/ann/x and "+root+"\n"), []string{"a.md:1: "}},
	})
}

func TestLoad(t *testing.T) {
	m, err := Load(fstest.MapFS{
		"proto/ib/a.go":      {Data: []byte("package ib\n")},
		"proto/ib/a_test.go": {Data: []byte("package ib_test\n")},
		"ib/testdata/bad.go": {Data: []byte("not go")},
		".git/bad.go":        {Data: []byte("not go")},
		"_old/bad.go":        {Data: []byte("not go")},
		"bin/bad.go":         {Data: []byte("not go")},
		".ci/run":            {Data: []byte("make test\n")},
		"picture.png":        {Data: []byte{0xFF}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Packages) != 1 || m.Packages[0].Dir != "proto/ib" || m.Packages[0].Name != "ib" ||
		len(m.Packages[0].Files) != 2 {
		t.Errorf("packages: %+v, want ib with two files", m.Packages)
	}
	if len(m.Texts) != 1 || m.Texts[".ci/run"] == nil {
		t.Errorf("texts: %v, want only .ci/run", m.Texts)
	}
	if _, err := Load(fstest.MapFS{"proto/ib/a.go": {Data: []byte("package\n")}}); err == nil ||
		!strings.Contains(err.Error(), "proto/ib/a.go") {
		t.Errorf("a file that does not parse: error %v, want one that names it", err)
	}
}
