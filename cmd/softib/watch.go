package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"softib/driver/ibsim"
	"softib/driver/smrun"
	"softib/driver/umad"
	"softib/internal/files"
	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/operate/manager/remote"
	"softib/operate/manager/ufm"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
)

func newWatch() *cobra.Command {
	var o watchCommand
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show a fabric that is not softib's: the page, the metrics, REST",
		Long: `Looks at a fabric by management datagrams from one of its ports, again and again, and
serves what softib up serves for its own: the page, /metrics for Prometheus, and the parts
of the REST interface that read. It stays until Ctrl-C. It manages nothing: tenants are
refused, and nothing at all is changed without --allow-changes.

--on says where:
  fabric[:HOST]      a running softib fabric (--name), from a host; the default
  ibsim[:NODE]       ibsim's socket (IBSIM_SOCKNAME, IBSIM_SERVER_NAME as its own clients)
  umad[:CA[:PORT]]   a port of this machine: /dev/infiniband/umadN

Counters are read every --interval, and everything else every --survey, or at once when a
counter says that a link went down. Nodes and cables that were seen once stay on the page,
as down, until it ends. Every event is a line on standard error.`,
		Example: `  softib watch --on umad:mlx5_0:1
  softib watch --on umad --node-name-map /etc/opensm/ib-node-name-map --http 127.0.0.1:9000
  softib watch --on ibsim --interval 1s --open
  softib watch --on fabric:h7 --name lab --state none`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.fixed = cmd.Flags().Changed("http")
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.on, "on", "fabric", "what to watch: `WHERE` is fabric[:HOST], ibsim[:NODE] or umad[:CA[:PORT]]")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "time between two readings of the counters")
	f.DurationVar(&o.survey, "survey", 0, "time between two looks at everything; 0 is three intervals")
	f.BoolVar(&o.changes, "allow-changes", false,
		"let the page disable and enable ports, and clear counters of 32 bits before they stop")
	f.Uint64Var(&o.mkey, "m-key", 0, "key that guards the nodes against other managers")
	f.StringVar(&o.names, "node-name-map", "", "`FILE` with names for GUIDs, as OpenSM's and infiniband-diags'")
	f.StringVar(&o.state, "state", "",
		"keep history and users in `DIR`; none keeps nothing (default: a folder in the user's state folder)")
	f.BoolVar(&o.json, "json", false, "print what there is and every event as JSON, one object a line")
	o.http.flags(f)
	nameFlag(cmd, &o.name)
	return cmd
}

type watchCommand struct {
	name, on, state, names string
	interval, survey       time.Duration
	changes, json, fixed   bool
	mkey                   uint64
	http                   httpOptions
}

// intervalMin is how often a fabric may be asked for its counters.
const intervalMin = 10 * time.Millisecond

// watched is what is being watched, for programs.
type watched struct {
	On    string `json:"on"`
	From  string `json:"from"`
	Hosts int    `json:"hosts"`
	// ServiceNodes are part of switches, and no hosts.
	ServiceNodes int    `json:"service_nodes,omitempty"`
	Switches     int    `json:"switches"`
	Cables       int    `json:"cables"`
	Active       int    `json:"links_active"`
	Page         string `json:"page,omitempty"`
	Changes      bool   `json:"allow_changes"`
}

