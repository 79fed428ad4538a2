package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/policy"
	"softib/subnet/sm"

	"softib/operate/manager/tenant"
)

// Keeper is the subnet manager through which tenants are kept apart; *smrun.Runner is one.
type Keeper interface {
	Subnet
	// Await waits until is is true of the manager.
	Await(ctx context.Context, is func(*sm.Manager) bool) error
}

// Probes is a fabric that says what becomes of a packet; *live.Fabric is one.
type Probes interface {
	Fabric
	Guarded
	Probe(from topo.PortRef, dlid ib.LID, sl ib.SL, key ib.PKey) (inspect.Probed, error)
	// RenewWays makes what has changed hold for everything that attached programs send from now on.
	RenewWays()
}

// Enforcer keeps the tenants of a fabric apart: it is what a tenant.Book stands on. What it is asked for goes to the
// nodes by the subnet manager, is read back from them by datagrams, and is proved with packets.
type Enforcer struct {
	f    Probes
	ks   []Keeper // one for each subnet
	g    *topo.Graph
	port map[ib.GUID]topo.PortRef // end ports
	// guard keeps hosts from undoing it.
	guard *Guard
	own   sync.Once // the managers' own ports are trusted

	mu    sync.Mutex
	parts policy.Partitions // the operator's own
	qos   sm.QoS
}

// NewEnforcer makes one for a fabric and its managers, one for each subnet; there are none where somebody else's look
// after it. Own is what the operator says, without tenants.
func NewEnforcer(f Probes, own sm.Config, guard *Guard, ks ...Keeper) *Enforcer {
	e := &Enforcer{f: f, ks: ks, g: f.Graph(), port: map[ib.GUID]topo.PortRef{}, guard: guard, parts: own.Partitions,
		qos: own.QoS}
	for i, n := range e.g.Nodes {
		if n.IsSwitch() {
			e.port[n.PortGUID(0)] = topo.PortRef{Node: i}
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			e.port[n.PortGUID(ib.PortNum(p))] = topo.PortRef{Node: i, Port: ib.PortNum(p)}
		}
	}
	return e
}

// StartWith is a manager's configuration for a fabric whose tenants are known before it comes up: with it they are
// apart from the first moment.
func StartWith(c sm.Config, s tenant.State, guard *Guard) (sm.Config, error) {
	var err error
	guard.configure(&c, &s)
	if c.Partitions, err = merge(s, c.Partitions, guard.g); err != nil {
		return c, err
	}
	c.QoS, err = qosWith(c.QoS, s.Template)
	return c, err
}

// merge adds tenants to an operator's partitions. Where routers join subnets the routers carry their packets.
func merge(s tenant.State, own policy.Partitions, g *topo.Graph) (policy.Partitions, error) {
	if len(g.Routers()) > 0 {
		return s.MergeRouted(own)
	}
	return s.Merge(own)
}

// qosWith is quality of service with a template; an operator's own levels and rules for paths stay.
func qosWith(q sm.QoS, template string) (sm.QoS, error) {
	if template == "" {
		return q, nil
	}
	t, ok := policy.TemplateByName(template)
	if !ok {
		return q, fmt.Errorf("manager: no QoS template %q: want one of %s", template, policy.TemplateNames())
	}
	q.Enabled, q.Ports = true, sm.QoSPortsOf(t.PortQoS())
	return q, nil
}

// Reserved names the operator's partition that has a key.
func (e *Enforcer) Reserved(key ib.PKey) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return tenant.Reserved(e.parts, key)
}

// SetOwn replaces what the operator's own files say. It takes force with the next call of Enforce, which tenant.Book's
// Refresh makes; undo takes it back.
func (e *Enforcer) SetOwn(parts policy.Partitions, pol *policy.QoSPolicy) (undo func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was, wasQoS := e.parts, e.qos
	e.parts, e.qos.Policy = parts, pol
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.parts, e.qos = was, wasQoS
	}
}

// scene is what a manager knew when it said that something is in force.
type scene struct {
	k        Keeper
	state    mad.SMState
	sub      *subnet.Subnet
	before   *subnet.Subnet // what it knew before it was told anything
	self     ib.GUID
	side     sm.Enforcement
	refusals []sm.Refusal
	keys     *subnet.Keys
}

