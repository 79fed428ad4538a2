package policy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

// TestConfigDefaults holds our defaults against the file that OpenSM writes of its own: reading it
// must change nothing and warn about nothing.
func TestConfigDefaults(t *testing.T) {
	got, warnings, err := ParseConfig("opensm.conf", readFile(t, "opensm-default.conf"))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if want := DefaultConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	seen := map[string]bool{}
	for _, line := range lines(readFile(t, "opensm-default.conf")) {
		if f := line.fields(); len(f) > 0 {
			seen[f[0].text] = true
		}
	}
	for _, o := range options {
		if !seen[o.name] {
			t.Errorf("OpenSM does not write the option %s", o.name)
		}
	}
	for name := range unsupported {
		if !seen[name] && name != "dimn_ports_file" { // an older name of port_search_ordering_file
			t.Errorf("OpenSM does not write the option %s", name)
		}
		if slices.ContainsFunc(options, func(o option) bool { return o.name == name }) {
			t.Errorf("%s is supported and not", name)
		}
	}
}

func TestConfigGolden(t *testing.T) {
	got, warnings, err := ParseConfig("opensm.conf", readFile(t, "opensm.conf"))
	if err != nil {
		t.Fatal(err)
	}
	var warned []string
	for _, w := range warnings {
		warned = append(warned, fmt.Sprintf("%d %s", w.Line, w.Word))
	}
	if want := []string{"22 perfmgr", "23 console", "31 0,1,2,3,5,5,5,12,12,0,"}; !slices.Equal(warned, want) {
		t.Errorf("warnings %q, want %q", warned, want)
	}
	want := DefaultConfig()
	want.GUID, want.MKey, want.MKeyProtectionLevel, want.MKeyLeasePeriod, want.SMKey = 0x0002c90300a1b2c3,
		0x1122334455667788, 2, 60, 0xfeedface
	want.SubnetPrefix, want.LMC, want.SMPriority, want.SweepInterval, want.MaxWireSMPs = 0xfec0000000000001, 2, 14, 0,
		64
	want.RoutingEngines = []string{"ftree", "updn", "minhop"}
	want.RootGUIDFile, want.CNGUIDFile, want.PartitionEnforce = "/etc/opensm/root guids", "/etc/opensm/cn_guids", "out"
	want.PacketLifeTime, want.TransactionTimeout, want.ReassignLIDs, want.LogFile, want.QoS = 0x14, 500, true,
		"/var/log/sm.log", true
	want.QoSOptions[QoSAll] = QoSOptions{8, 6, []VLWeight{{0, 4}},
		[]VLWeight{{0, 0}, {1, 64}, {2, 128}, {3, 192}, {4, 0}, {5, 64}, {6, 64}, {7, 64}},
		[]ib.VL{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 15}}
	want.QoSOptions[QoSSwitchPort0].MaxVLs = 2
	want.QoSOptions[QoSCA].SL2VL = []ib.VL{0, 1, 2, 3, 5, 5, 5, 12, 12, 0}
	want.QoSOptions[QoSSwitchPort].HighLimit = 255
	cc := &want.Congestion
	cc.Enabled, cc.Key, cc.StarvationDelay, cc.CAControlMap = true, 0xabc, CCTEntry{1, 12}, 5
	copy(cc.VictimMask[27:], []byte{1, 0xff, 0xff, 0xff, 0xfe})
	cc.CA[2] = CACongestionEntry{Timer: 150, Increase: 1}
	cc.CA[0].TriggerThreshold = 2
	cc.Table = []CCTEntry{{0, 0}, {0, 1}, {1, 3}, {3, 16383}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	again, _, err := ParseConfig("again", got.Append(nil))
	if err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("written and read again: %v\n%s", err, got.String())
	}
}

