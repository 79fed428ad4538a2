package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"softib/driver/peering"
	"softib/driver/span"
	"softib/internal/files"
	"softib/internal/pki"
	"softib/operate/cluster"
	"softib/operate/cluster/etcd"
	machines "softib/operate/cluster/place"
	"softib/operate/manager"
	"softib/operate/status"
	"softib/proto/topo"
)

// joinOptions say how a machine takes part in a fabric of several.
type joinOptions struct {
	url, machine, listen, address, machines, place, certs string
}

func (o *joinOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.url, "join", "", "be one machine of a fabric of several, which agree at `URL`: "+
		"etcd://HOST:2379/FABRIC, or etcds:// with TLS")
	f.StringVar(&o.machine, "machine", "", "this machine's `NAME` among them (default: its host name)")
	f.StringVar(&o.machines, "machines", "", "the names of all machines, `A,B,C`, for who starts the fabric")
	f.StringVar(&o.place, "place", machines.Leaf.String(),
		"who has which node: leaf, spread, machine=NAME, or a `FILE`")
	f.StringVar(&o.certs, "certs", "", "`DIR` with ca.crt, and NAME.crt and NAME.key of this machine; see softib ca")
	f.StringVar(&o.listen, "listen", ":8471", "`ADDRESS` to listen at for the other machines, TCP and UDP")
	f.StringVar(&o.address, "address", "", "`ADDRESS` by which they reach it (default: that of the way to the URL)")
}

// check refuses what cannot be, before anything is started.
func (o *joinOptions) check() error {
	if o.machine == "" {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		o.machine, _, _ = strings.Cut(name, ".")
	}
	o.machine = strings.ToLower(o.machine)
	if err := machines.CheckMachine(o.machine); err != nil {
		return next(&usageError{err}, "--machine NAME")
	}
	if o.certs == "" {
		return next(&usageError{errors.New("--join needs --certs: machines prove to each other who they are")},
			"softib ca init DIR and softib ca issue DIR %s, then softib up --join %s --certs DIR", o.machine, o.url)
	}
	return nil
}

// joined is this machine's part in a fabric of several.
type joined struct {
	name     string
	topology string
	secret   []byte // see cluster.Spec
	graph    *topo.Graph
	where    []string
	places   atomic.Pointer[[]string] // the same, once it is known
	store    *etcd.Store
	member   *etcd.Member
	trunks   *trunks
	log      func(string, ...any)

	rulers chan struct{} // rung when who rules may be another
	known  chan struct{} // rung when the fabric may be known
	done   sync.WaitGroup
}

// enter joins, and returns when it is known what the fabric is.
func (o *upOptions) enter(ctx context.Context, out *reporter, log io.Writer,
	journal *manager.Journal) (*joined, error) {
	say := func(format string, v ...any) {
		text := fmt.Sprintf(format, v...)
		fmt.Fprintf(log, "%s machines %s\n", time.Now().Format(logTime), text)
		journal.Add(manager.Event{Kind: "machine", Text: text})
	}
	topology := ""
	if o.named {
		topology = o.topology
	}
	return o.join.enter(ctx, topology, out, say)
}

func (o *joinOptions) enter(ctx context.Context, topology string, out *reporter, log func(string, ...any)) (j *joined,
	err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var want *wanted
	if topology != "" {
		if want, err = o.want(out, topology); err != nil {
			return nil, err
		}
	}
	certs, err := pki.Config(filepath.Join(o.certs, o.machine+".crt"), filepath.Join(o.certs, o.machine+".key"),
		filepath.Join(o.certs, "ca.crt"))
	if err != nil {
		return nil, next(err, "softib ca issue %s %s makes this machine's certificate", o.certs, o.machine)
	}
	at, err := etcd.ParseURL(o.url)
	if err != nil {
		return nil, advised(err)
	}
	made := &joined{name: o.machine, log: log, trunks: newTrunks(log), rulers: make(chan struct{}, 1),
		known: make(chan struct{}, 1)}
	j = made
	defer func() {
		if err != nil {
			made.close()
			j = nil
		}
	}()
	j.trunks.at, err = peering.New(peering.Config{Name: o.machine, TLS: certs, Listen: o.listen, Handler: j.trunks,
		Allow: j.allow})
	if err != nil {
		return nil, next(err, "--listen with another address or port")
	}
	err = out.during("joining at "+o.url, func() error {
		if j.store, err = etcd.Connect(ctx, at); err != nil {
			return advised(err)
		}
		address, err := o.reachedBy(at, j.trunks.at.Addr().Port())
		if err != nil {
			return err
		}
		self, err := net.ResolveUDPAddr("udp", address)
		if err != nil {
			return next(err, "--address with one that this machine knows")
		}
		j.trunks.reached = self.AddrPort().Addr()
		j.member = etcd.Start(j.store, cluster.Info{Name: j.name, Control: address, Data: address, Version: version,
			Follows: want == nil || want.placement == nil}, j.hear)
		return advised(j.member.Joined(ctx))
	})
	if err != nil {
		return nil, err
	}
	err = out.during("waiting for what the fabric is", func() error { return j.learn(ctx, want) })
	return j, err
}

