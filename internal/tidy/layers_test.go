package tidy

import "testing"

func TestCheckLayers(t *testing.T) {
	const head = "# Map\n\n| rank | package | what it is |\n|---|---|---|\n"
	const rows = "| 0 | `proto/ib` | words |\n| 1 | `proto/wire`, `proto/mad` | formats of `proto/other` |\n"
	module := func(doc string) map[string]string {
		return map[string]string{
			"docs/ARCHITECTURE.md": doc,
			"proto/ib/a.go":        "package ib\n", "proto/wire/a.go": "package wire\n",
			"proto/mad/a.go": "package mad\n",
		}
	}
	missing := module(head + rows)
	delete(missing, "proto/mad/a.go")
	two := map[string]int{"proto/ib": 0, "proto/wire": 1, "proto/mad": 1}
	runPlanted(t, func(m *Module) []Complaint { return checkLayers(m, two) }, []planted{
		{"good", module(head + rows + "| – | `internal` | free |\n\nText.\n\n| 7 | `x` | another table |\n"), nil},
		{"rank of a package that does not exist", missing,
			[]string{"internal/tidy/rules.go: the table ranks names proto/mad, which does not exist"}},
		{"no table", module("# Map\n\n| room | what |\n|---|---|\n"),
			[]string{"docs/ARCHITECTURE.md: no table of layers"}},
		{"no document", one("proto/ib/a.go", "package ib\n"),
			[]string{"names proto/mad", "names proto/wire", "no table of layers"}},
		{"package without a line", module(head + "| 0 | `proto/ib` | words |\n| 1 | `proto/wire` | formats |\n"),
			[]string{"docs/ARCHITECTURE.md:3: proto/mad has no line"}},
		{"another rank", module(head + "| 1 | `proto/ib`, `proto/wire`, `proto/mad` | all |\n"),
			[]string{"docs/ARCHITECTURE.md:5: proto/ib has rank 1 here and 0 in"}},
		{"line of another package", module(head + rows + "| 2 | `node/gone` | gone |\n"),
			[]string{"docs/ARCHITECTURE.md:7: node/gone has no rank"}},
		{"two lines", module(head + rows + "| 1 | `proto/mad` | again |\n"),
			[]string{"docs/ARCHITECTURE.md:7: proto/mad has two lines"}},
	})
}

func TestCheckRooms(t *testing.T) {
	runPlanted(t, CheckRooms, []planted{
		{"down", one("operate/wiring/a.go", "package wiring\nimport \"softib/proto/topo\"\n"), nil},
		{"within", one("node/hca/a.go", "package hca\nimport \"softib/node/link\"\n"), nil},
		{"up, though the rank is lower", one("subnet/sm/a.go", "package sm\n\nimport \"softib/operate/wiring\"\n"),
			[]string{"subnet/sm/a.go:3: room subnet imports operate/wiring, which is not below it"}},
		{"next door", one("capi/umad/a.go", "package umad\nimport \"softib/operate/manager\"\n"),
			[]string{"room capi imports operate/manager"}},
		{"one floor", map[string]string{
			"verbs/attach/a.go":  "package attach\nimport \"softib/driver/endpoint\"\n",
			"driver/sim/a.go":    "package sim\nimport \"softib/verbs\"\n",
			"cmd/softib/main.go": "package main\nimport (\n\"softib/proof/check\"\n\"softib/internal/release\"\n)\n",
		}, nil},
		{"into a room that is none", one("driver/sim/a.go", "package sim\nimport \"softib/magic\"\n"),
			[]string{"driver/sim/a.go:2: room driver imports magic"}},
		{"new room", one("magic/wand/a.go", "package wand\n"), []string{"magic/wand: room magic has no floor"}},
		{"free trees and tests", map[string]string{
			"internal/ring/a.go":  "package ring\nimport \"softib/cmd/softib\"\n",
			"proto/ib/a_test.go":  "package ib_test\nimport \"softib/driver/sim\"\n",
			"proof/bench/main.go": "package main\nimport \"softib/cmd/softib\"\n",
		}, nil},
	})
}
