package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"softib/driver/peering"
	"softib/driver/smrun"
	"softib/internal/patience"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/subnet/sm"
)

// The tenants of a fabric that spans machines. They are kept in etcd, the machine that manages the subnet makes changes
// and puts them in force, and the others have it do that. What has changed it tells them before it is acknowledged:
// they let programs in by it.

const (
	// tenantKeys is where they are in etcd, below the fabric's name.
	tenantKeys = "tenants"
	// makeTenants has a change made, and learnTenants says what the tenants are now.
	makeTenants  = "tenants.make"
	learnTenants = "tenants.learn"
	// askTenants asks what of a tenant is not in force.
	askTenants = "tenants.astray"
	// learnTime is how long a machine may take to hear of a change, and masterTime how long one may take to be made
	// the master, on an idle machine.
	learnTime  = 2 * time.Second
	masterTime = 10 * time.Second
	// madeTime is how long the master may take to make a change, wait for others before it, and go back.
	// tidy: not patience, how busy the master is only the master knows; one that has gone is missed at once.
	madeTime = time.Hour
)

// tenantErrors are those that have to be matched on the machine that was asked, in the order in which they go there.
var tenantErrors = []error{tenant.ErrExists, tenant.ErrNotFound, tenant.ErrReserved, tenant.ErrInvalid,
	tenant.ErrRefused, tenant.ErrUnmanaged, tenant.ErrStore, tenant.ErrStale}

// wantedTenants is the question to who makes changes.
type wantedTenants struct {
	Change tenant.Change // embedded, its JSON would be all of it
	// Again: somebody was asked before, and may have made it.
	Again bool `json:",omitempty"`
}

// madeTenants is the answer of who makes changes.
type madeTenants struct {
	State tenant.State
	// Why is the error, empty for none, and Kind which of tenantErrors it matches; -1 is none of them.
	Why  string `json:",omitempty"`
	Kind int
}

// farError is an error of another machine.
type farError struct {
	text string
	is   error
}

func (e *farError) Error() string        { return e.text }
func (e *farError) Is(target error) bool { return e.is != nil && target == e.is }

// follow makes the book of a machine that is not the master, or not yet.
func (t *tenancy) follow(f *fabric) {
	if t == nil {
		return
	}
	var ks []manager.Keeper
	if f.ruler != nil {
		ks = append(ks, f.ruler)
	}
	t.e = manager.NewEnforcer(f.Fabric, t.own, t.guard, ks...)
	t.book = tenant.NewFollower(t.store.State(), t.e, t)
	t.listen(f)
}

// begin is what a manager that is about to rule begins with: its configuration, with the tenants that there are.
func (t *tenancy) begin(own sm.Config) (tenant.Store, sm.Config, error) {
	store, err := tenant.OpenKeys(t.joined.member.Keys(tenantKeys))
	if err != nil {
		return nil, own, err
	}
	c, err := manager.StartWith(own, store.State(), t.guard)
	return store, c, err
}

