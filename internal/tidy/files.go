package tidy

import (
	"bytes"
	"fmt"
	"go/format"
	"path"
	"regexp"
	"slices"
	"strings"
)

// CheckDoc wants a doc.go in every package whose comment opens the usual way.
// Examples are read file by file, so there any file may carry the comment.
func CheckDoc(m *Module) []Complaint {
	var out []Complaint
	for _, p := range m.Packages {
		opening := "Package " + p.Name + " "
		if p.Name == "main" {
			opening = "Command "
		}
		anyFile := p.Dir == "examples" || strings.HasPrefix(p.Dir, "examples/")
		if !slices.ContainsFunc(p.Files, func(f *File) bool {
			return (anyFile || path.Base(f.Name) == "doc.go") && strings.HasPrefix(f.Syntax.Doc.Text(), opening)
		}) {
			out = append(out, Complaint{p.Dir, 0, fmt.Sprintf("no doc.go with a comment that opens %q: what "+
				"it is for, what it must not know, how it is driven", opening+"…")})
		}
	}
	return out
}

// CheckNames refuses package names that say nothing.
func CheckNames(m *Module) []Complaint {
	var out []Complaint
	for _, p := range m.Packages {
		for _, name := range []string{p.Name, path.Base(p.Dir)} {
			if vagueNames[name] {
				out = append(out, Complaint{p.Dir, 0,
					fmt.Sprintf("package name %q says nothing: name it after what it does", name)})
				break
			}
		}
	}
	return out
}

// CheckLength keeps files readable in one sitting. Tests and generated files
// may be long.
func CheckLength(m *Module) []Complaint {
	var out []Complaint
	for _, p := range m.Packages {
		for _, f := range p.Files {
			if n := countLines(f.Source); n > fileLinesMax && !f.IsTest && !isGenerated(f) {
				out = append(out, Complaint{f.Name, 0, fmt.Sprintf("%d lines, at most %d: split it by role", n,
					fileLinesMax)})
			}
		}
	}
	return out
}

// CheckFormat wants what gofmt would write.
func CheckFormat(m *Module) []Complaint {
	var out []Complaint
	for _, p := range m.Packages {
		for _, f := range p.Files {
			want, err := format.Source(f.Source)
			if err != nil {
				out = append(out, Complaint{f.Name, 0, "gofmt: " + err.Error()})
				continue
			}
			if !bytes.Equal(want, f.Source) {
				out = append(out, Complaint{f.Name, firstDifference(want, f.Source),
					"not as gofmt writes it: make fmt"})
			}
		}
	}
	return out
}

// firstDifference is the first line at which two texts part.
func firstDifference(a, b []byte) int {
	line := 1
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return line
		}
		if a[i] == '\n' {
			line++
		}
	}
	return line
}

// The words are put together from halves so that this file passes.
var (
	unfinished   = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	machinePaths = regexp.MustCompile(`(^|[\s"'` + "`" + `(=:])/(wo` + `rk|ro` + `ot|home/[a-z]+)/`)
)

// conflict is what git leaves in a file where two changes met.
var conflict = regexp.MustCompile(`^(<<<<<<< |=======$|>>>>>>> )`)

// CheckWords finds notes to self, paths of somebody's own machine and conflicts that were not resolved, in Go
// files and in every other text.
func CheckWords(m *Module) []Complaint {
	var out []Complaint
	check := func(name string, text []byte) {
		line := 0
		for l := range bytes.Lines(text) {
			line++
			if found := unfinished.Find(l); found != nil {
				out = append(out, Complaint{name, line, fmt.Sprintf("%s: finish it, or open an issue", found)})
			}
			if conflict.Match(bytes.TrimRight(l, "\r\n")) {
				out = append(out, Complaint{name, line, "a conflict that was not resolved"})
			}
			if found := machinePaths.Find(l); found != nil {
				out = append(out, Complaint{name, line, fmt.Sprintf("%q is a path of one machine",
					bytes.TrimSpace(found))})
			}
		}
	}
	for _, p := range m.Packages {
		for _, f := range p.Files {
			check(f.Name, f.Source)
		}
	}
	for name, text := range m.Texts {
		check(name, text)
	}
	sortComplaints(out)
	return out
}

// sortComplaints puts complaints about texts, which are kept in a map, in order.
func sortComplaints(out []Complaint) {
	slices.SortFunc(out, func(a, b Complaint) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
}
