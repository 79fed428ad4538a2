package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTutorial(t *testing.T) {
	need(t, "gcc", "ibv_devinfo", "ib_write_bw", "perfquery", "ibqueryerrors", "smpquery", "rping", "tshark", "curl",
		"ss")
	s := newShell(t)
	s.late("exec h1 -- ib_write_bw") // its client, which is pasted with it, waits until it is there
	s.follow("../../docs/TUTORIAL.md")
}

func TestOperate(t *testing.T) {
	need(t, "gcc", "curl")
	newShell(t).follow("../../docs/OPERATE.md")
}

func TestCI(t *testing.T) {
	need(t, "gcc")
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		t.Fatal("no rdma/rdma_cma.h on this machine; next: make test, which installs librdmacm-dev")
	}
	newShell(t).follow("../../docs/CI.md")
}

// Programs in Go run against a fabric, as their document says.
func TestExamples(t *testing.T) {
	need(t, "gcc")
	s := newShell(t)
	s.atSource("go")
	s.follow("../../examples/README.md")
}

// The README's program is the example hello, which TestExamples runs.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(readme), -1)
	if len(programs) != 1 || programs[0][1] != string(want) {
		t.Errorf("README.md has %d programs in Go, and should have one: examples/hello/main.go as it is", len(programs))
	}
}

// link is a link of a document to a file.
var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// fenced is a block of code or of a terminal, in which nothing is a link.
var fenced = regexp.MustCompile("(?ms)^```.*?^```$")

// TestLinks wants every file that a document links to, and every heading.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) < 5 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	for _, path := range append(docs, "../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md",
		"../../examples/README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
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

// named is a test by its package and name.
var named = regexp.MustCompile("`([a-z][a-z/0-9]*)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")

// TestNamed wants every test that a document calls a proof.
func TestNamed(t *testing.T) {
	for _, path := range []string{"../../docs/TRUTH.md", "../../docs/CI.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := named.FindAllStringSubmatch(string(text), -1)
		if len(found) < 3 {
			t.Errorf("%s names %d tests", path, len(found))
		}
		for _, m := range found {
			if !hasTest(t, m[1], m[2]) {
				t.Errorf("%s: there is no %s in %s", path, m[2], m[1])
			}
		}
	}
}

// hasTest looks for a test in a folder that is named by the end of its path.
func hasTest(t *testing.T, folder, name string) bool {
	var files []string
	for _, room := range []string{".", "*", "*/*"} {
		found, err := filepath.Glob(filepath.Join("../..", room, folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
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
