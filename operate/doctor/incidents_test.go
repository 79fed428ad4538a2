package doctor_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/operate/doctor"
	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/operate/webui"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// incident is a row of the table in docs/OPERATE.md: kinds of findings, and of alarms.
type incident struct{ findings, alarms []string }

// incidents reads the table.
func incidents(t *testing.T) map[string]incident {
	t.Helper()
	text, err := os.ReadFile("../../docs/OPERATE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| incident | `softib doctor` | alarm | page |\n|---|---|---|---|\n")
	if !ok {
		t.Fatal("docs/OPERATE.md has no table of incidents")
	}
	kind := regexp.MustCompile("`([a-z-]+)`")
	rows := map[string]incident{}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			if cells[i] == "" || cells[i] == "-" || cells[i] == "–" || i > 0 && strings.HasPrefix(cells[i], "no,") ||
				i > 0 && strings.EqualFold(cells[i], "no") {
				t.Errorf("%q: a cell that says no", line)
			}
		}
		if len(cells) != 4 {
			t.Fatalf("%q: %d cells", line, len(cells))
		}
		var x incident
		for _, m := range kind.FindAllStringSubmatch(cells[1], -1) {
			x.findings = append(x.findings, m[1])
		}
		for _, part := range strings.FieldsFunc(cells[2], func(r rune) bool { return r == ',' || r == ';' }) {
			if part = strings.TrimSpace(part); slices.Contains(manager.Kinds(), part) {
				x.alarms = append(x.alarms, part)
			}
		}
		if len(x.findings) == 0 || len(x.alarms) == 0 || !strings.Contains(cells[3], "Cables") {
			t.Errorf("%q: want a kind of finding, a kind of alarm (%q), and where alarms are on the page", line,
				manager.Kinds())
		}
		rows[cells[0]] = x
	}
	return rows
}

// scene is a fabric with all that looks at it.
type scene struct {
	*rig
	m    *manager.Manager
	page *webui.Server
	own  ib.GUID
}

// look begins the fabric's management and its page, and blind ends them.
func (s *scene) look() {
	s.t.Helper()
	var err error
	if s.m, err = manager.New(manager.Options{Name: "test", Fabric: s.Fabric, Subnet: s.run,
		Interval: 20 * time.Millisecond, Patience: &[health.NumKind]health.Patience{}}); err != nil {
		s.t.Fatal(err)
	}
	s.page = webui.New(s.m, webui.Options{})
}

func (s *scene) blind() {
	s.page.Close()
	s.m.Close()
}

// alarms are those of a kind that the page lists and that name something.
func (s *scene) alarms(kind, names string) (list []string) {
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/api/v1/alarms", nil))
	var shown []struct{ Link, Kind, Text, Next string }
	if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil {
		s.t.Fatalf("%v in %s", err, w.Body)
	}
	for _, a := range shown {
		if a.Kind == kind && strings.Contains(a.Link+" "+a.Text, names) {
			if list = append(list, a.Link+": "+a.Text); a.Next == "" {
				s.t.Errorf("%v does not say what to do", a)
			}
		}
	}
	return list
}

// finds reports whether a report has a finding of a kind that names something.
func finds(rep *doctor.Report, kind, names string) bool {
	return slices.ContainsFunc(rep.Sections, func(s doctor.Section) bool {
		return slices.ContainsFunc(s.Findings, func(f doctor.Finding) bool {
			return f.Kind == kind && strings.Contains(strings.Join(f.Objects, " ")+" "+f.Measured, names)
		})
	})
}

// shows waits until the doctor and the page show all kinds that name something. Meanwhile is done before each look.
func (s *scene) shows(findings, alarms []string, names string, meanwhile func()) {
	s.t.Helper()
	findings, alarms = slices.Clone(findings), slices.Clone(alarms)
	var rep *doctor.Report
	for end := time.Now().Add(time.Minute); len(findings)+len(alarms) > 0; {
		if time.Now().After(end) {
			s.t.Fatalf("%s: no finding of kinds %q, no alarm of kinds %q:\n%s\n%+v", names, findings, alarms, all(rep),
				s.m.OpenAlarms())
		}
		if meanwhile != nil {
			meanwhile()
		}
		if rep == nil || len(findings) > 0 {
			rep = s.examine(1, doctor.RunOptions{Interval: quick, Timeout: 50 * ib.Millisecond},
				doctor.Options{Plan: s.g, Manager: s.own})
		} else {
			time.Sleep(time.Millisecond)
		}
		findings = slices.DeleteFunc(findings, func(k string) bool { return finds(rep, k, names) })
		alarms = slices.DeleteFunc(alarms, func(k string) bool { return len(s.alarms(k, names)) > 0 })
	}
}

