package main

import (
	"os"
	"path/filepath"
	"testing"

	"softib/proto/trace"
)

func TestTorture(t *testing.T) {
	s := newShell(t)
	out := s.run("torture", "--seeds", "3", "--hosts", "4")
	wants(t, out, "3 of 3 seeds", "requests", "packet hops", "no violation")
	out = s.run("torture", "--seed", "77")
	wants(t, out, "1 of 1 seeds", "1 runs compared with a second one")
	// As README has it.
	file := filepath.Join(t.TempDir(), "history.pcapng")
	s.run("torture", "--seed", "7", "--kind", "data", "--capture", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := trace.ReadPcapng(b); err != nil || len(c.Records) == 0 {
		t.Errorf("a capture of %d bytes: %v", len(b), err)
	}
	out = s.run("torture", "--kind", "cluster", "--seeds", "20")
	wants(t, out, "20 of 20 seeds", "changes acknowledged", "masters", "no violation")
	for _, args := range [][]string{
		{"torture", "--seeds", "0"}, {"torture", "--hosts", "1"}, {"torture", "--hosts", "9999"},
		{"torture", "--parallel", "-1"}, {"torture", "what"},
	} {
		s.fails(exitUsage, nil, args...)
	}
}
