package topo

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
)

var update = flag.Bool("update", false, "write the golden files anew")

func mustParse(t testing.TB, text string) *Graph {
	t.Helper()
	g, err := Parse("net", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTripGenerators(t *testing.T) {
	for _, c := range genCases {
		for _, more := range []string{"", "speed=HDR,width=2x,length=3.25m"} {
			spec := c.spec
			if more != "" && strings.Contains(spec, ":") {
				spec += "," + more
			} else if more != "" {
				spec += ":" + more
			}
			g := mustSpec(t, spec)
			text := Append(nil, g)
			if len(g.Switches()) == 0 && len(g.Hosts()) != 2 {
				continue
			}
			back, err := Parse(spec, text)
			if err != nil {
				t.Errorf("%s: %v", spec, err)
				continue
			}
			if !reflect.DeepEqual(g, back) {
				t.Errorf("%s: what was written reads back as another graph", spec)
			}
		}
	}
}

// roundTrip asserts that a graph read from a file survives being written.
func roundTrip(t testing.TB, g *Graph) {
	t.Helper()
	text := Append(nil, g)
	back, err := Parse("written", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if !reflect.DeepEqual(g, back) {
		t.Fatalf("reads back as another graph:\n%s\n%s", text, Append(nil, back))
	}
}

func TestGoldenDefaultFabric(t *testing.T) {
	const path = "testdata/default.topo"
	got := Append(nil, mustSpec(t, DefaultSpec))
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readFile(t, "default.topo"); string(got) != string(want) {
		t.Errorf("the default fabric is not that of %s any more; run go test ./proto/topo -update and look "+
			"at the difference", path)
	}
}

func TestCluster(t *testing.T) {
	g, err := Parse("cluster.topo", readFile(t, "cluster.topo"))
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, g)
	checkConsistent(t, g)
	var names []string
	for _, n := range g.Nodes {
		names = append(names, n.Name)
	}
	want := "leaf01 spine01 sw3 gpu01 gpu01-2 gpu02 h4 storage rtr-a"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("names are %s, want %s", got, want)
	}
	if g.NumCables() != 10 || len(g.Routers()) != 1 || g.NumLIDs() != 10 {
		t.Errorf("%d cables, %d routers, %d LIDs", g.NumCables(), len(g.Routers()), g.NumLIDs())
	}
	sw := g.ByName("leaf01")
	if sw.GUID != 0xfc6a1c0300b00000 || sw.NumPorts() != 41 || sw.VendorID != 0x2c9 || sw.DeviceID != 0xd2f0 ||
		sw.Ports[0].LID != 3 || sw.Desc != "MF0;leaf01:MQM8700/U1" {
		t.Errorf("leaf01 is %+v", sw)
	}
	st := g.ByName("storage")
	if st.SystemGUID != 0x2c90300aa0003 || st.PortGUID(2) != 0x2c90300aa0002 || st.Ports[1].LID != 16 ||
		st.Ports[1].LMC != 1 {
		t.Errorf("storage is %+v", st)
	}
	// What ibnetdiscover could not name is taken from the other end.
	for _, c := range []struct {
		node string
		port int
		want ib.LinkRate
	}{
		{"leaf01", 3, ib.LinkRate{Width: ib.Width2x, Speed: ib.HDR}},
		{"gpu02", 1, ib.LinkRate{Width: ib.Width4x, Speed: ib.HDR}},
		{"sw3", 2, ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR}},
		{"sw3", 36, ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR10}},
		{"rtr-a", 1, ib.LinkRate{Width: ib.Width1x, Speed: ib.QDR}},
	} {
		if got := g.ByName(c.node).Ports[c.port].Rate(); got != c.want {
			t.Errorf("%s[%d] runs at %v, want %v", c.node, c.port, got, c.want)
		}
	}
	gpu := PortRef{g.ByName("gpu02").Index, 1}
	if got := g.LinkRate(gpu); got != (ib.LinkRate{Width: ib.Width2x, Speed: ib.HDR}) {
		t.Errorf("the cable of gpu02 trains to %v, want the lesser, 2x HDR", got)
	}
}

