package experiment

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
)

// pageOf is a report's page.
func pageOf(t testing.TB, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := WritePage(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var dataBlock = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

// TestPageData: what a page carries is the report, whatever it has in it.
func TestPageData(t *testing.T) {
	reports := degenerate()
	reports["sample"], reports["hostile"] = sample(1), hostileSample()
	for name, r := range reports {
		t.Run(name, func(t *testing.T) {
			page := pageOf(t, r)
			m := dataBlock.FindStringSubmatch(page)
			if m == nil {
				t.Fatal("the page has no block of data")
			}
			var got []map[string]any
			if err := json.Unmarshal([]byte(m[1]), &got); err != nil || len(got) != 1 {
				t.Fatalf("the data are %d reports, %v; want 1", len(got), err)
			}
			if load := got[0]["load"].(map[string]any); load["name"] != r.Load.Name {
				t.Errorf("the load is %q, want %q", load["name"], r.Load.Name)
			}
			if n := strings.Count(page, "<script"); n != 2 {
				t.Errorf("the page has %d scripts, want its data and its own", n)
			}
			if strings.Contains(page, "<img") || strings.Contains(page, "<!--") {
				t.Error("a name became markup")
			}
		})
	}
}

// TestSeedIsExact: JavaScript would round a seed past 2^53, and the command would then repeat another run.
func TestSeedIsExact(t *testing.T) {
	if page := pageOf(t, sample(1)); !strings.Contains(page, `"seed":"18446744073709551614"`) {
		t.Error("the seed is not a text in full")
	}
}

// TestAsksForNothing: the page works where there is no network, and tells nobody that it was opened.
func TestAsksForNothing(t *testing.T) {
	page := strings.ReplaceAll(pageOf(t, sample(1)), "http://www.w3.org/2000/svg", "")
	for _, word := range []string{"http://", "https://", "@import", "url(", "fetch(", "XMLHttpRequest", " src=",
		"import "} {
		if strings.Contains(page, word) {
			t.Errorf("the page has %q", word)
		}
	}
	if n := strings.Count(page, "href="); n != 1 || !strings.Contains(page, `href="data:,"`) {
		t.Errorf("the page has %d addresses, want that of no icon", n)
	}
}

// TestPageFiles: every file is in the page, and none ends the element that it is in.
func TestPageFiles(t *testing.T) {
	entries, err := pageFiles.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text := string(readPage(e.Name()))
		if strings.HasSuffix(e.Name(), ".js") && !strings.Contains(pageScript, text) {
			t.Errorf("%s is in the folder and not in the page", e.Name())
		}
		if !strings.HasSuffix(e.Name(), ".html") && strings.Contains(text, "</") {
			t.Errorf("%s has %q", e.Name(), "</")
		}
		for i, line := range strings.Split(text, "\n") {
			if n := len([]rune(line)); n > 160 {
				t.Errorf("%s:%d: %d columns, at most 160", e.Name(), i+1, n)
			}
		}
	}
}

// TestRefused: what can not be shown is refused with a word on what to do, and nothing is written.
func TestRefused(t *testing.T) {
	bad := sample(1)
	bad.Fairness = math.NaN()
	var unsupported *json.UnsupportedValueError
	for name, c := range map[string]struct {
		write func(io.Writer) error
		want  func(error) bool
	}{
		"no report":  {func(w io.Writer) error { return WritePage(w, nil) }, isReports},
		"one report": {func(w io.Writer) error { return WriteComparison(w, []*Report{sample(1)}) }, isReports},
		"a hole":     {func(w io.Writer) error { return WriteComparison(w, []*Report{sample(1), nil}) }, isReports},
		"not a number": {func(w io.Writer) error { return WritePage(w, bad) },
			func(err error) bool { return errors.As(err, &unsupported) }},
	} {
		var b bytes.Buffer
		if err := c.write(&b); !c.want(err) || b.Len() > 0 {
			t.Errorf("%s: %v, and %d bytes were written", name, err, b.Len())
		}
	}
}

func isReports(err error) bool { return errors.Is(err, ErrReports) }
