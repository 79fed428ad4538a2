package main

import (
	"errors"
	"strings"
	"testing"

	"softib/driver/live"
	"softib/operate/doctor"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/subnet/survey"
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

// TestExamination: what a client is told is judged as two looks.
func TestExamination(t *testing.T) {
	x := examination{Before: &survey.Survey{Nodes: []*survey.Node{{Name: "leaf1"}}}, Later: &laterLook{Asked: 7}}
	both := x.surveys(&topo.Graph{})
	if both.After == nil || both.After.Asked != 7 || both.After.Nodes[0] != both.Before.Nodes[0] {
		t.Errorf("%+v", both.After)
	}
}
