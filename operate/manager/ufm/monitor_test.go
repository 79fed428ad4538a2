package ufm

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/subnet/policy"
)

// monitored is what clients read: by time, by class, by name.
type monitored map[string]map[string]map[string]struct {
	DName      string             `json:"dname"`
	Updated    string             `json:"last_updated"`
	Statistics map[string]float64 `json:"statistics"`
}

// of is what there is of a class, which has to be all.
func (x monitored) of(t *testing.T, class string) map[string]map[string]float64 {
	t.Helper()
	out := map[string]map[string]float64{}
	for at, classes := range x {
		if _, err := time.Parse(time.DateTime, at); err != nil || len(x) != 1 || len(classes) != 1 {
			t.Errorf("%d times, one is %q with %d classes", len(x), at, len(classes))
		}
		for name, o := range classes[class] {
			if o.DName == "" || o.Updated != at {
				t.Errorf("%s is called %q at %q, want %q", name, o.DName, o.Updated, at)
			}
			out[name] = o.Statistics
		}
	}
	return out
}

// TestMonitoring makes the calls of those who monitor: IBM's Big Data Store asks for all ports at once, Lenovo's LiCO
// for switches and then for the ports of each, UFM SDK's scripts for session 0 and for the largest, others begin a
// session.
func TestMonitoring(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	p.want(200, "POST", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":["`+p.guid(2)+`","`+p.guid(3)+`"]}`)
	linkDown(t, p) // of leaf1 to spine1; samples are taken from now on
	m := p.s.cfg.Manager
	g := p.f.Graph()
	leaf, spine := guidText(g.ByName("leaf1").GUID), guidText(g.ByName("spine1").GUID)
	known := into[attributesShape](t, p.want(200, "GET", "/ufmRest/monitoring/attributes", nil))
	if len(known.Attributes) != len(attributes) || !slices.Equal(known.Classes, []string{"Device", "Port"}) {
		t.Errorf("%+v", known)
	}
	ask := map[string]any{"scope_object": "Site", "monitor_object": "Port", "attributes": known.Attributes,
		"functions": []string{"RAW"}, "interval": 2, "objects": []string{"Grid.default"}}
	low := m.Sample()
	ports := into[monitored](t, p.want(200, "POST", "/ufmRest/monitoring/snapshot", ask)).of(t, "Port")
	high := m.Fresh()
	checked := 0
	for i, r := range m.Ports() {
		n := g.Nodes[r.Node]
		x := ports[portName(n, r.Port)]
		if !n.Ports[r.Port].Connected() {
			continue
		}
		checked++
		for name, k := range map[string]ib.Counter{"Infiniband_MBOut": ib.PortXmitData,
			"Infiniband_PckIn": ib.PortRcvPkts, "Infiniband_LinkDowned": ib.LinkDownedCounter} {
			v, ok := x[name]
			if !ok || v < float64(low.Ports[i].Counters[k]) || v > float64(high.Ports[i].Counters[k]) {
				t.Errorf("%s[%d]: %s is %v, want %d to %d", n.Name, r.Port, name, v, low.Ports[i].Counters[k],
					high.Ports[i].Counters[k])
			}
		}
		if len(x) != len(attributes) {
			t.Errorf("%s[%d] has %d attributes, want %d", n.Name, r.Port, len(x), len(attributes))
		}
	}
	if checked == 0 || len(ports) != checked {
		t.Errorf("%d ports, want %d", len(ports), checked)
	}

	// Of systems, the sum of their ports; of a part of them, that part.
	ask["scope_object"], ask["monitor_object"] = "Device", "Device"
	ask["attributes"] = []string{"Infiniband_LinkDowned", "Infiniband_MBOutRate", "Infiniband_LinkDowned"}
	ask["objects"] = []string{"Grid.default." + leaf, "Grid.default." + spine}
	two := into[monitored](t, p.want(200, "POST", "/ufmRest/monitoring/snapshot", ask)).of(t, "Device")
	if len(two) != 2 || two[leaf]["Infiniband_LinkDowned"] != 1 || two[spine]["Infiniband_LinkDowned"] != 1 ||
		len(two[leaf]) != 2 {
		t.Errorf("leaf1 and spine1: %v", two)
	}
	ask["monitor_object"], ask["objects"] = "Port", []string{"Grid.default." + leaf}
	if of := into[monitored](t, p.want(200, "POST", "/ufmRest/monitoring/snapshot", ask)).of(t, "Port"); len(of) != 4 ||
		of[leaf+"_3"]["Infiniband_LinkDowned"] != 1 || of[leaf+"_1"]["Infiniband_LinkDowned"] != 0 {
		t.Errorf("the ports of leaf1: %v", of)
	}

	// A session, by the address that the answer names.
	ask["objects"] = []string{"Grid.default.leaf1." + leaf + "_3", "Grid.default.h2"}
	r := p.want(202, "POST", "/ufmRestV2/monitoring/start", ask)
	at := r.header.Get("Location")
	if x := into[monitorShape](t, p.want(200, "GET", at, nil)); x.ID != into[monitorShape](t,
		r).ID || x.Interval != 2 || x.Monitor != "Port" || len(x.Attributes) != 2 || len(x.Objects) != 2 {
		t.Errorf("%s: %+v", at, x)
	}
	data := into[monitored](t, p.want(200, "GET", at+"/data", nil)).of(t, "Port")
	if _, ok := data[p.guid(2)+"_1"]; len(data) != 2 || !ok || data[leaf+"_3"]["Infiniband_LinkDowned"] != 1 {
		t.Errorf("%s/data: %v", at, data)
	}
	p.want(200, "DELETE", at, nil)
	p.want(404, "GET", at+"/data", nil)

	// Session 0 is always there, and a partition's part of it is its hosts'.
	if all := into[monitored](t, p.want(200, "GET", "/ufmRest/monitoring/session/0/data", nil)).of(t,
		"Port"); len(all) != checked {
		t.Errorf("session 0 has %d ports, want %d", len(all), checked)
	}
	if part := into[monitored](t, p.want(200, "GET", "/ufmRest/monitoring/session/0/data?pkey=0x5", nil)).of(t,
		"Port"); len(part) != 2 || part[p.guid(3)+"_1"] == nil {
		t.Errorf("of the partition of h2 and h3: %v", part)
	}

	type top struct {
		Data map[string]map[string][]topShape
	}
	worst := into[top](t, p.want(200, "GET", "/ufmRest/monitoring/aggr_topx?object=switches&attr=alarms",
		nil)).Data["device"]["Alarms"]
	if len(worst) != 2 || !slices.ContainsFunc(worst, func(x topShape) bool { return x.Name == leaf && x.Value == 1 }) {
		t.Errorf("switches with alarms: %+v", worst)
	}
	for _, class := range []string{"device", "port"} {
		bw := into[top](t, p.want(200, "GET", "/ufmRest/monitoring/aggr_topx?object=servers&attr=bw", nil)).Data[class]
		if bw["TxBW"] == nil || bw["RxBW"] == nil {
			t.Errorf("the largest by traffic, by %s: %v", class, bw)
		}
	}
}

// TestReading: units, and what stands for many ports.
func TestReading(t *testing.T) {
	rate := ib.LinkRate{Speed: ib.HDR, Width: ib.Width4x}
	full := float64(rate.Mbps()) * 1e6 / 8
	var x reading
	for _, share := range []float64{1, 0.5} {
		p := manager.PortSample{Rate: rate, XmitBytes: float32(full * share), RcvPkts: 7, Wait: float32(share / 2)}
		p.Counters[ib.PortXmitData], p.Counters[ib.SymbolErrorCounter] = 1000, 3
		x.add(&p)
	}
	x.add(&manager.PortSample{}) // without a link
	for name, want := range map[string]float64{"Infiniband_MBOut": 2000, "Infiniband_MBOutRate": 1.5 * full / 1e6,
		"Infiniband_PckInRate": 14, "Infiniband_SymbolErrors": 6, "Infiniband_CumulativeErrors": 6,
		"Infiniband_CBW": 0.75 * full / 1e6, "Infiniband_Normalized_MBOut": 75, "Infiniband_Normalized_CBW": 37.5,
		"Infiniband_MBIn": 0} {
		i := slices.IndexFunc(attributes[:], func(a attribute) bool { return a.name == name })
		if got := attributes[i].of(&x); got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if v := (&reading{xmit: 5}).percent(5); v != 0 {
		t.Errorf("without a link %v %% are in use", v)
	}
}

// TestManyMonitors: who begins session after session gets so many places and no more, takes none from others before all
// are gone, and those that nobody reads end by themselves.
func TestManyMonitors(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newPlace(t, "star:2", policy.Partitions{}, func(c *Config) { c.Now = func() time.Time { return now } })
	ask := `{"monitor_object":"Port","attributes":["Infiniband_MBIn"],"objects":["Grid.default"],"interval":60}`
	start := func(user int) reply {
		return p.do("POST", "/ufmRest/monitoring/start", ask, "Authorization",
			"Basic "+base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "user%d:x", user)))
	}
	places := 0
	for user := range 10 {
		for n := range monitorsOfUser + 4 {
			r := start(user)
			switch {
			case r.status == 202:
				places++
				if n >= monitorsOfUser {
					t.Errorf("user%d has begun %d sessions", user, n+1)
				}
			case r.status != 429 || r.header.Get("Retry-After") == "" || n < monitorsOfUser && places < monitorsMax:
				t.Errorf("user%d, session %d, of %d: %d %s", user, n+1, places, r.status, r.body)
			}
		}
	}
	if places != monitorsMax {
		t.Errorf("%d sessions, want %d", places, monitorsMax)
	}
	now = now.Add(monitorRest)
	p.want(200, "GET", "/ufmRest/monitoring/session/1/data", nil) // it is read, and stays
	now = now.Add(3 * time.Minute)                                // the others have had ten minutes and two of 60 s
	p.want(404, "GET", "/ufmRest/monitoring/session/2/data", nil)
	p.want(200, "GET", "/ufmRest/monitoring/session/1/data", nil)
	if r := start(3); r.status != 202 || len(p.s.monitors.list) != 2 {
		t.Errorf("%d with %d sessions: %s", r.status, len(p.s.monitors.list), r.body)
	}
}
