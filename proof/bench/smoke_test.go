package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"softib/internal/built"
	"softib/internal/patience"
)

// TestSmoke runs all that make bench measures, tiny and once, as make bench does: the command that make builds, and the
// peers, all of which set-up has installed for make test. What it would print is not judged, but all of it is there.
func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	if err := built.Libraries(filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if err := built.Command(filepath.Join(dir, "softib")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", dir, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ctx, cancel := patience.Context(t.Context(), 6*time.Minute) // what hangs is given up, and named, before
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "bench"), "-smoke", "-softib", filepath.Join(dir, "softib"))
	cmd.Dir, cmd.WaitDelay = "../..", time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"ib_send_lat 8 bytes", "ib_write_bw 1 MiB", "UCX shared memory",
		"TCP loopback (qperf)", "memcpy 64 KiB", "ib: attach and first queue pair", "ib: daemon's memory for a process",
		"ib: memory of a queue pair", "ib: 10,000 queue pairs connected", "ib: 100,000 regions of 4 KiB",
		"ib: one region of 16 GiB", "ib_send_lat 8 bytes, 4 at once", "Open MPI: longest start, 24 ranks",
		"Open MPI: all-to-all 4 KiB", "its shared memory", "switched: ib_write_bw 4 KiB", "sim, 1024 hosts",
		"live, 8-byte sends",
		"machines: ib_write_bw 64 KiB", "wireguard-go over the same veth",
		"RoCEv2: ib_write_bw 64 KiB", "IPoIB connected: TCP (iperf3)", "IPoIB datagram: TCP (iperf3)",
		"TCP over the same veth (iperf3)", "UCX over TCP over the same veth",
		"softib up, start to SUBNET UP", "– softib top -n 1", "– softib doctor", "– softib tenant add",
		"softib sm --on ibsim --once", "nue routing alone",
		"one link lost", "PathRecord answered", "ftree tables, 5 % of links removed", "nue tables"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() || strings.Contains(string(out), errAbsent.Error()) {
		t.Errorf("not all was measured:\n%s", out)
	}
}

// What does not end is given up, and the error says what was awaited and what to do.
func TestGivesUp(t *testing.T) {
	dir := t.TempDir()
	hangs := filepath.Join(dir, "softib")
	if err := os.WriteFile(hangs, []byte("#!/bin/sh\nexec sleep infinity\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := &bench{softib: hangs, patience: 100 * time.Millisecond}
	m := &management{bench: b, dir: dir}
	for want, wait := range map[string]func() error{
		"sleep infinity to end": func() error { _, err := b.output(t.Context(), nil, "sleep", "infinity"); return err },
		"softib up star:2 --json to print its status": func() error {
			_, err := m.softibUp(t.Context(), "star:2")
			return err
		},
		"sleep infinity to listen on port 1": func() error {
			_, err := b.withServer(t.Context(), nil, "sleep", 1, []string{"infinity"}, []string{"0"})
			return err
		},
	} {
		err := wait() // which does not end unless it gives up
		if err == nil || !strings.Contains(err.Error(), "waited 100ms for "+want) ||
			!strings.Contains(err.Error(), "; next: ") {
			t.Errorf("%s: %v", want, err)
		}
	}
	// A server that ends is not waited for.
	b.patience = time.Minute
	if _, err := b.withServer(t.Context(), nil, "false", 1, nil, nil); err == nil || !strings.Contains(err.Error(),
		"ended before it listened on port 1") {
		t.Error(err)
	}
	// A fabric that ends without a word is an error too.
	b.softib = "false"
	if _, err := m.softibUp(t.Context(), "star:2"); err == nil {
		t.Error("it was up")
	}
	if !b.absent(errAbsent) || b.absent(errors.New("other")) || (&bench{smoke: true}).absent(errAbsent) {
		t.Error("a missing peer is left out of a measurement, and an error of a smoke run")
	}
}
