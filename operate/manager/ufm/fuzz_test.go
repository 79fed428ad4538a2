package ufm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"softib/subnet/policy"
)

// FuzzREST: whatever comes, the answer is JSON and no status of 500 or above, and to look changes nothing.
func FuzzREST(f *testing.F) {
	p := newPlace(f, "star:3", policy.Partitions{}, nil)
	g := p.guid(1)
	for _, s := range [][3]string{
		{"GET", "/ufmRest/app/ufm_version", ""}, {"GET", "/ufmRest/resources/pkeys?guids_data=true&qos_conf=true", ""},
		{"GET", "/ufmRest/resources/ports?sys_type=Computer&page_number=1&rpp=3", ""},
		{"POST", "/ufmRest/resources/pkeys", `{"pkey":"0x5","guids":["` + g +
			`"],"memberships":["full"],"index0":true,"ip_over_ib":"True"}`},
		{"PUT", "/ufmRestV3/resources/pkeys/", `{"pkey":5,"guids":[]}`},
		{"PUT", "/ufmRest/resources/pkeys/qos_conf", `{"pkey":"0x5","mtu_limit":4,"service_level":3,"rate_limit":2.5}`},
		{"POST", "/ufmRest/resources/pkeys/add", `{"pkey":"0x6","partition_name":"x"}`},
		{"POST", "/ufmRest/resources/pkeys/hosts", `{"pkey":"0x5","hosts_names":"h[1-3]"}`},
		{"DELETE", "/ufmRest/resources/pkeys/0x5/hosts/h[1-2]", ""},
		{"DELETE", "/ufmRest/resources/pkeys/0x5/guids/" + g, ""},
		{"DELETE", "/ufmRestV2/resources/pkeys/5", ""},
		{"POST", "/ufmRest/actions/remove_guids_from_pkey", `{"pkey":"0x5","guids":["` + g + `"]}`},
		{"GET", "/ufmRest/app/events?severity=info", ""},
		{"GET", "/ufmRest/app/smconf?param_name=m_key", ""},
		{"POST", "/ufmRest/fabricValidation/tests/CheckLinkSpeed", ""}, {"GET", "/ufmRest/jobs/1,2", ""},
		{"DELETE", "/ufmRest/jobs/1", ""},
		{"POST", "/ufmRest/app/tokens/revoke", `{"token":"x"}`},
		{"POST", "/dologin", `{"httpd_username":"a","httpd_password":"b"}`}, {"GET", "/openapi.json", ""},
		{"POST", "/ufmRest/monitoring/start", `{"monitor_object":"Device","attributes":["Infiniband_CBW"],` +
			`"functions":["RAW"],"interval":2,"objects":["Grid.default","Grid.default.` + g + `_1"]}`},
		{"POST", "/ufmRest/monitoring/snapshot", `{"monitor_object":"Port","attributes":["Infiniband_MBIn"],` +
			`"scope_object":"Site","objects":["Grid.default.h1"]}`},
		{"GET", "/ufmRest/monitoring/session/0/data?pkey=0x5", ""}, {"DELETE", "/ufmRest/monitoring/session/1", ""},
		{"GET", "/ufmRest/monitoring/aggr_topx?object=servers&attr=cong", ""},
		{"GET", "//", ""}, {"GET", "/ufmRest/%2f%00", ""},
	} {
		f.Add(s[0], s[1], s[2])
	}
	methods := map[string]bool{"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "PATCH": true,
		"OPTIONS": true}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !methods[method] || u.Host != "" {
			t.Skip()
		}
		r := &http.Request{Method: method, URL: u, Host: "localhost", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, RemoteAddr: "127.0.0.1:1", ContentLength: int64(len(body)), Body: http.NoBody}
		if body != "" {
			r.Body = readCloser{strings.NewReader(body)}
		}
		was := p.book.Revision()
		w := httptest.NewRecorder()
		p.s.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code >= 500 || !json.Valid(w.Body.Bytes()) || len(w.Body.Bytes()) > 1<<20 {
			t.Errorf("%s %q %q: %d %.300s", method, target, body, w.Code, w.Body)
		}
		if (method == "GET" || w.Code >= 400) && p.book.Revision() != was {
			t.Errorf("%s %q %q: %d, and something has changed", method, target, body, w.Code)
		}
		for _, x := range p.book.List() { // so that there is always something new to find
			if len(p.book.List()) > 8 {
				p.book.Delete(t.Context(), x.Name)
			}
		}
	})
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
