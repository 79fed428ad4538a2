package webui

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/patience"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
)

// ask makes a request; headers come in pairs.
func (x *ground) ask(t testing.TB, method, path, body string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, x.http.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := x.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, data
}

// get reads an answer into v.
func (x *ground) get(t testing.TB, path string, v any) {
	t.Helper()
	resp, data := x.ask(t, "GET", path, "")
	if resp.StatusCode != 200 {
		t.Fatalf("GET %s: %s: %s", path, resp.Status, data)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("GET %s: %v: %s", path, err, data)
	}
}

// TestServiceNodes: what is part of a switch is no host on the page either.
func TestServiceNodes(t *testing.T) {
	text, err := os.ReadFile("../../proto/topo/testdata/dumps/dgx.ibnetdiscover")
	if err != nil {
		t.Fatal(err)
	}
	g, err := topo.Parse("dgx", text)
	if err != nil {
		t.Fatal(err)
	}
	x := newGroundOf(t, "dgx", g, time.Hour)
	var st status
	x.get(t, "/api/v1/status", &st)
	if st.Hosts != 9 || st.ServiceNodes != 2 || st.Switches != 2 || st.Cables != 13 {
		t.Errorf("status: %+v", st)
	}
	var shown struct{ Hosts int }
	x.get(t, "/api/v1/topology", &shown)
	if shown.Hosts != 9 {
		t.Errorf("the map has %d hosts", shown.Hosts)
	}
}

func TestAnswers(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", time.Hour)
	var st status
	x.get(t, "/api/v1/status", &st)
	if st.Hosts != 8 || st.Switches != 6 || st.Cables != 16 || st.Active != 16 || st.Manager != "Master" {
		t.Errorf("status: %+v", st)
	}
	var n nodeShown
	x.get(t, "/api/v1/node?name=leaf1", &n)
	if n.Kind != "switch" || len(n.Ports) != 4 || n.Ports[2].Peer != "spine1" || n.Ports[2].State != "Active" ||
		n.LID == 0 {
		t.Errorf("leaf1: %+v", n)
	}
	x.get(t, "/api/v1/node?name=h1", &n)
	if n.Kind != "host" || n.Ports[0].GUID == "" || len(n.Ports[0].Counters) == 0 || n.Ports[0].Health != "ok" {
		t.Errorf("h1: %+v", n)
	}
	var l linkShown
	for _, name := range []string{"leaf1[3]", "spine1[1]", "leaf1/3", "leaf1[3]%20spine1[1]", "leaf1%20spine1"} {
		x.get(t, "/api/v1/link?port="+name, &l)
		if l.Name != "leaf1[3] spine1[1]" || l.Ends[0].Name != "leaf1[3]" || l.Ends[1].Mbps != l.Ends[0].Mbps {
			t.Errorf("%s: %+v", name, l)
		}
	}
	var way map[string]routeShown
	x.get(t, "/api/v1/route?from=h1&to=h8", &way)
	if !way["there"].Arrives || len(way["there"].Hops) != 4 || way["back"].From != "h8[1]" ||
		way["there"].Hops[0].Out != "h1[1]" {
		t.Errorf("route: %+v", way)
	}
	var s smShown
	x.get(t, "/api/v1/sm", &s)
	if !s.Managed || len(s.Sweeps) == 0 || len(s.Sweeps[0].Phases) == 0 || time.Since(s.Sweeps[0].At) > time.Hour {
		t.Errorf("sm: %+v", s)
	}
	var ev []struct{ Kind, Severity, Text string }
	x.get(t, "/api/v1/events", &ev)
	if len(ev) == 0 || ev[0].Severity != "info" || ev[0].Text == "" {
		t.Error("nothing has happened, though the subnet came up")
	}
	var h historyShown
	x.get(t, "/api/v1/history?port=h1", &h)
	if h.Port != "h1[1]" || h.Series["xmit_wait"].Unit != "of the time" {
		t.Errorf("history: %+v", h)
	}
	var p struct {
		Programs []programShown
		Paths    []pathShown
	}
	x.get(t, "/api/v1/programs", &p)
	if len(p.Programs) != 1 || p.Programs[0].QPTotal != 4 || p.Programs[0].Statuses[0].Status != "RETRY_EXC_ERR" ||
		p.Paths[0].P99 < p.Paths[0].P50 {
		t.Errorf("programs: %+v", p)
	}
}

