package manager

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"softib/internal/patience"
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

// wellRead waits until the wiring of a fabric is judged, and returns when the next sample may be.
func wellRead(t *testing.T, m *Manager) time.Time {
	t.Helper()
	now := time.Now().Add(time.Second)
	m.take(now)
	for limit := patience.New(time.Minute); m.static.list.Load() == nil; <-time.After(time.Millisecond) {
		if limit.Over() {
			t.Fatalf("the wiring is not judged: %v", limit.Err())
		}
	}
	return now
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
	_, m := runningGraph(t, g, Options{})
	now := wellRead(t, m)
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

// TestMiswiredAlarms: each cable that is not where the tree has it is told, under a name of its own.
func TestMiswiredAlarms(t *testing.T) {
	const tree = "fat-tree:radix=8,levels=2"
	pull := func(g *topo.Graph, node string, ports ...ib.PortNum) {
		for _, p := range ports {
			if err := g.Disconnect(g.ByName(node).Index, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(g *topo.Graph)
		want  map[string]string // what is said of each, by its name
	}{
		{"in order", func(*topo.Graph) {}, map[string]string{}},
		{"missing", func(g *topo.Graph) { pull(g, "leaf1", 7) }, map[string]string{
			"leaf1[7] spine3[1]": "there is no cable leaf1[7] spine3[1]"}},
		{"two missing of one switch", func(g *topo.Graph) { pull(g, "leaf1", 6, 7) }, map[string]string{
			// Two are enough for the rule of leaf1's ports at spines not to hold.
			"leaf1[6] spine2": "there is no cable leaf1[6] spine2[?]",
			"leaf1[7] spine3": "there is no cable leaf1[7] spine3[?]"}},
		// The ends of a cable between leaves are where cables to spines should be: one is to be moved, one is missing.
		{"between leaves", func(g *topo.Graph) {
			pull(g, "leaf1", 8)
			pull(g, "leaf2", 8)
			leaf1, leaf2 := g.ByName("leaf1").Index, g.ByName("leaf2").Index
			if err := g.Connect(leaf1, 8, leaf2, 8, topo.LinkSpec{}); err != nil {
				t.Fatal(err)
			}
		}, map[string]string{
			"leaf1[8] leaf2[8]":  "leaf1[8] leaf2[8] should be leaf1[8] spine4[1]",
			"leaf2[8] spine4[2]": "there is no cable leaf2[8] spine4[2]"}},
		// What is wrong is seen from the spine, and the alarm has the cable's name all the same.
		{"in a host's place", func(g *topo.Graph) {
			pull(g, "leaf2", 5)
			pull(g, "leaf8", 4)
			if err := g.Connect(g.ByName("leaf8").Index, 4, g.ByName("spine1").Index, 2, topo.LinkSpec{}); err != nil {
				t.Fatal(err)
			}
		}, map[string]string{"leaf8[4] spine1[2]": "spine1[2] leaf8[4] should be spine1[2] leaf2[5]"}},
	} {
		g, err := topo.ParseSpec(tree)
		if err != nil {
			t.Fatal(err)
		}
		c.spoil(g)
		_, m := runningGraph(t, g, Options{})
		told := map[string]string{}
		for _, a := range standing(m, wellRead(t, m).Add(time.Second), health.Miswired) {
			told[m.AlarmAt(&a)] = a.Reason.Text(g)
			if a.Reason.Advice(g) == "" {
				t.Errorf("%s: no advice: %+v", c.name, a)
			}
		}
		if !maps.Equal(told, c.want) {
			t.Errorf("%s: %q, want %q", c.name, told, c.want)
		}
	}
}

// TestMiswiredAlarmsWithoutPorts: where ports follow no rule, missing cables between the same switches have no names of
// their own, and one alarm tells them all.
func TestMiswiredAlarmsWithoutPorts(t *testing.T) {
	const leaves, spines, each, hosts = 6, 2, 3, 2
	g := &topo.Graph{}
	add := func(name string, kind ib.NodeType, ports int) int {
		guid := ib.GUID(len(g.Nodes)+1) << 8
		n, err := g.Add(topo.Node{Name: name, Type: kind, GUID: guid, SystemGUID: guid}, ports)
		if err == nil && kind == ib.NodeCA {
			err = g.SetPortGUID(n.Index, 1, guid+1)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n.Index
	}
	connect := func(a int, p ib.PortNum, b int, q ib.PortNum) {
		if err := g.Connect(a, p, b, q, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	var spine [spines]int
	for s := range spine {
		spine[s] = add(fmt.Sprintf("spine%d", s+1), ib.NodeSwitch, leaves*each)
	}
	r := rand.New(rand.NewPCG(1, 2))
	order := [spines][]int{r.Perm(leaves * each), r.Perm(leaves * each)}
	for l := range leaves {
		leaf := add(fmt.Sprintf("leaf%d", l+1), ib.NodeSwitch, hosts+spines*each)
		port := r.Perm(hosts + spines*each)
		take := func() ib.PortNum {
			p := port[0]
			port = port[1:]
			return ib.PortNum(p + 1)
		}
		for h := range hosts {
			connect(leaf, take(), add(fmt.Sprintf("h%d", l*hosts+h+1), ib.NodeCA, 1), 1)
		}
		for s := range spine {
			for i := range each {
				if p := take(); l != 1 || s != 1 || i == 0 { // two of leaf2's to spine2 are not there
					connect(leaf, p, spine[s], ib.PortNum(order[s][l*each+i]+1))
				}
			}
		}
	}
	_, m := runningGraph(t, g, Options{})
	list := standing(m, wellRead(t, m).Add(time.Second), health.Miswired)
	const missing = "there is no cable leaf2[?] spine2[?]"
	if len(list) != 1 || m.AlarmAt(&list[0]) != "leaf2 spine2" ||
		list[0].Reason.Text(g) != missing+"; "+missing {
		t.Errorf("alarms are %+v", list)
	}
}
