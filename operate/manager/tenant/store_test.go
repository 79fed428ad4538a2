package tenant

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/internal/etcdtest"
	"softib/operate/cluster"
	"softib/operate/cluster/etcd"
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

// places are where stores are kept: each test of them runs in all.
func places(t *testing.T, test func(t *testing.T, open func() Store)) {
	t.Run("file", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "b")
		test(t, func() Store { return openT(t, dir) })
		info, err := os.Stat(filepath.Join(dir, FileName))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
	t.Run("etcd", func(t *testing.T) {
		m := newMaster(t, etcdtest.Start(t).URL("lab"), "a")
		test(t, func() Store {
			s, err := OpenKeys(m.Keys("tenants"))
			does(t, err)
			return s
		})
	})
}

// newMaster is a machine of a cluster, and the first of it.
func newMaster(t *testing.T, url, name string) *etcd.Member {
	t.Helper()
	at, err := etcd.ParseURL(url)
	does(t, err)
	s, err := etcd.Connect(etcdtest.Context(t), at)
	does(t, err)
	t.Cleanup(func() { _ = s.Close() })
	m := etcd.Start(s, cluster.Info{Name: name}, nil)
	t.Cleanup(m.Abandon)
	does(t, m.Joined(etcdtest.Context(t)))
	for end := time.Now().Add(time.Minute); m.MasterName() == ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no master after a minute")
		}
	}
	return m
}

// TestStore: what was committed is found again, what was only begun is found as that.
func TestStore(t *testing.T) { places(t, testStore) }

func testStore(t *testing.T, open func() Store) {
	s := open()
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

	s = open()
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

	s = open()
	if got := s.State(); !sameState(got, State{Tenants: []Tenant{red}, Template: "classic"}) || s.Intent() != nil {
		t.Errorf("got %+v, intent %v", got, s.Intent())
	}
	// An Abort after a Commit takes it back: who is told that a commit failed does not know whether it was done.
	does(t, s.Commit(Change{Was: &red, Is: &red2}), s.Abort(Change{Was: &red, Is: &red2}))
	closeT(t, s)
	s = open()
	if got, _ := s.State().get("red"); !got.Equal(red) {
		t.Errorf("red is %+v", got)
	}
	closeT(t, s)
}

// TestStoreWorn: a store in which much has happened is found as it was after each change, however often it is opened.
func TestStoreWorn(t *testing.T) { places(t, testStoreWorn) }

func testStoreWorn(t *testing.T, open func() Store) {
	rng := rand.New(rand.NewPCG(1, 4))
	var want State
	s := open()
	for range 60 {
		name := string('a' + rune(rng.IntN(5)))
		c := Change{Is: &Tenant{Name: name, Key: ib.PKey(name[0]),
			Members: []Member{{GUID: ib.GUID(rng.Uint64() | 1)}}}}
		if was, there := want.Get(name); there {
			c.Was = &was
			if rng.IntN(3) == 0 {
				c.Is = nil
			}
		}
		does(t, s.Begin(c))
		if rng.IntN(3) == 0 {
			does(t, s.Abort(c))
		} else {
			does(t, s.Commit(c))
			want = want.with(c)
		}
		if rng.IntN(4) == 0 {
			closeT(t, s)
			if s = open(); !sameState(s.State(), want) || s.Intent() != nil {
				t.Fatalf("%+v, intent %v: want %+v", s.State(), s.Intent(), want)
			}
		}
	}
	closeT(t, s)
}

// heap is Keys in memory.
type heap map[string][]byte

func (h heap) Read() (map[string][]byte, error) { return h, nil }
func (h heap) Write(put map[string][]byte, drop []string) error {
	for _, name := range drop {
		delete(h, name)
	}
	maps.Copy(h, put)
	return nil
}

// FuzzKeys: whatever one of the values is, the store is opened as it was or refused as damaged.
func FuzzKeys(f *testing.F) {
	fill := func(t testing.TB) heap {
		h := heap{}
		s, err := OpenKeys(h)
		does(t, err, s.Commit(Change{Is: &Tenant{Name: "a", Key: 7, Members: []Member{{GUID: 1}}}}),
			s.Begin(Change{Is: &Tenant{Name: "c", Key: 8}}))
		return h
	}
	names := slices.Sorted(maps.Keys(fill(f)))
	for i, name := range names {
		f.Add(uint8(i), fill(f)[name], false)
		f.Add(uint8(i), []byte("12345678{}"), true)
	}
	f.Fuzz(func(t *testing.T, which uint8, value []byte, deflate bool) {
		h := fill(t)
		if deflate {
			value = pack(value)
		}
		h[names[int(which)%len(names)]] = value
		s, err := OpenKeys(h)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if got := s.State(); len(got.Tenants) != 1 || got.Tenants[0].Key != 7 {
			t.Fatalf("%+v", got)
		}
	})
}

// TestKeysOfOthers: who is not the master writes nothing, nor does who has not seen what another has written; what is
// damaged is refused, and a tenant of many members fits.
func TestKeysOfOthers(t *testing.T) {
	srv := etcdtest.Start(t)
	a := newMaster(t, srv.URL("lab"), "a")
	open := func(m *etcd.Member) Store {
		s, err := OpenKeys(m.Keys("tenants"))
		does(t, err)
		return s
	}
	first, second := open(a), open(a)
	large := Tenant{Name: "large", Key: 7}
	for i := range 40_000 {
		large.Members = append(large.Members, Member{GUID: ib.GUID(0x0002c90300000000 + i*2 + 1), Full: true})
	}
	c := Change{Is: &large}
	does(t, first.Begin(c), first.Commit(c), first.Begin(Change{Was: &large, Is: &large}), first.Abort(c))
	if err := second.Begin(c); !errors.Is(err, ErrStore) || !errors.Is(err, cluster.ErrStale) {
		t.Errorf("%v: want ErrStale", err)
	}
	does(t, first.Commit(c))
	k := a.Keys("tenants")
	values, err := k.Read()
	does(t, err)
	name := tenantPrefix + "large"
	for what, v := range map[string][]byte{"cut": values[name][:len(values[name])/2],
		"other": pack([]byte("12345678{}")), "empty": nil} {
		does(t, k.Write(map[string][]byte{name: v}, nil))
		if _, err := OpenKeys(a.Keys("tenants")); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v: want ErrCorrupt", what, err)
		}
	}
	does(t, k.Write(nil, []string{name}))
	if _, err := OpenKeys(a.Keys("tenants")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a tenant has gone: %v: want ErrCorrupt", err)
	}
	does(t, k.Write(values, nil))
	b := newMaster(t, srv.URL("lab"), "b")
	if b.MasterName() == "b" {
		a, b = b, a // on a machine that is very busy
	}
	other := open(b)
	if s := other.State(); len(s.Tenants) != 1 || !s.Tenants[0].Equal(large) {
		t.Errorf("the other machine sees %d tenants", len(s.Tenants))
	}
	if err := other.Begin(c); !errors.Is(err, ErrUnmanaged) || !errors.Is(err, cluster.ErrNotMaster) {
		t.Errorf("%v: want ErrNotMaster", err)
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
