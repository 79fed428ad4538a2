package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"softib/driver/live"
	"softib/operate/doctor"
	"softib/operate/webui"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/sm"
	"softib/subnet/survey"
	"softib/verbs"
)

// TestDoctorCommand: a fabric that is well, one that is not, as text and as JSON, with the exit status that scripts
// look at.
func TestDoctorCommand(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{SweepInterval: -1})
	wants(t, shown(t, "doctor", "--interval", "50ms"),
		"8 hosts, 6 switches, 16 cables, seen from h1[1]", "counters over", "ok      routing     104 pairs",
		"note    managers", "the fabric is well")
	rep := asJSON[doctor.Report](t, shown(t, "doctor", "--interval", "10ms", "--json", "--on", "fabric:h3"))
	if !rep.Healthy() || rep.Fabric.From != "h3[1]" || rep.Fabric.Cables != 16 || rep.IntervalSec <= 0 ||
		len(rep.Sections) != int(doctor.NumCheck) {
		t.Errorf("%+v", rep)
	}
	if s := rep.Section(doctor.Traffic); s.Severity != doctor.OK {
		t.Errorf("what programs of a running fabric do is known: %+v", s)
	}

	if err := l.SetLink(l.ref("leaf2", 3), false); err != nil {
		t.Fatal(err)
	}
	if err := l.SetFault(l.ref("h1", 1), live.Fault{BER: 1e-5}); err != nil {
		t.Fatal(err)
	}
	out, _, err := softib(t, "doctor", "--interval", "200ms")
	if _, unwell := errors.AsType[*unwellError](err); !unwell || exitCode(err) != exitFailed {
		t.Errorf("%v, exit status %d", err, exitCode(err))
	}
	narrow(t, out)
	wants(t, strings.Join(strings.Fields(out), " "), "FAIL links", "leaf2[3] spine1[2]: down", "FAIL cables",
		"h1[1] leaf1[1]", "bit error rate about", "next reseat or replace the cable")
	out, _, err = softib(t, "doctor", "--interval", "0", "--json")
	rep = asJSON[doctor.Report](t, out)
	if exitCode(err) != exitFailed || rep.Healthy() || rep.IntervalSec != 0 ||
		rep.Section(doctor.Cables).Severity != doctor.Fail {
		t.Errorf("%v: %+v", err, rep)
	}
	out, _, _ = softib(t, "doctor", "--interval", "10ms", "--counters-only")
	wants(t, out, "cables")
	if strings.Contains(out, "partitions") {
		t.Errorf("only counters were asked for:\n%s", out)
	}
}

// TestDoctorCannot: what cannot be looked at is exit status 2.
func TestDoctorCannot(t *testing.T) {
	newLab(t, "star:2", &sm.Config{SweepInterval: -1})
	broken(t, exitUsage, []string{"want fabric, ibsim or umad"}, "doctor", "--on", "moon")
	broken(t, exitUsage, []string{"--interval"}, "doctor", "--interval", "-1s")
	broken(t, exitUsage, []string{"--interval"}, "doctor", "--interval", "48h")
	broken(t, exitUsage, []string{`no node "h99"`}, "doctor", "--on", "fabric:h99")
	broken(t, exitUsage, []string{`"zero" is no port`}, "doctor", "--on", "umad:mlx5_0:zero")
	broken(t, exitUsage, []string{"nobody"}, "doctor", "--name", "nobody")
	t.Setenv("IBSIM_SOCKNAME", "softib-nobody")
	broken(t, exitUsage, []string{"ibsim"}, "doctor", "--on", "ibsim")
}

// TestDoctorPage: the page finds what the command finds, what only the fabric's own process knows included: for how
// long counters have counted, so that a link that went down three times flaps, and what programs send by IP.
func TestDoctorPage(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{SweepInterval: -1})
	flaps := l.ref("h8", 1)
	for range 3 {
		for _, up := range []bool{false, true} {
			if err := l.SetLink(flaps, up); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.sendByIP(0, 2, 1<<20)
	l.await("the link is ACTIVE again", func() bool {
		pi, _ := l.PortInfo(flaps)
		return pi.PortState == ib.PortActive
	})
	l.rests()

	w := httptest.NewRecorder()
	page := webui.New(l.mgr, webui.Options{})
	defer page.Close()
	page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET",
		"http://localhost/api/v1/checks/doctor?interval=50ms", nil))
	out, _, err := softib(t, "doctor", "--interval", "50ms", "--json")
	if exitCode(err) != exitFailed {
		t.Fatalf("%v\n%s", err, out)
	}
	onPage, said := findings(asJSON[doctor.Report](t, w.Body.String())), findings(asJSON[doctor.Report](t, out))
	if onPage != said {
		t.Errorf("the page says\n%s, and the command\n%s", onPage, said)
	}
	wants(t, said, "warn cables flapping-cable [leaf4[2] h8[1]]", "warn traffic by-ip [h1]", "1 program")
}

