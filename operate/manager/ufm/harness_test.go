package ufm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// place is a live fabric with its subnet manager, its tenants, and the interface over them.
type place struct {
	t    testing.TB
	f    *live.Fabric
	m    *manager.Manager
	book *tenant.Book
	s    *Server
	http *httptest.Server
}

// newPlace brings a fabric up. Conf changes what is served; parts are the operator's own partitions.
func newPlace(t testing.TB, spec string, parts policy.Partitions, conf func(*Config)) *place {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t}
	if p.f, err = live.New(g, live.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.f.Close() })
	session, err := p.f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := smrun.New(sm.Config{Window: 1024, Groups: p.f.Groups(), Partitions: parts}, session, smrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-run.Done() })
	go run.Run(ctx)
	select {
	case <-run.Up():
	case <-time.After(60 * time.Second):
		t.Fatal("the subnet does not come up")
	}
	store, err := tenant.OpenStore("")
	if err != nil {
		t.Fatal(err)
	}
	enforcer := manager.NewEnforcer(p.f, sm.Config{Partitions: parts},
		manager.NewGuard(p.f.Graph(), sm.Config{}, nil), run)
	if p.book, err = tenant.Open(t.Context(), store, enforcer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.book.Close() })
	if p.m, err = manager.New(manager.Options{Name: "test", Version: "1.2.3", Fabric: p.f, Subnet: run, Tenants: p.book,
		Interval: time.Hour}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.m.Close() })
	p.serve(conf)
	return p
}

// serve makes the interface, in place of the one before.
func (p *place) serve(conf func(*Config)) {
	p.t.Helper()
	cfg := Config{Manager: p.m, Loopback: true}
	if conf != nil {
		conf(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	p.s = s
	p.http = httptest.NewUnstartedServer(s)
	Harden(p.http.Config)
	p.http.Start()
	p.t.Cleanup(p.http.Close)
}

// reply is an answer that was read.
type reply struct {
	status int
	header http.Header
	body   string
}

// do makes a request; a body that is no string is sent as JSON, and headers come in pairs.
func (p *place) do(method, path string, body any, header ...string) reply {
	p.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			p.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.http.URL+path, r)
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.http.Client().Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// want makes a request and wants a status.
func (p *place) want(status int, method, path string, body any, header ...string) reply {
	p.t.Helper()
	r := p.do(method, path, body, header...)
	if r.status != status {
		p.t.Fatalf("%s %s: status %d, want %d: %s", method, path, r.status, status, r.body)
	}
	return r
}

// into reads an answer.
func into[T any](t testing.TB, r reply) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return v
}

// guid is that of a host's port, counted from 1, in 16 digits.
func (p *place) guid(host int) string {
	return guidText(p.f.Graph().Hosts()[host-1].PortGUID(1))
}

// keys are the table of a host's port.
func (p *place) keys(host int) []ib.PKey {
	return p.f.PKeys(topo.PortRef{Node: p.f.Graph().Hosts()[host-1].Index, Port: 1})
}

// inForce wants a key to be in the tables of some hosts, as full members, and of no others.
func (p *place) inForce(key ib.PKey, hosts ...int) {
	p.t.Helper()
	in := map[int]bool{}
	for _, h := range hosts {
		in[h] = true
	}
	for h := 1; h <= len(p.f.Graph().Hosts()); h++ {
		has := false
		for _, k := range p.keys(h) {
			if k.Base() == key {
				has = true
				if in[h] && !k.IsFull() {
					p.t.Errorf("h%d has %v, want a full member's", h, k)
				}
			}
		}
		if has != in[h] {
			p.t.Errorf("h%d has key %v: %t, want %t; its table is %v", h, key, has, in[h], p.keys(h))
		}
	}
}

// reaches wants a packet of a partition to arrive, or not.
func (p *place) reaches(from, to int, key ib.PKey, want bool) {
	p.t.Helper()
	ref := func(h int) topo.PortRef { return topo.PortRef{Node: p.f.Graph().Hosts()[h-1].Index, Port: 1} }
	r, err := manager.Probe(p.f, ref(from), ref(to), key)
	if err != nil {
		p.t.Fatal(err)
	}
	if r.Arrived != want {
		p.t.Errorf("h%d to h%d in %v: arrives %t, want %t", from, to, key, r.Arrived, want)
	}
}
