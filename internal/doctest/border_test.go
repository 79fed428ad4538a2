package doctest

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBorder wants nothing of an engine or a driver in what programs see of the packages that they import: neither in
// what these declare, nor in what comes in with a type that is embedded.
func TestBorder(t *testing.T) {
	for _, pkg := range loaded(t, "softib/verbs", "softib/verbs/attach") {
		b := border{pkg: pkg}
		for _, name := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(name); o.Exported() {
				b.object(name, o)
			}
		}
		if b.seen < 30 {
			t.Errorf("%s shows %d things: want more", pkg.Path(), b.seen)
		}
		for _, f := range b.found {
			t.Errorf("%s.%s", pkg.Name(), f)
		}
	}
	for _, pkg := range []string{"hello", "pingpong", "kv", "multicast"} {
		text, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, "softib/examples/"+pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for path := range strings.Lines(string(text)) {
			switch path = strings.TrimSpace(path); {
			case !strings.HasPrefix(path, "softib/"):
			case path == "softib/verbs", path == "softib/verbs/attach", path == "softib/proto/ib":
			default:
				t.Errorf("examples/%s imports %s", pkg, path)
			}
		}
	}
}

// TestBorderFinds wants the same found in what drivers have for each other: it shows engines, by itself and by what it
// embeds.
func TestBorderFinds(t *testing.T) {
	pkg := loaded(t, "softib/driver/live")[0]
	b := border{pkg: pkg}
	b.object("Device", pkg.Scope().Lookup("Device"))
	all := strings.Join(b.found, "\n")
	for _, want := range []string{"Device.Enter shows softib/node/hca.HCA",
		"Device.Member shows softib/driver/endpoint", "Device.Poll comes from softib/driver/endpoint"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not found in:\n%s", want, all)
		}
	}
}

// loaded are packages as the compiler has them.
func loaded(t *testing.T, paths ...string) (list []*types.Package) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"},
		paths...)...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(text)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})
	for _, path := range paths {
		pkg, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pkg)
	}
	return list
}

// border looks at what a package shows.
type border struct {
	pkg   *types.Package
	seen  int
	found []string
}

// isOpen reports whether programs may see what a package has: the standard library's, the vocabulary, and its own.
func (b *border) isOpen(p *types.Package) bool {
	return p == nil || p == b.pkg || !strings.HasPrefix(p.Path(), "softib/") ||
		strings.HasPrefix(p.Path(), "softib/proto/") || p.Path() == "softib/verbs"
}

// object looks at a thing of the package and all that can be reached by a dot.
func (b *border) object(name string, o types.Object) {
	b.seen++
	tn, isType := o.(*types.TypeName)
	if !isType {
		b.shown(name, o.Type(), map[types.Type]bool{})
		return
	}
	b.members(name, tn.Type(), map[types.Type]bool{})
}

// members looks at the fields and the methods of a type, promoted ones, too.
func (b *border) members(name string, t types.Type, on map[types.Type]bool) {
	on[t] = true
	set := types.NewMethodSet(types.NewPointer(t))
	if types.IsInterface(t) {
		set = types.NewMethodSet(t)
	}
	for i := range set.Len() {
		if m := set.At(i).Obj(); m.Exported() {
			b.seen++
			if !b.isOpen(m.Pkg()) {
				b.found = append(b.found, name+"."+m.Name()+" comes from "+m.Pkg().Path())
			}
			b.shown(name+"."+m.Name(), m.Type(), on)
		}
	}
	if s, ok := t.Underlying().(*types.Struct); ok {
		for i := range s.NumFields() {
			if f := s.Field(i); f.Exported() {
				b.seen++
				b.shown(name+"."+f.Name(), f.Type(), on)
			}
		}
	} else if !types.IsInterface(t) {
		b.shown(name, t.Underlying(), on)
	}
}

// shown looks at the types that a type is made of. A type of the package that has no name for programs is looked into.
func (b *border) shown(name string, t types.Type, on map[types.Type]bool) {
	switch t := t.(type) {
	case *types.Alias:
		b.shown(name, types.Unalias(t), on)
	case *types.Named:
		switch o := t.Obj(); {
		case !b.isOpen(o.Pkg()):
			b.found = append(b.found, name+" shows "+o.Pkg().Path()+"."+o.Name())
		case o.Pkg() == b.pkg && !o.Exported() && !on[t]:
			b.members(name, t, on)
		}
		for i := range t.TypeArgs().Len() {
			b.shown(name, t.TypeArgs().At(i), on)
		}
	case *types.Signature:
		b.shown(name, t.Params(), on)
		b.shown(name, t.Results(), on)
	case *types.Tuple:
		for i := range t.Len() {
			b.shown(name, t.At(i).Type(), on)
		}
	case *types.Struct:
		for i := range t.NumFields() {
			b.shown(name, t.Field(i).Type(), on)
		}
	case *types.Map:
		b.shown(name, t.Key(), on)
		b.shown(name, t.Elem(), on)
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		b.shown(name, t.Elem(), on)
	}
}
