package manager

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/topo"
)

// What stands is told as it is now, and once it has stopped, as what it was. What is over is told without its words.
func TestOpenAlarms(t *testing.T) {
	dir := t.TempDir()
	f, m := running(t, "star:3", Options{Interval: time.Hour, Dir: dir})
	h2 := topo.PortRef{Node: f.Graph().ByName("h2").Index, Port: 1}
	link := f.SetLink(h2, false)
	m.take(time.Now())
	if link != nil {
		t.Fatal(link)
	}
	find := func(k health.Kind) (found OpenAlarm) {
		t.Helper()
		for _, a := range m.OpenAlarms() {
			if a.Kind == k {
				return a
			}
		}
		return found
	}
	down := find(health.LinkDown)
	if down.Text != "down at both ends" || down.IsQuiet || !strings.Contains(down.Link, "h2[1]") {
		t.Fatalf("%+v", m.OpenAlarms())
	}
	if err := f.SetLink(h2, true); err != nil {
		t.Fatal(err)
	}
	m.take(time.Now().Add(time.Second))
	if a := find(health.LinkDown); a.ID != 0 {
		t.Errorf("the link is up, and yet %+v", a)
	}
	events := m.Journal().After(0, 100)
	last := events[len(events)-1]
	if !strings.Contains(last.Text, "is well again") || strings.Contains(last.Text, "down at") ||
		last.Severity != Info {
		t.Errorf("cleared: %+v", last)
	}
	// It went down once: that is so for as long as it is looked back on, and then was so.
	if a := find(health.Flapping); a.IsQuiet || !strings.HasPrefix(a.Text, "1 time down in ") {
		t.Errorf("%+v", a)
	}
	// Two baselines later.
	for _, after := range []time.Duration{61, 122, 183, 184} {
		m.take(time.Now().Add(after * time.Second))
	}
	if a := find(health.Flapping); !a.IsQuiet || !strings.HasPrefix(a.Text, "quiet for ") {
		t.Errorf("minutes later: %+v", a)
	}

	a := find(health.Flapping)
	if err := m.Acknowledge(a.ID, "ann", "cable ordered"); err != nil {
		t.Fatal(err)
	}
	if a = find(health.Flapping); a.Acknowledged == nil || a.Acknowledged.By != "ann" {
		t.Errorf("%+v", a)
	}
	if err := m.Acknowledge(999, "ann", ""); !errors.Is(err, ErrNoAlarm) {
		t.Error(err)
	}
	if err := m.Acknowledge(a.ID, "ann", strings.Repeat("x", noteMax+1)); !errors.Is(err, ErrLongNote) {
		t.Error(err)
	}
	for _, bad := range []Mute{{}, {Kind: "bad luck"}} {
		if _, err := m.AddMute(bad); !errors.Is(err, ErrBadMute) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	other, err := m.AddMute(Mute{Kind: health.Slow.String(), By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if a = find(health.Flapping); a.Muted != nil {
		t.Errorf("muted by a rule about another kind: %+v", a)
	}
	u, err := m.AddMute(Mute{Link: a.Link, By: "ann", Until: time.Now().Add(time.Hour)})
	if err != nil || u.ID == other.ID {
		t.Fatal(u, err)
	}
	if a = find(health.Flapping); a.Muted == nil || a.Muted.ID != u.ID {
		t.Errorf("%+v", a)
	}
	if _, err := m.AddMute(Mute{Kind: health.Flapping.String(), Until: time.Now().Add(-time.Second)}); err != nil {
		t.Error(err)
	}
	if list := m.Mutes(); len(list) != 2 {
		t.Errorf("rules whose time is over: %+v", list)
	}
	if err := m.RemoveMute(other.ID, "ann"); err != nil {
		t.Error(err)
	}
	if err := m.RemoveMute(other.ID, "ann"); !errors.Is(err, ErrNoMute) {
		t.Error(err)
	}
	// Rules outlive the process, and a file that is damaged does not keep a fabric from starting.
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	_, again := running(t, "star:3", Options{Interval: time.Hour, Dir: dir})
	if list := again.Mutes(); len(list) != 1 || list[0].Link != u.Link {
		t.Errorf("after a restart: %+v", list)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, mutesFile), []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, damaged := running(t, "star:3", Options{Interval: time.Hour, Dir: dir})
	if list := damaged.Mutes(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestMuteEachKind: an alarm of any kind is muted by what it is about, be it a node or a cable, whichever end of the
// cable was found first, and by nothing else.
func TestMuteEachKind(t *testing.T) {
	_, m := running(t, "fat-tree:radix=4,levels=2", Options{Patience: &[health.NumKind]health.Patience{}})
	now := wellRead(t, m)
	node := topo.PortRef{Node: m.g.ByName("h6").Index}
	cable := m.cables[len(m.cables)-1]
	for k := range health.NumKind {
		for _, at := range []struct {
			a, b topo.PortRef
			want string
		}{
			{node, node, "h6"}, {topo.PortRef{Node: node.Node, Port: 1}, topo.PortRef{Node: node.Node, Port: 1}, "h6"},
			{cable.A, cable.B, m.LinkName(len(m.cables) - 1)}, {cable.B, cable.A, m.LinkName(len(m.cables) - 1)},
		} {
			m.static.list.Store(&[]health.Verdict{about(k, health.Watch, at.a, at.b, "it is", "do")})
			now = now.Add(time.Second)
			m.take(now)
			open := func() OpenAlarm {
				t.Helper()
				list := m.OpenAlarms() // with that of a fabric that nobody manages
				i := slices.IndexFunc(list, func(a OpenAlarm) bool { return a.Kind == k && a.Reason.Said == "it is" })
				if i < 0 {
					t.Fatalf("%v: %+v", k, list)
				}
				return list[i]
			}
			if got := open().Link; got != at.want {
				t.Errorf("%v of %v %v is of %q, want %q", k, at.a, at.b, got, at.want)
			}
			for link, covers := range map[string]bool{at.want: true, "h5": false, m.LinkName(0): false} {
				u, err := m.AddMute(Mute{Link: link, Kind: k.String(), By: "ann"})
				if err != nil {
					t.Fatal(err)
				}
				if got := open().Muted != nil; got != covers {
					t.Errorf("%v of %s: a rule about %s mutes it: %v, want %v", k, at.want, link, got, covers)
				}
				if err := m.RemoveMute(u.ID, "ann"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestFlapIsOver: a link that went down once is looked back on for a baseline or two, and is quiet from the moment at
// which the older of them begins after it. The alarm goes when it has been quiet for as long as its kind has to be.
func TestFlapIsOver(t *testing.T) {
	for _, c := range []struct {
		down time.Duration // after the first sample
		last time.Duration // it is told until then
	}{
		{time.Second, 2*judgeSpan - time.Millisecond},
		{judgeSpan, 2*judgeSpan - time.Millisecond},
		{judgeSpan + time.Second, 3*judgeSpan - time.Millisecond},
	} {
		f, m := running(t, "star:2", Options{})
		began := m.Sample().At
		flap := func() (OpenAlarm, bool) {
			for _, a := range m.OpenAlarms() {
				if a.Kind == health.Flapping {
					return a, true
				}
			}
			return OpenAlarm{}, false
		}
		h2 := topo.PortRef{Node: f.Graph().ByName("h2").Index, Port: 1}
		happened := false
		at := func(d time.Duration) {
			m.take(began.Add(d))
			happened = happened || d >= c.down
		}
		told := func(d time.Duration) {
			t.Helper()
			at(d)
			if a, ok := flap(); happened && (!ok || a.IsQuiet || !strings.HasPrefix(a.Text, "1 time down in ")) {
				t.Errorf("down at %v: %v later it is %+v", c.down, d-c.down, a)
			}
		}
		// Baselines are taken with samples; these come each half of one, and where something is to be seen.
		for d := judgeSpan / 2; d < c.last; d += judgeSpan / 2 {
			if d >= c.down && !happened {
				for _, up := range []bool{false, true} {
					if err := f.SetLink(h2, up); err != nil {
						t.Fatal(err)
					}
				}
				told(c.down)
			}
			told(d)
		}
		told(c.last)
		at(c.last + time.Millisecond)
		if a, ok := flap(); !ok || !a.IsQuiet || !strings.HasPrefix(a.Text, "quiet for ") {
			t.Errorf("down at %v: it is over, and yet %+v", c.down, a)
		}
		clear := health.DefaultPatience()[health.Flapping].Clear
		at(c.last + clear - time.Millisecond)
		if _, ok := flap(); !ok {
			t.Errorf("down at %v: the alarm went too early", c.down)
		}
		at(c.last + clear)
		if a, ok := flap(); ok {
			t.Errorf("down at %v: quiet for %v, and yet %+v", c.down, clear, a)
		}
	}
}

// Damage is counted once, and what is discarded is no damage.
func TestErrorsCountedOnce(t *testing.T) {
	var c ib.Counters
	c[ib.SymbolErrorCounter], c[ib.PortRcvErrors], c[ib.LocalLinkIntegrityErrors] = 30, 10, 2
	c[ib.PortXmitDiscards], c[ib.PortRcvConstraintErrors], c[ib.PortRcvRemotePhysicalErrors] = 1000, 5, 7
	c[ib.LinkDownedCounter] = 1
	if got := ErrorTotal(&c); got != 31 {
		t.Errorf("%d errors", got)
	}
	if got := c.Discards(); got != 1005 {
		t.Errorf("%d discards", got)
	}
}
