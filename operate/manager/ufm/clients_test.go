package ufm

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/subnet/policy"
)

const smallTree = "fat-tree:radix=4,levels=2" // 8 hosts

// TestIBKubernetes makes the calls of ib-kubernetes' UFM plugin. It takes a status of 200 and no other, and reads the
// list of GUIDs as below.
func TestIBKubernetes(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	basic := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:123456")),
		"Content-Type", "application/json; charset=utf-8"}
	add := func(key int, guids ...string) {
		t.Helper()
		p.want(200, "POST", "/ufmRest/resources/pkeys",
			fmt.Sprintf(`{"pkey": "0x%04X", "index0": true, "ip_over_ib": true, "membership": "full", "guids": ["%s"]}`,
				key, strings.Join(guids, `","`)), basic...)
	}
	remove := func(key int, guids ...string) {
		t.Helper()
		p.want(200, "POST", "/ufmRest/actions/remove_guids_from_pkey",
			fmt.Sprintf(`{"pkey": "0x%04X", "guids": ["%s"]}`, key, strings.Join(guids, `","`)), basic...)
	}
	inUse := func() map[string]string {
		t.Helper()
		r := p.want(200, "GET", "/ufmRest/resources/pkeys/?guids_data=true", nil, basic...)
		list := into[map[string]struct {
			Guids []struct {
				GUID string `json:"guid"`
			} `json:"guids"`
		}](t, r)
		out := map[string]string{}
		for key, v := range list {
			for _, g := range v.Guids {
				mac := g.GUID // with a colon after each two digits
				for i := 2; i < len(mac); i += 3 {
					mac = mac[:i] + ":" + mac[i:]
				}
				out[mac] = key
			}
		}
		return out
	}
	p.want(200, "GET", "/ufmRest/app/ufm_version", nil, basic...)
	if got := inUse(); len(got) != 0 {
		t.Errorf("GUIDs in use before anything was added: %v", got)
	}
	virtual := "02000000deadbeef" // ib-kubernetes adds GUIDs of functions that come later
	add(0x7FE, p.guid(3), p.guid(5), virtual)
	p.inForce(0x7fe, 3, 5)
	if k := p.keys(3)[0]; k != 0x87fe {
		t.Errorf("index0 was asked for, and the first key of h3 is %v", k)
	}
	p.reaches(3, 5, 0x7fe, true)
	p.reaches(3, 4, 0x7fe, false)
	got := inUse()
	if len(got) != 3 || got["02:00:00:00:de:ad:be:ef"] != "0x7fe" {
		t.Errorf("GUIDs in use: %v", got)
	}
	add(0x7FE, p.guid(6))
	p.inForce(0x7fe, 3, 5, 6)
	remove(0x7FE, p.guid(5), "0200000000000099") // one that never was a member is none of its errors
	p.inForce(0x7fe, 3, 6)
	p.reaches(3, 5, 0x7fe, false)
	remove(0x7FE, p.guid(3), p.guid(6), virtual)
	p.inForce(0x7fe)
	remove(0x7FE, p.guid(3)) // the plugin repeats itself after a restart
	if got := inUse(); len(got) != 0 {
		t.Errorf("GUIDs in use after all were removed: %v", got)
	}
}

