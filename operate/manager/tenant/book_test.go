package tenant

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/internal/patience"
	"softib/internal/patience/patiencetest"
	"softib/proto/ib"
	"softib/subnet/policy"
)

// fakeFabric is a fabric that remembers what it was told, and refuses when it is told to.
type fakeFabric struct {
	mu      sync.Mutex
	now     State
	refuse  func() error // of the next call, nil if it does not
	half    bool         // a refusal leaves something half done
	calls   int
	hold    chan struct{} // calls wait for it
	entered chan struct{}
	parts   policy.Partitions
}

func (f *fakeFabric) Reserved(key ib.PKey) (string, bool) { return Reserved(f.parts, key) }

func (f *fakeFabric) Enforce(_ context.Context, _, want State) error {
	if f.hold != nil {
		f.entered <- struct{}{}
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.refuse != nil {
		if err := f.refuse(); err != nil {
			if f.half {
				f.now = want // as far as anybody knows
			}
			return err
		}
	}
	f.now = want
	return nil
}

// slowFabric is never as it should be.
type slowFabric struct{ fakeFabric }

func (f *slowFabric) Enforce(ctx context.Context, _, _ State) error {
	ProgressOf(ctx).At("a sweep", 2, 7)
	ProgressOf(ctx).Step()
	<-ctx.Done()
	return fmt.Errorf("fabric: %w", ctx.Err())
}

// TestLate: a change that takes too long says what it was at, for how long, and what of going back did not work.
func TestLate(t *testing.T) {
	b := bookOf(State{}, &slowFabric{})
	b.store, b.most = &memory{}, 20*time.Millisecond
	ctx, far := WithProgress(t.Context())
	if far.String() != "" {
		t.Errorf("before it begins: %v", far)
	}
	_, err := b.Create(ctx, Tenant{Name: "red", Key: 0x11})
	text := fmt.Sprint(err)
	for _, want := range []string{"nothing was changed: the fabric: no end after ", " of this: a sweep, 3 of 7",
		"put in force again", " of this: going back to what was before: a sweep, 3 of 7"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: want %q", text, want)
		}
	}
	if !errors.Is(err, ErrRefused) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%#v", err)
	}
	if s := far.String(); !strings.HasPrefix(s, "going back to what was before: a sweep, 3 of 7 (") {
		t.Errorf("%q", s)
	}
	// Who does not get a turn is told why, and that nothing was changed.
	b.turn <- struct{}{}
	short, cancel := patience.Context(ctx, time.Millisecond)
	defer cancel()
	if _, err := b.Create(short, Tenant{Name: "red", Key: 0x11}); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "nothing was changed: other changes are under way: no end after ") {
		t.Error(err)
	}
}

// TestLateWhileBusy: where the machine has much to do besides, a change may take longer, and the error says so.
func TestLateWhileBusy(t *testing.T) {
	patiencetest.Pretend(t, 20)
	b := bookOf(State{}, &slowFabric{})
	if b.most != enforceMax {
		t.Errorf("a book gives its fabric %v, want %v", b.most, enforceMax)
	}
	b.store, b.most = &memory{}, 10*time.Millisecond
	ctx, far := WithProgress(t.Context())
	began := time.Now()
	_, err := b.Create(ctx, Tenant{Name: "red", Key: 0x11})
	if d := time.Since(began); d < 2*20*b.most { // for the change, and for what was before
		t.Errorf("given up after %v", d)
	}
	if text := fmt.Sprint(err); !errors.Is(err, context.DeadlineExceeded) ||
		strings.Count(text, patiencetest.Words(20)+" of this: ") != 2 {
		t.Errorf("%v: want %q twice", err, patiencetest.Words(20))
	}
	if s := far.String(); !strings.HasSuffix(s, patiencetest.Words(20)+")") {
		t.Errorf("%q: want%s", s, patiencetest.Words(20))
	}
}