func TestIBSimFile(t *testing.T) {
	g := mustParse(t, `# a small net
width=2
speed=7

Switch	8 "Switch1"
[1]	"Hca1"[1]
[2]	"Hca2" [2]   w=12 s=2
[3]	"Switch2"[3]

Switch 4 "Switch2"
[3]	"Switch1"[3]
[4]	"Switch3"

Switch 4 "Switch3"   # the third one base port 0 lid 9 lmc 2
[1]	"Switch2"[4]	w=4

Hca	2 "Hca1"
[1]	"Switch1"
Hca	2 "Hca2"
[2]	"Switch1"[2]
`)
	roundTrip(t, g)
	checkConsistent(t, g)
	for _, c := range []struct {
		name string
		guid ib.GUID
	}{{"Switch1", 0x200000}, {"Switch2", 0x200001}, {"the", 0x200002}, {"Hca1", 0x100000}, {"Hca2", 0x100003}} {
		if n := g.ByName(c.name); n == nil || n.GUID != c.guid {
			t.Errorf("%s: %+v, want GUID %v", c.name, n, c.guid)
		}
	}
	if got := g.ByName("Hca2").PortGUID(2); got != 0x100005 {
		t.Errorf("port 2 of Hca2 has GUID %v", got)
	}
	if p := g.ByName("the").Ports[0]; p.LID != 9 || p.LMC != 2 {
		t.Errorf("Switch3 has LID %d, LMC %d", p.LID, p.LMC)
	}
	wantPeer(t, g, "the", 1, "Switch2[4]")
	if got := g.ByName("Switch1").Ports[2].Rate(); got != (ib.LinkRate{Width: ib.Width12x, Speed: ib.DDR}) {
		t.Errorf("w=12 s=2 gives %v", got)
	}
	if got := g.ByName("Switch1").Ports[1].Rate(); got != (ib.LinkRate{Width: ib.Width4x, Speed: ib.QDR}) {
		t.Errorf("width=2 speed=7 gives %v", got)
	}
}

func TestIBSimGUIDsAndModules(t *testing.T) {
	g := mustParse(t, `switchguids=0x5000
hcaguids=0x1000
module="a"
Switch 3 "sw"
[1] "h"[1]
@[2] "up"

Hca 1 "h"
[1] "sw"[1]

module="b"
switchguids+16
Switch 3 "sw"
[1] "h"[1]
[2] "a@up"
[3] "sw2"[1]

Switch 3 "sw2"
[1] "b#sw"[3]

Hca 1 "h"
[1] "sw"[1]
`)
	roundTrip(t, g)
	var guids []ib.GUID
	for _, n := range g.Nodes {
		guids = append(guids, n.GUID)
	}
	if want := []ib.GUID{0x5000, 0x1000, 0x5010, 0x5011, 0x1002}; !reflect.DeepEqual(guids, want) {
		t.Errorf("GUIDs are %v, want %v", guids, want)
	}
	p := g.Nodes[0].Ports[2]
	if p.Peer != 2 || p.PeerPort != 2 {
		t.Errorf("the alias leads to %s", g.PortName(PortRef{p.Peer, p.PeerPort}))
	}
}

func TestGroupedDump(t *testing.T) {
	g := mustParse(t, `
Chassis 1 (guid 0x8f10400411a09)
Hostname: big

# Spine Nodes
vendid=0x8f1
devid=0x5a37
sysimgguid=0x8f10400411a09		# Chassis 1
switchguid=0x8f104003f1e29(8f104003f1e29)	# ISR2004 spine 1 chip 1
Switch	24 "S-0008f104003f1e29"		# "ISR2012 Voltaire" base port 0 lid 742 lmc 0
[24][ext 3]	"H-0002c90200247010"[1][ext 7](2c90200247011) 		# "atlas35" lid 1252 4xDDR s=2 w=2 v=4

Non-Chassis Nodes
	vendid=0x2c9
	devid=0x6274
	caguid=0x2c90200247010
	Ca	1 "H-0002c90200247010"		# "atlas35"
	[1](2c90200247011) 	"S-0008f104003f1e29"[24][ext 3]		# lid 1252 lmc 0 "ISR2012 Voltaire" lid 742 4xDDR s=2 w=2 v=4
`)
	roundTrip(t, g)
	wantPeer(t, g, "atlas35", 1, "ISR2012[24]")
	if p := g.ByName("atlas35").Ports[1]; p.LID != 1252 || p.Speed != ib.DDR {
		t.Errorf("atlas35 is %+v", p)
	}
}

