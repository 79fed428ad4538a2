package webui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
)

// changeLimit is how long a change of tenants may take before it is given up, and undone.
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
		list.Problem = "this fabric has no tenants: its subnet manager is not softib's"
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

// book is where tenants are, if there can be any.
func (s *Server) book() (*tenant.Book, error) {
	if b := s.m.Tenants(); b != nil {
		return b, nil
	}
	return nil, &apiError{Status: http.StatusConflict,
		Text: "this fabric has no tenants: its subnet manager is not softib's",
		Next: "start the fabric without --no-sm"}
}

// hostGUIDs reads hosts as people list them, and as softib tenant does: names, ranges such as h1-h8, or GUIDs; each is
// all of a host's ports.
func (s *Server) hostGUIDs(field string, words []string) ([]ib.GUID, error) {
	var list []string
	for _, w := range words {
		list = append(list, strings.Fields(w)...)
	}
	guids, err := s.m.Enforcer().Ports(list...)
	if x, ok := errors.AsType[*tenant.InvalidError](err); ok {
		return nil, badField(field, "name hosts: h1, h2 or h1-h8", "%s: want %s", x.Value, x.Want)
	}
	if err != nil {
		return nil, badField(field, "name hosts: h1, h2 or h1-h8", "%v", err)
	}
	return guids, nil
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
	b, err := s.book()
	if err != nil {
		return nil, err
	}
	t := tenant.Tenant{Name: body.Name, IPoIB: body.IPoIB}
	if body.SL != nil {
		if *body.SL >= ib.NumSL {
			return nil, badField("sl", "0 to 15, or leave it out", "there is no service level %d", *body.SL)
		}
		t.SL, t.HasSL = ib.SL(*body.SL), true
	}
	if body.Gbps != 0 {
		var ok bool
		if t.Rate, ok = mad.RateFromGbps(body.Gbps); !ok {
			return nil, badField("gbps", "one of the standard's: 10, 25, 50, 100, 200, 400 …, or leave it out",
				"there is no rate of %g Gb/s", body.Gbps)
		}
	}
	if body.Key != "" {
		if t.Key, err = tenant.ParseKey(body.Key); err != nil {
			return nil, badField("key", "such as 0x11, or leave it out", "%v", err)
		}
	}
	guids, err := s.hostGUIDs("hosts", body.Hosts)
	if err != nil {
		return nil, err
	}
	for _, g := range guids {
		t.Members = append(t.Members, tenant.Member{GUID: g, Full: !body.Limited, Index0: true})
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeLimit)
	defer cancel()
	made, err := b.Create(ctx, t)
	if err != nil {
		return nil, tenantError(err)
	}
	return s.showTenant(&made), nil
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
	b, err := s.book()
	if err != nil {
		return nil, err
	}
	add, err := s.hostGUIDs("add", body.Add)
	if err != nil {
		return nil, err
	}
	remove, err := s.removals(r.PathValue("name"), body.Remove)
	if err != nil {
		return nil, err
	}
	if len(add)+len(remove) == 0 {
		return nil, badField("add", `such as {"add":["h1"]}`, "neither hosts to add nor hosts to remove")
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeLimit)
	defer cancel()
	// One change: whoever moves a host sees it moved or not at all.
	t, err := b.Edit(ctx, r.PathValue("name"), func(t *tenant.Tenant) error {
		if strangers := t.Drop(remove...); len(strangers) > 0 {
			return badField("remove", "the tenant's hosts are listed in the page", "0x%s is no member of %s",
				guidText(strangers[0]), t.Name)
		}
		for _, g := range add {
			t.Put(tenant.Member{GUID: g, Full: !body.Limited, Index0: true})
		}
		return nil
	})
	if err != nil {
		return nil, tenantError(err)
	}
	return s.showTenant(&t), nil
}

// removals reads hosts to take out: a GUID may be one that is not in the fabric, and of a host only the ports that are
// members.
func (s *Server) removals(name string, words []string) ([]ib.GUID, error) {
	var list []ib.GUID
	b, err := s.book()
	if err != nil {
		return nil, err
	}
	t, _ := b.Get(name)
	for _, w := range words {
		if v, err := strconv.ParseUint(strings.TrimPrefix(w, "0x"), 16, 64); err == nil &&
			len(strings.TrimPrefix(w, "0x")) == 16 {
			list = append(list, ib.GUID(v))
			continue
		}
		guids, err := s.hostGUIDs("remove", []string{w})
		if err != nil {
			return nil, err
		}
		members := slices.DeleteFunc(slices.Clone(guids), func(g ib.GUID) bool { _, ok := t.Member(g); return !ok })
		if len(members) == 0 {
			members = guids // so that the refusal names one
		}
		list = append(list, members...)
	}
	return list, nil
}

func (s *Server) deleteTenant(r *http.Request) (any, error) {
	b, err := s.book()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeLimit)
	defer cancel()
	if err := b.Delete(ctx, r.PathValue("name")); err != nil {
		return nil, tenantError(err)
	}
	return s.tenants(r)
}

// tenantErrors is what each kind of refusal is answered with.
var tenantErrors = []struct {
	err         error
	status      int
	field, next string
}{
	{tenant.ErrNotFound, http.StatusNotFound, "name", "GET /api/v1/tenants lists them"},
	{tenant.ErrExists, http.StatusConflict, "name", "choose another name or key"},
	{tenant.ErrReserved, http.StatusConflict, "key", "choose another key, or leave it out"},
	{tenant.ErrUnmanaged, http.StatusConflict, "", "make softib's subnet manager the master"},
	{tenant.ErrRefused, http.StatusBadGateway, "", "nothing has changed; look at the nodes that are named"},
	{tenant.ErrStore, http.StatusServiceUnavailable, "", "nothing has changed; is the disk full?"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "", "nothing has changed; try again"},
}

func tenantError(err error) error {
	if _, ok := errors.AsType[*apiError](err); ok {
		return err
	}
	if e, ok := errors.AsType[*tenant.InvalidError](err); ok {
		return badField(e.Field, "want "+e.Want, "%v", err)
	}
	for _, k := range tenantErrors {
		if errors.Is(err, k.err) {
			return &apiError{Status: k.status, Field: k.field, Text: err.Error(), Next: k.next}
		}
	}
	return err
}
