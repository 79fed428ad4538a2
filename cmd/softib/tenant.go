package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"softib/internal/rundir"
	"softib/operate/control"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/subnet/policy"
)

func newTenant() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Give groups of hosts a fabric of their own",
		Long: `A tenant is a name, its hosts, its partition, and what its traffic gets. Its hosts
talk to each other and to no other tenant's. A change is in force in every adapter and
switch, proved with packets and written to disk when the command returns; if any
node refuses, nothing has changed.

Hosts of a tenant are limited members of the default partition: they reach the subnet
manager's host in it, and hosts that are full members of it, which those in no tenant are
unless partitions.conf says otherwise.`,
		Example: `  softib tenant create red --hosts h1-h8
  softib tenant create blue --hosts h9,h10 --class storage --rate 100
  softib tenant add red h11 h12
  softib tenant list`,
	}
	return family(cmd, newTenantCreate(), newTenantAdd(), newTenantRemove(), newTenantUsers(), newTenantDelete(),
		newTenantList(), newTenantShow())
}

// What a client wants of the tenants.
const (
	tenantCreate = "create"
	tenantAdd    = "add"
	tenantRemove = "remove"
	tenantUsers  = "users"
	tenantDelete = "delete"
	tenantList   = "list"
	tenantShow   = "show"
)

// tenantRequest changes tenants or asks for them.
type tenantRequest struct {
	Do   string `json:"do"`
	Name string `json:"name,omitempty"`
	// Hosts are names, ranges and GUIDs.
	Hosts   []string `json:"hosts,omitempty"`
	PKey    string   `json:"pkey,omitempty"`
	SL      *uint8   `json:"sl,omitempty"`
	Class   string   `json:"class,omitempty"` // of the QoS template in force, in place of SL
	Rate    float64  `json:"rate_gbps,omitempty"`
	MTU     int      `json:"mtu_bytes,omitempty"`
	Limited bool     `json:"limited,omitempty"`
	Index0  bool     `json:"index0,omitempty"`
	IPoIB   bool     `json:"ipoib,omitempty"`
	Users   []uint32 `json:"users,omitempty"`
}

// tenantShown is a tenant as commands print it.
type tenantShown struct {
	Name    string        `json:"name"`
	PKey    string        `json:"pkey"`
	Members []memberShown `json:"members"`
	IPoIB   bool          `json:"ipoib"`
	Users   []string      `json:"users,omitempty"`
	SL      *uint8        `json:"sl,omitempty"`
	Class   string        `json:"class,omitempty"`
	Rate    float64       `json:"rate_gbps,omitempty"`
	MTU     int           `json:"mtu_bytes,omitempty"`
	// First: there was no other when it was made.
	First bool `json:"first,omitempty"`
	// NotInForce is what nodes hold that is not what was acknowledged.
	NotInForce []string `json:"not_in_force,omitempty"`
}

type memberShown struct {
	// Host is empty for a port that the fabric does not have.
	Host       string     `json:"host,omitempty"`
	Port       ib.PortNum `json:"port,omitempty"`
	GUID       string     `json:"guid"`
	Membership string     `json:"membership"`
	Index0     bool       `json:"index0,omitempty"`
}

// tenantCommand makes a subcommand that sends one request.
func tenantCommand(cmd *cobra.Command, r *tenantRequest, print func(io.Writer, []tenantShown) error) *cobra.Command {
	var name string
	var asJSON bool
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	do := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := do(cmd, args); err != nil {
			return err
		}
		p, err := newPlace(name)
		if err != nil {
			return err
		}
		list := []tenantShown{}
		err = askFabric(cmd.Context(), p, opTenant, *r, func(some []tenantShown) error {
			list = append(list, some...)
			return nil
		})
		switch {
		case err != nil:
			return err
		case asJSON && r.Do == tenantList:
			return printJSON(cmd.OutOrStdout(), list)
		case asJSON && len(list) == 1:
			return printJSON(cmd.OutOrStdout(), list[0])
		case asJSON:
			return printJSON(cmd.OutOrStdout(), struct{}{})
		}
		return print(cmd.OutOrStdout(), list)
	}
	return cmd
}

