package fieldtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

func init() { packages["ibdiagnet"], packages["ibdiagpath"] = "ibutils", "ibutils" }

// ibutils runs a program of ibutils and returns what it printed, without its progress, and where its files are. They
// are scripts that want a folder for files beside.
func (w *world) ibutils(host, name string, args ...string) (text, dir string) {
	w.Helper()
	dir = w.TempDir()
	cmd := w.command(host, name, append([]string{"-o", dir}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		text += line[strings.LastIndex(strings.TrimRight(line, "\r\n"), "\r")+1:]
	}
	if err != nil && name == "ibdiagnet" {
		w.Fatalf("%s %s on %s: %v\n%s", name, strings.Join(args, " "), host, err, text)
	}
	return text, dir
}

// stages is ibdiagnet's last table: errors and warnings by stage.
func stages(t testing.TB, text string) map[string][2]int {
	t.Helper()
	all := map[string][2]int{}
	_, table, _ := strings.Cut(text, "STAGE")
	for _, m := range regexp.MustCompile(`(?m)^ +(\S.*?) +(\d+) +(\d+) *$`).FindAllStringSubmatch(table, -1) {
		errors, _ := strconv.Atoi(m[2])
		warnings, _ := strconv.Atoi(m[3])
		all[m[1]] = [2]int{errors, warnings}
	}
	if len(all) == 0 {
		t.Fatalf("no table of stages in:\n%s", text)
	}
	return all
}

// complaints are the lines in which ibdiagnet says what is wrong.
var complaints = regexp.MustCompile(`(?m)^-[EW]- .*(\n +.*)*`)

// file is the text of a file that a program left.
func (w *world) file(dir, name string) string {
	w.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		w.Fatal(err)
	}
	return string(b)
}

// ibdiagnet finds nothing wrong with a fabric of ours and its manager, in any of its checks, and sees the fabric as it
// is. It runs beside no other test and promptly, as ibdiagpath does: it gives each datagram 100 ms of real time, the
// turns of its own threads included, and cannot be told otherwise. Three that take longer are a bad link to it.
func TestIbdiagnet(t *testing.T) {
	w := up(t, defaultSpec)
	promptly(t)
	hosts, switches, cables := len(w.g.Hosts()), len(w.g.Switches()), 0
	for _, n := range w.g.Nodes {
		for p := 1; p <= n.NumPorts(); p++ {
			if far, in, ok := w.peer(n, p); ok && cmp.Or(cmp.Compare(n.Index, far.Index), cmp.Compare(p, in)) < 0 {
				cables++
			}
		}
	}
	w.inventoried()
	// The report wants -vlr: without it this version ends in a segmentation fault, on ibsim as well.
	text, dir := w.ibutils("h3", "ibdiagnet", "-r", "-u", "-vlr", "-pm", "-lw", "4x", "-ls", "10", "-c", "2")
	found := stages(t, text)
	for _, s := range []string{
		"Bad GUIDs/LIDs Check", "Link State Active Check", "General Devices Info Report", "Performance Counters Report",
		"Specific Link Width Check", "Specific Link Speed Check", "Partitions Check", "IPoIB Subnets Check",
		"Extracting SL Based Routing Info", "Subnet Manager Check", "Fabric Qualities Report", "Credit Loops Check",
		"Multicast Groups Report",
	} {
		got, ok := found[s]
		want := [2]int{}
		if s == "IPoIB Subnets Check" {
			want[1] = 1 // the broadcast group is slower than it need be, as partitions.conf's default is
		}
		if !ok || got != want {
			t.Errorf("%s: %v, want %v: %q", s, got, want, complaints.FindAllString(text, -1))
		}
		delete(found, s)
	}
	if len(found) > 0 {
		t.Errorf("more stages: %v", found)
	}
	pairs := hosts * (hosts - 1)
	wants(t, text,
		fmt.Sprintf("Defined %d/%[1]d systems/nodes", hosts+switches),
		fmt.Sprintf("PKey:0x7fff Hosts:%d full:%[1]d limited:0", hosts),
		fmt.Sprintf("Query %d Path Records", (hosts+switches)*(hosts+switches)),
		fmt.Sprintf("Scanned:%d CA to CA paths", pairs),
		fmt.Sprintf("No credit loops found in:%d CA to CA paths", pairs),
		fmt.Sprintf("Multicast Group:0xC000 has:%d switches and:%d HCAs", 9, hosts), // the leaves and one spine
		fmt.Sprintf("lid=0x%04x guid=%s dev=1", int(w.lid(w.node("h1"), 1)), hexGUID(w.node("h1").PortGUID(1))),
		"No bad link were found",
	)
	w.compareLinks(w.file(dir, "ibdiagnet.lst"), cables)
	w.compareTables(w.file(dir, "ibdiagnet.fdbs"), w.file(dir, "ibdiagnet.mcfdbs"))
	if n := len(strings.Split(strings.TrimSpace(w.file(dir, "ibdiagnet.slvl")), "\n")); n != switches*9*9 {
		t.Errorf("%d tables of lanes, want %d", n, switches*9*9)
	}

	// What is not as it should be it does name.
	text, _ = w.ibutils("h3", "ibdiagnet", "-lw", "12x", "-skip", "pm", "-c", "1")
	same(t, "links of another width", stages(t, text)["Specific Link Width Check"], [2]int{0, cables})
}

