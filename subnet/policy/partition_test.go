package policy

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func members(m Membership, guids ...ib.GUID) []Member {
	var out []Member
	for _, g := range guids {
		out = append(out, Member{GUID: g, Membership: m})
	}
	return out
}

func mustGID(t testing.TB, s string) ib.GID {
	t.Helper()
	g, err := ib.ParseGID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const hca = ib.GUID(0x0002c90300000000)

func TestPartitionsGolden(t *testing.T) {
	got, warnings, err := ParsePartitions("partitions.conf", readFile(t, "partitions.conf"))
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	base := GroupParams{Rate: 3, MTU: ib.MTU2048}
	want := Partitions{Defs: []PartitionDef{
		{Name: "Default", PKey: 0x7fff, Key: 0x7fff, IPoIB: true, Params: base,
			Members: []Member{{Who: All, Membership: Limited}, {Who: AllSwitches, Membership: Full},
				{Who: Self, Membership: Full}}},
		{Name: "tenant-a", PKey: 0x10, Key: 0x10, Index0: true, IPoIB: true,
			Params:  GroupParams{Rate: 7, MTU: ib.MTU4096, SL: 1},
			Members: append(members(Full, hca+1, hca+2), members(Limited, hca+3)...)},
		{Name: "tenant-b", PKey: 0x11, Key: 0x11, IPoIB: true,
			Params: GroupParams{Rate: 12, MTU: ib.MTU2048, Scopes: 1<<2 | 1<<5, QKey: 0x1b0b, TClass: 3,
				FlowLabel: 0x12345},
			Members: append(members(Full, hca+4), members(Both, hca+5)...)},
		{Name: "storage", PKey: 0x20, Key: 0x20, Params: base,
			Members: append(members(Both, hca+1, hca+4), members(Limited, 812347623423)...)},
		{Name: "storage", PKey: 0x20, Key: 0x20, Params: base, Members: members(Full, hca+6)},
		{Name: "mcast", PKey: 0x30, Key: 0x30, IPoIB: true, Params: base,
			Members: []Member{{Who: All, Membership: Full}},
			Groups: []MulticastGroup{
				{mustGID(t, "ff12:401b:8030::707"), GroupParams{Rate: 3, MTU: ib.MTU2048, SL: 1}},
				{mustGID(t, "ff12:601b:8030::16"), base},
				{mustGID(t, "ff12::1"), GroupParams{Rate: 3, MTU: ib.MTU512, SL: 1, QKey: 0xdeadbeef}},
			}},
		{Name: "auto", Key: 1, Params: base, Members: []Member{{Who: AllCAs, Membership: Full}}},
		{PKey: 0x41, Key: 0x41, Params: base, Members: []Member{{Who: AllRouters, Membership: Full},
			{Who: Self, Membership: Limited}}},
		{Name: "auto", Key: 1, IPoIB: true, Params: base},
		{Name: "nobody", PKey: 0x42, Key: 0x42, Params: base},
	}}
	for i := range max(len(got.Defs), len(want.Defs)) {
		if i >= len(got.Defs) || i >= len(want.Defs) || !reflect.DeepEqual(got.Defs[i], want.Defs[i]) {
			t.Errorf("definition %d:\n got %+v\nwant %+v", i, got.Defs[i:min(i+1, len(got.Defs))],
				want.Defs[i:min(i+1, len(want.Defs))])
		}
	}
	again, _, err := ParsePartitions("again", got.Append(nil))
	if err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("written and read again: %v\n%s\n got %+v\nwant %+v", err, got, again, got)
	}
}

