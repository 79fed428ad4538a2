package topo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

func mustRead(t testing.TB, name string) *Reading {
	t.Helper()
	r, err := Read(name, readFile(t, filepath.Join("dumps", name)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// facts are what two readings of one fabric have in common, whatever the order: who there is, by the GUIDs of ports,
// and what is plugged in where, how fast.
func facts(g *Graph) (list []string) {
	name := func(r PortRef) string {
		n := g.Nodes[r.Node]
		return fmt.Sprintf("%v[%d]", n.PortGUID(r.Port), r.Port)
	}
	for _, n := range g.Nodes {
		list = append(list, fmt.Sprintf("%v %s %q", n.Type, n.Name, n.Desc))
	}
	for _, r := range g.EndPorts() {
		list = append(list, fmt.Sprintf("%s LID %d", name(r), g.Port(r).LID))
	}
	for _, c := range g.Cables() {
		a, b := name(c.A), name(c.B)
		list = append(list, fmt.Sprintf("%s %s %v", min(a, b), max(a, b), g.LinkRate(c.A)))
	}
	slices.Sort(list)
	return list
}

// TestFormats reads one fabric as every tool tells it.
func TestFormats(t *testing.T) {
	want := facts(mustRead(t, "small.ibnetdiscover").Graph)
	if len(want) != 4+5+4 {
		t.Fatalf("the fabric is %v", want)
	}
	seen := map[Format]bool{}
	for _, c := range []struct {
		name    string
		format  Format
		noFDR10 bool // ibutils do not know it
		newLIDs bool // OpenSM gave its own
		noGUIDs bool // of nodes
	}{
		{"small.ibnetdiscover", Discovered, false, false, false},
		{"small.ibdiagnet2.ibnetdiscover", Discovered, false, false, false},
		{"small.ports", PortList, false, false, true},
		{"small.linkinfo", LinkInfo, false, false, true},
		{"small.linkinfo-l", LinkInfo, false, false, true},
		{"small.ibdiagnet.lst", SubnetList, true, false, false},
		{"small.opensm.lst", SubnetList, false, true, false},
		{"small.ibdiagnet2.net_dump", NetDump, false, false, false},
		{"small.ibdiagnet2.db_csv", DBCSV, false, false, false},
	} {
		r := mustRead(t, c.name)
		checkConsistent(t, r.Graph)
		roundTrip(t, r.Graph)
		got, want := facts(r.Graph), slices.Clone(want)
		for i := range want {
			if c.noFDR10 {
				want[i] = strings.Replace(want[i], "FDR10", "QDR", 1)
			}
			if c.newLIDs {
				got[i], _, _ = strings.Cut(got[i], " LID")
				want[i], _, _ = strings.Cut(want[i], " LID")
			}
		}
		slices.Sort(want)
		if r.Format != c.format || len(r.Remarks) != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: format %v, remarks %v; reads\n%s\nwant\n%s", c.name, r.Format, r.Remarks,
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if n := r.ByName("leaf1"); n.NumPorts() != 8 {
			t.Errorf("%s: leaf1 has %d ports", c.name, n.NumPorts())
		}
		if n := r.ByName("node01"); !c.noGUIDs && n.GUID != 0xb00 || n.NumPorts() != 2 {
			t.Errorf("%s: node01 is %v with %d ports", c.name, n.GUID, n.NumPorts())
		}
		if n := r.ByName("node02"); c.format == SubnetList && (n.DeviceID != 0x1003 || n.VendorID != 0x2c9) {
			t.Errorf("%s: node02 is a %#x of %#x", c.name, n.DeviceID, n.VendorID)
		}
		seen[c.format] = true
	}
	if len(seen) != int(NumFormat) {
		t.Errorf("tried %v", seen)
	}
}

// TestPublicDumps reads public dumps, which are not kept here, from a folder that has them under these names:
// SOFTIB_DUMPS=FOLDER go test ./proto/topo -run TestPublicDumps. docs/TRUTH.md says where each comes from.
func TestPublicDumps(t *testing.T) {
	dir := os.Getenv("SOFTIB_DUMPS")
	if dir == "" {
		t.Skip("SOFTIB_DUMPS names no folder")
	}
	const sequoia = "fabric, 256 hosts, 7 aggregation nodes, 9 switches, 271 cables, 4x NDR"
	for name, says := range map[string]string{
		"ibtopotool-1.topo":       "fabric, 4 hosts, 2 switches, 7 cables, 4x SDR and 1x SDR",
		"ibtopotool-2.topo":       "fabric, 2 hosts, 1 switch, 2 cables, 4x SDR",
		"ibtopotool-3.topo":       "fabric, 6 hosts, 2 switches, 10 cables, 4 rates from 4x SDR to 4x EDR",
		"ibtopotool-4.topo":       "fabric, 1 host, 1 switch, 1 cable, 4x QDR",
		"exporter.ports":          "fabric, 3 hosts, 4 switches, 4 cables, 4x EDR",
		"k4n3.topo":               "fabric, 128 hosts, 80 switches, 384 cables, 4x EDR",
		"loginoff.topo":           "fabric, 144 hosts, 8 switches, 192 cables, 4x FDR10 and 4x QDR",
		"topograph.topo":          "fabric, 542 hosts, 40 aggregation nodes, 40 switches, 1114 cables, 4x NDR",
		"sequoia-a.db_csv":        sequoia,
		"sequoia-a.ibnetdiscover": sequoia,
		"sequoia-a.lst":           sequoia,
		"sequoia-a.net_dump":      sequoia,
		"sequoia-b.db_csv":        sequoia,
		"sequoia-b.ibnetdiscover": sequoia,
		"sequoia-b.lst":           sequoia,
		"sequoia-b.net_dump":      sequoia,
		"teaker.linkinfo":         "fabric, 8 hosts, 1 switch, 9 cables, 4x QDR",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		r, err := Read(name, text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := Describe(r.Graph); got != says {
			t.Errorf("%s: %s, want %s", name, got, says)
		}
		byMachine, err := r.ByMachine()
		if err != nil {
			t.Error(err)
			continue
		}
		switch hosts, _ := byMachine.HostsApart(); {
		case name == "topograph.topo" && len(hosts) != 191, says == sequoia && len(hosts) != 32:
			t.Errorf("%s: %d machines", name, len(hosts))
		}
	}
}

// TestRemarks passes over what is no part of a dump, and says so.
func TestRemarks(t *testing.T) {
	const noise = "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1,1,31 Attr 0x11:0) bad status 110"
	head := "[root@node01 ~]# ibnetdiscover | tee x\nLast login: Wed Nov 18 15:00:01 2026\n"
	for _, name := range []string{"small.ibnetdiscover", "small.ports", "small.linkinfo", "small.linkinfo-l",
		"small.ibdiagnet.lst", "small.ibdiagnet2.net_dump"} {
		text := string(readFile(t, filepath.Join("dumps", name)))
		whole := facts(mustRead(t, name).Graph)
		at := strings.LastIndex(strings.TrimSpace(text), "\n") + 1
		line := strings.Count(head+text[:at], "\n") + 1
		r, err := Read(name, []byte(head+text[:at]+noise+"\n"+text[at:]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var lines []int
		for _, odd := range r.Remarks {
			lines = append(lines, odd.Line)
		}
		if !slices.Equal(lines, []int{1, 2, line}) || !slices.Equal(facts(r.Graph), whole) {
			t.Errorf("%s: %v, want lines 1, 2 and %d", name, r.Remarks, line)
		}
		if !strings.Contains(r.Remarks[2].String(), "src/query_smp.c:195") {
			t.Errorf("%s: %v does not name the line", name, r.Remarks[2])
		}
	}
}

// TestOddLIDs takes addresses that no port can have for none.
func TestOddLIDs(t *testing.T) {
	for _, lid := range []string{"65535", "49152", "60000"} {
		text := strings.Replace(string(readFile(t, "dumps/small.ibnetdiscover")), "# lid 6 lmc", "# lid "+lid+" lmc", 1)
		r, err := Read("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Remarks) != 1 || !strings.Contains(r.Remarks[0].Text, lid) || r.ByName("node02").Ports[1].LID != 0 ||
			r.ByName("node01").Ports[1].LID != 2 {
			t.Errorf("LID %s: %v, %d", lid, r.Remarks, r.ByName("node02").Ports[1].LID)
		}
		text = strings.ReplaceAll(string(readFile(t, "dumps/small.ports")), "CA     6", "CA "+lid)
		if r, err = Read("x", []byte(text)); err != nil || len(r.Remarks) != 2 || r.ByName("node02").Ports[1].LID != 0 {
			t.Errorf("LID %s of a port: %v, %v", lid, err, r)
		}
	}
}

// TestUnknownFormat names the formats to one who comes with another.
func TestUnknownFormat(t *testing.T) {
	_, err := Read("x", []byte("# a comment\n\n<xml>\n</xml>\n"))
	var pe *ParseError
	if !errors.As(err, &pe) || pe.Line != 3 || !errors.Is(err, ErrSyntax) {
		t.Fatal(err)
	}
	for f := range NumFormat {
		if f != Discovered && !strings.Contains(err.Error(), f.String()) {
			t.Errorf("%v does not name %v", err, f)
		}
	}
}

// TestListErrors refuses what cannot be: each with its line.
func TestListErrors(t *testing.T) {
	for _, c := range []struct {
		name, old, new string
		line           int
		kind           error
	}{
		{"small.ports", "CA     2  1", "CA     2 255", 2, ErrSyntax},
		{"small.ports", "- SW     5  8", "- SW     5  1", 11, ErrPortInUse},
		{"small.ports", "SW     1  7", "XX", 4, ErrSyntax},
		{"small.linkinfo", "CA: node01 HCA-1:\n", "", 0, nil},
		{"small.linkinfo", "1    3[  ]", "1    x[  ]", 7, ErrSyntax},
		{"small.ibdiagnet.lst", "PN:08 } {", "PN:00 } {", 2, ErrSyntax},
		{"small.ibdiagnet.lst", "PN:08 } {", "PN:01 } {", 2, ErrPortInUse},
		{"small.ibdiagnet2.net_dump", "  1/8/2      : 8", "  1/8/2      : x", 12, ErrSyntax},
		{"small.ibdiagnet2.net_dump", ": 1/4/2      :", ": 1/9/2      :", 12, ErrUnknownPort},
		{"small.ibdiagnet2.db_csv", "END_LINKS\n", "", 50, ErrSyntax},
		{"small.ibdiagnet2.db_csv", "0x0000000000000a00,8,0x0000000000000a10,8", "0x0000000000000a00,8,0x1,8", 48,
			ErrUnknownNode},
		{"small.ibdiagnet2.db_csv", "a00,8,0x0000000000000a10,8", "a00,9,0x0000000000000a10,8", 48, ErrUnknownNode},
	} {
		text := string(readFile(t, filepath.Join("dumps", c.name)))
		if !strings.Contains(text, c.old) {
			t.Fatalf("%s has no %q", c.name, c.old)
		}
		_, err := Read("x", []byte(strings.Replace(text, c.old, c.new, 1)))
		var pe *ParseError
		if c.kind == nil {
			if err != nil {
				t.Errorf("%s without %q: %v", c.name, c.old, err)
			}
		} else if !errors.As(err, &pe) || !errors.Is(err, c.kind) || pe.Line != c.line {
			t.Errorf("%s with %q: %v; want line %d, %v", c.name, c.new, err, c.line, c.kind)
		}
	}
}

func TestLaneSpeed(t *testing.T) {
	for s, want := range map[string]ib.Speed{"2.5": ib.SDR, "5": ib.DDR, "5.0": ib.DDR, "10": ib.QDR, "10.0": ib.QDR,
		"FDR10": ib.FDR10, "14": ib.FDR, "14.0625": ib.FDR, "25": ib.EDR, "25.78125": ib.EDR, "50": ib.HDR,
		"53.125": ib.HDR, "100": ib.NDR, "106.25": ib.NDR, "200": ib.XDR, "212.5": ib.XDR} {
		if got, ok := laneSpeed(s); !ok || got != want {
			t.Errorf("%s is %v, want %v", s, got, want)
		}
	}
	for _, s := range []string{"", "N/A", "7", "1e99", "NaN"} {
		if got, ok := laneSpeed(s); ok {
			t.Errorf("%q is %v", s, got)
		}
	}
}