// compareLinks compares the list of links with the cables.
func (w *world) compareLinks(text string, cables int) {
	w.Helper()
	ends := regexp.MustCompile(`\bNodeGUID:([0-9a-f]+) .*?\bPN:([0-9A-F]+)`)
	same(w, "links", strings.Count(text, "\n"), cables)
	for line := range strings.Lines(text) {
		m := ends.FindAllStringSubmatch(line, -1)
		if len(m) != 2 {
			w.Fatalf("no two ends in %q", line)
		}
		var nodes [2]*topo.Node
		var ports [2]int
		for i := range m {
			guid, _ := strconv.ParseUint(m[i][1], 16, 64)
			at := slices.IndexFunc(w.g.Nodes, func(n *topo.Node) bool { return n.GUID == ib.GUID(guid) })
			if at < 0 {
				w.Fatalf("no node %s", m[i][1])
			}
			p, _ := strconv.ParseInt(m[i][2], 16, 32)
			nodes[i], ports[i] = w.g.Nodes[at], int(p)
		}
		if far, in, ok := w.peer(nodes[0], ports[0]); !ok || far != nodes[1] || in != ports[1] {
			w.Errorf("%s[%d] is not cabled to %s[%d]", nodes[0].Name, ports[0], nodes[1].Name, ports[1])
		}
		wants(w, line, "PHY=4x", "LOG=ACT", "SPD=10")
	}
}

// compareTables compares dumps of forwarding tables with what the switches hold.
func (w *world) compareTables(unicast, multicast string) {
	w.Helper()
	rows := regexp.MustCompile(`(?m)^0x([0-9A-F]{4}) : (.*)$`)
	for _, n := range w.g.Switches() {
		section := func(text string) [][]string {
			_, part, ok := strings.Cut(text, "Switch "+hexGUID(n.GUID))
			if !ok {
				w.Fatalf("no table of %s", n.Name)
			}
			part, _, _ = strings.Cut(part, "Switch ")
			return rows.FindAllStringSubmatch(part, -1)
		}
		lft, seen := w.lft(n), 0
		for _, r := range section(unicast) {
			lid, _ := strconv.ParseUint(r[1], 16, 16)
			port, _, _ := strings.Cut(r[2], " ")
			if !strings.Contains(r[2], "UNREACHABLE") {
				seen++
				same(w, fmt.Sprintf("%s: port to LID %d", n.Name, lid), port, fmt.Sprintf("%03d", lft[lid]))
			}
		}
		routed := 0
		for _, p := range lft[1:] {
			if p != 0xFF {
				routed++
			}
		}
		same(w, n.Name+": LIDs", seen, routed)
		var got, last string
		for _, r := range section(multicast) {
			ports := strings.Join(strings.Fields(r[2]), " ")
			if ports == last {
				// Where an answer is late ibdiagnet prints the block before it again, under the next number.
				w.Logf("%s: %s is the block before it once more", n.Name, r[1])
				continue
			}
			got += r[1] + " " + ports
			last = ports
		}
		want := ""
		for i, p := range w.mft(n, 0xC000) {
			if i == 0 {
				want = "C000"
			}
			want += fmt.Sprintf(" 0x%03x", p)
		}
		same(w, n.Name+": ports of the broadcast group", got, want)
	}
}

// ibdiagpath follows a route that it is given. It does not come to its end with today's Tcl, whoever manages the
// subnet, but by then it has looked at all ports of the way, their counters and partitions.
func TestIbdiagpath(t *testing.T) {
	w := up(t, defaultSpec)
	promptly(t)
	from, to := w.node("h2"), w.node("h21")
	ports := strings.Split(strings.TrimPrefix(w.route(from, to), "0,"), ",")
	text, _ := w.ibutils(from.Name, "ibdiagpath", "-d", strings.Join(ports, ","))
	at, trace := from, ""
	for _, p := range ports {
		out, _ := strconv.Atoi(p)
		far, in, ok := w.peer(at, out)
		if !ok {
			t.Fatalf("no cable at %s[%d]", at.Name, out)
		}
		trace += fmt.Sprintf("From %d %d To %d %d\n", w.lid(at, out), out, w.lid(far, in), in)
		at = far
	}
	got := ""
	for _, m := range regexp.MustCompile(`(From|To): +lid=0x([0-9a-f]+) guid=\S+ dev=\d `+
		`(?:Port=|\S+/P)(\d+)`).FindAllStringSubmatch(text, -1) {
		lid, _ := strconv.ParseUint(m[2], 16, 16)
		got += fmt.Sprintf("%s %d %s", m[1], lid, m[3])
		if m[1] == "To" {
			got += "\n"
		} else {
			got += " "
		}
	}
	same(t, "the way", got, trace)
	wants(t, text, "No illegal PM counters values were found", "Path shared PKeys: 0xffff",
		"IPv4 PKey:0x7fff QKey:0x00000b1b")
}
