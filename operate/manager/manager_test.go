package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/operate/manager/health"
	"softib/operate/manager/history"
	"softib/proto/ib"
	"softib/proto/topo"
)

// running is a fabric that is up, and its manager.
func running(t *testing.T, spec string, o Options) (*live.Fabric, *Manager) {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return runningGraph(t, g, o)
}

// runningGraph is a fabric of a graph and its manager.
func runningGraph(t *testing.T, g *topo.Graph, o Options) (*live.Fabric, *Manager) {
	t.Helper()
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	o.Fabric = f
	if o.Interval == 0 {
		o.Interval = time.Hour // tests take samples by themselves
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return f, m
}

func TestSample(t *testing.T) {
	_, m := running(t, "fat-tree:radix=4,levels=2", Options{})
	s := m.Sample()
	if len(s.Ports) != len(m.Ports()) || s.Active != len(m.Cables()) || s.Down != 0 {
		t.Fatalf("%d ports, %d active, %d down; want %d, %d, 0", len(s.Ports), s.Active, s.Down, len(m.Ports()),
			len(m.Cables()))
	}
	for i, r := range m.Ports() {
		if k, ok := m.PortIndex(r); !ok || k != i {
			t.Fatalf("PortIndex(%v) is %d, %v", r, k, ok)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	bell := m.Samples(ctx)
	r, err := m.Link("leaf1", "spine1")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetFault(r, FaultSpec{Down: true}, "a test"); err != nil {
		t.Fatal(err)
	}
	m.take(s.At.Add(time.Second))
	<-bell
	s = m.Sample()
	if k, _ := m.PortIndex(r); s.Ports[k].State != ib.PortDown || s.Down != 1 || s.Ports[k].Errors == 0 {
		t.Errorf("a link went down, and the sample says %v, %d down, %v errors a second", s.Ports[k].State, s.Down,
			s.Ports[k].Errors)
	}
	worst := m.Worst()
	if len(worst) != 1 || worst[0].Severity != health.Down || m.LinkName(worst[0].Cable) != "leaf1[3] spine1[1]" {
		t.Errorf("worst cables: %+v", worst)
	}
	if err := m.SetFault(r, FaultSpec{}, "a test"); err != nil {
		t.Fatal(err)
	}
	if got := m.Faults(); len(got) != 0 {
		t.Errorf("faults after they were lifted: %+v", got)
	}
	var kinds []string
	for _, e := range m.Journal().After(0, 10) {
		kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.Severity))
	}
	if got, want := strings.Join(kinds, ", "), "fault warning, alarm critical, alarm warning, fault info"; got != want {
		t.Errorf("the journal has %s, want %s", got, want)
	}
	alarms := m.Alarms()
	if len(alarms) != 2 || alarms[0].Kind != health.LinkDown || !m.ClearAlarm(alarms[0].ID) ||
		m.ClearAlarm(alarms[0].ID) || len(m.Alarms()) != 1 {
		t.Errorf("alarms were %+v", alarms)
	}
}

// TestWaitShare: what a port has waited for credits is a part of the time, and so all of it at most, also where a
// device counts in shorter ticks.
func TestWaitShare(t *testing.T) {
	_, m := running(t, "star:2", Options{})
	last := m.Sample()
	i := 0
	words := float64(last.Ports[i].Rate.Mbps()) * 1e6 / 32 // in a second
	if words == 0 {
		t.Fatal("the first port has no link")
	}
	for _, c := range []struct{ waited, want float64 }{{0, 0}, {0.25, 0.25}, {1, 1}, {5, 1}} {
		s := &Sample{Interval: 2 * time.Second, Ports: slices.Clone(last.Ports)}
		s.Ports[i].Counters[ib.PortXmitWait] += uint64(2 * c.waited * words)
		if m.rates(s, last); math.Abs(float64(s.Ports[i].Wait)-c.want) > 1e-3 || s.Ports[i].Wait > 1 {
			t.Errorf("%g of the time is %g, want %g", c.waited, s.Ports[i].Wait, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	_, m := running(t, "fat-tree:radix=4,levels=2", Options{})
	for _, c := range []struct{ a, b, want string }{
		{"h1", "", "h1[1]"}, {"h1", "leaf1", "h1[1]"}, {"leaf1", "h1", "leaf1[1]"}, {"leaf1[3]", "", "leaf1[3]"},
		{"leaf1/3", "spine1", "leaf1[3]"},
		{"leaf1[3]", "spine1[1]", "leaf1[3]"}, {"leaf1", "spine1[1]", "leaf1[3]"},
		{m.Graph().Nodes[0].GUID.String(), "", "h1[1]"},
	} {
		r, err := m.Link(c.a, c.b)
		if err != nil || m.Graph().PortName(r) != c.want {
			t.Errorf("Link(%q, %q) = %s, %v; want %s", c.a, c.b, m.Graph().PortName(r), err, c.want)
		}
	}
	for _, c := range [][2]string{{"nobody", ""}, {"leaf1", ""}, {"leaf1[9]", ""}, {"leaf1[0]", ""}, {"h1", "h2"},
		{"leaf1[1]", "spine1"}, {"leaf1", "nobody"}, {"", ""}} {
		if r, err := m.Link(c[0], c[1]); !errors.Is(err, ErrUnknown) {
			t.Errorf("Link(%q, %q) = %v, %v", c[0], c[1], r, err)
		}
	}
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]FaultSpec{
		"down": {Down: true}, "up": {}, "ber=1e-09": {BER: 1e-9}, "rate=10G": {Rate: 1e10},
		"rate=2.5G delay=5µs": {Rate: 25e8, Delay: 5 * time.Microsecond},
		"drop=1":              {Drop: 1}, "rate=9600": {Rate: 9600},
		"retrain": {Retrain: true}, "ber=1e-06 from=leaf1[3]": {BER: 1e-6, From: "leaf1[3]"},
	} {
		got, err := ParseFault(strings.Fields(text))
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := ParseFault(strings.Fields(got.String())); err != nil || again != got {
			t.Errorf("%q became %q: %+v, %v", text, got.String(), again, err)
		}
	}
	for _, text := range []string{"", "sideways", "ber", "ber=2", "ber=x", "ber=NaN", "drop=1.1", "rate=-1",
		"rate=fast", "delay=5", "delay=-1s", "down ber=0.1", "up down", "down=1", "retrain ber=0.1", "retrain=2",
		"from=h1", "ber=0.1 from=", "down from=h1",
		// No fault at all is said with up, not by chance; and of two that are said, which?
		"ber=0", "ber=1e-400", "drop=0", "rate=0", "rate=0.5 delay=1us", "delay=0", "ber=1e-7 ber=1e-8", "rate=1e400",
		"rate=inf"} {
		if got, err := ParseFault(strings.Fields(text)); !errors.Is(err, ErrFault) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]int64{"10Gb/s": 1e10, "100M": 1e8, "1.5kbps": 1500} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// TestFaultsThatCannotBe: what the fabric refuses is a wrong fault too, and leaves the cable as it was.
func TestFaultsThatCannotBe(t *testing.T) {
	f, m := running(t, "star:3", Options{})
	at := topo.PortRef{Node: m.Graph().ByName("h1").Index, Port: 1}
	if err := m.SetFault(at, FaultSpec{Drop: 0.5}, "test"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []FaultSpec{{Rate: 1}, {Delay: time.Hour}, {BER: 2}} {
		if err := m.SetFault(at, s, "test"); !errors.Is(err, ErrFault) || !errors.Is(err, live.ErrFault) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if got := f.Faults(); len(got) != 1 || got[0].Fault != (live.Fault{Drop: 0.5}) {
		t.Errorf("the fabric has %+v", got)
	}
}

// TestOnlyCable: a host with one cable is its link, however many ports it has.
func TestOnlyCable(t *testing.T) {
	g, err := topo.Parse("two.topo", []byte(twoPorts))
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := New(Options{Fabric: f, Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if r, err := m.Link("one", ""); err != nil || r != (topo.PortRef{Node: g.ByName("one").Index, Port: 2}) {
		t.Errorf("%v, %v", r, err)
	}
	for _, name := range []string{"both", "one[1]"} {
		if r, err := m.Link(name, ""); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

const twoPorts = `vendid=0x2c9
devid=0xd2f0
sysimgguid=0x100
switchguid=0x100(100)
Switch	4 "S-0000000000000100"		# "leaf" enhanced port 0 lid 1 lmc 0
[1]	"H-0000000000000200"[1](201) 		# "both" lid 2 4xNDR
[2]	"H-0000000000000200"[2](202) 		# "both" lid 3 4xNDR
[3]	"H-0000000000000300"[2](302) 		# "one" lid 4 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x200
caguid=0x200
Ca	2 "H-0000000000000200"		# "both"
[1](201) 	"S-0000000000000100"[1]		# lid 2 lmc 0 "leaf" lid 1 4xNDR
[2](202) 	"S-0000000000000100"[2]		# lid 3 lmc 0 "leaf" lid 1 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x300
caguid=0x300
Ca	2 "H-0000000000000300"		# "one"
[2](302) 	"S-0000000000000100"[3]		# lid 4 lmc 0 "leaf" lid 1 4xNDR
`

func TestRoute(t *testing.T) {
	f, m := running(t, "fat-tree:radix=4,levels=2", Options{})
	at := func(name string) topo.PortRef {
		r, err := m.Port(name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	w, err := m.Route(t.Context(), at("h1"), at("h8"))
	if err != nil || !w.Arrives || len(w.Hops) != 4 || w.Hops[3].In != at("h8") {
		t.Fatalf("%+v, %v", w, err)
	}
	if err := f.SetLink(at("h8"), false); err != nil {
		t.Fatal(err)
	}
	if w, err := m.Route(t.Context(), at("h1"), at("h8")); err != nil || w.Arrives || w.Why == "" {
		t.Errorf("the last cable is down: %+v, %v", w, err)
	}
}

func TestJournal(t *testing.T) {
	j := NewJournal()
	for range journalMax + 10 {
		j.Add(Event{Kind: "test"})
	}
	all := j.After(0, 1<<30)
	if len(all) != journalMax || all[0].ID != 11 || all[len(all)-1].ID != journalMax+10 {
		t.Fatalf("%d events from %d to %d", len(all), all[0].ID, all[len(all)-1].ID)
	}
	if got := j.After(j.Last()-3, 2); len(got) != 2 || got[1].ID != j.Last() {
		t.Errorf("%+v", got)
	}
	if got := j.After(j.Last()+5, 10); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	for id, want := range map[uint64]bool{0: false, 10: false, 11: true, j.Last(): true, j.Last() + 1: false} {
		if e, ok := j.Get(id); ok != want || ok && e.ID != id {
			t.Errorf("Get(%d) = %+v, %v", id, e, ok)
		}
	}
}

func TestAdminLatency(t *testing.T) {
	_, m := running(t, "star:3", Options{})
	m.probeAdmin(t.Context())
	if l := m.AdminLatency(); l.Count != 0 || l.Failed != 1 {
		t.Errorf("the manager has gone, and its administrator answered: %+v", l)
	}
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	f, m := running(t, "star:3", Options{Dir: dir})
	at := m.Sample().At
	r, err := m.Port("h1")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 20; i++ {
		if i == 10 {
			for range 3 {
				if err := errors.Join(f.SetLink(r, false), f.SetLink(r, true)); err != nil {
					t.Fatal(err)
				}
			}
		}
		m.take(at.Add(time.Duration(i) * time.Second))
	}
	flaps := func(m *Manager) (n float64) {
		s, err := m.PortHistory(r, history.LinkDowned, at, at.Add(time.Minute), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Points {
			n += p.Avg * s.Step.Seconds()
		}
		return n
	}
	if got := flaps(m); math.Abs(got-3) > 0.01 {
		t.Errorf("the link went down 3 times, the history has %g", got)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := New(Options{Fabric: f, Dir: dir, Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got := flaps(again); math.Abs(got-3) > 0.01 {
		t.Errorf("opened again, the history has %g", got)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}

	// A file that is no history is put aside, and said so.
	if err := os.WriteFile(filepath.Join(dir, historyFile), bytes.Repeat([]byte("x"), 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err = New(Options{Fabric: f, Dir: dir, Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if e := again.Journal().After(0, 1); len(e) != 1 || e[0].Kind != "history" || e[0].Severity != Warning {
		t.Errorf("the journal has %+v", e)
	}
	if got := flaps(again); got != 0 {
		t.Errorf("a new history has %g", got)
	}
}

// TestHistoryDamaged: whatever has happened to the history's file, a fabric comes up. A file that cannot be read, or
// that cannot take the ports of a larger fabric, is put aside, which is said.
func TestHistoryDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, historyFile)
	_, m := running(t, "star:4", Options{Dir: dir})
	for i := range 10 {
		m.take(time.Now().Add(time.Duration(i) * time.Minute))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	larger, _ := running(t, "star:24", Options{})
	aside, taken := 0, 0
	try := func(what string, file []byte) {
		t.Helper()
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := New(Options{Fabric: larger, Dir: dir, Interval: time.Hour})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer m.Close()
		name := m.HistoryAside()
		if name == "" {
			taken++
			return
		}
		aside++
		if now, err := os.ReadFile(name); err != nil || len(now) != len(file) {
			t.Errorf("%s: %d bytes are put aside, %v: want %d", what, len(now), err, len(file))
		}
		if e := m.Journal().After(0, 1); len(e) != 1 || e[0].Kind != "history" || e[0].Object != name {
			t.Errorf("%s: the journal has %+v", what, e)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	page := os.Getpagesize()
	for n := 0; n < len(whole); n += page / 2 {
		try(fmt.Sprintf("cut off after %d bytes", n), whole[:n])
	}
	for at := 0; at < len(whole); at += page {
		for _, b := range []byte{0, 0xff, 'x'} {
			file := bytes.Clone(whole)
			copy(file[at:], bytes.Repeat([]byte{b}, page))
			try(fmt.Sprintf("page %d full of %#x", at/page, b), file)
		}
	}
	t.Logf("%d put aside, %d taken", aside, taken)
	if aside == 0 || taken == 0 {
		t.Errorf("%d put aside, %d taken", aside, taken)
	}
}
