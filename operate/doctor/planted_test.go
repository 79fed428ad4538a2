package doctor_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/node/madrpc"
	"softib/operate/doctor"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// set writes an attribute of a node, as a manager would: change gets what it holds.
func (r *rig) set(node int, attr mad.AttrID, mod uint32, change func(data []byte)) {
	r.t.Helper()
	var resp [mad.Size]byte
	for _, m := range []mad.Method{mad.MethodGet, mad.MethodSet} {
		var req [mad.Size]byte
		data := resp[mad.SMPDataOff:][:mad.SMPDataLen]
		if m == mad.MethodSet {
			change(data)
		}
		if _, err := (&mad.SMP{Method: m, Attr: attr, Modifier: mod, TID: 1, Data: data}).Append(req[:0]); err != nil {
			r.t.Fatal(err)
		}
		if !r.SMP(node, 0, &req, &resp) || mad.View(resp[:]).Status() != mad.StatusOK {
			r.t.Fatalf("%v of %s: %v", attr, r.g.Nodes[node].Name, mad.View(resp[:]).Status())
		}
	}
}

// setPort changes the PortInfo of a port.
func (r *rig) setPort(at topo.PortRef, change func(*mad.PortInfo)) {
	r.t.Helper()
	r.set(at.Node, mad.AttrPortInfo, uint32(at.Port), func(data []byte) {
		var pi mad.PortInfo
		if _, err := pi.Parse(data); err != nil {
			r.t.Fatal(err)
		}
		pi.PortState, pi.PortPhysicalState, pi.LinkDownDefaultState = 0, 0, 0 // as they are
		change(&pi)
		pi.Append(data[:0])
	})
}

// lid is a host's address.
func (r *rig) lid(name string) ib.LID {
	pi, _ := r.PortInfo(topo.PortRef{Node: r.g.ByName(name).Index, Port: 1})
	return pi.LID
}

// cable names both ends of the cable at a port.
func (r *rig) cable(name string) []string {
	at := r.port(name)
	p := r.g.Port(at)
	return []string{name, r.g.PortName(topo.PortRef{Node: p.Peer, Port: p.PeerPort})}
}

