package tidy

import "testing"

func TestCheckJudging(t *testing.T) {
	source := func(body string) map[string]string {
		return one("driver/live/a_test.go", "package live\nfunc f() {\n"+body+"\n}\n")
	}
	const by, until = "driver/live/a_test.go:4: judges by the clock", "driver/live/a_test.go:3: measures until"
	runPlanted(t, CheckJudging, []planted{
		{"how long it took", source("took := time.Since(began)\nif took > most { t.Error(took) }"), []string{by}},
		{"at once", source("work()\nif took := time.Since(began); most <= took { t.Fatalf(`x`) }"), []string{by}},
		{"among others", source("work()\nif err == nil || time.Since(began) > most { t.Errorf(`x`) }"), []string{by}},
		{"at least", source("if took := time.Since(began); took < time.Second { t.Error(took) }"), nil},
		{"said, not judged", source("if took := time.Since(began); took > time.Second { t.Log(took) }"), nil},
		{"a wait", source("for !is() {\nif time.Since(began) > most { t.Fatal(`x`) }\ntime.Sleep(1)\n}"), nil},
		{"each of many", source("for range 2 {\nif time.Since(began) > most { t.Fatal(`x`) }\n}"), []string{by}},
		{"what others wrote down", source("if time.Since(p.Began) > time.Minute { t.Error(`x`) }"), nil},
		{"vouched", source("// tidy: wall clock, the kernel's\nif time.Since(began) > most { t.Fatal(`x`) }"), nil},
		{"a benchmark", one("driver/live/a_test.go",
			"package live\nfunc BenchmarkF() { if time.Since(began) > most { t.Fatal(`x`) } }"), nil},
		{"measured until it passes", source("eventually(t, `x`, func() bool { b := cputime.Used(t); return b < 5 })"),
			[]string{until}},
		{"with a wait of its own", source("w.eventually(`x`, func() bool { <-time.After(1); return is() })"), nil},
		{"looked", source("eventually(t, `x`, func() bool { return is() })"), nil},
		{"no test", one("driver/live/a.go", "package live\nfunc f() { if time.Since(a) > 1 { t.Fatal(`x`) } }"), nil},
	})
}
