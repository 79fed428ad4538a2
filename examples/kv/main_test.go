package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 30); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`h2 put colour, h3 got "ultramarine"`, "3 clients counted 30 times each: 90",
		"refused: REM_ACCESS_ERR"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
