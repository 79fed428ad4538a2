package ufm

import (
	"fmt"
	"strings"
	"testing"

	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/topo"
	"softib/subnet/policy"
)

// TestWrong: every wrong request is refused with the field and a reason, and nothing has changed.
func TestWrong(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	if _, err := p.book.Create(t.Context(), tenant.Tenant{Name: "red", Key: 0x10,
		Members: []tenant.Member{{GUID: p.f.Graph().Hosts()[1].PortGUID(1), Full: true}}}); err != nil {
		t.Fatal(err)
	}
	rev := p.book.Revision()
	g := p.guid(1)
	const pk, mon = "/resources/pkeys", "/monitoring/start"
	const some = `"attributes":["Infiniband_MBIn"],"objects":["Grid.default"]`
	long := strings.Repeat("f", 300)
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"POST", pk, ``, 400, "pkey"},
		{"POST", pk, `{`, 400, ""},
		{"POST", pk, `[]`, 400, ""},
		{"POST", pk, `"x"`, 400, ""},
		{"POST", pk, `{} {}`, 400, ""},
		{"POST", pk, `{"guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":null,"guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":"0x0","guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":"0x10000","guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":"seven","guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":"` + long + `","guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":true,"guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":["0x5"],"guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":1.5,"guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":"0x7fff","guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":"0xffff","guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", pk, `{"pkey":"0x5"}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":[]}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":"` + g + `"}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":[7]}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":["xyz"]}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `","` + g[:15] + `"]}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":["0000000000000000"]}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"membership":"some"}`, 400, "membership"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"membership":1}`, 400, "membership"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"memberships":["full","full"]}`, 400, "memberships"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"memberships":["half"]}`, 400, "memberships"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `","` + g + `"],"memberships":["full","limited"]}`, 400, "guids"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"index0":"maybe"}`, 400, "index0"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"ip_over_ib":3}`, 400, "ip_over_ib"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"partition_name":"a b"}`, 400, "partition_name"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"partition_name":"management"}`, 400, "partition_name"},
		{"POST", pk, `{"pkey":"0x5","guids":["` + g + `"],"partition_name":"red"}`, 409, ""},
		{"POST", pk, `{"pkey":"0x10","guids":["` + g + `"],"partition_name":"blue"}`, 409, "partition_name"},
		{"PUT", pk, `{"pkey":"0x5","guids":["` + g + `"],"rate_limit":7}`, 400, "rate_limit"},
		{"PUT", pk, `{"pkey":"0x5","guids":["` + g + `"],"mtu_limit":3}`, 400, "mtu_limit"},
		{"PUT", pk, `{"pkey":"0x5","guids":["` + g + `"],"service_level":16}`, 400, "service_level"},
		{"PUT", pk, `{"pkey":"0x5"}`, 400, "guids"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x10"}`, 400, "mtu_limit"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x10","mtu_limit":2,"rate_limit":10}`, 400, "service_level"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x10","mtu_limit":2,"rate_limit":10,"service_level":-1}`, 400,
			"service_level"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x10","mtu_limit":2,"rate_limit":10,"service_level":1.5}`, 400,
			"service_level"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x10","mtu_limit":"2","rate_limit":10,"service_level":1}`, 400,
			"mtu_limit"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x10","mtu_limit":1e300,"rate_limit":10,"service_level":1}`, 400,
			"mtu_limit"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x6","mtu_limit":2,"rate_limit":10,"service_level":1}`, 404, "pkey"},
		{"PUT", pk + "/qos_conf", `{"pkey":"0x7fff","mtu_limit":2,"rate_limit":10,"service_level":1}`, 400, "pkey"},
		{"POST", pk + "/add", `{"pkey":"0x10"}`, 409, "pkey"},
		{"POST", pk + "/add", `{}`, 400, "pkey"},
		{"POST", pk + "/hosts", `{"pkey":"0x5"}`, 400, "hosts_names"},
		{"POST", pk + "/hosts", `{"pkey":"0x5","hosts_names":"nobody"}`, 404, "hosts_names"},
		{"POST", pk + "/hosts", `{"pkey":"0x5","hosts_names":"h1,leaf1"}`, 404, "hosts_names"},
		{"POST", pk + "/hosts", `{"pkey":"0x5","hosts_names":"h[1-"}`, 400, "hosts_names"},
		{"POST", pk + "/hosts", `{"pkey":"0x5","hosts_names":7}`, 400, "hosts_names"},
		{"DELETE", pk + "/0x10/hosts/h99", ``, 404, "hosts"},
		{"DELETE", pk + "/0x6/hosts/h1", ``, 404, "pkey"},
		{"DELETE", pk + "/0x6", ``, 404, "pkey"},
		{"DELETE", pk + "/0x7fff", ``, 400, "pkey"},
		{"DELETE", pk + "/red", ``, 400, "pkey"},
		{"DELETE", pk + "/0x10/guids/xyz", ``, 400, "guids"},
		{"DELETE", pk + "/0x6/guids/" + g, ``, 404, "pkey"},
		{"POST", "/actions/remove_guids_from_pkey", `{"pkey":"0x10"}`, 400, "guids"},
		{"POST", "/actions/remove_guids_from_pkey", `{"guids":["` + g + `"]}`, 400, "pkey"},
		{"POST", "/actions/remove_guids_from_pkey", `{"pkey":"0x7fff","guids":["` + g + `"]}`, 400, "pkey"},
		{"GET", pk + "/what", ``, 400, "pkey"},
		{"GET", pk + "?guids_data=perhaps", ``, 400, "guids_data"},
		{"GET", "/resources/ports?system=nobody", ``, 404, "system"},
		{"GET", "/resources/ports?active=7", ``, 400, "active"},
		{"GET", "/resources/ports?sys_type=toaster", ``, 400, "sys_type"},
		{"GET", "/resources/ports?page_number=-1", ``, 400, "page_number"},
		{"GET", "/resources/ports/none_1", ``, 404, "ports"},
		{"GET", "/resources/systems/nobody", ``, 404, "system"},
		{"GET", "/resources/systems?type=toaster", ``, 400, "type"},
		{"GET", "/resources/links?system=nobody", ``, 404, "system"},
		{"GET", "/resources/links?rpp=many", ``, 400, "rpp"},
		{"GET", "/resources/links?%zz", ``, 400, "query"},
		{"GET", "/app/smconf?param_name=colour", ``, 400, "param_name"},
		{"GET", "/app/events/x", ``, 400, "id"},
		{"GET", "/app/events/999999", ``, 404, "id"},
		{"GET", "/app/alarms/999999", ``, 404, "id"},
		{"DELETE", "/app/alarms", ``, 400, "device_id"},
		{"DELETE", "/app/alarms?device_id=nobody", ``, 404, "device_id"},
		{"POST", "/app/tokens/revoke", `{}`, 400, "token"},
		{"POST", "/app/tokens/revoke", `{"token":"none"}`, 404, "token"},
		{"DELETE", "/app/tokens/none", ``, 404, "token"},
		{"POST", "/fabricValidation/tests/CheckTaste", ``, 404, "test"},
		{"GET", "/jobs/none", ``, 400, "id"},
		{"GET", "/jobs/999", ``, 404, "id"},
		{"DELETE", "/jobs/999", ``, 404, "id"},
		{"POST", mon, ``, 400, "monitor_object"},
		{"POST", mon, `{"monitor_object":"Port"}`, 400, "attributes"},
		{"POST", mon, `{"monitor_object":"Cable",` + some + `}`, 400, "monitor_object"},
		{"POST", mon, `{"monitor_object":"Port","scope_object":"World",` + some + `}`, 400, "scope_object"},
		{"POST", mon, `{"monitor_object":"Port","attributes":["` + long + `"],"objects":["Grid.default"]}`, 400,
			"attributes"},
		{"POST", mon, `{"monitor_object":"Port","attributes":"all","objects":["Grid.default"]}`, 400, "attributes"},
		{"POST", mon, `{"monitor_object":"Port","attributes":["Infiniband_MBIn"]}`, 400, "objects"},
		{"POST", mon, `{"monitor_object":"Port","attributes":["Infiniband_MBIn"],"objects":["h1"]}`, 400, "objects"},
		{"POST", mon, `{"monitor_object":"Port","attributes":["Infiniband_MBIn"],"objects":["Grid.default.x"]}`, 404,
			"objects"},
		{"POST", mon, `{"monitor_object":"Port","functions":["AVG"],` + some + `}`, 400, "functions"},
		{"POST", mon, `{"monitor_object":"Port","interval":0,` + some + `}`, 400, "interval"},
		{"POST", mon, `{"monitor_object":"Port","interval":1e300,` + some + `}`, 400, "interval"},
		{"POST", mon, `{"monitor_object":"Port","interval":1.5,` + some + `}`, 400, "interval"},
		{"POST", mon, `{"monitor_object":"Port","interval":"soon",` + some + `}`, 400, "interval"},
		{"POST", "/monitoring/snapshot", `{"monitor_object":"Port"}`, 400, "attributes"},
		{"GET", "/monitoring/session/x", ``, 400, "id"},
		{"GET", "/monitoring/session/18446744073709551615", ``, 404, "id"},
		{"GET", "/monitoring/session/7/data", ``, 404, "id"},
		{"GET", "/monitoring/session/0/data?pkey=0x6", ``, 404, "pkey"},
		{"GET", "/monitoring/session/0/data?pkey=what", ``, 400, "pkey"},
		{"DELETE", "/monitoring/session/0", ``, 409, "id"},
		{"DELETE", "/monitoring/session/7", ``, 404, "id"},
		{"GET", "/monitoring/aggr_topx?attr=bw", ``, 400, "object"},
		{"GET", "/monitoring/aggr_topx?object=servers&attr=taste", ``, 400, "attr"},
		{"PATCH", pk, `{}`, 405, ""},
		{"DELETE", "/app/ufm_version", ``, 405, ""},
		{"GET", "/what/is/this", ``, 404, ""},
	} {
		for _, root := range []string{"/ufmRest", "/ufmRestV3"} {
			r := p.do(c.method, root+c.path, c.body)
			var e Error
			if r.status == c.status {
				e = into[Error](t, r)
			}
			if r.status != c.status || e.Field != c.field || e.Reason == "" || len(r.body) > 1200 {
				t.Errorf("%s %s %.80s: %d %s; want %d about %q", c.method, c.path, c.body, r.status, r.body, c.status,
					c.field)
			}
		}
	}
	if now := p.book.Revision(); now != rev {
		t.Errorf("something has changed: revision %d, then %d", rev, now)
	}
	if r := p.do("PATCH", "/ufmRest"+pk, nil); r.header.Get("Allow") != "GET, POST, PUT" {
		t.Errorf("Allow: %q", r.header.Get("Allow"))
	}
}