// TestPartitionsManual reads the examples of OpenSM's manual, all of them.
func TestPartitionsManual(t *testing.T) {
	const manual = `
 Default=0x7fff : ALL, SELF=full ;
 Default=0x7fff : ALL, ALL_SWITCHES=full, SELF=full ;

 NewPartition , ipoib : 0x123456=full, 0x3456789034=limi, 0x2134af2306 ;

 YetAnotherOne = 0x300 : SELF=full ;
 YetAnotherOne = 0x300 : ALL=limited ;

 ShareIO = 0x80 , defmember=full : 0x123451, 0x123452;
 # 0x123453, 0x123454 will be limited
 ShareIO = 0x80 : 0x123453, 0x123454, 0x123455=full;
 # 0x123456, 0x123457 will be limited
 ShareIO = 0x80 : defmember=limited : 0x123456, 0x123457, 0x123458=full;
 ShareIO = 0x80 , defmember=full : 0x123459, 0x12345a;
 ShareIO = 0x80 , defmember=full : 0x12345b, 0x12345c=limited, 0x12345d;

 # multicast groups added to default
 Default=0x7fff,ipoib:
        mgid=ff12:401b::0707,sl=1 # random IPv4 group
        mgid=ff12:601b::16    # MLDv2-capable routers
        mgid=ff12:401b::16    # IGMP
        mgid=ff12:601b::2     # All routers
        mgid=ff12::1,sl=1,Q_Key=0xDEADBEEF,rate=3,mtu=2 # random group
        ALL=full;
`
	p, warnings, err := ParsePartitions("manual", []byte(manual))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	var shared []string
	for _, d := range p.Defs {
		if d.Key == 0x80 {
			for _, m := range d.Members {
				shared = append(shared, fmt.Sprintf("%x %v", uint64(m.GUID), m.Membership))
			}
		}
	}
	want := []string{"123451 full", "123452 full", "123453 limited", "123454 limited", "123455 full", "123456 limited",
		"123457 limited",
		"123458 full", "123459 full", "12345a full", "12345b full", "12345c limited", "12345d full"}
	if !slices.Equal(shared, want) {
		t.Errorf("ShareIO:\n got %q\nwant %q", shared, want)
	}
	if g := p.Defs[len(p.Defs)-1].Groups; len(g) != 5 || g[0].MGID != mustGID(t, "ff12:401b:ffff::707") {
		t.Errorf("groups of the default partition: %+v", g)
	}
}

