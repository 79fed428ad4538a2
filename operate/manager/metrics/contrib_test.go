package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dashboardFile = "../../../contrib/grafana/softib.json"

// dashboard is what of Grafana's format matters here.
type dashboard struct {
	Title         string
	UID           string
	SchemaVersion int
	Annotations   struct{ List []struct{ Expr string } }
	Templating    struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []panel
}

type panel struct {
	ID         int
	Type       string
	Title      string
	GridPos    struct{ H, W, X, Y int }
	Datasource struct{ Type, UID string }
	Targets    []struct{ RefID, Expr string }
}

func readDashboard(t testing.TB) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// expressions are all of the dashboard's queries, by the panel's title.
func (d *dashboard) expressions() map[string][]string {
	all := map[string][]string{}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all[p.Title] = append(all[p.Title], q.Expr)
		}
	}
	return all
}

// metricName is anything in a query that can only be a metric's name. What begins otherwise is a function, a label or a
// word of the language.
var metricName = regexp.MustCompile(`\b(infiniband_(switch|hca|exporter)_|softib_|process_|go_)[a-z0-9_]+`)

// emitted are the names of all families, and those of histograms' and summaries' samples.
func emitted(t testing.TB) map[string]bool {
	t.Helper()
	w := newWorld(t, "star:2")
	_, text := scrape(t, New(w.m), "")
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "#" || f[1] != "TYPE" {
			continue
		}
		names[f[2]] = true
		if f[3] == "histogram" || f[3] == "summary" {
			names[f[2]+"_sum"], names[f[2]+"_count"], names[f[2]+"_bucket"] = true, true, f[3] == "histogram"
		}
	}
	return names
}

// TestNamesUsed: every metric that the rules and the dashboard use is there.
func TestNamesUsed(t *testing.T) {
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	d := readDashboard(t)
	used := map[string]string{}
	note := func(where, text string) {
		for _, n := range metricName.FindAllString(text, -1) {
			used[n] = where
		}
	}
	note("rules", string(rules))
	for title, list := range d.expressions() {
		note(title, strings.Join(list, "\n"))
	}
	for _, v := range d.Templating.List {
		note(v.Name, v.Definition)
	}
	if len(used) < 50 {
		t.Fatalf("only %d names were found: %v", len(used), used)
	}
	names := emitted(t)
	for _, n := range slices.Sorted(maps.Keys(used)) {
		if !names[n] {
			t.Errorf("%s uses %s, which /metrics does not have", used[n], n)
		}
	}
}

// TestDashboard: the file is as Grafana wants it.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 38 {
		t.Errorf("%q, %q, schema %d: want a title, a name, and the schema of Grafana 10 or later", d.Title, d.UID,
			d.SchemaVersion)
	}
	for i, p := range d.Panels {
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if p.ID == q.ID {
				t.Errorf("%q and %q have the same id", p.Title, q.Title)
			}
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q and %q lie on each other", p.Title, q.Title)
			}
		}
		if p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W == 0 || p.GridPos.H == 0 {
			t.Errorf("%q is at %+v of 24 columns", p.Title, p.GridPos)
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%q has the source %q and %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for k, q := range p.Targets {
			if q.RefID != string(rune('A'+k)) || !strings.Contains(q.Expr, `job=~"$job"`) {
				t.Errorf("%q, %s: %s", p.Title, q.RefID, q.Expr)
			}
		}
	}
	vars := map[string]bool{}
	for _, v := range d.Templating.List {
		vars[v.Name] = true
	}
	for _, n := range []string{"datasource", "job", "switch"} {
		if !vars[n] {
			t.Errorf("no variable %s", n)
		}
	}
}
