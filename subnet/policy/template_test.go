package policy

import (
	"strings"
	"testing"

	"softib/proto/ib"
)

// TestTemplates: every class of every template has a level of its own, and every lane that a level takes has a turn.
func TestTemplates(t *testing.T) {
	for _, tpl := range Templates() {
		got, ok := TemplateByName(tpl.Name)
		if !ok || got.Name != tpl.Name || !strings.Contains(TemplateNames(), tpl.Name) {
			t.Errorf("%s is not found", tpl.Name)
		}
		levels := map[ib.SL]bool{}
		for _, c := range tpl.Classes {
			if levels[c.SL] {
				t.Errorf("%s: level %d twice", tpl.Name, c.SL)
			}
			levels[c.SL] = true
			if x, ok := tpl.Class(c.Name); !ok || x != c || !strings.Contains(tpl.ClassNames(), c.Name) {
				t.Errorf("%s: class %s is not found", tpl.Name, c.Name)
			}
		}
		q := tpl.PortQoS()
		turn := map[ib.VL]bool{}
		for _, w := range append(append([]VLWeight(nil), q.VLArbHigh...), q.VLArbLow...) {
			turn[w.VL] = turn[w.VL] || w.Weight > 0
		}
		for sl, vl := range q.SL2VL {
			if !turn[vl] {
				t.Errorf("%s: level %d takes lane %d, which never has a turn", tpl.Name, sl, vl)
			}
		}
		if len(q.VLArbHigh) > 0 && (q.HighLimit == 0 || q.HighLimit == 255) {
			t.Errorf("%s: limit %d", tpl.Name, q.HighLimit)
		}
	}
	if _, ok := TemplateByName("none"); ok {
		t.Error("a template of no name")
	}
	classic, _ := TemplateByName("classic")
	if _, ok := classic.Class("none"); ok {
		t.Error("a class of no name")
	}
}