// Alarms can be acknowledged and muted, and what is counted agrees with what is listed.
func TestAlarms(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", 20*time.Millisecond)
	x.ask(t, "PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":"down"}`)
	var list []alarmShown
	await := func(what string, is func() bool) {
		t.Helper()
		for late := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			list = nil
			if x.get(t, "/api/v1/alarms", &list); is() {
				return
			}
			if time.Now().After(late) {
				t.Fatalf("waited in vain for %s: %+v", what, list)
			}
		}
	}
	await("an alarm", func() bool { return len(list) > 0 && list[0].Kind == "link down" })
	alarmed := func() (n int, o overview) {
		t.Helper()
		var st status
		x.get(t, "/api/v1/overview", &o)
		x.get(t, "/api/v1/status", &st)
		if st.Alarmed != o.Alarmed {
			t.Errorf("the status has %d cables to look at, the overview %d", st.Alarmed, o.Alarmed)
		}
		return st.Alarmed, o
	}
	n, o := alarmed()
	if n != 1 || len(o.Alarms) == 0 || len(o.Cables) == 0 {
		t.Errorf("one cable is down, and %d have alarms: %+v", n, o)
	}
	path := fmt.Sprintf("/api/v1/alarms/%d", list[0].ID)
	if resp, data := x.ask(t, "POST", path, `{"by":"ann","note":"on it"}`); resp.StatusCode != 200 ||
		!bytes.Contains(data, []byte(`"note":"on it"`)) {
		t.Errorf("%s: %s", resp.Status, data)
	}
	var rule struct{ ID uint64 }
	resp, data := x.ask(t, "POST", "/api/v1/mutes", `{"link":"leaf1[3]","minutes":5}`)
	if err := json.Unmarshal(data, &rule); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %s", resp.Status, data)
	}
	await("the rule", func() bool { return len(list) > 0 && list[0].Muted != nil })
	if n, _ := alarmed(); n != 0 {
		t.Errorf("%d cables to look at while all is muted", n)
	}
	if resp, data := x.ask(t, "DELETE", fmt.Sprintf("/api/v1/mutes/%d", rule.ID), ""); resp.StatusCode != 200 {
		t.Errorf("%s: %s", resp.Status, data)
	}
	for want, request := range map[string][3]string{
		"404": {"POST", "/api/v1/alarms/9999", "{}"}, "400": {"POST", "/api/v1/mutes", `{"minutes":5}`},
		"400 ": {"POST", "/api/v1/alarms/x", "{}"}, "404 ": {"DELETE", "/api/v1/mutes/9999", ""},
		"404  ": {"POST", "/api/v1/mutes", `{"link":"nowhere[3]"}`},
		"400  ": {"POST", "/api/v1/mutes", `{"link":"leaf1[3]","minutes":-1}`},
	} {
		resp, data := x.ask(t, request[0], request[1], request[2])
		if fmt.Sprint(resp.StatusCode) != strings.TrimSpace(want) || !bytes.Contains(data, []byte(`"next"`)) {
			t.Errorf("%v: %s: %s", request, resp.Status, data)
		}
	}
}

// troubled is a fabric in which nodes have alarms, and cables have: two hosts with one name, two cables with each
// other's ends, one that is missing, a dead switch and a link that is down.
func troubled(t *testing.T) *ground {
	t.Helper()
	const spec = "fat-tree:radix=8,levels=2"
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	g.ByName("h5").Desc = g.ByName("h6").Desc
	ref := func(name string, port ib.PortNum) topo.PortRef {
		return topo.PortRef{Node: g.ByName(name).Index, Port: port}
	}
	for _, r := range []topo.PortRef{ref("leaf1", 5), ref("leaf2", 6), ref("leaf3", 7)} {
		if err := g.Disconnect(r.Node, r.Port); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range [][2]topo.PortRef{{ref("leaf1", 5), ref("spine2", 2)}, {ref("leaf2", 6), ref("spine1", 1)}} {
		if err := g.Connect(c[0].Node, c[0].Port, c[1].Node, c[1].Port, topo.LinkSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	x := newGroundOf(t, spec, g, 20*time.Millisecond, func(f *live.Fabric) {
		for p := ib.PortNum(1); p <= 8; p++ { // who looks meanwhile sees cables that go down
			if err := f.SetLink(ref("leaf8", p), false); err != nil {
				t.Fatal(err)
			}
		}
	})
	x.ask(t, "PUT", "/api/v1/faults", `{"link":"leaf4[6]","fault":"down"}`)
	return x
}

// standing waits until alarms of some kinds stand, as kind and place, and has all that do.
func (x *ground) standing(t *testing.T, want ...string) (list []alarmShown) {
	t.Helper()
	for limit := patience.New(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		list = nil
		x.get(t, "/api/v1/alarms", &list)
		var missing []string
		for _, w := range want {
			if !slices.ContainsFunc(list, func(a alarmShown) bool { return a.Kind+" "+a.Link == w }) {
				missing = append(missing, w)
			}
		}
		if len(missing) == 0 {
			return list
		}
		if limit.Over() {
			t.Fatalf("no alarm of %q, %v: %+v", missing, limit.Err(), list)
		}
	}
}

// Cables to look at are cables, each of them once: not the nodes that have alarms, nor what is muted.
func TestAlarmed(t *testing.T) {
	x := troubled(t)
	x.standing(t, "dead switch leaf8", "duplicate name h6", "miswired cable leaf3[7] spine3[3]",
		"miswired cable leaf1[5] spine2[2]", "link down leaf4[6] spine2[4]", "flapping leaf4[6] spine2[4]")
	want := func(n int) {
		t.Helper()
		for _, path := range []string{"status", "overview", "cables"} {
			var got struct{ Alarmed int }
			if x.get(t, "/api/v1/"+path, &got); got.Alarmed != n {
				t.Errorf("%s has %d cables to look at, want %d", path, got.Alarmed, n)
			}
		}
	}
	want(3)
	x.ask(t, "POST", "/api/v1/mutes", `{"node":"leaf8"}`)
	want(3)
	x.ask(t, "POST", "/api/v1/mutes", `{"link":"leaf4[6]"}`)
	want(2)
}

// Whatever an alarm is about, a node or a cable, it is muted by what it says that it is about, and it alone.
func TestMutes(t *testing.T) {
	x := troubled(t)
	kinds := []string{"dead switch leaf8", "duplicate name h6", "miswired cable leaf3[7] spine3[3]",
		"miswired cable leaf1[5] spine2[2]", "link down leaf4[6] spine2[4]"}
	for _, a := range x.standing(t, kinds...) {
		ask := fmt.Sprintf(`{"link":%q,"kind":%q,"minutes":5}`, a.Link, a.Kind)
		if a.Node != "" {
			ask = fmt.Sprintf(`{"node":%q,"kind":%q,"minutes":5}`, a.Node, a.Kind)
		}
		if isCable := strings.Contains(a.Link, " "); isCable != (a.Node == "") {
			t.Errorf("%s of %s is of the node %q", a.Kind, a.Link, a.Node)
		}
		resp, data := x.ask(t, "POST", "/api/v1/mutes", ask)
		var rule manager.Mute
		if err := json.Unmarshal(data, &rule); err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %s: %s", ask, resp.Status, data)
			continue
		}
		for _, b := range x.standing(t, kinds...) {
			if is, want := b.Muted != nil, b.ID == a.ID; is != want {
				t.Errorf("after %s: %s of %s is muted: %v", ask, b.Kind, b.Link, is)
			}
		}
		x.ask(t, "DELETE", fmt.Sprintf("/api/v1/mutes/%d", rule.ID), "")
	}
	// By cable also where there is no alarm, and by names that people use. A host's name as a link's is its cable.
	for ask, want := range map[string]string{
		`{"link":"h1"}`: "h1[1] leaf1[1]", `{"link":"leaf1[1]"}`: "h1[1] leaf1[1]",
		`{"link":"leaf1 h1"}`: "h1[1] leaf1[1]", `{"node":"h1"}`: "h1",
		fmt.Sprintf(`{"node":"%v"}`, x.m.Graph().ByName("spine1").GUID): "spine1",
	} {
		var rule manager.Mute
		resp, data := x.ask(t, "POST", "/api/v1/mutes", ask)
		if err := json.Unmarshal(data, &rule); err != nil || resp.StatusCode != 200 || rule.Link != want {
			t.Errorf("%s: %s: a rule about %q, want %q", ask, resp.Status, rule.Link, want)
		}
	}
	for ask, want := range map[string]int{`{"node":"nobody"}`: 404, `{"node":"h1[1]"}`: 404, `{"link":"leaf8"}`: 404,
		`{"node":"leaf8","link":"leaf8[1]"}`: 400} {
		if resp, data := x.ask(t, "POST", "/api/v1/mutes", ask); resp.StatusCode != want {
			t.Errorf("%s: %s: %s", ask, resp.Status, data)
		}
	}
}

// The past of a port, of a node, of a time of one's own, and as a table. Nothing waits longer than all the time.
func TestPast(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", 20*time.Millisecond)
	x.f.setLoad(1)
	x.f.mu.Lock()
	x.f.wait = 5 // times as long as there was
	x.f.mu.Unlock()
	var port, node historyShown
	for late := time.Now().Add(time.Minute); len(port.Times) < 2; time.Sleep(20 * time.Millisecond) {
		if x.get(t, "/api/v1/history?port=h1[1]&seconds=60", &port); time.Now().After(late) {
			t.Fatal("there is no past")
		}
	}
	var o overview
	x.get(t, "/api/v1/overview?seconds=60", &o)
	if len(o.Traffic.Times) == 0 || len(o.Talkers) == 0 || o.Talkers[0].Sent == 0 || o.Talkers[0].Mbps == 0 {
		t.Errorf("%+v", o)
	}
	x.get(t, "/api/v1/history?node=leaf1&seconds=60", &node)
	last := func(s []*float64) float64 {
		for i := len(s) - 1; i >= 0; i-- {
			if s[i] != nil {
				return *s[i]
			}
		}
		return 0
	}
	sent, received, wait := node.Series["xmit_bytes"], node.Series["rcv_bytes"], node.Series["xmit_wait"]
	if node.Node != "leaf1" || last(sent.Avg) <= last(sent.Max) || last(received.Avg) == 0 {
		t.Errorf("the sum of leaf1's ports is %g, the busiest %g", last(sent.Avg), last(sent.Max))
	}
	for _, s := range [][]*float64{wait.Avg, wait.Max, port.Series["xmit_wait"].Max} {
		for _, v := range s {
			if v != nil && *v > 1 {
				t.Fatalf("a wait of %g of the time", *v)
			}
		}
	}
	if last(wait.Max) == 0 {
		t.Error("nothing waits")
	}
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	from, to := at(-time.Hour), at(time.Hour)
	resp, data := x.ask(t, "GET", "/api/v1/history.csv?port=h1[1]&from="+from+"&to="+to, "")
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || len(rows) < 2 || rows[0][0] != "time" || !strings.HasPrefix(rows[0][1], "xmit_bytes") ||
		resp.Header.Get("Content-Disposition") != `attachment; filename="h1-1-.csv"` {
		t.Errorf("%v: %q, %v", err, data, resp.Header)
	}
	for _, bad := range []string{"from=yesterday", "from=" + to + "&to=" + from} {
		for _, what := range []string{"history", "history.csv"} {
			if resp, data := x.ask(t, "GET", "/api/v1/"+what+"?port=h1[1]&"+bad, ""); resp.StatusCode != 400 {
				t.Errorf("%s: %s: %s", bad, resp.Status, data)
			}
		}
	}
}

// The reports of the commands, on the page.
func TestChecks(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", time.Hour)
	var doctor struct {
		Fabric   struct{ Hosts, Questions int }
		Sections []struct{ Check, Severity string }
	}
	x.get(t, "/api/v1/checks/doctor?interval=20ms", &doctor)
	if doctor.Fabric.Hosts != 8 || doctor.Fabric.Questions == 0 || len(doctor.Sections) < 10 {
		t.Errorf("%+v", doctor)
	}
	for _, bad := range []string{"soon", "-1s", "48h"} {
		resp, data := x.ask(t, "GET", "/api/v1/checks/doctor?interval="+bad, "")
		if resp.StatusCode != 400 || !strings.Contains(string(data), `"field":"interval"`) {
			t.Errorf("%s: %s: %s", bad, resp.Status, data)
		}
	}
	var inv struct {
		Nodes []nodeLine
		Bill  struct {
			Cables int `json:"cable_count"`
		}
	}
	x.get(t, "/api/v1/checks/inventory", &inv)
	if len(inv.Nodes) != 14 || inv.Bill.Cables != 16 || inv.Nodes[0].GUID == "" {
		t.Errorf("%+v", inv)
	}
	x.ask(t, "PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":"down"}`)
	var wires struct {
		OK       bool
		Cables   int
		Findings []struct{ Text string }
	}
	x.get(t, "/api/v1/checks/wiring", &wires)
	if wires.OK || wires.Cables != 15 || len(wires.Findings) == 0 ||
		!strings.Contains(wires.Findings[0].Text, "leaf1[3]") {
		t.Errorf("a cable is missing: %+v", wires)
	}
}