// uplink is a port of a switch that leads to another.
func (r *rig) uplink(name string) string {
	r.t.Helper()
	n := r.g.ByName(name)
	for p := 1; p < len(n.Ports); p++ {
		if n.Ports[p].Connected() && r.g.Nodes[n.Ports[p].Peer].IsSwitch() {
			return r.g.PortName(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
		}
	}
	r.t.Fatalf("%s has no uplink", name)
	return ""
}

// wantFinding wants a finding of a kind about all of some objects.
func wantFinding(t *testing.T, rep *doctor.Report, kind string, severity doctor.Severity,
	objects ...string) *doctor.Finding {
	t.Helper()
	for i := range rep.Sections {
		for k := range rep.Sections[i].Findings {
			f := &rep.Sections[i].Findings[k]
			ok := f.Kind == kind && f.Severity == severity
			for _, o := range objects {
				ok = ok && slices.Contains(f.Objects, o)
			}
			if ok {
				if f.Measured == "" || f.Next == "" || f.Threshold == "" {
					t.Errorf("finding without all of its words: %+v", f)
				}
				for _, o := range objects {
					if !strings.Contains(f.Measured, o) {
						t.Errorf("%q does not name %s", f.Measured, o)
					}
				}
				if rep.Sections[i].Severity < severity || rep.Severity < severity {
					t.Errorf("section %v, report %v", rep.Sections[i].Severity, rep.Severity)
				}
				return f
			}
		}
	}
	t.Fatalf("no %v finding %q about %v:\n%s", severity, kind, objects, all(rep))
	return nil
}

const (
	quick = 30 * time.Millisecond
	// unhurried is for looks at what managers say, three times: they answer when they have a turn, which on a busy
	// machine may take seconds.
	unhurried = 5 * ib.Second
)

func (r *rig) look(jo doctor.Options) *doctor.Report {
	r.t.Helper()
	return r.examine(1, doctor.RunOptions{Interval: quick}, jo)
}

// lookAll is look where everybody answers sooner or later.
func (r *rig) lookAll(jo doctor.Options) *doctor.Report {
	r.t.Helper()
	return r.examine(1, doctor.RunOptions{Interval: quick, Timeout: unhurried}, jo)
}

// TestLinkDown: a cable that is pulled is named by both ends, with a plan; without one, the port says that it had a
// link.
func TestLinkDown(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	up := r.uplink("leaf3")
	for _, name := range []string{up, "h9[1]"} {
		if err := r.SetLink(r.port(name), false); err != nil {
			t.Fatal(err)
		}
	}
	rep := r.look(doctor.Options{Plan: r.g})
	wantFinding(t, rep, "link-down", doctor.Fail, r.cable(up)...)
	f := wantFinding(t, rep, "link-down", doctor.Fail, r.cable("h9[1]")...)
	if !strings.Contains(f.Measured, "h9 is not found") {
		t.Error(f.Measured)
	}
	rep = r.look(doctor.Options{})
	wantFinding(t, rep, "link-lost", doctor.Warn, r.cable(up)[0])
	wantFinding(t, rep, "link-lost", doctor.Warn, r.cable(up)[1])
	wantFinding(t, rep, "link-lost", doctor.Warn, r.cable("h9[1]")[1])
}

// TestNotActive: links that no manager has brought up.
func TestNotActive(t *testing.T) {
	r := newRig(t, "star:4", sm.Config{})
	r.stop()
	if err := r.SetLink(r.port("h4[1]"), false); err != nil {
		t.Fatal(err)
	}
	if err := r.SetLink(r.port("h4[1]"), true); err != nil {
		t.Fatal(err)
	}
	rep := r.look(doctor.Options{Plan: r.g})
	wantFinding(t, rep, "not-active", doctor.Fail, r.cable("h4[1]")...)
	f := wantFinding(t, rep, "no-master", doctor.Fail)
	if !strings.Contains(f.Next, "start a subnet manager") {
		t.Error(f.Next)
	}
}

// TestSlowLink: a link that trains at less than both ends can is found with its reason.
func TestSlowLink(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	up := r.uplink("leaf2")
	r.setPort(r.port(up), func(pi *mad.PortInfo) { pi.LinkWidthEnabled = ib.Width1x })
	for _, on := range []bool{false, true} {
		if err := r.SetLink(r.port(up), on); err != nil {
			t.Fatal(err)
		}
	}
	f := wantFinding(t, r.look(doctor.Options{Plan: r.g}), "slow-link", doctor.Fail, r.cable(up)...)
	if !strings.Contains(f.Measured, "1x NDR") || !strings.Contains(f.Measured, up+" has only width 1x enabled") ||
		f.Threshold != "4x NDR" {
		t.Errorf("%s; %s", f.Measured, f.Threshold)
	}
}

// TestDuplicateLID: two ports with one address, and one with none.
func TestDuplicateLID(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	r.stop()
	lid := r.lid("h20")
	r.setPort(r.port("h7[1]"), func(pi *mad.PortInfo) { pi.LID = lid })
	r.setPort(r.port("h8[1]"), func(pi *mad.PortInfo) { pi.LMC = 3 })
	rep := r.look(doctor.Options{Plan: r.g})
	wantFinding(t, rep, "duplicate-lid", doctor.Fail, "h7[1]", "h20[1]")
	// 8 addresses from h8's on are its neighbours' too.
	wantFinding(t, rep, "wrong-lmc", doctor.Warn, "h8[1]")
}

// TestManagers: a second master, a port that knows another manager, and one that should be master.
func TestManagers(t *testing.T) {
	// Above the pretender below, so that the manager, should it sweep and see it, stays master; and it does not sweep
	// by itself, which would mend h12.
	r := newRig(t, topo.DefaultSpec, sm.Config{Priority: 5, SweepInterval: -1})
	r.setPort(r.port("h12[1]"), func(pi *mad.PortInfo) { pi.MasterSMLID = 77 })
	rep := r.lookAll(doctor.Options{})
	wantFinding(t, rep, "wrong-sm-lid", doctor.Fail, "h12[1]")
	wantFinding(t, rep, "no-standby", doctor.Note, "h1[1]")

	_, stop := r.manage(4, sm.Config{})
	rep = r.lookAll(doctor.Options{})
	if find(rep, "no-standby") != nil || find(rep, "two-masters") != nil || find(rep, "wrong-master") != nil {
		t.Errorf("with a standby:\n%s", all(rep))
	}
	stop()

	pretender(t, r.Fabric, r.port("h30[1]"), mad.SMInfo{GUID: r.g.ByName("h30").PortGUID(1), SMState: mad.SMMaster,
		Priority: 3})
	rep = r.lookAll(doctor.Options{})
	f := wantFinding(t, rep, "two-masters", doctor.Fail, "h1[1]", "h30[1]")
	if !strings.Contains(f.Measured, "priority 3") {
		t.Error(f.Measured)
	}
}

// pretender answers SMInfo at a port as if a manager ran there.
func pretender(t *testing.T, f *live.Fabric, ref topo.PortRef, info mad.SMInfo) {
	t.Helper()
	s, err := f.OpenMgmt(ref)
	if err != nil {
		t.Fatal(err)
	}
	id, err := s.Register(madrpc.Registration{Class: mad.ClassSMDirect, ClassVersion: 1,
		Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodTrap)})
	if err != nil {
		t.Fatal(err)
	}
	s.SetIsSM(true)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			d, err := s.Recv(ctx)
			if err != nil {
				return
			}
			v := mad.View(d.Data)
			if d.Kind != madrpc.Unsolicited || v.AttrID() != mad.AttrSMInfo {
				continue
			}
			v.SetMethod(mad.MethodGetResp)
			v.SetReturning(true)
			info.Append(d.Data[mad.SMPDataOff:mad.SMPDataOff])
			_ = s.Send(id, madrpc.Message{Env: d.Env.Reply(), Data: d.Data})
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		s.Close()
	})
}

