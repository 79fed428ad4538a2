package fieldtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// byLID finds the port of an address.
func (w *world) byLID(l ib.LID) (*topo.Node, int, bool) {
	for _, n := range w.g.Nodes {
		for p := endPort(n, 1); p <= n.NumPorts() && p == endPort(n, p); p++ {
			if pi := w.portInfo(n, p); pi.LID != 0 && pi.LID>>pi.LMC == l>>pi.LMC {
				return n, p, true
			}
		}
	}
	return nil, 0, false
}

// unicast are the lines of ibroute for a switch, from its own table.
func (w *world) unicast(n *topo.Node, first, last int, all, names bool) (out []string) {
	w.Helper()
	t := w.lft(n)
	for l := first; l <= min(last, len(t)-1); l++ {
		if int(t[l]) > n.NumPorts() {
			if all {
				out = append(out, fmt.Sprintf("0x%04x %03d : illegal port", l, t[l]))
			}
			continue
		}
		s := fmt.Sprintf("0x%04x %03d", l, t[l])
		if names {
			far, p, ok := w.byLID(ib.LID(l))
			if !ok {
				w.Fatalf("%s routes %#x, which nobody has", n.Name, l)
			}
			s += fmt.Sprintf(" : (%s portguid %s: '%s')", nodeType(far.Type), hexGUID(far.PortGUID(ib.PortNum(p))),
				far.Desc)
		}
		out = append(out, s)
	}
	return out
}

// tableLines are the lines of a dump that are entries.
func tableLines(text string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "0x") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestIbroute(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	for _, n := range []*topo.Node{w.node("leaf1"), w.node("leaf6"), w.node("spine4")} {
		top := len(w.lft(n)) - 1
		for _, way := range w.ways(n, 0) {
			out := w.run("h1", "ibroute", way.args...)
			sameLines(t, "ibroute "+way.name, tableLines(out), w.unicast(n, 0, top, false, true))
			wants(t, out, fmt.Sprintf("Unicast lids [0x0-%#x] of switch ", top),
				fmt.Sprintf(" guid %s (%s):\n", hexGUID(n.GUID), n.Desc),
				fmt.Sprintf("%d valid lids dumped", len(w.unicast(n, 0, top, false, false))))
		}
		lid := dec(w.lid(n, 0))
		sameLines(t, "ibroute -n", tableLines(w.run("h1", "ibroute", "-n", lid)), w.unicast(n, 0, top, false, false))
		sameLines(t, "ibroute LID 10", tableLines(w.run("h1", "ibroute", lid, "10")),
			w.unicast(n, 10, top, false, true))
		sameLines(t, "ibroute LID 0x10 0x20", tableLines(w.run("h1", "ibroute", lid, "0x10", "0x20")),
			w.unicast(n, 0x10, 0x20, false, true))
		every := tableLines(w.run("h1", "ibroute", "-a", "-n", lid))
		same(t, "ibroute -a: entries", len(every), top+1)
		out := w.run("h1", "ibroute", "-M", lid)
		sameLines(t, "ibroute -M", multicastRows(out), w.multicastRows(n))
	}
}

// multicastRows are the rows of a multicast table: the address and the ports that are marked.
func multicastRows(text string) (out []string) {
	var columns []int // where the mark of a port stands
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if i := strings.Index(line, "Ports:"); i >= 0 {
			columns = nil
			for at := i + len("Ports:"); at < len(line); at++ {
				if line[at] != ' ' {
					columns = append(columns, at)
				}
			}
			continue
		}
		if !strings.HasPrefix(line, "0x") {
			continue
		}
		row := line[:6]
		for p, at := range columns {
			if at < len(line) && line[at] == 'x' {
				row += fmt.Sprintf(" %d", p)
			}
		}
		out = append(out, row)
	}
	return out
}

// multicastRows are the same from the switch's own table.
func (w *world) multicastRows(n *topo.Node) (out []string) {
	w.Helper()
	for l := ib.LID(0xC000); l < 0xC040; l++ {
		ports := w.mft(n, l)
		if len(ports) == 0 {
			continue
		}
		row := fmt.Sprintf("0x%04x", uint16(l))
		for _, p := range ports {
			row += fmt.Sprintf(" %d", p)
		}
		out = append(out, row)
	}
	return out
}

// sections cuts a dump of all switches into those of each, by GUID.
func sections(text string) map[string]string {
	out := map[string]string{}
	for _, s := range strings.Split(text, "icast ")[1:] {
		if _, rest, ok := strings.Cut(s, " guid "); ok {
			guid, _, _ := strings.Cut(rest, " ")
			out[guid] = s
		}
	}
	return out
}

