package tenant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"softib/proto/ib"
)

func openT(t testing.TB, dir string) Store {
	t.Helper()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeT(t testing.TB, s Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func does(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStore: what was committed is found again, what was only begun is found as that.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := openT(t, dir)
	if len(s.State().Tenants) != 0 || s.Intent() != nil {
		t.Errorf("a new store has %+v", s.State())
	}
	red, blue := sampleTenant(), Tenant{Name: "blue", Key: 2}
	red2 := red.Clone()
	red2.Drop(1)
	does(t, s.Begin(Change{Is: &red}), s.Commit(Change{Is: &red}), s.Begin(Change{Is: &blue}),
		s.Commit(Change{Is: &blue}))
	does(t, s.Begin(Change{Was: &red, Is: &red2}))
	closeT(t, s)

	s = openT(t, dir)
	want := State{Tenants: []Tenant{blue, red}}
	if got := s.State(); !sameState(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	c := s.Intent()
	if c == nil || !c.Was.Equal(red) || !c.Is.Equal(red2) {
		t.Fatalf("the intent is %+v", c)
	}
	does(t, s.Abort(*c), s.Commit(Change{Was: &blue}), s.Commit(Change{Template: &TemplateChange{Is: "classic"}}))
	closeT(t, s)

	s = openT(t, dir)
	if got := s.State(); !sameState(got, State{Tenants: []Tenant{red}, Template: "classic"}) || s.Intent() != nil {
		t.Errorf("got %+v, intent %v", got, s.Intent())
	}
	// An Abort after a Commit takes it back: who is told that a commit failed does not know whether it was done.
	does(t, s.Commit(Change{Was: &red, Is: &red2}), s.Abort(Change{Was: &red, Is: &red2}))
	closeT(t, s)
	s = openT(t, dir)
	if got, _ := s.State().get("red"); !got.Equal(red) {
		t.Errorf("red is %+v", got)
	}
	closeT(t, s)
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func (s State) get(name string) (Tenant, bool) { return s.Get(name) }

func sameState(a, b State) bool {
	if a.Template != b.Template || len(a.Tenants) != len(b.Tenants) {
		return false
	}
	for i := range a.Tenants {
		if !a.Tenants[i].Equal(b.Tenants[i]) {
			return false
		}
	}
	return true
}

func TestStoreLocked(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	defer closeT(t, s)
	if _, err := OpenStore(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one: %v: want ErrLocked", err)
	}
}

// TestStoreDamaged: a file that was cut off, or in which a byte is wrong, is refused, or says what it said; it is never
// believed to say anything else.
func TestStoreDamaged(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	var want State
	for i := range 40 {
		x := Tenant{Name: fmt.Sprintf("tenant%02d", i), Key: ib.PKey(i + 1)}
		for g := range 30 {
			x.Put(Member{GUID: ib.GUID(1000*i + g + 1), Full: g%2 == 0})
		}
		does(t, s.Begin(Change{Is: &x}), s.Commit(Change{Is: &x}))
		want = want.with(Change{Is: &x})
	}
	closeT(t, s)
	whole, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	refused, harmless := 0, 0
	try := func(what string, b []byte) {
		t.Helper()
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStore(filepath.Dir(path))
		if err != nil {
			refused++
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v: want ErrCorrupt", what, err)
			}
			if now, _ := os.ReadFile(path); !reflect.DeepEqual(now, b) {
				t.Errorf("%s: the file was changed", what)
			}
			return
		}
		harmless++
		got := s.State()
		closeT(t, s)
		// bbolt keeps two first pages: with one of them damaged, it is as it was a transaction ago.
		last := State{Tenants: want.Tenants[:len(want.Tenants)-1]}
		if !sameState(got, want) && !sameState(got, last) {
			t.Errorf("%s: it has %d tenants: want %d", what, len(got.Tenants), len(want.Tenants))
		}
	}
	page := os.Getpagesize()
	for n := 0; n < len(whole); n += page / 2 {
		try(fmt.Sprintf("cut off after %d bytes", n), whole[:n])
	}
	for at := 0; at < len(whole); at += 523 {
		b := append([]byte(nil), whole...)
		b[at] ^= 0x41
		try(fmt.Sprintf("byte %d", at), b)
	}
	t.Logf("%d refused, %d harmless", refused, harmless)
	if refused == 0 {
		t.Error("no damage was seen")
	}
}

func TestStoreUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(filepath.Join(file, "x")); err == nil {
		t.Error("a folder in a file")
	}
}
