package main

import (
	"errors"
	"io"
	"testing"
	"time"

	"softib/internal/cputime"
	"softib/operate/status"
)

// What was done is noted with its time on the clock and of the processors, also where it failed.
func TestSteps(t *testing.T) {
	out := toTerminal(newTerminal(io.Discard))
	failed := errors.New("failed")
	_ = out.during("working", func() error {
		for began := cputime.Used(t); cputime.Used(t)-began < 20*time.Millisecond; {
		}
		return nil
	})
	if err := out.timed("failing", func() error { return failed }); err != failed {
		t.Error(err)
	}
	if s := out.steps; len(s) != 2 || s[0].What != "working" || s[0].CPUSec < 0.02 || s[0].TookSec <= 0 ||
		s[1].What != "failing" {
		t.Errorf("%+v", s)
	}
	for want, steps := range map[string][]status.Step{
		"": {{What: "making the nodes", TookSec: 0.5, CPUSec: 4}},
		"took 2s, 3s of the processors: a 1.9s (2s), b 90ms (1s)": {{What: "a", TookSec: 1.9, CPUSec: 2},
			{What: "b", TookSec: 0.09, CPUSec: 1}, {What: "c", TookSec: 0.01}},
	} {
		if got := stepsText(steps); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
