package endpoint

import (
	"testing"

	"softib/proto/ib"
)

// watchman runs a duty in virtual time: an attendant, a program that looks when it likes, and packets.
type watchman struct {
	duty
	now     ib.Time
	nextAt  ib.Time // the attendant's next turn
	bell    bool    // somebody is on duty, as peers see it
	changed bool    // that was otherwise since the last turn
	looked  uint32
	packets int
	turns   int
	log     []Post
}

const turnTakes = 300 * ib.Nanosecond

func newWatchman() *watchman { return &watchman{duty: newDuty(searchTurns)} }

// run lets the attendant do its turns until a time.
func (w *watchman) run(until ib.Time) {
	for w.nextAt <= until {
		w.now = w.nextAt
		found := w.packets
		w.packets = 0
		post := w.turn(found, w.looked, w.bell, w.changed)
		w.changed = false
		w.turns++
		if n := len(w.log); n == 0 || w.log[n-1] != post {
			w.log = append(w.log, post)
		}
		if b := onDuty[post]; b.says {
			w.bell = b.value
		}
		w.nextAt = w.now + max(w.sleep(ib.Never, false), turnTakes)
		if w.nextAt < w.now { // for ever
			w.nextAt = ib.Never
		}
		if w.nextAt == ib.Never {
			break
		}
	}
	w.now = until
}

// arrive is a packet from a peer, who wakes the attendant if nobody is on duty.
func (w *watchman) arrive() {
	w.packets++
	if !w.bell {
		w.bell, w.changed = true, true
		w.nextAt = min(w.nextAt, w.now)
	}
}

// poll is an empty look of the program.
func (w *watchman) poll() {
	w.looked++
	if w.empty(1).claims && !w.bell {
		w.bell, w.changed = true, true
		w.nextAt = min(w.nextAt, w.now)
	}
}

func (w *watchman) arm() {
	w.rest(w.looked)
	w.changed = w.changed || w.bell
	w.bell = false
}

// pollFor has threads of the program look, each so often, for a while.
func (w *watchman) pollFor(threads int, every, d ib.Time) {
	for end := w.now + d; w.now < end; {
		for range threads {
			w.poll()
		}
		w.run(w.now + every)
	}
}

// TestPosts: what the attendant becomes beside programs of all kinds, and what it costs.
func TestPosts(t *testing.T) {
	for _, c := range []struct {
		name  string
		run   func(*watchman)
		post  Post
		bell  bool // peers take somebody to be on duty
		turns int  // at most
	}{
		{"nobody ever", func(w *watchman) { w.run(ib.Second) }, Asleep, false, 8},
		{"polls tightly", func(w *watchman) { w.pollFor(1, ib.Microsecond, 20*ib.Millisecond) }, Watching, true, 40},
		{"polls from four threads", func(w *watchman) { w.pollFor(4, ib.Microsecond, 20*ib.Millisecond) }, Watching,
			true, 40},
		{"polls rarely", func(w *watchman) { w.pollFor(1, 500*ib.Microsecond, 20*ib.Millisecond) }, Watching, true,
			200},
		{"arms, looks once and sleeps, often", func(w *watchman) {
			for range 200 {
				w.arm()
				w.poll()
				w.run(w.now + 100*ib.Microsecond)
			}
			w.run(w.now + 5*ib.Millisecond)
		}, Asleep, false, 400},
		{"polled, armed and sleeps", func(w *watchman) {
			w.pollFor(1, ib.Microsecond, 5*ib.Millisecond)
			w.arm()
			w.run(w.now + 5*ib.Millisecond)
		}, Asleep, false, 200},
		{"stops for seconds in the middle of polling", func(w *watchman) {
			w.pollFor(1, ib.Microsecond, 5*ib.Millisecond)
			w.run(w.now + 3*ib.Second)
		}, Asleep, false, 200},
		{"stops, and comes back", func(w *watchman) {
			w.pollFor(1, ib.Microsecond, 5*ib.Millisecond)
			w.run(w.now + 3*ib.Second)
			w.pollFor(1, ib.Microsecond, 5*ib.Millisecond)
		}, Watching, true, 400},
		{"never comes back, and packets come", func(w *watchman) {
			w.pollFor(1, ib.Microsecond, 5*ib.Millisecond)
			for range 50 {
				w.arrive()
				w.run(w.now + 3*ib.Millisecond)
				if w.packets > 0 {
					break
				}
			}
		}, Dozing, false, 50 * (searchTurns + 8)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatchman()
			c.run(w)
			if w.post != c.post && !(c.post <= Dozing && w.post <= Dozing) {
				t.Errorf("%v, want %v; it was %v", w.post, c.post, w.log)
			}
			if w.bell != c.bell {
				t.Errorf("on duty for peers: %v, want %v", w.bell, c.bell)
			}
			if w.packets > 0 {
				t.Errorf("%d packets lie unseen", w.packets)
			}
			if w.turns > c.turns {
				t.Errorf("%d turns of the attendant, want %d at most", w.turns, c.turns)
			}
		})
	}
}

// TestWokenAndLeftAlone: who was woken, and finds that somebody has said since that nobody looks, sleeps for a moment
// only. A peer may have seen the bell just before.
func TestWokenAndLeftAlone(t *testing.T) {
	w := newWatchman()
	w.run(ib.Second)
	w.arrive()
	w.packets = 0 // the program takes it in
	w.arm()
	if w.run(w.now); w.post != Dozing {
		t.Errorf("%v, want %v", w.post, Dozing)
	}
	if w.run(w.now + ib.Second); w.post != Asleep {
		t.Errorf("%v a second later, want %v", w.post, Asleep)
	}
}

// TestHurry: where others want its core the attendant retires at once, and not without its last look.
func TestHurry(t *testing.T) {
	d := newDuty(searchTurns)
	d.turn(1, 0, true, false)
	if post := d.turn(0, 0, true, false); post != Searching {
		t.Fatalf("%v after a turn without packets, want %v", post, Searching)
	}
	d.hurry()
	if post := d.turn(0, 0, true, false); post != Retiring {
		t.Errorf("%v after others wanted the core, want %v", post, Retiring)
	}
	d.turn(1, 0, true, false)
	if post := d.turn(0, 0, true, false); post != Searching {
		t.Errorf("%v after more packets, want %v", post, Searching)
	}
}

// TestPostsReachEachOther: the table leads from every post to the others, and whoever sleeps has said so before he
// looked for the last time.
func TestPostsReachEachOther(t *testing.T) {
	for p := range numPosts {
		for s := range numSights {
			to := nextPost[p][s]
			if to <= Dozing && p != Retiring && p > Dozing {
				t.Errorf("from %v it goes to sleep without another look", p)
			}
			if s == sawPackets && to != Working || s == sawPoller && to != Watching {
				t.Errorf("%v goes to %v when it sees %d", p, to, s)
			}
		}
	}
	if b := onDuty[Retiring]; !b.says || b.value {
		t.Error("the last look comes before peers know that nobody looks")
	}
}
