package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"softib/proto/trace"
)

func TestTorture(t *testing.T) {
	s := newShell(t)
	out := s.run("torture", "--seeds", "3", "--hosts", "4")
	wants(t, out, "3 of 3 seeds", "requests", "packet hops", "histories: 2 of programs (", "1 of management, ",
		"packets from ring to ring", "no violation")
	out = s.run("torture", "--seed", "77")
	wants(t, out, "1 of 1 seeds", "1 runs compared with a second one")
	// As README.md has it, but for the folder.
	args := readmeCapture(t)
	file := filepath.Join(t.TempDir(), args[len(args)-1])
	s.run(append(args[:len(args)-1:len(args)-1], file)...)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := trace.ReadPcapng(b); err != nil || len(c.Records) == 0 {
		t.Errorf("a capture of %d bytes: %v", len(b), err)
	}
	out = s.run("torture", "--kind", "cluster", "--seeds", "20")
	wants(t, out, "20 of 20 seeds", "histories: 0 of programs", "20 of machines", "changes acknowledged",
		"masters", "no violation")
	for _, args := range [][]string{
		{"torture", "--seeds", "0"}, {"torture", "--hosts", "1"}, {"torture", "--hosts", "9999"},
		{"torture", "--parallel", "-1"}, {"torture", "what"},
	} {
		s.fails(exitUsage, nil, args...)
	}
}

// readmeCapture is the README's example of a run of torture that is captured: its arguments, of which the last one is
// the file.
func readmeCapture(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	captures := regexp.MustCompile(`(?m)^    bin/softib (torture .*--capture [^\s/]+)$`)
	found := captures.FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("README.md has %d captures of torture, want one", len(found))
	}
	return strings.Fields(found[0][1])
}
