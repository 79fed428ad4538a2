package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"softib/operate/manager"
	"softib/operate/manager/metrics"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// watching is a softib watch --json that runs.
type watching struct {
	t *testing.T
	watched
	events chan manager.Event
	cancel context.CancelFunc
	ended  chan error
}

func watch(t *testing.T, args ...string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t: t, cancel: cancel, events: make(chan manager.Event, 1000), ended: make(chan error, 1)}
	in, out := io.Pipe()
	root := newRoot()
	root.SetOut(out)
	root.SetErr(io.Discard)
	root.SetArgs(append([]string{"watch", "--json", "--state", "none", "--http", "127.0.0.1:0"}, args...))
	go func() {
		err := root.ExecuteContext(ctx)
		out.CloseWithError(io.EOF)
		w.ended <- err
	}()
	t.Cleanup(func() { cancel(); in.Close() })
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		t.Fatalf("softib watch %s: %v", strings.Join(args, " "), <-w.ended)
	}
	if err := json.Unmarshal(lines.Bytes(), &w.watched); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.events)
		for lines.Scan() {
			var e struct {
				Kind, Text, Object string
			}
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				w.events <- manager.Event{Kind: e.Kind, Text: e.Text, Object: e.Object}
			}
		}
	}()
	return w
}

// await waits for an event with some words.
func (w *watching) await(words ...string) manager.Event {
	w.t.Helper()
	late := time.After(60 * time.Second)
	for {
		select {
		case e, open := <-w.events:
			all := open
			for _, x := range words {
				all = all && strings.Contains(e.Text, x)
			}
			if all {
				return e
			}
			if !open {
				w.t.Fatalf("it ended before %q", words)
			}
		case <-late:
			w.t.Fatalf("nothing like %q happens", words)
		}
	}
}

// get asks the page.
func (w *watching) get(path string) string {
	w.t.Helper()
	code, body := get(w.t, http.DefaultClient, w.Page+path, "", "")
	if code != 200 {
		w.t.Fatalf("/%s: %d\n%s", path, code, body)
	}
	return body
}

// send makes a request with a body and wants a status.
func (w *watching) send(method, path, body string, want int) string {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.Page+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		w.t.Errorf("%s /%s: %d, want %d: %s %v", method, path, resp.StatusCode, want, b, err)
	}
	return string(b)
}

// pageStatus is the head of the page.
type pageStatus struct {
	Hosts, Switches, Cables, Active, Down, Alarms int
	Manager                                       string
}

func (w *watching) status() pageStatus { return asJSON[pageStatus](w.t, w.get("api/v1/status")) }

// reaches wants the page to show a way, there and back.
func (w *watching) reaches(a, b string) {
	w.t.Helper()
	text := w.get("api/v1/route?from=" + a + "&to=" + b)
	if r := asJSON[struct{ There, Back struct{ Arrives bool } }](w.t, text); !r.There.Arrives || !r.Back.Arrives {
		w.t.Error(text)
	}
}

// series are the samples of metrics with a prefix, by name and labels.
func series(text, prefix string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if at := strings.LastIndexByte(line, ' '); at > 0 && strings.HasPrefix(line, prefix) {
			m[line[:at]] = line[at+1:]
		}
	}
	return m
}

// TestWatchServiceNodes: what is part of a switch is counted apart from hosts, in the first line and on the page.
func TestWatchServiceNodes(t *testing.T) {
	newLab(t, "../../proto/topo/testdata/dumps/dgx.ibnetdiscover", &sm.Config{})
	w := watch(t, "--on", "fabric:dgx01", "--interval", "50ms")
	if w.Hosts != 9 || w.ServiceNodes != 2 || w.Switches != 2 || w.Cables != 13 {
		t.Errorf("%+v", w.watched)
	}
	s := asJSON[struct {
		Hosts        int
		ServiceNodes int `json:"service_nodes"`
	}](t, w.get("api/v1/status"))
	if s.Hosts != 9 || s.ServiceNodes != 2 {
		t.Errorf("the page: %+v", s)
	}
}

