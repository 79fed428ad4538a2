package fieldtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"softib/driver/ibsim"
	"softib/driver/live"
	"softib/driver/smrun"
	"softib/operate/doctor"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// doctors runs our doctor from a host.
func (w *world) doctors(host string, o doctor.RunOptions) *doctor.Report {
	w.Helper()
	s, err := w.OpenMgmt(topo.PortRef{Node: w.node(host).Index, Port: 1})
	w.check(err)
	defer s.Close()
	ctx, cancel := patient()
	defer cancel()
	found, err := doctor.Run(ctx, s, o)
	w.check(err)
	return doctor.Judge(found.Before, found.After, doctor.Options{Plan: w.g})
}

// findings are those of a kind.
func findings(r *doctor.Report, kind string) (list []doctor.Finding) {
	for _, s := range r.Sections {
		for _, f := range s.Findings {
			if f.Kind == kind {
				list = append(list, f)
			}
		}
	}
	return list
}

// words is everything that a report found.
func words(r *doctor.Report) string {
	var b strings.Builder
	for _, s := range r.Sections {
		for _, f := range s.Findings {
			fmt.Fprintf(&b, "%v %v %s %v: %s\n", f.Check, f.Severity, f.Kind, f.Objects, f.Measured)
		}
	}
	return b.String()
}

// erring are the ports that ibqueryerrors reports with errors of signals, by name.
func (w *world) erring(host string) []string {
	w.Helper()
	out, _ := w.command(host, "ibqueryerrors").Output() // its exit status says that there are errors
	line := regexp.MustCompile(`GUID (0x[0-9a-f]+) port (\d+):.*\[SymbolErrorCounter == (\d+)`)
	var names []string
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		g, err := ib.ParseGUID(m[1])
		w.check(err)
		p, _ := strconv.Atoi(m[2]) // the line of all ports has no number, and does not match
		n := w.g.ByGUID(g)
		if n == nil { // an adapter is named by its port
			at, _ := w.g.ByPortGUID(g)
			n = w.g.Nodes[at.Node]
		}
		names = append(names, w.g.PortName(ref(n, p)))
	}
	slices.Sort(names)
	return names
}

// TestDoctorBadCable: a cable that flips bits under perftest's traffic is named by our doctor, by both ends and with
// its bit error rate, and by ibqueryerrors, and by neither is any other.
func TestDoctorBadCable(t *testing.T) {
	w := up(t, defaultSpec)
	leaf := w.node("leaf1")
	tables, _ := w.Tables(leaf.Index)
	out := tables.LFT[w.lid(w.node("h9"), 1)]
	bad := topo.PortRef{Node: leaf.Index, Port: out}
	far := w.g.Port(bad)
	ends := []string{w.g.PortName(bad), w.g.PortName(topo.PortRef{Node: far.Peer, Port: far.PeerPort})}
	const ber = 2e-8
	w.check(w.SetFault(bad, live.Fault{BER: ber}))
	server, client := w.startPair("h9", "h1", "ib_write_bw", "-F", "-D", "20", "-s", "65536", "-u", "17")
	w.flows("perftest", bad)
	rep := w.doctors("h4", doctor.RunOptions{Interval: 3 * time.Second, Timeout: 2 * ib.Second})
	theirs := w.erring("h4")
	client.kill()
	server.kill()

	list := findings(rep, "bad-cable")
	if len(list) != 1 || !slices.Contains(list[0].Objects, ends[0]) || !slices.Contains(list[0].Objects, ends[1]) ||
		list[0].Severity != doctor.Fail {
		t.Fatalf("the cable is %v; found\n%s", ends, words(rep))
	}
	if b := list[0].BER; b < ber/4 || b > ber*4 {
		t.Errorf("bit error rate %.1e, want about %.1e: %s", b, ber, list[0].Measured)
	}
	for _, s := range rep.Sections {
		for _, f := range s.Findings {
			// A switch discards what a receiver does not take in time, beside others that keep it from the processor.
			late := slices.Contains(f.Objects, "h9[1]") && strings.Contains(f.Measured, ib.PortXmitDiscards.String())
			if f.Severity >= doctor.Warn && s.Check != doctor.Cables && s.Check != doctor.Congestion && !late {
				t.Errorf("besides, %v:\n%s", s.Check, words(rep))
			}
		}
	}
	if len(theirs) == 0 || slices.ContainsFunc(theirs, func(n string) bool { return !slices.Contains(ends, n) }) {
		t.Errorf("ibqueryerrors names %v, we %v", theirs, list[0].Objects)
	}
}