// findings are what a report has found, without what is different a moment later.
func findings(rep doctor.Report) string {
	var b strings.Builder
	for _, s := range rep.Sections {
		fmt.Fprintf(&b, "%v %v: %s\n", s.Severity, s.Check, s.Looked)
		for _, f := range s.Findings {
			fmt.Fprintf(&b, "%v %v %s %v\n", f.Severity, s.Check, f.Kind, f.Objects)
		}
	}
	return b.String()
}

// sendByIP has a program on a host, which stays, send at least so many bytes to another as IP over InfiniBand does.
func (l *lab) sendByIP(from, to int, bytes uint64) {
	l.t.Helper()
	dev, err := l.Hosts()[from].Open()
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { dev.Close() })
	ctx := verbs.Open(dev)
	pd, err := ctx.AllocPD()
	if err != nil {
		l.t.Fatal(err)
	}
	const mtu = 2048
	mr, err := pd.RegMR(make([]byte, mtu), 0)
	if err != nil {
		l.t.Fatal(err)
	}
	cq, err := ctx.CreateCQ(8)
	if err != nil {
		l.t.Fatal(err)
	}
	q, err := pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: cq, RecvCQ: cq, Caps: verbs.DefaultCaps})
	if err == nil {
		err = q.Ready(1, 0, ib.QKeyIPoIB)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	ah, err := pd.CreateAH(verbs.AHAttr{DLID: l.Hosts()[to].Port(1).LID, Port: 1})
	if err != nil {
		l.t.Fatal(err)
	}
	l.await("what was sent is counted", func() bool { // as it is while a program goes on
		for range 64 {
			var wc [1]verbs.WC
			if err := q.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: mr.SGEs(0, mtu),
				AH: ah, RemoteQPN: 99, RemoteQKey: ib.QKeyIPoIB}); err != nil {
				l.t.Fatal(err)
			}
			if _, err := cq.Wait(l.t.Context(), wc[:]); err != nil || wc[0].Status != verbs.WCSuccess {
				l.t.Fatalf("%+v, %v", wc[0], err)
			}
		}
		return l.Programs()[0].Stats.IPoIBTxBytes >= bytes
	})
}

// TestExamination: a client is told what was seen, node by node, and it is judged as two looks.
func TestExamination(t *testing.T) {
	reading := func(n uint64) []survey.Reading {
		return []survey.Reading{{}, {Valid: true, Counters: ib.Counters{ib.PortXmitPkts: n}}}
	}
	before := &survey.Survey{Nodes: []*survey.Node{{Name: "leaf1", LFT: []ib.PortNum{1, 2}}, {Name: "h1"}},
		Readings: [][]survey.Reading{reading(1), reading(2)}, Asked: 5}
	x := examination{Before: before, Later: &laterLook{Asked: 7, Readings: [][]survey.Reading{reading(3), reading(4)}},
		Routes: &route.Report{Pairs: 9}, Known: doctor.Options{Version: "v9"}}
	var text bytes.Buffer
	if err := x.write(&text); err != nil {
		t.Fatal(err)
	}
	whole := text.Bytes()
	got, err := readExamination(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	both := got.surveys().Named(&topo.Graph{})
	if !reflect.DeepEqual(both.Before, before) || got.Known.Version != "v9" || both.Routes == nil ||
		both.Routes.Pairs != 9 {
		t.Errorf("%+v of %+v", both.Before, got)
	}
	if both.After == nil || both.After.Asked != 7 || both.After.Nodes[1] != both.Before.Nodes[1] ||
		both.After.Reading(topo.PortRef{Node: 1, Port: 1}).Counters[ib.PortXmitPkts] != 4 {
		t.Errorf("%+v", both.After)
	}
	for n := 0; n < len(whole); n += 29 {
		if _, err := readExamination(bytes.NewReader(whole[:n])); err == nil {
			t.Fatalf("%d of %d bytes are an examination", n, len(whole))
		}
	}
}
