package sm

import (
	"fmt"
	"slices"
	"testing"

	"softib/internal/benchsize"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/policy"
)

func qosOf(t testing.TB, conf, pol string) QoS {
	t.Helper()
	c, _, err := policy.ParseConfig("opensm.conf", []byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	if pol == "" {
		return QoSOf(&c, nil)
	}
	p, _, err := policy.ParseQoSPolicy("qos-policy.conf", []byte(pol))
	if err != nil {
		t.Fatal(err)
	}
	return QoSOf(&c, &p)
}

func (r *rig) slvl(node int, in ib.PortNum, mod uint32) (t mad.SLtoVL) {
	r.t.Helper()
	if _, err := t.Parse(r.get(mad.ClassSMLID, node, in, mad.AttrSLtoVL, mod, 0).Data()); err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *rig) arb(node int, in ib.PortNum, port ib.PortNum, block mad.VLArbBlock) (t mad.VLArb) {
	r.t.Helper()
	if _, err := t.Parse(r.get(mad.ClassSMLID, node, in, mad.AttrVLArb, mad.VLArbModifier(port, block),
		0).Data()); err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *rig) portInfo(node int, in, port ib.PortNum) (pi mad.PortInfo) {
	r.t.Helper()
	if _, err := pi.Parse(r.get(mad.ClassSMLID, node, in, mad.AttrPortInfo, uint32(port),
		r.m.cfg.MKey).Data()); err != nil {
		r.t.Fatal(err)
	}
	return pi
}

const qosConf = `qos TRUE
qos_max_vls 8
qos_high_limit 3
qos_vlarb_high 0:7,1:9
qos_vlarb_low 2:255,3:1,12:5
qos_sl2vl 0,1,2,3,4,5,6,7,8,9,10,11,12,13,15,1
qos_ca_sl2vl 0,1,2,3,0,1,2,3,0,1,2,3,0,1,2,15
qos_ca_high_limit 9
qos_ca_max_vls 4
`

func TestQoSTables(t *testing.T) {
	w := build(t, spec(t, "star:4"))
	r := newRig(t, w, Config{QoS: qosOf(t, qosConf, "")})
	r.settle()
	sw := w.g.Switches()[0].Index
	if got, want := r.slvl(1, 1, 0), (mad.SLtoVL{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 15}); got != want {
		t.Errorf("adapter: %v, want %v", got, want)
	}
	for in := ib.PortNum(1); in <= 4; in++ {
		for out := ib.PortNum(1); out <= 4; out++ {
			if got, want := r.slvl(sw, 0, mad.SLtoVLModifier(in, out)),
				(mad.SLtoVL{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 15, 1}); got != want {
				t.Errorf("switch, from %d to %d: %v, want %v", in, out, got, want)
			}
		}
	}
	high, low := r.arb(1, 1, 0, mad.VLArbHigh0), r.arb(1, 1, 0, mad.VLArbLow0)
	if high[0] != (mad.VLArbEntry{VL: 0, Weight: 7}) || high[1] != (mad.VLArbEntry{VL: 1, Weight: 9}) ||
		high[2].Weight != 0 ||
		low[0] != (mad.VLArbEntry{VL: 2, Weight: 255}) || low[2] != (mad.VLArbEntry{VL: 0, Weight: 5}) ||
		low[3].Weight != 0 {
		t.Errorf("adapter: high %v, low %v", high[:4], low[:4])
	}
	if low := r.arb(sw, 0, 2, mad.VLArbLow0); low[2] != (mad.VLArbEntry{VL: 4, Weight: 5}) {
		t.Errorf("switch: low %v", low[:4])
	}
	if a, b := r.portInfo(1, 1, 1), r.portInfo(sw, 0, 2); a.VLHighLimit != 9 || b.VLHighLimit != 3 {
		t.Errorf("high limits: adapter %d, switch %d", a.VLHighLimit, b.VLHighLimit)
	}
	if !r.logged("problem", "switch port", "lane 5 no weight") && !r.logged("problem", "no weight in either table") {
		t.Errorf("lanes without weight are not named: %q", r.log)
	}
	// What the manager believes is what is there.
	sub := r.m.Subnet()
	at, _ := sub.ByGUID(w.g.Nodes[sw].GUID)
	if tb := sub.Nodes[at].Ports[2].Tables; tb.SLtoVL[1] != r.slvl(sw, 0, mad.SLtoVLModifier(1, 2)) ||
		tb.VLArb[0][2] != (mad.VLArbEntry{VL: 4, Weight: 5}) {
		t.Errorf("believed: %+v", tb)
	}
	r.sets = 0
	r.m.Sweep(r.now, "test")
	r.settle()
	if r.sets != 0 {
		t.Errorf("%d writes in a sweep that changes nothing", r.sets)
	}
}

// A switch that takes a mapping for all ports at once gets it with one datagram; one that does not gets it for each
// pair.
func TestQoSWildcards(t *testing.T) {
	count := func(optimized bool) int {
		w := build(t, spec(t, "star:4"))
		r := newRig(t, w, Config{QoS: qosOf(t, "qos TRUE\nqos_sl2vl 0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7\n", "")})
		n := 0
		sw := w.g.Switches()[0].Index
		r.lose = func(node int, v mad.View) (bool, bool) {
			if node == sw && v.Method() == mad.MethodSet && v.AttrID() == mad.AttrSLtoVL {
				n++
			}
			return false, false
		}
		if !optimized {
			// The answer says that the switch cannot.
			r.edit = func(node int, v mad.View) {
				if v.AttrID() == mad.AttrSwitchInfo {
					var si mad.SwitchInfo
					si.Parse(v.Data())
					si.OptimizedSLtoVLMappingProgramming = 0
					clear(v.Data())
					si.Append(v.Data()[:0])
				}
			}
		}
		r.settle()
		for in := ib.PortNum(1); in <= 4; in++ {
			if got := r.slvl(sw, 0, mad.SLtoVLModifier(in, 3)); got[7] != 7 || got[8] != 0 {
				t.Errorf("from %d: %v", in, got)
			}
		}
		return n
	}
	if a, b := count(true), count(false); a != 1 || b != 4*5 {
		t.Errorf("%d and %d writes, want 1 and 20", a, b)
	}
}

// A mapping that was not taken is written again.
func TestQoSAfterTrouble(t *testing.T) {
	w := build(t, spec(t, "star:4"))
	r := newRig(t, w, Config{QoS: qosOf(t, "qos TRUE\nqos_sl2vl 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1\n", "")})
	lost := 0
	r.lose = func(node int, v mad.View) (bool, bool) {
		if v.Method() == mad.MethodSet && (v.AttrID() == mad.AttrSLtoVL || v.AttrID() == mad.AttrVLArb) && lost < 3 {
			lost++
			return true, false
		}
		return false, false
	}
	r.settle()
	r.pass(60 * ib.Second)
	sw := w.g.Switches()[0].Index
	for p := ib.PortNum(1); p <= 4; p++ {
		if got := r.slvl(sw, 0, mad.SLtoVLModifier(2, p)); got[0] != 1 {
			t.Errorf("to port %d: %v", p, got)
		}
		if got := r.slvl(int(p)-1, 1, 0); got[0] != 1 {
			t.Errorf("h%d: %v", p, got)
		}
	}
}

// Routing that needs lanes has its own, and the levels of paths.
func TestQoSBesideRouting(t *testing.T) {
	w := build(t, spec(t, "torus:4x4"))
	pol := "qos-ulps\n default: 3\nend-qos-ulps\n"
	r := newRig(t, w, Config{Engines: "dfsssp", QoS: qosOf(t,
		"qos TRUE\nqos_vlarb_low 0:8,1:8,2:8,3:8,4:8,5:8,6:8,7:8\n", pol)})
	r.settle()
	if r.m.Last().VLs < 2 {
		t.Fatalf("%s uses %d lanes", r.m.Last().Engine, r.m.Last().VLs)
	}
	if !r.logged("policy", "dfsssp routing needs service levels") {
		t.Errorf("not said: %q", r.log)
	}
	if got := r.slvl(1, 1, 0); got[1] != 1 || got[2] != 2 {
		t.Errorf("mapping: %v", got)
	}
	if got := r.arb(1, 1, 0, mad.VLArbLow0); got[1] != (mad.VLArbEntry{VL: 1, Weight: 8}) {
		t.Errorf("arbitration: %v", got[:8])
	}
	sub := r.m.Subnet()
	for _, dst := range []int{3, 7, 12} {
		rec := r.path(1, dst, nil)
		if len(rec) != 1 {
			t.Fatalf("%d paths", len(rec))
		}
		ref, _ := sub.ByPortGUID(r.guid(1))
		if want := sub.Levels.Level(ref, rec[0].DLID); rec[0].SL != want {
			t.Errorf("path to h%d has SL %d, routing wants %d", dst+1, rec[0].SL, want)
		}
	}
}

// path asks the administrator for the paths from one host to another.
func (r *rig) path(from, to int, with func(q *mad.PathRecord) uint64) (list []mad.PathRecord) {
	r.t.Helper()
	prefix := r.m.Subnet().Prefix
	q := mad.PathRecord{SGID: ib.MakeGID(prefix, r.guid(from)), DGID: ib.MakeGID(prefix, r.guid(to))}
	comps := component("SGID") | component("DGID")
	if with != nil {
		comps |= with(&q)
	}
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion, Method: mad.MethodGetTable,
		TransactionID: 5, AttributeID: mad.AttrPathRecord}
	b := h.Append(nil)
	b = (&mad.RMPP{}).Append(b)
	b = (&mad.SAHeader{ComponentMask: comps}).Append(b)
	b = q.Append(b)
	b = append(b, make([]byte, mad.Size-len(b))...)
	resp, ok := r.m.Admin().Handle(r.now, mad.Envelope{LID: r.w.hcas[from].Port(1).LID, QPN: ib.QPNGSI,
		QKey: ib.QKeyGSI}, b)
	if !ok {
		r.t.Fatal("no answer")
	}
	if s := mad.View(append(slices.Clone(resp), make([]byte, mad.Size)...)).Status(); s != mad.StatusOK {
		return nil
	}
	stride := mad.PathRecordTable.Stride()
	for data := resp[mad.SADataOff:]; len(data) >= stride; data = data[stride:] {
		var rec mad.PathRecord
		if _, err := rec.Parse(data); err != nil {
			r.t.Fatal(err)
		}
		list = append(list, rec)
	}
	return list
}

