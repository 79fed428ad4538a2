package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTutorial(t *testing.T) {
	need(t, "gcc", "ibv_devinfo", "ib_write_bw", "perfquery", "ibqueryerrors", "rping", "tshark")
	newShell(t).follow("../../docs/TUTORIAL.md")
}

func TestCI(t *testing.T) {
	need(t, "gcc")
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		t.Skip("no rdma/rdma_cma.h on this machine; next: make test, which installs librdmacm-dev")
	}
	newShell(t).follow("../../docs/CI.md")
}

// link is a link of a document to a file.
var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// TestLinks wants every file that a document links to, and every heading.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) < 5 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	for _, path := range append(docs, "../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(path), m[1])
			b, err := os.ReadFile(target)
			if err != nil {
				if info, dir := os.Stat(target); dir != nil || !info.IsDir() {
					t.Errorf("%s: link to %s: %v", path, m[1], err)
				}
				continue
			}
			if m[2] != "" && !headings(string(b))[strings.TrimPrefix(m[2], "#")] {
				t.Errorf("%s: %s has no heading %s", path, m[1], m[2])
			}
		}
	}
}

// headings are the anchors that a page of Markdown gets.
func headings(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		name := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		name = regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(name, "")
		out[strings.ReplaceAll(name, " ", "-")] = true
	}
	return out
}