// TestInfraController makes the calls of infra-controller's UFM client with a token. It takes 200 and no other; a body
// of {} is "not found"; the shapes are those it reads.
func TestInfraController(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	token := into[tokenShape](t, p.want(200, "POST", "/ufmRest/app/tokens", nil)).Token
	head := []string{"Authorization", "Basic " + token, "Content-Type", "application/json", "User-Agent", "libufm"}
	const root = "/ufmRestV3"
	type qos struct {
		MTU  *uint16  `json:"mtu_limit"`
		SL   *uint8   `json:"service_level"`
		Rate *float32 `json:"rate_limit"`
	}
	type partition struct {
		Partition *string `json:"partition"`
		IPoIB     *bool   `json:"ip_over_ib"`
		QoS       *qos    `json:"qos_conf"`
		GUIDs     []struct {
			GUID       string `json:"guid"`
			Index0     *bool  `json:"index0"`
			Membership string `json:"membership"`
		} `json:"guids"`
		Membership string `json:"membership"`
	}
	whole := func(x partition) bool { return x.Partition != nil && x.IPoIB != nil }
	get := func(path string) (string, bool) {
		r := p.want(200, "GET", root+path, nil, head...)
		return r.body, r.body != "{}"
	}

	body, _ := get("/app/smconf")
	var conf struct {
		Prefix  *string `json:"subnet_prefix"`
		MKey    *string `json:"m_key"`
		SMKey   *string `json:"sm_key"`
		SAKey   *string `json:"sa_key"`
		PerPort *bool   `json:"m_key_per_port"`
	}
	if err := json.Unmarshal([]byte(body), &conf); err != nil || conf.Prefix == nil || conf.MKey == nil ||
		conf.SMKey == nil || conf.SAKey == nil || conf.PerPort == nil {
		t.Errorf("smconf %s: %v", body, err)
	} else if *conf.Prefix != "0xfe80000000000000" {
		t.Errorf("subnet prefix %s", *conf.Prefix)
	}
	body, _ = get("/app/ufm_version")
	var version struct {
		V *string `json:"ufm_release_version"`
	}
	if err := json.Unmarshal([]byte(body), &version); err != nil || version.V == nil || *version.V == "" {
		t.Errorf("version %s: %v", body, err)
	}

	if body, ok := get("/resources/pkeys/0x31a?guids_data=true&qos_conf=true"); ok {
		t.Errorf("a partition that is not there: %s", body)
	}
	bind := func(key string, guids ...string) {
		t.Helper()
		p.want(200, "POST", root+"/resources/pkeys", map[string]any{"pkey": key, "ip_over_ib": true,
			"membership": "full", "index0": true, "guids": guids}, head...)
	}
	bind("0x31a", p.guid(2), p.guid(4))
	p.inForce(0x31a, 2, 4)
	p.want(200, "PUT", root+"/resources/pkeys/qos_conf",
		`{"pkey":"0x31a","mtu_limit":4,"service_level":3,"rate_limit":200.0}`, head...)
	body, _ = get("/resources/pkeys/0x31a?guids_data=true&qos_conf=true")
	var one partition
	if err := json.Unmarshal([]byte(body), &one); err != nil || !whole(one) || *one.Partition != "api_pkey_0x31a" ||
		!*one.IPoIB {
		t.Fatalf("partition %s: %v", body, err)
	}
	if q := one.QoS; q == nil || q.MTU == nil || q.SL == nil || q.Rate == nil || *q.MTU != 4 || *q.SL != 3 ||
		*q.Rate != 200 {
		t.Errorf("QoS in %s", body)
	}
	if len(one.GUIDs) != 2 || one.GUIDs[0].GUID != p.guid(2) || one.GUIDs[0].Index0 == nil || !*one.GUIDs[0].Index0 ||
		one.GUIDs[0].Membership != "full" {
		t.Errorf("GUIDs in %s", body)
	}
	for _, arg := range []string{"guids_data", "qos_conf"} {
		body, _ = get("/resources/pkeys?" + arg + "=true")
		var all map[string]partition
		if err := json.Unmarshal([]byte(body), &all); err != nil || len(all) != 2 || !whole(all["0x31a"]) ||
			!whole(all["0x7fff"]) || *all["0x7fff"].Partition != "management" {
			t.Fatalf("%s: %s: %v", arg, body, err)
		}
		if arg == "guids_data" {
			// With tenants nobody is a full member any more, which is what a controller that keeps them apart wants to
			// see.
			if x := all["0x7fff"]; x.Membership != "limited" || x.GUIDs == nil || len(x.GUIDs) != 0 {
				t.Errorf("the default partition: %+v", x)
			}
		} else if all["0x7fff"].QoS == nil || all["0x31a"].QoS == nil {
			t.Errorf("no QoS in %s", body)
		}
	}

	body, _ = get("/resources/ports?sys_type=Computer")
	var ports []struct {
		GUID     *string `json:"guid"`
		Name     *string `json:"name"`
		System   *string `json:"systemID"`
		LID      *int32  `json:"lid"`
		DName    *string `json:"dname"`
		SysName  *string `json:"system_name"`
		Physical *string `json:"physical_state"`
		Logical  *string `json:"logical_state"`
	}
	if err := json.Unmarshal([]byte(body), &ports); err != nil || len(ports) != 8 {
		t.Fatalf("ports %s: %v", body, err)
	}
	members := 0
	for _, x := range ports {
		if x.GUID == nil || x.Name == nil || x.System == nil || x.LID == nil || *x.LID == 0 || x.DName == nil ||
			x.SysName == nil || x.Physical == nil || x.Logical == nil || *x.Logical != "Active" ||
			*x.Physical != "Link Up" {
			t.Fatalf("a port without what is read: %s", body)
		}
		for _, g := range one.GUIDs { // the client joins ports and partitions by this
			if g.GUID == *x.GUID {
				members++
			}
		}
	}
	if members != 2 {
		t.Errorf("%d ports are members, want 2", members)
	}

	p.want(200, "POST", root+"/actions/remove_guids_from_pkey",
		map[string]any{"pkey": "0x31a", "guids": []string{p.guid(2)}}, head...)
	p.inForce(0x31a, 4)
	p.want(200, "POST", root+"/actions/remove_guids_from_pkey",
		map[string]any{"pkey": "0x31a", "guids": []string{p.guid(4)}}, head...)
	p.inForce(0x31a)
	if body, ok := get("/resources/pkeys/0x31a?guids_data=true"); ok {
		t.Errorf("the partition outlives its last port: %s", body)
	}
	p.want(404, "PUT", root+"/resources/pkeys/qos_conf",
		`{"pkey":"0x31a","mtu_limit":4,"service_level":3,"rate_limit":200.0}`, head...)
}