// fakeStore fails when it is told to. A Commit that fails may have been done.
type fakeStore struct {
	memory
	fail func(what string) (done bool, err error)
}

func (s *fakeStore) Begin(c Change) error {
	if done, err := s.fail("begin"); err != nil {
		if done {
			_ = s.memory.Begin(c)
		}
		return err
	}
	return s.memory.Begin(c)
}

func (s *fakeStore) Commit(c Change) error {
	done, err := s.fail("commit")
	if err == nil || done {
		_ = s.memory.Commit(c)
	}
	return err
}

func (s *fakeStore) Abort(c Change) error {
	if _, err := s.fail("abort"); err != nil {
		return err
	}
	s.state = s.state.with(c.inverse())
	return s.memory.Abort(c)
}

func never(string) (bool, error) { return false, nil }

func newBook(t testing.TB, s Store, f Fabric) *Book {
	t.Helper()
	b, err := Open(t.Context(), s, f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var errDisk = errors.New("disk full")

// TestAllOrNothing: random calls while nodes refuse and the disk fails at random. After each, the book, the fabric and
// the store agree; with an error they are what they were.
func TestAllOrNothing(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		f := &fakeFabric{half: true}
		s := &fakeStore{fail: never}
		b := newBook(t, s, f)
		model := State{}
		made, refused := 0, 0
		for range 300 {
			// One refusal, and what comes after it works: who is told to be as before does it.
			bad := rng.IntN(3) == 0
			f.refuse = func() error {
				if bad && rng.IntN(2) == 0 {
					bad = false
					return &RefusedError{Refusals: []Refusal{{Node: "leaf1[3]", Why: "answers with busy"}}}
				}
				return nil
			}
			s.fail = func(what string) (bool, error) {
				if bad && what != "abort" && rng.IntN(4) == 0 {
					bad = false
					return rng.IntN(2) == 0, fmt.Errorf("%w: %w", ErrStore, errDisk)
				}
				return false, nil
			}
			name := string('a' + rune(rng.IntN(4)))
			var members []Member
			for range rng.IntN(4) {
				members = append(members, Member{GUID: ib.GUID(1 + rng.IntN(8)), Full: rng.IntN(2) == 0})
			}
			slices.SortFunc(members, func(x, y Member) int { return int(x.GUID) - int(y.GUID) })
			members = slices.CompactFunc(members, func(x, y Member) bool { return x.GUID == y.GUID })
			next := model
			was, there := model.Get(name)
			is := was.Clone()
			var err error
			var want error
			switch rng.IntN(6) {
			case 0, 1:
				if there {
					want = ErrExists
				}
				var got Tenant
				if got, err = b.Create(t.Context(), Tenant{Name: name, Members: members}); err == nil {
					next = model.with(Change{Is: &got})
				}
			case 2:
				if !there {
					want = ErrNotFound
				}
				is.Put(members...)
				if _, err = b.Add(t.Context(), name, members...); err == nil {
					next = model.with(Change{Was: &was, Is: &is})
				}
			case 3:
				var guids []ib.GUID
				for _, m := range members {
					guids = append(guids, m.GUID)
				}
				if strangers := is.Drop(guids...); len(strangers) > 0 || !there {
					want = ErrNotFound
				}
				if _, err = b.Remove(t.Context(), name, guids...); err == nil {
					next = model.with(Change{Was: &was, Is: &is})
				}
			case 4:
				if !there {
					want = ErrNotFound
				}
				is.Members = members
				if _, err = b.Replace(t.Context(), name, members); err == nil {
					next = model.with(Change{Was: &was, Is: &is})
				}
			case 5:
				if !there {
					want = ErrNotFound
				}
				if err = b.Delete(t.Context(), name); err == nil {
					next = model.with(Change{Was: &was})
				}
			}
			switch {
			case want != nil && !errors.Is(err, want):
				t.Fatalf("seed %d: %v: want %v", seed, err, want)
			case err != nil && want == nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrStore):
				t.Fatalf("seed %d: %v", seed, err)
			case err != nil && want == nil:
				refused++
			case err == nil:
				made++
			}
			model = next
			if !sameState(b.State(), model) || !sameState(f.now, model) || !sameState(s.state, model) ||
				s.intent != nil {
				t.Fatalf("seed %d after %v:\nbook   %+v\nfabric %+v\nstore  %+v, intent %v\nwant   %+v", seed, err,
					b.State(), f.now, s.state, s.intent, model)
			}
		}
		if made < 50 || refused < 10 {
			t.Errorf("seed %d: %d made, %d refused: not much of a test", seed, made, refused)
		}
	}
}