// advised makes what to do next of an error that has it apart.
func advised(err error) error {
	var e interface{ Next() string }
	if errors.As(err, &e) {
		return next(err, "%s", e.Next())
	}
	return err
}

// reachedBy is the address that other machines are told.
func (o *joinOptions) reachedBy(at etcd.URL, port uint16) (string, error) {
	if o.address != "" {
		if _, _, err := net.SplitHostPort(o.address); err != nil {
			return net.JoinHostPort(o.address, fmt.Sprint(port)), nil
		}
		return o.address, nil
	}
	if host, _, err := net.SplitHostPort(o.listen); err == nil && host != "" && !net.ParseIP(host).IsUnspecified() {
		return net.JoinHostPort(host, fmt.Sprint(port)), nil
	}
	c, err := net.Dial("udp", at.Endpoints[0])
	if err != nil {
		return "", next(err, "--address with the one that other machines reach this one by")
	}
	defer c.Close()
	return net.JoinHostPort(c.LocalAddr().(*net.UDPAddr).IP.String(), fmt.Sprint(port)), nil
}

// wanted is the fabric that who starts it wants.
type wanted struct {
	topology  string // as it goes into the store
	graph     *topo.Graph
	placement []byte // nil if it was not said which machines there are
}

// want reads what the command line says of the fabric.
func (o *joinOptions) want(out *reporter, topology string) (*wanted, error) {
	g, err := loadTopology(out, topology)
	if err != nil {
		return nil, err
	}
	if _, err := checkTopology(topology, g); err != nil {
		return nil, err
	}
	if len(g.Routers()) > 0 {
		return nil, next(fmt.Errorf("%s has routers, and a fabric of several machines is one subnet", topology),
			"a topology without routers, or softib up without --join")
	}
	w := &wanted{topology: topology, graph: g}
	if !topo.IsSpec(topology) {
		w.topology = string(topo.Append(nil, g))
	}
	var put machines.Placement
	rule, err := machines.ParseRule(o.place)
	if err != nil {
		text, e := files.ReadText(o.place, files.TextMax)
		if e != nil {
			return nil, next(&usageError{errors.Join(err, e)},
				"--place leaf, --place spread, or a file of NODES MACHINE")
		}
		if put, err = machines.Parse(o.place, text, g); err == nil {
			err = put.Missing(o.place, g)
		}
	} else if o.machines != "" {
		put, err = machines.Do(g, strings.Split(strings.ToLower(o.machines), ","), rule, nil)
	} else {
		return w, nil
	}
	if err != nil {
		return nil, next(&usageError{err}, "--machines A,B,C with names of machines")
	}
	w.placement, err = put.Text()
	return w, err
}

// learn waits until the store says what the fabric is. If nobody has said it, the master does that knows it.
func (j *joined) learn(ctx context.Context, want *wanted) error {
	for {
		spec, ok := j.member.Section(cluster.SpecSection)
		text, placed := j.member.Section(cluster.PlacementSection)
		if ok && placed {
			return j.build(spec, text, want)
		}
		if want != nil && want.placement != nil && j.member.IsMaster() {
			secret := make([]byte, 32)
			_, _ = rand.Read(secret) // which never fails
			value, err := json.Marshal(cluster.Spec{Topology: want.topology, Secret: secret})
			if err != nil {
				return err
			}
			_, err = j.member.Change(ctx, cluster.Change{Base: j.member.Revision(), What: "the fabric was made",
				Put: []cluster.Section{{Name: cluster.SpecSection, Value: value},
					{Name: cluster.PlacementSection, Value: want.placement}}})
			if err == nil || errors.Is(err, cluster.ErrStale) || errors.Is(err, cluster.ErrNotMaster) {
				continue
			}
			return advised(err)
		}
		select {
		case <-ctx.Done():
			return next(fmt.Errorf("nobody has said what the fabric is: %w", ctx.Err()),
				"start one of the machines with TOPOLOGY and --machines A,B,C")
		case <-j.known:
		case <-time.After(time.Second):
		}
	}
}

