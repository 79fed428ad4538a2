package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
)

// A Complaint is one broken rule at one place.
type Complaint struct {
	File string // path in the module
	Line int    // 0 where the whole file or folder is meant
	Text string // what is wrong and what to do instead
}

func (c Complaint) String() string {
	if c.Line == 0 {
		return fmt.Sprintf("%s: %s", c.File, c.Text)
	}
	return fmt.Sprintf("%s:%d: %s", c.File, c.Line, c.Text)
}

// File is one Go source file.
type File struct {
	Name   string // path in the module
	Source []byte
	Syntax *ast.File
	IsTest bool
}

// Package is the Go files of one folder.
type Package struct {
	Dir   string // path in the module, "." for its root
	Name  string // from the first file that is not an external test
	Files []*File
}

// Module is everything that the rules look at.
type Module struct {
	Fset     *token.FileSet
	Packages []*Package        // by Dir
	Texts    map[string][]byte // every other text file: docs, scripts, C
}

// textSuffixes are the files besides Go sources whose text is checked.
var textSuffixes = []string{
	".md", ".sh", ".c", ".h", ".js", ".css", ".html", ".yml", ".yaml", "Makefile", "go.mod", ".ci/run",
}

// Load reads the Go files and texts of a module. Folders that Go itself
// ignores (testdata, names that begin with a dot or an underscore), and bin,
// are left out, except .ci.
func Load(root fs.FS) (*Module, error) {
	m := &Module{Fset: token.NewFileSet(), Texts: map[string][]byte{}}
	packages := map[string]*Package{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
			if name != "." && name != ".ci" && (hidden || name == "bin" || base == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		isText := slices.ContainsFunc(textSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
		// What is in testdata is as it has to be, but for programs that tests build.
		ext := path.Ext(base)
		if strings.Contains("/"+name, "/testdata/") && ext != ".c" && ext != ".h" || !isText && ext != ".go" {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if isText {
			m.Texts[name] = source
			return nil
		}
		syntax, err := parser.ParseFile(m.Fset, name, source, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("tidy: %w", err)
		}
		dir := path.Dir(name)
		p := packages[dir]
		if p == nil {
			p = &Package{Dir: dir}
			packages[dir] = p
		}
		p.Files = append(p.Files, &File{Name: name, Source: source, Syntax: syntax,
			IsTest: strings.HasSuffix(base, "_test.go")})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		p.Name = strings.TrimSuffix(p.Files[0].Syntax.Name.Name, "_test")
		m.Packages = append(m.Packages, p)
	}
	sort.Slice(m.Packages, func(i, j int) bool { return m.Packages[i].Dir < m.Packages[j].Dir })
	return m, nil
}

// lineOf is the line of a node's first character.
func (m *Module) lineOf(n ast.Node) int { return m.Fset.Position(n.Pos()).Line }

// engineFiles calls visit for every file that the engines' rules bind: ranks
// 0 to engineRankMax, tests left out.
func (m *Module) engineFiles(visit func(p *Package, f *File)) {
	for _, p := range m.Packages {
		if rank, ok := ranks[p.Dir]; !ok || rank > engineRankMax {
			continue
		}
		for _, f := range p.Files {
			if !f.IsTest {
				visit(p, f)
			}
		}
	}
}

// isFree reports whether a folder stands outside the ranks.
func isFree(dir string) bool {
	return slices.ContainsFunc(freeTrees, func(t string) bool { return dir == t || strings.HasPrefix(dir, t+"/") })
}

// isGenerated reports whether a file says that a program wrote it.
func isGenerated(f *File) bool { return ast.IsGenerated(f.Syntax) }

// countLines counts lines as an editor does.
func countLines(b []byte) int {
	n := bytes.Count(b, []byte("\n"))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}
