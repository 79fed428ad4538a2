package tidy

import (
	"os"
	"testing"
)

// rules is every rule, by the name under which it is tested.
var rules = []struct {
	name  string
	check func(*Module) []Complaint
}{
	{"ranks", CheckRanks},
	{"layers", CheckLayers},
	{"walk", CheckWalk},
	{"rooms", CheckRooms},
	{"bans", CheckBans},
	{"map order", CheckMapOrder},
	{"callbacks", CheckCallbacks},
	{"waits", CheckWaits},
	{"judging", CheckJudging},
	{"doc", CheckDoc},
	{"names", CheckNames},
	{"length", CheckLength},
	{"width", CheckWidth},
	{"format", CheckFormat},
	{"words", CheckWords},
}

// TestModule holds every rule against this module.
func TestModule(t *testing.T) {
	m, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Packages) < 3 || len(m.Texts) == 0 {
		t.Fatalf("loaded %d packages and %d texts: the root is wrong", len(m.Packages), len(m.Texts))
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			for _, c := range rule.check(m) {
				t.Error(c)
			}
		})
	}
}
