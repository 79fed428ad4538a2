package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"softib/proto/ib"
)

// Fabric is what a book stands on: it keeps tenants apart.
type Fabric interface {
	// Reserved names the partition that has a key already, where the operator's own partitions do.
	Reserved(key ib.PKey) (name string, ok bool)
	// Enforce makes the fabric be as want says, proves that it is, and returns. What is different from was says whom to
	// ask. Nodes that refuse come as a *RefusedError; with any error the fabric may be half changed, and the book goes
	// back by another call.
	Enforce(ctx context.Context, was, want State) error
}

// enforceMax is how long a fabric may take to be as a change wants it, and again to be as before, on an idle machine.
const enforceMax = 20 * time.Second

// Book is the tenants of a fabric. Any number of goroutines may call it: changes are made one at a time, in the order
// in which they come, and who only asks never waits for them.
type Book struct {
	store  Store
	fabric Fabric
	turn   chan struct{} // full while a change is made
	closed chan struct{}
	end    sync.Once
	most   time.Duration // enforceMax, but in tests

	mu     sync.RWMutex
	state  State
	rev    uint64
	failed error // of the store; there is no change any more
	gone   *Change
	aside  error // why what is written down is not in force: another manages the fabric
	told   func(Change, error)
	// elsewhere is who makes changes; nil if this book does.
	elsewhere Elsewhere
	// others is who makes changes when this book does not; nil if nobody else ever does.
	others Elsewhere
}

// Open makes a book of what is in a store, and puts it in force. An intent that was left is given up. The book owns the
// store from now on.
func Open(ctx context.Context, store Store, fabric Fabric) (*Book, error) {
	b := bookOf(store.State(), fabric)
	b.store = store
	if c := store.Intent(); c != nil {
		if err := store.Abort(*c); err != nil {
			return nil, err
		}
		b.gone = c
	}
	if err := b.begin(ctx, b.state); errors.Is(err, ErrUnmanaged) {
		b.aside = err
	} else if err != nil {
		return nil, err
	}
	return b, nil
}

func bookOf(s State, fabric Fabric) *Book {
	return &Book{fabric: fabric, turn: make(chan struct{}, 1), closed: make(chan struct{}), most: enforceMax, state: s,
		rev: 1}
}

// begin puts what was found in force.
func (b *Book) begin(ctx context.Context, s State) error {
	for i := range s.Tenants {
		if err := b.reserved(s.Tenants[i].Key); err != nil {
			return err
		}
	}
	if len(s.Tenants) == 0 && s.Template == "" {
		return nil
	}
	if err := b.fabric.Enforce(ctx, State{}, s); err != nil {
		return fmt.Errorf("tenant: what was acknowledged cannot be put in force: %w", err)
	}
	return nil
}

// Aside is why the tenants that were found are not in force, where another subnet manager looks after the fabric: an
// ErrUnmanaged. A change that succeeds puts all of them in force.
func (b *Book) Aside() error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.aside
}

// Tell makes told be called after each change that was made, or that was begun and failed, one at a time. It is set
// before there are any.
func (b *Book) Tell(told func(Change, error)) { b.told = told }

// Close ends the book, after the change under way, and closes its store.
func (b *Book) Close() error {
	var err error
	b.end.Do(func() {
		close(b.closed)
		b.turn <- struct{}{}
		if b.store != nil {
			err = b.store.Close()
		}
	})
	return err
}

// GivenUp is the change that the last process was about to make when it ended, if there was one. It is not in force.
func (b *Book) GivenUp() (Change, bool) {
	if b.gone == nil {
		return Change{}, false
	}
	return *b.gone, true
}

// Revision moves on with every change.
func (b *Book) Revision() uint64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.rev
}

// State is everything, as it was acknowledged. It must not be changed.
func (b *Book) State() State {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.state
}

// List is all tenants in the order of names.
func (b *Book) List() []Tenant {
	s := b.State()
	out := make([]Tenant, len(s.Tenants))
	for i := range out {
		out[i] = s.Tenants[i].Clone()
	}
	return out
}

// Get finds a tenant by its name.
func (b *Book) Get(name string) (Tenant, bool) {
	s := b.State()
	return s.Get(name)
}

// ByKey finds the tenant of a partition; the membership bit does not matter.
func (b *Book) ByKey(key ib.PKey) (Tenant, bool) {
	s := b.State()
	return s.ByKey(key)
}

// Template is the QoS template in force; empty if there is none.
func (b *Book) Template() string { return b.State().Template }

// Create makes a tenant. Without a key it gets one that is free. It returns the tenant as it is in force.
func (b *Book) Create(ctx context.Context, t Tenant) (Tenant, error) {
	t = t.Clone()
	return b.change(ctx, func(s *State) (Change, error) {
		if _, ok := s.at(t.Name); ok {
			return Change{}, fmt.Errorf("tenant: name %s: %w", t.Name, ErrExists)
		}
		return b.fresh(s, &t)
	})
}