func TestBackToBack(t *testing.T) {
	g := mustParse(t, "Ca 1 \"a\"\n[1] \"b\"[1] # len 30m\nCa 2 \"b\"\n[1] \"a\"[1]\n")
	roundTrip(t, g)
	if got := g.ByName("b").Ports[1].LengthMM; got != 30000 {
		t.Errorf("the cable is %d mm long", got)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ desc, want string }{
		{"node01 HCA-1", "node01"}, {"node01", "node01"}, {"MF0;sw-7.rack2:MQM9700/U1", "sw-7.rack2"},
		{"MF0;dir1:CS8500/L03/U1", "dir1-L03"}, {"MF0;dir1:CS8500/L03/U2", "dir1-L03-U2"},
		{"MF0;dir1:SX6536/S01/U1", "dir1-S01"}, {"MF0;big:Q3400/U4", "big-U4"},
		{"MF0;sw:X", "sw"}, {"MF0;sw:X/", "sw"}, {"MF0;sw:X/a b", "sw"},
		{"MF0;" + strings.Repeat("s", 62) + ":X/L03/U1", strings.Repeat("s", 62)},
		{"MF0;bad name:X/U1", ""}, {"MT25408 ConnectX Mellanox Technologies", ""}, {"", ""}, {"  ", ""},
		{"-x", ""}, {"a/b c", ""}, {"Quantum Mellanox Technologies", ""}, {" node02 x", "node02"},
		{strings.Repeat("a", 64), ""},
	} {
		if got := nameFromDesc(c.desc); got != c.want {
			t.Errorf("%q gives the name %q, want %q", c.desc, got, c.want)
		}
	}
}

// TestForeignNames writes a graph whose names don't follow from the descriptions.
func TestForeignNames(t *testing.T) {
	var g Graph
	for i, name := range []string{"x", "y", "b", "a"} {
		if _, err := g.Add(Node{Name: name, Type: ib.NodeSwitch, GUID: ib.GUID(i + 1),
			Desc: []string{"a", "b \"q\"", "a", "\""}[i]}, 2); err != nil {
			t.Fatal(err)
		}
	}
	roundTrip(t, &g)
}