func TestDumps(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	for _, name := range []string{"dump_lfts", "dump_fts"} {
		got := sections(w.run("h1", name))
		same(t, name+": switches", len(got), len(w.g.Switches()))
		plain := sections(w.run("h9", name, "-n"))
		for _, n := range w.g.Switches() {
			sameLines(t, name+" of "+n.Name, tableLines(got[hexGUID(n.GUID)]), w.unicast(n, 0, 1<<16, false, true))
			sameLines(t, name+" -n of "+n.Name, tableLines(plain[hexGUID(n.GUID)]),
				w.unicast(n, 0, 1<<16, false, false))
		}
	}
	for _, cmd := range [][]string{{"dump_mfts"}, {"dump_fts", "-M"}} {
		got := sections(w.run("h1", cmd[0], cmd[1:]...))
		same(t, cmd[0]+": switches", len(got), len(w.g.Switches()))
		for _, n := range w.g.Switches() {
			sameLines(t, strings.Join(cmd, " ")+" of "+n.Name, multicastRows(got[hexGUID(n.GUID)]), w.multicastRows(n))
		}
	}
}

// traced are the hops of an ibtracert -n: [out] -> {guid}[in].
func traced(text string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "->") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestIbtracert(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	pairs := [][2]string{{"h1", "h2"}, {"h1", "h5"}, {"h1", "h32"}, {"h17", "h8"}, {"h30", "h3"}, {"h12", "spine2"},
		{"h4", "leaf1"}, {"leaf3", "h1"}, {"spine1", "leaf8"}}
	for _, pair := range pairs {
		a, b := w.node(pair[0]), w.node(pair[1])
		from, to := w.lid(a, 1), w.lid(b, 1)
		way, ok := w.walk(a, 1, to)
		if !ok {
			t.Fatalf("no way from %s to %s", a.Name, b.Name)
		}
		var want, long []string
		for _, h := range way {
			want = append(want, fmt.Sprintf("[%d] -> {%s}[%d]", h.out, hexGUID(h.to.PortGUID(ib.PortNum(h.in))), h.in))
			what := word(h.to.Type, "", "ca", "switch", "router")
			pi := w.portInfo(h.to, endPort(h.to, h.in))
			long = append(long, fmt.Sprintf("[%d] -> %s port {%s}[%d] lid %d-%d %q", h.out, what,
				hexGUID(h.to.PortGUID(ib.PortNum(h.in))), h.in, pi.LID, pi.LID, h.to.Desc))
		}
		for _, host := range []string{"h1", "h29"} {
			same(t, fmt.Sprintf("ibtracert -n %s %s on %s", a.Name, b.Name, host),
				strings.Join(traced(w.run(host, "ibtracert", "-n", dec(from), dec(to))), "\n"),
				strings.Join(want, "\n"))
		}
		out := w.run("h1", "ibtracert", dec(from), dec(to))
		same(t, fmt.Sprintf("ibtracert %s %s", a.Name, b.Name), strings.Join(traced(out), "\n"),
			strings.Join(long, "\n"))
		wants(t, out, "From ", "To ", fmt.Sprintf("%q", a.Desc), fmt.Sprintf("%q", b.Desc))
		byGUID := w.run("h1", "ibtracert", "-n", "-G", hexGUID(a.PortGUID(ib.PortNum(endPort(a, 1)))),
			hexGUID(b.PortGUID(ib.PortNum(endPort(b, 1)))))
		same(t, "ibtracert -G", strings.Join(traced(byGUID), "\n"), strings.Join(want, "\n"))
	}

	// Many pairs from a file.
	list := filepath.Join(t.TempDir(), "pairs")
	text := fmt.Sprintf("%d %d\n%d %d\n", w.lid(w.node("h1"), 1), w.lid(w.node("h9"), 1), w.lid(w.node("h2"), 1),
		w.lid(w.node("h31"), 1))
	if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, pair := range [][2]string{{"h1", "h9"}, {"h2", "h31"}} {
		way, _ := w.walk(w.node(pair[0]), 1, w.lid(w.node(pair[1]), 1))
		for _, h := range way {
			want = append(want, fmt.Sprintf("[%d] -> {%s}[%d]", h.out, hexGUID(h.to.PortGUID(ib.PortNum(h.in))), h.in))
		}
	}
	same(t, "ibtracert --ports-file", strings.Join(traced(w.run("h1", "ibtracert", "-n", "--ports-file", list)), "\n"),
		strings.Join(want, "\n"))
}