// FDR10 is not QDR, which is all that the standard's PortInfo says.
func TestFDR10(t *testing.T) {
	x := newGround(t, "star:2,speed=FDR10", time.Hour)
	var node struct{ Ports []struct{ Rate string } }
	x.get(t, "/api/v1/node?name=h1", &node)
	if len(node.Ports) != 1 || node.Ports[0].Rate != "4x FDR10" {
		t.Errorf("%+v", node)
	}
}

func TestSearch(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", time.Hour)
	h3, _ := x.m.Node("h3")
	lid := x.m.LID(x.m.Ports()[0])
	for _, c := range []struct{ q, first string }{
		{"h3", "h3"}, {"H3", "h3"}, {"spine", "spine1"}, {"leaf1[3]", "leaf1[3]"}, {guidText(h3.GUID), "h3"},
		{"0x" + guidText(h3.PortGUID(1)), "h3"},
		{fmt.Sprint(uint16(lid)), x.m.Graph().Nodes[x.m.Ports()[0].Node].Name},
		{fmt.Sprintf("0x%x", uint16(lid)), x.m.Graph().Nodes[x.m.Ports()[0].Node].Name},
	} {
		var list []found
		x.get(t, "/api/v1/search?q="+c.q, &list)
		at := -1
		for i, f := range list {
			if f.Name == c.first {
				at = i
			}
		}
		if at < 0 {
			t.Errorf("%q does not find %s: %+v", c.q, c.first, list)
		}
	}
}

