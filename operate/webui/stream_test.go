package webui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/internal/patience"
	"softib/operate/manager"
)

// stream is a client of the stream that remembers what it was told.
type stream struct {
	links  chan linksMessage
	events chan []manager.Event
	status chan status
	cancel context.CancelFunc
}

type linksMessage struct {
	Seq  uint64
	Full bool
	C    []int
}

func (x *ground) stream(t testing.TB) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", x.http.URL+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream: %s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	s := &stream{links: make(chan linksMessage, 1000), events: make(chan []manager.Event, 1000),
		status: make(chan status, 1000), cancel: cancel}
	go func() {
		in := bufio.NewReader(resp.Body)
		kind := ""
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimSpace(line)
			if k, ok := strings.CutPrefix(line, "event: "); ok {
				kind = k
			}
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var l linksMessage
			var e []manager.Event
			var st status
			switch kind {
			case "links":
				if json.Unmarshal([]byte(data), &l) == nil {
					s.links <- l
				}
			case "events":
				if json.Unmarshal([]byte(strings.ReplaceAll(data, `"severity":`, `"was":`)), &e) == nil {
					s.events <- e
				}
			case "status":
				if json.Unmarshal([]byte(data), &st) == nil {
					s.status <- st
				}
			}
		}
	}()
	return s
}

func next[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(60 * time.Second):
		t.Fatalf("no %s within 60 s", what)
	}
	return v
}

func TestStream(t *testing.T) {
	// who sleeps through two samples is told everything anew
	x := newGround(t, "fat-tree:radix=4,levels=2", 3*time.Second)
	s := x.stream(t)
	first := next(t, s.links, "links")
	if !first.Full || len(first.C) != 0 {
		t.Fatalf("an idle fabric begins with %+v", first)
	}
	r, err := x.m.Link("leaf1", "spine1")
	if err != nil {
		t.Fatal(err)
	}
	if err := x.m.SetFault(r, manager.FaultSpec{Down: true}, "a test"); err != nil {
		t.Fatal(err)
	}
	cable, _ := x.m.CableOf(r)
	for deadline := time.Now().Add(60 * time.Second); ; {
		l := next(t, s.links, "links")
		if l.Full {
			t.Fatal("a client that keeps up was told everything anew")
		}
		if isDown(t, l.C, cable) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a link that went down is not told")
		}
	}
	for told := false; !told; { // the manager has something to say about it too
		for _, e := range next(t, s.events, "events") {
			told = told || strings.Contains(e.Text, "leaf1[3]")
		}
	}
	for {
		if st := next(t, s.status, "status"); len(st.Faults) == 1 && st.Down == 1 {
			break
		}
	}
	// A second client is told what is so now, at once.
	late := next(t, x.stream(t).links, "links")
	if !late.Full || !isDown(t, late.C, cable) {
		t.Errorf("a client that came late was told %+v", late)
	}
}

// isDown reports whether a cable is told to be down by a fault. No other is, whatever the manager's own packets count
// there.
func isDown(t *testing.T, told []int, cable int) (down bool) {
	t.Helper()
	for ; len(told) >= 8; told = told[8:] {
		switch bad := told[1] & (stateDown | stateFault); {
		case told[0] == cable:
			down = bad == stateDown|stateFault
		case bad != 0:
			t.Errorf("cable %d is told to be in state %#x", told[0], told[1])
		}
	}
	return down
}

// Who does not read is cut off, and nobody waits for it meanwhile.
func TestStreamSlowClient(t *testing.T) {
	x := newGround(t, "fat-tree:radix=8,levels=2", 20*time.Millisecond)
	x.f.setLoad(1)
	var deaf []net.Conn
	for range 50 {
		c, err := net.Dial("tcp", x.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		deaf = append(deaf, c)
	}
	s := x.stream(t)
	limit := patience.New(30 * time.Second)
	for range 20 {
		next(t, s.links, "links")
	}
	if limit.Over() {
		t.Errorf("20 samples took %v beside %d clients that do not read", limit, len(deaf))
	}
	// Closing the page does not wait for them either.
	done := make(chan struct{})
	go func() { x.ui.Close(); close(done) }()
	next(t, done, "end")
}

func TestStreamLimit(t *testing.T) {
	x := newGround(t, "star:2", time.Hour)
	ui := New(x.m, Options{StreamsMax: 2})
	defer ui.Close()
	a, ok1 := ui.hub.join(2)
	_, ok2 := ui.hub.join(2)
	if _, ok := ui.hub.join(2); !ok1 || !ok2 || ok {
		t.Fatalf("joined %v, %v, %v; want true, true, false", ok1, ok2, ok)
	}
	ui.hub.leave(a)
	if _, ok := ui.hub.join(2); !ok {
		t.Error("a place that was left is not given again")
	}
}

// A thousand clients at once are served, and the fabric does not notice.
func TestStreamMany(t *testing.T) {
	x := newGround(t, "star:4", 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for range 1000 {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "GET", x.http.URL+"/api/v1/stream", nil)
			if err != nil {
				errs <- err
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				errs <- err
				return
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			for seen := 0; seen < 2; {
				line, err := in.ReadString('\n')
				if err != nil {
					errs <- err
					return
				}
				if strings.HasPrefix(line, "event: status") {
					seen++
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	if len(all) > 0 {
		t.Errorf("%d of 1,000 clients failed: %v", len(all), errors.Join(all[:min(3, len(all))]...))
	}
}

func FuzzTenantBody(f *testing.F) {
	for _, seed := range []string{`{"name":"red","hosts":["h1-h2"],"key":"0x11"}`,
		`{"name":"a","limited":true,"ipoib":true}`, `{"hosts":["-"]}`, `{"hosts":["h1-9999999999999999999"]}`,
		`{"key":"0xffff"}`, `[]`, `null`, `{"name":null}`, `{"hosts":[""," ,, "]}`, "{\"name\":\"\\u0000\"}"} {
		f.Add(seed)
	}
	x := newGround(f, "star:3", time.Hour)
	f.Fuzz(func(t *testing.T, body string) {
		resp, data := x.ask(t, "POST", "/api/v1/tenants", body)
		switch {
		case resp.StatusCode == 200:
			var made tenantShown
			if err := json.Unmarshal(data, &made); err != nil {
				t.Fatal(err)
			}
			if err := x.book.Delete(t.Context(), made.Name); err != nil {
				t.Fatalf("%q made a tenant that cannot be deleted: %v", body, err)
			}
		case resp.StatusCode < 400 || resp.StatusCode >= 500:
			t.Fatalf("%q: %d %s", body, resp.StatusCode, data)
		}
		if n := len(x.book.List()); n != 0 {
			t.Fatalf("%q was refused and left %d tenants", body, n)
		}
	})
}