// Along the tree of the broadcast group, every host reaches every other, by ports that the switches' tables name.
func TestIbtracertMulticast(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	mlid := ib.LID(sm.BroadcastMLID)
	for _, pair := range [][2]string{{"h1", "h2"}, {"h1", "h32"}, {"h14", "h23"}} {
		a, b := w.node(pair[0]), w.node(pair[1])
		out := w.run("h1", "ibtracert", "-n", "-m", fmt.Sprintf("%#x", uint16(mlid)), dec(w.lid(a, 1)),
			dec(w.lid(b, 1)))
		at, in := a, 0
		for _, line := range traced(out) {
			var port, far int
			var guid uint64
			plain := strings.NewReplacer("switch", "", "ca ", "", "{", "", "}", " ", "[", "", "]", "", "->",
				"").Replace(line)
			if _, err := fmt.Sscanf(plain, "%d 0x%x %d", &port, &guid, &far); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			if at.IsSwitch() {
				ports := w.mft(at, mlid)
				if !slices.Contains(ports, port) || port == in {
					t.Errorf("%s sends %#x on by port %d, its table says %v", at.Name, uint16(mlid), port, ports)
				}
			}
			next, arrived, ok := w.peer(at, port)
			if !ok || arrived != far {
				t.Fatalf("port %d of %s leads to port %d, not to port %d:\n%s", port, at.Name, arrived, far, out)
			}
			if next.GUID != ib.GUID(guid) && next.PortGUID(ib.PortNum(arrived)) != ib.GUID(guid) {
				t.Errorf("port %d of %s leads to %s, not to %#x", port, at.Name, next.Name, guid)
			}
			at, in = next, arrived
		}
		same(t, fmt.Sprintf("ibtracert -m ends at %s", b.Name), at.Name, b.Name)
	}
}

func TestCheckLFTBalance(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	dir := t.TempDir()
	dump, cache := filepath.Join(dir, "lfts"), filepath.Join(dir, "cache")
	if err := os.WriteFile(dump, []byte(w.run("h1", "dump_lfts")), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run("h1", "ibnetdiscover", "--cache", cache)
	out := w.run("h1", "check_lft_balance", "-v", "-l", dump, "-i", cache)
	if strings.Contains(out, "Unbalanced") {
		t.Errorf("unbalanced:\n%s", out)
	}
	// How many hosts a port is used for, by switch.
	got := map[string]map[int]int{}
	var cur map[int]int
	for line := range strings.Lines(out) {
		var port, count int
		if _, guid, ok := strings.Cut(strings.TrimSpace(line), ", 0x"); ok &&
			strings.HasPrefix(line, "Switch Port Usage: ") {
			cur = map[int]int{}
			got["0x"+guid] = cur
		} else if k, _ := fmt.Sscanf(line, "Port %d: %d", &port, &count); k == 2 {
			cur[port] = count
		}
	}
	same(t, "switches", len(got), len(w.g.Switches()))
	for _, n := range w.g.Switches() {
		want := map[int]int{}
		for l, p := range w.lft(n) {
			if far, _, ok := w.byLID(ib.LID(l)); ok && !far.IsSwitch() && int(p) <= n.NumPorts() {
				want[int(p)]++
			}
		}
		for p := 1; p <= n.NumPorts(); p++ {
			if far, _, _ := w.peer(n, p); far.IsSwitch() { // it leaves out ports with a host behind them
				same(t, fmt.Sprintf("%s port %d", n.Name, p), got[hexGUID(n.GUID)][p], want[p])
			}
		}
	}
}

func TestIbfindnodesusing(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	for _, at := range []struct {
		name string
		port int
	}{{"leaf1", 5}, {"leaf1", 1}, {"spine2", 7}} {
		n := w.node(at.name)
		cmd := w.command("h1", "ibfindnodesusing", "-R", hexGUID(n.GUID), dec(at.port))
		w.ownCache(cmd)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("ibfindnodesusing: %v\n%s", err, out)
		}
		far, in, _ := w.peer(n, at.port)
		// Towards the far end, and back.
		there, back, ok := strings.Cut(string(out), "\n\n")
		if !ok {
			t.Fatalf("one direction only:\n%s", out)
		}
		ends := fmt.Sprintf("%s %d (%q base)  %%s  %s %d (%s)", hexGUID(n.GUID), at.port, n.Desc, hexGUID(far.GUID), in,
			far.Desc)
		used := func(text, arrow string, n *topo.Node, port int) {
			t.Helper()
			head, list, _ := strings.Cut(strings.TrimSpace(text), "\n")
			same(t, "ends", head, fmt.Sprintf(ends, arrow))
			var want []string
			for l, p := range w.lft(n) {
				if h, _, ok := w.byLID(ib.LID(l)); ok && !h.IsSwitch() && int(p) == port {
					want = append(want, h.Desc)
				}
			}
			// Descriptions have blanks, as the list that they are in: "h1 HCA-1 h2 HCA-1".
			got := strings.SplitAfter(strings.TrimSpace(list), " HCA-1")
			for i := range got {
				got[i] = strings.TrimSpace(got[i])
			}
			sameLines(t, fmt.Sprintf("nodes by %s[%d]", n.Name, port),
				slices.DeleteFunc(got, func(s string) bool { return s == "" }), want)
		}
		used(there, "==>>", n, at.port)
		if far.IsSwitch() {
			used(back, "<<==", far, in)
		}
	}
}
