package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"time"
)

// CheckWaits finds waits of waitMin and more that are the same on every machine. What this machine has to do takes
// longer where it has more to do besides: package patience knows. A wait that is about something else carries the
// comment notPatience with the reason, where it is used or where its constant or package's variable stands.
func CheckWaits(m *Module) []Complaint {
	var out []Complaint
	for _, p := range m.Packages {
		if waitRooms[roomOf(p.Dir)] || strings.HasSuffix(p.Dir, "test") || p.Dir == "internal/headless" {
			continue
		}
		lengths, vouched := map[string]time.Duration{}, map[string]bool{}
		for _, f := range p.Files {
			if !f.IsTest {
				namedWaits(m, f, lengths, vouched)
			}
		}
		for _, f := range p.Files {
			if f.IsTest {
				continue
			}
			lines, last := linesWith(m.Fset, f, notPatience), 0
			ast.Inspect(f.Syntax, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				wait := waitOf(call)
				if wait == nil {
					return true
				}
				d, why := longest(wait, lengths, vouched)
				if line := m.lineOf(n); d >= waitMin && !why && !lines[line] && !lines[line-1] && line != last {
					last = line
					out = append(out, Complaint{f.Name, line, fmt.Sprintf("waits for %v, however much the machine "+
						"has to do: ask internal/patience, or write %q and the reason", d, notPatience)})
				}
				return true
			})
		}
	}
	return out
}

// waitOf is how long a call lets something wait; nil if that is not what it does.
func waitOf(call *ast.CallExpr) ast.Expr {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	switch sel.Sel.Name {
	case "WithTimeout":
		return call.Args[len(call.Args)-1]
	case "SetDeadline", "SetReadDeadline", "SetWriteDeadline":
		return call.Args[0]
	case "After":
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
			return call.Args[0]
		}
	case "Add": // of time.Now(): deadlines are made of it
		if now, ok := sel.X.(*ast.CallExpr); ok {
			if fun, ok := now.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == "Now" {
				return call.Args[0]
			}
		}
	}
	return nil
}

// namedWaits notes a file's constants and package variables that are times, and which of them carry the comment. A
// variable is as long as what it begins with: tests have it shorter.
func namedWaits(m *Module, f *File, lengths map[string]time.Duration, vouched map[string]bool) {
	lines := linesWith(m.Fset, f, notPatience)
	for _, d := range f.Syntax.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST && g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			for i, name := range v.Names {
				if i < len(v.Values) && !isMore(v.Values[i]) {
					lengths[name.Name], _ = longest(v.Values[i], lengths, vouched)
					line := m.lineOf(v)
					vouched[name.Name] = lines[line] || lines[line-1]
				}
			}
		}
	}
}

// isMore reports whether a value is more than a time, though there may be times in it: a function, or a table.
func isMore(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.FuncLit, *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		return x.Op == token.AND
	}
	return false
}

// longest is the longest time that stands in an expression, and whether its constant carries the comment. What package
// patience is asked is not looked at.
func longest(x ast.Expr, lengths map[string]time.Duration, vouched map[string]bool) (most time.Duration, why bool) {
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "patience" {
					return false
				}
			}
		case *ast.BinaryExpr:
			if n.Op == token.MUL {
				if d := product(n); d > most {
					most, why = d, false
				}
				return false
			}
		case *ast.SelectorExpr: // a field's name is not a constant's
			if d := units[n.Sel.Name]; d > most {
				most, why = d, false
			}
			return false
		case *ast.Ident:
			if d := lengths[n.Name]; d > most {
				most, why = d, vouched[n.Name]
			}
		}
		return true
	})
	return most, why
}

// units are the times that constants are written in.
var units = map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}

// product is a number of units; 0 if that is not what it is.
func product(x *ast.BinaryExpr) time.Duration {
	a, b := x.X, x.Y
	if _, ok := a.(*ast.SelectorExpr); ok {
		a, b = b, a
	}
	lit, ok := a.(*ast.BasicLit)
	sel, isUnit := b.(*ast.SelectorExpr)
	if !ok || !isUnit {
		return 0
	}
	n, err := strconv.Atoi(lit.Value)
	if err != nil {
		return 0
	}
	return time.Duration(n) * units[sel.Sel.Name]
}