// Enforce makes the fabric be as want says and proves it. See tenant.Fabric.
func (e *Enforcer) Enforce(ctx context.Context, was, want tenant.State) error {
	if len(e.ks) == 0 {
		return fmt.Errorf("manager: no subnet manager of softib's runs here: %w", tenant.ErrUnmanaged)
	}
	e.mu.Lock()
	own, ownQoS := e.parts, e.qos
	e.mu.Unlock()
	parts, err := merge(want, own, e.g)
	if err != nil {
		return err
	}
	qos, err := qosWith(ownQoS, want.Template)
	if err != nil {
		return err
	}
	e.own.Do(func() {
		for _, k := range e.ks {
			_ = k.Do(func(m *sm.Manager) { e.guard.Trust(e.port[m.Port()]) }) // what is wrong order says
		}
	})
	if err := e.rules(); err != nil {
		return err
	}
	// Switches stand guard before anybody is told to be apart, and until everybody has been told not to be any more.
	if e.guard.wants(&want) {
		e.guard.Watch(e.f, want)
	}
	scenes := make([]scene, len(e.ks))
	for i, k := range e.ks {
		scenes[i], err = e.order(ctx, k, parts, qos, &want)
		if i > 0 && errors.Is(err, tenant.ErrUnmanaged) {
			return fmt.Errorf("subnet %d: %v", i+1, err) // others have been told, so it is to be taken back
		}
		if err != nil {
			return err
		}
	}
	if !e.guard.wants(&want) {
		e.guard.Watch(e.f, want)
	}
	c := concernOf(&was, &want)
	var list []tenant.Refusal
	for i := range scenes {
		list = append(list, e.refusals(scenes[i], c)...)
	}
	if len(list) > 0 {
		return &tenant.RefusedError{Refusals: list}
	}
	// Nothing that is sent from now on goes a way that was open before.
	e.f.RenewWays()
	for i := range scenes {
		wrong, err := e.verify(ctx, scenes[i], c, &want, was.Template != want.Template)
		if err != nil {
			return err
		}
		list = append(list, wrong...)
	}
	far := tenant.ProgressOf(ctx)
	for i := 0; i < len(scenes) && len(list) == 0; i++ {
		list = e.prove(scenes[i], c, &want, far)
	}
	if len(list) == 0 && len(scenes) > 1 {
		list = e.proveAcross(scenes, c, &want, far)
	}
	if len(list) > 0 {
		return &tenant.RefusedError{Refusals: list}
	}
	return nil
}

// rules is an ErrUnmanaged if not all managers are masters: then nobody is to be told anything.
func (e *Enforcer) rules() error {
	for i, k := range e.ks {
		state := mad.SMNotActive
		if err := k.Do(func(m *sm.Manager) { state = m.State() }); err != nil {
			return fmt.Errorf("manager: %w", err)
		}
		if state != mad.SMMaster && len(e.ks) > 1 { // one alone is waited for and asked by order
			return fmt.Errorf("manager: softib's subnet manager of subnet %d is %v: %w", i+1, state,
				tenant.ErrUnmanaged)
		}
	}
	return nil
}

// verify asks the nodes of a subnet for what they hold, and says what is wrong with it.
func (e *Enforcer) verify(ctx context.Context, sc scene, c concern, want *tenant.State,
	lanes bool) ([]tenant.Refusal, error) {
	list, err := e.readBack(ctx, sc, c, want)
	if err == nil && len(list) > 0 {
		// Somebody else may have written there since the manager did, which it believes in until it reads anew.
		if err = resweep(ctx, sc.k); err == nil {
			list, err = e.readBack(ctx, sc, c, want)
		}
	}
	if err != nil {
		return nil, err
	}
	wrong, err := e.lanesBack(ctx, sc, lanes)
	return append(list, wrong...), err
}

// order tells a manager and waits until it has told everybody. It tells and begins to wait in one turn, and sees who
// refused in the turn in which the sweep ends: another sweep may begin at once, put that right, and know nothing of it.
func (e *Enforcer) order(ctx context.Context, k Keeper, parts policy.Partitions, qos sm.QoS,
	want *tenant.State) (scene, error) {
	var sc scene
	var ticket uint64
	var before *subnet.Subnet
	var refused error
	told := false
	far := tenant.ProgressOf(ctx)
	far.At("waiting for the subnet manager", 0, 0)
	err := k.Await(ctx, func(m *sm.Manager) bool {
		sc = scene{k: k, state: m.State(), sub: m.Subnet(), before: before, self: m.Port(),
			side: m.Config().Enforce}
		if sc.sub == nil && sc.state == mad.SMMaster {
			sc.state = mad.SMDiscovering
		}
		switch {
		case sc.state != mad.SMMaster:
			return true
		case !told:
			told, before, sc.before = true, sc.sub, sc.sub
			if ticket, refused = e.tell(m, parts, qos, want); refused != nil {
				return true
			}
		}
		if m.Force().Ticket < ticket {
			sweepAt(far, m)
			return false
		}
		sc.refusals, sc.keys = m.Force().Refusals, m.Keys()
		return true
	})
	switch {
	case err != nil:
		return scene{}, fmt.Errorf("manager: %w", err)
	case refused != nil:
		return scene{}, fmt.Errorf("manager: %w", refused)
	case sc.state != mad.SMMaster && told:
		return scene{}, fmt.Errorf("manager: another subnet manager has become master: %w", tenant.ErrUnmanaged)
	case sc.state != mad.SMMaster:
		return scene{}, fmt.Errorf("manager: softib's subnet manager is %v: %w", sc.state, tenant.ErrUnmanaged)
	}
	return sc, nil
}

