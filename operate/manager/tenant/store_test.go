package tenant

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
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

// wear makes a store in which much has happened, and a deletion last. It returns what the store's two files were after
// each of its last changes, and the state that was acknowledged last.
func wear(t testing.TB) (dir string, files [][]byte, last []byte, want State) {
	t.Helper()
	dir = t.TempDir()
	s := openT(t, dir)
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		does(t, err)
		return b
	}
	change := func(c Change) {
		does(t, s.Begin(c), s.Commit(c))
		want = want.with(c)
		files = append(files, read(FileName))
	}
	for i := range 16 {
		x := Tenant{Name: fmt.Sprintf("tenant%02d", i), Key: ib.PKey(i + 1)}
		for g := range 30 {
			x.Put(Member{GUID: ib.GUID(1000*i + g + 1), Full: g%2 == 0})
		}
		change(Change{Is: &x})
	}
	change(Change{Template: &TemplateChange{Is: "classic"}})
	for _, i := range []int{3, 8, 13} {
		was := want.Tenants[i].Clone()
		is := was.Clone()
		is.Drop(is.Members[3].GUID)
		change(Change{Was: &was, Is: &is})
	}
	gone := want.Tenants[8].Clone()
	change(Change{Was: &gone})
	closeT(t, s)
	return dir, files[max(0, len(files)-4):], read(LastName), want
}

// damage is a file that is not as it was.
type damage struct {
	what string
	file []byte
}

// damages are a file with every page zeroed, filled, full of noise, or as it was before some of the last changes; cut
// off at every length that a disk knows; and with single bytes and stretches of them wrong.
func damages(files [][]byte) (list []damage) {
	whole := files[len(files)-1]
	rng := rand.New(rand.NewPCG(7, 7))
	page := os.Getpagesize()
	with := func(at int, b []byte) []byte {
		file := bytes.Clone(whole)
		copy(file[at:], b)
		return file
	}
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for at := 0; at < len(whole); at += page {
		list = append(list, damage{fmt.Sprintf("page %d zeroed", at/page), with(at, make([]byte, page))},
			damage{fmt.Sprintf("page %d filled", at/page), with(at, bytes.Repeat([]byte{0xff}, page))},
			damage{fmt.Sprintf("page %d of noise", at/page), with(at, noise(page))})
		for i, old := range files[:len(files)-1] {
			if at+page <= len(old) {
				list = append(list, damage{fmt.Sprintf("page %d as it was %d changes ago", at/page, len(files)-1-i),
					with(at, old[at:at+page])})
			}
		}
	}
	for n := 0; n < len(whole); n += 512 {
		list = append(list, damage{fmt.Sprintf("cut off after %d bytes", n), whole[:n]})
	}
	for at := 0; at < len(whole); at += 523 {
		list = append(list, damage{fmt.Sprintf("byte %d", at), with(at, []byte{whole[at] ^ 0x41})})
	}
	// where pages say what they are
	for at := 0; at < len(whole); at += page {
		for i := 0; i < 96; i += 2 {
			list = append(list, damage{fmt.Sprintf("byte %d of page %d", i, at/page),
				with(at+i, []byte{whole[at+i] ^ byte(1+rng.IntN(255))})})
		}
	}
	for range 100 {
		b := noise(1 + rng.IntN(3000))
		at := rng.IntN(len(whole) - len(b))
		list = append(list, damage{fmt.Sprintf("%d bytes at %d", len(b), at), with(at, b)})
	}
	return list
}