func component(name string) uint64 {
	m := mad.PathRecordTable.Component(name)
	if m == 0 {
		panic("no component " + name)
	}
	return m
}

func TestQoSPaths(t *testing.T) {
	w := build(t, spec(t, "star:5"))
	g := func(h int) ib.GUID { return w.g.Nodes[h].PortGUID(1) }
	pol := fmt.Sprintf(`port-groups
 port-group
  name: Storage
  port-guid: %v
 end-port-group
 port-group
  name: Red
  partition: red
 end-port-group
end-port-groups
qos-levels
 qos-level
  name: DEFAULT
  sl: 0
 end-qos-level
 qos-level
  name: Bulk
  sl: 4
  mtu-limit: 3
  rate-limit: 3
  packet-life: 12
 end-qos-level
 qos-level
  name: RedOnly
  sl: 5
  pkey: 0x1001
 end-qos-level
 qos-level
  name: Fast
  sl: 6
 end-qos-level
end-qos-levels
qos-match-rules
 qos-match-rule
  service-id: 0x10000-0x1ffff
  qos-level-name: Fast
 end-qos-match-rule
 qos-match-rule
  qos-class: 7-9
  qos-level-name: Fast
 end-qos-match-rule
 qos-match-rule
  destination: Storage
  qos-level-name: Bulk
 end-qos-match-rule
 qos-match-rule
  source: Red
  qos-level-name: RedOnly
 end-qos-match-rule
end-qos-match-rules
`, g(4))
	text := fmt.Sprintf("Default=0x7fff : ALL=full ; red=0x1001,sl=2 : %v=full, %v=full ; blue=0x1002,sl=3 "+
		": ALL=full ;", g(1), g(2))
	r := newRig(t, w, Config{Partitions: parts(t, text), QoS: qosOf(t, "qos TRUE\n", pol)})
	r.settle()
	one := func(from, to int, with func(*mad.PathRecord) uint64) mad.PathRecord {
		t.Helper()
		list := r.path(from, to, with)
		if len(list) != 1 {
			t.Fatalf("h%d to h%d: %d paths", from+1, to+1, len(list))
		}
		return list[0]
	}
	if p := one(0, 3, nil); p.SL != 0 || p.PKey != ib.PKeyDefault {
		t.Errorf("default: %+v", p)
	}
	if p := one(0, 4, nil); p.SL != 4 || p.MTU != ib.MTU1024 || p.Rate != 3 || p.PacketLifeTime != 12 {
		t.Errorf("to storage: %+v", p)
	}
	if p := one(1, 2, nil); p.SL != 5 || p.PKey != 0x9001 {
		t.Errorf("red to red: %+v", p)
	}
	if l := r.path(1, 3, nil); len(l) != 0 {
		t.Errorf("from red to one that is not: %+v", l)
	}
	if l := r.path(1, 2, func(q *mad.PathRecord) uint64 { q.PKey = 0xffff; return component("P_Key") }); len(l) != 0 {
		t.Errorf("red in a partition that its level does not allow: %+v", l)
	}
	if p := one(0,
		3, func(q *mad.PathRecord) uint64 { q.ServiceID = 0x10005; return component("ServiceID") }); p.SL != 6 {
		t.Errorf("by service: %+v", p)
	}
	if p := one(0, 3, func(q *mad.PathRecord) uint64 { q.QoSClass = 8; return component("QoSClass") }); p.SL != 6 {
		t.Errorf("by class: %+v", p)
	}
	// A policy that cannot be is refused, and the old one stays.
	bad := &policy.QoSPolicy{Rules: []policy.QoSRule{{Level: "Nowhere"}}}
	if err := r.m.SetQoSPolicy(r.now, bad); err == nil {
		t.Error("a rule without its level is taken")
	}
	if p := one(0, 4, nil); p.SL != 4 {
		t.Errorf("after the refusal: %+v", p)
	}
	// Without a policy the partition's level is used.
	if err := r.m.SetQoSPolicy(r.now, nil); err != nil {
		t.Fatal(err)
	}
	if p := one(0, 3, func(q *mad.PathRecord) uint64 { q.PKey = 0x9002; return component("P_Key") }); p.SL != 3 {
		t.Errorf("the partition's level: %+v", p)
	}
}

