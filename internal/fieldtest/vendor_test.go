package fieldtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"softib/proto/mad"
	"softib/proto/topo"
)

// pinged checks an ibping: all answered, by whom, and in a time that can be.
func pinged(t testing.TB, text, name string, lid, count int) {
	t.Helper()
	wants(t, text, fmt.Sprintf("--- %s (Lid %d) ibping statistics ---", name, lid),
		fmt.Sprintf("%d packets transmitted, %d received, 0%% packet loss", count, count))
	_, times, _ := strings.Cut(text, "rtt min/avg/max = ")
	var least, mean, most float64
	if _, err := fmt.Sscanf(strings.ReplaceAll(times, "/", " "), "%f %f %f ms", &least, &mean, &most); err != nil ||
		least > mean || mean > most || most <= 0 {
		t.Errorf("times %q: %v", times, err)
	}
}

func TestIbping(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	// A node answers by itself.
	for _, n := range []*topo.Node{w.node("h2"), w.node("h31"), w.node("spine1")} {
		lid := w.lid(n, 1)
		pinged(t, w.run("h1", "ibping", "-c", "20", "-f", dec(lid)), n.Desc, int(lid), 20)
		pinged(t, w.run("h1", "ibping", "-c", "20", "-f", "-G", hexGUID(n.PortGUID(1))), n.Desc, int(lid), 20)
	}
	// A program on a host answers in its place. It tells the name of the machine that it runs on.
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	far := w.node("h20")
	w.serving("h20", "ibping", "-S")
	w.eventually("ibping -S to serve", func() bool {
		out, _ := w.command("h1", "ibping", "-c", "1", "-f", dec(w.lid(far, 1))).CombinedOutput()
		return strings.Contains(string(out), name)
	})
	out := w.run("h1", "ibping", "-t", "20000", "-c", "1", dec(w.lid(far, 1)))
	wants(t, out, "Pong from "+name)
	flood := w.run("h9", "ibping", "-t", "20000", "-c", "50", "-f", dec(w.lid(far, 1)))
	wants(t, flood, "50 packets transmitted, 50 received, 0% packet loss", name)
	// One class has one server at a port.
	wants(t, w.fails("h20", "ibping", "-S"), "can't serve class")
	// Another OUI is another class: nobody serves it.
	lost := w.command("h1", "ibping", "-c", "1", "-f", "-t", "50", "-o", "0x123456", dec(w.lid(far, 1)))
	text, _ := lost.CombinedOutput()
	wants(t, string(text), "1 packets transmitted, 0 received, 100% packet loss")
}

func TestIbsysstat(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	n := w.node("h12")
	lid := dec(w.lid(n, 1))
	same(t, "ping", w.run("h1", "ibsysstat", "-t", "20000", lid), "sysstat ping succeeded\n")
	same(t, "ping by name", w.run("h1", "ibsysstat", "-t", "20000", lid, "ping"), "sysstat ping succeeded\n")
	same(t, "ping by GUID", w.run("h1", "ibsysstat", "-t", "20000", "-G", hexGUID(n.PortGUID(1)), "ping"),
		"sysstat ping succeeded\n")
	same(t, "host", w.run("h1", "ibsysstat", "-t", "20000", lid, "host"), n.Desc+"\n")

	// A program on the host tells of its machine.
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	w.serving("h12", "ibsysstat", "-S")
	w.eventually("ibsysstat -S to serve", func() bool {
		out, _ := w.command("h1", "ibsysstat", lid, "host").CombinedOutput()
		return strings.HasPrefix(string(out), name)
	})
	same(t, "ping of a program", w.run("h1", "ibsysstat", "-t", "20000", lid), "sysstat ping succeeded\n")
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for line := range strings.Lines(string(info)) {
		if strings.HasPrefix(line, "processor") {
			want++
		}
	}
	cpus := w.run("h30", "ibsysstat", "-t", "20000", lid, "cpu")
	if got := strings.Count(cpus, "cpu "); got < 1 || got > want {
		t.Errorf("%d processors, want %d:\n%s", got, want, cpus)
	}
}

func TestVendstat(t *testing.T) {
	t.Parallel()
	g, err := topo.ParseSpec(defaultSpec)
	if err != nil {
		t.Fatal(err)
	}
	g.ByName("spine2").DeviceID = mad.MlnxDeviceIS3
	w := upGraph(t, g)
	for _, n := range []*topo.Node{w.node("h7"), w.node("leaf6"), w.node("spine2")} {
		before := int(w.Now() / 1e12)
		out := w.run("h1", "vendstat", "-t", "20000", "-N", dec(w.lid(n, 1)))
		s := map[string]string{}
		for line := range strings.Lines(out) {
			name, v, _ := strings.Cut(line, ":")
			s[name] = strings.TrimSpace(v)
		}
		same(t, n.Name+": hw_dev_id", s["hw_dev_id"], fmt.Sprintf("0x%04x", n.DeviceID))
		same(t, n.Name+": fw_psid", s["fw_psid"], "'SOFTIB'")
		var uptime int
		fmt.Sscanf(s["hw_uptime"], "0x%x", &uptime)
		if after := int(w.Now() / 1e12); uptime < before || uptime > after {
			t.Errorf("%s: uptime %d s, want %d to %d", n.Name, uptime, before, after)
		}
	}
	leaf := dec(w.lid(w.node("leaf6"), 0))
	wants(t, w.run("h1", "vendstat", "-t", "20000", "-i", leaf, "3"), "2 counter groups", "group0 mask 0x7",
		"group1 mask 0x106")
	wants(t, w.run("h1", "vendstat", "-t", "20000", "-c", "0,1", leaf, "3"), "configuring group0 0 group1 1")
	wants(t, w.run("h1", "vendstat", "-t", "20000", "-c", "2,8", "-G", hexGUID(w.node("leaf6").GUID), "3"),
		"configuring group0 2 group1 8")
	out, _ := w.command("h1", "vendstat", "-t", "20000", "-c", "9,9", leaf, "3").CombinedOutput() // no such group
	wants(t, string(out), "config counter group set failure")
	// The registers of an InfiniScale III: the time that ports have waited, which here is none.
	spine := dec(w.lid(w.node("spine2"), 0))
	wait := w.run("h1", "vendstat", "-t", "20000", "-w", spine)
	same(t, "ports that have waited", wait, "")
	wants(t, w.fails("h1", "vendstat", "-t", "20000", "-w", leaf), "Unsupported device ID")
}