// TestSDK makes the calls of UFM's SDK and its scripts: with a password for a token, then with the token under V3.
func TestSDK(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:123456"))
	token := into[map[string]any](t, p.want(200, "POST", "/ufmRest/app/tokens", `{}`, "Authorization", basic,
		"Content-Type", "application/json"))["access_token"].(string)
	head := []string{"Authorization", "Basic " + token, "Content-Type", "application/json"}
	const root = "/ufmRestV3/"

	if n := len(into[[]map[string]any](t, p.want(200, "GET", root+"resources/systems", nil, head...))); n != 8+6 {
		t.Errorf("%d systems", n)
	}
	for kind, want := range map[string]int{"host": 8, "switch": 6, "router": 0, "gateway": 0} {
		if n := len(into[[]map[string]any](t, p.want(200, "GET", root+"resources/systems?type="+kind, nil,
			head...))); n != want {
			t.Errorf("%d systems of type %s, want %d", n, kind, want)
		}
	}
	if x := into[[]map[string]any](t, p.want(200, "GET", root+"resources/systems/leaf1", nil, head...)); len(x) != 1 ||
		x[0]["system_name"] != "leaf1" || x[0]["type"] != "switch" || x[0]["role"] != "tor" {
		t.Errorf("leaf1: %v", x)
	}
	links := into[struct{ Data []map[string]any }](t,
		p.want(200, "GET", root+"resources/links?page_number=1&rpp=1000000000", nil, head...)).Data
	if len(links) != len(p.m.Cables()) ||
		!regexp.MustCompile(`^[0-9a-f]{16}_1:[0-9a-f]{16}_\d+$`).MatchString(links[0]["name"].(string)) {
		t.Errorf("%d links, want %d; the first is %v", len(links), len(p.m.Cables()), links[0])
	}
	if got := into[[]map[string]any](t, p.want(200, "GET", root+
		"resources/links?cable_info=True&monitoring_counters_info=True&system=h1", nil, head...)); len(got) != 1 ||
		got[0]["cable_info"] == nil || got[0]["source_port_counters"] == nil {
		t.Errorf("links of h1: %v", got)
	}
	if n := len(into[[]map[string]any](t, p.want(200, "GET", root+"resources/ports?active=True&show_disabled=False",
		nil, head...))); n != 2*len(p.m.Cables()) {
		t.Errorf("%d active ports, want %d", n, 2*len(p.m.Cables()))
	}
	if got := into[[]map[string]any](t, p.want(200, "GET", root+
		"resources/ports?active=True&show_disabled=False&system=h2", nil, head...)); len(got) != 1 ||
		got[0]["guid"] != p.guid(2) {
		t.Errorf("ports of h2: %v", got)
	}

	p.want(200, "PUT", root+"resources/pkeys", map[string]any{"guids": []string{p.guid(1), p.guid(2)}, "pkey": "0x11",
		"index0": false, "ip_over_ib": true, "memberships": []string{"full", "limited"}}, head...)
	if k := p.keys(2); !contains(k, 0x11) || contains(k, 0x8011) || !contains(p.keys(1), 0x8011) {
		t.Errorf("tables %v and %v, want a full and a limited member of 0x11", p.keys(1), k)
	}
	p.want(200, "PUT", root+"resources/pkeys", map[string]any{"guids": []string{p.guid(3)}, "pkey": "0x11",
		"index0": false, "ip_over_ib": true, "membership": "full"}, head...)
	p.inForce(0x11, 3)
	if got := into[map[string]any](t, p.want(200, "GET", root+"resources/pkeys/0x11?guids_data=true", nil,
		head...)); len(got["guids"].([]any)) != 1 {
		t.Errorf("0x11: %v", got)
	}
	p.want(200, "DELETE", root+"resources/pkeys/0x11", `{}`, head...)
	p.inForce(0x11)
	p.want(404, "DELETE", root+"resources/pkeys/0x11", `{}`, head...)

	events := into[[]map[string]any](t, p.want(200, "GET", root+"app/events", nil, head...))
	if len(events) > 0 {
		id := fmt.Sprint(int(events[0]["id"].(float64)))
		p.want(200, "DELETE", root+"app/events/"+id, `{}`, head...)
		p.want(404, "DELETE", root+"app/events/"+id, `{}`, head...)
		if n := len(into[[]map[string]any](t, p.want(200, "GET", root+"app/events", nil,
			head...))); n != len(events)-1 {
			t.Errorf("%d events after one of %d was deleted", n, len(events))
		}
	}
	into[[]map[string]any](t, p.want(200, "GET", root+"app/alarms", nil, head...))

	r := p.want(202, "POST", root+"fabricValidation/tests/CheckLids", `null`, head...)
	m := regexp.MustCompile(`\b/jobs/([0-9]*)\b`).FindStringSubmatch(r.body)
	if m == nil || !strings.HasSuffix(r.header.Get("Location"), "/jobs/"+m[1]) {
		t.Fatalf("no job in %s, %v", r.body, r.header)
	}
	job := p.awaitJob(root+"jobs/"+m[1], head...)
	if job.Status != "Completed" || job.Progress != 100 || job.Operation != "CheckLids" {
		t.Errorf("job: %+v", job)
	}
	into[[]map[string]any](t, p.want(200, "GET", root+"jobs?parent_id="+m[1], nil, head...))
}