// flood sends n questions that go by the tables to a host, and waits until none is open any more.
func (s *scene) flood(from, to string, n int) {
	s.t.Helper()
	x, err := s.OpenMgmt(s.port(from))
	if err != nil {
		s.t.Fatal(err)
	}
	defer x.Close()
	id, err := x.Register(madrpc.Registration{Class: mad.ClassPerf, ClassVersion: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	env := mad.Envelope{LID: s.lid(to), QPN: ib.QPNGSI, QKey: ib.QKeyGSI}
	for k := range n {
		data := (&mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassPerf, ClassVersion: 1,
			Method: mad.MethodGet, AttributeID: mad.AttrClassPortInfo, TransactionID: uint64(k + 1)}).Append(nil)
		data = append(data, make([]byte, mad.Size-len(data))...)
		if err := x.Send(id, madrpc.Message{Env: env, Data: data, Timeout: 100 * ib.Millisecond}); err != nil {
			s.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range n {
		if _, err := x.Recv(ctx); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestIncidents plants what docs/OPERATE.md's table lists, row by row in one fabric, and wants the findings and the
// alarms that the row names. What can be set by softib fault is set as that sets it.
func TestIncidents(t *testing.T) {
	rows := incidents(t)
	g, err := topo.ParseSpec(topo.DefaultSpec)
	if err != nil {
		t.Fatal(err)
	}
	g.ByName("h5").Desc = g.ByName("h6").Desc
	swap(t, g)
	s := &scene{rig: rigOf(t, g, sm.Config{Priority: 5, SweepInterval: ib.Second / 4,
		PollInterval: ib.Second / 4})}
	s.own = g.Hosts()[0].PortGUID(1)
	s.look()
	t.Cleanup(func() { s.blind() })

	fault := func(at string, f manager.FaultSpec) {
		t.Helper()
		if err := s.m.SetFault(s.port(at), f, "the test"); err != nil {
			t.Fatal(err)
		}
	}
	bounce := func(at string) {
		t.Helper()
		fault(at, manager.FaultSpec{Down: true})
		fault(at, manager.FaultSpec{})
	}
	entry := func(sw string, lid ib.LID, port ib.PortNum) {
		s.set(g.ByName(sw).Index, mad.AttrLFT, uint32(lid)/mad.LFTPerBlock,
			func(data []byte) { data[lid%mad.LFTPerBlock] = byte(port) })
	}
	plants := []struct {
		row   string
		plant func(x incident)
	}{
		{"cables swapped, between leaves, missing", func(x incident) {
			s.shows(x.findings, x.alarms, "leaf1[5]", nil)
		}},
		{"two machines with one name", func(x incident) { s.shows(x.findings, x.alarms, "h6", nil) }},
		{"a link is down", func(x incident) {
			fault("leaf3[5]", manager.FaultSpec{Down: true})
			s.shows(x.findings, x.alarms, "leaf3[5]", nil)
			fault("leaf3[5]", manager.FaultSpec{})
		}},
		{"a switch is dead or reboots", func(x incident) {
			for p := range g.ByName("spine4").NumPorts() {
				fault(g.PortName(topo.PortRef{Node: g.ByName("spine4").Index, Port: ib.PortNum(p + 1)}),
					manager.FaultSpec{Down: true})
			}
			s.shows(x.findings, x.alarms, "spine4", nil)
			if err := s.m.LiftFaults("the test"); err != nil {
				t.Fatal(err)
			}
		}},
		{"a cable damages signals, perhaps one way", func(x incident) {
			fault("h12[1]", manager.FaultSpec{BER: 1e-4})
			s.shows(x.findings, x.alarms, "h12[1]", nil)
			fault("h12[1]", manager.FaultSpec{})
		}},
		{"a link goes down again and again, or recovers", func(x incident) {
			s.shows(x.findings, x.alarms, "h13[1]", func() {
				for range 100 {
					fault("h13[1]", manager.FaultSpec{Retrain: true})
				}
			})
		}},
		{"a link runs below what both ends can", func(x incident) {
			s.setPort(s.port("leaf4[6]"), func(pi *mad.PortInfo) { pi.LinkWidthEnabled = ib.Width1x })
			bounce("leaf4[6]")
			s.shows(x.findings, x.alarms, "leaf4[6]", nil)
		}},
		{"two nodes with one GUID", func(x incident) {
			// Hosts, one of them the manager's own, and switches; afterwards the manager has the whole fabric again.
			for _, c := range [][2]string{{"h20", "h25"}, {"h24", "h1"}, {"spine3", "spine1"}} {
				if err := s.m.SetNodeGUID(c[0], c[1], "the test"); err != nil {
					t.Fatal(err)
				}
				s.shows(x.findings, x.alarms, c[0], nil)
				s.shows(x.findings, x.alarms, c[1], nil)
				if err := s.m.LiftFaults("the test", c[0]); err != nil {
					t.Fatal(err)
				}
				s.over(append(x.alarms, health.NotActive.String(), health.LinkDown.String()))
			}
		}},
		{"another manager takes over", func(x incident) {
			_, stop := s.manage(29, sm.Config{Priority: 9})
			s.shows(x.findings, x.alarms, "h30", nil)
			stop()
			s.over(x.alarms)
		}},
		{"no manager, or two", func(x incident) {
			// Managers of softib's do not both rule where they see each other.
			t.Run("two", func(t *testing.T) {
				pretender(t, s.Fabric, s.port("h31[1]"), mad.SMInfo{GUID: g.ByName("h31").PortGUID(1),
					SMState: mad.SMMaster, Priority: 1})
				s.shows([]string{"two-masters"}, []string{"two managers"}, "h31", nil)
			})
			s.stop()
			bounce("h28[1]")
			s.shows([]string{"no-master"}, []string{"no manager"}, "", nil)
			s.shows([]string{"not-active"}, []string{"not active"}, "h28[1]", nil)
			if want := []string{"no-master", "two-masters"}; !slices.Equal(x.findings, want) || len(x.alarms) != 3 {
				t.Errorf("the row has %q, %q", x.findings, x.alarms)
			}
		}},
		{"two ends with different MTUs", func(x incident) {
			s.setPort(s.port("leaf4[1]"), func(pi *mad.PortInfo) { pi.NeighborMTU = ib.MTU2048 })
			s.shows(x.findings, x.alarms, "leaf4[1]", nil)
		}},
		{"a host in the wrong partition", func(x incident) {
			leaf := g.Peer(s.port("h26[1]"))
			s.set(leaf.Node, mad.AttrPKeyTable, mad.PKeyModifier(leaf.Port, 0),
				func(data []byte) { (&mad.PKeyTable{0x8345}).Append(data[:0]) })
			s.setPort(leaf, func(pi *mad.PortInfo) { pi.PartitionEnforcementInbound = true })
			s.shows(x.findings, x.alarms, g.PortName(leaf), func() { s.flood("h26[1]", "h10", 1024) })
		}},
		{"tables that lose or circle packets", func(x incident) {
			lid := s.lid("h32")
			entry("leaf2", lid, mad.LFTNone)
			s.shows([]string{"unreachable"}, x.alarms, "leaf2", nil)
			up := s.port(s.uplink("leaf2"))
			spine := g.Peer(up)
			entry("leaf2", lid, up.Port)
			entry(g.Nodes[spine.Node].Name, lid, spine.Port)
			s.shows([]string{"forwarding-loop"}, x.alarms, "round", nil)
			if want := []string{"unreachable", "forwarding-loop"}; !slices.Equal(x.findings, want) {
				t.Errorf("the row has %q", x.findings)
			}
		}},
		{"congestion", func(x incident) {
			s.blind() // cables are judged by what was counted since
			s.look()
			fault("h10[1]", manager.FaultSpec{Delay: 20 * time.Millisecond})
			ended, end := make(chan struct{}), atomic.Bool{}
			go func() {
				for !end.Load() {
					s.flood("h9[1]", "h10", 2000)
				}
				close(ended)
			}()
			s.shows(x.findings, x.alarms, "h10", nil)
			end.Store(true)
			<-ended
			fault("h10[1]", manager.FaultSpec{})
		}},
	}
	for _, c := range plants {
		x, ok := rows[c.row]
		if !ok {
			t.Errorf("docs/OPERATE.md has no incident %q", c.row)
			continue
		}
		delete(rows, c.row)
		began := time.Now()
		c.plant(x)
		t.Logf("%s: %v", c.row, time.Since(began))
	}
	for row := range rows {
		t.Errorf("nobody plants %q", row)
	}
}

// over waits until no alarm of the kinds stands.
func (s *scene) over(kinds []string) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		var list []string
		for _, k := range kinds {
			list = append(list, s.alarms(k, "")...)
		}
		if len(list) == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("they stand still: %q", list)
		}
	}
}

// swap gives two cables each other's ends.
func swap(t *testing.T, g *topo.Graph) {
	t.Helper()
	a, b := g.ByName("leaf1").Index, g.ByName("leaf2").Index
	x, y := g.ByName("spine1").Index, g.ByName("spine2").Index
	for _, e := range []topo.PortRef{{Node: a, Port: 5}, {Node: b, Port: 6}} {
		if err := g.Disconnect(e.Node, e.Port); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range [][2]topo.PortRef{{{Node: a, Port: 5}, {Node: y, Port: 2}},
		{{Node: b, Port: 6}, {Node: x, Port: 1}}} {
		if err := g.Connect(c[0].Node, c[0].Port, c[1].Node, c[1].Port, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
}
