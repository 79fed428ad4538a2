package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/files"
	"softib/internal/patience/patiencetest"
	"softib/operate/doctor"
	"softib/operate/manager/health"
	"softib/operate/wiring"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// topoFile writes a topology that change has changed.
func topoFile(t *testing.T, spec string, change func(g *topo.Graph)) string {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	change(g)
	file := filepath.Join(t.TempDir(), "lab.topo")
	if err := os.WriteFile(file, topo.Append(nil, g), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

func pulled(t *testing.T, node string, port int) func(*topo.Graph) {
	return func(g *topo.Graph) {
		if err := g.Disconnect(g.ByName(node).Index, ib.PortNum(port)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTopoCheck(t *testing.T) {
	const spec = "fat-tree:radix=8,levels=2"
	wants(t, shown(t, "topo", "check", spec), "it can work", "no findings", "2 levels", "1:1, not oversubscribed",
		"as wired 6.4 Tbit/s of 6.4 Tbit/s", "as routed by ftree")
	wants(t, shown(t, "topo", "check", "fat-tree:radix=8,levels=2,oversub=3"), "3.00:1 oversubscribed", "(33.3 %)")
	wants(t, shown(t, "topo", "check", "torus:4x4"), "no: all 16 switches have hosts", "as routed by")
	wants(t, shown(t, "topo", "check", "pair"), "no: it has no switch")

	file := topoFile(t, spec, pulled(t, "leaf3", 6))
	for _, args := range [][]string{{}, {"--plan", spec}} {
		out := broken(t, exitFailed, []string{"is not wired as it should be: 1 warning"},
			append([]string{"topo", "check", file}, args...)...)
		wants(t, out, "NOT AS IT SHOULD BE: 1 warning", "warning  missing: there is no cable leaf3[6] spine2[3]",
			"-> plug one in", "1.33:1 at leaf3")
	}
	out, _, err := softib(t, "topo", "check", file, "--plan", spec, "--json")
	if err == nil {
		t.Error("exit status 0")
	}
	x := asJSON[checked](t, out)
	if x.OK || !x.IsTree || x.Plan != spec || len(x.Findings) != 1 || x.Findings[0].Kind != wiring.Missing ||
		x.Findings[0].Wanted[0] != (wiring.Wire{A: "leaf3[6]", B: "spine2[3]"}) || x.Matched.ByGUID != 44 {
		t.Errorf("%s", out)
	}
	// Long lists are cut.
	many := topoFile(t, "fat-tree:radix=16,levels=2", func(g *topo.Graph) {
		for n := range 30 {
			// few of any one spine: what most have lost, none should have
			pulled(t, g.Switches()[n%15].Name, 9+(n+n/15*4)%8)(g)
		}
	})
	out = broken(t, exitFailed, nil, "topo", "check", many)
	wants(t, out, "and 10 more: --all lists them")
	out = broken(t, exitFailed, nil, "topo", "check", many, "--all")
	if n := strings.Count(out, "warning  missing"); n != 30 {
		t.Errorf("--all lists %d of 30", n)
	}
	broken(t, exitUsage, nil, "topo", "check")
	broken(t, exitFailed, []string{"no-such.topo"}, "topo", "check", spec, "--plan", "no-such.topo")
}

func TestTopoCheckLive(t *testing.T) {
	const spec = "fat-tree:radix=8,levels=2"
	l := newLab(t, spec, nil)
	for _, args := range [][]string{{}, {"--plan", spec}} {
		wants(t, shown(t, append([]string{"topo", "check", "live"}, args...)...), "fabric default", "it can work",
			"no findings", "as routed with the tables in force")
	}
	wants(t, shown(t, "topo", "diff", "live", spec), "they are the same")
	if err := l.SetLink(l.ref("leaf5", 7), false); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--plan", spec}} {
		out := broken(t, exitFailed, []string{"fabric default is not wired as it should be"},
			append([]string{"topo", "check", "live"}, args...)...)
		// nobody routed round it
		wants(t, out, "missing: there is no cable leaf5[7] spine3[5]", "the tables are not good")
	}
	wants(t, broken(t, exitFailed, []string{"differ: 1 difference"}, "topo", "diff", spec, "live"),
		"missing      only in A: leaf5[7] spine3[5]")
	wants(t, shown(t, "topo", "bom", "live"), "12 switches, 63 cables")
}

// Who judges a fabric while its manager is at work, for longer than anybody waits, is told so.
func TestSweepUnderWay(t *testing.T) {
	l := newLab(t, "star:3", &sm.Config{SweepInterval: -1})
	l.rests()
	defer func(d time.Duration) { settlePatience = d }(settlePatience)
	settlePatience = 50 * time.Millisecond
	const note = "note: fabric default is being swept"
	if _, errs, err := softib(t, "topo", "check", "live"); err != nil || strings.Contains(errs, note) {
		t.Errorf("a fabric at rest: %v, %s", err, errs)
	}
	// A cable that swallows what the manager asks keeps it waiting, and its link from being ACTIVE.
	h3 := l.ref("h3", 1)
	if err := l.SetFault(h3, live.Fault{Drop: 1}); err != nil {
		t.Fatal(err)
	}
	for _, up := range []bool{false, true} {
		if err := l.SetLink(h3, up); err != nil {
			t.Fatal(err)
		}
	}
	// That is longer where the machine has much to do besides, and how long is said.
	patiencetest.Pretend(t, 20)
	settlePatience = 10 * time.Millisecond
	_, errs, _ := softib(t, "topo", "check", "live")
	said := regexp.MustCompile(note + ` \(waited for ([0-9.ms]+)(.*)\):`).FindStringSubmatch(errs)
	if said == nil {
		t.Fatalf("nothing is said of a sweep: %s", errs)
	}
	if d, err := time.ParseDuration(said[1]); err != nil || d < 200*time.Millisecond ||
		said[2] != patiencetest.Words(20) {
		t.Errorf("%s: want 200ms and more%s", errs, patiencetest.Words(20))
	}
}

// What is passed over in a dump is named, and not at any length.
func TestDumpWarnings(t *testing.T) {
	text, err := os.ReadFile("../../proto/topo/testdata/dumps/small.ibnetdiscover")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "noisy.topo")
	noise := "user@host:~$ ibnetdiscover\n" + strings.Repeat("src/query_smp.c:195; bad status 110\n", 6)
	if err := os.WriteFile(file, append([]byte(noise), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, _ := softib(t, "topo", "check", file)
	wants(t, errs, "warning: "+file+`: line 1: "user@host:~$ ibnetdiscover" is nothing that ibnetdiscover writes`,
		"warning: "+file+`: line 5: "src/query_smp.c:195; bad status 110"`,
		"warning: "+file+": and 2 lines more like these")
	if n := strings.Count(errs, "warning: "); n != remarksShown+1 {
		t.Errorf("%d warnings:\n%s", n, errs)
	}
}

// A dump is its twin: speeds that PortInfo does not have, and lanes that are dead, too.
func TestTopoDiffTwin(t *testing.T) {
	const dump = "../../proto/topo/testdata/dumps/small.ibnetdiscover"
	text, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	// A link between switches that fell back to DDR: they can do more, as their other ports show.
	slow := filepath.Join(t.TempDir(), "slow.topo")
	text = regexp.MustCompile(`(?m)^(\[8\].*)4xFDR10$`).ReplaceAll(text, []byte("${1}4xDDR"))
	if err := os.WriteFile(slow, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, slow, nil)
	wants(t, shown(t, "topo", "diff", slow, "live"), "4 rates from 1x FDR10 to 4x FDR10", "they are the same")
	wants(t, shown(t, "status"), "ACTIVE at 4x FDR10, 40 Gb/s", "leaf1[8] - leaf2[8]: 4x DDR of 4x FDR10")
	const says = "degraded: leaf1[8] leaf2[8] runs at 4x DDR, and both ends can do 4x"
	wants(t, broken(t, exitFailed, nil, "topo", "check", "live"), says)
	wants(t, broken(t, exitFailed, nil, "topo", "check", slow), says)
	out, _, err := softib(t, "doctor", "--interval", "0", "--json")
	rep := asJSON[doctor.Report](t, out)
	slowLinks := slices.DeleteFunc(rep.Section(doctor.Links).Findings, func(f doctor.Finding) bool {
		return f.Kind != "slow-link"
	})
	// The other has lost a fifth: node01's port at QDR beside one at FDR10.
	if err == nil || len(slowLinks) != 2 || slowLinks[0].Severity != doctor.Fail ||
		!slices.Equal(slowLinks[0].Objects, []string{"leaf1[8]", "leaf2[8]"}) ||
		!strings.Contains(slowLinks[0].Measured, "runs at 4x DDR (16 Gb/s) at leaf1[8], both ends can do 4x FDR10") ||
		slowLinks[0].Next == "" {
		t.Errorf("doctor says %+v", slowLinks)
	}
	a := l.alarm(health.Slow)
	if a.Link != "leaf1[8] leaf2[8]" || a.Severity != health.Bad ||
		!strings.Contains(a.Text, "runs at 4x DDR (16 Gb/s)") || a.Next == "" {
		t.Errorf("the alarm says %+v", a)
	}
	// Down and up again is no cure for a bad cable.
	for _, up := range []bool{false, true} {
		if err := l.SetLink(l.ref("leaf1", 8), up); err != nil {
			t.Fatal(err)
		}
	}
	if pi, _ := l.PortInfo(l.ref("leaf1", 8)); pi.Rate().Speed != ib.DDR || pi.SupportedSpeed() != ib.FDR10 {
		t.Errorf("leaf1[8] is at %v of %v", pi.Rate(), pi.SupportedSpeed())
	}
	wants(t, broken(t, exitFailed, nil, "topo", "diff", dump, "live"),
		"degraded     leaf1[8] leaf2[8] runs at 4x DDR, in A at 4x FDR10")
}

// TestByMachine starts a fabric of machines with several adapters, and its hosts have all their ports.
func TestByMachine(t *testing.T) {
	const dump = "../../proto/topo/testdata/dumps/dgx.ibnetdiscover"
	const says = "3 hosts, 2 aggregation nodes, 2 switches, 13 cables, 4x NDR and 4x HDR"
	l := newLab(t, dump+byMachine, nil)
	for _, name := range []string{"dgx01", "dgx02", "login1"} {
		h, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"login1": 1}[name]
		if want == 0 {
			want = 4
		}
		lids := map[ib.LID]bool{}
		for p := 1; p <= h.Node().NumPorts(); p++ {
			if x := h.Port(ib.PortNum(p)); x.State == ib.PortActive {
				lids[x.LID] = true
			}
		}
		if h.Node().NumPorts() != want || len(lids) != want {
			t.Errorf("%s has %d ports and LIDs %v, want %d", name, h.Node().NumPorts(), lids, want)
		}
	}
	// What is a host, and what a part of a switch, is the same everywhere.
	var b bytes.Buffer
	l.describe(toTerminal(newTerminal(&b)))
	wants(t, b.String(), says, "hosts     3 of 3 ACTIVE: dgx01 to login1, LIDs 3 to 11\n",
		"service   2 of 2 ACTIVE: h10 to h11, LIDs 12 to 13\n")
	wants(t, unwrapped(shown(t, "status")), says, "hosts 3 of 3 ACTIVE")
	out, _, _ := softib(t, "doctor", "--interval", "0")
	wants(t, out, "3 hosts, 2 aggregation nodes, 2 switches, 13 cables")
	for _, arg := range []string{"live", dump + byMachine} {
		out, _, err := softib(t, "topo", "check", arg, "--json")
		if x := asJSON[checked](t, out); err != nil || x.Hosts != 3 || x.ServiceNodes != 2 || !x.OK {
			t.Errorf("%v: %s", err, out)
		}
		wants(t, unwrapped(shown(t, "topo", "check", arg)), says, "between two halves of 4 host ports")
	}
	wants(t, shown(t, "topo", "diff", dump+byMachine, "live"), "7 of 7 nodes, 7 by GUID", "they are the same")
	wants(t, unwrapped(broken(t, exitFailed, nil, "topo", "diff", dump, "live")), "9 hosts, 2 aggregation nodes",
		"missing node only in A: host dgx02 (0xe09d7303007a2a08), at leaf2[4]")
	broken(t, exitFailed, []string{`"by=rack" is no option of a file`}, "topo", "check", dump+",by=rack")
}

// unwrapped is a text as one line.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestTopoDiff(t *testing.T) {
	const spec = "fat-tree:radix=8,levels=2"
	wants(t, shown(t, "topo", "diff", spec, spec), "44 of 44 nodes, 44 by GUID", "they are the same")
	file := topoFile(t, spec, pulled(t, "leaf3", 6))
	wants(t, broken(t, exitFailed, []string{"differ: 1 difference"}, "topo", "diff", spec, file),
		"only in A: leaf3[6] spine2[3]")
	wants(t, broken(t, exitFailed, nil, "topo", "diff", file, spec), "only in B: leaf3[6] spine2[3]")
	out, _, err := softib(t, "topo", "diff", file, spec, "--json")
	if d := asJSON[wiring.Difference](t, out); err == nil || d.Same || len(d.Changes) != 1 ||
		d.Changes[0].Kind != wiring.Extra {
		t.Errorf("%v %s", err, out)
	}
	wants(t, broken(t, exitFailed, nil, "topo", "diff", "star:40", "star:4"), "and 16 more: --all lists them")
	broken(t, exitUsage, nil, "topo", "diff", spec)
}

func TestTopoBOM(t *testing.T) {
	wants(t, shown(t, "topo", "bom"), "12 switches, 64 cables", "a layout that was made up: 2 racks in 1 row",
		"8 ports NDR", "passive copper (DAC)", "estimates")
	wants(t, shown(t, "topo", "bom", "fat-tree:radix=64,levels=2"), "96 switches, 4096 cables",
		"transceivers, multimode")
	wants(t, shown(t, "topo", "bom", "star:4,length=12m,speed=EDR"), "the topology's own",
		"15 m 4x EDR, active optical (AOC)")
	wants(t, shown(t, "topo", "bom", "fat-tree:radix=36,levels=3"), "34992 cables")

	layout := filepath.Join(t.TempDir(), "racks.txt")
	write := func(text string) {
		if err := os.WriteFile(layout, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("rack A row 1 position 1\nrack B row 1 position 2\nplace sw1 A 42\nplace h1..h2 A 40\nplace h3..h4 B 1\n")
	out, _, err := softib(t, "topo", "bom", "star:4", "--layout", layout, "--json")
	b := asJSON[struct {
		Cables []struct {
			Medium   string
			LengthMM int32 `json:"length_mm"`
			Count    int
		}
		Racks      int
		CableCount int `json:"cable_count"`
	}](t, out)
	if err != nil || b.CableCount != 4 || b.Racks != 2 || !slices.ContainsFunc(b.Cables, func(c struct {
		Medium   string
		LengthMM int32 `json:"length_mm"`
		Count    int
	}) bool {
		return c.LengthMM == 1500 && c.Count == 2 && strings.HasPrefix(c.Medium, "passive")
	}) {
		t.Errorf("%v %s", err, out)
	}
	wants(t, shown(t, "topo", "bom", "star:4", "--layout", layout), "the layout: 2 racks in 1 row")
	broken(t, exitFailed, []string{"h5"}, "topo", "bom", "star:5", "--layout", layout)
	write("rack A\n")
	broken(t, exitFailed, []string{"racks.txt:1", "rack NAME row N position N"}, "topo", "bom", "--layout", layout)
	broken(t, exitFailed, []string{"no-such"}, "topo", "bom", "--layout", "no-such")
}

// TestEndlessFiles: whatever a user names as a file, no more of it is read than can be of use.
func TestEndlessFiles(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	long := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(long, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(long, files.TextMax+1); err != nil { // takes no room on the disk
		t.Fatal(err)
	}
	for _, args := range []string{
		"topo check FILE", "topo check star:2 --plan FILE", "topo diff FILE star:2", "topo diff star:2 FILE",
		"topo bom FILE", "topo bom star:2 --layout FILE", "topo bom --prices FILE", "up FILE", "up --config FILE",
		"up --partitions FILE",
		"up --qos-policy FILE", "up --roots FILE", "up --tls-cert FILE --tls-key FILE", "route check FILE",
		"perf send_lat FILE", "sm --on ibsim --config FILE", "watch --on ibsim --node-name-map FILE",
	} {
		for file, word := range map[string]string{long: "too long", "/dev/zero": "no text"} {
			broken(t, exitFailed, []string{file, word}, strings.Fields(strings.ReplaceAll(args, "FILE", file))...)
		}
	}
	_, e1 := readLIDs(long)
	_, e2 := readMKeys(long)
	for _, err := range []error{e1, e2} {
		if !errors.Is(err, files.ErrTooLong) || nextOf(err) == "" {
			t.Errorf("%v, next %q", err, nextOf(err))
		}
	}
	broken(t, exitFailed, []string{"/dev/zero", "no text"}, "route", "check", "star:2", "--lfts", "/dev/zero")
}