func TestPortQoS(t *testing.T) {
	c, _, err := ParseConfig("opensm.conf", readFile(t, "opensm.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		kind  PortKind
		vls   uint8
		limit uint8
		sl2vl [ib.NumSL]ib.VL
	}{
		{QoSCA, 8, 6, [ib.NumSL]ib.VL{0, 1, 2, 3, 5, 5, 5, 12, 12, 0}},
		{QoSSwitchPort0, 2, 6, [ib.NumSL]ib.VL{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 15}},
		{QoSSwitchPort, 8, 255, [ib.NumSL]ib.VL{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 15}},
		{QoSRouter, 8, 6, [ib.NumSL]ib.VL{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 15}},
	} {
		q := c.PortQoS(w.kind)
		if q.MaxVLs != w.vls || q.HighLimit != w.limit || q.SL2VL != w.sl2vl || len(q.VLArbHigh) != 1 ||
			len(q.VLArbLow) != 8 {
			t.Errorf("%v: %+v", w.kind, q)
		}
	}
	// OpenSM's own, as its manual prints them.
	def := DefaultConfig()
	q := def.PortQoS(QoSCA)
	got := fmt.Sprintf("%d %d %s %s %s", q.MaxVLs, q.HighLimit, appendVLArb(nil, q.VLArbHigh),
		appendVLArb(nil, q.VLArbLow), appendSL2VL(nil, q.SL2VL[:]))
	const want = "15 0 0:4,1:0,2:0,3:0,4:0,5:0,6:0,7:0,8:0,9:0,10:0,11:0,12:0,13:0,14:0 " +
		"0:0,1:4,2:4,3:4,4:4,5:4,6:4,7:4,8:4,9:4,10:4,11:4,12:4,13:4,14:4 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,7"
	if got != want {
		t.Errorf("defaults:\n got %s\nwant %s", got, want)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"sweep_intervall 10",
			`f:1:1: unknown word: "sweep_intervall": expected an option of opensm.conf; did you mean sweep_interval?`},
		{"xyzzy", `f:1:1: unknown word: "xyzzy": expected an option of opensm.conf`},
		{"lmc 8", `f:1:5: bad value: "8": expected a LID mask control, a number from 0 to 7`},
		{"lmc", `f:1:4: bad value: end of line: expected a LID mask control, a number from 0 to 7`},
		{"  qos YES", `f:1:7: bad value: "YES": expected TRUE or FALSE`},
		{"sm_key 0x11112222333344445",
			`f:1:8: bad value: "0x11112222333344445": expected a key, a number from 0x0 to 0xffffffffffffffff`},
		{"part_enforce inout", `f:1:14: bad value: "inout": expected both, out, in or off`},
		{"qos_ca_high_limit 256", `f:1:19: bad value: "256": expected a limit, or -1, a number from 0 to 255`},
		{"qos_vlarb_low 0:1,1", `f:1:19: syntax error: "1": expected lane:weight, such as 0:64`},
		{"qos_vlarb_low 0:1,15:3", `f:1:19: bad value: "15": expected a data lane, a number from 0 to 14`},
		{"qos_sl2vl 0,1,16", `f:1:15: bad value: "16": expected a lane, a number from 0 to 15`},
		{"qos_sl2vl 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0",
			`f:1:11: bad value: "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0": expected 16 lanes, one for each service level`},
		{"cc_cct 0:1,4:1", `f:1:12: bad value: "4": expected a shift, a number from 0 to 3`},
		{"cc_ca_cong_setting_ccti_timer 3", `f:1:31: syntax error: "3": expected a service level and then a timer`},
		{"cc_ca_cong_setting_ccti_min 16 1",
			`f:1:29: bad value: "16": expected a service level, a number from 0 to 15`},
		{"cc_sw_cong_setting_victim_mask 12",
			`f:1:32: bad value: "12": expected 0x and up to 64 hex digits, one bit for each port`},
	} {
		_, _, err := ParseConfig("f", []byte(c.line))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.line, err, c.want)
		}
	}
	// Every mistake of a file is reported, and the rest still read.
	c, _, err := ParseConfig("f", []byte("lmc 9\nqos maybe\nsm_priority 3\nnope 1\n"))
	if ps, ok := err.(Problems); !ok || len(ps) != 3 || !errors.Is(err, ErrValue) || !errors.Is(err, ErrUnknown) ||
		c.SMPriority != 3 {
		t.Errorf("%v; priority %d", err, c.SMPriority)
	}
}

// TestConfigTruncated: a file cut within a word or value is one with an unknown word, a
// bad value, or another value that is good: never a crash, and never silently a default.
func TestConfigTruncated(t *testing.T) {
	data := readFile(t, "opensm.conf")
	for i := range data {
		line := string(data[strings.LastIndexByte(string(data[:i]), '\n')+1 : i])
		f := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(blanks+"=", r) })
		_, _, err := ParseConfig("f", data[:i])
		if len(f) == 1 && line[0] != '#' && !slices.Contains(optionNames, f[0]) && err == nil {
			t.Errorf("%q is not reported", line)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(readFile(f, "opensm.conf"))
	f.Add(readFile(f, "opensm-default.conf"))
	f.Add([]byte("log_file \"a # b\" # c\nroot_guid_file '\"'\nqos_vlarb_low 1:2,,\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := ParseConfig("f", data)
		if err != nil {
			return
		}
		text := c.Append(nil)
		again, _, err := ParseConfig("f", text)
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}
