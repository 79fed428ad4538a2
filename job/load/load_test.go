package load

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
)

func made(t *testing.T, text string, ranks int) *job.Schedule {
	t.Helper()
	l, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(ranks, 7)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// TestPatterns: who sends how much to whom.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		text     string
		ranks    int
		messages int
		bytes    uint64
		fits     func(from, to int) bool
	}{
		{"permutation:size=10", 9, 9, 90, func(from, to int) bool { return from != to }},
		{"shift:by=2,size=1K,count=3", 8, 24, 24 << 10, func(from, to int) bool { return to == (from+2)%8 }},
		{"uniform:size=1,count=10", 5, 50, 50, func(from, to int) bool { return from != to }},
		{"incast:to=3,size=2M", 6, 5, 10 << 20, func(_, to int) bool { return to == 3 }},
		{"incast:to=3,senders=2,size=1", 6, 2, 2, func(from, to int) bool { return to == 3 && from > 3 }},
		{"outcast:from=1,size=5,count=2", 4, 6, 30, func(from, _ int) bool { return from == 1 }},
		{"all-to-all:size=3,algorithm=pairwise", 6, 30, 90, func(from, to int) bool { return from != to }},
		{"all-reduce:size=60,algorithm=ring,count=2", 6, 120, 1200,
			func(from, to int) bool { return to == (from+1)%6 }},
		{"all-reduce:size=64,algorithm=ring,per-host=2", 8, 64, 896, func(from, to int) bool { return from != to }},
		{"all-gather:size=10,algorithm=ring", 4, 12, 120, func(from, to int) bool { return to == (from+1)%4 }},
		{"barrier", 8, 24, 0, func(from, to int) bool { return from != to }},
		{"neighbours:dims=2,size=8,steps=2", 16, 128, 1024, func(from, to int) bool { return from != to }},
		{"neighbours:dims=3,size=8,every=0", 27, 0, 0, nil},
		{"neighbours:dims=3,size=8", 27, 162, 1296, func(from, to int) bool { return from != to }},
		{"permutation:size=10,count=4,every=500", 4, 16, 160, func(from, to int) bool { return from != to }},
	} {
		if c.fits == nil {
			if _, err := Parse(c.text); !errors.Is(err, ErrLoad) {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		s := made(t, c.text, c.ranks)
		if _, messages, bytes := s.Count(); messages != c.messages || bytes != c.bytes {
			t.Errorf("%s: %d messages of %d bytes, want %d of %d", c.text, messages, bytes, c.messages, c.bytes)
		}
		for from := range s.Ranks {
			for _, o := range s.Ranks[from].Ops {
				if o.Kind == job.Send && !c.fits(from, int(o.Peer)) {
					t.Errorf("%s: rank %d sends to %d", c.text, from, o.Peer)
				}
			}
		}
	}
}

// TestSizes: sizes follow what was published.
func TestSizes(t *testing.T) {
	for name, want := range map[string]struct{ mean, least, most float64 }{
		// Means of the tables, computed from their trapezoids.
		"web": {1.6e6, 1, 30e6}, "hadoop": {12.6e6, 1, 1e9}, "storage": {171e3, 512, 4194304},
	} {
		s := made(t, "uniform:count=20000,size="+name, 4)
		_, messages, bytes := s.Count()
		if mean := float64(bytes) / float64(messages); math.Abs(mean/want.mean-1) > 0.1 {
			t.Errorf("%s: messages have %.0f bytes, want %.0f", name, mean, want.mean)
		}
		for _, o := range s.Ranks[0].Ops {
			if o.Kind == job.Send && (float64(o.Size) < want.least || float64(o.Size) > want.most) {
				t.Errorf("%s: a message of %d bytes", name, o.Size)
			}
		}
	}
}

// TestRefused: what is wrong with a text is said, and what would be right.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"dance":                             "want one of permutation, shift",
		"shift:far=1":                       "want by=, size=",
		"shift:by":                          "want by=, size=",
		"shift:by=0":                        "want a number from 1 to 3",
		"shift:by=x":                        "want a number from 1 to 3",
		"shift:size=5T":                     "size=5T",
		"shift:size=big":                    "size=big",
		"uniform:count=16000000":            "more than fit into memory",
		"all-reduce:algorithm=no":           "want ring, recursive-doubling",
		"all-reduce:per-host=3":             "do not make hosts of 3",
		"neighbours:dims=4":                 "want a number from 2 to 3",
		"permutation:every=999999999999999": "every=",
	} {
		l, err := Parse(text)
		if err == nil {
			_, err = l.Schedule(4, 1)
		}
		if !errors.Is(err, ErrLoad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	l, _ := Parse("all-reduce:algorithm=ring,count=1000000")
	if _, err := l.Schedule(8, 1); !errors.Is(err, ErrLoad) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a million rings of eight: %v", err)
	}
	l, _ = Parse("shift")
	if _, err := l.Schedule(1, 1); !errors.Is(err, ErrLoad) {
		t.Errorf("one rank: %v", err)
	}
}