func TestFileErrors(t *testing.T) {
	const ok = "Switch 4 \"s1\"\n[1] \"h1\"[1]\n[2] \"h2\"[1]\nCa 1 \"h1\"\n[1] \"s1\"[1]\nCa 1 \"h2\"\n[1] \"s1\"[2]\n"
	mustParse(t, ok)
	swap := func(old, new string) string {
		if !strings.Contains(ok, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(ok, old, new, 1)
	}
	for _, c := range []struct {
		name, text string
		line, col  int
		kind       error
		says       string
	}{
		{"empty", "", 1, 0, ErrNoSwitch, "no node"},
		{"no switch", "Ca 1 \"a\"\n\nCa 1 \"b\"\n\nCa 1 \"c\"\n", 1, 6, ErrNoSwitch, "3 nodes"},
		{"two loose hosts", "Ca 1 \"a\"\nCa 1 \"b\"\n", 1, 6, ErrNoSwitch, "cabled to each other"},
		{"unknown word", "Swich 4 \"s1\"\n", 1, 1, ErrSyntax, `found "Swich": want "Switch"`},
		{"strange sign", "\n!\n", 2, 1, ErrSyntax, `found "!"`},
		{"no port count", "Switch \"s1\"\n", 1, 8, ErrSyntax, "number of ports"},
		{"no ports", "Switch 0 \"s1\"\n", 1, 8, ErrPortCount, "1 to 254"},
		{"too many ports", "Switch 255 \"s1\"\n", 1, 8, ErrPortCount, "1 to 254"},
		{"huge port count", "Switch 99999999999999999999 \"s1\"\n", 1, 8, ErrSyntax, "number of ports"},
		{"no id", "Switch 4\n", 1, 9, ErrSyntax, "end of line"},
		{"open quote", "Switch 4 \"s1\n", 1, 10, ErrSyntax, "in quotes"},
		{"junk behind id", "Switch 4 \"s1\" junk\n", 1, 15, ErrSyntax, `"junk"`},
		{"reserved sign", "Switch 4 \"s#1\"\n", 1, 10, ErrSyntax, "other characters"},
		{"duplicate id", ok + "Ca 1 \"h1\"\n", 8, 6, ErrDuplicateID, "line 4"},
		{"duplicate GUID", "caguid=0x5\nCa 1 \"a\"\ncaguid=0x5\nCa 1 \"b\"\n", 4, 6, ErrDuplicateGUID, "line 2"},
		{"zero GUID", "caguid=0x0\nCa 1 \"a\"\n", 1, 8, ErrNoGUID, "found 0"},
		{"bad GUID", "switchguid=zebra\n", 1, 12, ErrSyntax, `"zebra"`},
		{"long GUID", "switchguid=0x12345678123456789\n", 1, 12, ErrSyntax, "GUID"},
		{"no equals", "vendid 0x2c9\n", 1, 8, ErrSyntax, `"="`},
		{"wide devid", "devid=0x12345\n", 1, 7, ErrSyntax, "device id"},
		{"port without node", "[1] \"s1\"[1]\n", 1, 1, ErrUnknownNode, "before any node"},
		{"port after ids", "Switch 2 \"a\"\nvendid=0x1\n[1] \"b\"[1]\n", 3, 1, ErrUnknownNode, "before any node"},
		{"port 0", swap("[1] \"h1\"[1]", "[0] \"h1\"[1]"), 2, 2, ErrUnknownPort, "ports 1 to 4"},
		{"port too high", swap("[1] \"h1\"[1]", "[5] \"h1\"[1]"), 2, 2, ErrUnknownPort, "ports 1 to 4"},
		{"far port 0", swap("[1] \"h1\"[1]", "[1] \"h1\"[0]"), 2, 10, ErrUnknownPort, "port 0"},
		{"far port too high", swap("[1] \"h1\"[1]", "[1] \"h1\"[2]"), 2, 5, ErrUnknownPort, "line 4 has ports 1 to 1"},
		{"no far end", swap("[1] \"h1\"[1]", "[1]"), 2, 4, ErrSyntax, "far node's id"},
		{"unclosed", swap("[1] \"h1\"[1]", "[1 \"h1\"[1]"), 2, 3, ErrSyntax, `"]"`},
		{"unknown node", swap("[1] \"h1\"[1]", "[1] \"h9\"[1]"), 2, 5, ErrUnknownNode, "never defines"},
		{"port twice", swap("[2] \"h2\"[1]", "[1] \"h2\"[1]"), 3, 2, ErrPortInUse, "line 2"},
		{"doubled cable", swap("[2] \"h2\"[1]", "[2] \"h1\"[1]"), 3, 5, ErrPortInUse, "line 5"},
		{"one-sided", swap("Ca 1 \"h1\"\n[1] \"s1\"[1]\n", "Ca 1 \"h1\"\n"), 2, 5, ErrOneSided,
			"no line for that port"},
		{"self-loop", "Switch 2 \"a\"\n[1] \"a\"[1]\n", 2, 5, ErrSelfLoop, "itself"},
		{"bad option", swap("[1] \"h1\"[1]", "[1] \"h1\"[1] q=1"), 2, 13, ErrSyntax, "w= or s="},
		{"bad width", swap("[1] \"h1\"[1]", "[1] \"h1\"[1] w=0"), 2, 15, ErrSyntax, "mask"},
		{"bad speed", swap("[1] \"h1\"[1]", "[1] \"h1\"[1] s=8"), 2, 15, ErrSyntax, "mask"},
		{"bad rate", swap("[1] \"h1\"[1]", "[1] \"h1\"[1] # \"h1\" lid 4 4xWDR"), 2, 26, ErrSyntax, "4xEDR"},
		{"bad LMC", "Switch 2 \"a\" # \"a\" base port 0 lid 1 lmc 8\n", 1, 42, ErrSyntax, "0 to 7"},
		{"two port GUIDs", swap("Ca 1 \"h1\"\n[1] ", "Ca 1 \"h1\"\n[1](7) ") + "Ca 1 \"h3\"\n", 0, 0, nil, ""},
		{"GUID mismatch", strings.Replace(swap("[1] \"h1\"[1]", "[1] \"h1\"[1](8)"), "\n[1] \"s1\"[1]",
			"\n[1](7) \"s1\"[1]", 1), 5, 8, ErrGUIDMismatch, "line 2"},
		{"port GUID twice", strings.Replace(swap("[1] \"s1\"[1]", "[1](7) \"s1\"[1]"), "[1] \"s1\"[2]",
			"[1](7) \"s1\"[2]", 1), 7, 8, ErrDuplicateGUID, "each port"},
		{"include", "include \"x\"\n", 1, 1, ErrUnsupported, "in its place"},
		{"do", "do Link \"a\"\n", 1, 1, ErrUnsupported, "remove the line"},
		{"alias twice", "Switch 2 \"a\"\n@[1] \"x\"\n@[2] \"x\"\n", 3, 6, ErrDuplicateID, "line 2"},
		{"alias cabled twice", "Switch 3 \"a\"\n@[1] \"x\"\n[2] \"@x\"\n[3] \"@x\"\n", 4, 5, ErrPortInUse, "already"},
		{"name taken", "Switch 2 \"a\"\nSwitch 2 \"b\" # \"b\" name a\n", 2, 25, ErrDuplicateName, "taken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("net", []byte(c.text))
			if c.kind == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var pe *ParseError
			if !errors.As(err, &pe) || !errors.Is(err, c.kind) {
				t.Fatalf("got %v, want %v", err, c.kind)
			}
			if pe.File != "net" || pe.Line != c.line || pe.Col != c.col || !strings.Contains(pe.Error(), c.says) {
				t.Errorf("got %v; want line %d, column %d, %q", err, c.line, c.col, c.says)
			}
		})
	}
}

