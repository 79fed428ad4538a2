package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/driver/span"
	"softib/internal/patience"
	"softib/node/hca"
	"softib/node/inspect"
	"softib/operate/manager"
	"softib/operate/manager/ufm"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// fabric is a running fabric with what it was made from.
type fabric struct {
	*span.Fabric
	name     string
	topology string // as the user named it
	started  time.Time
	bringUp  time.Duration
	steps    []status.Step // of its start
	runner   *smrun.Runner // nil if another manages the fabric
	// Where routers join subnets: a manager for each, of which runner is the first.
	subnets *topo.Subnets
	runners []*smrun.Runner
	log     *logbook
	tenancy *tenancy // nil before it is open
	journal *manager.Journal
	page    string // its address; empty if there is none
	users   *ufm.Credentials
	others  *guests // whom it is shared with; nil if it is not
	joined  *joined // its part among several machines, and ruler its manager; nil on one
	ruler   *ruler
}

// newFabric builds a fabric and starts it.
func newFabric(ctx context.Context, name, topology string, g *topo.Graph, cfg *sm.Config, t *tenancy,
	log io.Writer, out *reporter) (*fabric, error) {
	f := &fabric{name: name, topology: topology, started: time.Now(), log: newLogbook(log),
		journal: manager.NewJournal()}
	return f, f.start(ctx, g, cfg, t, out)
}

