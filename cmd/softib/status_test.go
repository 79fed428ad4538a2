package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"softib/driver/smrun"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/sm"
)

func TestStatusIsTrue(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{Engines: "dor,ftree", SweepInterval: -1, LMC: 1})
	g := l.Graph()
	st := asJSON[status.Status](t, shown(t, "status", "--json"))
	lids := 2*len(g.Hosts()) + len(g.Switches())
	if st.Subnet.Prefix != "fe80::" || st.Subnet.LIDs != lids || st.Subnet.LMCMax != 1 ||
		int(st.Subnet.LIDMax) < lids || st.Subnet.LIDMin != l.lidOf("h1") {
		t.Errorf("the subnet is %+v", st.Subnet)
	}
	if p := st.Subnet.Partitions; len(p) != 1 || p[0] != (status.Partition{Key: "0xffff", Name: "Default", Full: 8}) {
		t.Errorf("partitions are %+v", p)
	}
	if m := st.Managers; len(m) != 1 || m[0].Port != "leaf1[0]" || m[0].State != "Master" || !m[0].Own ||
		m[0].LID != l.lidOf("leaf1") || !m[0].SMKeySet || m[0].Priority != 0 {
		t.Errorf("managers are %+v", m)
	}
	if len(st.Subnet.MasterLIDs) != 1 || st.Subnet.MasterLIDs[0] != (status.MasterLID{LID: l.lidOf("leaf1"),
		Ports: len(g.Nodes), Known: true}) {
		t.Errorf("ports take for master: %+v", st.Subnet.MasterLIDs)
	}
	if r := st.Routing; r == nil || r.Engine != "ftree" || r.Chain != "dor,ftree" || r.VLs != 1 ||
		len(r.Refused) != 1 || !strings.HasPrefix(r.Refused[0], "dor: ") {
		t.Errorf("routing is %+v", r)
	}
	if w := st.Sweep; w == nil || !w.Full || w.Why != "start" || w.TookSec <= 0 || w.AgoSec < w.TookSec ||
		w.Began.Before(st.Started) {
		t.Errorf("the sweep is %+v", w)
	} else {
		sum, time, names := 0, 0.0, []string{}
		for _, p := range w.Phases {
			names = append(names, p.Name)
			if p.TookSec < 0 || p.TookSec > 60 {
				t.Errorf("phase %+v", p)
			}
			if !p.After {
				sum += p.Datagrams
				time += p.TookSec
			}
		}
		if sum != w.Datagrams || time > w.TookSec*1.001 {
			t.Errorf("the phases have %d datagrams of %d and take %g of %g s: %+v", sum, w.Datagrams, time, w.TookSec,
				w.Phases)
		}
		wants(t, strings.Join(names, " "), "discover", "addresses", "compute", "activate")
	}
	if c := st.Manager; c == nil || c.Sweeps != 1 || c.Traps != 0 || c.Problems != 0 ||
		int(c.Sent) < st.Sweep.Datagrams {
		t.Errorf("the manager counts %+v", c)
	}
	if len(st.LinksDown) != 0 || len(st.LinksDegraded) != 0 || len(st.LinkKinds) != 1 ||
		st.LinkKinds[0] != (status.LinkKind{State: "ACTIVE", Rate: "4x NDR", Gbps: 400, Count: 16}) {
		t.Errorf("links: %+v, down %+v, degraded %+v", st.LinkKinds, st.LinksDown, st.LinksDegraded)
	}
	out := shown(t, "status")
	wants(t, out, "16 ACTIVE at 4x NDR, 400 Gb/s", fmt.Sprintf("fe80::/64, %d LIDs in use, ", lids), "LMC 1",
		"0xffff Default: 8 full members",
		"Master on leaf1[0], LID 18: softib's, priority 0, SM_Key set", "ftree on 1 lane, of the chain dor,ftree",
		"refused: dor:", "why: start", "discover", "1 sweep, 0 light sweeps, 0 traps, 0 problems")

	// A link goes down: it is named at once, and the manager's next sweep says why it swept.
	at := l.log.tail(0)
	if err := l.SetLink(l.ref("leaf1", 3), false); err != nil {
		t.Fatal(err)
	}
	x := g.ByName("leaf1").Ports[3]
	far := fmt.Sprintf("%s[%d]", g.Nodes[x.Peer].Name, x.PeerPort)
	st = asJSON[status.Status](t, shown(t, "status", "--json"))
	if len(st.LinksDown) != 1 || st.LinksDown[0] != (status.Link{A: "leaf1[3]", B: far}) || st.LinkStates["DOWN"] != 1 {
		t.Errorf("down: %+v, %v", st.LinksDown, st.LinkStates)
	}
	wants(t, shown(t, "status"), "1 DOWN", "DOWN      leaf1[3] - "+far)
	l.waitLog(at, "sweep: swept (link state change at ", `"leaf1"`)
	l.waitLog(at, "topology: link lost: ", "port 3 to ")
	st = asJSON[status.Status](t, shown(t, "status", "--json"))
	if w := st.Sweep; w.Full || !strings.Contains(w.Why, "link state change") || st.Manager.Traps == 0 ||
		st.Manager.Sweeps < 2 || len(st.Routing.Refused) != 1 {
		t.Errorf("after the link went down: %+v, %+v, %+v", w, st.Manager, st.Routing)
	}

	// It comes back narrower, because it may not be wider.
	pi, _ := l.PortInfo(l.ref("leaf1", 3))
	pi.LinkWidthEnabled = ib.Width1x
	pi.PortState, pi.PortPhysicalState = ib.PortNoChange, ib.PhysNoChange
	l.set("leaf1", mad.AttrPortInfo, 3, pi.Append(nil))
	at = l.log.tail(0)
	if err := l.SetLink(l.ref("leaf1", 3), true); err != nil {
		t.Fatal(err)
	}
	l.waitLog(at, "topology: link found: ")
	l.waitLog(at, "sweep: swept", "1 degraded")
	st = asJSON[status.Status](t, shown(t, "status", "--json"))
	if d := st.LinksDegraded; len(d) != 1 || d[0] != (status.Link{A: "leaf1[3]", B: far, Rate: "1x NDR", Best: "4x NDR",
		Why: "as enabled"}) {
		t.Errorf("degraded: %+v", d)
	}
	wants(t, shown(t, "status"), "degraded  leaf1[3] - "+far+": 1x NDR of 4x NDR, as enabled", "15 ACTIVE at 4x NDR",
		"1 ACTIVE at 1x NDR")
}

