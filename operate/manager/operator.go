package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
)

// What people change, in the words that they use, whichever way they come: by the command, by the page or by UFM's
// REST. Errors match ErrUnknown, ErrFault, ErrNoTenants, or those of package tenant; whoever asked adds what to do
// next.

// ErrNoTenants is matched where there can be no tenants.
var ErrNoTenants = errors.New("this fabric has no tenants: its subnet manager is not softib's")

// TenantSpec is a tenant as people ask for one.
type TenantSpec struct {
	Name string
	// Hosts are names, ranges and GUIDs, as Enforcer.Ports takes them.
	Hosts []string
	// Key is the partition's; empty for one that is free.
	Key string
	// SL is the service level of its paths, or Class stands for one in the QoS template in force.
	SL    *uint8
	Class string
	// RateGbps and MTUBytes are the most that its paths carry; 0 is no limit.
	RateGbps float64
	MTUBytes int
	// Users are those of the machine who may run programs on its hosts, where the fabric is shared.
	Users []uint32
	// Limited makes its hosts limited members, Index0 puts the key first in their tables.
	Limited, Index0, IPoIB bool
}

// ClassError is a class that the template in force does not have. It matches tenant.ErrInvalid.
type ClassError struct {
	Class    string
	Template *policy.Template // nil if none is in force
}

func (e *ClassError) Error() string {
	if e.Template == nil {
		return fmt.Sprintf("class %s: no QoS template is in force", e.Class)
	}
	return fmt.Sprintf("class %s: template %s has %s", e.Class, e.Template.Name, e.Template.ClassNames())
}

// Is matches tenant.ErrInvalid.
func (e *ClassError) Is(target error) bool { return target == tenant.ErrInvalid }

// QoS is what the tenant's traffic gets; t is the template in force, nil if there is none.
func (s *TenantSpec) QoS(t *policy.Template) (q tenant.QoS, err error) {
	if s.SL != nil {
		if *s.SL >= ib.NumSL {
			return q, &tenant.InvalidError{Field: "SL", Value: fmt.Sprint(*s.SL), Want: "0 to 15"}
		}
		q.SL, q.HasSL = ib.SL(*s.SL), true
	}
	if s.Class != "" {
		if t == nil {
			return q, &ClassError{s.Class, nil}
		}
		c, ok := t.Class(s.Class)
		if !ok {
			return q, &ClassError{s.Class, t}
		}
		q.SL, q.HasSL = c.SL, true
	}
	if s.RateGbps != 0 {
		var ok bool
		if q.Rate, ok = mad.RateFromGbps(s.RateGbps); !ok {
			return q, &tenant.InvalidError{Field: "rate", Value: fmt.Sprintf("%g Gb/s", s.RateGbps),
				Want: "a rate of the standard: " + tenant.Rates}
		}
	}
	if s.MTUBytes != 0 {
		var ok bool
		if q.MTU, ok = ib.MTUFromBytes(s.MTUBytes); !ok {
			return q, &tenant.InvalidError{Field: "MTU", Value: strconv.Itoa(s.MTUBytes),
				Want: "256, 512, 1024, 2048 or 4096 bytes"}
		}
	}
	return q, nil
}

// book is where tenants are, if there can be any.
func (m *Manager) book() (*tenant.Book, error) {
	if m.opts.Tenants == nil || m.opts.Enforcer == nil {
		return nil, ErrNoTenants
	}
	return m.opts.Tenants, nil
}

// Template is the QoS template in force; nil if there is none.
func (m *Manager) Template() *policy.Template {
	if b := m.opts.Tenants; b != nil {
		if t, ok := policy.TemplateByName(b.Template()); ok {
			return &t
		}
	}
	return nil
}

// UseTemplate puts a QoS template in force, or none with an empty name.
func (m *Manager) UseTemplate(ctx context.Context, name string) error {
	b, err := m.book()
	if err != nil {
		return err
	}
	if _, ok := policy.TemplateByName(name); name != "" && !ok {
		return &tenant.InvalidError{Field: "QoS template", Value: strconv.Quote(name),
			Want: "one of " + policy.TemplateNames()}
	}
	return b.UseTemplate(ctx, name)
}