// A fabric that is watched from another process shows what it shows itself.
func TestWatchFabric(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{})
	own, err := l.manage(place{}, upOptions{state: stateNone})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	w := watch(t, "--on", "fabric:h3", "--interval", "50ms")
	if w.Hosts != 8 || w.Switches != 6 || w.Cables != 16 || w.Active != 16 || w.From != "h3[1]" || w.Changes {
		t.Errorf("%+v", w.watched)
	}
	if s := w.status(); s.Hosts != 8 || s.Switches != 6 || s.Cables != 16 || s.Active != 16 || s.Down != 0 ||
		s.Manager != "not ours" {
		t.Errorf("%+v", s)
	}
	wants(t, w.get(""), "<!doctype html>")
	wants(t, w.get("api/v1/topology"), "leaf1")
	w.reaches("h1", "h8")
	wants(t, w.get("ufmRest/resources/systems"), "leaf1")

	// The same series, and the same values of all that does not count the questions themselves.
	rec := httptest.NewRecorder()
	metrics.New(own).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	const prefix = "infiniband_"
	want, got := series(rec.Body.String(), prefix), series(w.get("metrics"), prefix)
	same := 0
	for k, v := range want {
		g, ok := got[k]
		switch {
		case strings.Contains(k, "_collect_duration_") || strings.HasPrefix(k, "infiniband_exporter_"):
		case !ok:
			t.Errorf("no series %s", k)
		case strings.Contains(k, "_data_bytes_") || strings.Contains(k, "_packets_"):
		case g != v:
			t.Errorf("%s is %s, want %s", k, g, v)
		default:
			same++
		}
	}
	if len(got) < len(want) || same < 100 {
		t.Errorf("%d series of %d, %d of them the same", len(got), len(want), same)
	}

	// Nobody changes anything here.
	wants(t, w.send(http.MethodPut, "api/v1/faults", `{"link":"leaf1[3]","fault":"down"}`, 400), "--allow-changes")
	wants(t, w.send(http.MethodPut, "api/v1/faults", `{"link":"leaf1[3]","fault":"ber=1e-6"}`, 400), "softib up FILE")
	if body := w.send(http.MethodPost, "api/v1/tenants", `{"name":"red","hosts":["h1"]}`, 409); !strings.Contains(body,
		"error") {
		t.Error(body)
	}
	w.send(http.MethodPost, "ufmRest/resources/pkeys", `{"pkey":"0x1","guids":["0000000000000001"]}`, 409)

	// A link that goes down is seen.
	if err := l.SetLink(l.ref("leaf1", 3), false); err != nil {
		t.Fatal(err)
	}
	w.await("leaf1[3]", "spine1[1]", "is DOWN")
	w.awaitStatus(func(s pageStatus) bool { return s.Down == 1 && s.Active == 15 })
	if err := l.SetLink(l.ref("leaf1", 3), true); err != nil {
		t.Fatal(err)
	}
	w.awaitStatus(func(s pageStatus) bool { return s.Down == 0 && s.Active == 16 })
	w.cancel()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
}

// awaitStatus waits until the page says something.
func (w *watching) awaitStatus(is func(pageStatus) bool) {
	w.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		code, body := get(w.t, http.DefaultClient, w.Page+"api/v1/status", "", "")
		if code == 200 && is(asJSON[pageStatus](w.t, body)) {
			tick.Stop()
			return
		}
		// while one manager takes another's place, nobody answers
		if code != 200 && code != http.StatusServiceUnavailable || time.Now().After(deadline) {
			w.t.Fatalf("%d: the page says %s", code, body)
		}
	}
}

// What is new is on the page, at the same address; and ports can be disabled where that is allowed.
func TestWatchGrowsAndChanges(t *testing.T) {
	l := newLab(t, "fat-tree:radix=4,levels=2", &sm.Config{})
	if err := l.SetLink(l.ref("h8", 1), false); err != nil {
		t.Fatal(err)
	}
	w := watch(t, "--on", "fabric", "--interval", "20ms", "--allow-changes")
	if w.Hosts != 7 || !w.Changes {
		t.Errorf("%+v", w.watched)
	}
	if err := l.SetLink(l.ref("h8", 1), true); err != nil {
		t.Fatal(err)
	}
	w.await("h8 is new")
	w.awaitStatus(func(s pageStatus) bool { return s.Hosts == 8 })
	w.send(http.MethodPut, "api/v1/faults", `{"link":"leaf2[3]","fault":"down"}`, 200)
	w.awaitStatus(func(s pageStatus) bool { return s.Down == 1 })
	if s := l.PortState(l.ref("leaf2", 3)); s != ib.PortDown {
		t.Errorf("leaf2[3] is %v", s)
	}
	w.send(http.MethodDelete, "api/v1/faults?link=leaf2[3]", "", 200)
	w.awaitStatus(func(s pageStatus) bool { return s.Down == 0 && s.Active == 16 })
}