// fresh is the change that makes a tenant.
func (b *Book) fresh(s *State, t *Tenant) (Change, error) {
	if t.Key == 0 {
		if err := b.choose(s, t); err != nil {
			return Change{}, err
		}
	}
	t.Key = t.Key.Base()
	if err := t.check(); err != nil {
		return Change{}, err
	}
	if o, ok := s.ByKey(t.Key); ok {
		return Change{}, fmt.Errorf("tenant: pkey %v is %s's: %w", t.Key, o.Name, ErrExists)
	}
	if err := b.reserved(t.Key); err != nil {
		return Change{}, err
	}
	return Change{Is: t}, nil
}

func (b *Book) reserved(key ib.PKey) error {
	if name, ok := b.fabric.Reserved(key); ok {
		return fmt.Errorf("tenant: pkey %v is partition %s of the operator's file: %w", key, name, ErrReserved)
	}
	return nil
}

// choose gives a tenant the first key that is free.
func (b *Book) choose(s *State, t *Tenant) error {
	used := map[ib.PKey]bool{}
	for i := range s.Tenants {
		used[s.Tenants[i].Key] = true
	}
	for n := range ib.PKeyBase - 1 {
		// From firstKey up, then from 1.
		key := (firstKey-1+n)%(ib.PKeyBase-1) + 1
		if _, ok := b.fabric.Reserved(key); !ok && !used[key] {
			t.Key = key
			return nil
		}
	}
	return fmt.Errorf("tenant: all %d partition keys are taken: %w", int(ib.PKeyBase-1), ErrExists)
}

// Edit changes a tenant as a whole: edit gets a copy, and what it leaves there is put in force. The name and the key
// stay. With an error of edit's nothing happens; ErrUnchanged is none.
func (b *Book) Edit(ctx context.Context, name string, edit func(*Tenant) error) (Tenant, error) {
	return b.change(ctx, func(s *State) (Change, error) {
		t, ok := s.Get(name)
		if !ok {
			return Change{}, fmt.Errorf("tenant: %q: %w", name, ErrNotFound)
		}
		return edited(t, edit)
	})
}

// EditKey is Edit for the tenant of a partition. Where there is none it is made, with that name; an empty name means
// that it must be there.
func (b *Book) EditKey(ctx context.Context, key ib.PKey, name string, edit func(*Tenant) error) (Tenant, error) {
	return b.change(ctx, func(s *State) (Change, error) {
		if err := CheckKey(key.Base()); err != nil {
			return Change{}, err
		}
		t, ok := s.ByKey(key)
		switch {
		case ok:
			return edited(t, edit)
		case name == "":
			return Change{}, fmt.Errorf("tenant: pkey %v: %w", key.Base(), ErrNotFound)
		}
		if _, taken := s.at(name); taken {
			return Change{}, fmt.Errorf("tenant: name %s: %w", name, ErrExists)
		}
		t = Tenant{Name: name, Key: key.Base()}
		if err := edit(&t); err != nil && !errors.Is(err, ErrUnchanged) {
			return Change{}, err
		}
		t.Name, t.Key = name, key.Base()
		return b.fresh(s, &t)
	})
}

// edited is the change that an edit makes.
func edited(was Tenant, edit func(*Tenant) error) (Change, error) {
	is := was.Clone()
	if err := edit(&is); errors.Is(err, ErrUnchanged) {
		is = was
	} else if err != nil {
		return Change{}, err
	}
	is.Name, is.Key = was.Name, was.Key
	if err := is.check(); err != nil {
		return Change{}, err
	}
	return Change{Was: &was, Is: &is}, nil
}

// Add makes ports members of a tenant; those that are members become what is asked for.
func (b *Book) Add(ctx context.Context, name string, members ...Member) (Tenant, error) {
	return b.Edit(ctx, name, func(t *Tenant) error {
		t.Put(members...)
		return nil
	})
}

// Remove takes ports out of a tenant. All must be members.
func (b *Book) Remove(ctx context.Context, name string, guids ...ib.GUID) (Tenant, error) {
	return b.Edit(ctx, name, func(t *Tenant) error {
		if strangers := t.Drop(guids...); len(strangers) > 0 {
			return &NotMemberError{strangers[0], name}
		}
		return nil
	})
}

// Replace sets a tenant's members.
func (b *Book) Replace(ctx context.Context, name string, members []Member) (Tenant, error) {
	return b.Edit(ctx, name, func(t *Tenant) error {
		t.Members = append([]Member(nil), members...)
		return nil
	})
}

// SetQoS sets what a tenant's traffic gets.
func (b *Book) SetQoS(ctx context.Context, name string, q QoS) (Tenant, error) {
	return b.Edit(ctx, name, func(t *Tenant) error {
		t.QoS = q
		return nil
	})
}

// Delete takes a tenant away; its ports keep what else they are members of.
func (b *Book) Delete(ctx context.Context, name string) error {
	_, err := b.change(ctx, func(s *State) (Change, error) {
		t, ok := s.Get(name)
		if !ok {
			return Change{}, fmt.Errorf("tenant: %q: %w", name, ErrNotFound)
		}
		return Change{Was: &t}, nil
	})
	return err
}

