package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"softib/proto/ib"
)

// place is Keys in memory.
type place map[string][]byte

func (p place) Read() (map[string][]byte, error) { return maps.Clone(p), nil }

func (p place) Write(put map[string][]byte, drop []string) error {
	for _, k := range drop {
		delete(p, k)
	}
	maps.Copy(p, put)
	return nil
}

// crew is machines that share a fabric: each has a book, one of them makes changes.
type crew struct {
	t      *testing.T
	keys   place
	fabric fakeFabric
	books  []*Book
	master int // -1: none
}

func (c *crew) Make(ctx context.Context, x Change) (State, error) {
	if c.master < 0 {
		return State{}, ErrUnmanaged
	}
	return c.books[c.master].Make(ctx, x)
}

func newCrew(t *testing.T, n int) *crew {
	c := &crew{t: t, keys: place{}, master: -1}
	for range n {
		c.books = append(c.books, NewFollower(State{}, &c.fabric, c))
	}
	return c
}

// rule makes a machine the master.
func (c *crew) rule(i int) {
	c.t.Helper()
	if c.master >= 0 {
		does(c.t, c.books[c.master].Follow(c))
	}
	s, err := OpenKeys(c.keys)
	does(c.t, err, c.books[i].Rule(c.t.Context(), s))
	c.master = i
}

// TestFollow: whichever machine is asked and whichever is the master, changes are made whole, those that were
// acknowledged are found again, and plans that are not of the newest state are made anew.
func TestFollow(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	for round := range 20 {
		c := newCrew(t, 3)
		c.rule(rng.IntN(3))
		want := map[string]int{} // members by name
		for step := range 60 {
			at := c.books[rng.IntN(3)]
			name := fmt.Sprint("t", rng.IntN(4))
			_, there := want[name]
			var err error
			switch rng.IntN(8) {
			case 0:
				c.rule(rng.IntN(3))
				continue
			case 1:
				// A master that ends in the middle of a change leaves an intent.
				s, e := OpenKeys(c.keys)
				does(t, e, s.Begin(Change{Is: &Tenant{Name: "half", Key: 99}}))
				c.rule(rng.IntN(3))
				continue
			case 2:
				if err = at.Delete(t.Context(), name); err == nil {
					delete(want, name)
				}
			case 3, 4:
				if _, err = at.Create(t.Context(), Tenant{Name: name}); err == nil {
					want[name] = 0
				}
				there = !there
			default:
				guid := ib.GUID(1000 + step)
				if _, err = at.Add(t.Context(), name, Member{GUID: guid, Full: true}); err == nil {
					want[name]++
				}
			}
			if (err == nil) != there {
				t.Fatalf("round %d, step %d: %s: %v, and it was there: %v", round, step, name, err, there)
			}
		}
		s, err := OpenKeys(c.keys)
		does(t, err)
		found := map[string]int{}
		for _, x := range s.State().Tenants {
			found[x.Name] = len(x.Members)
		}
		if !maps.Equal(found, want) || !same(s.State(), c.fabric.now) && len(want) > 0 {
			t.Fatalf("round %d: %v is written and %v in force, want %v", round, found, c.fabric.now, want)
		}
	}
}

// TestFollowTogether: many who change one tenant at many machines at once lose nothing.
func TestFollowTogether(t *testing.T) {
	c := newCrew(t, 3)
	c.rule(0)
	if _, err := c.books[1].Create(t.Context(), Tenant{Name: "red"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			for {
				_, err := c.books[i%3].Add(t.Context(), "red", Member{GUID: ib.GUID(i + 1)})
				if err == nil {
					return
				}
				if !errors.Is(err, ErrStale) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if red, _ := c.books[0].Get("red"); len(red.Members) != 30 {
		t.Errorf("%d members, want 30", len(red.Members))
	}
}

// TestMakeRefuses: what another machine says that a change is need not be one.
func TestMakeRefuses(t *testing.T) {
	c := newCrew(t, 2)
	c.rule(0)
	if _, err := c.books[1].Create(t.Context(), Tenant{Name: "red", Key: 5}); err != nil {
		t.Fatal(err)
	}
	red, _ := c.books[0].Get("red")
	other := Tenant{Name: "red", Key: 6}
	for name, x := range map[string]struct {
		c    Change
		want error
	}{
		"a key that cannot be": {Change{Is: &Tenant{Name: "x", Key: 0xFFFF}}, ErrInvalid},
		"a name that is taken": {Change{Is: &Tenant{Name: "red", Key: 9}}, ErrStale},
		"a key that is taken":  {Change{Is: &Tenant{Name: "blue", Key: 5}}, ErrStale},
		"another's past":       {Change{Was: &other, Is: &red}, ErrStale},
		"another name":         {Change{Was: &red, Is: &Tenant{Name: "blue", Key: 5}}, ErrInvalid},
		"another template":     {Change{Template: &TemplateChange{Was: "a", Is: "b"}}, ErrStale},
	} {
		if _, err := c.books[0].Make(t.Context(), x.c); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	if _, err := c.books[1].Make(t.Context(), Change{Was: &red}); !errors.Is(err, ErrUnmanaged) {
		t.Errorf("one that follows has made a change: %v", err)
	}
	if len(c.books[0].List()) != 1 {
		t.Error("something was changed")
	}
}

// TestMakeAgain: who is asked again for what was made says so, and makes what was not.
func TestMakeAgain(t *testing.T) {
	c := newCrew(t, 2)
	c.rule(0)
	red := Tenant{Name: "red", Key: 5}
	more := red.Clone()
	more.Members = []Member{{GUID: 7, Full: true}}
	for _, x := range []Change{{Is: &red}, {Was: &red, Is: &more}, {Was: &more}, {Template: &TemplateChange{Is: "x"}}} {
		for round := range 2 {
			s, err := c.books[0].MakeAgain(t.Context(), x)
			if err != nil || !s.shows(&x) {
				t.Errorf("round %d: %+v: %v, %+v", round, x, err, s)
			}
		}
	}
	// What somebody else has made of it meanwhile is his.
	does(t, func() error { _, err := c.books[0].Make(t.Context(), Change{Is: &red}); return err }())
	other := Tenant{Name: "red", Key: 9}
	for _, x := range []Change{{Is: &other}, {Was: &more}, {Was: &other, Is: &more}} {
		if _, err := c.books[0].MakeAgain(t.Context(), x); !errors.Is(err, ErrStale) {
			t.Errorf("%+v: %v, want ErrStale", x, err)
		}
	}
}

// TestDeposedInTheMiddle: a change that is under way where the master was, when it is none any more, is made by who is
// then.
func TestDeposedInTheMiddle(t *testing.T) {
	c := newCrew(t, 2)
	c.rule(0)
	calls := 0
	c.fabric.refuse = func() error {
		if calls++; calls == 1 {
			return fmt.Errorf("its manager has ended: %w", ErrUnmanaged)
		}
		return nil
	}
	if _, err := c.books[0].Create(t.Context(), Tenant{Name: "red"}); err != nil {
		t.Errorf("create: %v", err)
	}
	s, err := OpenKeys(c.keys)
	does(t, err)
	is := s.State()
	if _, ok := is.Get("red"); !ok || calls < 2 {
		t.Errorf("after %d calls the tenant is there: %v", calls, ok)
	}
}