// TestWatchText is what people see.
func TestWatchText(t *testing.T) {
	l := newLab(t, "star:3", &sm.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	root := newRoot()
	root.SetOut(out)
	root.SetErr(io.Discard)
	file := filepath.Join(t.TempDir(), "names")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%v \"the middle\"\n", l.Graph().Switches()[0].GUID),
		0o600); err != nil {
		t.Fatal(err)
	}
	root.SetArgs([]string{"watch", "--http", "127.0.0.1:0", "--state", t.TempDir(), "--node-name-map", file,
		"--interval", "20ms"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	var text strings.Builder
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Ctrl-C ends it") {
			break
		}
	}
	narrow(t, text.String())
	wants(t, text.String(), "watching  fabric, 3 hosts, 1 switch", "from h1[1]", "links     3 of 3 ACTIVE, 0 down",
		"page      http://127.0.0.1:", "read-only")
	_, url, _ := strings.Cut(text.String(), "page      ")
	url, _, _ = strings.Cut(url, "\n")
	if code, body := get(t, http.DefaultClient, url+"api/v1/topology", "", ""); code != 200 ||
		!strings.Contains(body, "the middle") {
		t.Errorf("%d: %s", code, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	broken(t, exitUsage, []string{"want fabric, ibsim or umad"}, "watch", "--on", "elsewhere", "--http", "off",
		"--state", "none")
	broken(t, exitUsage, []string{"is no port"}, "watch", "--on", "umad:mlx5_0:x", "--http", "off", "--state", "none")
	broken(t, exitUsage, []string{"--interval"}, "watch", "--interval", "1ns")
	broken(t, exitUsage, []string{`no node "nobody"`}, "watch", "--on", "fabric:nobody", "--http", "off", "--state",
		"none")
	broken(t, exitFailed, []string{"no fabric"}, "watch", "--name", "other", "--http", "off", "--state", "none")
}

// A fabric that ends is said, with what to do.
func TestWatchEnds(t *testing.T) {
	s := newShell(t)
	s.run("up", "-d", "star:2", "--http", "off", "--state", "none")
	t.Setenv("XDG_RUNTIME_DIR", s.dir)
	w := watch(t, "--interval", "20ms")
	s.run("down")
	select {
	case err := <-w.ended:
		if err == nil || nextOf(err) == "" || !strings.Contains(err.Error(), "watched no more") {
			t.Errorf("%v", err)
		}
	case <-time.After(60 * time.Second):
		t.Error("it goes on without a fabric")
	}
}

// On ibsim: a fabric that is neither ours nor hardware.
func TestWatchIBSim(t *testing.T) {
	path, err := exec.LookPath("ibsim")
	if err != nil {
		t.Fatal("no ibsim on this machine; next: make test, which installs ibsim-utils")
	}
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(file, topo.Append(nil, g), 0o600); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("softib-watch-%d", os.Getpid())
	t.Setenv("IBSIM_SOCKNAME", name)
	t.Setenv("XDG_RUNTIME_DIR", privateDir(t))
	sim := exec.Command(path, "-s", file)
	console, err := sim.StdinPipe() // at the end of its console ibsim would spin
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sim.Process.Kill()
		_ = sim.Wait()
	})
	// It binds this socket last. The kernel's table writes a zero byte as @.
	last := []byte(" @" + name + ":out9@\n")
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		table, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(table, last) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("ibsim has no sockets")
		}
	}
	if _, _, err := softib(t, "sm", "--on", "ibsim", "--once"); err != nil {
		t.Fatal(err)
	}
	w := watch(t, "--on", "ibsim", "--interval", "50ms")
	// Where ibsim had no turn some of it is seen later.
	w.awaitStatus(func(s pageStatus) bool {
		return s.Hosts == 8 && s.Switches == 6 && s.Cables == 16 && s.Active == 16 && s.Alarms == 0
	})
	got := series(w.get("metrics"), "infiniband_switch_port_")
	if len(got) < 6*4*10 {
		t.Errorf("%d series", len(got))
	}
	wants(t, w.get(""), "<!doctype html>")
	w.reaches("h1", "h8")
	// ibsim's console takes a link down.
	n := g.ByName("leaf1")
	fmt.Fprintf(console, "Unlink \"S-%016x\"[3]\n", uint64(n.GUID))
	w.awaitStatus(func(s pageStatus) bool { return s.Down == 1 })
}

// People are shown so many events a second, and how many there were beyond.
func TestEventPrinter(t *testing.T) {
	var b strings.Builder
	p := (&watchCommand{}).printer(io.Discard, &b)
	p.began = time.Now().Add(time.Hour) // this second does not end
	for i := range linesMax + 30 {
		p.print(manager.Event{Kind: "alarm", Text: fmt.Sprintf("number %d.", i)})
	}
	p.flush()
	p.flush()
	if got := strings.Count(b.String(), "\n"); got != linesMax+1 {
		t.Errorf("%d lines", got)
	}
	wants(t, b.String(), "watch alarm: number 0.", fmt.Sprintf("number %d.", linesMax-1),
		"and 30 events, which the page has")
}
