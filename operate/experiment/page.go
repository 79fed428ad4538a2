package experiment

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strconv"
)

//go:embed page
var pageFiles embed.FS

// pageScripts are put together into one script, in this order.
var pageScripts = []string{"units.js", "dom.js", "axis.js", "plot.js", "heat.js", "parts.js", "report.js", "compare.js",
	"main.js"}

var (
	pageTemplate = template.Must(template.ParseFS(pageFiles, "page/page.html"))
	pageStyle    = string(readPage("page.css"))
	pageScript   = string(readPage(pageScripts...))
	// pagePolicy lets the page run what is ours and nothing else, and ask for nothing. Names out of files of others are
	// in the page, and should one ever be taken for markup, it stays without effect.
	pagePolicy = fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; "+
		"form-action 'none'", digest(pageStyle), digest(pageScript))
)

// ErrReports is that there are too few reports for what is asked.
var ErrReports = errors.New("experiment: too few reports")

// WritePage writes a report as a page: one HTML file that needs nothing else, so that it can be kept beside the figures
// that it shows, sent to somebody, and opened years later.
func WritePage(w io.Writer, r *Report) error {
	if r == nil {
		return fmt.Errorf("%w: a page shows one, and there is none: run the experiment first", ErrReports)
	}
	return writePage(w, title(r), []*Report{r})
}

// WriteComparison writes reports side by side as a page like WritePage's. The first is what the others are measured by,
// so that a change to a fabric is seen as better or worse, and by how much.
func WriteComparison(w io.Writer, rs []*Report) error {
	if len(rs) < 2 {
		return fmt.Errorf("%w: a comparison is of two or more, and there are %d: name another report", ErrReports,
			len(rs))
	}
	for i, r := range rs {
		if r == nil {
			return fmt.Errorf("%w: number %d of a comparison is missing: run that experiment first", ErrReports, i+1)
		}
	}
	return writePage(w, fmt.Sprintf("%s, and %d more: softib comparison", title(rs[0]), len(rs)-1), rs)
}

func title(r *Report) string { return fmt.Sprintf("%s on %s", r.Load.Name, r.Fabric.Topology) }

// pageReport is a report as the page has it.
type pageReport struct {
	*Report
	// Seed is a text: JavaScript's numbers are not exact past 2^53.
	Seed string `json:"seed"`
}

func writePage(w io.Writer, title string, rs []*Report) error {
	data := make([]pageReport, len(rs))
	for i, r := range rs {
		data[i] = pageReport{r, strconv.FormatUint(r.Seed, 10)}
	}
	// Marshal writes <, > and & as escapes, so that no text in it ends the element that it is in.
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("experiment: a report can not be written as JSON: %w: its figures must be finite numbers, "+
			"so this is a mistake of softib's: file it with the command that was run", err)
	}
	// All of it is made before any of it is written: half a page is worse than none.
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, map[string]any{"Title": title, "Policy": pagePolicy,
		"Style": template.CSS(pageStyle), "Script": template.JS(pageScript), "Data": template.JS(text)}); err != nil {
		return fmt.Errorf("experiment: page: %w", err)
	}
	_, err = w.Write(page.Bytes())
	return err
}

// readPage has files of the page, one after the other.
func readPage(names ...string) []byte {
	var all []byte
	for _, name := range names {
		text, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		all = append(all, text...)
	}
	return all
}

// digest is how a policy names a script or sheet.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
