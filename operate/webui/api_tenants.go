package webui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"softib/internal/patience"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
)

// changeLimit is how long a change of tenants may wait for others to be made before it, on an idle machine.
const changeLimit = 2 * time.Minute

// tenantShown is a tenant with its hosts by name.
type tenantShown struct {
	Name  string   `json:"name"`
	Key   string   `json:"key"`
	Hosts []string `json:"hosts"`
	// Limited are those of the hosts that are limited members, Elsewhere GUIDs that are not in the fabric.
	Limited   []string `json:"limited"`
	Elsewhere []string `json:"elsewhere"`
	IPoIB     bool     `json:"ipoib"`
	SL        *uint8   `json:"sl,omitempty"`
	Rate      string   `json:"rate,omitempty"`
	MTU       string   `json:"mtu,omitempty"`
}

type tenantList struct {
	Tenants []tenantShown `json:"tenants"`
	// Problem says why there can be none, or why they are not in force.
	Problem string `json:"problem,omitempty"`
}

func (s *Server) tenants(*http.Request) (any, error) {
	list := tenantList{Tenants: []tenantShown{}}
	b := s.m.Tenants()
	if b == nil {
		list.Problem = manager.ErrNoTenants.Error()
		return list, nil
	}
	if err := b.Aside(); err != nil {
		list.Problem = err.Error()
	}
	for _, t := range b.List() {
		list.Tenants = append(list.Tenants, s.showTenant(&t))
	}
	return list, nil
}

func (s *Server) showTenant(t *tenant.Tenant) tenantShown {
	show := tenantShown{Name: t.Name, Key: fmt.Sprintf("0x%04x", uint16(t.Key)), Hosts: []string{}, Limited: []string{},
		Elsewhere: []string{}, IPoIB: t.IPoIB}
	if t.HasSL {
		sl := uint8(t.SL)
		show.SL = &sl
	}
	if t.Rate != 0 {
		show.Rate = t.Rate.String()
	}
	if t.MTU != 0 {
		show.MTU = t.MTU.String()
	}
	for _, m := range t.Members {
		ref, ok := s.m.Graph().ByPortGUID(m.GUID)
		if !ok {
			show.Elsewhere = append(show.Elsewhere, "0x"+guidText(m.GUID))
			continue
		}
		name := s.m.Graph().Nodes[ref.Node].Name
		if !slices.Contains(show.Hosts, name) {
			show.Hosts = append(show.Hosts, name)
			if !m.Full {
				show.Limited = append(show.Limited, name)
			}
		}
	}
	slices.SortFunc(show.Hosts, naturalCompare)
	return show
}

// hostWords takes hosts as people list them apart: names, ranges such as h1-h8, or GUIDs.
func hostWords(list []string) (words []string) {
	for _, w := range list {
		words = append(words, strings.Fields(w)...)
	}
	return words
}

func (s *Server) createTenant(r *http.Request) (any, error) {
	var body struct {
		Name    string   `json:"name"`
		Hosts   []string `json:"hosts"`
		Key     string   `json:"key"`
		Limited bool     `json:"limited"`
		IPoIB   bool     `json:"ipoib"`
		SL      *uint8   `json:"sl"`
		Gbps    float64  `json:"gbps"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	ctx, cancel := patience.Context(r.Context(), changeLimit)
	defer cancel()
	t, err := s.m.CreateTenant(ctx, manager.TenantSpec{Name: body.Name, Hosts: hostWords(body.Hosts), Key: body.Key,
		SL: body.SL, RateGbps: body.Gbps, Limited: body.Limited, Index0: true, IPoIB: body.IPoIB})
	if err != nil {
		return nil, tenantError(err, "hosts")
	}
	return s.showTenant(&t), nil
}

func (s *Server) editTenant(r *http.Request) (any, error) {
	var body struct {
		Add     []string `json:"add"`
		Remove  []string `json:"remove"`
		Limited bool     `json:"limited"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	c := manager.HostChange{Add: hostWords(body.Add), Remove: hostWords(body.Remove), Limited: body.Limited,
		Index0: true}
	if len(c.Add)+len(c.Remove) == 0 {
		return nil, badField("add", `such as {"add":["h1"]}`, "neither hosts to add nor hosts to remove")
	}
	ctx, cancel := patience.Context(r.Context(), changeLimit)
	defer cancel()
	t, err := s.m.EditHosts(ctx, r.PathValue("name"), c)
	if err != nil {
		field := "add"
		if len(c.Add) == 0 {
			field = "remove"
		}
		return nil, tenantError(err, field)
	}
	return s.showTenant(&t), nil
}

func (s *Server) deleteTenant(r *http.Request) (any, error) {
	ctx, cancel := patience.Context(r.Context(), changeLimit)
	defer cancel()
	if err := s.m.DeleteTenant(ctx, r.PathValue("name")); err != nil {
		return nil, tenantError(err, "name")
	}
	return s.tenants(r)
}

// tenantErrors is what each kind of refusal is answered with.
var tenantErrors = []struct {
	err         error
	status      int
	field, next string
}{
	{manager.ErrNoTenants, http.StatusConflict, "", "start the fabric without --no-sm"},
	{tenant.ErrNotFound, http.StatusNotFound, "name", "GET /api/v1/tenants lists them"},
	{tenant.ErrExists, http.StatusConflict, "name", "choose another name or key"},
	{tenant.ErrReserved, http.StatusConflict, "key", "choose another key, or leave it out"},
	{tenant.ErrUnmanaged, http.StatusConflict, "", "make softib's subnet manager the master"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "",
		"nothing has changed; try again when the machine has less to do"},
	{tenant.ErrRefused, http.StatusBadGateway, "", "nothing has changed; look at the nodes that are named"},
	{tenant.ErrStore, http.StatusServiceUnavailable, "", "nothing has changed; is the disk full?"},
}

// tenantFields are what requests call the fields of a *tenant.InvalidError, where they have other names, and what may
// be in them.
var tenantFields = map[string]struct{ name, next string }{
	"SL":   {"sl", "0 to 15, or leave it out"},
	"rate": {"gbps", "one of the standard's: 10, 25, 50, 100, 200, 400 …, or leave it out"},
	"pkey": {"key", "such as 0x11, or leave it out"},
}

// tenantError is an error of a change; hosts is the field that has the hosts.
func tenantError(err error, hosts string) error {
	if e, ok := errors.AsType[*tenant.NotMemberError](err); ok {
		return badField("remove", "the tenant's hosts are listed in the page", "0x%s is no member of %s",
			guidText(e.GUID), e.Tenant)
	}
	if e, ok := errors.AsType[*tenant.InvalidError](err); ok {
		f, known := tenantFields[e.Field]
		switch {
		case known:
			return badField(f.name, f.next, "%v", err)
		case e.Field == "host":
			return badField(hosts, "name hosts: h1, h2 or h1-h8", "%s: want %s", e.Value, e.Want)
		}
		return badField(e.Field, "want "+e.Want, "%v", err)
	}
	for _, k := range tenantErrors {
		if errors.Is(err, k.err) {
			return &apiError{Status: k.status, Field: k.field, Text: err.Error(), Next: k.next}
		}
	}
	return err
}
