package ufm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"softib/operate/manager/tenant"
	"softib/proof/workload/perf"
	"softib/proto/ib"
	"softib/subnet/policy"
)

// TestCrowd: a thousand clients at once, some that never read, bodies of 10 MB and tokens that are guessed: each gets
// its answer, and two hosts go on talking.
func TestCrowd(t *testing.T) {
	creds := ann(t, "")
	p := newPlace(t, smallTree, policy.Partitions{}, func(c *Config) { c.Credentials = creds })
	good := basic("ann", "a long password")
	token := into[tokenShape](t, p.want(200, "POST", "/ufmRest/app/tokens", nil, good...)).Token
	transport := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 400}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: 150 * time.Second}

	ctx, cancel := context.WithTimeout(t.Context(), 170*time.Second)
	defer cancel()
	talk := func() perf.Row {
		t.Helper()
		var row perf.Row
		hosts := p.f.Hosts()
		err := perf.Run(ctx, hosts[6].Device(), hosts[7].Device(), perf.Config{Test: perf.SendLat, Sizes: []int{64},
			Iters: 2000},
			func(r perf.Row) error { row = r; return nil })
		if err != nil {
			t.Fatalf("two hosts cannot talk: %v", err)
		}
		return row
	}
	quiet := talk()

	// Clients that ask for everything and read nothing.
	for range 20 {
		c, err := net.Dial("tcp", p.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for range 50 {
			fmt.Fprintf(c, "GET /ufmRestV3/resources/ports HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\n\r\n",
				token)
		}
	}
	const clients = 1000
	var statuses [600]atomic.Int64
	var failed atomic.Int64
	var first atomic.Pointer[string]
	call := func(method, path string, body io.Reader, auth string) int {
		req, err := http.NewRequestWithContext(ctx, method, p.http.URL+path, body)
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("Authorization", auth)
		resp, err := client.Do(req)
		if err != nil {
			// of bodies that nobody wants to read
			if text := err.Error(); !strings.Contains(text, "reset by peer") && !strings.Contains(text, "broken pipe") {
				failed.Add(1)
				first.CompareAndSwap(nil, &text)
			}
			return 0
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		statuses[resp.StatusCode].Add(1)
		return resp.StatusCode
	}
	huge := bytes.Repeat([]byte("x"), 10<<20)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			switch i % 5 {
			case 0:
				if s := call("GET", "/ufmRestV3/resources/ports", nil, "Basic "+token); s != 200 {
					t.Errorf("ports: %d", s)
				}
			case 1:
				if s := call("GET", "/ufmRest/resources/pkeys?guids_data=true", nil, good[1]); s != 200 {
					t.Errorf("partitions: %d", s)
				}
			case 2:
				if s := call("GET", "/ufmRestV3/app/events", nil, "Basic "+newSecret()); s != 401 && s != 429 {
					t.Errorf("a token that is guessed: %d", s)
				}
			case 3:
				if i%50 != 3 { // 10 MB each
					call("GET", "/ufmRestV3/resources/links", nil, "Basic "+token)
				} else if s := call("POST", "/ufmRestV3/resources/pkeys", bytes.NewReader(huge), "Basic "+
					token); s != 413 && s != 0 {
					t.Errorf("10 MB: %d", s)
				}
			case 4:
				body := fmt.Sprintf(`{"pkey":"0x%x","guids":["%s"]}`, 0x100+i%10, p.guid(1+i%6))
				if s := call("POST", "/ufmRestV3/resources/pkeys", strings.NewReader(body), "Basic "+token); s != 200 {
					t.Errorf("a change: %d", s)
				}
			}
		})
	}
	loud := talk()
	all.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d clients had no answer; the first: %s", n, clients, *first.Load())
	}
	for s := range statuses {
		if n := statuses[s].Load(); n > 0 {
			t.Logf("status %d: %d", s, n)
			if s >= 500 {
				t.Errorf("%d answers of %d", n, s)
			}
		}
	}
	if n := len(p.book.List()); n != 2 {
		t.Errorf("%d partitions, want 2", n)
	}
	t.Logf("send_lat of 64 bytes, typical and 99%%: %.2f and %.2f µs alone, %.2f and %.2f µs in the crowd",
		quiet.Latency.Typical, quiet.Latency.P99, loud.Latency.Typical, loud.Latency.P99)
}