// BenchmarkLanes is what QoS tables cost to work out among 11,664 hosts: when none is known, and when all are as they
// should be.
func BenchmarkLanes(b *testing.B) {
	g := spec(b, benchsize.Tree("fat-tree:radix=36,levels=3"))
	w := build(b, g)
	r := newRig(b, w, Config{QoS: qosOf(b, "qos TRUE\n", "")})
	r.settle()
	m, sub := r.m, r.m.Subnet()
	plan := func(known bool) int {
		s := &sweep{m: m, nodes: slices.Clone(sub.Nodes), own: make([]bool, len(sub.Nodes)), self: sub.Self,
			cold:     make([]bool, len(sub.Nodes)),
			switches: sub.Switches, tables: m.tables}
		if !known {
			for i := range s.nodes {
				n := s.edit(int32(i))
				for p := range n.Ports {
					n.Ports[p].Tables = nil
				}
			}
		}
		s.beginLanes()
		return len(s.lanes.slvl) + len(s.lanes.arb)
	}
	for _, known := range []bool{false, true} {
		b.Run(fmt.Sprint("known=", known), func(b *testing.B) {
			for b.Loop() {
				if n := plan(known); known != (n == 0) {
					b.Fatalf("%d writes", n)
				}
			}
		})
	}
}
