package tidy

import "testing"

func TestCheckWaits(t *testing.T) {
	source := func(consts, body string) map[string]string {
		return one("driver/live/a.go", "package live\n"+consts+"\nfunc f() {\n"+body+"\n}\n")
	}
	const at = "driver/live/a.go:4: waits for "
	runPlanted(t, CheckWaits, []planted{
		{"a constant", source("const most = 20 * time.Second", "ctx, c := context.WithTimeout(ctx, most)"),
			[]string{at + "20s"}},
		{"one in a group of another file", map[string]string{
			"driver/live/a.go": "package live\n\nfunc f() {\nctx, c := context.WithTimeout(ctx, most)\n}",
			"driver/live/b.go": "package live\nconst (\n\tother = 1\n\tmost = time.Minute\n)\n"},
			[]string{at + "1m0s"}},
		{"a variable, that tests have shorter", source("var most = 20 * time.Second",
			"ctx, c := context.WithTimeout(ctx, most)"), []string{at + "20s"}},
		{"one in a group of another file, and with its type", map[string]string{
			"driver/live/a.go": "package live\n\nfunc f() {\n<-time.After(most)\n}",
			"driver/live/b.go": "package live\nvar (\n\tother int\n\tmost time.Duration = time.Minute\n)\n"},
			[]string{at + "1m0s"}},
		{"a number", source("", "c.SetDeadline(time.Now().Add(10*time.Second))"), []string{at + "10s"}},
		{"a deadline that was made before", source("", "c.SetReadDeadline(now.Add(5*time.Second))"),
			[]string{at + "5s"}},
		{"a loop until then", source("const most = time.Hour", "for end := time.Now().Add(most); ; {}"),
			[]string{at + "1h0m0s"}},
		{"a channel, and some more", source("const most = 9 * time.Second", "<-time.After(most + 2*time.Second)"),
			[]string{at + "9s"}},
		{"patience", source("const most = 20 * time.Second", "c.SetDeadline(time.Now().Add(patience.For(most)))"), nil},
		{"patience for a variable", source("var most = 20 * time.Second", "for l := patience.New(most); !l.Over(); {}"),
			nil},
		{"a variable that has times in it", source("var most, now = table{time.Hour, &x}, func() { _ = time.Hour }",
			"<-time.After(most.of(now))"), nil},
		{"patience's context", source("const most = 20 * time.Second", "patience.Context(ctx, most)"), nil},
		{"short", source("const most = 4 * time.Second", "<-time.After(most)"), nil},
		{"what somebody has said", source("", "u := time.Now().Add(time.Duration(n) * time.Minute)"), nil},
		{"vouched at the wait", source("", "<-time.After(time.Hour) // tidy: not patience, it is the day's plan"), nil},
		{"vouched at the constant", source("// tidy: not patience, the peer's\nconst most = time.Hour",
			"<-time.After(most)"), nil},
		{"vouched at the variable", source("// tidy: not patience, the peer's\nvar most = time.Hour",
			"<-time.After(most)"), nil},
		{"vouched at another", source("const (\n\t// tidy: not patience, a\n\ta = time.Minute\n\n\tmost = time.Hour\n)",
			"<-time.After(most)"), []string{"waits for 1h0m0s"}},
		{"in a test", one("driver/live/a_test.go", "package live\nfunc f() { <-time.After(time.Hour) }"), nil},
		{"in what measures", one("proof/bench/a.go", "package main\nfunc f() { <-time.After(time.Hour) }\n"), nil},
	})
}
