package fieldtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// wiring is a graph without what differs between two fabrics of the same shape: every cable, by the numbers of its
// ends.
func wiring(g *topo.Graph) (out []string) {
	for _, c := range g.Cables() {
		a, b := fmt.Sprintf("%v[%d]", g.Nodes[c.A.Node].GUID, c.A.Port),
			fmt.Sprintf("%v[%d]", g.Nodes[c.B.Node].GUID, c.B.Port)
		out = append(out, min(a, b)+" "+max(a, b))
	}
	return out
}

// again starts a second fabric from what ibnetdiscover says of the first, and holds both against each other.
func (w *world) again(t testing.TB) {
	t.Helper()
	host := w.g.Hosts()[0].Name
	dump := w.run(host, "ibnetdiscover")
	g := w.parse(dump)
	twin := upGraph(t, g)
	for _, n := range w.g.Nodes {
		m := twin.g.ByGUID(n.GUID)
		if m == nil {
			t.Errorf("no %s", n.Name)
			continue
		}
		for p := endPort(n, 1); p <= n.NumPorts(); p++ {
			if p != 0 && !n.Ports[p].Connected() {
				continue
			}
			same(t, fmt.Sprintf("LID of %s[%d]", n.Name, p), twin.lid(m, p), w.lid(n, p))
			same(t, fmt.Sprintf("LMC of %s[%d]", n.Name, p), twin.portInfo(m, endPort(m, p)).LMC,
				w.portInfo(n, endPort(n, p)).LMC)
			same(t, fmt.Sprintf("rate of %s[%d]", n.Name, p), twin.rate(m, p), w.rate(n, p))
		}
	}
	w.sameGraph("the twin's graph", g)
	w.sameGraph("the twin's own dump", twin.parse(twin.run(host, "ibnetdiscover")))
	// Line by line, but for the date and the order.
	body := func(text string) []string {
		var out []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "# Topology file: generated on") {
				out = append(out, strings.TrimRight(line, "\n"))
			}
		}
		return out
	}
	sameLines(t, "the twin's dump", body(twin.run(host, "ibnetdiscover")), body(dump))
	if bad := twin.reachable(); len(bad) > 0 {
		t.Errorf("no way from %s", strings.Join(bad, ", "))
	}
	// The other tools tell of the same fabric.
	for _, tool := range [][]string{{"ibnetdiscover", "-p"}, {"iblinkinfo"}, {"iblinkinfo", "-l"}} {
		said := w.run(host, tool[0], tool[1:]...)
		r, err := topo.Read(strings.Join(tool, " "), []byte(said))
		if err != nil {
			t.Errorf("%v in\n%s", err, said)
			continue
		}
		same(t, fmt.Sprint(tool, ": nodes"), len(r.Nodes), len(w.g.Nodes))
		sameLines(t, strings.Join(tool, " "), cabling(r.Graph), cabling(w.g))
	}
}

// cabling is wiring by the GUIDs of ports, with rates: some tools tell of no others.
func cabling(g *topo.Graph) (out []string) {
	for _, c := range g.Cables() {
		a := fmt.Sprintf("%v[%d]", g.Nodes[c.A.Node].PortGUID(c.A.Port), c.A.Port)
		b := fmt.Sprintf("%v[%d]", g.Nodes[c.B.Node].PortGUID(c.B.Port), c.B.Port)
		out = append(out, fmt.Sprintf("%s %s %v", min(a, b), max(a, b), g.LinkRate(c.A)))
	}
	return out
}

// What ibnetdiscover says of a fabric makes the same fabric again.
func TestDumpAgain(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{defaultSpec, "star:5,speed=HDR", "torus:3x3,hosts=2,speed=EDR",
		"fat-tree:radix=4,levels=3", "dragonfly:a=4,h=2,p=2,g=5"} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			up(t, spec).again(t)
		})
	}
	t.Run("routed", func(t *testing.T) {
		t.Parallel()
		g, err := topo.Parse("routed", []byte(routed))
		if err != nil {
			t.Fatal(err)
		}
		upGraph(t, g).again(t)
	})
}

