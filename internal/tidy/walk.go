package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// CheckWalk keeps the walk of a send in docs/ARCHITECTURE.md: every file that it names exists and is named once, and
// every function that a row names is in the row's file. So who follows it opens no file twice, and finds what it says.
func CheckWalk(m *Module) []Complaint {
	lines := bytes.Split(m.Texts[architectureFile], []byte("\n"))
	var out []Complaint
	seen := map[string]bool{}
	inside, rows := false, 0
	for i, l := range lines {
		line := string(l)
		if strings.HasPrefix(line, "#") {
			inside = line == "## A send, walked"
		}
		if !inside {
			continue
		}
		complain := func(format string, args ...any) {
			out = append(out, Complaint{architectureFile, i + 1, fmt.Sprintf(format, args...)})
		}
		cells, file := strings.Split(line, "|"), ""
		for _, quoted := range inBackquotes.FindAllStringSubmatch(line, -1) {
			name := quoted[1]
			if ext := path.Ext(name); !strings.Contains(name, "/") || ext != ".go" && ext != ".c" {
				continue
			}
			if seen[name] {
				complain("the walk comes to %s twice: move what it needs there then to a file of its own", name)
			}
			seen[name] = true
			if !m.has(name) {
				complain("the walk names %s, which does not exist", name)
			}
			if len(cells) > 3 && strings.Contains(cells[1], quoted[0]) {
				file = name
			}
		}
		if file == "" {
			continue
		}
		rows++
		functions := inBackquotes.FindAllStringSubmatch(cells[2], -1)
		if len(functions) == 0 {
			complain("the walk names no function of %s", file)
		}
		for _, f := range functions {
			if m.has(file) && !m.declares(file, f[1]) {
				complain("the walk names %s, which is not in %s", f[1], file)
			}
		}
	}
	if rows == 0 {
		out = append(out, Complaint{architectureFile, 0, `no section "## A send, walked" with tables of files`})
	}
	return out
}

// has reports whether there is a file.
func (m *Module) has(name string) bool {
	return m.Texts[name] != nil || m.file(name) != nil
}

// file is a Go file, nil if there is none.
func (m *Module) file(name string) *File {
	for _, p := range m.Packages {
		for _, f := range p.Files {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}

// declares reports whether a file has a function: in Go a method is named with its type, T.f, and in C a function's
// name stands in a line that begins with its type and ends as no statement does.
func (m *Module) declares(file, function string) bool {
	f := m.file(file)
	if f == nil {
		defined := regexp.MustCompile(`(?m)^[a-z].*\b` + regexp.QuoteMeta(function) + `\([^;]*$`)
		return defined.Match(m.Texts[file])
	}
	for _, d := range f.Syntax.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && funcName(d) == function {
			return true
		}
	}
	return false
}

// funcName is a function's name, of a method with its type.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return d.Name.Name
}
