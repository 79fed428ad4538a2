package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"softib/driver/smrun"
	"softib/internal/packetsock"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// tenancy is the tenants of a running fabric. The store is opened before the fabric comes up, so that they are apart
// from its first moment.
type tenancy struct {
	dir    string
	store  tenant.Store
	own    sm.Config // what the operator's files say
	book   *tenant.Book
	e      *manager.Enforcer
	guard  *manager.Guard
	rights *packetsock.Rights // of others, if the fabric is shared
	joined *joined            // on a fabric that spans machines, whose store it is

	// others are managers beside it, with what their own files say: if one becomes master tenants stay apart.
	mu     sync.Mutex
	others map[*smrun.Runner]sm.Config
	runs   []*smrun.Runner // those that keep them apart; none if another's do
}

// newTenancy opens what a fabric keeps of its tenants.
func newTenancy(p place, o upOptions, j *joined) (*tenancy, error) {
	dir, err := p.state(o.state)
	if err != nil {
		return nil, err
	}
	t := &tenancy{dir: dir, joined: j}
	if j != nil {
		t.store, err = tenant.OpenKeys(j.member.Keys(tenantKeys))
		return t, err
	}
	if t.store, err = tenant.OpenStore(dir); err != nil {
		switch {
		case errors.Is(err, tenant.ErrLocked):
			return nil, next(err, "another softib has it open: softib status shows which run; --state DIR keeps "+
				"this fabric's state elsewhere")
		case errors.Is(err, tenant.ErrCorrupt):
			return nil, next(err, "put a copy of %s back that is whole and remove %s, or move both away and create "+
				"the tenants again; until then no host of theirs is served", filepath.Join(dir, tenant.FileName),
				tenant.LastName)
		}
		return nil, next(err, "softib up --state DIR with another folder, or --state none to keep nothing")
	}
	return t, nil
}

// config is the manager's configuration with the tenants in it. Trusted are ports at which other managers may run.
func (t *tenancy) config(g *topo.Graph, own sm.Config, trusted []topo.PortRef) (*sm.Config, error) {
	t.own, t.guard = own, manager.NewGuard(g, own, trusted)
	if t.joined != nil {
		t.guard.Agree(t.joined.secret)
	}
	c, err := manager.StartWith(own, t.store.State(), t.guard)
	if err != nil {
		return nil, next(err, "give that partition another key in the file, or start without the file and delete "+
			"the tenant: softib tenant delete NAME")
	}
	return &c, nil
}

// open makes sure that what was acknowledged is in force.
func (t *tenancy) open(ctx context.Context, f *fabric, out *reporter) error {
	if t.joined == nil {
		var ks []manager.Keeper
		for _, run := range f.managers() {
			ks = append(ks, run)
		}
		t.e = manager.NewEnforcer(f.Fabric, t.own, t.guard, ks...)
		var err error
		if t.book, err = tenant.Open(ctx, t.store, t.e); err != nil {
			return next(err,
				"softib log shows what the subnet manager has to say; --state OTHER starts without these tenants")
		}
		t.setRuns(f.managers()...)
		t.listen(f)
	}
	f.tenancy = t
	if c, ok := t.book.GivenUp(); ok {
		out.say("tenants   a change that was under way when the last fabric ended was never acknowledged, and "+
			"is not in force: %v", c)
	}
	t.describe(out)
	return nil
}

// listen has those told whom changes concern.
func (t *tenancy) listen(f *fabric) {
	t.book.Tell(func(c tenant.Change, err error) {
		e := manager.Event{Kind: "tenant", Text: c.String()}
		if c.Is != nil {
			e.Object = c.Is.Name
		} else if c.Was != nil {
			e.Object = c.Was.Name
		}
		if err != nil {
			e.Severity, e.Text = manager.Warning, e.Text+": "+err.Error()
		}
		f.journal.Add(e)
		if err == nil {
			t.spread()
			t.joined.tellTenants(t.book.State)
		}
		t.rights.Review()
	})
}

