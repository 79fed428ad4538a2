package manager

import (
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/topo"
)

// standing are the alarms of a kind, after a sample.
func standing(m *Manager, at time.Time, k health.Kind) (list []health.Alarm) {
	m.take(at)
	for _, a := range m.Alarms() {
		if a.Kind == k {
			list = append(list, a)
		}
	}
	return list
}

// TestDeadSwitchAlarm: a switch whose links are all down is one alarm that names its hosts, not one for each cable.
func TestDeadSwitchAlarm(t *testing.T) {
	f, m := running(t, "fat-tree:radix=4,levels=2", Options{})
	leaf := m.Graph().ByName("leaf2")
	now := time.Now().Add(time.Second)
	for p := 1; p <= leaf.NumPorts(); p++ {
		if err := f.SetLink(topo.PortRef{Node: leaf.Index, Port: ib.PortNum(p)}, false); err != nil {
			t.Fatal(err)
		}
	}
	list := standing(m, now.Add(time.Second), health.DeadSwitch)
	if len(list) != 1 || len(m.Alarms()) != 1 || m.AlarmAt(&list[0]) != "leaf2" {
		t.Fatalf("alarms are %+v", m.Alarms())
	}
	text, next := list[0].Reason.Text(m.Graph()), list[0].Reason.Advice(m.Graph())
	if !strings.Contains(text, "h3, h4") || next == "" {
		t.Errorf("it says %q", text)
	}
}

// TestConditions: what is wrong with a fabric from its start, and who manages it.
func TestConditions(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=8,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	g.ByName("h5").Desc = g.ByName("h6").Desc
	// Two cables with each other's ends.
	a, b, x, y := g.ByName("leaf1").Index, g.ByName("leaf2").Index, g.ByName("spine1").Index, g.ByName("spine2").Index
	for _, r := range []topo.PortRef{{Node: a, Port: 5}, {Node: b, Port: 6}} {
		if err := g.Disconnect(r.Node, r.Port); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range [][2]topo.PortRef{{{Node: a, Port: 5}, {Node: y, Port: 2}},
		{{Node: b, Port: 6}, {Node: x, Port: 1}}} {
		if err := g.Connect(c[0].Node, c[0].Port, c[1].Node, c[1].Port, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{Fabric: f, Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	now := time.Now().Add(time.Second)
	m.take(now)
	for end := now.Add(time.Minute); m.static.list.Load() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if list := standing(m, now.Add(time.Second), health.DoubleName); len(list) != 1 || m.AlarmAt(&list[0]) != "h6" {
		t.Errorf("names: %+v", m.Alarms())
	}
	list := standing(m, now.Add(2*time.Second), health.Miswired)
	if len(list) != 1 || !strings.Contains(list[0].Reason.Text(g), "have each other's ends") ||
		!strings.Contains(list[0].Reason.Advice(g), "exchange the plugs") {
		t.Errorf("wiring: %+v", m.Alarms())
	}
	// The subnet was brought up from the first host. (With an OpenSM that takes over: fieldtest.TestCommand.)
	m.static.own.Store(uint64(g.ByName("h9").PortGUID(1)))
	list = standing(m, now.Add(3*time.Second), health.TakenOver)
	const says = "managed from h1 (LID 1), not by its own manager at h9"
	if len(list) != 1 || !strings.Contains(list[0].Reason.Text(g), says) {
		t.Errorf("managers: %+v", m.Alarms())
	}
	m.static.own.Store(uint64(g.ByName("h1").PortGUID(1)))
	if list = standing(m, now.Add(4*time.Second), health.TakenOver); len(list) != 0 {
		t.Errorf("its own manager has taken over: %+v", list)
	}
}
