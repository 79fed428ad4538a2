package main

import (
	"io"
	"strings"
	"testing"
)

// TestHeldLog: what was written before the release is shown or dropped as asked, what comes after is always shown.
func TestHeldLog(t *testing.T) {
	for _, c := range []struct {
		open, show bool
		want       string
	}{{false, false, "after\n"}, {false, true, "before\nafter\n"}, {true, false, "before\nafter\n"},
		{true, true, "before\nafter\n"}} {
		var b strings.Builder
		l := &heldLog{to: &b, open: c.open}
		io.WriteString(l, "before\n")
		l.release(c.show)
		io.WriteString(l, "after\n")
		if b.String() != c.want {
			t.Errorf("%+v: %q", c, b.String())
		}
	}
}
