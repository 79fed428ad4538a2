package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"softib/operate/manager"
	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/subnet/sm"
)

func TestFaultCommands(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{SweepInterval: -1})
	wants(t, shown(t, "fault", "list"), "no fault is set")
	wants(t, shown(t, "fault", "link", "leaf1", "spine1", "down"), "leaf1[3] spine1[1]", "down")
	if s := l.PortState(l.ref("leaf1", 3)); s.String() != "Down" {
		t.Errorf("leaf1[3] is %v", s)
	}
	shown(t, "fault", "link", "h3", "ber=1e-6", "delay=5us")
	list := asJSON[[]manager.Fault](t, shown(t, "fault", "list", "--json"))
	if len(list) != 2 || list[0].Link != "h3[1] leaf2[1]" || list[0].BER != 1e-6 ||
		list[0].Delay != 5*time.Microsecond || !list[1].Down {
		t.Errorf("faults are %+v", list)
	}
	if got := l.Faults(); len(got) != 1 || got[0].BER != 1e-6 {
		t.Errorf("the fabric has %+v", got)
	}
	broken(t, exitUsage, []string{"no cable joins h1 and h2"}, "fault", "link", "h1", "h2", "down")
	broken(t, exitUsage, []string{`"sideways"`, "down, up, retrain, ber="}, "fault", "link", "h1", "leaf1", "sideways")
	broken(t, exitUsage, []string{"rate", "10G"}, "fault", "link", "h1", "rate=fast")
	broken(t, exitUsage, []string{"leaf1 has ports 1 to 4"}, "fault", "link", "leaf1", "down")
	broken(t, exitUsage, []string{"rate=0", "10G"}, "fault", "link", "h3", "rate=0")
	broken(t, exitUsage, []string{"h1[1] leaf1[1]", "1000"}, "fault", "link", "h1", "rate=1")
	if got := l.Faults(); len(got) != 1 || got[0].BER != 1e-6 {
		t.Errorf("after faults that cannot be the fabric has %+v", got)
	}
	shown(t, "fault", "link", "leaf1", "spine1", "up")
	// One way only, a link that trains again, and a switch that reboots.
	wants(t, shown(t, "fault", "link", "leaf1", "spine1", "drop=0.5", "from=leaf1"), "drop=0.5 from=leaf1[3]")
	broken(t, exitUsage, []string{"leaf1[3] or spine1[1]"}, "fault", "link", "leaf1", "spine1", "drop=0.5", "from=h1")
	wants(t, shown(t, "fault", "link", "leaf1", "spine1", "retrain"), "drop=0.5 from=leaf1[3]")
	for _, r := range []topo.PortRef{l.ref("leaf1", 3), l.ref("spine1", 1)} {
		c := l.CountersOf([]topo.PortRef{r})[0]
		if up, down := c[ib.LinkErrorRecoveryCounter], c[ib.LinkDownedCounter]; up != 1 || down != 1 {
			t.Errorf("%v has recovered %d times and was down %d times", r, up, down)
		}
	}
	shown(t, "fault", "switch", "leaf2", "reboot", "--off", "10ms")
	for p := range 4 {
		if c := l.CountersOf([]topo.PortRef{l.ref("leaf2", p+1)})[0]; c[ib.LinkDownedCounter] != 1 {
			t.Errorf("leaf2[%d] was down %d times", p+1, c[ib.LinkDownedCounter])
		}
		if s := l.PortState(l.ref("leaf2", p+1)); s == ib.PortDown {
			t.Errorf("leaf2[%d] is still down", p+1)
		}
	}
	broken(t, exitUsage, []string{`"h1"`}, "fault", "switch", "h1", "reboot")
	broken(t, exitUsage, []string{`"explode"`}, "fault", "switch", "leaf2", "explode")
	// A node with another's GUID, listed and lifted by itself and with all others.
	wants(t, shown(t, "fault", "node", "h4", "guid=h2"), "h4", "guid=h2", "leaf1[3] spine1[1]")
	if g := l.FalseGUIDs(); len(g) != 1 || g[0].GUID != l.Graph().ByName("h2").GUID {
		t.Errorf("false GUIDs are %+v", g)
	}
	broken(t, exitUsage, []string{"h2", "another node"}, "fault", "node", "h2", "guid=h2")
	broken(t, exitUsage, []string{`"h99"`}, "fault", "node", "h4", "guid=h99")
	broken(t, exitUsage, []string{`"explode"`, "guid=OTHER"}, "fault", "node", "h4", "explode")
	if out := shown(t, "fault", "clear", "h4"); strings.Contains(out, "guid") || len(l.FalseGUIDs()) != 0 {
		t.Errorf("lifted, and still %+v:\n%s", l.FalseGUIDs(), out)
	}
	shown(t, "fault", "node", "spine2", "guid=spine1")
	if out := shown(t, "fault", "node", "spine2", "up"); strings.Contains(out, "guid") {
		t.Error(out)
	}
	shown(t, "fault", "node", "leaf4", "guid=leaf3")
	wants(t, shown(t, "fault", "clear"), "no fault is set")
	if g := l.FalseGUIDs(); len(g) != 0 {
		t.Errorf("false GUIDs are %+v", g)
	}
	if s := l.PortState(l.ref("leaf1", 3)); s.String() == "Down" {
		t.Error("leaf1[3] is still down")
	}
	// Whoever judges the tables at once waits for the manager.
	for range 3 {
		shown(t, "fault", "link", "leaf1", "spine1", "down")
		shown(t, "fault", "clear")
		wants(t, shown(t, "topo", "check", "live"), "it can work as it is wired", "no findings")
	}
}

