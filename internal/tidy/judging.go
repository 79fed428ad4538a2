package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// CheckJudging finds tests that judge by the clock on the wall, and tests that measure until they pass. A test fails
// where more time has passed since it looked at the clock than it wants: on a busy machine that says nothing. It may
// give up a wait so, in a loop that looks again, and it may want that something took as long as it has to. And what
// waits until something is so must not measure: it would try until it passes. What is about the clock on the wall
// carries the comment wallClock with the reason.
func CheckJudging(m *Module) []Complaint {
	var out []Complaint
	for _, p := range m.Packages {
		for _, f := range p.Files {
			if !f.IsTest {
				continue
			}
			j := judge{m: m, f: f, vouched: linesWith(m.Fset, f, wallClock)}
			for _, d := range f.Syntax.Decls {
				fun, ok := d.(*ast.FuncDecl)
				if ok && fun.Body != nil && !strings.HasPrefix(fun.Name.Name, "Benchmark") {
					j.function(fun.Body)
				}
			}
			out = append(out, j.out...)
		}
	}
	return out
}

// judge looks at one file.
type judge struct {
	m       *Module
	f       *File
	vouched map[int]bool
	out     []Complaint
	took    map[string]bool // variables of the function that say how long something took
	waits   []ast.Node      // loops of the function that wait
}

func (j *judge) complain(n ast.Node, text string) {
	if line := j.m.lineOf(n); !j.vouched[line] && !j.vouched[line-1] {
		j.out = append(j.out, Complaint{j.f.Name, line, fmt.Sprintf("%s, or write %q and the reason", text, wallClock)})
	}
}

func (j *judge) function(body *ast.BlockStmt) {
	j.took, j.waits = map[string]bool{}, nil
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, x := range n.Rhs {
				if id, ok := n.Lhs[i].(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && isSince(x) {
					j.took[id.Name] = true
				}
			}
		case *ast.ForStmt:
			if pauses(n) {
				j.waits = append(j.waits, n)
			}
		}
		return true
	})
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if j.bounds(n.Cond) && fails(n.Body) && !j.isWaiting(n) {
				j.complain(n, "judges by the clock on the wall: count the processor's time (internal/cputime), use "+
					"virtual time, or wait with internal/patience")
			}
		case *ast.CallExpr:
			if !waiters[nameOf(n.Fun)] {
				return true
			}
			for _, a := range n.Args {
				if lit, ok := a.(*ast.FuncLit); ok && measures(lit) {
					j.complain(n, "measures until it passes: measure once, or take the median")
				}
			}
		}
		return true
	})
}

// bounds reports whether a condition holds where something took too long.
func (j *judge) bounds(cond ast.Expr) (found bool) {
	ast.Inspect(cond, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if !ok {
			return true
		}
		long := b.X
		switch b.Op {
		case token.GTR, token.GEQ:
		case token.LSS, token.LEQ:
			long = b.Y
		default:
			return true
		}
		id, isVar := long.(*ast.Ident)
		found = found || isSince(long) || isVar && j.took[id.Name]
		return true
	})
	return found
}

func (j *judge) isWaiting(n ast.Node) bool {
	for _, w := range j.waits {
		if w.Pos() <= n.Pos() && n.End() <= w.End() {
			return true
		}
	}
	return false
}

// isSince reports whether an expression is how long ago it is that this function looked at the clock. What others have
// written down has other reasons.
func isSince(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 || !isOf(call.Fun, "time", "Since") {
		return false
	}
	_, ok = call.Args[0].(*ast.Ident)
	return ok
}

// isOf reports whether an expression is a name of a package.
func isOf(x ast.Expr, pkg string, names ...string) bool {
	sel, ok := x.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	for _, name := range names {
		if ok && id.Name == pkg && sel.Sel.Name == name {
			return true
		}
	}
	return false
}

// nameOf is the last name of what is called.
func nameOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// calls reports whether one of the calls within is such.
func calls(within ast.Node, is func(fun ast.Expr) bool) (found bool) {
	ast.Inspect(within, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			found = found || is(c.Fun)
		}
		return true
	})
	return found
}

// pauses reports whether a loop gives others time before it looks again.
func pauses(loop *ast.ForStmt) bool {
	return calls(loop, func(fun ast.Expr) bool {
		return isOf(fun, "time", "Sleep", "After") || isOf(fun, "runtime", "Gosched") || nameOf(fun) == "Yield"
	})
}

// fails reports whether a test fails there.
func fails(body *ast.BlockStmt) bool {
	return calls(body, func(fun ast.Expr) bool {
		switch nameOf(fun) {
		case "Error", "Errorf", "Fatal", "Fatalf":
			return true
		}
		return false
	})
}

// measures reports whether what a wait asks takes a time.
func measures(ask *ast.FuncLit) bool {
	return calls(ask, func(fun ast.Expr) bool {
		return isOf(fun, "time", "Since") || isOf(fun, "cputime", "Used", "AtRest")
	})
}

// waiters are the names of what waits until something is so.
var waiters = map[string]bool{"eventually": true, "until": true, "await": true, "waitFor": true, "waitUntil": true}
