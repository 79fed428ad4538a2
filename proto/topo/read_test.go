package topo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
		"small.ibdiagnet.lst", "small.ibdiagnet2.net_dump", "small.ibdiagnet2.db_csv"} {
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

// TestNoiseInSections passes over what a tool wrote on the side between any two lines of sections: it is no heading,
// and no node.
func TestNoiseInSections(t *testing.T) {
	const name, noise = "small.ibdiagnet2.db_csv", "ibwarn: [4711] mad_rpc: _do_madrpc failed; dport (DR path 0,1,1)"
	lines := strings.Split(strings.TrimSpace(string(readFile(t, "dumps/"+name))), "\n")
	whole := facts(mustRead(t, name).Graph)
	for at := range lines {
		r, err := Read(name, []byte(strings.Join(slices.Insert(slices.Clone(lines), at, noise), "\n")))
		if err != nil {
			t.Errorf("before %q: %v", lines[at], err)
			continue
		}
		if len(r.Remarks) != 1 || r.Remarks[0].Line != at+1 || !slices.Equal(facts(r.Graph), whole) {
			t.Errorf("before %q: %v, %v", lines[at], r.Remarks, facts(r.Graph))
		}
	}
}

// TestWithoutAddresses: without a subnet manager no port has an address, and iblinkinfo tells of far ends by nothing
// else but their descriptions. Where one line alone says the reverse, that is the far end.
func TestWithoutAddresses(t *testing.T) {
	text := string(readFile(t, "dumps/small.linkinfo"))
	bare := regexp.MustCompile(`\d( +\d\[)`).ReplaceAllString(text, "0$1")
	r, err := Read("x", []byte(bare))
	if err != nil {
		t.Fatal(err)
	}
	want := facts(mustRead(t, "small.linkinfo").Graph)
	for i := range want {
		if name, _, ok := strings.Cut(want[i], " LID "); ok {
			want[i] = name + " LID 0"
		}
	}
	if slices.Sort(want); !slices.Equal(facts(r.Graph), want) || len(r.Remarks) != 0 {
		t.Errorf("reads\n%s\nwant\n%s\n%v", strings.Join(facts(r.Graph), "\n"), strings.Join(want, "\n"), r.Remarks)
	}
	// Two hosts of one name at the same ports of two switches of one name.
	const twins = `Switch: 0x0000000000000a00 sw:
           0    1[  ] ==( 4X          10.0 Gbps Active/  LinkUp)==>       0    1[  ] "h" ( )
Switch: 0x0000000000000a10 sw:
           0    1[  ] ==( 4X          10.0 Gbps Active/  LinkUp)==>       0    1[  ] "h" ( )
CA: h:
      0x0000000000000c00      0    1[  ] ==( 4X          10.0 Gbps Active/  LinkUp)==>       0    1[  ] "sw" ( )
CA: h:
      0x0000000000000c10      0    1[  ] ==( 4X          10.0 Gbps Active/  LinkUp)==>       0    1[  ] "sw" ( )
`
	if r, err := Read("x", []byte(twins)); !errors.Is(err, ErrUnknownPort) {
		t.Errorf("nothing says which is which, and yet %v, %v", r, err)
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

// TestOddLIDsEverywhere: in each format, a host whose address no port can have is there without one, and each line that
// has it is told.
func TestOddLIDsEverywhere(t *testing.T) {
	for _, lid := range []int{0, 65535, 49152, 60000} {
		hex := fmt.Sprintf("LID:%04X PN", lid)
		for _, c := range []struct {
			name, old, new string
			lines          int
		}{
			{"small.ibdiagnet2.ibnetdiscover", "# lid 6 lmc", fmt.Sprintf("# lid %d lmc", lid), 1},
			{"small.ports", "CA     6", fmt.Sprintf("CA %5d", lid), 2},
			{"small.linkinfo", "      6    1[", fmt.Sprintf("  %5d    1[", lid), 2},
			{"small.linkinfo-l", "      6    1[", fmt.Sprintf("  %5d    1[", lid), 2},
			{"small.ibdiagnet.lst", "LID:0006 PN", hex, 1},
			{"small.opensm.lst", "LID:0001 PN", hex, 2},
			{"small.ibdiagnet2.net_dump", ": 6    :", fmt.Sprintf(": %-4d :", lid), 1},
			{"small.ibdiagnet2.db_csv", "0000c00,1,1,6,", fmt.Sprintf("0000c00,1,1,%d,", lid), 1},
		} {
			text := strings.ReplaceAll(string(readFile(t, filepath.Join("dumps", c.name))), c.old, c.new)
			r, err := Read(c.name, []byte(text))
			if err != nil {
				t.Errorf("%s, LID %d: %v", c.name, lid, err)
				continue
			}
			want := facts(mustRead(t, c.name).Graph)
			for i, f := range want {
				if name, _, ok := strings.Cut(f, " LID "); ok && strings.Contains(name, "c00[1]") {
					want[i] = name + " LID 0"
				}
			}
			if slices.Sort(want); !slices.Equal(facts(r.Graph), want) {
				t.Errorf("%s, LID %d: reads\n%s\nwant\n%s", c.name, lid, strings.Join(facts(r.Graph), "\n"),
					strings.Join(want, "\n"))
			}
			said := 0
			for _, odd := range r.Remarks {
				if strings.Contains(odd.Text, fmt.Sprintf("LID %d ", lid)) &&
					strings.Contains(odd.Text, "taken as none") {
					said++
				}
			}
			if lid == 0 {
				c.lines = 0 // which is as it should be without a subnet manager
			}
			if said != c.lines || said != len(r.Remarks) {
				t.Errorf("%s, LID %d: %v, want %d lines", c.name, lid, r.Remarks, c.lines)
			}
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
