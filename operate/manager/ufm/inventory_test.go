package ufm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
)

// TestTrouble: a link that goes down, and keys that are wrong, are found by those who look.
func TestTrouble(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	run := func(name string) jobShape {
		t.Helper()
		return p.awaitJob(p.want(202, "POST", "/ufmRest/fabricValidation/tests/"+name, nil).header.Get("Location"))
	}
	names := into[[]string](t, p.want(200, "GET", "/ufmRest/fabricValidation/tests", nil))
	for _, name := range names {
		if j := run(name); j.Status != jobCompleted || j.Progress != 100 || j.Summary == "" || j.CreatedBy == "" {
			t.Errorf("%s on a good fabric: %+v", name, j)
		}
	}
	p.want(200, "POST", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":["`+p.guid(2)+`","`+p.guid(3)+`"]}`)
	if j := run("CheckPartitionKey"); j.Status != jobCompleted {
		t.Errorf("with a partition: %+v", j)
	}
	r, err := p.m.Link("leaf1", "spine1")
	if err != nil {
		t.Fatal(err)
	}
	before := len(into[[]linkShape](t, p.want(200, "GET", "/ufmRest/resources/links", nil)))
	if err := p.m.SetFault(r, manager.FaultSpec{Down: true}, "a test"); err != nil {
		t.Fatal(err)
	}
	if n := len(into[[]linkShape](t, p.want(200, "GET", "/ufmRest/resources/links", nil))); n != before-1 {
		t.Errorf("%d links after one of %d went down", n, before)
	}
	j := run("CheckLinks")
	if j.Status != jobWithErrors {
		t.Errorf("CheckLinks with a link down: %+v", j)
	}
	parts := into[[]jobShape](t, p.want(200, "GET", "/ufmRest/jobs?parent_id="+j.ID, nil))
	if len(parts) == 0 || !slices.ContainsFunc(parts,
		func(x jobShape) bool { return len(x.Related) == 1 && x.Related[0] == "leaf1[3] spine1[1]" }) {
		t.Errorf("parts: %+v", parts)
	}
	if one := into[jobShape](t, p.want(200, "GET", "/ufmRest/jobs/"+parts[0].ID,
		nil)); one.Summary != parts[0].Summary {
		t.Errorf("%+v", one)
	}
	down := into[[]portShape](t, p.want(200, "GET", "/ufmRest/resources/ports/"+
		portName(p.f.Graph().Nodes[r.Node], r.Port), nil))
	if len(down) != 1 || down[0].LogicalState != "Down" || down[0].ActiveSpeed != nil || down[0].Peer != notAvailable ||
		down[0].SystemName != "leaf1" {
		t.Errorf("the port of the link that is down: %+v", down)
	}
	events := into[[]eventShape](t, p.want(200, "GET", "/ufmRest/app/events?severity=Warning&category=Maintenance",
		nil))
	if len(events) != 1 || events[0].ObjectName != "leaf1[3] spine1[1]" || events[0].Name != "Fault Injected" {
		t.Errorf("events: %+v", events)
	}
	if one := into[eventShape](t, p.want(200, "GET", fmt.Sprintf("/ufmRest/app/events/%d", events[0].ID),
		nil)); one != events[0] {
		t.Errorf("%+v", one)
	}
	// Jobs are listed, newest first, and can be deleted.
	all := into[[]jobShape](t, p.want(200, "GET", "/ufmRest/jobs", nil))
	if len(all) != len(names)+2 || all[0].ID != j.ID {
		t.Errorf("%d jobs, the first is %+v", len(all), all[0])
	}
	if got := into[[]jobShape](t, p.want(200, "GET", "/ufmRest/jobs?operation=CheckLinks&status=completed+with+errors",
		nil)); len(got) != 1 {
		t.Errorf("jobs: %+v", got)
	}
	if got := into[[]jobShape](t, p.want(200, "GET", "/ufmRest/jobs/1,2,999", nil)); len(got) != 2 {
		t.Errorf("jobs 1, 2 and one that is not there: %+v", got)
	}
	// Clients of another kind find the same under app/jobs.
	for _, path := range []string{"", "?operation=CheckLinks", "?parent_id=" + j.ID, "/" + j.ID, "/" + parts[0].ID,
		"/" + j.ID + ",999"} {
		is := p.want(200, "GET", "/ufmRest/app/jobs"+path, nil).body
		want := p.want(200, "GET", "/ufmRest/jobs"+path, nil).body
		if is != want || !strings.Contains(is, `"ID":"`+j.ID) {
			t.Errorf("app/jobs%s: %s, want %s", path, is, want)
		}
	}
	p.want(200, "DELETE", "/ufmRest/jobs/"+j.ID, nil)
	for _, gone := range []string{j.ID, parts[0].ID, "999"} {
		for _, path := range []string{"/ufmRest/jobs/", "/ufmRest/app/jobs/"} {
			if got := p.want(404, "GET", path+gone, nil).body; !strings.Contains(got, "there is no job "+gone) {
				t.Errorf("%s%s: %s", path, gone, got)
			}
		}
	}
	p.want(400, "GET", "/ufmRest/app/jobs/x", nil)
}

// TestAlarms: what is wrong with a cable is an alarm at both its ends until it is put right.
func TestAlarms(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	if got := into[[]alarmShape](t, p.want(200, "GET", "/ufmRest/app/alarms", nil)); len(got) != 0 {
		t.Errorf("alarms of a good fabric: %+v", got)
	}
	a := linkDown(t, p)
	for _, device := range []string{"leaf1", "spine1", guidText(p.f.Graph().ByName("leaf1").GUID)} {
		if got := into[[]alarmShape](t, p.want(200, "GET", "/ufmRest/app/alarms?device_id="+device,
			nil)); !slices.ContainsFunc(got, func(x alarmShape) bool { return x.ID == a.ID }) {
			t.Errorf("alarms of %s: %+v", device, got)
		}
	}
	if got := into[[]alarmShape](t, p.want(200, "GET", "/ufmRest/app/alarms?device_id=h8", nil)); len(got) != 0 {
		t.Errorf("alarms of h8: %+v", got)
	}
	if one := into[alarmShape](t, p.want(200, "GET", fmt.Sprintf("/ufmRest/app/alarms/%d", a.ID),
		nil)); one.Name != "Link is Down" || one.Severity != "Critical" || one.Type != "IBPort" {
		t.Errorf("%+v", one)
	}
	if s := into[[]systemShape](t, p.want(200, "GET", "/ufmRest/resources/systems/leaf1",
		nil))[0]; s.Severity != "Critical" || s.TotalAlarms != 1 {
		t.Errorf("leaf1: %+v", s)
	}
	p.want(200, "DELETE", fmt.Sprintf("/ufmRest/app/alarms/%d", a.ID), nil)
	p.want(404, "GET", fmt.Sprintf("/ufmRest/app/alarms/%d", a.ID), nil)
	p.want(200, "DELETE", "/ufmRest/app/alarms?device_id=leaf1", nil)
}

// linkDown takes a link down and waits for its alarm.
func linkDown(t *testing.T, p *place) alarmShape {
	t.Helper()
	r, err := p.m.Link("leaf1", "spine1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(manager.Options{Fabric: p.f, Tenants: p.book, Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p.serve(func(c *Config) { c.Manager = m })
	bell := m.Samples(t.Context())
	if err := m.SetFault(r, manager.FaultSpec{Down: true}, "a test"); err != nil {
		t.Fatal(err)
	}
	for end := time.After(60 * time.Second); ; {
		select {
		case <-bell:
		case <-end:
			t.Fatal("no alarm comes")
		}
		for _, a := range into[[]alarmShape](t, p.want(200, "GET", "/ufmRest/app/alarms", nil)) {
			if a.Name == "Link is Down" {
				return a
			}
		}
	}
}

// TestPages: a list in pages is the whole list.
func TestPages(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	all := into[[]portShape](t, p.want(200, "GET", "/ufmRest/resources/ports", nil))
	if len(all) != len(p.m.Ports()) {
		t.Fatalf("%d ports, want %d", len(all), len(p.m.Ports()))
	}
	var got []string
	for n := 1; ; n++ {
		x := into[struct {
			Data  []portShape
			Total int `json:"total_resources"`
		}](t, p.want(200, "GET", fmt.Sprintf("/ufmRest/resources/ports?page_number=%d&rpp=7", n), nil))
		if x.Total != len(all) || len(x.Data) > 7 {
			t.Fatalf("page %d: %d of %d", n, len(x.Data), x.Total)
		}
		if len(x.Data) == 0 {
			break
		}
		for _, d := range x.Data {
			got = append(got, d.Name)
		}
	}
	if len(got) != len(all) || got[0] != all[0].Name || got[len(got)-1] != all[len(all)-1].Name {
		t.Errorf("%d ports in pages, %d in one", len(got), len(all))
	}
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.Name] {
			t.Errorf("%s is there twice", d.Name)
		}
		seen[d.Name] = true
		i, ok := p.s.portByName(d.Name)
		if r := p.m.Ports()[i]; !ok || p.f.Graph().Nodes[r.Node].Name != d.SystemName || int(r.Port) != d.Number {
			t.Errorf("%s is found as %v", d.Name, r)
		}
		if d.LogicalState == "Active" && (d.LID == 0 || d.Peer == notAvailable || d.ActiveWidth == nil ||
			*d.ActiveWidth != "4x" || d.MTU != 4096) {
			t.Errorf("%+v", d)
		}
	}
	pi, _ := p.f.PortInfo(topo.PortRef{Node: p.f.Graph().Hosts()[2].Index, Port: 1})
	i := slices.IndexFunc(all, func(x portShape) bool { return x.SystemName == "h3" })
	if ib.LID(all[i].LID) != pi.LID || all[i].GUID != p.guid(3) || all[i].SystemType != "Computer" {
		t.Errorf("h3: %+v, want LID %v", all[i], pi.LID)
	}
	// Clients take the description of a switch's port apart at the colon.
	k := slices.IndexFunc(all, func(x portShape) bool { return x.SystemType == "Switch" && x.Number == 2 })
	if d := &all[k]; d.NodeDesc != d.SystemName+":2" || all[i].NodeDesc != "h3 HCA-1" ||
		!strings.Contains(all[i].PeerNodeDesc, ":") {
		t.Errorf("a switch's port: %+v", d)
	}
	if d := &all[i]; !slices.Contains(d.EnabledSpeed, "NDR") || !slices.Contains(d.EnabledSpeed, "SDR") ||
		!slices.Contains(d.EnabledWidth, "4x") {
		t.Errorf("enabled are %v and %v", d.EnabledSpeed, d.EnabledWidth)
	}
	links := p.want(200, "GET", "/ufmRest/resources/links", nil).body
	if got := p.want(200, "GET", "/ufmRest/app/links", nil).body; got != links {
		t.Errorf("app/links: %s", got)
	}
	for _, path := range []string{"/app/jobs", "/resources/vports", "/resources/vports?system=h3",
		"/resources/modules"} {
		if got := p.want(200, "GET", "/ufmRest"+path, nil).body; strings.TrimSpace(got) != "[]" {
			t.Errorf("%s: %s", path, got)
		}
	}
	p.want(404, "GET", "/ufmRest/resources/vports?system=nobody", nil)
	if x := into[map[string]any](t, p.want(200, "GET", "/ufmRest/app/smconf?param_name=sm_priority,m_key",
		nil)); len(x) != 2 || x["m_key"] != "0x0" {
		t.Errorf("%v", x)
	}
}