// TestStoreDamaged: a file that was cut off, or in which something is wrong, is refused, or says what it said when
// somebody was last told, and can be written. It is never believed to say anything else; what was before is anything
// else.
func TestStoreDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of stores, one after the other")
	}
	_, files, last, want := wear(t)
	dir := t.TempDir()
	for _, noted := range []bool{true, false} {
		refused, harmless := 0, 0
		for _, d := range damages(files) {
			if !noted && (strings.Contains(d.what, "ago") || strings.HasPrefix(d.what, "byte ")) {
				continue // without a note of what was last, nothing tells of a page that was not written
			}
			does(t, os.WriteFile(filepath.Join(dir, FileName), d.file, 0o600))
			_ = os.Remove(filepath.Join(dir, LastName))
			if noted {
				does(t, os.WriteFile(filepath.Join(dir, LastName), last, 0o600))
			}
			s, err := OpenStore(dir)
			if err != nil {
				refused++
				if !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: %v: want ErrCorrupt", d.what, err)
				}
				if now, _ := os.ReadFile(filepath.Join(dir, FileName)); !bytes.Equal(now, d.file) {
					t.Errorf("%s: the file was changed", d.what)
				}
				continue
			}
			harmless++
			if !sameState(s.State(), want) {
				t.Errorf("%s (noted %v): it has %d tenants, template %q, intent %v: want %d", d.what, noted,
					len(s.State().Tenants), s.State().Template, s.Intent(), len(want.Tenants))
			}
			if harmless%32 == 0 || strings.HasSuffix(d.what, "zeroed") {
				x := Tenant{Name: "new", Key: 0x777}
				does(t, s.Begin(Change{Is: &x}), s.Commit(Change{Is: &x}))
				closeT(t, s)
				s = openT(t, dir)
				if !sameState(s.State(), want.with(Change{Is: &x})) {
					t.Errorf("%s: what was written after it is not there", d.what)
				}
			}
			closeT(t, s)
		}
		t.Logf("noted %v: %d refused, %d harmless", noted, refused, harmless)
		if refused == 0 || harmless == 0 {
			t.Errorf("%d refused, %d harmless", refused, harmless)
		}
	}
}

// TestStoreOlder: a store that is older than what was acknowledged is refused, however it came to be; one that is newer
// is what a killed process leaves; and one alone is taken, as a copy and as what older versions have left.
func TestStoreOlder(t *testing.T) {
	dir, files, last, want := wear(t)
	path := filepath.Join(dir, FileName)
	note := filepath.Join(dir, LastName)
	refuses := func(what, says string) {
		t.Helper()
		_, err := OpenStore(dir)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v: want ErrCorrupt that says %q", what, err, says)
		}
	}
	newest := files[len(files)-1]
	does(t, os.WriteFile(path, files[0], 0o600))
	refuses("an older copy", LastName)
	does(t, os.Remove(path))
	refuses("none", "it is gone")
	if _, err := os.Stat(path); err == nil {
		t.Error("a new one was made")
	}
	does(t, os.WriteFile(path, newest, 0o600))
	for i := range last {
		b := bytes.Clone(last)
		b[i] ^= 1
		does(t, os.WriteFile(note, b, 0o600))
		refuses(fmt.Sprintf("byte %d of %s", i, LastName), LastName)
		does(t, os.WriteFile(note, last[:i], 0o600))
		refuses(fmt.Sprintf("%s cut off after %d bytes", LastName, i), LastName)
	}

	// Killed between the two files: the note is that of the change before.
	old := acknowledged{tx: 3, sum: 1}
	does(t, old.write(note))
	s := openT(t, dir)
	if !sameState(s.State(), want) {
		t.Error("a store that is newer than its note is not as it is")
	}
	closeT(t, s)
	if now, _ := os.ReadFile(note); !bytes.Equal(now, last) {
		t.Errorf("what is served is not noted: %q", now)
	}

	does(t, os.Remove(note))
	s = openT(t, dir)
	if !sameState(s.State(), want) {
		t.Error("a store without a note is not as it is")
	}
	closeT(t, s)
	if now, _ := os.ReadFile(note); !bytes.Equal(now, last) {
		t.Errorf("what is served is not noted: %q", now)
	}
}

// TestStoreUnnoted: a change whose note cannot be written is not acknowledged, and can be taken back.
func TestStoreUnnoted(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	red, blue := sampleTenant(), Tenant{Name: "blue", Key: 2}
	does(t, s.Begin(Change{Is: &red}), s.Commit(Change{Is: &red}))
	note := filepath.Join(dir, LastName)
	does(t, os.Remove(note), os.MkdirAll(filepath.Join(note, "in the way"), 0o700))
	does(t, s.Begin(Change{Is: &blue}))
	if err := s.Commit(Change{Is: &blue}); !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), LastName) {
		t.Errorf("%v: want ErrStore", err)
	}
	if err := s.Abort(Change{Is: &blue}); !errors.Is(err, ErrStore) {
		t.Errorf("%v: want ErrStore", err)
	}
	does(t, os.RemoveAll(note), s.Abort(Change{Is: &blue}))
	closeT(t, s)
	s = openT(t, dir)
	if got := s.State(); !sameState(got, State{Tenants: []Tenant{red}}) || s.Intent() != nil {
		t.Errorf("got %+v, intent %v", got, s.Intent())
	}
	closeT(t, s)
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