func TestCapture(t *testing.T) {
	l := newLab(t, "star:3", &sm.Config{SweepInterval: -1})
	file := filepath.Join(t.TempDir(), "h1.pcapng")
	enough, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		hosts := l.Hosts()
		for {
			select {
			case <-enough:
				return
			default:
				if err := perf.Run(t.Context(), hosts[0].Device(), hosts[1].Device(), perf.Config{Test: perf.SendLat,
					Sizes: []int{64}, Iters: 10}, func(perf.Row) error { return nil }); err != nil {
					t.Errorf("h1 and h2 cannot talk: %v", err)
					return
				}
			}
		}
	}()
	_, errs, err := softib(t, "capture", "h1", "-w", file, "-c", "4", "--for", "30s")
	close(enough)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	wants(t, errs, "4 packets captured")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := trace.ReadPcapng(b)
	if err != nil || len(c.Records) != 4 || len(c.Interfaces) != 1 || c.Interfaces[0].Name != "h1[1]" {
		t.Fatalf("%+v, %v", c, err)
	}
	broken(t, exitUsage, []string{"no file to write to"}, "capture", "h1")
	// What was captured before stays when nothing new comes.
	broken(t, exitUsage, []string{"nobody"}, "capture", "nobody", "-w", file)
	broken(t, exitFailed, []string{"no fabric"}, "capture", "h1", "-w", file, "--name", "another")
	if again, err := os.ReadFile(file); err != nil || len(again) != len(b) {
		t.Errorf("the file has %d bytes, %v; want %d as before", len(again), err, len(b))
	}
	broken(t, exitFailed, []string{"no such file"}, "capture", "h1", "-w", filepath.Join(t.TempDir(), "no", "such"),
		"--for", "10s")
}

// A reader that does not read loses packets, and holds nobody for longer than its patience, once.
func TestReelBounded(t *testing.T) { synctest.Test(t, testReelBounded) }