// start makes the nodes. With a configuration, a manager brings the subnet up and stays with it until ctx ends; where
// the fabric spans machines it does so on one of them.
func (f *fabric) start(ctx context.Context, g *topo.Graph, cfg *sm.Config, t *tenancy, out *reporter) (err error) {
	defer holdGC()()
	made := span.Config{Graph: g}
	if cfg != nil {
		made.Live.Adaptive = cfg.Adaptive
	}
	if f.joined != nil {
		f.joined.span(&made)
	}
	err = out.during("making the nodes", func() (err error) {
		f.Fabric, err = span.New(made)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	switch {
	case f.joined != nil:
		if cfg != nil {
			own := *cfg
			if t != nil {
				own = t.own // with the tenants that there are when it begins to rule
			}
			if own.Memory.LIDs, err = plannedLIDs(g, own.LMC); err != nil {
				return err
			}
			own.Whole = true // of which parts may be missing
			f.ruler = &ruler{f: f, cfg: own, tenants: t}
		}
		t.follow(f)
		f.joined.run(ctx, f, t)
		return out.during("waiting for the subnet", func() error { return f.awaitOwn(ctx) })
	case cfg == nil:
		return nil
	case t != nil:
		t.guard.Watch(f.Fabric, t.store.State())
	}
	if err = f.startSMs(ctx, *cfg); err != nil {
		return err
	}
	if err = out.during("bringing the subnet up", func() error { return f.awaitUp(ctx) }); err != nil {
		return fmt.Errorf("the subnet does not come up: %w", err)
	}
	f.bringUp = time.Since(f.started)
	return nil
}

// ownPatience is how long a machine waits for its hosts to be ACTIVE before it says that it is up without them, on an
// idle machine: the
// manager may be on a machine that is yet to come, or far away.
const ownPatience = 15 * time.Second

// awaitOwn waits until the hosts of this machine are ACTIVE.
func (f *fabric) awaitOwn(ctx context.Context) error {
	if f.ruler == nil {
		return nil
	}
	for limit := patience.New(ownPatience); !limit.Over(); {
		if !slices.ContainsFunc(f.hostsHere(), func(h *live.Host) bool { _, _, ok := portOf(h); return !ok }) {
			f.bringUp = time.Since(f.started)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// manage starts the management of a fabric that is up: samples, history, tenants.
func (f *fabric) manage(p place, o upOptions) (*manager.Manager, error) {
	dir, err := p.state(o.state)
	if err != nil {
		return nil, err
	}
	opts := manager.Options{Name: f.name, Topology: f.topology, Version: version, Fabric: f.Fabric, Journal: f.journal,
		Dir: dir, Since: f.started}
	if f.runner != nil {
		opts.Subnet = f.runner
	}
	if f.ruler != nil {
		opts.Subnet = f.ruler
	}
	if f.tenancy != nil {
		opts.Tenants, opts.Enforcer = f.tenancy.book, f.tenancy.e
	}
	m, err := manager.New(opts)
	if err != nil {
		return nil, next(err, "softib up --state DIR with another folder, or --state none to keep nothing")
	}
	return m, nil
}

// portOf is a host's first port that is ACTIVE.
func portOf(h *live.Host) (ib.PortNum, hca.Port, bool) {
	for n := 1; n <= h.Node().NumPorts(); n++ {
		if p := h.Port(ib.PortNum(n)); p.State == ib.PortActive && p.LID != 0 {
			return ib.PortNum(n), p, true
		}
	}
	return 0, hca.Port{}, false
}

// hostsHere are the hosts that this machine has.
func (f *fabric) hostsHere() []*live.Host {
	return slices.DeleteFunc(slices.Clone(f.Hosts()), func(h *live.Host) bool { return !f.IsHere(h.Node().Index) })
}

// devices are the hosts that take part in the mesh, and how many do not
// because no port of theirs is ACTIVE.
func (f *fabric) devices() (devs []meshDevice, silent int) {
	for _, h := range f.hostsHere() {
		if _, _, ok := portOf(h); !ok {
			silent++
			continue
		}
		devs = append(devs, meshDevice{host: h})
	}
	return devs, silent
}

// describe prints what a fabric is.
func (f *fabric) describe(out *reporter) {
	g := f.Graph()
	out.say("fabric    %s: %s", f.name, topo.Describe(g))
	hosts, service := g.HostsApart()
	f.describeEnds(out, "hosts", hosts)
	f.describeEnds(out, "service", service)
	if sw := g.Switches(); len(sw) > 0 {
		low, high := ib.LID(0xffff), ib.LID(0)
		for _, n := range sw {
			lid := f.lid(n.Index)
			low, high = min(low, lid), max(high, lid)
		}
		out.say("switches  %d: %s", len(sw), lids(kinds(sw), low, high))
	}
	for _, l := range f.linkLines() {
		out.say("links     %s", l)
	}
	if f.joined != nil {
		for i, m := range f.joined.machines() {
			label := ""
			if i == 0 {
				label = "machines"
			}
			out.say("%-9s %s", label, machineText(&m))
		}
		return
	}
	if f.runner == nil {
		out.say("subnet    not managed: start a manager, such as softib exec %s -- opensm", g.Hosts()[0].Name)
		return
	}
	if len(f.runners) > 1 {
		mads := 0
		for _, r := range f.runners {
			mads += lastSweep(r).MADs
		}
		out.say("subnets   %d, joined by %s, up in %s: %d management datagrams", len(f.runners),
			numbered(len(g.Routers()), "router", "routers"), short(f.bringUp), mads)
		return
	}
	last := f.lastSweep()
	out.say("subnet    up in %s: %d management datagrams, %s routing", short(f.bringUp), last.MADs, last.Engine)
}

// describeEnds says how many of some end nodes have a port that is ACTIVE, and their addresses.
func (f *fabric) describeEnds(out *reporter, what string, nodes []*topo.Node) {
	if len(nodes) == 0 {
		return
	}
	low, high := ib.LID(0xffff), ib.LID(0)
	active := 0
	for _, h := range nodes {
		isActive := 0
		for p := range h.PortGUIDs() {
			pi, _ := f.PortInfo(topo.PortRef{Node: h.Index, Port: ib.PortNum(p + 1)})
			if pi.PortState == ib.PortActive && pi.LID != 0 {
				low, high, isActive = min(low, pi.LID), max(high, pi.LID), 1
			}
		}
		active += isActive
	}
	out.say("%-9s %d of %d ACTIVE: %s", what, active, len(nodes), lids(firstToLast(nodes), low, high))
}

// lid is the address of a switch.
func (f *fabric) lid(node int) ib.LID {
	pi, _ := f.PortInfo(topo.PortRef{Node: node})
	return pi.LID
}

// lastSweep is the manager's last report; of several that of the first, or of one that had problems.
func (f *fabric) lastSweep() (r sm.SweepReport) {
	for _, run := range f.managers() {
		if last := lastSweep(run); r.MADs == 0 || r.Problems == 0 && last.Problems > 0 {
			r = last
		}
	}
	return r
}

// lastSweep is that of one manager.
func lastSweep(run *smrun.Runner) (r sm.SweepReport) {
	_ = run.Do(func(m *sm.Manager) { r = m.Last() })
	return r
}

// lids names nodes and their addresses.
func lids(who string, low, high ib.LID) string {
	if low > high || high == 0 { // nobody has given any
		return who + ", no LIDs yet"
	}
	if low == high {
		return fmt.Sprintf("%s, LID %d", who, low)
	}
	return fmt.Sprintf("%s, LIDs %d to %d", who, low, high)
}

// kinds sums nodes up by what their names begin with: "8 leaf, 4 spine". More
// kinds than fit a line are names that somebody gave one by one.
func kinds(nodes []*topo.Node) string {
	count := map[string]int{}
	var order []string
	for _, n := range nodes {
		k := strings.TrimRight(n.Name, "0123456789")
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
	}
	if len(nodes) == 1 || len(order) > 4 || slices.Contains(order, "") {
		return firstToLast(nodes)
	}
	var parts []string
	for _, k := range order {
		parts = append(parts, fmt.Sprintf("%d %s", count[k], k))
	}
	return strings.Join(parts, ", ")
}

// firstToLast is the first and the last of some nodes, by name; numbers count as such.
func firstToLast(nodes []*topo.Node) string {
	less := func(a, b *topo.Node) int { return byNumber(a.Name, b.Name) }
	low, high := slices.MinFunc(nodes, less), slices.MaxFunc(nodes, less)
	if low == high {
		return low.Name
	}
	return low.Name + " to " + high.Name
}

// byNumber orders names as people count: h2 comes before h10.
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }

// linkLines says how many links of each rate there are in each state.
func (f *fabric) linkLines() []string {
	type kind struct {
		rate  ib.LinkRate
		state ib.PortState
	}
	count := map[kind]int{}
	var order []kind
	for _, c := range f.Graph().Cables() {
		k := kind{f.Graph().LinkRate(c.A), min(f.PortState(c.A), f.PortState(c.B))}
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
	}
	var lines []string
	for _, k := range order {
		lines = append(lines, fmt.Sprintf("%d %s: %v, %g Gb/s of data", count[k], inspect.StateName(k.state), k.rate,
			float64(k.rate.Mbps())/1000))
	}
	return lines
}

// short prints a time with three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return d.Round(10 * time.Nanosecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// notAll is the error of a fabric whose manager did not bring all hosts up. Topologies that cannot work at all were
// refused before, so that is what does not show in them: directed routes, by which a manager reaches nodes, have an
// end.
func (f *fabric) notAll(silent int) error {
	err := fmt.Errorf("the fabric is not up as a whole: %d of %d hosts have no ACTIVE port", silent, len(f.Hosts()))
	ref, e := smPort(f.Fabric, "")
	if e != nil {
		return errors.Join(err, e)
	}
	far, at := 0, f.Graph().Distances(ref.Node)
	for _, h := range f.Hosts() {
		if at[h.Node().Index] > mad.MaxHops {
			far++
		}
	}
	if far == 0 {
		return next(err, "what the subnet manager wrote says why: above, or with -d in %s.log of the runtime folder",
			f.name)
	}
	return next(fmt.Errorf("%w: %d further from the subnet manager, which is at %s, than the %d hops that a "+
		"directed route has", err, far, f.Graph().Nodes[ref.Node].Name, mad.MaxHops),
		"use a topology in which no host is more than %d cables from %s", mad.MaxHops, f.Graph().Nodes[ref.Node].Name)
}

// ping sends over the full mesh and says what came of it. A fabric in which hosts are silent is an error: it is not the
// one that was asked for.
func (f *fabric) ping(ctx context.Context, out *reporter) error {
	devs, silent := f.devices()
	if silent > 0 {
		return f.notAll(silent)
	}
	if len(devs) < 2 {
		out.say("mesh      one host has nobody to send to")
		return nil
	}
	if groups := f.tenants(devs); groups != nil {
		return f.pingTenants(ctx, groups, out)
	}
	all := len(devs)
	devs = sample(devs, meshHostsMax)
	res, err := mesh(ctx, devs, f.routes(), func(done, total int) { out.progress("mesh", done, total) })
	if err != nil {
		return next(fmt.Errorf("the fabric does not carry everything: %w", err),
			"look for broken links: softib topo check %s", f.topology)
	}
	whole := "the full mesh: "
	if res.Pairs < res.Possible {
		whole = fmt.Sprintf("every host to %s: ", numbered(res.Pairs/len(devs), "other", "others"))
	}
	if len(devs) < all {
		whole = fmt.Sprintf("%d hosts here and there, each to %s: ", len(devs),
			numbered(res.Pairs/len(devs), "other", "others"))
		res.Possible = all * (all - 1)
	}
	out.say("mesh      %s%d of %d pairs carried %d bytes intact in %s", whole, res.Pairs, res.Possible, meshSize,
		short(res.Took))
	return nil
}
