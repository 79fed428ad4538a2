package jobs

import (
	"strings"
	"testing"

	"softib/job/play"
	"softib/proto/ib"
	"softib/subnet/route"
)

func losing(t *testing.T, spec, text string, c route.Choice, l Loss, seed uint64) (*Result, *Packets, error) {
	t.Helper()
	f, s := fabricFor(t, spec, text, Options{Adaptive: c, Loss: l, Seed: seed})
	n, err := f.Packets()
	if err != nil {
		return nil, nil, err
	}
	r, err := Run(t.Context(), s, play.Model{}, n, Watch{})
	return r, n, err
}

// TestLoss takes a link between switches down in the middle of a run. With static tables whoever sends over it waits
// for a sweep, or gives up. Switches that choose leave the link alone where they send up; the switch above a
// destination has one way down to it, and tells the others, however far up it is. So nobody needs a manager.
func TestLoss(t *testing.T) {
	long(t)
	const us, spec, text = ib.Microsecond, "fat-tree:radix=8,levels=2", "permutation:size=1M,count=4"
	const timeout = 8 // 1.05 ms
	whole, _, err := losing(t, spec, text, route.NoChoice, Loss{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		spec        string
		choice      route.Choice
		mute        bool
		sweep       ib.Time
		fails       bool
		least, most ib.Time
	}{
		{"static, no sweep", spec, route.NoChoice, false, 0, true, 0, 0},
		// New packets show the receiver the gap, and it says so: nobody waits for a timeout.
		{"static, swept at once", spec, route.NoChoice, false, 10 * us, false, whole.End, whole.End + 100*us},
		{"static, swept late", spec, route.NoChoice, false, 3000 * us, false, 3000 * us, 5000 * us},
		{"adaptive, mute, swept late", spec, route.ByFlowlet, true, 3000 * us, false, whole.End, 5000 * us},
		{"adaptive, mute, no sweep", spec, route.ByPacket, true, 0, true, 0, 0},
		{"adaptive, by packet", spec, route.ByPacket, false, 0, false, 0, 2500 * us},
		{"adaptive, by flowlet", spec, route.ByFlowlet, false, 0, false, 0, 2500 * us},
		{"adaptive, three levels", "fat-tree:radix=6,levels=3", route.ByPacket, false, 0, false, 0, 5000 * us},
	} {
		l := Loss{Part: 0.01, At: 50 * us, Sweep: c.sweep, Timeout: timeout, Mute: c.mute}
		r, n, err := losing(t, c.spec, text, c.choice, l, 1)
		links, timeouts, again := n.Lost()
		t.Logf("%s: %v, %d timeouts, %d packets again, %v", c.name, r.End, timeouts, again, err)
		if links < 1 || links > 2 || again == 0 {
			t.Errorf("%s: %d links are lost, want one in a hundred, and %d packets", c.name, links, again)
		}
		if c.fails {
			if err == nil || !strings.Contains(err.Error(), "after 1 links were lost; next: ") || timeouts < 8 {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || !r.Whole || r.End < c.least || r.End > c.most {
			t.Errorf("%s: %v at %v, want %v to %v", c.name, err, r.End, c.least, c.most)
		}
		if again, _, _ := losing(t, c.spec, text, c.choice, l, 1); again.End != r.End {
			t.Errorf("%s: the same again takes %v instead of %v", c.name, again.End, r.End)
		}
	}
	if _, _, err := losing(t, "star:4", text, route.NoChoice, Loss{Part: 0.01}, 1); err == nil ||
		!strings.Contains(err.Error(), "next: take a larger topology") {
		t.Errorf("a star has lost a link between switches: %v", err)
	}
}
