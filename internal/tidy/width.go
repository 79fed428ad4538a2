package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"unicode/utf8"
)

var (
	// directive is a line that a compiler reads as a whole, or one of a table or of code in a comment.
	directive = regexp.MustCompile(`^//go:|^(// ?)?#cgo |^\s*//\t`)
	// unbreakable is a line without a blank to break at: an address, a long number in a table. Marks of comments and
	// lists may stand before it.
	unbreakable = regexp.MustCompile(`^[\s/#*>-]*\S+$`)
	// fence opens and closes a block of code in Markdown.
	fence = regexp.MustCompile("^\\s*```")
	// asIs are lines of Markdown that are no prose: tables and indented code.
	asIs = regexp.MustCompile(`^(\s*\||    |\t)`)
	// written are the endings of files with code that is not Go.
	written = []string{".c", ".h", ".sh", ".js", ".css", ".html"}
)

// CheckWidth wants lines of all that is written here, in whatever language, within columnsMax. Left alone is what
// cannot be broken without becoming something else: generated files, directives, the insides of raw strings, tables and
// blocks of code in Markdown, and lines without a blank.
func CheckWidth(m *Module) []Complaint {
	var out []Complaint
	check := func(name string, text []byte, leave func(line int, l []byte) bool) {
		line := 0
		for l := range bytes.Lines(text) {
			line++
			l = bytes.TrimRight(l, "\n")
			n := utf8.RuneCount(l) + (tabWidth-1)*bytes.Count(l, []byte("\t"))
			if !leave(line, l) && n > columnsMax && !unbreakable.Match(l) {
				out = append(out, Complaint{name, line, fmt.Sprintf("%d columns, at most %d", n, columnsMax)})
			}
		}
	}
	for _, p := range m.Packages {
		for _, f := range p.Files {
			if !isGenerated(f) {
				raw := rawStringLines(m.Fset, f)
				check(f.Name, f.Source, func(line int, l []byte) bool { return raw[line] || directive.Match(l) })
			}
		}
	}
	for name, text := range m.Texts {
		switch ext := path.Ext(name); {
		case slices.Contains(written, ext), path.Base(name) == "Makefile":
			check(name, text, func(int, []byte) bool { return false })
		case ext == ".md":
			fenced := false
			check(name, text, func(_ int, l []byte) bool {
				if fence.Match(l) {
					fenced = !fenced
					return true
				}
				return fenced || asIs.Match(l)
			})
		}
	}
	sortComplaints(out)
	return out
}

// rawStringLines are the lines of a file that a string in backquotes goes over, the last one left out: it ends in code.
func rawStringLines(fset *token.FileSet, f *File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			for l := fset.Position(lit.Pos()).Line; l < fset.Position(lit.End()).Line; l++ {
				lines[l] = true
			}
		}
		return true
	})
	return lines
}