// TestUnreachable: an entry that is gone, one that leads to the wrong host, and a loop, each found by name.
func TestUnreachable(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	r.stop()
	entry := func(sw string, lid ib.LID, port ib.PortNum) {
		r.set(r.g.ByName(sw).Index, mad.AttrLFT, uint32(lid)/mad.LFTPerBlock,
			func(data []byte) { data[lid%mad.LFTPerBlock] = byte(port) })
	}
	h31, h32 := r.lid("h31"), r.lid("h32")
	entry("leaf1", h32, mad.LFTNone)
	rep := r.look(doctor.Options{})
	f := wantFinding(t, rep, "unreachable", doctor.Fail, "h1", "h32", "leaf1")
	if !strings.Contains(f.Measured, "no entry for LID") {
		t.Error(f.Measured)
	}
	// h31's packets go to h32's port at their own leaf.
	leaf := r.g.Nodes[r.g.ByName("h32").Ports[1].Peer]
	entry(leaf.Name, h31, r.g.ByName("h32").Ports[1].PeerPort)
	rep = r.look(doctor.Options{})
	f = wantFinding(t, rep, "unreachable", doctor.Fail, "h31", leaf.Name)
	if !strings.Contains(f.Measured, "which leads to h32[1]") {
		t.Error(f.Measured)
	}
	wantFinding(t, rep, "unreachable-count", doctor.Fail)
	// Two switches hand h30's packets to each other.
	up := r.port(r.uplink("leaf1"))
	spine := r.g.Port(up).Peer
	h30 := r.lid("h30")
	entry("leaf1", h30, up.Port)
	entry(r.g.Nodes[spine].Name, h30, r.g.Port(up).PeerPort)
	rep = r.look(doctor.Options{})
	f = wantFinding(t, rep, "forwarding-loop", doctor.Fail, "leaf1", r.g.Nodes[spine].Name)
	if !strings.Contains(f.Measured, "h30") {
		t.Error(f.Measured)
	}
}

// TestCreditLoop: shortest ways round a ring wait for each other unless lanes keep them apart, which they do until
// somebody maps all levels to one lane.
func TestCreditLoop(t *testing.T) {
	for _, engine := range []string{"minhop", "dfsssp"} {
		t.Run(engine, func(t *testing.T) {
			r := newRig(t, "torus:6", sm.Config{Engines: engine, SweepInterval: -1}) // a sweep would mend it
			if rep := r.lookAll(doctor.Options{Plan: r.g}); !rep.Healthy() {
				t.Fatalf("before:\n%s", all(rep))
			}
			for _, n := range r.g.Switches() {
				for in := range n.Ports {
					for out := 1; out < len(n.Ports); out++ {
						r.set(n.Index, mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), ib.PortNum(out)),
							func(data []byte) { clear(data[:8]) })
					}
				}
			}
			f := wantFinding(t, r.look(doctor.Options{Plan: r.g}), "credit-loop", doctor.Fail, "sw1", "sw2", "sw3",
				"sw4", "sw5", "sw6")
			if !strings.Contains(f.Measured, "on VL 0") {
				t.Error(f.Measured)
			}
		})
	}
}