// TestByMachine gives programs hosts with the ports of all adapters of a machine.
func TestByMachine(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../proto/topo/testdata/dumps/dgx.ibnetdiscover")
	if err != nil {
		t.Fatal(err)
	}
	g, err := topo.Parse("dgx", text)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = g.ByMachine(); err != nil {
		t.Fatal(err)
	}
	w := upGraph(t, g)
	for host, want := range map[string]int{"dgx01": 4, "dgx02": 4, "login1": 1} {
		_, ports := devinfo(w.run(host, "ibv_devinfo", "-v"))
		if len(ports) != want {
			t.Errorf("%s has %d ports, want %d", host, len(ports), want)
		}
		for i, is := range ports {
			is.expect(t, fmt.Sprintf("%s[%d]", host, i+1), w.portSheet(w.node(host), i+1))
		}
	}
	// The last port of each carries, and not another in its name.
	sent := func() uint64 { return w.Counters(ref(w.node("dgx01"), 4))[ib.PortXmitData] }
	before := sent()
	server, client := w.pair("dgx02", "dgx01", "ibv_rc_pingpong", "-i", "4", "-n", "100")
	for _, out := range []string{server, client} {
		if m := pingpongTime.FindStringSubmatch(out); m == nil || m[1] != "100" {
			t.Errorf("ibv_rc_pingpong says\n%s", out)
		}
	}
	if n := sent() - before; n < 100*4096/4 {
		t.Errorf("dgx01[4] sent %d words", n)
	}
}

const simExamples = "/usr/share/doc/ibsim-utils/net-examples"

// ibsim's own example files make the fabrics that ibsim makes of them.
func TestIbsimExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(simExamples, "net*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no %s on this machine; next: make test, which installs ibsim-utils", simExamples)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			g, err := topo.Parse(file, text)
			if err != nil {
				t.Fatal(err)
			}
			w := upGraph(t, g)
			w.sameGraph("ibnetdiscover", w.parse(w.run(w.g.Hosts()[0].Name, "ibnetdiscover")))
			if bad := w.reachable(); len(bad) > 0 {
				t.Errorf("no way from %s", strings.Join(bad, ", "))
			}
			w.again(t)

			theirs := w.parse(simulated(t, file))
			sameLines(t, "cables in ibsim", wiring(theirs), wiring(w.g))
			for _, n := range theirs.Nodes {
				m := w.g.ByGUID(n.GUID)
				if m == nil {
					t.Errorf("ibsim has a node %v", n.GUID)
					continue
				}
				same(t, n.Name+": type", m.Type, n.Type)
				same(t, n.Name+": ports", m.NumPorts(), n.NumPorts())
				same(t, n.Name+": description", m.Desc, n.Desc)
			}
		})
	}
}

// simulated is what ibnetdiscover says of a file's fabric in ibsim.
func simulated(t testing.TB, file string) string {
	t.Helper()
	sim, err := exec.LookPath("ibsim")
	if err != nil {
		t.Fatal("no ibsim on this machine; next: make test, which installs ibsim-utils")
	}
	preload, _ := filepath.Glob("/usr/lib/*/umad2sim/libumad2sim.so")
	if len(preload) == 0 {
		t.Fatal("no libumad2sim on this machine; next: make test, which installs ibsim-utils")
	}
	dir := t.TempDir()
	name := fmt.Sprint("softib-field-", filepath.Base(dir), os.Getpid(), filepath.Base(file))
	env := append(os.Environ(), "IBSIM_SOCKNAME="+name)
	server := exec.Command(sim, "-s", file)
	server.Env, server.Dir = env, dir
	if _, err := server.StdinPipe(); err != nil { // a console that is at its end would keep ibsim busy
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for deadline := time.Now().Add(inTime()); !bound(t, name+":out9"); time.Sleep(5 * time.Millisecond) { // its last
		if time.Now().After(deadline) {
			t.Fatal("ibsim has no sockets")
		}
	}
	cmd := exec.Command(tool(t, "ibnetdiscover"))
	cmd.Env, cmd.Dir = append(env, "LD_PRELOAD="+preload[0]), dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ibnetdiscover in ibsim: %v\n%s", err, out)
	}
	return string(out)
}

// bound looks for an abstract Unix socket in the kernel's table, which writes a zero byte as @.
func bound(t testing.TB, name string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(table), " @"+name+"@\n")
}