// build makes the graph and the places of its nodes of what the store says.
func (j *joined) build(spec, text []byte, want *wanted) error {
	var s cluster.Spec
	if err := json.Unmarshal(spec, &s); err != nil {
		return fmt.Errorf("what the fabric is: %w", err)
	}
	if want != nil && want.topology != s.Topology {
		return next(errors.New("the fabric is another one than TOPOLOGY"),
			"leave TOPOLOGY out to take part in it, or name another fabric in the URL")
	}
	j.secret = s.Secret
	var err error
	if j.topology = s.Topology; topo.IsSpec(s.Topology) {
		j.graph, err = parseSpec(s.Topology)
	} else {
		j.topology = "the topology at " + j.store.URL().String()
		j.graph, err = topo.Parse("topology", []byte(s.Topology))
	}
	if err != nil {
		return err
	}
	put, err := machines.Parse("placement", text, j.graph)
	if err == nil {
		err = put.Missing("placement", j.graph)
	}
	if err != nil {
		return err
	}
	for _, n := range j.graph.Nodes {
		j.where = append(j.where, put[n.Name])
	}
	j.places.Store(&j.where)
	if !slices.Contains(j.where, j.name) {
		names := slices.Compact(slices.Sorted(slices.Values(j.where)))
		return next(fmt.Errorf("machine %s has no part of the fabric: its machines are %s", j.name,
			strings.Join(names, ", ")), "--machine with one of these names")
	}
	return nil
}

// allow lets machines in that have a part of the fabric, once it is known who has.
func (j *joined) allow(machine string) error {
	where := j.places.Load()
	if where == nil || slices.Contains(*where, machine) {
		return nil
	}
	return fmt.Errorf("machine %s has no part of this fabric", machine)
}

// hear is told what happens among the machines.
func (j *joined) hear(e cluster.Event) {
	switch e.Kind {
	case cluster.EventMemberUp:
		if m := e.Member; m.Name != j.name {
			if err := j.trunks.at.Connect(m.Name, m.Data); err != nil {
				j.log("machine %s: %v", m.Name, err)
			}
		}
	case cluster.EventMemberDown:
		j.log("machine %s has left, or nothing is heard of it at the store", e.Member.Name)
	case cluster.EventMaster:
		if e.Name != "" {
			j.log("machine %s manages the subnet", e.Name)
		}
	case cluster.EventTrouble:
		j.log("the store: %s; this machine goes on with what it knows, and changes nothing", e.Text)
	case cluster.EventCalm:
		j.log("the store answers again")
	case cluster.EventLost:
		j.log("nothing was heard of this machine at the store for too long; it joins again")
	}
	for _, bell := range []chan struct{}{j.known, j.rulers} {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
}

// run gives the fabric to the trunks, and has its manager run while this machine is the master.
func (j *joined) run(ctx context.Context, f *fabric, t *tenancy) {
	j.serveTenants(t)
	terms := manager.Derive(j.secret, "terms")
	f.SetTerms(terms)
	j.trunks.serve(f.Fabric)
	if f.ruler == nil {
		return
	}
	f.ruler.cfg.Terms = terms
	j.done.Go(func() {
		said := ""
		for {
			text := ""
			term, mine := j.member.Reign()
			if err := f.ruler.rule(ctx, mine, uint32(term)); err != nil {
				text = err.Error()
			}
			if text != said && text != "" {
				j.log("the subnet's manager: %s", text)
			}
			said = text
			select {
			case <-ctx.Done():
				_ = f.ruler.rule(ctx, false, 0)
				return
			case <-j.rulers:
				j.refresh(t)
			case <-time.After(rulePoll): // what a master believes has an end
			}
		}
	})
}

// rulePoll is how often a machine looks whether it still is the master.
const rulePoll = 50 * time.Millisecond

// machines are those that have a part of the fabric, in order of their names.
func (j *joined) machines() (all []status.Machine) {
	master := j.member.MasterName()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(j.where))) {
		m := status.Machine{Name: name, Here: name == j.name, Master: name == master}
		for n, at := range j.where {
			if at == name && j.graph.Nodes[n].IsSwitch() {
				m.Switches++
			} else if at == name && !j.graph.IsPart(j.graph.Nodes[n]) {
				m.Hosts++
			}
		}
		if m.Reached = m.Here; !m.Here {
			m.Reached, m.Why = j.trunks.reaches(name)
			if f := j.trunks.fabric(); f != nil {
				m.Lines, m.LinesLaid = f.Lines(name)
			}
		}
		all = append(all, m)
	}
	return all
}

// close leaves the fabric.
func (j *joined) close() {
	j.done.Wait()
	if j.member != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_ = j.member.Leave(ctx)
		cancel()
	}
	if j.trunks.at != nil {
		j.trunks.at.Close()
	}
	if j.store != nil {
		_ = j.store.Close()
	}
}

// span is the fabric's configuration.
func (j *joined) span(c *span.Config) {
	c.Here, c.Where, c.Machines = j.name, j.where, j.trunks
}
