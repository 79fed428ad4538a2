package tidy

import "testing"

func TestCheckWalk(t *testing.T) {
	const head = "# Map\n\n## A send, walked\n\n| file | functions | what |\n|---|---|---|\n"
	module := func(rows string) map[string]string {
		return map[string]string{
			"docs/ARCHITECTURE.md": head + rows + "\n### More\n\n`node/hca/gone.go` is not the walk's.\n",
			"node/hca/a.go": "package hca\n\ntype T struct{}\n\nfunc (t *T) Post() { t.send() }\n\n" +
				"func (T) send() {}\n\nfunc f() {}\n",
			"capi/clib/a.c": "static int post(struct qp *q,\n\tint n)\n{\n\treturn send(q);\n}\n" +
				"int send(struct qp *q);\n",
		}
	}
	runPlanted(t, CheckWalk, []planted{
		{"good", module(
			"| `node/hca/a.go` | `T.Post`, `T.send`, `f` | `x.go` |\n| `capi/clib/a.c` | `post` | c |\n"), nil},
		{"no section", one("docs/ARCHITECTURE.md", "# Map\n\n## A sweep, walked\n"),
			[]string{"docs/ARCHITECTURE.md: no section"}},
		{"a file that is gone", module("| `node/hca/b.go` | `f` | b |\n"),
			[]string{"docs/ARCHITECTURE.md:7: the walk names node/hca/b.go, which does not exist"}},
		{"a file twice", module(
			"| `node/hca/a.go` | `f` | a |\n| `capi/clib/a.c` | `post` | see `node/hca/a.go` |\n"),
			[]string{":8: the walk comes to node/hca/a.go twice"}},
		{"in prose", module("| `node/hca/a.go` | `f` | a |\n\nThen `node/hca/a.go` again.\n"),
			[]string{":9: the walk comes to node/hca/a.go twice"}},
		{"a function that is gone", module(
			"| `node/hca/a.go` | `T.Gone`, `Post` | a |\n| `capi/clib/a.c` | `send` | c |\n"),
			[]string{":7: the walk names T.Gone", ":7: the walk names Post", ":8: the walk names send"}},
		{"no function", module("| `node/hca/a.go` | all of it | a |\n"),
			[]string{":7: the walk names no function of node/hca/a.go"}},
	})
}