// awaitJob polls a job until it has ended, as the SDK does.
func (p *place) awaitJob(path string, head ...string) jobShape {
	p.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		if j := into[jobShape](p.t, p.want(200, "GET", path, nil, head...)); j.Status != jobRunning {
			return j
		}
	}
	p.t.Fatalf("%s does not end", path)
	return jobShape{}
}

// TestSLURM makes the calls of the prolog and the epilog of UFM's SLURM plugin.
func TestSLURM(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	for _, root := range []string{"/ufmRest", "/ufmRestV3"} {
		head := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:123456")),
			"Content-Type", "application/json; charset=utf-8"}
		if v := p.want(200, "GET", root+"/app/ufm_version", nil, head...); !json.Valid([]byte(v.body)) {
			t.Errorf("version %q", v.body)
		}
		r := p.do("POST", root+"/resources/pkeys/hosts",
			map[string]any{"hosts_names": "h[2-4],h7", "pkey": "0x22", "ip_over_ib": "True", "index0": "false"},
			head...)
		if r.status/100 != 2 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		p.inForce(0x22, 2, 3, 4, 7)
		if j := p.awaitJob(r.header.Get("Location"), head...); j.Status != "Completed" {
			t.Errorf("job %+v", j)
		}
		if r := p.do("DELETE", root+"/resources/pkeys/0x22/hosts/h[2-4],h7", nil, head...); r.status/100 != 2 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		p.inForce(0x22)
		// There is no SHARP; the epilog's loop ends with 404.
		p.want(404, "DELETE", root+"/app/sharp/resources/17", nil, head...)
	}
}

// TestBaremetal makes the calls of networking-mlnx-baremetal: every status below 400 is good, and bodies are JSON where
// they are read.
func TestBaremetal(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	head := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:123456")),
		"User-Agent", "python-ufmclient - v1.0", "Content-Type", "application/json"}
	ok := func(method, path string, body any) string {
		t.Helper()
		r := p.do(method, "/ufmRest"+path, body, head...)
		if r.status >= 400 {
			t.Fatalf("%s %s: %d %s", method, path, r.status, r.body)
		}
		return r.body
	}
	payload := func(guids ...string) map[string]any {
		return map[string]any{"guids": guids, "ip_over_ib": true, "index0": false, "membership": "full", "pkey": "0x33"}
	}
	ok("POST", "/resources/pkeys/", payload(p.guid(1), p.guid(2)))
	p.inForce(0x33, 1, 2)
	ok("PUT", "/resources/pkeys", payload(p.guid(2), p.guid(3), p.guid(4)))
	p.inForce(0x33, 2, 3, 4)
	for _, flag := range []string{"True", "False"} {
		for _, path := range []string{"/resources/pkeys?guids_data=" + flag, "/resources/pkeys/0x33?guids_data=" +
			flag} {
			if b := ok("GET", path, nil); !json.Valid([]byte(b)) {
				t.Errorf("%s: %s", path, b)
			}
		}
	}
	ok("DELETE", "/resources/pkeys/0x33/guids/"+p.guid(2)+","+p.guid(3), nil)
	p.inForce(0x33, 4)
	ok("DELETE", "/resources/pkeys/0x33", nil)
	p.inForce(0x33)
}

func contains(list []ib.PKey, k ib.PKey) bool {
	for _, x := range list {
		if x == k {
			return true
		}
	}
	return false
}