// TestPlaces: connections that do nothing, or do not come to the end of a header, keep nobody out, however many there
// are; those with a request under way are left alone, and who comes when there are only such is sent away.
func TestPlaces(t *testing.T) {
	const places = 8
	wait := make(chan struct{})
	var busy sync.WaitGroup
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			busy.Done()
			<-wait
		}
		io.WriteString(w, "here")
	}))
	harden(s.Config, places, places)
	s.Start()
	defer s.Close()
	answer := func(c net.Conn) string {
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return ""
		}
		b, _ := io.ReadAll(r.Body)
		return string(b)
	}
	dial := func(say string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(60 * time.Second))
		fmt.Fprint(c, say)
		return c
	}
	const ask = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for i := range 5 * places {
		dial("")
		dial("GET / HTTP/1.1\r\nHo")
		if got := answer(dial(ask)); got != "here" {
			t.Fatalf("among %d connections that do nothing: %q", 2*(i+1), got)
		}
	}
	var there []net.Conn
	for range places {
		busy.Add(1)
		there = append(there, dial("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		busy.Wait()
	}
	if got := answer(dial(ask)); got != "" {
		t.Errorf("one more than there are places: %q", got)
	}
	close(wait)
	for i, c := range there {
		if got := answer(c); got != "here" {
			t.Errorf("client %d, who was there before: %q", i, got)
		}
	}
	if got := answer(dial(ask)); got != "here" {
		t.Errorf("when they have their answers: %q", got)
	}
}

// visiting is a connection from an address that notes when it is closed.
type visiting struct {
	net.Conn
	from   string
	closed chan struct{}
}

func (v *visiting) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", v.from)
	return a
}

func (v *visiting) Close() error { close(v.closed); return nil }

// TestCrowdOfSource: a source has its places and no more, and gives its own up for its next; where there are none at
// all, it is one of the source that has most that makes room.
func TestCrowdOfSource(t *testing.T) {
	c := newCrowd(8, 4)
	come := func(from string) *visiting {
		v := &visiting{from: from, closed: make(chan struct{})}
		c.state(v, http.StateNew)
		return v
	}
	gone := func(v *visiting) {
		t.Helper()
		select {
		case <-v.closed:
		case <-time.After(60 * time.Second):
			t.Fatalf("%s keeps its place", v.from)
		}
	}
	var a []*visiting
	for i := range 5 {
		a = append(a, come(fmt.Sprintf("127.0.0.%d:1", i+1)))
	}
	gone(a[0])
	if n := len(c.there); n != 4 {
		t.Errorf("a source has %d places", n)
	}
	c.ask(a[1], 1)
	come("127.0.0.9:1")
	gone(a[2]) // a[1] is busy
	b := []*visiting{come("10.0.0.1:1"), come("10.0.0.1:2"), come("10.0.0.2:1"), come("10.0.0.3:1")}
	come("10.0.0.4:1")
	gone(a[3])
	for _, v := range b {
		if c.there[v] == nil {
			t.Errorf("%s made room for another, and its source had less than others", v.from)
		}
	}
	c.ask(a[1], -1)
	for v := range c.there {
		c.ask(v, 1)
	}
	gone(come("10.0.0.5:1"))
	for v := range c.there {
		c.state(v, http.StateClosed)
		c.ask(v, -1)
	}
	if len(c.there) != 0 || len(c.sources) != 0 {
		t.Errorf("all have left: %d connections of %d sources", len(c.there), len(c.sources))
	}
}

// TestSlowBody: Guard gives a client a while to send a body, and one that listens all the time there is.
func TestSlowBody(t *testing.T) {
	p := newPlace(t, "star:3", policy.Partitions{}, nil)
	for _, c := range []struct {
		length int64
		want   bool
	}{{0, false}, {1000, true}, {-1, true}} {
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("POST", "http://localhost/api/thing", nil)
		r.ContentLength = c.length
		p.s.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if w.Code != 200 || w.read.IsZero() == c.want {
			t.Errorf("a body of %d bytes: status %d, to be read until %v", c.length, w.Code, w.read)
		}
	}
}

// slowTenants are those of a fabric where each change takes long.
type slowTenants struct {
	Tenants
	change func()
}

func (s slowTenants) EditKey(context.Context, ib.PKey, string, func(*tenant.Tenant) error) (tenant.Tenant, error) {
	s.change()
	return tenant.Tenant{}, nil
}

// TestSlowChange: a client that waits for a change is not cut off however long that takes, and has its time to read the
// answer from then on.
func TestSlowChange(t *testing.T) {
	w, changed := &deadlined{ResponseRecorder: httptest.NewRecorder()}, false
	p := newPlace(t, "star:3", policy.Partitions{}, func(c *Config) {
		c.Tenants = slowTenants{c.Manager.Tenants(), func() {
			if changed = true; !w.write.IsZero() {
				t.Errorf("a change is under way, and the answer has to be read until %v", w.write)
			}
		}}
	})
	r := httptest.NewRequest("PUT", "http://localhost/ufmRest/resources/pkeys", strings.NewReader(
		fmt.Sprintf(`{"guids": [%q], "pkey": "0x11"}`, guidText(p.f.Graph().Hosts()[0].PortGUID(1)))))
	r.Header.Set("Content-Type", "application/json")
	p.s.ServeHTTP(w, r)
	if w.Code != 200 || !changed || time.Until(w.write) < writeMax/2 {
		t.Errorf("status %d %s, changed %t, to be read until %v", w.Code, w.Body, changed, w.write)
	}
}

// deadlined notes the deadlines that it is given.
type deadlined struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlined) SetReadDeadline(t time.Time) error { d.read = t; return nil }

func (d *deadlined) SetWriteDeadline(t time.Time) error { d.write = t; return nil }