func testReelBounded(t *testing.T) {
	x := &reel{room: make(chan struct{}, 1), more: make(chan struct{}, 1)}
	x.to = writeFunc(func(*trace.Event) error { x.buf = append(x.buf, make([]byte, captureBuffer/2)...); return nil })
	began := time.Now()
	for range 100 {
		if err := x.Write(&trace.Event{Kind: trace.Packet}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took != capturePatience {
		t.Errorf("the fabric waited for %v, want %v", took, capturePatience)
	}
	if x.Packets != 2 || x.Missed != 98 {
		t.Errorf("%d packets and %d missed, want 2 and 98", x.Packets, x.Missed)
	}
	if got := x.take(nil); len(got) != captureBuffer {
		t.Errorf("%d bytes", len(got))
	}
	if err := x.Write(&trace.Event{Kind: trace.Packet}); err != nil || x.Packets != 3 {
		t.Errorf("after it has read again: %d packets, %v", x.Packets, err)
	}
}

type writeFunc func(*trace.Event) error

func (f writeFunc) Write(e *trace.Event) error { return f(e) }

func TestTop(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{SweepInterval: -1})
	if err := l.SetLink(l.ref("leaf1", 3), false); err != nil {
		t.Fatal(err)
	}
	out, _, err := softib(t, "top", "--by", "errors", "--lines", "2")
	if err != nil {
		t.Fatal(err)
	}
	wants(t, out, "by errors", "leaf1[3]", "spine1[1]", "DOWN")
	asked := time.Now().Add(-time.Millisecond) // for what rounding takes
	x := asJSON[topShown](t, shown(t, "top", "leaf1", "-n", "1", "--json"))
	// Who looks once wants to know what is going on, and not what the last sample happened to have.
	if from := x.At.Add(-time.Duration(x.Interval * float64(time.Second))); from.Before(asked) {
		t.Errorf("rates are from %v on, and were asked for %v later", from, asked.Sub(from))
	}
	if x.Ports != 4 || len(x.Rows) != 4 || x.Down != 1 || x.Cables != 16 || x.Interval <= 0 {
		t.Errorf("%+v", x)
	}
	for _, r := range x.Rows {
		if !strings.HasPrefix(r.Port, "leaf1[") {
			t.Errorf("asked for leaf1, got %s", r.Port)
		}
	}
	broken(t, exitUsage, []string{"traffic, errors, wait"}, "top", "--by", "luck")
	broken(t, exitUsage, []string{`no node "nobody"`}, "top", "nobody")
}

// TestTopFits: no line is longer than the terminal is wide, no more of them than it is high, and what matters most
// stays.
func TestTopFits(t *testing.T) {
	x := &topShown{By: "traffic", Ports: 300, Cables: 150}
	for i := range 300 {
		x.Rows = append(x.Rows, topRow{Port: fmt.Sprintf("größter-knoten[%d]", i+1), Peer: fmt.Sprintf("spine%d[1]", i),
			State: "INITIALIZE", Rate: "4x NDR", Xmit: 999_999, Rcv: 123456789, Busy: 1, Errors: 7, Total: 12345678})
	}
	for _, size := range []screen{{24, 80}, {50, 200}, {5, 20}, {1, 1}, {24, 60}} {
		var b strings.Builder
		x.print(&terminal{w: &b}, true, size)
		lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(b.String(), "\x1b[H"), "\x1b[J"), "\x1b[K\n")
		if len(lines)-1 > max(size.lines-1, topAround) {
			t.Errorf("%v: %d lines", size, len(lines)-1)
		}
		for _, l := range lines {
			if utf8.RuneCountInString(l) > size.columns {
				t.Errorf("%v: %q has %d places", size, l, utf8.RuneCountInString(l))
			}
		}
		if size.columns >= 60 {
			wants(t, b.String(), "größter-knoten[1]", "sent B/s", "1 M", "123 M", "12345678")
		}
	}
	var b strings.Builder
	x.print(&terminal{w: &b}, false, screen{})
	wants(t, b.String(), "größter-knoten[300]", "INITIALIZE  4x NDR", "######")
	head, row := strings.Split(b.String(), "\n")[3], strings.Split(b.String(), "\n")[4]
	at := strings.Index(head, "errors") + len("errors")
	if utf8.RuneCountInString(head[:at]) != utf8.RuneCountInString(row) {
		t.Errorf("the last column is not below its head:\n%s\n%s", head, row)
	}
}

func TestSIShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 999.4: "999", 999.7: "1 k", 1000: "1 k", 1234: "1.23 k",
		999_499: "999 k", 999_999: "1 M", 4e11: "400 G", 1e15: "1 P", 1e18: "1 E", 1e21: "1e+03 E"} {
		if got := siShort(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}
