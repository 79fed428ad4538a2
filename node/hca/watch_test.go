package hca

import "testing"

// TestWatch: a watched queue is told of once for all that came, counts what is outside as its own, and
// raises the event that arming makes up for those too.
func TestWatch(t *testing.T) {
	h := New(Config{Ports: 1})
	c, err := h.CreateCQ(4)
	if err != nil {
		t.Fatal(err)
	}
	outside := 0
	c.Watch(func() int { return outside })
	complete := func() bool {
		if c.slot() == nil {
			return false
		}
		c.commit(0, false)
		return true
	}
	complete()
	complete()
	if h.NextNews() != c || h.NextNews() != nil {
		t.Fatal("want it told of once")
	}
	var wc [2]WC
	outside = c.Poll(wc[:])
	if h.ResizeCQ(c, 1) == nil {
		t.Error("resized to less than the program has not taken")
	}
	c.ReqNotifyMissed(false)
	if e, ok := h.PollEvent(); !ok || e.Type != EventCompletion {
		t.Error("no event for completions that are outside and that none has told of")
	}
	complete()
	complete()
	if complete() || !c.Failed() {
		t.Error("a queue of 4 has taken 5")
	}
	if e, ok := h.PollEvent(); !ok || e.Type != EventCQErr {
		t.Errorf("event %v", e.Type)
	}
	if h.NextNews() != c {
		t.Error("not told of what came later")
	}
	c.purge(0, 0)
	if h.NextNews() != c || c.Len() != 0 {
		t.Error("not told of what went with its queue pair")
	}
	c.Watch(nil)
	c.err = false
	c.head = c.tail
	complete()
	if h.NextNews() != nil {
		t.Error("told of a queue that is not watched any more")
	}
}
