package tidy

import "testing"

func TestCheckCallbacks(t *testing.T) {
	hca := func(text string) map[string]string { return one("node/hca/a.go", "package hca\n"+text) }
	iface := func(vouch string) map[string]string {
		return map[string]string{
			"proto/wire/a.go":      "package wire\n" + vouch + "type Sink interface{ Take(b []byte) }\n",
			"driver/endpoint/a.go": "package endpoint\ntype ring struct{}\nfunc (*ring) Take(b []byte) {}\n",
		}
	}
	runPlanted(t, CheckCallbacks, []planted{
		{"function in a field", hca("type Config struct {\n\tDone func(int)\n\tdone func(int)\n}\n"),
			[]string{"node/hca/a.go:3: Config.Done is a function that others set"}},
		{"function of a named type", hca("type Hook func()\ntype Config struct {\n\tDone Hook\n}\n"),
			[]string{"Config.Done"}},
		{"function kept in a field", hca("type q struct{ f func() }\nfunc (q *q) OnDone(f func()) { q.f = f }\n"),
			[]string{"node/hca/a.go:3: OnDone keeps the function f"}},
		{"function kept in a list", hca("var all []func()\nfunc OnDone(f func()) { all = append(all, f) }\n"),
			[]string{"OnDone keeps"}},
		{"function kept in a value", hca("type q struct{ f func() }\nfunc New(f func()) *q { return &q{f} }\n"),
			[]string{"New keeps"}},
		{"function kept further down", hca("type q struct{ f func() }\nfunc New(f func()) *q { return first(f) }\n" +
			"func first(g func()) *q { return second(g) }\nfunc second(h func()) *q { return &q{f: h} }\n"),
			[]string{"node/hca/a.go:3: New keeps the function f"}},
		{"function returned", hca("func Twice(f func()) func() { return f }\n"), []string{"Twice keeps"}},
		{"visitor, order, test for nil", hca("import \"slices\"\n" +
			"func Each(s []int, visit func(int)) {\n\tif visit != nil {\n\t\tfor _, x := range s {\n\t\t\tvisit(x)\n" +
			"\t\t}\n\t}\n}\nfunc Sort(s []int, cmp func(a, b int) int) { slices.SortFunc(s, cmp) }\n" +
			"func Some(s []int, visit func(int)) { Each(s, func(x int) { visit(x) }) }\n"), nil},
		{"own tables", hca("type row struct{ do func() }\nfunc entry(f func()) row { return row{f} }\n" +
			"var rows = []row{entry(func() {})}\n"), nil},
		{"interface of a driver", iface(""),
			[]string{"proto/wire/a.go:2: Sink is implemented by driver/endpoint.ring"}},
		{"interface vouched for", iface("// tidy: calls out, it is memory\n"), nil},
		{"vouched without a reason", iface("// tidy: calls out\n"), []string{"Sink is implemented"}},
		{"interface of engines", map[string]string{
			"proto/wire/a.go": "package wire\ntype Sink interface{ Take(b []byte) }\n",
			"node/hca/a.go":   "package hca\ntype Ring struct{}\nfunc (Ring) Take(b []byte) {}\n",
		}, nil},
		{"the API calls drivers", map[string]string{
			"verbs/a.go":           "package verbs\ntype Device interface{ Post(b []byte) }\n",
			"driver/endpoint/a.go": "package endpoint\ntype Host struct{}\nfunc (*Host) Post(b []byte) {}\n",
		}, nil},
		{"drivers may", one("driver/live/a.go", "package live\ntype Config struct{ Done func() }\n"), nil},
	})
}
