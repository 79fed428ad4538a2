package sm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/policy"
)

// TestForce: a ticket says when partitions are in force, and who refused.
func TestForce(t *testing.T) {
	w := build(t, spec(t, "star:4"))
	r := newRig(t, w, Config{SweepInterval: -1})
	r.settle()
	sw := w.g.Switches()[0]
	if f := r.m.Force(); f.Ticket != 0 || len(f.Refusals) != 0 {
		t.Errorf("at first %+v", f)
	}
	red := parts(t, fmt.Sprintf("Default=0x7fff : ALL=limited, SELF=full ;\nred=0x1001 : %v=full, %v=full ;\n",
		r.guid(1), r.guid(2)))
	none := policy.Partitions{}

	ticket := r.m.SetPartitions(r.now, red)
	if f := r.m.Force(); f.Ticket >= ticket {
		t.Error("in force before anybody was told")
	}
	r.settle()
	if f := r.m.Force(); f.Ticket != ticket || len(f.Refusals) != 0 {
		t.Errorf("%+v: want ticket %d", f, ticket)
	}

	refused := func(what string, words ...string) Refusal {
		t.Helper()
		ticket := r.m.SetPartitions(r.now, none)
		r.settle()
		f := r.m.Force()
		if f.Ticket != ticket || len(f.Refusals) == 0 {
			t.Fatalf("%s: %+v", what, f)
		}
		for _, word := range words {
			if !strings.Contains(f.Refusals[0].Why, word) {
				t.Errorf("%s: %q: want %q", what, f.Refusals[0].Why, word)
			}
		}
		return f.Refusals[0]
	}
	again := func() {
		t.Helper()
		r.edit, r.lose = nil, nil
		r.pass(DefaultSweepInterval * 2) // what did not work is tried again
		ticket := r.m.SetPartitions(r.now, red)
		r.settle()
		if f := r.m.Force(); f.Ticket != ticket || len(f.Refusals) != 0 {
			t.Fatalf("afterwards %+v", f)
		}
	}

	r.edit = func(node int, v mad.View) {
		if node == 2 && v.AttrID() == mad.AttrPKeyTable && v.Method() == mad.MethodGetResp {
			v.SetStatus(mad.StatusBusy)
		}
	}
	if x := refused("an adapter that answers with an error", "Set(P_KeyTable)",
		mad.StatusBusy.String()); x.Behind != r.guid(2) || x.Port != r.guid(2) || x.Num != 1 {
		t.Errorf("%+v", x)
	}
	again()

	r.lose = func(node int, v mad.View) (bool, bool) {
		return node == 1 && v.AttrID() == mad.AttrPKeyTable && v.Method() == mad.MethodSet, false
	}
	if x := refused("an adapter that says nothing", "does not answer to Set(P_KeyTable)"); x.Behind != r.guid(1) {
		t.Errorf("%+v", x)
	}
	again()

	r.edit = func(node int, v mad.View) {
		if node == 3 && v.AttrID() == mad.AttrPKeyTable {
			v.Data()[0] ^= 0x10
		}
	}
	if x := refused("an adapter that takes something else", "other keys"); x.Behind != r.guid(3) {
		t.Errorf("%+v", x)
	}
	again()

	// A switch that says it does not check.
	r.m.SetPartitions(r.now, none)
	r.settle()
	r.edit = func(node int, v mad.View) {
		if node == sw.Index && v.AttrID() == mad.AttrPortInfo && v.AttrMod() == 3 {
			var pi mad.PortInfo
			if _, err := pi.Parse(v.Data()); err != nil {
				t.Fatal(err)
			}
			pi.PartitionEnforcementInbound = false
			clear(v.Data())
			pi.Append(v.Data()[:0])
		}
	}
	ticket = r.m.SetPartitions(r.now, red)
	r.settle()
	f := r.m.Force()
	if f.Ticket != ticket || len(f.Refusals) != 1 || f.Refusals[0].Node != sw.GUID || f.Refusals[0].Num != 3 ||
		f.Refusals[0].Behind != r.guid(2) || !strings.Contains(f.Refusals[0].Why, "check partitions") {
		t.Errorf("%+v", f)
	}

	// More partitions than a table has room for.
	r.edit = nil
	var text strings.Builder
	for k := range 140 {
		fmt.Fprintf(&text, "p%d=0x%x : %v=full ;\n", k, 0x100+k, r.guid(1))
	}
	r.m.SetPartitions(r.now, parts(t, text.String()))
	r.settle()
	if f := r.m.Force(); !slices.ContainsFunc(f.Refusals,
		func(x Refusal) bool { return x.Port == r.guid(1) && strings.Contains(x.Why, "has room for 128") }) {
		t.Errorf("%+v", f.Refusals)
	}
}