// UseTemplate puts a QoS template in force, or none with an empty name. That there is one of this name is for the
// caller to see to.
func (b *Book) UseTemplate(ctx context.Context, name string) error {
	_, err := b.change(ctx, func(s *State) (Change, error) {
		return Change{Template: &TemplateChange{Was: s.Template, Is: name}}, nil
	})
	return err
}

// Refresh proves that the fabric is as acknowledged, and makes it so where it is not. It is for when what the
// operator's own files say has changed; check is called when it is its turn, and nothing happens if it says no.
func (b *Book) Refresh(ctx context.Context, check func(State) error) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	defer func() { <-b.turn }()
	b.mu.RLock()
	elsewhere := b.elsewhere
	b.mu.RUnlock()
	if elsewhere != nil {
		return fmt.Errorf("tenant: another machine keeps them apart: %w", ErrUnmanaged)
	}
	s := b.State()
	if check != nil {
		if err := check(s); err != nil {
			return err
		}
	}
	return b.enforce(ctx, s, s)
}

// take waits for the caller's turn.
func (b *Book) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-b.closed:
		return ErrClosed
	default:
	}
	ProgressOf(ctx).At("waiting for other changes to be made", 0, 0)
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("tenant: nothing was changed: other changes are under way: %w", context.Cause(ctx))
	case <-b.closed:
		return ErrClosed
	}
	return nil
}

// change makes one change, whole or not at all. Who is canceled before it begins changes nothing; once it has begun it
// is carried through, because half of it must not stay.
func (b *Book) change(ctx context.Context, plan func(*State) (Change, error)) (Tenant, error) {
	b.mu.RLock()
	to := b.elsewhere
	b.mu.RUnlock()
	if to != nil {
		return b.forward(ctx, to, plan)
	}
	t, err := b.changeHere(ctx, plan)
	b.mu.RLock()
	to = b.others
	b.mu.RUnlock()
	if to != nil && errors.Is(err, ErrUnmanaged) {
		return b.forward(ctx, to, plan) // another rules since: nothing was made here
	}
	return t, err
}

// changeHere is change where this book makes it.
func (b *Book) changeHere(ctx context.Context, plan func(*State) (Change, error)) (Tenant, error) {
	if err := b.take(ctx); err != nil {
		return Tenant{}, err
	}
	defer func() { <-b.turn }()
	b.mu.RLock()
	was, failed, elsewhere := b.state, b.failed, b.elsewhere
	b.mu.RUnlock()
	if elsewhere != nil {
		return Tenant{}, fmt.Errorf("tenant: another machine makes changes: %w", ErrUnmanaged)
	}
	if failed != nil {
		return Tenant{}, failed
	}
	c, err := plan(&was)
	if err != nil {
		return Tenant{}, err
	}
	var result Tenant
	if c.Is != nil {
		result = c.Is.Clone()
	}
	if c.isEmpty() {
		return result, nil
	}
	err = b.make(ctx, c, was)
	if b.told != nil {
		b.told(c, err)
	}
	if err != nil {
		return Tenant{}, err
	}
	return result, nil
}

// make takes a change through all its steps.
func (b *Book) make(ctx context.Context, c Change, was State) error {
	if err := b.store.Begin(c); err != nil {
		return b.giveUp(c, err)
	}
	is, before := was.with(c), was
	if b.Aside() != nil {
		before = State{} // all of it has to be put in force
	}
	if err := b.enforce(ctx, before, is); err != nil {
		return b.undo(ctx, c, was, is, err)
	}
	if err := b.store.Commit(c); err != nil {
		return b.undo(ctx, c, was, is, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.aside = is, nil
	b.rev++
	return nil
}

// undo makes everything be as before a change that failed, and returns why it did.
func (b *Book) undo(ctx context.Context, c Change, was, is State, why error) error {
	if errors.Is(why, ErrUnmanaged) {
		return b.giveUp(c, why) // nobody was told anything
	}
	ProgressOf(ctx).goBack()
	if back := b.enforce(ctx, is, was); back != nil {
		var r, left *RefusedError
		switch {
		case errors.As(why, &r) && errors.As(back, &left):
			why = &RefusedError{Refusals: r.Refusals, Left: left.Refusals, late: r.late}
		case errors.As(back, &left):
			why = fmt.Errorf("%w; %w", why, &RefusedError{Left: left.Refusals})
		default:
			why = fmt.Errorf("%w; and the fabric cannot be told to be as before: %w", why, back)
		}
	}
	return b.giveUp(c, why)
}

// giveUp takes an intent back. If the store does not take that, what it holds is not known any more, and nothing is
// changed until somebody has looked.
func (b *Book) giveUp(c Change, why error) error {
	if err := b.store.Abort(c); err != nil {
		b.mu.Lock()
		b.failed = fmt.Errorf("tenant: no changes before a restart: %w", err)
		b.mu.Unlock()
		return errors.Join(why, err)
	}
	return why
}
