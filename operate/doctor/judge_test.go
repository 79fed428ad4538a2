package doctor_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/operate/doctor"
	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/subnet/survey"
)

// patient is a fabric that was looked at twice, a second apart, and may be changed.
type patient struct {
	t             *testing.T
	before, after *survey.Survey
}

var healthy doctor.Surveys

// newPatient copies two looks at a healthy fabric.
func newPatient(t *testing.T) *patient {
	t.Helper()
	if healthy.Before == nil {
		r := newRig(t, topo.DefaultSpec, sm.Config{})
		s, err := r.OpenMgmt(topo.PortRef{Node: r.g.Hosts()[0].Index, Port: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		healthy, err = doctor.Run(context.Background(), s, doctor.RunOptions{Interval: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
	}
	p := &patient{t: t, before: clone(healthy.Before), after: clone(healthy.After)}
	p.after.Nodes = p.before.Nodes
	for i := range p.after.Readings {
		for k := range p.after.Readings[i] {
			p.after.Readings[i][k].Counters = p.before.Readings[i][k].Counters
			p.after.Readings[i][k].At = p.before.Readings[i][k].At + ib.Second
		}
	}
	return p
}

func clone(s *survey.Survey) *survey.Survey {
	c := *s
	c.Nodes = nil
	for _, n := range s.Nodes {
		m := *n
		m.Ports = slices.Clone(n.Ports)
		m.LFT = slices.Clone(n.LFT)
		c.Nodes = append(c.Nodes, &m)
	}
	c.Readings = nil
	for _, r := range s.Readings {
		c.Readings = append(c.Readings, slices.Clone(r))
	}
	c.Gaps = slices.Clone(s.Gaps)
	return &c
}

func (p *patient) ref(name string) topo.PortRef {
	p.t.Helper()
	for i, n := range p.before.Nodes {
		for k := range n.Ports {
			if r := (topo.PortRef{Node: i, Port: ib.PortNum(k)}); p.before.PortName(r) == name {
				return r
			}
		}
	}
	p.t.Fatalf("no port %s", name)
	return topo.PortRef{}
}

func (p *patient) port(name string) *survey.Port { return p.before.Port(p.ref(name)) }
func (p *patient) node(name string) *survey.Node { return p.before.Nodes[p.ref(name+"[1]").Node] }

// counts lets a port count within the second.
func (p *patient) counts(name string, c ib.Counter, n uint64) {
	r := p.ref(name)
	p.after.Readings[r.Node][r.Port].Counters[c] += n
}

// counted lets a port have counted before.
func (p *patient) counted(name string, c ib.Counter, n uint64) {
	r := p.ref(name)
	p.before.Readings[r.Node][r.Port].Counters[c] += n
	p.after.Readings[r.Node][r.Port].Counters[c] += n
}

// aged are the limits for counters that have counted for a while.
func aged(d time.Duration) *health.Thresholds {
	t := health.Default()
	t.Age = d
	return &t
}

// TestJudge: each kind of finding, from a healthy fabric with one thing changed; and nothing else is found.
func TestJudge(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name    string
		hurt    func(p *patient)
		opts    doctor.Options
		kind    string
		check   doctor.Check
		sev     doctor.Severity
		objects []string
		says    []string
	}{
		{name: "bad cable", kind: "bad-cable", check: doctor.Cables, sev: doctor.Fail,
			objects: []string{"h3[1]", "leaf1[3]"},
			hurt: func(p *patient) {
				p.counts("leaf1[3]", ib.SymbolErrorCounter, 41)
				p.counts("leaf1[3]", ib.PortRcvErrors, 40)
				p.counts("h3[1]", ib.PortXmitData, gib/4)
			},
			says: []string{"41 symbol errors in 1 s at leaf1[3]", "bit error rate about 5e-09",
				"signals from h3[1] arrive damaged at leaf1[3]"}},
		{name: "a cable that was bad", kind: "bad-cable", check: doctor.Cables, sev: doctor.Warn,
			objects: []string{"leaf1[5]", "spine1[1]"},
			hurt:    func(p *patient) { p.counted("leaf1[5]", ib.SymbolErrorCounter, 5000) },
			says:    []string{"since the counters were reset"}},
		{name: "flapping", kind: "flapping-cable", check: doctor.Cables, sev: doctor.Fail,
			objects: []string{"h1[1]", "leaf1[1]"},
			hurt:    func(p *patient) { p.counts("h1[1]", ib.LinkDownedCounter, 3) },
			says:    []string{"3 times down in 1 s"}},
		{name: "discards", kind: "counter", check: doctor.Errors, sev: doctor.Fail,
			objects: []string{"leaf2[4]", "h8[1]"},
			hurt: func(p *patient) {
				p.counts("leaf2[4]", ib.PortXmitDiscards, 500)
				p.counts("leaf2[4]", ib.PortXmitPkts, 9500)
			}, says: []string{"500 discarded packets", "PortXmitDiscards", "5 % of 10000 packets"}},
		{name: "refused", kind: "counter", check: doctor.Errors, sev: doctor.Fail,
			objects: []string{"leaf2[4]", "h8[1]"},
			hurt: func(p *patient) {
				p.counts("leaf2[4]", ib.PortRcvConstraintErrors, 1024)
				p.counts("leaf2[4]", ib.PortRcvPkts, 183)
				p.counts("leaf2[4]", ib.PortXmitPkts, 1e6)
			}, says: []string{"1024 packets refused on the way in", "85 % of 1207 packets"}},
		{name: "flapped before the interval", kind: "flapping-cable", check: doctor.Cables, sev: doctor.Warn,
			objects: []string{"h1[1]", "leaf1[1]"},
			hurt:    func(p *patient) { p.counted("h1[1]", ib.LinkDownedCounter, 3) },
			opts:    doctor.Options{Thresholds: aged(20 * time.Minute)}, says: []string{"3 times down in 20 min"}},
		{name: "duplicate name", kind: "duplicate-name", check: doctor.GUIDs, sev: doctor.Warn,
			objects: []string{"h5", "h6"},
			hurt:    func(p *patient) { p.node("h5").Desc = p.node("h6").Desc },
			says:    []string{"h5 behind leaf2[1]", "h6 behind leaf2[2]"}},
		{name: "taken over", kind: "taken-over", check: doctor.Managers, sev: doctor.Warn,
			objects: []string{"h1[1]", "h7[1]"}, hurt: func(*patient) {},
			opts: doctor.Options{Manager: 0x0250f11b01000071}, says: []string{"from h1[1]", "own manager at h7[1]"}},
		{name: "remote damage", kind: "counter", check: doctor.Errors, sev: doctor.Fail, objects: []string{"h8[1]"},
			hurt: func(p *patient) { p.counts("h8[1]", ib.PortRcvRemotePhysicalErrors, 500) },
			says: []string{"marked as damaged earlier"}},
		{name: "VL15", kind: "counter", check: doctor.Errors, sev: doctor.Warn, objects: []string{"h8[1]"},
			hurt: func(p *patient) { p.counts("h8[1]", ib.VL15Dropped, 50) }, says: []string{"VL15Dropped"}},
		{name: "overruns", kind: "counter", check: doctor.Errors, sev: doctor.Fail, objects: []string{"h8[1]"},
			hurt: func(p *patient) { p.counts("h8[1]", ib.ExcessiveBufferOverrunErrors, 50) },
			says: []string{"ExcessiveBufferOverrunErrors"}},
		{name: "saturated", kind: "saturated", check: doctor.Errors, sev: doctor.Warn, objects: []string{"h8[1]"},
			hurt: func(p *patient) {
				r := p.ref("h8[1]")
				for _, s := range []*survey.Survey{p.before, p.after} {
					s.Readings[r.Node][r.Port].Wide = false
					s.Readings[r.Node][r.Port].Counters[ib.VL15Dropped] = 0xFFFF
				}
			}, says: []string{"65535"}},
		{name: "a slow receiver", kind: "hot-spot", check: doctor.Congestion, sev: doctor.Warn,
			objects: []string{"leaf3[1]", "h9[1]"},
			hurt: func(p *patient) {
				p.counts("leaf3[1]", ib.PortXmitWait, 10e9)
				p.counts("leaf3[1]", ib.PortXmitData, 3e9)
			}, says: []string{"waited for credits 80 % of 1 s", "sent at 24 % of its rate"}},
		{name: "asymmetric", kind: "asymmetric-link", check: doctor.Links, sev: doctor.Fail,
			objects: []string{"leaf1[5]", "spine1[1]"},
			hurt:    func(p *patient) { p.port("leaf1[5]").Info.NeighborMTU = ib.MTU2048 },
			says:    []string{"MTU 2048 and 4096"}},
		{name: "no LID", kind: "no-lid", check: doctor.LIDs, sev: doctor.Fail, objects: []string{"h5[1]"},
			hurt: func(p *patient) { p.port("h5[1]").Info.LID = 0 }, says: []string{"h5[1] behind leaf2[1] has LID 0"}},
		{name: "duplicate port GUID", kind: "duplicate-port-guid", check: doctor.GUIDs, sev: doctor.Fail,
			objects: []string{"h5[1]", "h6[1]"},
			hurt:    func(p *patient) { p.port("h5[1]").GUID = p.port("h6[1]").GUID },
			says:    []string{"behind leaf2[1]"}},
		{name: "duplicate node GUID", kind: "duplicate-node-guid", check: doctor.GUIDs, sev: doctor.Fail,
			objects: []string{"h5", "h6"},
			hurt:    func(p *patient) { p.node("h5").Info.NodeGUID = p.node("h6").Info.NodeGUID },
			says:    []string{"h5 behind leaf2[1]"}},
		{name: "revision", kind: "revision", check: doctor.Versions, sev: doctor.Warn, objects: []string{"leaf4"},
			hurt: func(p *patient) { p.node("leaf4").Info.Revision = 0xA1 }, says: []string{"revision 0xa1"}},
		{name: "silent node", kind: "silent-node", check: doctor.Answers, sev: doctor.Fail,
			objects: []string{"leaf8[2]"},
			hurt:    func(p *patient) { p.port("leaf8[2]").Silent = true }},
		{name: "half an answer", kind: "no-answer", check: doctor.Answers, sev: doctor.Warn, objects: []string{"leaf8"},
			hurt: func(p *patient) {
				p.after.Gaps = append(p.after.Gaps, survey.Gap{At: topo.PortRef{Node: p.ref("leaf8[1]").Node},
					Class: mad.ClassSMDirect, Attr: mad.AttrLFT})
			}, says: []string{"LinearForwardingTable"}},
		{name: "silent manager", kind: "silent-manager", check: doctor.Managers, sev: doctor.Warn,
			objects: []string{"h2[1]"},
			hurt:    func(p *patient) { p.port("h2[1]").Info.CapabilityMask |= mad.CapIsSM }},
		{name: "wrong master", kind: "wrong-master", check: doctor.Managers, sev: doctor.Warn,
			objects: []string{"h1[1]", "h2[1]"},
			hurt: func(p *patient) {
				x := p.port("h2[1]")
				x.Info.CapabilityMask |= mad.CapIsSM
				x.Manager = &mad.SMInfo{GUID: x.GUID, SMState: mad.SMStandby, Priority: 9}
			}, says: []string{"priority 9"}},
		{name: "half enforced", kind: "half-enforced", check: doctor.Partitions, sev: doctor.Warn,
			objects: []string{"leaf1[1]"},
			hurt: func(p *patient) {
				for _, n := range p.before.Nodes {
					for k := 1; k < len(n.Ports) && n.IsSwitch(); k++ {
						x := &n.Ports[k]
						if x.Cabled() && !p.before.Nodes[x.Peer].IsSwitch() {
							x.Info.PartitionEnforcementInbound, x.Info.PartitionEnforcementOutbound = true, true
						}
					}
				}
				p.port("leaf1[1]").Info.PartitionEnforcementOutbound = false
			}},
		{name: "starved lane", kind: "starved-lane", check: doctor.Lanes, sev: doctor.Fail,
			objects: []string{"leaf1[5]"},
			hurt: func(p *patient) {
				x := p.port("leaf1[5]")
				x.SLtoVL = slices.Clone(x.SLtoVL)
				x.SLtoVL[1][3] = 2
				x.VLArb = [2][]mad.VLArbEntry{{{VL: 0, Weight: 4}, {VL: 2, Weight: 0}}, nil}
				for i := range x.SLtoVL {
					for sl := range x.SLtoVL[i] {
						if i != 1 || sl != 3 {
							x.SLtoVL[i][sl] = 0
						}
					}
				}
			}, says: []string{"service level 3", "VL 2"}},
		{name: "library", kind: "library-version", check: doctor.Versions, sev: doctor.Warn, objects: []string{"h7"},
			hurt: func(*patient) {},
			opts: doctor.Options{Version: "1.2", Programs: []doctor.ProgramFacts{{Host: "h6", PID: 5, Name: "mpirun",
				Version: "1.2"}, {Host: "h7", PID: 42, Name: "ib_send_lat", Version: "1.1"}}},
			says: []string{"ib_send_lat (pid 42) on h7", "1.1"}},
		{name: "by IP", kind: "by-ip", check: doctor.Traffic, sev: doctor.Warn, objects: []string{"h4"},
			hurt: func(*patient) {},
			opts: doctor.Options{Hosts: []doctor.HostTraffic{{Host: "h3", IPBytes: 3 * gib, NativeBytes: 300 * gib},
				{Host: "h4", IPBytes: 3e9, NativeBytes: 1e9}, {Host: "h5", IPBytes: 900}}},
			says: []string{"3 GB by IP", "1 GB native", "75 % by IP"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPatient(t)
			c.hurt(p)
			rep := doctor.Judge(p.before, p.after, c.opts)
			f := wantFinding(t, rep, c.kind, c.sev, c.objects[:1]...)
			for _, o := range c.objects {
				if !slices.Contains(f.Objects, o) {
					t.Errorf("%v: not %s", f.Objects, o)
				}
			}
			for _, s := range c.says {
				if !strings.Contains(f.Measured, s) {
					t.Errorf("%q does not say %q", f.Measured, s)
				}
			}
			if f.Check != c.check {
				t.Errorf("found by %v", f.Check)
			}
			for _, s := range rep.Sections {
				for _, other := range s.Findings {
					if other.Severity >= doctor.Warn && other.Kind != c.kind {
						t.Errorf("besides: %v %s %s", s.Check, other.Kind, other.Measured)
					}
				}
			}
		})
	}
}

// TestCongestionRoot: what only passes on is told from where it begins.
func TestCongestionRoot(t *testing.T) {
	p := newPatient(t)
	p.counts("leaf3[1]", ib.PortXmitWait, 10e9) // to h9
	p.counts("spine1[3]", ib.PortXmitWait, 6e9) // to leaf3
	rep := doctor.Judge(p.before, p.after, doctor.Options{})
	list := rep.Section(doctor.Congestion).Findings
	if len(list) != 2 || list[0].Kind != "hot-spot" || list[0].Objects[0] != "leaf3[1]" ||
		list[1].Kind != "congestion" || !strings.Contains(list[1].Next, "leaf3[1]") {
		t.Errorf("%+v", list)
	}
}

// TestRoutesOnce: what the tables are worth is worked out when they are read, and taken as it is when they are judged.
func TestRoutesOnce(t *testing.T) {
	p := newPatient(t)
	without := doctor.Judge(p.before, p.after, doctor.Options{})
	with := doctor.Judge(p.before, p.after, doctor.Options{Routes: healthy.Routes})
	if !reflect.DeepEqual(with, without) {
		t.Errorf("%s\nand without it\n%s", all(with), all(without))
	}
	lost := *healthy.Routes
	lost.Apart = 7
	wantFinding(t, doctor.Judge(p.before, p.after, doctor.Options{Routes: &lost}), "parts", doctor.Fail)
}

// TestNoInterval: without a second look the counters since their reset are judged, and congestion is not.
func TestNoInterval(t *testing.T) {
	p := newPatient(t)
	p.counted("leaf1[5]", ib.SymbolErrorCounter, 5000)
	rep := doctor.Judge(p.before, nil, doctor.Options{})
	wantFinding(t, rep, "bad-cable", doctor.Fail, "leaf1[5]", "spine1[1]")
	if s := rep.Section(doctor.Congestion); s.Severity != doctor.Skipped || s.Why == "" || rep.IntervalSec != 0 {
		t.Errorf("%+v", s)
	}
	rep = doctor.Judge(p.before, nil, doctor.Options{CountersOnly: true})
	if len(rep.Sections) != 4 || rep.Section(doctor.Routing) != nil {
		t.Errorf("%d sections", len(rep.Sections))
	}
}

// TestNoIntervalFlaps: without a second look a link that was lost is judged by how often in an hour, where it is known
// for how long counters have counted, and by how often in all where it is not.
func TestNoIntervalFlaps(t *testing.T) {
	for _, c := range []struct {
		name  string
		count uint64
		age   time.Duration
		sev   doctor.Severity
		says  string
		limit string
	}{
		{"once is no rate", 1, time.Minute, doctor.OK, "", ""},
		{"often in an hour", 3, 20 * time.Minute, doctor.Fail, "3 times down in 20 min", "at most 3 an hour"},
		{"seldom", 3, 24 * time.Hour, doctor.OK, "", ""},
		{"nobody knows since when", 3, 0, doctor.OK, "", ""},
		{"more in all than one should, and in an hour", 12, 20 * time.Minute, doctor.Fail, "12 times down in 20 min",
			"at most 3 an hour"},
		{"more in all than one should, in a month", 12, 30 * 24 * time.Hour, doctor.Warn, "12 times down",
			"at most 10 since the last reset"},
		{"more in all than one should, since whenever", 12, 0, doctor.Warn, "12 times down",
			"at most 10 since the last reset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPatient(t)
			p.counted("h1[1]", ib.LinkDownedCounter, c.count)
			rep := doctor.Judge(p.before, nil, doctor.Options{Thresholds: aged(c.age)})
			if c.sev == doctor.OK {
				if !rep.Healthy() {
					t.Errorf("%s", all(rep))
				}
				return
			}
			f := wantFinding(t, rep, "flapping-cable", c.sev, "h1[1]", "leaf1[1]")
			if !strings.Contains(f.Measured, c.says+" ") || !strings.Contains(f.Threshold, c.limit) {
				t.Errorf("%q, %q", f.Measured, f.Threshold)
			}
		})
	}
}

// TestReset: a counter that was cleared between the looks counts from there.
func TestReset(t *testing.T) {
	p := newPatient(t)
	r := p.ref("leaf1[5]")
	p.before.Readings[r.Node][r.Port].Counters[ib.SymbolErrorCounter] = 1 << 40
	p.after.Readings[r.Node][r.Port].Counters[ib.SymbolErrorCounter] = 0
	if rep := doctor.Judge(p.before, p.after, doctor.Options{}); !rep.Healthy() {
		t.Errorf("%s", all(rep))
	}
}

// TestThresholds: an operator's own limits are used.
func TestThresholds(t *testing.T) {
	p := newPatient(t)
	p.counts("leaf1[5]", ib.PortXmitDiscards, 500)
	limits := health.Default()
	limits.Counter[ib.PortXmitDiscards].WatchPerHour, limits.Counter[ib.PortXmitDiscards].BadPerHour = 1e9, 1e9
	limits.Counter[ib.PortXmitDiscards].Total = 1e9
	if rep := doctor.Judge(p.before, p.after, doctor.Options{Thresholds: &limits}); !rep.Healthy() {
		t.Errorf("%s", all(rep))
	}
}

// TestReportJSON: what scripts read comes back as it was.
func TestReportJSON(t *testing.T) {
	p := newPatient(t)
	p.counts("leaf1[3]", ib.SymbolErrorCounter, 41)
	rep := doctor.Judge(p.before, p.after, doctor.Options{})
	text, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"check":"cables"`, `"severity":"fail"`, `"kind":"bad-cable"`,
		`"objects":["leaf1[3]","h3[1]"]`, `"direction":"b-to-a"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var back doctor.Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&back, rep) {
		t.Error("the report does not come back from JSON as it was")
	}
	for _, bad := range []string{`{"severity":"awful"}`, `{"sections":[{"check":"weather"}]}`} {
		if json.Unmarshal([]byte(bad), &back) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestMany: a report holds no more findings than it should, and counts the rest.
func TestMany(t *testing.T) {
	p := newPatient(t)
	n := p.node("leaf1")
	for range doctor.FindingsMax + 20 {
		n.Ports = append(n.Ports, survey.Port{Peer: survey.None, Silent: true})
	}
	rep := doctor.Judge(p.before, p.after, doctor.Options{})
	s := rep.Section(doctor.Answers)
	if len(s.Findings) != doctor.FindingsMax || s.More != 20 || rep.Count(doctor.Fail) != doctor.FindingsMax+20 {
		t.Errorf("%d findings, %d more, %d failures", len(s.Findings), s.More, rep.Count(doctor.Fail))
	}
}