// TestMemberIndex0: a member that asks for it has its key first, and the default partition's next.
func TestMemberIndex0(t *testing.T) {
	w := build(t, spec(t, "star:4"))
	r := newRig(t, w, Config{})
	p := policy.DefaultPartitions()
	p.Defs = append(p.Defs, policy.PartitionDef{Name: "a", Key: 5,
		Members: []policy.Member{{GUID: r.guid(1), Membership: policy.Full},
			{GUID: r.guid(2), Membership: policy.Full, Index0: true}}},
		policy.PartitionDef{Name: "b", Key: 6, Members: []policy.Member{{GUID: r.guid(2), Membership: policy.Limited,
			Index0: true}}})
	r.m.SetPartitions(r.now, p)
	r.settle()
	if got := r.keys(1); !slices.Equal(got, []ib.PKey{0xffff, 0x8005}) {
		t.Errorf("h2 has %v", got)
	}
	if got := r.keys(2); !slices.Equal(got, []ib.PKey{0x8005, 0xffff, 0x0006}) {
		t.Errorf("h3 has %v", got)
	}
}

// TestSetQoS: mappings and arbitration change in a subnet that is up, and go again without a trace.
func TestSetQoS(t *testing.T) {
	w := build(t, spec(t, "star:4"))
	r := newRig(t, w, Config{SweepInterval: -1})
	r.settle()
	sw := w.g.Switches()[0].Index
	type tables struct {
		host, through mad.SLtoVL
		high, low     mad.VLArb
		limit         uint8
	}
	look := func() tables {
		return tables{r.slvl(1, 1, 0), r.slvl(sw, 0, mad.SLtoVLModifier(1, 2)), r.arb(sw, 0, 2, mad.VLArbHigh0),
			r.arb(sw, 0, 2, mad.VLArbLow0), r.portInfo(sw, 0, 2).VLHighLimit}
	}
	before := look()
	classic, ok := policy.TemplateByName("classic")
	if !ok {
		t.Fatal("no template classic")
	}
	ticket, err := r.m.SetQoS(r.now, QoS{Enabled: true, Ports: QoSPortsOf(classic.PortQoS())})
	if err != nil {
		t.Fatal(err)
	}
	r.settle()
	if f := r.m.Force(); f.Ticket != ticket || len(f.Refusals) != 0 {
		t.Errorf("%+v", f)
	}
	got := look()
	want := mad.SLtoVL{0, 1, 2, 3}
	if got.host != want || got.through != want || got.limit != classic.HighLimit ||
		got.high[0] != (mad.VLArbEntry{VL: 1, Weight: 192}) || got.high[1] != (mad.VLArbEntry{VL: 3, Weight: 32}) ||
		got.low[2] != (mad.VLArbEntry{VL: 2, Weight: 128}) {
		t.Errorf("%+v", got)
	}
	if r.logged("no weight") {
		t.Errorf("a lane without weight: %q", r.log)
	}
	r.sets = 0
	r.m.Sweep(r.now, "test")
	r.settle()
	if r.sets != 0 {
		t.Errorf("%d writes in a sweep that changes nothing", r.sets)
	}
	if _, err := r.m.SetQoS(r.now, QoS{}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	after := look()
	if after.host != before.host || after.through != before.through || after.limit != 0 || after.high != (mad.VLArb{}) {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	for vl := range 8 {
		if after.low[vl].Weight != arbWeight || after.low[vl].VL != ib.VL(vl) {
			t.Errorf("lane %d: %+v", vl, after.low[vl])
		}
	}
	// One that refuses is named.
	r.edit = func(node int, v mad.View) {
		if node == sw && v.AttrID() == mad.AttrVLArb {
			v.SetStatus(mad.StatusBusy)
		}
	}
	if _, err := r.m.SetQoS(r.now, QoS{Enabled: true, Ports: QoSPortsOf(classic.PortQoS())}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if f := r.m.Force(); len(f.Refusals) == 0 || f.Refusals[0].Node != w.g.Nodes[sw].GUID ||
		!strings.Contains(f.Refusals[0].Why, "VLArb") {
		t.Errorf("%+v", f)
	}
}