// Every wrong request says what is wrong, with what, and what to do; and changes nothing.
func TestRefusals(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", time.Hour)
	before := x.m.Journal().Last()
	long := `{"name":"` + strings.Repeat("x", bodyMax) + `"}`
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"GET", "/api/v1/nothing", "", 404, ""},
		{"GET", "/nothing", "", 404, ""},
		{"POST", "/", "", 405, ""},
		{"PATCH", "/api/v1/faults", "{}", 404, ""},
		{"GET", "/api/v1/node?name=h99", "", 404, "name"},
		{"GET", "/api/v1/link?port=leaf1[99]", "", 404, "port"},
		{"GET", "/api/v1/link?port=", "", 400, "port"},
		{"GET", "/api/v1/link?port=a%20b%20c", "", 400, "port"},
		{"GET", "/api/v1/route?from=h1&to=h1", "", 400, "to"},
		{"GET", "/api/v1/route?from=leaf1&to=h1", "", 400, "from"},
		{"GET", "/api/v1/route?from=h1&to=h99", "", 404, "to"},
		{"GET", "/api/v1/search?q=", "", 400, "q"},
		{"GET", "/api/v1/events?max=none", "", 400, "max"},
		{"GET", "/api/v1/history?port=h1&seconds=1", "", 400, "seconds"},
		{"GET", "/api/v1/history?port=h99", "", 404, "port"},
		{"PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":"sideways"}`, 400, "fault"},
		{"PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":"ber=2"}`, 400, "fault"},
		{"PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":""}`, 400, "fault"},
		{"PUT", "/api/v1/faults", `{"link":"leaf9[3]","fault":"down"}`, 404, "link"},
		{"PUT", "/api/v1/faults", `{"link":7,"fault":"down"}`, 400, "link"},
		{"PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":"down","more":1}`, 400, "more"},
		{"PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":"down"} x`, 400, "body"},
		{"PUT", "/api/v1/faults", `{`, 400, "body"},
		{"DELETE", "/api/v1/faults?link=h99", "", 404, "link"},
		{"POST", "/api/v1/tenants", `{"name":""}`, 400, "name"},
		{"POST", "/api/v1/tenants", `{"name":"a b/c"}`, 400, "name"},
		{"POST", "/api/v1/tenants", `{"name":"red","key":"0x7fff"}`, 400, ""},
		{"POST", "/api/v1/tenants", `{"name":"red","key":"many"}`, 400, "key"},
		{"POST", "/api/v1/tenants", `{"name":"red","hosts":["h99"]}`, 400, "hosts"},
		{"POST", "/api/v1/tenants", `{"name":"red","sl":16}`, 400, "sl"},
		{"POST", "/api/v1/tenants", `{"name":"red","gbps":33}`, 400, "gbps"},
		{"POST", "/api/v1/tenants", `{"name":"red","hosts":["leaf1"]}`, 400, "hosts"},
		{"POST", "/api/v1/tenants", `{"name":"red","hosts":["h3-h1"]}`, 400, "hosts"},
		{"POST", "/api/v1/tenants", long, 413, "body"},
		{"POST", "/api/v1/tenants/red/hosts", `{"add":["h1"]}`, 404, "name"},
		{"POST", "/api/v1/tenants/red/hosts", `{}`, 400, "add"},
		{"DELETE", "/api/v1/tenants/red", "", 404, "name"},
	} {
		resp, data := x.ask(t, c.method, c.path, c.body)
		var e apiError
		if err := json.Unmarshal(data, &e); c.status != 405 && (err != nil || e.Text == "" || e.Next == "") {
			t.Errorf("%s %s: no reason or nothing to do next in %s (%v)", c.method, c.path, data, err)
		}
		if resp.StatusCode != c.status || c.field != "" && e.Field != c.field {
			t.Errorf("%s %s %.80s: %d for %q, want %d for %q: %s", c.method, c.path, c.body, resp.StatusCode, e.Field,
				c.status, c.field, data)
		}
	}
	if len(x.m.Faults()) != 0 || len(x.book.List()) != 0 || x.m.Journal().Last() != before {
		t.Errorf("refused requests left %d faults, %d tenants, %d events", len(x.m.Faults()), len(x.book.List()),
			x.m.Journal().Last()-before)
	}
}

// Another site's page must not get at the fabric through somebody's browser.
func TestForeignSites(t *testing.T) {
	x := newGround(t, "star:2", time.Hour)
	const fault = `{"link":"sw1[1]","fault":"drop=0.5"}`
	for _, c := range []struct {
		why    string
		status int
		header []string
	}{
		{"a name that was bound to this address", 421, []string{"Host", "evil.example"}},
		{"a name with a port", 421, []string{"Host", "evil.example:8080"}},
		{"no name", 421, []string{"Host", "localhost.evil.example"}},
		{"another origin", 403, []string{"Origin", "https://evil.example"}},
		{"another port's origin", 403, []string{"Origin", "http://127.0.0.1:1"}},
		{"an opaque origin", 403, []string{"Origin", "null"}},
		{"what browsers say of other sites", 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"and of other hosts of a site", 403, []string{"Sec-Fetch-Site", "same-site"}},
		{"a form", 415, []string{"Content-Type", "text/plain"}},
		{"a form of another type", 415, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"no type", 415, []string{"Content-Type", ""}},
	} {
		resp, data := x.ask(t, "PUT", "/api/v1/faults", fault, c.header...)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d: %s", c.why, resp.StatusCode, c.status, data)
		}
	}
	if len(x.m.Faults()) != 0 {
		t.Fatal("a fault was set from elsewhere")
	}
	if resp, _ := x.ask(t, "GET", "/api/v1/status", "", "Sec-Fetch-Site", "cross-site"); resp.StatusCode != 403 {
		t.Errorf("another site's page reads: %d", resp.StatusCode)
	}
	for _, header := range [][]string{{}, {"Origin", x.http.URL}, {"Sec-Fetch-Site", "same-origin"},
		{"Host", "localhost:7"}, {"Host", "[::1]:7"}} {
		if resp, data := x.ask(t, "PUT", "/api/v1/faults", fault, header...); resp.StatusCode != 200 {
			t.Errorf("our own page with %v: %d %s", header, resp.StatusCode, data)
		}
	}
	named := New(x.m, Options{Hosts: []string{"fabric.example"}})
	defer named.Close()
	if !named.knownHost("Fabric.Example:443") || named.knownHost("other.example") {
		t.Error("names that were given are not those that are known")
	}
}

func TestHeaders(t *testing.T) {
	x := newGround(t, "star:2", time.Hour)
	resp, page := x.ask(t, "GET", "/", "")
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "script-src 'self'") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the page may load: %s", policy)
	}
	for _, word := range []string{"http://", "https://", "style=", "onclick="} {
		if bytes.Contains(page, []byte(word)) {
			t.Errorf("the page has %q in it", word)
		}
	}
	resp, plain := x.ask(t, "GET", "/api/v1/topology", "", "Accept-Encoding", "identity")
	tag := resp.Header.Get("ETag")
	if tag == "" || !json.Valid(plain) {
		t.Fatalf("topology: tag %q, %.100s", tag, plain)
	}
	resp, packed := x.ask(t, "GET", "/api/v1/topology", "", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(z); err != nil || !bytes.Equal(unpacked, plain) ||
		resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("compressed topology is another one (%v)", err)
	}
	if resp, _ := x.ask(t, "GET", "/api/v1/topology", "", "If-None-Match", `"other", `+tag); resp.StatusCode != 304 {
		t.Errorf("unchanged topology: %d, want 304", resp.StatusCode)
	}
	// Everything that the page is made of is there, with its right type.
	for path, f := range staticFiles() {
		resp, data := x.ask(t, "GET", path, "", "Accept-Encoding", "identity")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != f.kind || f.kind == "" || len(data) == 0 {
			t.Errorf("%s: %d, %s, %d bytes", path, resp.StatusCode, resp.Header.Get("Content-Type"), len(data))
		}
	}
}

func TestFaults(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", time.Hour)
	var list []faultShown
	set := func(method, path, body string) {
		t.Helper()
		resp, data := x.ask(t, method, path, body)
		if err := json.Unmarshal(data, &list); resp.StatusCode != 200 || err != nil {
			t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, data)
		}
	}
	set("PUT", "/api/v1/faults", `{"link":"leaf1[3]","fault":"down"}`)
	set("PUT", "/api/v1/faults", `{"link":"h8","fault":"ber=1e-6 rate=10G delay=5us"}`)
	if len(list) != 2 || list[0].Fault != "ber=1e-06 rate=10G delay=5µs" &&
		list[1].Fault != "ber=1e-06 rate=10G delay=5µs" {
		t.Fatalf("faults: %+v", list)
	}
	var l linkShown
	x.get(t, "/api/v1/link?port=leaf1[3]", &l)
	if l.Fault == nil || l.Fault.Fault != "down" {
		t.Errorf("the link does not know its fault: %+v", l.Fault)
	}
	set("DELETE", "/api/v1/faults?link=spine1[1]", "")
	if len(list) != 1 {
		t.Errorf("one of two was lifted: %+v", list)
	}
	set("DELETE", "/api/v1/faults", "")
	if len(list) != 0 || len(x.m.Faults()) != 0 {
		t.Errorf("all were lifted: %+v", list)
	}
}

// deadlined notes until when an answer has to be written.
type deadlined struct {
	*httptest.ResponseRecorder
	write time.Time
}

func (d *deadlined) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// TestSlowAnswer: what takes long to find out is not cut off, and then there is time to read it.
func TestSlowAnswer(t *testing.T) {
	w := &deadlined{ResponseRecorder: httptest.NewRecorder(), write: time.Now()}
	answer(func(*http.Request) (any, error) {
		if !w.write.IsZero() {
			t.Errorf("nothing is known yet, and the answer has to be read until %v", w.write)
		}
		return 1, nil
	}).ServeHTTP(w, nil)
	if time.Until(w.write) < answerLimit/2 {
		t.Errorf("to be read until %v", w.write)
	}
}

func TestTenants(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", time.Hour)
	var one tenantShown
	do := func(method, path, body string, v any) {
		t.Helper()
		resp, data := x.ask(t, method, path, body)
		if err := json.Unmarshal(data, v); resp.StatusCode != 200 || err != nil {
			t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, data)
		}
	}
	do("POST", "/api/v1/tenants", `{"name":"red","hosts":["h1-h3","h5"],"key":"0x11"}`, &one)
	if one.Key != "0x0011" || strings.Join(one.Hosts, " ") != "h1 h2 h3 h5" {
		t.Fatalf("created %+v", one)
	}
	if resp, data := x.ask(t, "POST", "/api/v1/tenants", `{"name":"red"}`); resp.StatusCode != 409 {
		t.Errorf("the same name again: %d %s", resp.StatusCode, data)
	}
	do("POST", "/api/v1/tenants/red/hosts", `{"add":["h6"],"remove":["h1","h2"]}`, &one)
	if strings.Join(one.Hosts, " ") != "h3 h5 h6" {
		t.Errorf("after one change: %v", one.Hosts)
	}
	if resp, data := x.ask(t, "POST", "/api/v1/tenants/red/hosts", `{"remove":["h8"]}`); resp.StatusCode != 400 ||
		!bytes.Contains(data, []byte("remove")) {
		t.Errorf("a stranger was removed: %d %s", resp.StatusCode, data)
	}
	var n nodeShown
	x.get(t, "/api/v1/node?name=h3", &n)
	if len(n.Tenants) != 1 || n.Tenants[0] != "red" {
		t.Errorf("h3 is of %v", n.Tenants)
	}
	var all tenantList
	do("DELETE", "/api/v1/tenants/red", "", &all)
	if len(all.Tenants) != 0 || len(x.book.List()) != 0 {
		t.Errorf("after the last went: %+v", all)
	}
}