func TestFileLIDLimit(t *testing.T) {
	var b strings.Builder
	// 194 switches of 253 hosts each are 49276 LIDs.
	for s := range 194 {
		b.WriteString("Switch 253 \"s" + itoa(s) + "\"\n")
		for h := range 253 {
			b.WriteString("[" + itoa(h+1) + "] \"h" + itoa(s) + "." + itoa(h) + "\"[1]\n")
		}
		for h := range 253 {
			b.WriteString("Ca 1 \"h" + itoa(s) + "." + itoa(h) + "\"\n[1] \"s" + itoa(s) + "\"[" + itoa(h+1) + "]\n")
		}
	}
	_, err := Parse("big", []byte("hcaguids=0x10000000\n"+b.String()))
	var le *LIDError
	if !errors.As(err, &le) || le.Need != 194*254 {
		t.Fatalf("got %v, want a LIDError for %d", err, 194*254)
	}
}

// TestTruncations cuts a real file everywhere: what remains is refused or is a
// whole fabric, and never panics.
func TestTruncations(t *testing.T) {
	text := readFile(t, "cluster.topo")
	for i := range text {
		g, err := Parse("cut", text[:i])
		var pe *ParseError
		switch {
		case err == nil:
			// The first switch without its ports is whole, as is everything but
			// the comment on the last line.
			first, all := len(g.Nodes) == 1 && g.NumCables() == 0, len(g.Nodes) == 9 && g.NumCables() == 10
			if !first && !all {
				t.Fatalf("cut at %d of %d: %d nodes, %d cables, no error", i, len(text), len(g.Nodes), g.NumCables())
			}
		case !errors.As(err, &pe) || pe.Line < 1:
			t.Fatalf("cut at %d: %v has no line", i, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(readFile(f, "cluster.topo"))
	f.Add(Append(nil, mustSpec(f, "star:3,length=1m")))
	f.Add(Append(nil, mustSpec(f, "ring:3")))
	f.Add([]byte("Switch 4 \"s1\" # \"x\"y\" base port 0 lid 1 lmc 2 name q\n[1] \"s1\"[2]\n[2] \"s1\"[1] w=3 s=4\n"))
	f.Add([]byte("module=\"a\"\nSwitch 3 \"s\"\n@[2] \"up\"\n[1] \"@up\"\nswitchguids+3\n" +
		"Switch 1 \"S-0000000000000009\"\n"))
	f.Add([]byte("# softib kind: a b\nCa 3 \"a\"\n[2](5) \"b\"[1] (7)\nRt 1 \"b\"\n[1] \"a\"[2] # lid 3 lmc " +
		"1 \"a\" lid 5 ??QDR len 7m\n"))
	dumps, err := filepath.Glob("testdata/dumps/*")
	if err != nil || len(dumps) < 10 {
		f.Fatal(dumps, err)
	}
	for _, name := range dumps {
		f.Add(readFile(f, strings.TrimPrefix(name, "testdata/")))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Read("fuzz", text)
		if err != nil {
			var pe *ParseError
			if !errors.As(err, &pe) || pe.Line < 1 {
				t.Fatalf("%v has no line", err)
			}
			return
		}
		checkConsistent(t, r.Graph)
		if r.Format == Discovered {
			roundTrip(t, r.Graph)
			return
		}
		// The others know GUIDs of ports without cables, for which ibnetdiscover has no place.
		written := Append(nil, r.Graph)
		back, err := Parse("written", written)
		if err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		_, got, _ := strings.Cut(string(Append(nil, back)), "\n\n")
		if _, want, _ := strings.Cut(string(written), "\n\n"); got != want {
			t.Fatalf("%s\nreads back as\n%s", want, got)
		}
	})
}

func BenchmarkParse11664(b *testing.B) {
	text := Append(nil, mustSpec(b, "fat-tree:radix=36,levels=3"))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse("big", text); err != nil {
			b.Fatal(err)
		}
	}
}