func (o *watchCommand) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if o.interval < intervalMin || o.interval > intervalMax || o.survey < 0 || o.survey > intervalMax {
		return usage(cmd, fmt.Errorf("--interval %v and --survey %v: want %v to %v", o.interval, o.survey, intervalMin,
			intervalMax))
	}
	opts := remote.Options{Interval: o.interval, Survey: o.survey, MKey: o.mkey, AllowChanges: o.changes,
		Journal: manager.NewJournal()}
	if o.names != "" {
		var err error
		if opts.Name, err = readNames(o.names); err != nil {
			return err
		}
	}
	p, err := newPlace(o.name)
	if err != nil {
		return err
	}
	dir, err := place{dir: p.dir, name: "watch-" + plain(o.on)}.state(o.state)
	if err != nil {
		return err
	}
	users, err := ufm.OpenCredentials(dir)
	if err != nil {
		return next(err, "softib watch --state DIR with another folder, or --state none to keep nothing")
	}
	page, err := newWeb(o.http, o.fixed, users)
	if err != nil {
		return err
	}
	if page != nil {
		defer page.l.Close()
	}
	t, err := o.open(cmd, p, &opts)
	if err != nil {
		return err
	}
	bar := &stageBar{t: newTerminal(cmd.ErrOrStderr())}
	opts.Progress = bar.show
	f, err := remote.Open(ctx, t, opts)
	bar.end()
	if err != nil {
		return next(err, "is the port's link up? ibstat, or softib doctor --on %s, say more", o.on)
	}
	defer f.Close()
	return o.serve(ctx, f, page, dir, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// open opens the port that --on names.
func (o *watchCommand) open(cmd *cobra.Command, p place, opts *remote.Options) (smrun.Transport, error) {
	ctx := cmd.Context()
	kind, at, _ := strings.Cut(o.on, ":")
	switch kind {
	case "fabric":
		opts.Window = surveyWindow
		return p.openMgmt(ctx, at)
	case "ibsim":
		opts.Window, opts.AsIs = ibsim.InFlight, true
		port, err := ibsim.Dial(ctx, ibsim.Config{Host: at, Socket: os.Getenv("IBSIM_SOCKNAME"),
			Server: os.Getenv("IBSIM_SERVER_NAME")})
		if err != nil {
			return nil, next(err, "ibsim -s NETFILE simulates a fabric; IBSIM_SOCKNAME names its socket")
		}
		return smrun.OnIBSim(ibsim.NewSession(port)), nil
	case "umad":
		opts.Window = umadWindow
		ca, num, _ := strings.Cut(at, ":")
		n := 0
		if num != "" {
			var err error
			if n, err = strconv.Atoi(num); err != nil || n < 1 {
				return nil, usage(cmd, fmt.Errorf("--on %s: %q is no port: want a number from 1 on", o.on, num))
			}
		}
		port, err := umad.Open(ctx, ca, n)
		if err != nil {
			return nil, next(err,
				"softib watch --on umad needs a port of InfiniBand hardware here; softib up has one in software")
		}
		return smrun.OnDevice(port), nil
	}
	return nil, usage(cmd, fmt.Errorf("--on %s: want fabric, ibsim or umad", o.on))
}

// plain is a text as part of a file's name.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, s)
}

// readNames reads a file of names.
func readNames(path string) (func(ib.GUID) string, error) {
	text, err := files.ReadText(path, files.TextMax)
	if err != nil {
		return nil, next(err, "--node-name-map FILE names a file with a GUID and a name on each line")
	}
	list, err := policy.ParseNodeNameMap(path, text)
	if err != nil {
		return nil, next(err, "mend the file: each line is a GUID and a name")
	}
	names := map[ib.GUID]string{}
	for _, n := range list {
		names[n.GUID] = n.Name
	}
	return func(g ib.GUID) string { return names[g] }, nil
}

// serve manages what is watched until ctx ends. A Manager has the graph of its beginning: when that grows, another
// takes its place.
func (o *watchCommand) serve(ctx context.Context, f *remote.Fabric, page *web, dir string, out, errs io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if page != nil {
		served := make(chan struct{})
		go func() {
			defer close(served)
			page.serve(ctx)
		}()
		defer func() { cancel(); <-served }()
	}
	var said sync.WaitGroup
	defer said.Wait()
	defer cancel()
	for first := true; ; first = false {
		m, err := o.manage(f, dir)
		if err != nil {
			return next(err, "softib watch --state DIR with another folder, or --state none to keep nothing")
		}
		end := func() {}
		if page != nil {
			if end, err = page.handle(m); err != nil {
				return errors.Join(err, m.Close())
			}
		}
		address := ""
		if page != nil {
			address = page.url
		}
		told, err := o.http.notify(m, address)
		if err != nil {
			end()
			return errors.Join(err, m.Close())
		}
		if first {
			o.describe(m, f, page, out)
			said.Go(func() { o.printer(out, errs).follow(ctx, f.Journal()) })
		}
		select {
		case <-ctx.Done():
			err = context.Canceled
		case <-f.Done():
			err = next(fmt.Errorf("%s is watched no more: %w", o.on, f.Err()),
				"start softib watch again once it is there")
		case <-f.Grown():
		}
		if page != nil {
			page.now.Store(nil)
		}
		told()
		end()
		if e := m.Close(); err == nil {
			err = e
		}
		if errors.Is(err, context.Canceled) {
			return nil // Ctrl-C
		}
		if err != nil {
			return err
		}
	}
}