// rule has changes made here for as long as a manager rules, which end ends.
func (t *tenancy) rule(ctx context.Context, f *fabric, run *smrun.Runner, store tenant.Store) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	leave := func() {}
	wg.Go(func() {
		_ = run.Do(func(m *sm.Manager) {
			if r, ok := f.Graph().ByPortGUID(m.Port()); ok {
				leave = t.guard.Trust(r)
			}
		})
		t.guard.Watch(f.Fabric, store.State())
		t.guard.Again()
		said := false
		for {
			err := t.book.Rule(ctx, store)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				t.setRuns(run)
				t.joined.tellTenants(t.book.State)
				return
			}
			if !said && !errors.Is(err, tenant.ErrUnmanaged) { // which it is until its first sweep has ended
				t.joined.log("tenants: %v", err)
				said = true
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(rulePoll):
			}
			// What was found may be old by now.
			if again, err := tenant.OpenKeys(t.joined.member.Keys(tenantKeys)); err == nil {
				store = again
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		t.setRuns()
		_ = t.book.Follow(t)
		leave()
	}
}

func (t *tenancy) setRuns(runs ...*smrun.Runner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = runs
}

// Make has the master make a change, whichever machine that is.
func (t *tenancy) Make(ctx context.Context, c tenant.Change) (tenant.State, error) {
	j := t.joined
	ctx, cancel := context.WithTimeout(ctx, madeTime)
	defer cancel()
	far := tenant.ProgressOf(ctx)
	want := wantedTenants{Change: c}
	silent := tenant.ErrUnmanaged // or why nobody knows whether it was made
	for limit := patience.New(masterTime); ; {
		master := j.member.MasterName()
		switch master {
		case "":
			far.At("waiting for a machine to manage the subnet", 0, 0)
		case j.name: // it is about to be one
			s, err := t.make(ctx, &want)
			if !errors.Is(err, tenant.ErrUnmanaged) {
				return s, err
			}
		default:
			far.At("machine "+master+", which manages the subnet, makes it", 0, 0)
			var a madeTenants
			err := j.trunks.at.Call(ctx, master, makeTenants, want, &a)
			switch {
			case err == nil && !a.is(tenant.ErrUnmanaged):
				return a.State, a.err(master)
			case err != nil && !errors.Is(err, peering.ErrUnknown):
				// It may have made it before it went. Whoever manages the subnet next knows, or makes it.
				if want.Again = true; errors.Is(silent, tenant.ErrUnmanaged) {
					limit = patience.New(masterTime) // it may have gone long after it was asked
				}
				silent = fmt.Errorf("machine %s, which managed the subnet, has not said whether it made the change: %w",
					master, err)
			}
		}
		if limit.Over() || ctx.Err() != nil {
			return tenant.State{}, next(fmt.Errorf("no machine manages the subnet, after %v: %w", limit, silent),
				"softib tenant list shows what is in force")
		}
		select {
		case <-ctx.Done():
		case <-time.After(rulePoll):
		}
	}
}

// make makes a change here.
func (t *tenancy) make(ctx context.Context, c *wantedTenants) (tenant.State, error) {
	if c.Again {
		return t.book.MakeAgain(ctx, c.Change)
	}
	return t.book.Make(ctx, c.Change)
}

// astray is what nodes hold that is not what was acknowledged of a tenant, as the machine sees it that manages the
// subnet.
func (t *tenancy) astray(ctx context.Context, name string) (list []tenant.Refusal, err error) {
	if t.joined != nil {
		if master := t.joined.member.MasterName(); master != "" && master != t.joined.name {
			err = t.joined.trunks.at.Call(ctx, master, askTenants, name, &list)
			return list, err
		}
	}
	return t.astrayHere(ctx, name)
}

func (t *tenancy) astrayHere(ctx context.Context, name string) ([]tenant.Refusal, error) {
	s := t.book.State()
	x, ok := s.Get(name)
	if !ok {
		return nil, nil // it is gone by now
	}
	return t.e.Astray(ctx, s, &x)
}

// is reports whether the answer is that error.
func (a *madeTenants) is(err error) bool {
	return a.Why != "" && a.Kind >= 0 && a.Kind < len(tenantErrors) && tenantErrors[a.Kind] == err
}

func (a *madeTenants) err(machine string) error {
	if a.Why == "" {
		return nil
	}
	e := &farError{text: fmt.Sprintf("machine %s: %s", machine, a.Why)}
	if a.Kind >= 0 && a.Kind < len(tenantErrors) {
		e.is = tenantErrors[a.Kind]
	}
	return e
}

// serveTenants answers other machines.
func (j *joined) serveTenants(t *tenancy) {
	if t == nil {
		return
	}
	j.trunks.at.Answer(makeTenants, func(ctx context.Context, _ string, in json.RawMessage) (any, error) {
		var c wantedTenants
		if err := json.Unmarshal(in, &c); err != nil {
			return nil, err
		}
		s, err := t.make(ctx, &c)
		a := madeTenants{State: s, Kind: -1}
		if err != nil {
			a.Why = err.Error()
			a.Kind = slices.IndexFunc(tenantErrors, func(e error) bool { return errors.Is(err, e) })
		}
		return a, nil
	})
	j.trunks.at.Answer(askTenants, func(ctx context.Context, _ string, in json.RawMessage) (any, error) {
		var name string
		if err := json.Unmarshal(in, &name); err != nil {
			return nil, err
		}
		return t.astrayHere(ctx, name)
	})
	j.trunks.at.Answer(learnTenants, func(_ context.Context, peer string, in json.RawMessage) (any, error) {
		var s tenant.State
		if err := json.Unmarshal(in, &s); err != nil {
			return nil, err
		}
		if peer == j.member.MasterName() {
			t.book.Learn(s)
			t.rights.Review()
		}
		return struct{}{}, nil
	})
	// A machine that comes has switches that know of no guard, and may have missed a change.
	j.trunks.came = func() {
		if j.member.IsMaster() {
			t.guard.Again()
			j.tellTenants(t.book.State)
		}
		j.refresh(t)
	}
}

// refresh reads what the tenants are, on a machine that is not the master.
func (j *joined) refresh(t *tenancy) {
	if t == nil || j.member.IsMaster() {
		return
	}
	if s, err := tenant.OpenKeys(j.member.Keys(tenantKeys)); err == nil {
		t.book.Learn(s.State())
		t.rights.Review()
	}
}

// tellTenants tells the other machines what the tenants are, and waits until those that are reached know.
func (j *joined) tellTenants(state func() tenant.State) {
	if j == nil {
		return
	}
	s := state()
	ctx, cancel := context.WithTimeout(context.Background(), learnTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range j.others() {
		// One that is not reached reads it when it is.
		wg.Go(func() { _ = j.trunks.at.Call(ctx, m, learnTenants, s, nil) })
	}
	wg.Wait()
}

// others are the other machines.
func (j *joined) others() (names []string) {
	for _, m := range j.where {
		if m != j.name && !slices.Contains(names, m) {
			names = append(names, m)
		}
	}
	return names
}