// TestPartitions: tables that two ends of a link disagree about, members that nobody can talk to.
func TestPartitions(t *testing.T) {
	parts, _, err := policy.ParsePartitions("test",
		[]byte("Default=0x7fff, ipoib : ALL=limited, SELF=full, ALL_SWITCHES=full ;\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, topo.DefaultSpec, sm.Config{Partitions: parts, Enforce: sm.EnforceBoth})
	if rep := r.lookAll(doctor.Options{Plan: r.g}); !rep.Healthy() {
		t.Fatalf("before:\n%s", all(rep))
	}
	r.stop()
	keys := func(at topo.PortRef, mod uint32, change func(*mad.PKeyTable)) {
		r.set(at.Node, mad.AttrPKeyTable, mod, func(data []byte) {
			var b mad.PKeyTable
			b.Parse(data)
			change(&b)
			b.Append(data[:0])
		})
	}
	host := func(name string, change func(*mad.PKeyTable)) { keys(r.port(name), 0, change) }
	host("h3[1]", func(b *mad.PKeyTable) { b[3] = 0x8123 })
	host("h4[1]", func(b *mad.PKeyTable) { *b = mad.PKeyTable{0x0200} })
	host("h5[1]", func(b *mad.PKeyTable) { b[1] = 0x0200 })
	sw := r.port(r.cable("h6[1]")[1])
	keys(sw, mad.PKeyModifier(sw.Port, 0), func(b *mad.PKeyTable) { b[5] = 0x8345 })
	rep := r.look(doctor.Options{Plan: r.g})
	wantFinding(t, rep, "partition-cut", doctor.Fail, r.cable("h3[1]")...)
	wantFinding(t, rep, "lonely-partition", doctor.Warn, "h3[1]")
	wantFinding(t, rep, "no-default-key", doctor.Fail, "h4[1]")
	wantFinding(t, rep, "limited-only", doctor.Warn, "h4[1]", "h5[1]")
	wantFinding(t, rep, "partition-leak", doctor.Warn, r.cable("h6[1]")...)
}

// TestTenantsNotInForce: tables that contradict the tenants that were acknowledged, though they agree with each other.
func TestTenantsNotInForce(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{})
	guid := func(host string) ib.GUID { return r.g.ByName(host).PortGUID(1) }
	red := tenant.Tenant{Name: "red", Key: 0x1001, Members: []tenant.Member{{GUID: guid("h1"), Full: true},
		{GUID: guid("h2")}, {GUID: guid("h3"), Full: true}}}
	r.stop()
	for host, table := range map[string]mad.PKeyTable{"h1": {0x9001, 0x7fff}, "h2": {0x1001, 0x7fff},
		"h3": {0x9001, 0x7fff}} {
		r.set(r.port(host+"[1]").Node, mad.AttrPKeyTable, 0, func(data []byte) { table.Append(data[:0]) })
	}
	opts := doctor.Options{Plan: r.g, Tenants: []tenant.Tenant{red}}
	if rep := r.look(opts); slices.ContainsFunc(rep.Section(doctor.Partitions).Findings, func(f doctor.Finding) bool {
		return f.Kind == "tenant-not-in-force"
	}) {
		t.Fatalf("before:\n%s", all(rep))
	}
	for host, table := range map[string]mad.PKeyTable{"h1": {0xffff}, "h2": {0x9001, 0x7fff}, "h3": {0x9001, 0xffff},
		"h4": {0xffff, 0x9001}} {
		r.set(r.port(host+"[1]").Node, mad.AttrPKeyTable, 0, func(data []byte) { table.Append(data[:0]) })
	}
	rep := r.look(opts)
	for _, host := range []string{"h1[1]", "h2[1]", "h3[1]", "h4[1]"} {
		wantFinding(t, rep, "tenant-not-in-force", doctor.Fail, host)
	}
}

// TestBadCable: errors on one cable, made with nothing but the doctor's own datagrams, name that cable.
func TestBadCable(t *testing.T) {
	r := newRig(t, "line:12", sm.Config{})
	const up, ber = "sw2[1]", 3e-5
	if err := r.SetFault(r.port(up), live.Fault{BER: ber}); err != nil {
		t.Fatal(err)
	}
	// A look makes hundreds of datagrams, and all but those for the first two switches cross the cable, both ways: some
	// forty come to harm.
	rep := r.examine(1, doctor.RunOptions{Interval: time.Second}, doctor.Options{Plan: r.g})
	t.Log("\n" + all(rep))
	f := find(rep, "bad-cable")
	if f == nil {
		t.Fatal("no bad cable")
	}
	for _, o := range r.cable(up) {
		if !slices.Contains(f.Objects, o) {
			t.Errorf("%v: not %s", f.Objects, o)
		}
	}
}

var _ smrun.Transport = (*live.Session)(nil)