// What a fabric is without a manager, with a stranger's, and after that is gone.
func TestStatusOfOthers(t *testing.T) {
	l := newLab(t, "star:3", nil)
	wants(t, shown(t, "status"), "manager   none runs on this fabric",
		"4 ports take for master LID 1, where none answers", "routing   none")
	s, err := l.OpenMgmt(l.ref("h2", 1))
	if err != nil {
		t.Fatal(err)
	}
	r, err := smrun.New(sm.Config{Priority: 9, SweepInterval: -1}, s, smrun.Options{Log: eventLog(io.Discard, "x")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = r.Run(ctx) }()
	<-r.Up()
	st := asJSON[status.Status](t, shown(t, "status", "--json"))
	if m := st.Managers; len(m) != 1 || m[0].Port != "h2[1]" || m[0].Own || m[0].Priority != 9 ||
		m[0].State != "Master" || st.Manager != nil || st.Routing != nil || st.Sweep != nil {
		t.Errorf("managers are %+v, %+v", m, st.Manager)
	}
	wants(t, shown(t, "status"), "Master on h2[1], LID 2: another program, priority 9",
		"up to the manager on h2[1]: softib route check judges")
	wants(t, shown(t, "route", "trace", "h1", "h3"), "(the administrator's)")
	cancel()
	<-r.Done()
	wants(t, shown(t, "status"), "4 ports take for master LID 2, where none answers")
	_, errs, err := softib(t, "log")
	if err != nil || !strings.Contains(errs, "no log") {
		t.Errorf("log: %v, %q", err, errs)
	}
}

// Before anybody gives addresses.
func TestStatusOfNothing(t *testing.T) {
	newBareLab(t, "star:2", nil)
	wants(t, shown(t, "status"), "no port has an address")
	broken(t, exitFailed, []string{"no port of fabric default has an address"}, "route", "check")
	broken(t, exitFailed, []string{"h2[1] has no LID"}, "route", "trace", "h1", "h2")
}

func TestLog(t *testing.T) {
	l := newLab(t, "star:3", &sm.Config{SweepInterval: -1})
	l.waitLog(0, "sm sweep: SUBNET UP: 3 hosts, 1 switch, 3 links; ")
	l.waitLog(0, "created") // the last line of the start
	if out := shown(t, "log"); !strings.HasPrefix(out[24:], "sm state: NotActive -> Discovering: start\n") ||
		strings.Count(out, "SUBNET UP") != 1 {
		t.Errorf("the log is\n%s", out)
	}
	if out := shown(t, "log", "-n", "1"); strings.Count(out, "\n") != 1 {
		t.Errorf("one line is\n%s", out)
	}
	if out, errs, err := softib(t, "log", "-n", "0"); out != "" || errs != "" || err != nil {
		t.Errorf("no line is %q, %q, %v", out, errs, err)
	}
	broken(t, exitUsage, []string{"-n -1"}, "log", "-n", "-1")

	// Following sees what comes, until the reader has enough.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root := newRoot()
	got := make(chan string, 100)
	root.SetOut(lineWriter(func(line string) { got <- line }))
	root.SetArgs([]string{"log", "-f", "-n", "1"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	<-got
	if err := l.SetLink(l.ref("h3", 1), false); err != nil {
		t.Fatal(err)
	}
	for line := range got {
		if strings.Contains(line, "sweep: swept") {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("following ends with %v", err)
	}
}

func TestLogbook(t *testing.T) {
	var kept strings.Builder
	b := newLogbook(&kept)
	for i := range 2 * logKept {
		fmt.Fprintf(b, "line %d\n", i)
	}
	lines, next, more := b.from(0)
	if next != 2*logKept || len(lines) < logKept || len(lines) > logKept+logKept/4 ||
		lines[len(lines)-1] != fmt.Sprintf("line %d", next-1) || lines[0] != fmt.Sprintf("line %d", next-len(lines)) {
		t.Errorf("%d lines, the next is %d", len(lines), next)
	}
	if strings.Count(kept.String(), "\n") != 2*logKept {
		t.Error("lines were not passed on")
	}
	if at := b.tail(3); at != next-3 {
		t.Errorf("the last three start at %d", at)
	}
	fmt.Fprint(b, "a\nb\n")
	<-more
	if lines, _, _ := b.from(next); len(lines) != 2 || lines[1] != "b" {
		t.Errorf("then came %q", lines)
	}
}