func newTenantCreate() *cobra.Command {
	r := tenantRequest{Do: tenantCreate}
	var sl int
	var users []string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a tenant",
		Long: `Makes a tenant. Without --pkey it gets a partition key that is free. Its hosts are full
members, which talk to all members; limited ones talk to full ones only.`,
		Example: `  softib tenant create red --hosts h1-h8
  softib tenant create blue --hosts h9,h10 --pkey 0x11 --ipoib
  softib tenant create disks --hosts h11-h14 --class storage --rate 100`,
		Args: arguments(1, 1, "a NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Name = args[0]
			if cmd.Flags().Changed("sl") {
				if sl < 0 || sl > 15 {
					return usage(cmd, fmt.Errorf("--sl %d: want 0 to 15", sl))
				}
				v := uint8(sl)
				r.SL = &v
			}
			if r.SL != nil && r.Class != "" {
				return usage(cmd, errors.New("--sl and --class say the same thing: want one of them"))
			}
			var err error
			if r.Users, err = userIDs(users); err != nil {
				return usage(cmd, fmt.Errorf("--users: %w", err))
			}
			return checkTenant(cmd, &r)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.Hosts, "hosts", nil, "its `HOSTS`: names, ranges such as h1-h8, port GUIDs")
	f.StringVar(&r.PKey, "pkey", "", "its partition `KEY`, 0x0001 to 0x7ffe (default: one that is free)")
	f.IntVar(&sl, "sl", 0, "service `LEVEL` of its paths, 0 to 15")
	f.StringVar(&r.Class, "class", "", "`CLASS` of the QoS template in force, in place of --sl: "+
		strings.Join(classNames(), ", "))
	f.Float64Var(&r.Rate, "rate", 0, "its paths carry at most so many `GB` (Gb/s): 10, 25, 40, 50, 100, 200, 400, …")
	f.IntVar(&r.MTU, "mtu", 0, "its paths carry at most so many `BYTES` in a packet: 256 to 4096")
	f.BoolVar(&r.Limited, "limited", false, "its hosts are limited members")
	f.BoolVar(&r.Index0, "index0", true,
		"its key is the first in its hosts' tables, which programs use that choose none")
	f.BoolVar(&r.IPoIB, "ipoib", false, "its partition carries IP over InfiniBand")
	f.StringSliceVar(&users, "users", nil, "`USERS` of this machine who may run programs on its hosts, if the fabric "+
		"is shared (softib up --shared)")
	return tenantCommand(cmd, &r, printTenant)
}

// classNames are the classes of all templates.
func classNames() (names []string) {
	t, _ := policy.TemplateByName("classic")
	for _, c := range t.Classes {
		names = append(names, c.Name)
	}
	return names
}

// checkTenant finds mistakes that need no fabric to be seen.
func checkTenant(cmd *cobra.Command, r *tenantRequest) error {
	if err := tenant.CheckName(r.Name); err != nil {
		return usage(cmd, err)
	}
	if r.PKey != "" {
		if _, err := tenant.ParseKey(r.PKey); err != nil {
			return usage(cmd, err)
		}
	}
	if s := r.spec(); r.Class == "" {
		if _, err := s.QoS(nil); err != nil {
			return usage(cmd, err)
		}
	}
	return nil
}

// spec is the tenant that is asked for.
func (r *tenantRequest) spec() manager.TenantSpec {
	return manager.TenantSpec{Name: r.Name, Hosts: r.Hosts, Key: r.PKey, SL: r.SL, Class: r.Class, RateGbps: r.Rate,
		MTUBytes: r.MTU, Limited: r.Limited, Index0: r.Index0, IPoIB: r.IPoIB, Users: r.Users}
}

