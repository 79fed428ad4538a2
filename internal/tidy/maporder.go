package tidy

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"strings"
)

// CheckMapOrder finds engine code whose result could depend on the order of a
// map: a range over one, or an iterator of package maps that is not sorted on
// the spot. A loop whose result has no order carries the comment orderFree.
func CheckMapOrder(m *Module) []Complaint {
	var out []Complaint
	checker := newTypeChecker(m)
	m.engineFiles(func(p *Package, f *File) {
		info := checker.info(p)
		vouched := linesWith(m.Fset, f, orderFree)
		complain := func(n ast.Node, text string) {
			if line := m.lineOf(n); !vouched[line] && !vouched[line-1] {
				out = append(out, Complaint{f.Name, line, text})
			}
		}
		sorted := map[ast.Expr]bool{} // iterators handed straight to a sorter
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.RangeStmt:
				t := info.TypeOf(n.X)
				switch {
				case t == nil || t == types.Typ[types.Invalid]:
					complain(n, "the type of this range is unknown: does the package compile?")
				case rangesOverMap(t):
					complain(n, fmt.Sprintf("range over a map: keep a slice, sort the keys, or write %q where "+
						"the order cannot matter", orderFree))
				}
			case *ast.CallExpr:
				switch pkg, name := calledFunc(info, n); {
				case pkg == "slices" && sorters[name] && len(n.Args) > 0:
					sorted[n.Args[0]] = true
				case pkg == "maps" && mapIterators[name] && !sorted[n]:
					complain(n, fmt.Sprintf("maps.%s yields in map order: wrap it in slices.Sorted, or write "+
						"%q where the order cannot matter", name, orderFree))
				}
			}
			return true
		})
	})
	return out
}

// rangesOverMap reports whether ranging over t goes through a map, also when t
// is a type parameter that a map may fill.
func rangesOverMap(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Map:
		return true
	case *types.Interface: // only a type parameter can be ranged over here
		for i := range u.NumEmbeddeds() {
			switch e := u.EmbeddedType(i).(type) {
			case *types.Union:
				for j := range e.Len() {
					if rangesOverMap(e.Term(j).Type()) {
						return true
					}
				}
			default:
				if rangesOverMap(e) {
					return true
				}
			}
		}
	}
	return false
}

// calledFunc names the package and the function of a call to a package-level
// function; generic instantiation written out is looked through.
func calledFunc(info *types.Info, call *ast.CallExpr) (pkg, name string) {
	fun := call.Fun
	switch x := fun.(type) {
	case *ast.IndexExpr:
		fun = x.X
	case *ast.IndexListExpr:
		fun = x.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	if imported, ok := info.Uses[id].(*types.PkgName); ok {
		return imported.Imported().Path(), sel.Sel.Name
	}
	return "", ""
}

// linesWith are the lines that carry a comment that opens with the given words.
func linesWith(fset *token.FileSet, f *File, opening string) map[int]bool {
	lines := map[int]bool{}
	for _, group := range f.Syntax.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, opening) {
				lines[fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

// standardLibrary reads the standard library's own sources, which needs
// neither compiled packages nor the network. It remembers what it has read
// and is shared, because the first import of a large package takes a second.
var standardLibrary = importer.ForCompiler(token.NewFileSet(), "source", nil)

// typeChecker types the module's packages on demand, each once.
type typeChecker struct {
	module *Module
	byDir  map[string]*Package
	done   map[string]*typed
}

type typed struct {
	pkg  *types.Package
	info *types.Info
}

func newTypeChecker(m *Module) *typeChecker {
	c := &typeChecker{module: m, byDir: map[string]*Package{}, done: map[string]*typed{}}
	for _, p := range m.Packages {
		c.byDir[p.Dir] = p
	}
	return c
}

// Import makes typeChecker a types.Importer over the module and the standard
// library.
func (c *typeChecker) Import(name string) (*types.Package, error) {
	if dir, ok := strings.CutPrefix(name, ModulePath+"/"); ok {
		p := c.byDir[dir]
		if p == nil {
			return nil, fmt.Errorf("tidy: import %q: no such folder in the module", name)
		}
		return c.check(p).pkg, nil
	}
	return standardLibrary.Import(name)
}

func (c *typeChecker) info(p *Package) *types.Info { return c.check(p).info }

// check types one package without its tests. Type errors are left to the
// compiler, which words them better: what they leave untyped is complained
// about where it matters.
func (c *typeChecker) check(p *Package) *typed {
	if t := c.done[p.Dir]; t != nil {
		return t
	}
	t := &typed{info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}}}
	t.pkg = types.NewPackage(ModulePath+"/"+p.Dir, p.Name)
	c.done[p.Dir] = t // also ends the recursion of an import cycle
	var files []*ast.File
	for _, f := range p.Files {
		if !f.IsTest {
			files = append(files, f.Syntax)
		}
	}
	config := types.Config{Importer: c, Error: func(error) {}}
	checker := types.NewChecker(&config, c.module.Fset, t.pkg, t.info)
	_ = checker.Files(files)
	return t
}
