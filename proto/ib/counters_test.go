package ib

import "testing"

func TestCounterNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range NumCounter {
		if n := c.String(); n == "" || seen[n] {
			t.Errorf("counter %d is called %q", uint8(c), n)
		} else {
			seen[n] = true
		}
	}
	if got := NumCounter.String(); got != "Counter(34)" {
		t.Errorf("one past the last is called %q", got)
	}
}

func TestLaneCounterNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range NumLaneCounter {
		if n := c.String(); n == "" || seen[n] {
			t.Errorf("counter %d is called %q", uint8(c), n)
		} else {
			seen[n] = true
		}
	}
	if got := NumLaneCounter.String(); got != "LaneCounter(9)" {
		t.Errorf("one past the last is called %q", got)
	}
}
