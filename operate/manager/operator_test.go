package manager_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/subnet/sm"
)

// TestOperator: tenants and faults are changed in the words that people use, and what cannot be can be told apart.
func TestOperator(t *testing.T) {
	x := newGround(t, "star:6", sm.Config{SweepInterval: -1}, memory(t))
	m, err := manager.New(manager.Options{Fabric: x.f, Subnet: x.run, Tenants: x.book, Enforcer: x.e,
		Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx := t.Context()
	names := func(t tenant.Tenant) (list []string) {
		for _, y := range t.Members {
			list = append(list, x.e.NameOf(y.GUID))
		}
		slices.Sort(list)
		return list
	}

	var class *manager.ClassError
	_, err = m.CreateTenant(ctx, manager.TenantSpec{Name: "red", Class: "storage"})
	if !errors.As(err, &class) || class.Template != nil || !errors.Is(err, tenant.ErrInvalid) {
		t.Errorf("a class without a template: %v", err)
	}
	if err := m.UseTemplate(ctx, "none such"); !errors.Is(err, tenant.ErrInvalid) {
		t.Errorf("a template that there is not: %v", err)
	}
	for _, bad := range []manager.TenantSpec{
		{Name: "red", SL: new(uint8(16))}, {Name: "red", RateGbps: 33}, {Name: "red", MTUBytes: 1500},
		{Name: "red", Key: "many"}, {Name: "red", Hosts: []string{"h99"}}, {Name: "a b/c"},
	} {
		if _, err := m.CreateTenant(ctx, bad); !errors.Is(err, tenant.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	red, err := m.CreateTenant(ctx, manager.TenantSpec{Name: "red", Hosts: []string{"h2-h4"}, Key: "0x11"})
	if err != nil || red.Key != 0x11 || !slices.Equal(names(red), []string{"h2", "h3", "h4"}) {
		t.Fatalf("%+v, %v", red, err)
	}
	// Nothing of a change happens if a part of it cannot.
	var stranger *tenant.NotMemberError
	_, err = m.EditHosts(ctx, "red", manager.HostChange{Add: []string{"h5"}, Remove: []string{"h2", "h6"}})
	if !errors.As(err, &stranger) || stranger.GUID != x.guid(5) || !errors.Is(err, tenant.ErrNotFound) {
		t.Errorf("taking away h6, which it has not: %v", err)
	}
	if got, _ := x.book.Get("red"); !slices.Equal(names(got), []string{"h2", "h3", "h4"}) {
		t.Errorf("after that it has %v", names(got))
	}
	red, err = m.EditHosts(ctx, "red", manager.HostChange{Add: []string{"h5"}, Remove: []string{"h2,h3"}})
	if err != nil || !slices.Equal(names(red), []string{"h4", "h5"}) {
		t.Errorf("%v, %v", names(red), err)
	}
	if err := m.DeleteTenant(ctx, "blue"); !errors.Is(err, tenant.ErrNotFound) {
		t.Errorf("the end of one that there is not: %v", err)
	}
	if err := m.DeleteTenant(ctx, "red"); err != nil {
		t.Error(err)
	}

	for _, link := range [][]string{{"h1"}, {"h2", x.f.Graph().Switches()[0].Name}} {
		ref, err := m.LinkOf(link...)
		if err == nil {
			err = m.SetFault(ref, manager.FaultSpec{Drop: 0.1}, "test")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range [][]string{{"h9"}, {"h1", "h2"}, {"a", "b", "c"}} {
		if err := m.LiftFaults("test", link...); !errors.Is(err, manager.ErrUnknown) {
			t.Errorf("lifting the fault of %v: %v", link, err)
		}
	}
	if err := m.LiftFaults("test", "h1"); err != nil || len(m.Faults()) != 1 {
		t.Errorf("%+v are left, %v", m.Faults(), err)
	}
	if err := m.LiftFaults("test"); err != nil || len(m.Faults()) != 0 {
		t.Errorf("%+v are left of all, %v", m.Faults(), err)
	}
}