// manage starts a Manager of what is watched.
func (o *watchCommand) manage(f *remote.Fabric, dir string) (*manager.Manager, error) {
	opts := manager.Options{Name: o.on, Topology: topo.Describe(f.Graph()), Version: version, Fabric: f,
		Journal: f.Journal(), Dir: dir, Interval: o.interval}
	if strings.HasPrefix(o.on, "umad") {
		limits := health.Default()
		limits.IdleCarries = true // real cables carry symbols all the time
		opts.Thresholds = &limits
	}
	return manager.New(opts)
}

// describe says what is watched, and where it is shown.
func (o *watchCommand) describe(m *manager.Manager, f *remote.Fabric, page *web, w io.Writer) {
	g, s, st := m.Graph(), m.Sample(), f.Stats()
	if o.json {
		hosts, service := g.HostsApart()
		x := watched{On: o.on, From: fromName(g, f.From()), Hosts: len(hosts), ServiceNodes: len(service),
			Switches: len(g.Switches()), Cables: g.NumCables(), Active: s.Active, Changes: o.changes}
		if page != nil {
			x.Page = page.url
		}
		_ = json.NewEncoder(w).Encode(x) // whoever reads it may be gone
		return
	}
	t := newTerminal(w)
	t.say("watching  %s, from %s", topo.Describe(g), fromName(g, f.From()))
	t.say("links     %d of %d ACTIVE, %d down", s.Active, g.NumCables(), s.Down)
	t.say("read      %d datagrams in %s; counters every %v", st.SurveyAsked, short(st.SurveyTook), o.interval)
	if page != nil {
		t.say("page      %s", page.url)
		if o.http.open {
			if err := openPage(page.url); err != nil {
				t.say("note      %v: %s", err, nextOf(err))
			}
		}
	}
	if !o.changes {
		t.say("note      read-only: --allow-changes lets the page disable and enable ports")
	}
	t.say("%s", t.green("watching")+": Ctrl-C ends it")
}

// fromName names a port to ask from: a switch has one, which has no number.
func fromName(g *topo.Graph, r topo.PortRef) string {
	if r.Port == 0 {
		return g.Nodes[r.Node].Name
	}
	return g.PortName(r)
}

// eventPrinter writes events: as JSON all of them, for people so many a second.
type eventPrinter struct {
	json  *json.Encoder // nil for people
	w     io.Writer
	began time.Time // of the present second
	lines int       // in it
	more  int       // that were not written
}

// linesMax is how many events people are shown a second; the page has them all.
const linesMax = 50

func (o *watchCommand) printer(out, errs io.Writer) *eventPrinter {
	if o.json {
		return &eventPrinter{json: json.NewEncoder(out)}
	}
	return &eventPrinter{w: errs}
}

func (p *eventPrinter) print(e manager.Event) {
	if p.json != nil {
		_ = p.json.Encode(e) // whoever reads it may be gone
		return
	}
	if time.Since(p.began) >= time.Second {
		p.flush()
		p.began, p.lines = time.Now(), 0
	}
	if p.lines++; p.lines > linesMax {
		p.more++
		return
	}
	fmt.Fprintf(p.w, "%s watch %s: %s\n", e.At.Format(logTime), e.Kind, e.Text)
}

// flush says how many events were left out.
func (p *eventPrinter) flush() {
	if p.more > 0 {
		fmt.Fprintf(p.w, "%s watch: and %s, which the page has\n", time.Now().Format(logTime),
			numbered(p.more, "event", "events"))
		p.more = 0
	}
}

// follow prints what comes into a journal, until ctx ends.
func (p *eventPrinter) follow(ctx context.Context, j *manager.Journal) {
	bell := j.Bell(ctx)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := uint64(0); ; {
		for _, e := range j.After(last, 1<<20) {
			p.print(e)
			last = e.ID
		}
		select {
		case <-bell:
		case <-tick.C:
			p.flush()
		case <-ctx.Done():
			p.flush()
			return
		}
	}
}
