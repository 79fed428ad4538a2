package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/patience/patiencetest"
	"softib/node/inspect"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

func TestMeshSteps(t *testing.T) {
	for n := 2; n < 300; n++ {
		steps := meshSteps(n)
		if !slices.IsSorted(steps) || len(slices.Compact(slices.Clone(steps))) != len(steps) || steps[0] < 1 ||
			steps[len(steps)-1] > n-1 {
			t.Fatalf("%d hosts: rounds %v", n, steps)
		}
		if n*(n-1) <= meshPairsMax && len(steps) != n-1 {
			t.Errorf("%d hosts: %d rounds, want %d", n, len(steps), n-1)
		}
		if len(steps) > 1 && n*len(steps) > meshPairsMax {
			t.Errorf("%d hosts: %d pairs", n, n*len(steps))
		}
	}
}

func TestMessagesDiffer(t *testing.T) {
	seen := map[string]bool{}
	var buf [meshSize]byte
	for from := range 20 {
		for to := range 20 {
			message(buf[:], from, to)
			if seen[string(buf[:])] {
				t.Fatalf("%d to %d has the message of another pair", from, to)
			}
			seen[string(buf[:])] = true
		}
	}
}

// A fabric with a hole is not called whole: the pairs are named.
func TestMeshFindsHoles(t *testing.T) {
	g, err := topo.ParseSpec("star:3")
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFabric(t.Context(), "t", "star:3", g, &sm.Config{}, nil, io.Discard,
		toTerminal(newTerminal(io.Discard)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	devs, silent := f.devices()
	if len(devs) != 3 || silent != 0 {
		t.Fatalf("%d devices, %d silent", len(devs), silent)
	}
	res, err := mesh(t.Context(), devs, nil, func(int, int) {})
	if err != nil || res.Pairs != 6 || res.Possible != 6 {
		t.Fatalf("%+v, %v", res, err)
	}
	if links := linkStates(f); links["ACTIVE"] != 3 || len(links) != 1 {
		t.Errorf("links are %v", links)
	}
	// What a cable swallows is waited for, and how long is said.
	h2 := topo.PortRef{Node: f.Hosts()[1].Node().Index, Port: 1}
	if err := f.SetFault(h2, live.Fault{Drop: 1}); err != nil {
		t.Fatal(err)
	}
	defer func(d time.Duration) { meshPatience = d }(meshPatience)
	meshPatience = 100 * time.Millisecond
	_, err = mesh(t.Context(), devs, nil, func(int, int) {})
	if err == nil || !regexp.MustCompile(`h1 to h2 \(waited for [0-9.]+m?s`).MatchString(err.Error()) {
		t.Errorf("a cable that swallows everything: %v", err)
	}
	t.Run("busy", func(t *testing.T) {
		// A machine with much to do is waited for longer.
		patiencetest.Pretend(t, 20)
		meshPatience = 10 * time.Millisecond
		_, err = mesh(t.Context(), devs, nil, func(int, int) {})
		said := regexp.MustCompile(`h1 to h2 \(waited for ([0-9.ms]+)(.*?)\)`).FindStringSubmatch(fmt.Sprint(err))
		if said == nil {
			t.Fatal(err)
		}
		if d, e := time.ParseDuration(said[1]); e != nil || d < 200*time.Millisecond ||
			said[2] != patiencetest.Words(20) {
			t.Errorf("%v: want 200ms and more%s", err, patiencetest.Words(20))
		}
	})
	if err := f.ClearFault(h2); err != nil {
		t.Fatal(err)
	}
	if err := f.SetLink(h2, false); err != nil {
		t.Fatal(err)
	}
	if links := linkStates(f); links["ACTIVE"] != 2 || links[inspect.StateName(ib.PortDown)] != 1 {
		t.Errorf("links are %v", links)
	}
	if _, silent := f.devices(); silent != 1 {
		t.Errorf("%d hosts are silent, want 1", silent)
	}
	if err := f.ping(t.Context(), toTerminal(newTerminal(io.Discard))); err == nil || nextOf(err) == "" ||
		!strings.Contains(err.Error(), "not up as a whole: 1 of 3 hosts") {
		t.Errorf("a fabric with a silent host: %v", err)
	}
	if _, err := mesh(t.Context(), devs, nil, func(int, int) {}); err == nil ||
		!strings.Contains(err.Error(), "h2 has no port that is ACTIVE") {
		t.Errorf("a host without a link: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	devs, _ = f.devices()
	if _, err := mesh(ctx, devs, nil, func(int, int) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("a mesh that nobody waits for: %v", err)
	}
	e := &meshError{bad: []string{"h1 to h2", "h2 to h3", "h3 to h4", "h4 to h5", "h5 to h6"}}
	wants(t, e.Error(), "h1 to h2", "and 1 more")
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	term := newTerminal(&out)
	if term.isTTY || term.color || term.green("x") != "x" {
		t.Error("a buffer was taken for a terminal")
	}
	p := term.progress("mesh")
	p.at(1, 10)
	p.end()
	if out.Len() > 0 {
		t.Errorf("what is soon over shows %q", out.String())
	}
	p.started = time.Now().Add(-time.Minute)
	p.at(5, 10)
	p.at(6, 10)
	p.end()
	if out.String() != "mesh: 5 of 10\n" {
		t.Errorf("plain progress is %q", out.String())
	}
	out.Reset()
	p.shown = time.Time{}
	p.at(7, 0)
	if out.String() != "mesh: 7 s\n" {
		t.Errorf("progress without a total is %q", out.String())
	}
	out.Reset()
	term.isTTY, term.color = true, true
	p = term.progress("mesh")
	p.started = time.Now().Add(-time.Minute)
	p.at(5, 10)
	p.end()
	wants(t, out.String(), "\r\x1b[Kmesh [###############...............] 5 of 10", "\r\x1b[K")
	if !strings.HasSuffix(out.String(), "\r\x1b[K") || term.green("x") == "x" {
		t.Errorf("progress on a terminal is %q", out.String())
	}
}

func TestBytesOf(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1536: "1.5 KiB",
		5 << 30: "5.0 GiB"} {
		if got := bytesOf(n); got != want {
			t.Errorf("bytesOf(%d) = %q, want %q", n, got, want)
		}
	}
}

// linkStates counts a fabric's links by state.
func linkStates(f *fabric) map[string]int {
	return status.Gather(context.Background(), status.Source{Fabric: f.Fabric}).LinkStates
}