// TestStoreGone: if the store cannot even take an intent back, nothing is changed any more.
func TestStoreGone(t *testing.T) {
	f := &fakeFabric{}
	s := &fakeStore{fail: func(what string) (bool, error) {
		if what == "begin" {
			return false, nil
		}
		return false, fmt.Errorf("%w: %w", ErrStore, errDisk)
	}}
	b := newBook(t, s, f)
	for range 2 {
		if _, err := b.Create(t.Context(), Tenant{Name: "a"}); !errors.Is(err, ErrStore) {
			t.Errorf("%v: want ErrStore", err)
		}
	}
	if f.calls != 2 || len(f.now.Tenants) != 0 || len(b.List()) != 0 {
		t.Errorf("%d calls, the fabric has %+v", f.calls, f.now)
	}
}

// TestUndoFails: a node that refuses and then is silent is named as one that is told later.
func TestUndoFails(t *testing.T) {
	n := 0
	f := &fakeFabric{refuse: func() error {
		n++
		return &RefusedError{Refusals: []Refusal{{Node: fmt.Sprintf("leaf%d[1]", n), Why: "does not answer"}}}
	}}
	b := newBook(t, &memory{}, f)
	_, err := b.Create(t.Context(), Tenant{Name: "a"})
	var r *RefusedError
	if !errors.As(err, &r) || len(r.Refusals) != 1 || len(r.Left) != 1 || r.Refusals[0].Node != "leaf1[1]" ||
		r.Left[0].Node != "leaf2[1]" {
		t.Errorf("%v", err)
	}
	for _, word := range []string{"nothing was changed", "leaf1[1]: does not answer",
		"as soon as they answer: leaf2[1]"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v: want it to say %q", err, word)
		}
	}
}

// TestIntentGivenUp: what was begun and not committed is not in force after a start, and says so.
func TestIntentGivenUp(t *testing.T) { places(t, testIntentGivenUp) }