func newTenantAdd() *cobra.Command {
	r := tenantRequest{Do: tenantAdd}
	cmd := &cobra.Command{
		Use:   "add NAME HOST…",
		Short: "Give a tenant more hosts",
		Long:  "Makes hosts members of a tenant. Those that are members become full or limited ones as asked.",
		Example: `  softib tenant add red h9 h10
  softib tenant add red h12-h16 --limited
  softib tenant add red 0x0002c90300000001    # a port that may come later`,
		Args: arguments(2, 1<<16, "a NAME and hosts"),
		RunE: func(_ *cobra.Command, args []string) error {
			r.Name, r.Hosts = args[0], args[1:]
			return nil
		},
	}
	cmd.Flags().BoolVar(&r.Limited, "limited", false, "as limited members")
	cmd.Flags().BoolVar(&r.Index0, "index0", true, "the key is the first in their tables")
	return tenantCommand(cmd, &r, printTenant)
}

func newTenantRemove() *cobra.Command {
	r := tenantRequest{Do: tenantRemove}
	return tenantCommand(&cobra.Command{
		Use:     "remove NAME HOST…",
		Short:   "Take hosts away from a tenant",
		Example: `  softib tenant remove red h9 h10`,
		Args:    arguments(2, 1<<16, "a NAME and hosts"),
		RunE: func(_ *cobra.Command, args []string) error {
			r.Name, r.Hosts = args[0], args[1:]
			return nil
		},
	}, &r, printTenant)
}

func newTenantUsers() *cobra.Command {
	r := tenantRequest{Do: tenantUsers}
	return tenantCommand(&cobra.Command{
		Use:   "users NAME [USER…]",
		Short: "Say who may run programs on a tenant's hosts",
		Long: `Says which users of this machine may run programs on a tenant's hosts, where the fabric is
shared (softib up --shared GROUP). Who was one and is not named any more loses what its
programs have there at once; without a USER nobody is left but the fabric's owner.

A host that is in several tenants is for users of all of them.`,
		Example: `  softib tenant users red alice bob
  softib tenant users red               # nobody any more`,
		Args: arguments(1, 1<<10, "a NAME, and users"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Name = args[0]
			if r.Users, err = userIDs(args[1:]); err != nil {
				return usage(cmd, err)
			}
			return nil
		},
	}, &r, printTenant)
}