func TestPartitionsErrors(t *testing.T) {
	for _, c := range []struct {
		file string
		want []string // "line:col kind word", all of them
	}{
		{"A=0x10 : ALL=full", []string{"1:18 missing "}},
		{"A=0x10 ALL=full;\nB=0x11 : ALL ;", []string{"1:1 syntax error A=0x10 ALL=full"}},
		{"A=0x10,ipoip : ALL;", []string{"1:8 unknown word ipoip"}},
		{"A=0x10,ipoib,mtu=9,rate=,sl=16,scope=0 : ALL;",
			[]string{"1:18 bad value 9", "1:25 bad value ", "1:29 bad value 16", "1:38 bad value 0"}},
		{"A=0x10,defmember=ful1 : ALL;", []string{"1:18 bad value ful1"}},
		{"A=zero : ALL;\n B=0x10000: ALL;", []string{"1:3 bad value zero", "2:4 bad value 0x10000"}},
		{"A=1 : ALLL, 0x12g, 0002c90300000001,\n\t0, SELFF=full ;", []string{
			"1:7 unknown word ALLL", "1:13 bad value 0x12g", "1:20 bad value 0002c90300000001", "2:2 bad value 0",
			"2:5 unknown word SELFF"}},
		{"A=1 : mgid=fe80::1\n mgid=ff12::2,sls=1\n mgid=ff12:401b:0002::1\n mgid=ff12:401b::1,mtu=5\n ALL;", []string{
			"1:12 bad value fe80::1", "2:15 unknown word sls", "3:7 contradiction ff12:401b:0002::1",
			"4:19 contradiction ,mtu=5"}},
		{"A : ALL ; B=1 : SELF ;", []string{"1:11 contradiction B=1"}},
		{"A=1,ipoib=1,,indx0 : =full, ALL;", []string{"1:11 syntax error 1", "1:13 syntax error ",
			"1:22 syntax error =full"}},
	} {
		_, _, err := ParsePartitions("f", []byte(c.file))
		var ps Problems
		if !errors.As(err, &ps) {
			t.Errorf("%q: %v, want %q", c.file, err, c.want)
			continue
		}
		var got []string
		for _, p := range ps {
			got = append(got, fmt.Sprintf("%d:%d %v %s", p.Line, p.Col, p.Kind, p.Word))
			if p.File != "f" || p.Want == "" || !errors.Is(err, p.Kind) {
				t.Errorf("%q: problem without a file, an expectation or a kind: %v", c.file, p)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %q\nwant %q", c.file, got, c.want)
		}
	}
	_, _, err := ParsePartitions("partitions.conf", []byte("\nA=0x10,ipiob : ALL;"))
	const want = `partitions.conf:2:8: unknown word: "ipiob": expected mtu, rate, scope, Q_Key, TClass, sl, ` +
		`FlowLabel, ipoib, defmember or indx0; did you mean ipoib?`
	if err == nil || err.Error() != want {
		t.Errorf("message:\n got %v\nwant %s", err, want)
	}
	_, warnings, err := ParsePartitions("f", []byte("A=1 : 0x5=fulll ;"))
	if err != nil || len(warnings) != 1 || warnings[0].Col != 11 {
		t.Errorf("an unknown membership: %v, warnings %v", err, warnings)
	}
	_, _, err = ParsePartitions("f", []byte(strings.Repeat("x;\n", 500)))
	if ps, ok := err.(Problems); !ok || len(ps) != problemsLimit+1 || !errors.Is(err, ErrTooMany) {
		t.Errorf("a file of mistakes gives %d problems", len(ps))
	}
}

func facts() []PortFacts {
	ports := []PortFacts{{GUID: 0x51, Type: ib.NodeSwitch}, {GUID: 0x52, Type: ib.NodeSwitch},
		{GUID: 0x99, Type: ib.NodeRouter}}
	for i := range ib.GUID(6) {
		ports = append(ports, PortFacts{GUID: hca + 6 - i, Type: ib.NodeCA, IsSelf: i == 0, IsVirtual: i == 3})
	}
	return ports
}

func show(p Partition) string {
	s := fmt.Sprintf("%s %v index0=%v sl=%d ipoib=%v", p.Name, p.Key, p.Index0, p.SL, p.IPoIB)
	for _, m := range p.Members {
		s += fmt.Sprintf(" %x:%v", uint64(m.GUID), m.Membership)
	}
	for _, g := range p.Groups {
		s += fmt.Sprintf("\n %v %v qkey=%x rate=%d mtu=%v sl=%d tclass=%d flow=%x scope=%d hops=%d", g.MGID, g.PKey,
			uint32(g.QKey), g.Rate, g.MTU, g.SL, g.TClass, g.FlowLabel, g.Scope, g.HopLimit)
	}
	return s
}

func TestResolve(t *testing.T) {
	p, _, err := ParsePartitions("partitions.conf", readFile(t, "partitions.conf"))
	if err != nil {
		t.Fatal(err)
	}
	parts := p.Resolve(facts(), ResolveOptions{QoS: true, AllowBoth: true})
	var got []string
	for _, p := range parts {
		got = append(got, show(p))
	}
	want := []string{
		"Default 0xffff index0=false sl=0 ipoib=true 51:full 52:full 99:limited 2c90300000001:limited " +
			"2c90300000002:limited 2c90300000003:limited 2c90300000004:limited 2c90300000005:limited " +
			"2c90300000006:full" +
			"\n ff12:401b:ffff:0000:0000:0000:ffff:ffff 0xffff qkey=b1b rate=3 mtu=2048 sl=0 tclass=0 flow=0 " +
			"scope=2 hops=0",
		"tenant-a 0x8010 index0=true sl=1 ipoib=true 2c90300000001:full 2c90300000002:full 2c90300000003:limited" +
			"\n ff12:401b:8010:0000:0000:0000:ffff:ffff 0x8010 qkey=b1b rate=7 mtu=4096 sl=1 tclass=0 flow=0 " +
			"scope=2 hops=0",
		"tenant-b 0x8011 index0=false sl=0 ipoib=true 2c90300000004:full 2c90300000005:both" +
			"\n ff12:401b:8011:0000:0000:0000:ffff:ffff 0x8011 qkey=1b0b rate=12 mtu=2048 sl=0 tclass=3 flow=12345 " +
			"scope=2 hops=0" +
			"\n ff15:401b:8011:0000:0000:0000:ffff:ffff 0x8011 qkey=1b0b rate=12 mtu=2048 sl=0 tclass=3 flow=12345 " +
			"scope=5 hops=255",
		"storage 0x8020 index0=false sl=0 ipoib=false 2c90300000001:both 2c90300000004:both 2c90300000006:full",
		"mcast 0x8030 index0=false sl=0 ipoib=true 51:full 52:full 99:full 2c90300000001:full 2c90300000002:full " +
			"2c90300000003:full 2c90300000004:full 2c90300000005:full 2c90300000006:full" +
			"\n ff12:401b:8030:0000:0000:0000:ffff:ffff 0x8030 qkey=b1b rate=3 mtu=2048 sl=0 tclass=0 flow=0 " +
			"scope=2 hops=0" +
			"\n ff12:401b:8030:0000:0000:0000:0000:0707 0x8030 qkey=b1b rate=3 mtu=2048 sl=1 tclass=0 flow=0 " +
			"scope=2 hops=0" +
			"\n ff12:601b:8030:0000:0000:0000:0000:0016 0x8030 qkey=b1b rate=3 mtu=2048 sl=0 tclass=0 flow=0 " +
			"scope=2 hops=0" +
			"\n ff12:0000:0000:0000:0000:0000:0000:0001 0x8030 qkey=deadbeef rate=3 mtu=512 sl=1 tclass=0 flow=0 " +
			"scope=2 hops=0",
		"auto 0x8001 index0=false sl=0 ipoib=true 2c90300000001:full 2c90300000002:full 2c90300000003:full " +
			"2c90300000004:full 2c90300000005:full 2c90300000006:full" +
			"\n ff12:401b:8001:0000:0000:0000:ffff:ffff 0x8001 qkey=b1b rate=3 mtu=2048 sl=0 tclass=0 flow=0 " +
			"scope=2 hops=0",
		"0x0041 0x8041 index0=false sl=0 ipoib=false 99:full 2c90300000006:limited",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	keys := Keys(parts)
	if got, want := fmt.Sprint(keys[hca+1]), "[0x8010 0x7fff 0x8020 0x0020 0x8030 0x8001]"; got != want {
		t.Errorf("keys of a member of tenant-a: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(keys[0x99]), "[0x7fff 0x8030 0x8041]"; got != want {
		t.Errorf("keys of the router: %s, want %s", got, want)
	}

	// Without the options "both" is full and all service levels are 0.
	for _, p := range p.Resolve(facts(), ResolveOptions{}) {
		if p.SL != 0 {
			t.Errorf("%s has SL %d without QoS", p.Name, p.SL)
		}
		for _, m := range p.Members {
			if m.Membership == Both {
				t.Errorf("%s: %v is both, and that is not allowed", p.Name, m.GUID)
			}
		}
		for _, g := range p.Groups {
			if g.SL != 0 {
				t.Errorf("%s: group %v has SL %d without QoS", p.Name, g.MGID, g.SL)
			}
		}
	}
}

func TestResolveWithoutFile(t *testing.T) {
	parts := DefaultPartitions().Resolve(facts(), ResolveOptions{})
	if len(parts) != 1 || parts[0].Key != ib.PKeyDefault || len(parts[0].Members) != len(facts()) || !parts[0].IPoIB ||
		len(parts[0].Groups) != 1 {
		t.Fatalf("%+v", parts)
	}
	for _, m := range parts[0].Members {
		if m.Membership != Full {
			t.Errorf("%v is a %v member", m.GUID, m.Membership)
		}
	}
	// A file without definitions is like none.
	if empty := (Partitions{}).Resolve(facts(), ResolveOptions{}); !reflect.DeepEqual(empty, parts) {
		t.Errorf("an empty file gives %+v", empty)
	}
	// A file that is silent about the default partition: the manager is its one full member, and it has no IPoIB.
	silent, _, err := ParsePartitions("f", []byte("a=5 : ;"))
	if err != nil {
		t.Fatal(err)
	}
	parts = silent.Resolve(facts(), ResolveOptions{})
	full := 0
	for _, m := range parts[0].Members {
		if m.Membership == Full {
			full++
		}
	}
	if len(parts) != 1 || full != 1 || len(parts[0].Groups) != 0 {
		t.Errorf("a silent file gives %+v", parts)
	}
	if again, _, err := ParsePartitions("f", DefaultPartitions().Append(nil)); err != nil ||
		!reflect.DeepEqual(again, DefaultPartitions()) {
		t.Errorf("%v: %+v", err, again)
	}
	virtual, _, err := ParsePartitions("f", []byte("v=7 : ALL_VCAS=full ;"))
	if err != nil {
		t.Fatal(err)
	}
	if parts := virtual.Resolve(facts(), ResolveOptions{}); len(parts) != 2 || len(parts[1].Members) != 1 {
		t.Errorf("ALL_VCAS: %+v", parts)
	}
}

// TestPartitionsTruncated cuts the file everywhere: what ends within a definition must be an error, and
// what ends between two must not.
func TestPartitionsTruncated(t *testing.T) {
	data := readFile(t, "partitions.conf")
	for i := range data {
		complete, comment := true, false
		for _, c := range data[:i] {
			switch {
			case c == '\n':
				comment = false
			case c == '#':
				comment = true
			case comment || strings.IndexByte(blanks, c) >= 0:
			default:
				complete = c == ';'
			}
		}
		if _, _, err := ParsePartitions("f", data[:i]); (err == nil) != complete {
			t.Fatalf("cut after %q: %v", data[max(0, i-30):i], err)
		}
	}
}

func FuzzPartitions(f *testing.F) {
	f.Add(readFile(f, "partitions.conf"))
	f.Add([]byte("A=1 : defmember=full : 0x5 ;"))
	f.Add([]byte("A,ipoib,scope=3 : mgid=ff12:401b::1,scope=4\n mgid=ff1e::2,TClass=3,Q_Key=0\n A=b;"))
	f.Add([]byte("0=0:;")) // a name that alone would be a number
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _, err := ParsePartitions("f", data)
		p.Resolve(facts(), ResolveOptions{QoS: true, AllowBoth: true})
		if err != nil {
			return
		}
		text := p.Append(nil)
		again, _, err := ParsePartitions("f", text)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%v\n%s\n got %+v\nwant %+v", err, text, again, p)
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	p, _, err := ParsePartitions("partitions.conf", readFile(b, "partitions.conf"))
	if err != nil {
		b.Fatal(err)
	}
	var ports []PortFacts
	for i := range 11664 {
		ports = append(ports, PortFacts{GUID: hca + ib.GUID(i), Type: ib.NodeCA, IsSelf: i == 0})
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Resolve(ports, ResolveOptions{})
	}
}

// Whoever is in no other partition is in the one for the rest, at the first place; switches are not.
func TestResolveRest(t *testing.T) {
	p := Partitions{Defs: []PartitionDef{
		{Name: "Default", Key: ib.PKeyBase, Members: []Member{{Who: All, Membership: Limited},
			{Who: Self, Membership: Full}}},
		{Name: "rest", Key: 0x7ffe, Rest: true},
		{Name: "red", Key: 5, Members: []Member{{GUID: 1, Membership: Full, Index0: true},
			{GUID: 77, Membership: Full}}},
	}}
	ports := []PortFacts{{GUID: 1, Type: ib.NodeCA}, {GUID: 2, Type: ib.NodeCA}, {GUID: 3, Type: ib.NodeCA},
		{GUID: 4, Type: ib.NodeSwitch, IsSelf: true}}
	keys := Keys(p.Resolve(ports, ResolveOptions{}))
	for guid, want := range map[ib.GUID][]ib.PKey{1: {0x8005, 0x7fff}, 2: {0xfffe, 0x7fff}, 3: {0xfffe, 0x7fff},
		4: {0xffff}} {
		if !slices.Equal(keys[guid], want) {
			t.Errorf("port %d has %v, want %v", guid, keys[guid], want)
		}
	}
}
