package webui

import (
	"fmt"
	"strings"
	"testing"

	"softib/proto/topo"
)

// choose gives the page a file, as a person does who chooses one.
func (b *browser) choose(text string) {
	b.T.Helper()
	b.Until("!!document.getElementById('report-file')")
	eval[bool](b, fmt.Sprintf(`(text => { const all = new DataTransfer(); all.items.add(new File([text], "map.json"));
		const e = document.getElementById("report-file"); e.files = all.files; e.dispatchEvent(new Event("change"));
		return true; })(%q)`, text))
}

// walkReport opens the map of a run on another fabric than the page's, after files that are none.
func walkReport(t *testing.T, b *browser) {
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	busy := topo.PortRef{Node: g.ByName("h3").Index, Port: 1}
	var text strings.Builder
	if err := WriteMap(&text, "fat-tree:radix=4,levels=2", g, Report{Command: "softib sim <b>x", Load: "incast",
		End: 0.0015, Use: func(at topo.PortRef) (float64, float64) {
			if at == busy {
				return 0.25, 0.75
			}
			return 0, 0
		}}); err != nil {
		t.Fatal(err)
	}
	b.open("#/report", "choose DIR/map.json")
	for _, bad := range []string{"", "{", "[]", `{"topology":{}}`,
		strings.Replace(text.String(), `"mean":[`, `"mean":[1,`, 1)} {
		b.choose(bad)
		b.sees("map.json is not a map of a run", "Next: choose")
	}
	b.choose(text.String())
	b.sees("incast", "ends after 1.500 ms", "softib sim <b>x")
	b.noSideways()
	b.open("#/report?sel=h3", "h3", "host", "25 %")
	b.shoot("report")
	b.click("[aria-label='Use of links'] button:last-child")
	b.sees("75 %")
	if n := eval[int](b, "softibMap.m.hostCount"); n != len(g.Hosts()) {
		t.Errorf("the map has %d hosts, want the %d of the run", n, len(g.Hosts()))
	}
	eval[bool](b, "[...document.querySelectorAll(`.map-top button`)].find(e => e.textContent === `Another report`)"+
		".click(), true")
	b.sees("choose DIR/map.json")
	b.open("#/map", "Utilisation", "links up")
	b.Until("softibMap.m.hostCount === 32")
}