func testIntentGivenUp(t *testing.T, open func() Store) {
	s := open()
	a, c := Tenant{Name: "a", Key: 7, Members: []Member{{GUID: 1, Full: true}}}, Tenant{Name: "c", Key: 8}
	does(t, s.Begin(Change{Is: &a}), s.Commit(Change{Is: &a}), s.Begin(Change{Is: &c}))
	closeT(t, s)
	f := &fakeFabric{}
	b := newBook(t, open(), f)
	if x, ok := b.GivenUp(); !ok || x.Is == nil || x.Is.Name != "c" {
		t.Errorf("given up: %v, %t", x, ok)
	}
	if len(f.now.Tenants) != 1 || !f.now.Tenants[0].Equal(a) {
		t.Errorf("in force: %+v", f.now)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer closeT(t, s)
	if s.Intent() != nil || len(s.State().Tenants) != 1 {
		t.Errorf("the store has %+v and the intent %v", s.State(), s.Intent())
	}
	if _, err := b.Create(t.Context(), Tenant{Name: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed book: %v", err)
	}
}

// TestStartRefused: a start at which a node refuses fails; another's fabric is left alone.
func TestStartRefused(t *testing.T) {
	a := Tenant{Name: "a", Key: 7}
	for _, tc := range []struct {
		err  error
		ok   bool
		what string
	}{
		{&RefusedError{Refusals: []Refusal{{"leaf1[1]", "is broken"}}}, false, "a node refuses"},
		{fmt.Errorf("no: %w", ErrUnmanaged), true, "another manages"},
	} {
		s := &memory{}
		does(t, s.Commit(Change{Is: &a}))
		f := &fakeFabric{refuse: func() error { return tc.err }}
		b, err := Open(t.Context(), s, f)
		if (err == nil) != tc.ok {
			t.Fatalf("%s: %v", tc.what, err)
		}
		if !tc.ok {
			if !errors.Is(err, ErrRefused) {
				t.Errorf("%v", err)
			}
			continue
		}
		if !errors.Is(b.Aside(), ErrUnmanaged) || len(b.List()) != 1 {
			t.Errorf("%v, %v", b.Aside(), b.List())
		}
		if _, err := b.Create(t.Context(), Tenant{Name: "b"}); !errors.Is(err, ErrUnmanaged) || f.calls != 2 {
			t.Errorf("%v after %d calls", err, f.calls)
		}
		// Now it is ours.
		f.refuse = nil
		if _, err := b.Create(t.Context(), Tenant{Name: "b"}); err != nil || b.Aside() != nil ||
			len(f.now.Tenants) != 2 {
			t.Errorf("%v, %v, %+v", err, b.Aside(), f.now)
		}
	}
}

// TestQueue: calls wait for each other, who gives up while waiting has changed nothing, and who gives up later has not
// given up.
func TestQueue(t *testing.T) {
	f := &fakeFabric{}
	b := newBook(t, &memory{}, f)
	f.hold, f.entered = make(chan struct{}), make(chan struct{}, 8)
	first, second := make(chan error, 1), make(chan error, 1)
	ctx1, cancel1 := context.WithCancel(t.Context())
	go func() { _, err := b.Create(ctx1, Tenant{Name: "a"}); first <- err }()
	<-f.entered // it is at work
	ctx2, cancel2 := context.WithCancel(t.Context())
	go func() { _, err := b.Create(ctx2, Tenant{Name: "b"}); second <- err }()
	cancel2()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, ok := b.Get("a"); ok {
		t.Error("it is there before it is in force")
	}
	cancel1()
	f.hold <- struct{}{}
	if err := <-first; err != nil {
		t.Errorf("%v: what has begun is carried through", err)
	}
	if l := b.List(); len(l) != 1 || l[0].Name != "a" {
		t.Errorf("%+v", l)
	}
	close(f.hold)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if _, err := b.Create(t.Context(), Tenant{Name: fmt.Sprintf("t%d", i)}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() { _ = b.List(); _, _ = b.ByKey(ib.PKey(i)); _ = b.Revision() })
		select {
		case <-f.entered:
		default:
		}
	}
	go func() {
		for range f.entered {
		}
	}()
	wg.Wait()
	keys := map[ib.PKey]bool{}
	for _, x := range b.List() {
		if keys[x.Key] {
			t.Errorf("key %v twice", x.Key)
		}
		keys[x.Key] = true
	}
	if len(keys) != 51 || b.Revision() != 52 {
		t.Errorf("%d tenants, revision %d", len(keys), b.Revision())
	}
	close(f.entered)
}

// TestKeys: keys are chosen around those that are taken, and those of a file are refused.
func TestKeys(t *testing.T) {
	parts, _, err := policy.ParsePartitions("partitions.conf",
		[]byte("Default=0x7fff : ALL=full ;\nops=0x1001 : ALL ;\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeFabric{parts: parts}
	b := newBook(t, &memory{}, f)
	ctx := t.Context()
	a, err := b.Create(ctx, Tenant{Name: "a"})
	if err != nil || a.Key != 0x1002 {
		t.Errorf("%+v, %v", a, err)
	}
	for _, tc := range []struct {
		t    Tenant
		want error
	}{
		{Tenant{Name: "x", Key: 0x1001}, ErrReserved},
		{Tenant{Name: "x", Key: 0x9001}, ErrReserved},
		{Tenant{Name: "x", Key: 0x1002}, ErrExists},
		{Tenant{Name: "a", Key: 5}, ErrExists},
		{Tenant{Name: "x", Key: 0x7fff}, ErrInvalid},
		{Tenant{Name: "x", Key: 0x8000}, ErrInvalid},
		{Tenant{Name: "x y"}, ErrInvalid},
		{Tenant{Name: "x", Members: []Member{{GUID: 1}, {GUID: 2}, {GUID: 1, Full: true}}}, ErrInvalid},
		{Tenant{Name: "x", QoS: QoS{SL: 16, HasSL: true}}, ErrInvalid},
		{Tenant{Name: "x", QoS: QoS{Rate: 1}}, ErrInvalid},
		{Tenant{Name: "x", QoS: QoS{MTU: 9}}, ErrInvalid},
	} {
		if _, err := b.Create(ctx, tc.t); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v: want %v", tc.t, err, tc.want)
		}
	}
	if f.calls != 1 {
		t.Errorf("the fabric was called %d times", f.calls)
	}
	// By key: made if it has a name, else it must be there.
	add := func(x *Tenant) error { x.Put(Member{GUID: 9, Full: true}); return nil }
	if _, err := b.EditKey(ctx, 0x8005, "", add); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if x, err := b.EditKey(ctx, 0x8005, "five", add); err != nil || x.Key != 5 || x.Name != "five" ||
		len(x.Members) != 1 {
		t.Errorf("%+v, %v", x, err)
	}
	calls := f.calls
	if x, err := b.EditKey(ctx, 5, "other", add); err != nil || x.Name != "five" || f.calls != calls {
		t.Errorf("%+v, %v: it was so already", x, err)
	}
	if _, err := b.EditKey(ctx, 6, "five", add); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	if _, err := b.EditKey(ctx, ib.PKeyBase, "six", add); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	no := errors.New("no")
	if _, err := b.Edit(ctx, "five", func(*Tenant) error { return no }); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	if _, err := b.Edit(ctx, "five", func(x *Tenant) error { x.Name, x.Key = "six", 6; return nil }); err != nil {
		t.Error(err)
	}
	if x, ok := b.ByKey(5); !ok || x.Name != "five" {
		t.Errorf("%+v", x)
	}
	if testing.Short() {
		return // what follows compares all keys with all keys, in one goroutine
	}
	// The last key of all, and none.
	for k := ib.PKey(1); k < ib.PKeyBase; k++ {
		f.parts.Defs = append(f.parts.Defs, policy.PartitionDef{Name: "p", Key: k})
	}
	if _, err := b.Create(ctx, Tenant{Name: "full"}); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
}

// TestTell: who listens hears of every change, and of those that failed.
func TestTell(t *testing.T) {
	f := &fakeFabric{}
	b := newBook(t, &memory{}, f)
	var said []string
	b.Tell(func(c Change, err error) { said = append(said, fmt.Sprintf("%v %t", c, err == nil)) })
	ctx := t.Context()
	_, _ = b.Create(ctx, Tenant{Name: "a", Members: []Member{{GUID: 1}}})
	_, _ = b.Create(ctx, Tenant{Name: "a"})
	_, _ = b.Add(ctx, "a", Member{GUID: 2})
	_ = b.UseTemplate(ctx, "classic")
	_ = b.UseTemplate(ctx, "classic")
	_ = b.UseTemplate(ctx, "")
	f.refuse = func() error { return &RefusedError{} }
	_ = b.Delete(ctx, "a")
	want := []string{"create tenant a (0x1001) with 1 members true",
		"change tenant a (0x1001) from 1 to 2 members true", "QoS template classic true", "no QoS template true",
		"delete tenant a (0x1001) false"}
	if !slices.Equal(said, want) {
		t.Errorf("said %q\nwant %q", said, want)
	}
}

// TestMerge: members of tenants are limited members of the default partition, the manager and all others what they
// were.
func TestMerge(t *testing.T) {
	parts, _, err := policy.ParsePartitions("partitions.conf",
		[]byte("Everybody=0x7fff,ipoib,sl=3 : ALL=full ;\nops=0x2000 : ALL=limited ;\n"))
	if err != nil {
		t.Fatal(err)
	}
	ports := []policy.PortFacts{{GUID: 1, Type: ib.NodeCA, IsSelf: true}, {GUID: 2, Type: ib.NodeCA},
		{GUID: 3, Type: ib.NodeCA}, {GUID: 4, Type: ib.NodeCA}}
	s := State{Tenants: []Tenant{
		{Name: "a", Key: 9, Members: []Member{{GUID: 1, Full: true}, {GUID: 2, Full: true, Index0: true},
			{GUID: 77, Full: true}}},
		{Name: "b", Key: 8, Members: []Member{{GUID: 2}, {GUID: 3}}, QoS: QoS{SL: 2, HasSL: true, MTU: ib.MTU1024}},
	}}
	merged, err := s.Merge(parts)
	if err != nil {
		t.Fatal(err)
	}
	list := merged.Resolve(ports, policy.ResolveOptions{})
	keys := policy.Keys(list)
	for g, want := range map[ib.GUID][]ib.PKey{
		1: {0xffff, 0x2000, 0x8009},
		2: {0x8009, 0x7fff, 0x2000, 0x0008},
		3: {0x7fff, 0x2000, 0x0008},
		4: {0xffff, 0x2000},
	} {
		if !slices.Equal(keys[g], want) {
			t.Errorf("port %d has %v: want %v", g, keys[g], want)
		}
	}
	for _, p := range list {
		if p.Key.Base() == 8 && (p.Paths != policy.PathLimits{SL: 2, HasSL: true, MTU: ib.MTU1024}) {
			t.Errorf("paths of b: %+v", p.Paths)
		}
		if p.Key.Base() == ib.PKeyBase && (p.Name != "Default" && p.Name != "Everybody" || !p.IPoIB) {
			t.Errorf("the default partition is %+v", p)
		}
	}
	if len(parts.Defs) != 2 {
		t.Error("the operator's own were changed")
	}
	s.Tenants[0].Key = 0x2000
	if _, err := s.Merge(parts); !errors.Is(err, ErrReserved) {
		t.Errorf("%v: want ErrReserved", err)
	}
	if none, err := (State{}).Merge(parts); err != nil || len(none.Defs) != 2 {
		t.Errorf("%+v, %v", none, err)
	}
	// Without a file everybody else is in a partition of their own, which gives way to a tenant that has its key.
	plain, err := State{Tenants: []Tenant{{Name: "a", Key: 9,
		Members: []Member{{GUID: 2, Full: true}}}}}.Merge(policy.Partitions{})
	if err != nil {
		t.Fatal(err)
	}
	keys = policy.Keys(plain.Resolve(ports, policy.ResolveOptions{}))
	if !slices.Equal(keys[3], []ib.PKey{0xfffe, 0x7fff}) || !slices.Equal(keys[2], []ib.PKey{0x7fff, 0x8009}) {
		t.Errorf("%v", keys)
	}
	plain, err = State{Tenants: []Tenant{{Name: "a", Key: 0x7ffe,
		Members: []Member{{GUID: 2, Full: true}}}}}.Merge(policy.Partitions{})
	if err != nil {
		t.Fatal(err)
	}
	keys = policy.Keys(plain.Resolve(ports, policy.ResolveOptions{}))
	if !slices.Equal(keys[3], []ib.PKey{0xfffd, 0x7fff}) || !slices.Equal(keys[2], []ib.PKey{0x7fff, 0xfffe}) {
		t.Errorf("%v", keys)
	}
}