// describe says which tenants there are.
func (t *tenancy) describe(out *reporter) {
	list := t.book.List()
	switch {
	case t.book.Aside() != nil:
		out.say("tenants   %s of %s not in force: another manages the fabric", numbered(len(list), "tenant", "tenants"),
			t.dir)
	case len(list) > 0:
		names := make([]string, 0, namedMost)
		for i := range list {
			if i == namedMost {
				names = append(names, fmt.Sprintf("and %d more", len(list)-i))
				break
			}
			names = append(names, list[i].Name)
		}
		out.say("tenants   %d in force: %s", len(list), strings.Join(names, ", "))
	}
	if name := t.book.Template(); name != "" && t.book.Aside() == nil {
		out.say("qos       template %s in force", name)
	}
}

// close ends it.
func (t *tenancy) close() {
	if t.book != nil {
		_ = t.book.Close()
		return
	}
	_ = t.store.Close()
}

// reload puts other files of the operator's in force, with the tenants. With an error everything stays as it is.
func (t *tenancy) reload(ctx context.Context, run *smrun.Runner, parts policy.Partitions, pol *policy.QoSPolicy) error {
	if !slices.Contains(t.runners(), run) {
		t.mu.Lock()
		defer t.mu.Unlock()
		own := t.others[run]
		own.Partitions, own.QoS.Policy = parts, pol
		if err := t.tell(run, own); err != nil {
			return err
		}
		t.others[run] = own
		return nil
	}
	undo := func() {}
	err := t.book.Refresh(ctx, func(s tenant.State) error {
		if _, err := s.Merge(parts); err != nil {
			return err
		}
		undo = t.e.SetOwn(parts, pol)
		return nil
	})
	if errors.Is(err, tenant.ErrUnmanaged) {
		// A manager that stands by has to know it too, for when it is master.
		own := t.own
		own.Partitions, own.QoS.Policy = parts, pol
		return t.tell(run, own)
	}
	if err == nil {
		return nil
	}
	undo()
	if errors.Is(err, tenant.ErrReserved) {
		return next(err, "give that partition another key")
	}
	_ = t.book.Refresh(context.WithoutCancel(ctx), nil)
	return err
}

// tell gives a manager what its own files say with the tenants and the template in it; it puts that in force when it is
// master.
func (t *tenancy) tell(run *smrun.Runner, own sm.Config) error {
	state := t.book.State()
	c, err := manager.StartWith(own, state, t.guard)
	if err != nil {
		return err
	}
	var refused error
	err = run.Do(func(m *sm.Manager) {
		t.guard.Tell(m, &state)
		now := m.Config()
		if !reflect.DeepEqual(now.QoS, c.QoS) {
			_, refused = m.SetQoS(0, c.QoS)
		}
		if refused == nil && !reflect.DeepEqual(now.Partitions, c.Partitions) {
			m.SetPartitions(0, c.Partitions)
		}
	})
	return errors.Join(err, refused)
}

// join makes another manager know the tenants for as long as it runs. It was made with them already, but there may have
// been a change meanwhile.
func (t *tenancy) join(run *smrun.Runner, own sm.Config) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.others == nil {
		t.others = map[*smrun.Runner]sm.Config{}
	}
	t.others[run] = own
	go func() { _ = t.tell(run, own) }() // once it runs
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.others, run)
	}
}

// trust lets a manager run at a port until it is left, and tells all managers.
func (t *tenancy) trust(ref topo.PortRef) (leave func()) {
	tell := func() {
		state := t.book.State()
		for _, run := range t.runners() {
			_ = run.Do(func(m *sm.Manager) { t.guard.Tell(m, &state) })
		}
		t.spread()
	}
	undo := t.guard.Trust(ref)
	tell()
	return func() {
		undo()
		tell()
	}
}

// runners are the managers that keep them apart, one for each subnet; none if another's do.
func (t *tenancy) runners() []*smrun.Runner {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs
}

// spread tells all other managers of a change.
func (t *tenancy) spread() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for run, own := range t.others {
		// one whose own file has the key of a tenant keeps what it has, and is not master; one that has ended needs
		// nothing
		_ = t.tell(run, own)
	}
}