// sweepAt says how far the manager's sweep is.
func sweepAt(far *tenant.Progress, m *sm.Manager) {
	phase, done, total := m.Progress()
	far.At("the subnet manager's sweep: "+phase, done, total)
}

// tell gives the manager what differs from what it has, and returns the ticket of the last of it.
func (e *Enforcer) tell(m *sm.Manager, parts policy.Partitions, qos sm.QoS,
	want *tenant.State) (ticket uint64, err error) {
	ticket = max(m.Force().Ticket, e.guard.Tell(m, want))
	now := m.Config()
	if !reflect.DeepEqual(now.QoS, qos) {
		if ticket, err = m.SetQoS(0, qos); err != nil {
			return 0, err
		}
	}
	if !reflect.DeepEqual(now.Partitions, parts) {
		ticket = m.SetPartitions(0, parts)
	}
	return ticket, nil
}

// resweep has a manager look at everything, and waits until it has put right what it found.
func resweep(ctx context.Context, k Keeper) error {
	swept := 0
	if err := k.Do(func(m *sm.Manager) {
		swept = m.Sweeps()
		m.Sweep(0, "what nodes hold is not what they were told")
	}); err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	far := tenant.ProgressOf(ctx)
	if err := k.Await(ctx, func(m *sm.Manager) bool {
		sweepAt(far, m)
		return m.Sweeps() > swept || m.State() != mad.SMMaster
	}); err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	return nil
}

// concern is whom a change is about.
type concern struct {
	// ports are those that come, go or become something else, with the tenants that it is about.
	ports map[ib.GUID][]ib.PKey
	// all means that the change is about every port: the first tenant comes, the last one goes, or lanes change.
	all bool
}

func concernOf(was, want *tenant.State) concern {
	c := concern{ports: map[ib.GUID][]ib.PKey{}}
	c.all = (len(was.Tenants) == 0) != (len(want.Tenants) == 0) || was.Template != want.Template
	put := func(t *tenant.Tenant, o *tenant.Tenant) {
		for _, m := range t.Members {
			if o != nil && o.Key == t.Key {
				if x, ok := o.Member(m.GUID); ok && x == m {
					continue
				}
			}
			if !slices.Contains(c.ports[m.GUID], t.Key) {
				c.ports[m.GUID] = append(c.ports[m.GUID], t.Key)
			}
		}
	}
	both := func(a, b *tenant.State) {
		for i := range a.Tenants {
			t := &a.Tenants[i]
			if o, ok := b.Get(t.Name); ok {
				put(t, &o)
			} else {
				put(t, nil)
			}
		}
	}
	both(was, want)
	both(want, was)
	if len(c.ports) == 0 && !c.all {
		// Nothing changes: it is about whether all is still so.
		for i := range want.Tenants {
			c.addMembers(want, &want.Tenants[i])
		}
	}
	return c
}

// addMembers makes it about all members of a tenant, and every key that they may have or not.
func (c *concern) addMembers(s *tenant.State, t *tenant.Tenant) {
	keys := make([]ib.PKey, len(s.Tenants))
	for i := range keys {
		keys[i] = s.Tenants[i].Key
	}
	for _, m := range t.Members {
		c.ports[m.GUID] = keys
	}
}

// sorted are the ports in the order of GUIDs.
func (c *concern) sorted() []ib.GUID { return slices.Sorted(maps.Keys(c.ports)) }

// refusals are those of the manager's that are about the change. A node that is broken already and has no part in it
// stops nobody.
func (e *Enforcer) refusals(sc scene, c concern) (list []tenant.Refusal) {
	for _, r := range sc.refusals {
		_, about := c.ports[r.Behind]
		if !about && !c.all {
			continue
		}
		list = append(list, tenant.Refusal{Node: e.nameOf(r.Node, r.Num), Why: r.Why})
	}
	slices.SortFunc(list, func(a, b tenant.Refusal) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.Why, b.Why))
	})
	return slices.Compact(list)
}

// nameOf is a port as people write it.
func (e *Enforcer) nameOf(node ib.GUID, num ib.PortNum) string {
	for i, n := range e.g.Nodes {
		if n.GUID == node {
			return e.g.PortName(topo.PortRef{Node: i, Port: num})
		}
	}
	return fmt.Sprintf("%v[%d]", node, num)
}
