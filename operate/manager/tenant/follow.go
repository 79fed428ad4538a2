package tenant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// A fabric that spans machines has one store, which all see, and one machine that makes changes. The books of the
// others follow: what they are asked for they plan, and have that machine make. Which one it is may change at any time.

// Elsewhere is who makes changes in place of a book that follows.
type Elsewhere interface {
	// Make has a change made, and returns the newest state; that is all if the change is none. The error matches
	// ErrStale if the change was planned on another state.
	Make(ctx context.Context, c Change) (State, error)
}

// ErrStale: the change was planned on a state that is not the newest any more.
var ErrStale = errors.New("the tenants have changed meanwhile")

// staleMost is how often a change is planned anew before who asks is told that others keep changing the same.
const staleMost = 16

// NewFollower makes a book that follows.
func NewFollower(s State, fabric Fabric, to Elsewhere) *Book {
	b := bookOf(s, fabric)
	b.elsewhere, b.others = to, to
	return b
}

// Follow has changes made elsewhere from now on. It waits for the one under way.
func (b *Book) Follow(to Elsewhere) error {
	if err := b.take(context.Background()); err != nil {
		return err
	}
	defer func() { <-b.turn }()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store, b.elsewhere, b.failed, b.aside = nil, to, nil, nil
	return nil
}

// Rule has changes made here from now on: what is in the store is put in force, whatever is, and an intent that was
// left is given up. Until that has succeeded the book follows on.
func (b *Book) Rule(ctx context.Context, store Store) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	defer func() { <-b.turn }()
	if c := store.Intent(); c != nil {
		if err := store.Abort(*c); err != nil {
			return err
		}
	}
	s := store.State()
	if err := b.begin(ctx, s); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store, b.elsewhere, b.failed, b.aside = store, nil, nil, nil
	b.state = s
	b.rev++
	return nil
}

// Learn is for a book that follows: that is the state now.
func (b *Book) Learn(s State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.elsewhere != nil && !same(b.state, s) {
		b.state = s
		b.rev++
	}
}

// Make makes a change that a book which follows has planned, and returns the newest state.
func (b *Book) Make(ctx context.Context, c Change) (State, error) {
	_, err := b.changeHere(ctx, func(s *State) (Change, error) { return c, b.fits(s, &c) })
	return b.State(), err
}

// MakeAgain is Make for a change of which the one who was asked before has not said whether it made it: it may have.
func (b *Book) MakeAgain(ctx context.Context, c Change) (State, error) {
	_, err := b.changeHere(ctx, func(s *State) (Change, error) {
		if s.shows(&c) {
			return Change{}, nil
		}
		return c, b.fits(s, &c)
	})
	return b.State(), err
}

// shows reports whether a state is as a change leaves it.
func (s *State) shows(c *Change) bool {
	if c.Template != nil && s.Template != c.Template.Is {
		return false
	}
	switch {
	case c.Is != nil:
		t, ok := s.Get(c.Is.Name)
		return ok && same(t, *c.Is)
	case c.Was != nil:
		_, ok := s.Get(c.Was.Name)
		return !ok
	}
	return true
}

// fits reports why a change cannot be made that was planned by somebody else.
func (b *Book) fits(s *State, c *Change) error {
	var now, is *Tenant
	if c.Was != nil {
		if t, ok := s.Get(c.Was.Name); ok {
			now = &t
		}
	}
	if is = c.Is; is != nil {
		if err := is.check(); err != nil {
			return err
		}
		if err := b.reserved(is.Key); err != nil {
			return err
		}
	}
	switch {
	case c.Was != nil && (now == nil || !same(*now, *c.Was)):
	case c.Was != nil && is != nil && (is.Name != c.Was.Name || is.Key != c.Was.Key):
		return fmt.Errorf("tenant: %s cannot become another: %w", c.Was.Name, ErrInvalid)
	case c.Was == nil && is != nil && s.has(is):
	case c.Template != nil && s.Template != c.Template.Was:
	default:
		return nil
	}
	return fmt.Errorf("tenant: %w", ErrStale)
}

// has reports whether a name or a key is taken.
func (s *State) has(t *Tenant) bool {
	_, named := s.at(t.Name)
	_, keyed := s.ByKey(t.Key)
	return named || keyed
}

// same compares what is kept of two values: a list of none is the same as no list.
func same[T any](a, b T) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// forward has a change made elsewhere, planned anew as long as others come first.
func (b *Book) forward(ctx context.Context, to Elsewhere, plan func(*State) (Change, error)) (Tenant, error) {
	// What was acknowledged anywhere before is seen here.
	s, err := to.Make(ctx, Change{})
	for range staleMost {
		if err != nil && !errors.Is(err, ErrStale) {
			return Tenant{}, err
		}
		b.Learn(s)
		was := s
		c, planErr := plan(&was)
		if planErr != nil {
			return Tenant{}, planErr
		}
		var result Tenant
		if c.Is != nil {
			result = c.Is.Clone()
		}
		if c.isEmpty() {
			return result, nil
		}
		if s, err = to.Make(ctx, c); err == nil {
			b.Learn(s)
			return result, nil
		}
	}
	return Tenant{}, err
}