// TestGrid: grids are as even as the number lets them be.
func TestGrid(t *testing.T) {
	for n, want := range map[int][]int{16: {4, 4}, 12: {3, 4}, 7: {1, 7}, 1024: {32, 32}} {
		if got := Grid(n, 2); got[0]*got[1] != n || got[0] != want[0] {
			t.Errorf("%d places are %v, want %v", n, got, want)
		}
	}
	if got := Grid(64, 3); got[0] != 4 || got[1] != 4 || got[2] != 4 {
		t.Errorf("64 places are %v", got)
	}
}

// FuzzParse: any text is a load or an error, and a load makes a schedule or an error.
func FuzzParse(f *testing.F) {
	f.Add("incast:to=3,size=1M")
	f.Add("uniform:size=web,count=3,window=2,every=100")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		for name, most := range map[string]uint64{"count": 50, "steps": 50} {
			if v, err := Bytes(l.set[name]); err == nil && v > most {
				return // it is the user's memory, but the fuzzer's time
			}
		}
		if _, err := l.Schedule(5, 1); err != nil && !errors.Is(err, ErrLoad) {
			t.Fatal(err)
		}
	})
}

// TestPingPong: pairs answer each other, so that each message waits for the one before it, both ways.
func TestPingPong(t *testing.T) {
	l, err := Parse("ping-pong:count=3,size=16")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(4, 1)
	if err != nil {
		t.Fatal(err)
	}
	p := play.New(s, play.Model{Ideal: true, Latency: ib.Microsecond})
	for !p.Done() {
		p.HandleTimeout(p.NextDeadline())
	}
	if _, messages, _ := s.Count(); messages != 2*6 || p.End(0) != 6*ib.Microsecond {
		t.Errorf("%d messages, end at %v", messages, p.End(0))
	}
}

// TestBursts: after two messages a sender is silent for a while.
func TestBursts(t *testing.T) {
	l, err := Parse("shift:count=6,window=6,burst=2,idle=5000")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Schedule(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	p := play.New(s, play.Model{Ideal: true, Latency: ib.Microsecond})
	for !p.Done() {
		p.HandleTimeout(p.NextDeadline())
	}
	var starts []ib.Time
	for _, m := range p.Records() {
		if m.From == 0 {
			starts = append(starts, m.Start/ib.Microsecond)
		}
	}
	if want := []ib.Time{0, 0, 6, 6, 12, 12}; !slices.Equal(starts, want) { // a burst takes 1 us, the silence 5
		t.Errorf("messages begin at %v us, want %v", starts, want)
	}
}

// TestFit: a collective is done in servers first where ranks are in some, unless somebody says how.
func TestFit(t *testing.T) {
	for text, want := range map[string]string{
		"all-reduce:size=64M":               "all-reduce by ring among the same GPUs of all servers, after",
		"all-reduce:size=1K,algorithm=auto": "by recursive-doubling among the same",
		"all-reduce:size=1K,algorithm=ring": "all-reduce by ring among all",
		"all-reduce:size=1K,per-host=2":     "among the 2 of each",
		"all-to-all:size=64K":               "all-to-all by pairwise among all",
	} {
		l, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		l.Fit(4)
		if _, err := l.Schedule(16, 1); err != nil {
			t.Fatal(err)
		}
		if len(l.Says()) != 1 || !strings.Contains(l.Says()[0], want) {
			t.Errorf("%s: %v, want %q", text, l.Says(), want)
		}
	}
}
