package sm

import (
	"fmt"
	"strings"
	"testing"

	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/policy"
)

func ccOptions(t testing.TB, entries int) policy.CongestionOptions {
	t.Helper()
	var b strings.Builder
	b.WriteString(`congestion_control TRUE
cc_key 0x55
cc_max_outstanding_mads 2
cc_sw_cong_setting_control_map 0x1f
cc_sw_cong_setting_victim_mask 0x1e
cc_sw_cong_setting_credit_mask 0x6
cc_sw_cong_setting_threshold 0x9
cc_sw_cong_setting_packet_size 12
cc_sw_cong_setting_credit_starvation_threshold 3
cc_sw_cong_setting_credit_starvation_return_delay 2:77
cc_sw_cong_setting_marking_rate 400
cc_ca_cong_setting_port_control 1
cc_ca_cong_setting_control_map 0x8001
cc_ca_cong_setting_ccti_timer 0 150
cc_ca_cong_setting_ccti_increase 0 2
cc_ca_cong_setting_trigger_threshold 15 7
cc_ca_cong_setting_ccti_min 15 4
`)
	if entries > 0 {
		b.WriteString("cc_cct ")
		for i := range entries {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%d:%d", i%4, 3*i)
		}
	}
	c, _, err := policy.ParseConfig("opensm.conf", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return c.Congestion
}

func TestCongestionControl(t *testing.T) {
	w := build(t, spec(t, "star:4"))
	r := newRig(t, w, Config{Congestion: ccOptions(t, 100)})
	sent := 0
	r.lose = func(node int, v mad.View) (bool, bool) {
		if v.Class() != mad.ClassCC {
			return false, false
		}
		sent++
		if v.CCKey() != 0x55 {
			t.Errorf("CC_Key %#x", v.CCKey())
		}
		return false, false
	}
	r.settle()
	// Five ports are asked, the switch has one setting, each adapter one and two blocks.
	if want := 5 + 1 + 4*3; sent != want {
		t.Errorf("%d datagrams of congestion control, want %d", sent, want)
	}
	sw := w.g.Switches()[0].Index
	var s mad.SwitchCongestion
	if _, err := s.Parse(r.get(mad.ClassCC, sw, 0, mad.AttrSwitchCongestion, 0, 0)[mad.CCDataOff:]); err != nil {
		t.Fatal(err)
	}
	if s.ControlMap != 0x1f || s.VictimMask[31] != 0x1e || s.CreditMask[31] != 6 || s.Threshold != 9 ||
		s.PacketSize != 12 || s.CSThreshold != 3 ||
		s.CSReturnDelay != 2<<14|77 || s.MarkingRate != 400 {
		t.Errorf("switch: %+v", s)
	}
	// What nodes were told their engines do.
	for p := ib.PortNum(1); p <= 4; p++ {
		want := link.Marking{Threshold: 9, PacketSize: 12, Rate: 400, Victim: true}
		if p <= 2 { // the credit mask
			want.Starvation = 3
		}
		if got := w.switches[sw].Port(p).Marking(); got != want {
			t.Errorf("port %d marks %+v, want %+v", p, got, want)
		}
	}
	for h := range 4 {
		got := w.hcas[h].Port(1).Congestion
		if got == nil || !got.ByLevel || got.Levels != 0x8001 || got.Limit != 99 || got.Table[99] != 3<<14|297 ||
			got.Entries[0] != (hca.CongestionEntry{Timer: 150, Increase: 2}) ||
			got.Entries[15] != (hca.CongestionEntry{Min: 4}) {
			t.Errorf("h%d slows down by %+v", h+1, got)
		}
	}
	for h := range 4 {
		ca := r.get(mad.ClassCC, h, 1, mad.AttrCACongestion, 0, 0)[mad.CCDataOff:]
		l := &mad.CACongestionLayout
		for _, c := range []struct {
			field string
			at    int
			want  uint64
		}{
			{"PortControl", 0, 1}, {"ControlMap", 0, 0x8001}, {"CCTITimer", 0, 150}, {"CCTITimer", 1, 0},
			{"CCTIIncrease", 0, 2},
			{"TriggerThreshold", 15, 7}, {"CCTIMin", 15, 4},
		} {
			if got := l.Field(c.field).Get(ca, c.at); got != c.want {
				t.Errorf("h%d: %s[%d] is %d, want %d", h+1, c.field, c.at, got, c.want)
			}
		}
		tl := &mad.CongestionTableLayout
		for k := range 100 {
			b := r.get(mad.ClassCC, h, 1, mad.AttrCongestionControlTable, uint32(k/mad.CCTPerBlock), 0)[mad.CCDataOff:]
			shift, mult := tl.Field("Shift").Get(b, k%mad.CCTPerBlock), tl.Field("Multiplier").Get(b, k%mad.CCTPerBlock)
			if shift != uint64(k%4) || mult != uint64(3*k) || tl.Field("CCTILimit").Get(b, 0) != 99 {
				t.Fatalf("h%d: entry %d is %d:%d of %d", h+1, k, shift, mult, tl.Field("CCTILimit").Get(b, 0))
			}
		}
	}
	// They are told once.
	sent = 0
	r.m.Sweep(r.now, "test")
	r.settle()
	if sent != 0 {
		t.Errorf("%d datagrams in a sweep that changes nothing", sent)
	}
}

// A node that does not know the class is named once; a lost answer is made up for.
func TestCongestionControlTrouble(t *testing.T) {
	w := build(t, spec(t, "star:4"))
	r := newRig(t, w, Config{Congestion: ccOptions(t, 0)})
	lost := 0
	r.lose = func(node int, v mad.View) (bool, bool) {
		if v.Class() == mad.ClassCC && node == 2 {
			return true, false
		}
		if v.Class() == mad.ClassCC && node == 1 && v.Method() == mad.MethodSet && lost == 0 {
			lost++
			return true, false
		}
		return false, false
	}
	r.settle()
	r.pass(100 * ib.Second)
	for range 3 {
		r.m.Sweep(r.now, "test")
		r.settle()
	}
	named := 0
	for _, line := range r.log {
		if strings.Contains(line, "does not do congestion control") {
			named++
			if !strings.Contains(line, "h3") {
				t.Errorf("the wrong node: %s", line)
			}
		}
	}
	if named != 1 {
		t.Errorf("named %d times: %q", named, r.log)
	}
	l := &mad.CACongestionLayout
	for _, h := range []int{0, 1, 3} {
		if got := l.Field("CCTITimer").Get(r.get(mad.ClassCC, h, 1, mad.AttrCACongestion, 0, 0)[mad.CCDataOff:],
			0); got != 150 {
			t.Errorf("h%d: timer %d", h+1, got)
		}
	}
}

// More entries than an adapter has room for are cut, with a word about it.
func TestCongestionTableTooLong(t *testing.T) {
	w := build(t, spec(t, "star:2"))
	r := newRig(t, w, Config{Congestion: ccOptions(t, 200)})
	r.settle()
	if !r.logged("problem", "room for 128 entries", "cc_cct has 200") {
		t.Errorf("not said: %q", r.log)
	}
	b := r.get(mad.ClassCC, 0, 1, mad.AttrCongestionControlTable, 1, 0)[mad.CCDataOff:]
	if got := mad.CongestionTableLayout.Field("CCTILimit").Get(b, 0); got != 127 {
		t.Errorf("limit %d", got)
	}
}
