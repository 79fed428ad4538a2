package tidy

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
)

// CheckCallbacks finds the ways in which an engine could call its driver, which would re-enter it and take the order of
// events out of the driver's hands: a function that the engine is given and keeps, and an interface of an engine that a
// driver implements. A function that is only called while the call that brought it lasts (a visitor, an order to sort
// by) is none. Where an engine has to call out, the comment callsOut says why that is harmless.
func CheckCallbacks(m *Module) []Complaint {
	var out []Complaint
	checker := newTypeChecker(m)
	var drivers []types.Type // every named type of those who hold engines
	for _, p := range m.Packages {
		if ranks[p.Dir] > engineRankMax && driverRooms[roomOf(p.Dir)] {
			drivers = append(drivers, namedTypes(checker.check(p).pkg)...)
		}
	}
	m.engineFiles(func(p *Package, f *File) {
		if apiPackages[p.Dir] {
			return
		}
		info := checker.info(p)
		kept := keptParams(p, info)
		vouched := linesWith(m.Fset, f, callsOut)
		complain := func(n ast.Node, format string, args ...any) {
			if line := m.lineOf(n); !vouched[line] && !vouched[line-1] {
				out = append(out, Complaint{f.Name, line, fmt.Sprintf(format, args...) + fmt.Sprintf(
					": engines are polled and call nobody back; or write %q with the reason", callsOut)})
			}
		}
		for _, decl := range f.Syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() {
					continue
				}
				for _, field := range d.Type.Params.List {
					for _, name := range field.Names {
						if kept[info.Defs[name]] {
							complain(d, "%s keeps the function %s that it is given", d.Name.Name, name.Name)
						}
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok || !spec.Name.IsExported() {
						continue
					}
					switch t := spec.Type.(type) {
					case *ast.StructType:
						for _, field := range t.Fields.List {
							if !isFunc(info.TypeOf(field.Type)) {
								continue
							}
							for _, name := range field.Names {
								if name.IsExported() {
									complain(field, "%s.%s is a function that others set", spec.Name.Name, name.Name)
								}
							}
						}
					case *ast.InterfaceType:
						if who := implementer(info.Defs[spec.Name], drivers); who != "" {
							complain(spec, "%s is implemented by %s, a driver", spec.Name.Name, who)
						}
					}
				}
			}
		}
	})
	return out
}

// keptParams are the parameters of functions of a package that are functions themselves and that outlive the call: they
// are used otherwise than by calling them, comparing them, or handing them on to a function that does not keep them.
func keptParams(p *Package, info *types.Info) map[types.Object]bool {
	kept := map[types.Object]bool{}
	params := map[types.Object]bool{}
	handedOn := map[types.Object][]types.Object{} // parameter → parameters that it is handed to
	for _, f := range p.Files {
		if f.IsTest {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			for _, field := range d.Type.Params.List {
				for _, name := range field.Names {
					if obj := info.Defs[name]; obj != nil && isFunc(obj.Type()) {
						params[obj] = true
					}
				}
			}
			harmless := map[*ast.Ident]bool{}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BinaryExpr: // a comparison with nil
					for _, x := range []ast.Expr{n.X, n.Y} {
						if id, ok := x.(*ast.Ident); ok {
							harmless[id] = true
						}
					}
				case *ast.CallExpr:
					if id, ok := n.Fun.(*ast.Ident); ok {
						harmless[id] = true
					}
					for i, arg := range n.Args {
						id, ok := arg.(*ast.Ident)
						if !ok || info.Types[n.Fun].IsType() || info.Types[n.Fun].IsBuiltin() {
							continue // append and conversions keep what they get
						}
						harmless[id] = true
						if to := paramOf(info, n, i); to != nil {
							handedOn[info.Uses[id]] = append(handedOn[info.Uses[id]], to)
						}
					}
				case *ast.RangeStmt:
					if id, ok := n.X.(*ast.Ident); ok {
						harmless[id] = true
					}
				case *ast.Ident:
					if obj := info.Uses[n]; params[obj] && !harmless[n] {
						kept[obj] = true
					}
				}
				return true
			})
		}
	}
	for grown := true; grown; {
		grown = false
		for from, tos := range handedOn {
			for _, to := range tos {
				if params[from] && kept[to] && !kept[from] {
					kept[from], grown = true, true
				}
			}
		}
	}
	return kept
}

// paramOf is the parameter that takes the i-th argument of a call to a function of the module; nil where that is not
// known.
func paramOf(info *types.Info, call *ast.CallExpr, i int) types.Object {
	var id *ast.Ident
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	default:
		return nil
	}
	fn, ok := info.Uses[id].(*types.Func)
	if !ok {
		return nil
	}
	params := fn.Signature().Params()
	if i >= params.Len() {
		return nil
	}
	return params.At(i)
}

func isFunc(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Signature)
	return ok
}

// namedTypes are a package's types that may have methods.
func namedTypes(pkg *types.Package) (out []types.Type) {
	for _, name := range pkg.Scope().Names() {
		if t, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok && !t.IsAlias() && !types.IsInterface(t.Type()) {
			out = append(out, t.Type())
		}
	}
	return out
}

// implementer names the first of some types that implements an interface; "" if none does.
func implementer(obj types.Object, among []types.Type) string {
	if obj == nil {
		return ""
	}
	iface, ok := obj.Type().Underlying().(*types.Interface)
	if !ok || iface.NumMethods() == 0 {
		return ""
	}
	for _, t := range among {
		if types.Implements(t, iface) || types.Implements(types.NewPointer(t), iface) {
			return strings.TrimPrefix(t.String(), ModulePath+"/")
		}
	}
	return ""
}
