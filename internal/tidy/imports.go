package tidy

import (
	"fmt"
	"go/ast"
	"strconv"
	"strings"
)

// CheckRanks keeps imports strictly downward, engines on the standard library
// alone, and the table complete. Tests may import sideways and upward as far
// as Go itself allows.
func CheckRanks(m *Module) []Complaint {
	var out []Complaint
	for _, p := range m.Packages {
		rank, ranked := ranks[p.Dir]
		if !ranked {
			if !isFree(p.Dir) {
				out = append(out, Complaint{p.Dir, 0,
					"package has no rank: add it to the table ranks in internal/tidy/rules.go"})
			}
			continue
		}
		for _, f := range p.Files {
			if f.IsTest {
				continue
			}
			for _, spec := range f.Syntax.Imports {
				if text := rankComplaint(p.Dir, rank, importPath(spec)); text != "" {
					out = append(out, Complaint{f.Name, m.lineOf(spec), text})
				}
			}
		}
	}
	return out
}

// rankComplaint says what is wrong with one import; "" when nothing is.
func rankComplaint(dir string, rank int, imported string) string {
	isEngine := rank <= engineRankMax
	inside, ok := strings.CutPrefix(imported, ModulePath+"/")
	if !ok {
		if isEngine && !isStandard(imported) {
			return fmt.Sprintf("imports %s: ranks 0 to %d use the standard library alone", imported, engineRankMax)
		}
		return ""
	}
	if isFree(inside) {
		if isEngine {
			return fmt.Sprintf("imports %s: an engine must not depend on packages outside the ranks", imported)
		}
		return ""
	}
	other, ok := ranks[inside]
	switch {
	case !ok:
		return fmt.Sprintf("imports %s, which has no rank: add it to the table ranks in internal/tidy/rules.go",
			imported)
	case other == rank:
		return fmt.Sprintf("imports its sibling %s (both of rank %d): move the shared part down, or declare "+
			"an interface in %s", imported, rank, dir)
	case other > rank:
		return fmt.Sprintf("imports %s of rank %d from rank %d: imports go strictly downward", imported, other, rank)
	}
	return ""
}

// CheckBans keeps out of the engines what would tie them to a machine, a
// moment or an order: the imports of bannedImports, the process-wide random
// source, go and select statements.
func CheckBans(m *Module) []Complaint {
	var out []Complaint
	m.engineFiles(func(p *Package, f *File) {
		complain := func(n ast.Node, text string) {
			out = append(out, Complaint{f.Name, m.lineOf(n), text})
		}
		randNames := map[string]string{} // local name of a rand package → its path
		for _, spec := range f.Syntax.Imports {
			imported := importPath(spec)
			if why := banned(imported); why != "" {
				complain(spec, fmt.Sprintf("imports %s: %s", imported, why))
			}
			if spec.Name != nil && spec.Name.Name == "." {
				complain(spec, fmt.Sprintf("dot-imports %s: the bans are kept by qualified names", imported))
			}
			if imported == "math/rand" || imported == "math/rand/v2" {
				name := "rand"
				if spec.Name != nil {
					name = spec.Name.Name
				}
				randNames[name] = imported
			}
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				complain(n, "go statement: an engine is driven, it starts nothing by itself")
			case *ast.SelectStmt:
				complain(n, "select statement: an engine waits for nothing, and select chooses at random")
			case *ast.SelectorExpr:
				id, ok := n.X.(*ast.Ident)
				if !ok || id.Obj != nil { // resolved in this file: a variable that shadows the import
					break
				}
				if from, ok := randNames[id.Name]; ok && !randAllowed[n.Sel.Name] {
					complain(n, fmt.Sprintf("%s.%s draws from the process-wide source: take a *rand.Rand", from,
						n.Sel.Name))
				}
			}
			return true
		})
	})
	return out
}

// banned is the reason why an engine must not import a package; "" if it may.
func banned(imported string) string {
	for _, b := range bannedImports {
		tree, isTree := strings.CutSuffix(b.pattern, "/...")
		if imported == tree || isTree && strings.HasPrefix(imported, tree+"/") {
			return b.why
		}
	}
	return ""
}

// isStandard reports whether a path is of the standard library: its first
// element has no dot. "C" is not a package at all.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return imported != "C" && !strings.Contains(first, ".")
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}