// userIDs finds users of this machine.
func userIDs(names []string) (ids []uint32, err error) {
	for _, name := range names {
		id, err := rundir.UserID(name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func newTenantDelete() *cobra.Command {
	r := tenantRequest{Do: tenantDelete}
	return tenantCommand(&cobra.Command{
		Use:     "delete NAME",
		Short:   "End a tenant",
		Example: `  softib tenant delete red`,
		Args:    arguments(1, 1, "a NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			r.Name = args[0]
			return nil
		},
	}, &r, func(w io.Writer, _ []tenantShown) error {
		_, err := fmt.Fprintf(w, "tenant %s is no more\n", r.Name)
		return err
	})
}

func newTenantList() *cobra.Command {
	r := tenantRequest{Do: tenantList}
	return tenantCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the tenants in force",
		Example: `  softib tenant list --json`,
		Args:    arguments(0, 0, "no argument"),
		RunE:    func(*cobra.Command, []string) error { return nil },
	}, &r, printTenants)
}

func newTenantShow() *cobra.Command {
	r := tenantRequest{Do: tenantShow}
	return tenantCommand(&cobra.Command{
		Use:     "show NAME",
		Short:   "Show a tenant with all its members",
		Example: `  softib tenant show red`,
		Args:    arguments(1, 1, "a NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			r.Name = args[0]
			return nil
		},
	}, &r, func(w io.Writer, list []tenantShown) error {
		if err := printTenant(w, list); err != nil {
			return err
		}
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, x := range list {
			for _, m := range x.Members {
				host := m.Host
				if host == "" {
					host = "(not in the fabric)"
				}
				first := ""
				if m.Index0 {
					first = "index 0"
				}
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", host, m.GUID, m.Membership, first)
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		return printAstray(w, list)
	})
}

// printAstray says which tenants are not as they were acknowledged to be.
func printAstray(w io.Writer, list []tenantShown) error {
	found := false
	for _, t := range list {
		for _, line := range t.NotInForce {
			found = true
			if _, err := fmt.Fprintf(w, "NOT IN FORCE: tenant %s: %s\n", t.Name, line); err != nil {
				return err
			}
		}
	}
	if found {
		return next(errors.New("what nodes hold is not what was acknowledged"),
			"softib log says who may have written there; softib partition reload has the manager write it anew")
	}
	return nil
}

// printTenant says what a tenant is, in a line.
func printTenant(w io.Writer, list []tenantShown) error {
	for _, t := range list {
		if _, err := fmt.Fprintf(w, "tenant %s: pkey %s, %s%s\n", t.Name, t.PKey, t.ports(),
			t.extras(", ")); err != nil {
			return err
		}
		if t.First {
			if _, err := fmt.Fprintln(w, "with it nodes answer who manages them, and no host's smpquery or opensm: "+
				"softib status shows the guard"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tenantShown) ports() string {
	away := 0
	for _, m := range t.Members {
		if m.Host == "" {
			away++
		}
	}
	text := numbered(len(t.Members), "port", "ports")
	if away > 0 {
		text += fmt.Sprintf(" (%d not in the fabric)", away)
	}
	return text
}

// extras is what not every tenant has.
func (t *tenantShown) extras(before string) string {
	var list []string
	if t.SL != nil {
		sl := fmt.Sprintf("SL %d", *t.SL)
		if t.Class != "" {
			sl += " (" + t.Class + ")"
		}
		list = append(list, sl)
	}
	if t.Rate != 0 {
		list = append(list, fmt.Sprintf("at most %g Gb/s", t.Rate))
	}
	if t.MTU != 0 {
		list = append(list, fmt.Sprintf("MTU at most %d", t.MTU))
	}
	if t.IPoIB {
		list = append(list, "IPoIB")
	}
	if len(t.Users) > 0 {
		list = append(list, "for "+strings.Join(t.Users, ", "))
	}
	if len(list) == 0 {
		return ""
	}
	return before + strings.Join(list, ", ")
}

// printTenants is a table.
func printTenants(w io.Writer, list []tenantShown) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no tenants: softib tenant create NAME --hosts h1-h8 makes one")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tPKEY\tMEMBERS\tTRAFFIC\tHOSTS")
	for i := range list {
		x := &list[i]
		extras := x.extras("")
		if extras == "" {
			extras = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", x.Name, x.PKey, x.ports(), extras, x.hosts())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printAstray(w, list)
}

// hosts names the first members.
func (t *tenantShown) hosts() string {
	var b strings.Builder
	for i, m := range t.Members {
		if i == membersShown {
			fmt.Fprintf(&b, " and %d more", len(t.Members)-i)
			break
		}
		if i > 0 {
			b.WriteString(" ")
		}
		if m.Host == "" {
			b.WriteString(m.GUID)
		} else {
			b.WriteString(m.Host)
		}
		if m.Membership != "full" {
			b.WriteString(" (limited)")
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}

// noTenants is the error of a fabric that has none.
func (s *server) noTenants() error {
	return fmt.Errorf("fabric %s: %w", s.f.name, manager.ErrNoTenants)
}

// tenant answers a client.
func (s *server) tenant(ctx context.Context, q tenantRequest, r *control.Reply[[]tenantShown]) error {
	b := s.mgr.Tenants()
	if b == nil {
		return s.noTenants()
	}
	ctx, far := tenant.WithProgress(ctx)
	r.Doing(far.String)
	var list []tenant.Tenant
	var err error
	one := func(x tenant.Tenant, err error) error {
		list = []tenant.Tenant{x}
		return err
	}
	switch q.Do {
	case tenantList:
		list = b.List()
	case tenantShow:
		x, ok := b.Get(q.Name)
		if !ok {
			err = fmt.Errorf("tenant: %q: %w", q.Name, tenant.ErrNotFound)
		}
		err = one(x, err)
	case tenantDelete:
		err = s.mgr.DeleteTenant(ctx, q.Name)
	case tenantCreate:
		err = one(s.mgr.CreateTenant(ctx, q.spec()))
	case tenantAdd:
		err = one(s.mgr.EditHosts(ctx, q.Name, manager.HostChange{Add: q.Hosts, Limited: q.Limited, Index0: q.Index0}))
	case tenantRemove:
		err = one(s.mgr.EditHosts(ctx, q.Name, manager.HostChange{Remove: q.Hosts}))
	case tenantUsers:
		err = one(s.mgr.SetUsers(ctx, q.Name, q.Users))
	default:
		err = fmt.Errorf("the request asks to %q: want %s, %s, %s, %s, %s, %s or %s", q.Do, tenantCreate, tenantAdd,
			tenantRemove, tenantUsers, tenantDelete, tenantList, tenantShow)
	}
	if err != nil {
		return s.tenantTrouble(err)
	}
	for len(list) > 0 { // a few at a time: lines have to stay short
		n := min(len(list), 16)
		some := make([]tenantShown, n)
		for i := range some {
			some[i] = showTenant(s.mgr, &list[i])
			if q.Do == tenantList || q.Do == tenantShow {
				some[i].NotInForce = s.astray(ctx, &list[i])
			}
			some[i].First = q.Do == tenantCreate && len(b.List()) == 1
		}
		if err := r.Say(some); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// astray says what of a tenant is not in force, in a few lines.
func (s *server) astray(ctx context.Context, x *tenant.Tenant) (lines []string) {
	found, err := s.f.tenancy.astray(ctx, x.Name)
	if err != nil {
		return []string{err.Error()}
	}
	for i, r := range found {
		if i == namedMost {
			return append(lines, fmt.Sprintf("and %d ports more", len(found)-i))
		}
		lines = append(lines, r.Node+" "+r.Why)
	}
	return lines
}

// showTenant is a tenant for people and scripts.
func showTenant(m *manager.Manager, x *tenant.Tenant) tenantShown {
	out := tenantShown{Name: x.Name, PKey: x.Key.String(), Members: make([]memberShown, len(x.Members)), IPoIB: x.IPoIB,
		Rate: x.Rate.Gbps()}
	for i, y := range x.Members {
		out.Members[i] = memberShown{GUID: y.GUID.String(), Membership: y.Membership(), Index0: y.Index0}
		if n, p, ok := m.Enforcer().HostOf(y.GUID); ok {
			out.Members[i].Host, out.Members[i].Port = n.Name, p
		}
	}
	for _, u := range x.Users {
		out.Users = append(out.Users, rundir.UserName(u))
	}
	if x.HasSL {
		sl := uint8(x.SL)
		out.SL = &sl
		if t := m.Template(); t != nil {
			for _, c := range t.Classes {
				if c.SL == x.SL {
					out.Class = c.Name
				}
			}
		}
	}
	if x.MTU.IsValid() {
		out.MTU = x.MTU.Bytes()
	}
	return out
}

// tenantTrouble adds what to do next to an error.
func (s *server) tenantTrouble(err error) error {
	name := place{name: s.f.name}.flag()
	if e, ok := errors.AsType[*manager.ClassError](err); ok {
		if e.Template == nil {
			return next(&usageError{fmt.Errorf("--%w", err)}, "softib qos apply classic, or --sl N")
		}
		return next(&usageError{fmt.Errorf("--%w", err)}, "softib qos show %s", e.Template.Name)
	}
	switch {
	case errors.Is(err, tenant.ErrInvalid):
		return next(&usageError{err}, "softib tenant create --help%s", name)
	case errors.Is(err, tenant.ErrExists):
		return next(err, "softib tenant list%s shows them; another name or --pkey makes another", name)
	case errors.Is(err, tenant.ErrNotFound):
		return next(err, "softib tenant list%s shows those that there are", name)
	case errors.Is(err, tenant.ErrReserved):
		return next(err, "softib partition show%s lists them; choose another --pkey, or leave it out", name)
	case errors.Is(err, tenant.ErrUnmanaged):
		return next(err, "make softib's manager the master (softib up without --no-sm, softib sm --sm-priority "+
			"15), or give the other manager the partitions in its own file")
	case errors.Is(err, context.DeadlineExceeded):
		return next(err, "softib log%s says what the manager waits for; try again when the machine has less to do",
			name)
	case errors.Is(err, tenant.ErrRefused):
		return next(err, "softib doctor%s looks at these nodes; then try again", name)
	case errors.Is(err, tenant.ErrStore):
		return next(err, "see that the disk of %s has room and can be written, then softib down%s, softib up",
			s.f.tenancy.dir, name)
	}
	return err
}
