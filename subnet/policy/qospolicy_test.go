package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

func goldenQoS(t testing.TB) QoSPolicy {
	t.Helper()
	p, warnings, err := ParseQoSPolicy("qos-policy.conf", readFile(t, "qos-policy.conf"))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return p
}

func TestQoSPolicyGolden(t *testing.T) {
	got := goldenQoS(t)
	want := QoSPolicy{
		Groups: []PortGroup{
			{Name: "Storage", Use: `targets, the "old" and the new`,
				GUIDs: Ranges{{0x10000000000001, 0x10000000000001}, {0x10000000000005, 0x1000000000FFFB}}},
			{Name: "Virtual Servers", PortNames: []PortName{{"vs1 HCA-1", 1}, {"vs2, second", 2}}},
			{Name: "Tenants", Partitions: []string{"Part1", "Part2"}, PKeys: Ranges{{0x10, 0x13}, {0x234, 0x234}}},
			{Name: "Edge", Types: 1<<ib.NodeCA | 1<<ib.NodeRouter, Self: true},
		},
		VLArb: []VLArbScope{{Groups: []string{"Storage", "Edge"}, Across: []string{"Storage"},
			High: []VLWeight{{0, 255}, {1, 127}},
			Low:  []VLWeight{{8, 255}, {9, 127}}, HighLimit: 10, HasHighLimit: true}},
		SL2VL: []SL2VLScope{{Groups: []string{"Edge"}, AcrossFrom: []string{"Storage"},
			AcrossTo: []string{"Storage", "Tenants"},
			From:     Ranges{{0, 255}}, To: Ranges{{1, 3}, {7, 7}},
			Table: [16]ib.VL{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 7}}},
		Levels: []QoSLevel{
			{Name: "default"},
			{Name: "WholeSet", Use: "everything that can be said", SL: 1, MTULimit: ib.MTU2048, RateLimit: 5,
				PacketLife: 8, HasPacketLife: true,
				PathBits: Ranges{{2, 2}, {4, 4}, {8, 32}}, PKeys: Ranges{{0x1234, 0x1234}}},
			{Name: "Fast", SL: 5},
		},
		Rules: []QoSRule{
			{Use: "by class", Level: "wholeset", QoSClasses: Ranges{{7, 9}, {11, 11}}},
			{Level: "WholeSet", Destinations: []string{"storage"},
				ServiceIDs: Ranges{{0x10000000000001, 0x10000000000001}, {0x10000000000008, 0x10000000000FFF}}},
			{Level: "Fast", Sources: []string{"VirtualServers"}},
			{Level: "WholeSet", Sources: []string{"Tenants"}, Destinations: []string{"Edge"},
				PKeys: Ranges{{0xF00, 0xFFF}}},
		},
		ULPs: []ULPRule{
			{SDP, ByPortNum, Ranges{{30000, 30000}}, 1}, {SDP, ByPortNum, Ranges{{5, 5}, {10000, 20000}}, 2},
			{SDP, ByULP, nil, 3},
			{RDS, ByULP, nil, 4}, {RDS, ByPortNum, Ranges{{25000, 25000}}, 9}, {ISER, ByPortNum, Ranges{{900, 900}}, 5},
			{ISER, ByULP, nil, 6},
			{IPoIB, ByPKey, Ranges{{1, 1}}, 7}, {IPoIB, ByULP, nil, 8},
			{AnyULP, ByServiceID, Ranges{{0x6234, 0x6234}}, 10},
			{AnyULP, ByPKey, Ranges{{0xABC, 0xABC}}, 11}, {SRP, ByTarget, Ranges{{0x1234, 0x1234}}, 12},
			{AnyULP, ByTarget, Ranges{{0xABC, 0xFFF}}, 13},
			{AnyULP, BySource, Ranges{{0x5678, 0x5678}}, 14}, {AnyULP, BySourceOrTarget, Ranges{{0x5679, 0x5679}}, 15},
		},
		DefaultSL: 2, HasDefaultSL: true,
	}
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			t.Errorf("%s:\n got %+v\nwant %+v", g.Type().Field(i).Name, g.Field(i), w.Field(i))
		}
	}
	again, _, err := ParseQoSPolicy("again", got.Append(nil))
	if err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("written and read again: %v\n%s", err, got.String())
	}
}