// TestOperatorsPartitions: what partitions.conf has is shown, and is not changed from here.
func TestOperatorsPartitions(t *testing.T) {
	g, err := topo.ParseSpec(smallTree)
	if err != nil {
		t.Fatal(err)
	}
	guid := guidText(g.Hosts()[6].PortGUID(1))
	parts, _, err := policy.ParsePartitions("partitions.conf",
		[]byte("Default=0x7fff,ipoib : ALL=limited, SELF=full;\nlab=0x77,ipoib : 0x"+guid+"=full;\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, smallTree, parts, nil)
	all := into[map[string]partitionShape](t, p.want(200, "GET", "/ufmRest/resources/pkeys?guids_data=true", nil))
	lab := all["0x77"]
	if lab.Partition != "lab" || !lab.IPoIB || lab.GUIDs == nil || len(*lab.GUIDs) != 1 ||
		(*lab.GUIDs)[0].GUID != guid || (*lab.GUIDs)[0].Membership != "full" {
		t.Errorf("lab: %+v", lab)
	}
	if all["0x7fff"].Membership != "limited" {
		t.Errorf("the default partition: %+v", all["0x7fff"])
	}
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/resources/pkeys", `{"pkey":"0x77","guids":["` + p.guid(1) + `"]}`},
		{"DELETE", "/resources/pkeys/0x77", ""}, {"DELETE", "/resources/pkeys/0x77/guids/" + guid, ""},
		{"POST", "/actions/remove_guids_from_pkey", `{"pkey":"0x77","guids":["` + guid + `"]}`},
		{"PUT", "/resources/pkeys/qos_conf", `{"pkey":"0x77","mtu_limit":2,"rate_limit":10,"service_level":1}`},
	} {
		p.want(409, c.method, "/ufmRest"+c.path, c.body)
	}
	p.inForce(0x77, 7)
}

// TestNames: names of partitions, and which of them go with their last port.
func TestNames(t *testing.T) {
	p := newPlace(t, smallTree, policy.Partitions{}, nil)
	name := func(key string) string {
		return into[partitionShape](t, p.want(200, "GET", "/ufmRest/resources/pkeys/"+key, nil)).Partition
	}
	if b := p.want(200, "GET", "/ufmRest/resources/pkeys/last_updated", nil).body; b != `{"last_updated":null}` {
		t.Errorf("last updated %s, and nothing was", b)
	}
	p.want(200, "POST", "/ufmRest/resources/pkeys", `{"pkey":"5","partition_name":"blue","guids":["`+p.guid(1)+`"]}`)
	p.want(200, "POST", "/ufmRest/resources/pkeys", `{"pkey":6,"guids":["0x`+strings.ToUpper(p.guid(2))+
		`"],"extra":{"what":["ever"]}}`)
	if b := p.want(200, "GET", "/ufmRest/resources/pkeys/last_updated", nil).body; !strings.Contains(b, "UTC") {
		t.Errorf("last updated %s", b)
	}
	p.want(201, "POST", "/ufmRest/resources/pkeys/add", `{"pkey":"0x8007"}`)
	for key, want := range map[string]string{"0x5": "blue", "0X0005": "blue", "5": "blue", "32773": "blue",
		"0x6": "api_pkey_0x6", "7": "api_pkey_0x7", "0x7fff": "management", "0X7FFF": "management",
		"32767": "management", "65535": "management"} {
		if got := name(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if b := p.want(200, "GET", "/ufmRest/resources/pkeys/0x1234", nil).body; b != "{}" {
		t.Errorf("an unknown key: %q", b)
	}
	if list := into[[]string](t, p.want(200, "GET", "/ufmRest/resources/pkeys",
		nil)); fmt.Sprint(list) != "[0x5 0x6 0x7 0x7fff]" {
		t.Errorf("keys: %v", list)
	}
	for _, k := range []struct{ key, guid string }{{"0x5", p.guid(1)}, {"0x6", p.guid(2)}} {
		p.want(200, "DELETE", "/ufmRest/resources/pkeys/"+k.key+"/guids/"+k.guid, nil)
	}
	if list := into[[]string](t, p.want(200, "GET", "/ufmRest/resources/pkeys",
		nil)); fmt.Sprint(list) != "[0x5 0x7 0x7fff]" {
		t.Errorf("keys after all ports were removed: %v", list)
	}
	// Who then deletes the partition, as clients do, has what it wants; one that never was is not there.
	p.want(200, "DELETE", "/ufmRest/resources/pkeys/0x6", nil)
	p.want(404, "DELETE", "/ufmRest/resources/pkeys/0x66", nil)
	// A tenant of the command line's is a partition here.
	if _, err := p.book.Create(t.Context(), tenant.Tenant{Name: "red", Key: 0x10}); err != nil {
		t.Fatal(err)
	}
	p.want(200, "POST", "/ufmRest/resources/pkeys", `{"pkey":"0x10","guids":["`+p.guid(4)+`"],"membership":"limited"}`)
	red, _ := p.book.Get("red")
	if len(red.Members) != 1 || red.Members[0].Full || red.IPoIB {
		t.Errorf("red: %+v", red)
	}
	if name("0x10") != "red" {
		t.Errorf("0x10 is %q", name("0x10"))
	}
}

// TestUnmanaged: without a book of tenants partitions are shown, and cannot be changed.
func TestUnmanaged(t *testing.T) {
	p := newPlace(t, "star:3", policy.Partitions{}, nil)
	m, err := manager.New(manager.Options{Fabric: p.f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p.serve(func(c *Config) { c.Manager = m })
	p.want(409, "POST", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":["`+p.guid(1)+`"]}`)
	p.want(409, "DELETE", "/ufmRest/resources/pkeys/0x5", nil)
	all := into[map[string]partitionShape](t, p.want(200, "GET", "/ufmRest/resources/pkeys?qos_conf=true", nil))
	if len(all) != 1 || all["0x7fff"].Partition != "management" {
		t.Errorf("partitions: %v", all)
	}
	p.want(200, "GET", "/ufmRest/app/smconf", nil)
}

// TestLong: a body that is too long is refused before it is read.
func TestLong(t *testing.T) {
	p := newPlace(t, "star:3", policy.Partitions{}, nil)
	r := p.do("POST", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":["`+p.guid(1)+`"],"x":"`+
		strings.Repeat("x", 10<<20)+`"}`)
	if r.status != 413 || into[Error](t, r).Reason == "" {
		t.Errorf("10 MB: %d %.200s", r.status, r.body)
	}
	r = p.want(400, "POST", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":["`+p.guid(1)+`"],"partition_name":"`+
		strings.Repeat("ü", 1<<18)+`"}`)
	if e := into[Error](t, r); e.Field != "partition_name" || len(r.body) > 400 {
		t.Errorf("a long name is answered with %d bytes: %.200s", len(r.body), r.body)
	}
	if _, ok := p.book.ByKey(5); ok {
		t.Error("it was done all the same")
	}
	var b strings.Builder
	for i := range 40000 { // the largest list there can be is not too long
		fmt.Fprintf(&b, `,"%016x"`, 0x0200_0000_0000_0000+i)
	}
	p.want(200, "PUT", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":[`+b.String()[1:]+`]}`)
	if x, _ := p.book.ByKey(5); len(x.Members) != 40000 {
		t.Errorf("%d members", len(x.Members))
	}
}
