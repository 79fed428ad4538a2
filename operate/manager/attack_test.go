package manager_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/node/madrpc"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// attacker is a host's root: it sends what it likes from the host's port.
type attacker struct {
	*testing.T
	x    *ground
	at   topo.PortRef
	s    *live.Session
	id   map[mad.Class]madrpc.AgentID
	sent uint64
	what map[uint64]string
}

func newAttacker(t *testing.T, x *ground, host int) *attacker {
	t.Helper()
	s, err := x.f.OpenMgmt(x.ref(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	a := &attacker{T: t, x: x, at: x.ref(host), s: s, id: map[mad.Class]madrpc.AgentID{}, what: map[uint64]string{}}
	versions := map[mad.Class]uint8{mad.ClassSMLID: 1, mad.ClassSMDirect: 1, mad.ClassSA: mad.SAVersion}
	for class, version := range versions {
		if a.id[class], err = s.Register(madrpc.Registration{Class: class, ClassVersion: version,
			RMPP: class == mad.ClassSA, Name: "attacker"}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// send sends a datagram. What is no request has no answer.
func (a *attacker) send(what string, env mad.Envelope, data []byte) {
	a.Helper()
	a.sent++
	mad.View(data).SetTID(a.sent)
	m := madrpc.Message{Env: env, Data: data, Cookie: a.sent}
	if !mad.View(data).Method().IsResponse() && mad.View(data).Method() != mad.MethodTrapRepress {
		a.what[a.sent], m.Timeout = what, 30*ib.Millisecond
	}
	if err := a.s.Send(a.id[mad.View(data).Class()], m); err != nil {
		a.Fatal(err)
	}
}

// answers waits until all that was sent is answered or given up, and calls f for each answer.
func (a *attacker) answers(f func(what string, v mad.View)) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	for left := len(a.what); left > 0; {
		d, err := a.s.Recv(ctx)
		if err != nil {
			a.Fatalf("%d of %d datagrams are neither answered nor given up: %v", left, len(a.what), err)
		}
		if _, ok := a.what[d.Cookie]; !ok || d.Kind == madrpc.Unsolicited {
			continue
		}
		left--
		if d.Kind == madrpc.Response {
			f(a.what[d.Cookie], mad.View(d.Data))
		}
	}
	clear(a.what)
}

// paths are directed routes from the attacker to every node.
func (a *attacker) paths() map[int][]ib.PortNum {
	g := a.x.f.Graph()
	paths := map[int][]ib.PortNum{a.at.Node: nil}
	for queue := []int{a.at.Node}; len(queue) > 0; queue = queue[1:] {
		n := g.Nodes[queue[0]]
		if !n.IsSwitch() && n.Index != a.at.Node {
			continue
		}
		for p := range n.Ports {
			if far := n.Ports[p].Peer; n.Ports[p].Connected() {
				if _, known := paths[far]; !known {
					paths[far] = append(append([]ib.PortNum{}, paths[n.Index]...), ib.PortNum(p))
					queue = append(queue, far)
				}
			}
		}
	}
	return paths
}

// smps tries to write and to read every table of every node, along all kinds of routes and with keys that one may
// guess, and to command managers.
func (a *attacker) smps() {
	a.Helper()
	g := a.x.f.Graph()
	own, _ := a.x.f.PortInfo(a.at)
	all := make([]byte, mad.SMPDataLen)
	for i := range all {
		all[i] = 0xFF
	}
	down := mad.PortInfo{PortPhysicalState: ib.PhysDisabled, PortState: ib.PortDown, MKey: 0x666}
	tables := []struct {
		attr mad.AttrID
		mod  uint32
		data []byte
	}{
		{mad.AttrPKeyTable, 0, all}, {mad.AttrPKeyTable, mad.PKeyModifier(1, 0), all},
		{mad.AttrPortInfo, 1, down.Append(nil)}, {mad.AttrSwitchInfo, 0, all},
		{mad.AttrLFT, 0, all}, {mad.AttrMFT, 0, all}, {mad.AttrSLtoVL, 0, all},
		{mad.AttrVLArb, 1 << 16, all}, {mad.AttrGUIDInfo, 0, all}, {mad.AttrNodeInfo, 0, nil},
		{mad.AttrSMInfo, 1, nil}, {mad.AttrSMInfo, 3, nil}, {mad.AttrSMInfo, 5, nil},
	}
	info := mad.SMInfo{GUID: 0x666, SMKey: 1, Priority: 15, SMState: mad.SMMaster}
	for node, path := range a.paths() {
		lid := own.LID
		if node != a.at.Node {
			ref := topo.PortRef{Node: node}
			if !g.Nodes[node].IsSwitch() {
				ref.Port = 1
			}
			pi, _ := a.x.f.PortInfo(ref)
			lid = pi.LID
		}
		for _, x := range tables {
			if x.attr == mad.AttrSMInfo {
				x.data = info.Append(nil)
			}
			for _, method := range []mad.Method{mad.MethodSet, mad.MethodGet} {
				for _, key := range []uint64{0, 1, rand.Uint64()} {
					what := fmt.Sprintf("%v(%s) %#x at %s with key %#x", method, mad.AttrName(mad.ClassSMLID, x.attr),
						x.mod, g.Nodes[node].Name, key)
					s := mad.SMP{Method: method, Attr: x.attr, Modifier: x.mod, MKey: key, Data: x.data}
					byLID := mad.Envelope{LID: lid, QPN: ib.QPNSMI}
					a.send(what+" by LID", byLID, a.datagram(&s))
					s.Directed, s.Path = true, path
					a.send(what+" directed", mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}, a.datagram(&s))
					s.Path, s.DrSLID = nil, own.LID
					a.send(what+" by LID, then directed", byLID, a.datagram(&s))
				}
			}
		}
		// What pretends to be an answer, or ends somebody's trap.
		for _, method := range []mad.Method{mad.MethodGetResp, mad.MethodTrapRepress} {
			s := mad.SMP{Method: method, Attr: mad.AttrPKeyTable, Data: all, Directed: true, Path: path}
			a.send("forged", mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}, a.datagram(&s))
		}
	}
	a.Logf("%d datagrams", len(a.what))
	a.answers(func(what string, v mad.View) { a.Errorf("%s is answered: %v", what, v.Status()) })
}

func (a *attacker) datagram(s *mad.SMP) []byte {
	a.Helper()
	b, err := s.Append(nil)
	if err != nil {
		a.Fatal(err)
	}
	return b
}

// records tries to get into groups, names and addresses of others by the subnet's administrator, and returns what that
// granted.
func (a *attacker) records(key ib.PKey, victim int) (granted []string) {
	a.Helper()
	own, _ := a.x.f.PortInfo(a.at)
	theirs, _ := a.x.f.PortInfo(a.x.ref(victim))
	gid := func(g ib.GUID) ib.GID { return ib.MakeGID(ib.DefaultGIDPrefix, g) }
	me := gid(a.x.f.Graph().Nodes[a.at.Node].PortGUID(1))
	env := mad.Envelope{LID: own.MasterSMLID, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}
	group := mad.MCMemberRecord{MGID: sm.BroadcastMGID(key), PortGID: me, QKey: 0x0B1B, PKey: key | ib.PKeyFull,
		MTU: ib.MTU2048, Rate: 3, JoinState: mad.JoinFull}
	foreign := group
	foreign.PortGID, foreign.MGID = gid(a.x.guid(victim)), sm.BroadcastMGID(ib.PKeyDefault)
	foreign.PKey = ib.PKeyDefault
	service := mad.ServiceRecord{ServiceID: 7, ServiceGID: gid(a.x.guid(victim)), ServicePKey: key | ib.PKeyFull,
		ServiceLease: 60}
	guids := mad.GUIDInfoRecord{LID: theirs.LID, GUID: mad.GUIDInfo{1: 0x666}}
	path := mad.PathRecord{SGID: me, DGID: gid(a.x.guid(victim)), NumbPath: 1}
	for _, smKey := range []uint64{0, sm.DefaultSMKey, rand.Uint64()} {
		ask := func(what string, method mad.Method, attr mad.AttrID, mask uint64, record []byte) {
			h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion,
				Method: method, AttributeID: attr}
			b := (&mad.RMPP{}).Append(h.Append(nil))
			b = (&mad.SAHeader{ComponentMask: mask, SMKey: smKey}).Append(b)
			b = append(b, record...)
			a.send(fmt.Sprintf("%s with SM_Key %#x", what, smKey), env, append(b, make([]byte, mad.Size-len(b))...))
		}
		mask := func(of func(string) uint64, names ...string) (m uint64) {
			for _, n := range names {
				m |= of(n)
			}
			return m
		}
		member := mad.MCMemberRecordTable.Component
		ask("joining a group of theirs", mad.MethodSet, mad.AttrMCMemberRecord, mask(member, "MGID", "PortGID", "Q_Key",
			"P_Key", "SL", "FlowLabel", "TClass", "JoinState"), group.Append(nil))
		ask("joining for them", mad.MethodSet, mad.AttrMCMemberRecord, mask(member, "MGID", "PortGID", "JoinState"),
			foreign.Append(nil))
		ask("a service of theirs", mad.MethodSet, mad.AttrServiceRecord, mask(mad.ServiceRecordTable.Component,
			"ServiceID", "ServiceGID", "ServiceP_Key", "ServiceLease"), service.Append(nil))
		ask("their GUIDs", mad.MethodSet, mad.AttrGUIDInfoRecord, mask(mad.GUIDInfoRecordTable.Component, "LID",
			"BlockNum")|1<<5, guids.Append(nil))
		ask("a path to them", mad.MethodGet, mad.AttrPathRecord, mask(mad.PathRecordTable.Component, "SGID", "DGID",
			"NumbPath"), path.Append(nil))
	}
	a.answers(func(what string, v mad.View) {
		if v.Status() == mad.StatusOK {
			granted = append(granted, what)
		}
	})
	slices.Sort(granted)
	return granted
}

// held is everything that nodes hold and management could have written.
func (x *ground) held(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	g := x.f.Graph()
	for i, n := range g.Nodes {
		for p := range n.Ports {
			ref := topo.PortRef{Node: i, Port: ib.PortNum(p)}
			pi, ok := x.f.PortInfo(ref)
			if !ok {
				continue
			}
			pi.MKeyViolations, pi.PKeyViolations, pi.QKeyViolations = 0, 0, 0
			fmt.Fprintf(&b, "%s %+v %v\n", g.PortName(ref), pi, x.f.PKeys(ref))
		}
		if tables, ok := x.f.Tables(i); ok {
			fmt.Fprintf(&b, "%s %+v\n", n.Name, tables)
		}
	}
	return b.String()
}

// TestHostileHosts lets root of a tenant's host, and of one that is in no tenant, do what it can: nothing of the
// fabric changes, nothing guarded is read, and no packet crosses.
func TestHostileHosts(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", sm.Config{SweepInterval: 100 * ib.Millisecond}, memory(t))
	ctx := t.Context()
	red, err := x.book.Create(ctx, tenant.Tenant{Name: "red", Members: x.full(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	blue, err := x.book.Create(ctx, tenant.Tenant{Name: "blue", Members: x.full(3, 4)})
	if err != nil {
		t.Fatal(err)
	}
	const rest ib.PKey = 0x7ffe // of those without a tenant
	before := x.held(t)
	for name, host := range map[string]int{"a tenant's": 3, "nobody's": 6} {
		t.Run(name, func(t *testing.T) {
			a := newAttacker(t, x, host)
			a.s.SetIsSM(true)
			a.smps()
			if granted := a.records(red.Key, 1); len(granted) > 0 {
				t.Errorf("the administrator grants %q", granted)
			}
			a.s.SetIsSM(false)
		})
	}
	if err := x.run.Do(func(m *sm.Manager) { m.Sweep(0, "test") }); err != nil {
		t.Fatal(err)
	}
	wait, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := x.run.Await(wait, func(m *sm.Manager) bool { return !m.Sweeping() }); err != nil {
		t.Fatal(err)
	}
	after := strings.Split(x.held(t), "\n")
	for i, line := range strings.Split(before, "\n") {
		if after[i] != line {
			t.Errorf("it was\n%s\nand is\n%s", line, after[i])
		}
	}
	if err := x.run.Do(func(m *sm.Manager) {
		if m.State() != mad.SMMaster || m.Counters().Tampered != 0 {
			t.Errorf("the manager is %v, and has found %d ports written by others", m.State(), m.Counters().Tampered)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for from := 1; from < 8; from++ {
		for to := 1; to < 8; to++ {
			for _, key := range []ib.PKey{red.Key, blue.Key, rest, ib.PKeyBase, 0x666} {
				of := map[int]ib.PKey{1: red.Key, 2: red.Key, 3: blue.Key, 4: blue.Key}
				at := func(h int) ib.PKey {
					if k, ok := of[h]; ok {
						return k
					}
					return rest
				}
				if from != to {
					x.reaches(t, from, to, key, at(from) == key && at(to) == key)
				}
			}
		}
	}
	// All of this is granted to whom it is for.
	want := []string{"a path to them with SM_Key 0x0", "a service of theirs with SM_Key 0x0",
		"joining a group of theirs with SM_Key 0x0", "joining for them with SM_Key 0x0", "their GUIDs with SM_Key 0x0"}
	if granted := newAttacker(t, x, 1).records(red.Key, 1); !slices.Equal(granted, want) {
		t.Errorf("the tenant itself is granted %q, want %q", granted, want)
	}
}

// TestAstray writes to nodes with their own keys, as only a manager can: what is not in force any more is said until a
// sweep has put it right.
func TestAstray(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", sm.Config{SweepInterval: -1}, memory(t))
	ctx := t.Context()
	red, err := x.book.Create(ctx, tenant.Tenant{Name: "red", Members: x.full(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.book.Create(ctx, tenant.Tenant{Name: "blue", Members: x.full(3, 4)}); err != nil {
		t.Fatal(err)
	}
	astray := func() []tenant.Refusal {
		t.Helper()
		list, err := x.e.Astray(ctx, x.book.State(), &red)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := astray(); len(list) > 0 {
		t.Fatalf("before: %v", list)
	}
	var key uint64
	if err := x.run.Do(func(m *sm.Manager) { key = m.MKey(x.guid(2)) }); err != nil {
		t.Fatal(err)
	}
	pi, _ := x.f.PortInfo(x.ref(2))
	table := mad.PKeyTable{0xffff}
	a := newAttacker(t, x, 0) // the manager's own host
	a.send("", mad.Envelope{LID: pi.LID, QPN: ib.QPNSMI}, a.datagram(&mad.SMP{Method: mad.MethodSet,
		Attr: mad.AttrPKeyTable, MKey: key, Data: table.Append(nil)}))
	a.answers(func(string, mad.View) {})
	if list := astray(); len(list) != 1 || !strings.Contains(list[0].Why, "does not hold 0x9001") {
		t.Errorf("after h3 lost its key: %v", list)
	}
	if err := x.run.Do(func(m *sm.Manager) { m.Sweep(0, "test") }); err != nil {
		t.Fatal(err)
	}
	if err := x.run.Await(ctx, func(m *sm.Manager) bool {
		return !m.Sweeping() && m.Counters().Tampered > 0
	}); err != nil {
		t.Fatal(err)
	}
	if list := astray(); len(list) > 0 {
		t.Errorf("after a sweep: %v", list)
	}
	// Whoever reloads partitions puts it right too.
	a.send("", mad.Envelope{LID: pi.LID, QPN: ib.QPNSMI}, a.datagram(&mad.SMP{Method: mad.MethodSet,
		Attr: mad.AttrPKeyTable, MKey: key, Data: table.Append(nil)}))
	a.answers(func(string, mad.View) {})
	if err := x.book.Refresh(ctx, nil); err != nil {
		t.Errorf("partitions cannot be put right: %v", err)
	}
	if list := astray(); len(list) > 0 {
		t.Errorf("after partitions were reloaded: %v", list)
	}
}
