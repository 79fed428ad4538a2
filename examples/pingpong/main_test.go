package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 50); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"h1 (LID", "50 round trips", `the last reply: "ping 49, and back"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