// TestDoctorLIDs: ibdiagnet and our doctor agree on two ports with one address.
func TestDoctorLIDs(t *testing.T) {
	w := up(t, defaultSpec)
	w.sm.stop()
	lid := w.lid(w.node("h20"), 1)
	var req, resp [mad.Size]byte
	pi, _ := w.PortInfo(ref(w.node("h7"), 1))
	pi.LID, pi.PortState, pi.PortPhysicalState, pi.LinkDownDefaultState = lid, 0, 0, 0
	if _, err := (&mad.SMP{Method: mad.MethodSet, Attr: mad.AttrPortInfo, Modifier: 1,
		Data: pi.Append(nil)}).Append(req[:0]); err != nil {
		t.Fatal(err)
	}
	if !w.SMP(w.node("h7").Index, 0, &req, &resp) {
		t.Fatal("no answer")
	}
	list := findings(w.doctors("h3", doctor.RunOptions{}), "duplicate-lid")
	if len(list) != 1 || !slices.Equal(list[0].Objects, []string{"h7[1]", "h20[1]"}) {
		t.Errorf("%+v", list)
	}
	promptly(t) // see TestIbdiagnet
	text, _ := w.ibutils("h3", "ibdiagnet", "-skip", "pm", "-c", "1")
	if got := stages(t, text)["Bad GUIDs/LIDs Check"]; got[0] == 0 {
		t.Errorf("ibdiagnet finds %v:\n%s", got, text)
	}
}

// onSim starts ibsim on a fabric and gives a transport at its first host.
func onSim(t *testing.T, g *topo.Graph) func(host string) smrun.Transport {
	t.Helper()
	sim, err := exec.LookPath("ibsim")
	if err != nil {
		t.Fatal("no ibsim on this machine; next: make test, which installs ibsim-utils")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "net")
	if err := os.WriteFile(file, topo.Append(nil, g), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := fmt.Sprintf("softib-doctor-%d-%s", os.Getpid(), t.Name())
	server := exec.Command(sim, "-s", file)
	server.Env, server.Dir = append(server.Environ(), "IBSIM_SOCKNAME="+socket), dir
	_, err = server.StdinPipe() // a console that is at its end would keep ibsim busy
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	return func(host string) smrun.Transport {
		ctx, cancel := patient()
		defer cancel()
		p, err := ibsim.Dial(ctx, ibsim.Config{Host: host, Socket: socket, Wait: true})
		if err != nil {
			t.Fatal(err)
		}
		return smrun.OnIBSim(ibsim.NewSession(p))
	}
}

// TestDoctorOnIbsim: the doctor works on a fabric that is not ours: nothing is up before a manager was there, all is
// well after.
func TestDoctorOnIbsim(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	open := onSim(t, g)
	look := func(host string) *doctor.Report {
		tr := open(host)
		defer tr.Close()
		ctx, cancel := patient()
		defer cancel()
		found, err := doctor.Run(ctx, tr, doctor.RunOptions{Interval: 100 * time.Millisecond, Window: ibsim.InFlight,
			Timeout: 2 * ib.Second})
		if err != nil {
			t.Fatal(err)
		}
		return doctor.Judge(found.Before, found.After, doctor.Options{})
	}
	rep := look("")
	same(t, "cables", rep.Fabric.Cables, g.NumCables())
	same(t, "hosts", rep.Fabric.Hosts, len(g.Hosts()))
	if asleep := findings(rep, "not-active"); len(asleep) != 1 || len(asleep[0].Objects) != 2*g.NumCables() ||
		len(findings(rep, "no-master")) != 1 {
		t.Errorf("before a manager was there:\n%s", words(rep))
	}
	run, err := smrun.New(sm.Config{Window: ibsim.InFlight}, open(""), smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = run.Run(ctx) }()
	select {
	case <-run.Up():
	case <-time.After(inTime()):
		t.Fatal("the subnet does not come up")
	}
	rep = look(hostID(g.Hosts()[3]))
	cancel()
	<-run.Done()
	// ibsim's ports can do more than they have enabled, both ends alike: that is said, and is no fault.
	if !rep.Healthy() || len(findings(rep, "configured-rate")) != 1 {
		t.Errorf("with a manager:\n%s", words(rep))
	}
}

// hostID is what ibsim calls a host.
func hostID(n *topo.Node) string { return fmt.Sprintf("H-%016x", uint64(n.GUID)) }