// CreateTenant makes a tenant and returns it as it is in force.
func (m *Manager) CreateTenant(ctx context.Context, s TenantSpec) (t tenant.Tenant, err error) {
	b, err := m.book()
	if err != nil {
		return t, err
	}
	t.Name, t.IPoIB, t.Users = s.Name, s.IPoIB, s.Users
	if t.QoS, err = s.QoS(m.Template()); err != nil {
		return t, err
	}
	if s.Key != "" {
		if t.Key, err = tenant.ParseKey(s.Key); err != nil {
			return t, err
		}
	}
	guids, err := m.opts.Enforcer.Ports(s.Hosts...)
	if err != nil {
		return t, err
	}
	for _, g := range guids {
		t.Members = append(t.Members, tenant.Member{GUID: g, Full: !s.Limited, Index0: s.Index0})
	}
	return b.Create(ctx, t)
}

// HostChange is hosts that a tenant gets and hosts that it loses, as Enforcer.Ports takes them.
type HostChange struct {
	Add, Remove []string
	// Limited and Index0 are those of TenantSpec, for hosts that come.
	Limited, Index0 bool
}

// EditHosts changes a tenant's hosts, all at once: whoever moves a host sees it moved or not at all. Of a host that
// goes only the ports that are members do; one that has none is a *tenant.NotMemberError.
func (m *Manager) EditHosts(ctx context.Context, name string, c HostChange) (tenant.Tenant, error) {
	b, err := m.book()
	if err != nil {
		return tenant.Tenant{}, err
	}
	add, err := m.opts.Enforcer.Ports(c.Add...)
	if err != nil {
		return tenant.Tenant{}, err
	}
	var remove [][]ib.GUID // by word
	for _, w := range c.Remove {
		guids, err := m.opts.Enforcer.Ports(w)
		if err != nil {
			return tenant.Tenant{}, err
		}
		remove = append(remove, guids)
	}
	return b.Edit(ctx, name, func(t *tenant.Tenant) error {
		for _, guids := range remove {
			members := slices.DeleteFunc(slices.Clone(guids), func(g ib.GUID) bool { _, in := t.Member(g); return !in })
			if len(guids) > 0 && len(members) == 0 {
				return &tenant.NotMemberError{GUID: guids[0], Tenant: name}
			}
			t.Drop(members...)
		}
		for _, g := range add {
			t.Put(tenant.Member{GUID: g, Full: !c.Limited, Index0: c.Index0})
		}
		return nil
	})
}

// SetUsers says who may run programs on a tenant's hosts where the fabric is shared.
func (m *Manager) SetUsers(ctx context.Context, name string, users []uint32) (tenant.Tenant, error) {
	b, err := m.book()
	if err != nil {
		return tenant.Tenant{}, err
	}
	return b.Edit(ctx, name, func(t *tenant.Tenant) error {
		t.Users = slices.Clone(users)
		return nil
	})
}

// DeleteTenant ends a tenant.
func (m *Manager) DeleteTenant(ctx context.Context, name string) error {
	b, err := m.book()
	if err != nil {
		return err
	}
	return b.Delete(ctx, name)
}

// LinkOf finds a cable by what people call it: one port or two ends; see Link.
func (m *Manager) LinkOf(ends ...string) (topo.PortRef, error) {
	switch len(ends) {
	case 1:
		return m.Link(ends[0], "")
	case 2:
		return m.Link(ends[0], ends[1])
	}
	return topo.PortRef{}, fmt.Errorf("%d ends of a link: want one or two: %w", len(ends), ErrUnknown)
}

// LiftFaults makes one cable good again or, where none is named, all of them, and likewise nodes that answer with
// others' GUIDs. Who is named in the journal.
func (m *Manager) LiftFaults(who string, ends ...string) error {
	lifted := false
	for _, f := range m.falseGUIDs() {
		if n, err := m.Node(strings.Join(ends, " ")); len(ends) == 0 || err == nil && n.Index == f.Port.Node {
			if err := m.SetNodeGUID(f.Link, "", who); err != nil {
				return err
			}
			lifted = true
		}
	}
	if len(ends) > 0 {
		ref, err := m.LinkOf(ends...)
		if err != nil {
			if lifted {
				return nil // it was the node that was meant
			}
			return err
		}
		return m.SetFault(ref, FaultSpec{}, who)
	}
	for _, f := range m.Faults() {
		if err := m.SetFault(f.Port, FaultSpec{}, who); err != nil {
			return err
		}
	}
	return nil
}