// TestQoSMatch asks for one path after another under the golden policy.
func TestQoSMatch(t *testing.T) {
	p := goldenQoS(t)
	m, err := NewQoSMatcher(&p)
	if err != nil {
		t.Fatal(err)
	}
	end := func(port QoSPort) QoSEnd { return QoSEnd{port.GUID, m.Groups(&port)} }
	storage := end(QoSPort{GUID: 0x10000000000006, Type: ib.NodeSwitch})
	virtual := end(QoSPort{GUID: 0x77, Node: "vs1 HCA-1", Port: 1, Type: ib.NodeSwitch})
	otherPort := end(QoSPort{GUID: 0x78, Node: "vs1 HCA-1", Port: 2, Type: ib.NodeSwitch})
	tenant := end(QoSPort{GUID: 0x79, PKeys: []ib.PKey{0x7fff, 0x8011}, Type: ib.NodeSwitch})
	member := end(QoSPort{GUID: 0x7a, Partitions: []string{"Part2"}, Type: ib.NodeSwitch})
	ca := end(QoSPort{GUID: 0x7b, Type: ib.NodeCA})
	self := end(QoSPort{GUID: 0x7c, Type: ib.NodeSwitch, IsSelf: true})
	plainSwitch := end(QoSPort{GUID: 0x7d, Type: ib.NodeSwitch})
	for _, c := range []struct {
		name string
		end  QoSEnd
		want []uint16
	}{
		{"storage", storage, []uint16{0}}, {"virtual", virtual, []uint16{1}}, {"its other port", otherPort, nil},
		{"tenant by key", tenant, []uint16{2}},
		{"tenant by name", member, []uint16{2}}, {"CA", ca, []uint16{3}}, {"the manager", self, []uint16{3}},
		{"a switch", plainSwitch, nil},
	} {
		if !slices.Equal(c.end.Groups, c.want) {
			t.Errorf("%s is in groups %v, want %v", c.name, c.end.Groups, c.want)
		}
	}
	service := func(id uint64) PathRequest {
		return PathRequest{Source: plainSwitch, Destination: plainSwitch, ServiceID: id, HasServiceID: true}
	}
	partition := func(key ib.PKey) PathRequest {
		return PathRequest{Source: plainSwitch, Destination: plainSwitch, PKey: key, HasPKey: true}
	}
	for _, c := range []struct {
		name string
		req  PathRequest
		want string
		sl   ib.SL
	}{
		{"nothing matches", PathRequest{Source: plainSwitch, Destination: plainSwitch}, "default", 0},
		{"class", PathRequest{QoSClass: 8, HasQoSClass: true}, "WholeSet", 1},
		{"class that the query does not say", PathRequest{QoSClass: 8}, "default", 0},
		{"class outside", PathRequest{QoSClass: 10, HasQoSClass: true}, "default", 0},
		{"destination and service", PathRequest{Destination: storage, ServiceID: 0x10000000000010, HasServiceID: true},
			"WholeSet", 1},
		{"destination without service", PathRequest{Destination: storage}, "default", 0},
		{"source group", PathRequest{Source: virtual}, "Fast", 5},
		{"source of another port", PathRequest{Source: otherPort}, "default", 0},
		{"source with key", PathRequest{Source: tenant, PKey: 0x8f01, HasPKey: true}, "WholeSet", 1},
		{"destination with key", PathRequest{Source: plainSwitch, Destination: ca, PKey: 0xf01, HasPKey: true},
			"WholeSet", 1},
		{"neither with key", PathRequest{Source: plainSwitch, Destination: plainSwitch, PKey: 0xf01, HasPKey: true},
			"default", 0},
		{"SDP port", service(0x10000 + 30000), "SimpleQoSLevel_SL1", 1},
		{"SDP range", service(0x10000 + 15000), "SimpleQoSLevel_SL2", 2},
		{"SDP else", service(0x10000 + 6), "SimpleQoSLevel_SL3", 3},
		{"RDS", service(0x010648CA), "SimpleQoSLevel_SL4", 4},
		{"RDS port", service(0x01060000 + 25000), "SimpleQoSLevel_SL9", 9},
		{"iSER port", service(0x01060000 + 900), "SimpleQoSLevel_SL5", 5},
		{"iSER", service(0x01060CBC), "SimpleQoSLevel_SL6", 6},
		{"no RDS", service(0x01060001), "default", 0},
		{"IPoIB key", partition(0x8001), "SimpleQoSLevel_SL7", 7},
		{"IPoIB", partition(0xffff), "SimpleQoSLevel_SL8", 8},
		{"any service", service(0x6234), "SimpleQoSLevel_SL10", 10},
		{"any key", partition(0x0abc), "SimpleQoSLevel_SL11", 11},
		{"SRP", PathRequest{Destination: QoSEnd{GUID: 0x1234}}, "SimpleQoSLevel_SL12", 12},
		{"target", PathRequest{Destination: QoSEnd{GUID: 0xFFF}}, "SimpleQoSLevel_SL13", 13},
		{"source", PathRequest{Source: QoSEnd{GUID: 0x5678}}, "SimpleQoSLevel_SL14", 14},
		{"source is no target", PathRequest{Destination: QoSEnd{GUID: 0x5678}}, "default", 0},
		{"source or target: source", PathRequest{Source: QoSEnd{GUID: 0x5679}}, "SimpleQoSLevel_SL15", 15},
		{"source or target: target", PathRequest{Destination: QoSEnd{GUID: 0x5679}}, "SimpleQoSLevel_SL15", 15},
	} {
		if l, ok := m.Match(&c.req); !ok || l.Name != c.want || l.SL != c.sl {
			t.Errorf("%s: %+v %v, want %s with SL %d", c.name, l, ok, c.want, c.sl)
		}
	}

	simple, _, err := ParseQoSPolicy("f", []byte("qos-ulps\n default : 3\nend-qos-ulps\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m, err = NewQoSMatcher(&simple); err != nil {
		t.Fatal(err)
	}
	if l, ok := m.Match(&PathRequest{}); !ok || l.SL != 3 {
		t.Errorf("the shortest policy: %+v %v", l, ok)
	}
	if m, err = NewQoSMatcher(&QoSPolicy{}); err != nil {
		t.Fatal(err)
	}
	if l, ok := m.Match(&PathRequest{}); ok {
		t.Errorf("no policy: %+v", l)
	}
	for _, bad := range []QoSPolicy{
		{Rules: []QoSRule{{Level: "x"}}},
		{Levels: []QoSLevel{{Name: "x"}}, Rules: []QoSRule{{Level: "x", Sources: []string{"y"}}}},
	} {
		if _, err := NewQoSMatcher(&bad); err == nil {
			t.Errorf("a rule with an unknown name: %+v", bad)
		}
	}
}

const shortest = "qos-levels\nqos-level\nname: DEFAULT\nsl: 0\nend-qos-level\nend-qos-levels\n"

func TestQoSPolicyErrors(t *testing.T) {
	for _, c := range []struct {
		file string
		want []string
	}{
		{"", []string{"1:1 missing "}},
		{"qos-levels qos-level\nname: DEFAULT\nsl: 0\nend-qos-level end-qos-levels", nil}, // all on few lines
		{shortest + "qos-levels\nqos-level\nname: a\nend-qos-level\nend-qos-levels", []string{"8:1 missing qos-level"}},
		{shortest + "port-group\n", []string{"7:1 unknown word port-group"}},
		{shortest + "port-groups\nport-group\nnaem: x\nend-port-group\n",
			[]string{"9:1 unknown word naem", "8:1 missing port-group", "10:15 missing "}},
		{shortest + "port-groups\nport-group\nname: x\nend-port-groups\n", []string{"10:1 missing end-port-groups"}},
		{shortest + "port-groups\nport-group\nname: x\nname: y\nport-guid: 0x1-\nport-name: abc\npkey: 0x10000\n" +
			"node-type: HOST\nend-port-group\nport-group\nname: X\nend-port-group\nend-port-groups", []string{
			"10:1 said twice name", "11:16 bad value ", "12:12 syntax error abc", "13:7 bad value 0x10000",
			"14:12 unknown word HOST", "16:1 said twice port-group"}},
		{shortest + "qos-match-rules\nqos-match-rule\nsource: a, b\nqos-class: 0x1000\nqos-level-name: DEFALT\n" +
			"end-qos-match-rule\nqos-match-rule\nend-qos-match-rule\nend-qos-match-rules", []string{
			"10:12 bad value 0x1000", "13:1 missing qos-match-rule", "9:9 unknown word a", "9:12 unknown word b",
			"11:17 unknown word DEFALT"}},
		{shortest + "qos-setup\nsl2vl-tables\nsl2vl-scope\nsl2vl-table: 0,1\nend-sl2vl-scope\nend-sl2vl-tables\n" +
			"vlarb-tables\nvlarb-scope\nvlarb-low: 0\nvl-high-limit: 256\nend-vlarb-scope\nend-vlarb-tables\n" +
			"end-qos-setup", []string{
			"10:14 bad value 0,1", "9:1 missing sl2vl-scope", "15:12 syntax error 0", "16:16 bad value 256",
			"14:1 missing vlarb-scope"}},
		{"qos-ulps\ndefault: 16\nsdp 3\nspd: 1\nsdp, pkey 3: 1\nsrp: 1\nsdp, port-num 70000: 2\nany, pkey : 3\n" +
			"end-qos-ulps", []string{
			"2:10 bad value 16", "3:1 syntax error sdp 3", "4:1 unknown word spd", "5:6 unknown word pkey",
			"6:4 unknown word ", "7:15 bad value 70000", "8:10 bad value "}},
		{shortest + "port-groups\nport-group\nname: \"x\nport-guid:\nend-port-group\nend-port-groups",
			[]string{"9:7 syntax error \"x", "10:11 missing "}},
	} {
		_, _, err := ParseQoSPolicy("f", []byte(c.file))
		var got []string
		if ps, ok := err.(Problems); ok {
			for _, p := range ps {
				got = append(got, fmt.Sprintf("%d:%d %v %s", p.Line, p.Col, p.Kind, p.Word))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %q\nwant %q", c.file, got, c.want)
		}
	}
	_, _, err := ParseQoSPolicy("qos-policy.conf", []byte("qos-levels\n  qos-levl\n"))
	const want = `qos-policy.conf:2:3: unknown word: "qos-levl": expected qos-level or end-qos-levels; did ` +
		`you mean qos-level?`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("message:\n got %v\nwant %s", err, want)
	}
}

// TestQoSPolicyTruncated cuts the file after every byte: unless it ends with a whole section, and there are levels,
// that is an error.
func TestQoSPolicyTruncated(t *testing.T) {
	data := readFile(t, "qos-policy.conf")
	for i := range data {
		text := strings.TrimSpace(string(data[:i]))
		complete := strings.HasSuffix(text, "\nend-qos-levels") || strings.HasSuffix(text, "\nend-qos-match-rules") ||
			strings.HasSuffix(text, "\nend-qos-ulps")
		if _, _, err := ParseQoSPolicy("f", data[:i]); (err == nil) != complete {
			t.Errorf("cut after %q: %v", text[max(0, len(text)-20):], err)
		}
	}
}

// TestRanges holds the sets against a plain list of numbers.
func TestRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var rs Ranges
		var in [64]bool
		for range rng.IntN(12) {
			lo := rng.Uint64N(64)
			hi := min(lo+rng.Uint64N(10), 63)
			rs = rs.add(Range{lo, hi})
			for v := lo; v <= hi; v++ {
				in[v] = true
			}
		}
		for v, want := range in {
			if rs.Contains(uint64(v)) != want {
				t.Fatalf("%v contains %d: %v", rs, v, !want)
			}
		}
		for i := 1; i < len(rs); i++ {
			if rs[i].Lo <= rs[i-1].Hi+1 {
				t.Fatalf("%v is not in its shortest form", rs)
			}
		}
	}
	top := Ranges{}.add(Range{0, ^uint64(0)}, Range{5, 6}, Range{^uint64(0), ^uint64(0)})
	if len(top) != 1 || !top.Contains(0) || !top.Contains(^uint64(0)) {
		t.Errorf("all numbers: %v", top)
	}
}

func FuzzQoSPolicy(f *testing.F) {
	f.Add(readFile(f, "qos-policy.conf"))
	f.Add([]byte(shortest))
	f.Add([]byte("qos-ulps\n default : 3\nany, pkey 1-2,5:4\nend-qos-ulps"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _, err := ParseQoSPolicy("f", data)
		if err != nil {
			return
		}
		if _, err := NewQoSMatcher(&p); err != nil {
			t.Fatalf("a policy without problems: %v", err)
		}
		text := p.Append(nil)
		again, _, err := ParseQoSPolicy("f", text)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%v\n%s\n got %+v\nwant %+v", err, text, again, p)
		}
	})
}

func BenchmarkQoSMatch(b *testing.B) {
	p := goldenQoS(b)
	m, err := NewQoSMatcher(&p)
	if err != nil {
		b.Fatal(err)
	}
	req := PathRequest{Source: QoSEnd{Groups: []uint16{3}}, Destination: QoSEnd{Groups: []uint16{3}}, PKey: 0xffff,
		HasPKey: true, ServiceID: 77, HasServiceID: true}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := m.Match(&req); !ok {
			b.Fatal("no level")
		}
	}
}
