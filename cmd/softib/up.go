package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"softib/driver/smrun"
	"softib/operate/manager"
	"softib/operate/manager/notify"
	"softib/operate/manager/ufm"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

func newUp() *cobra.Command {
	var o upOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "up [TOPOLOGY]",
		Short: "Start a fabric, bring it up and keep it running",
		Long: `Builds the fabric, brings every port ACTIVE, says what it is, sends a message from
every host to every other, and stays until Ctrl-C or softib down. With -d it
stays in the background, and the command returns once the fabric is up.

A fabric of which a part does not come up is not the one that was asked for: it is
ended, and the exit status is 1. So a host may be at most 63 cables from the subnet
manager, which is in the first switch: directed routes go no further.

With --join it is one of several machines that make one fabric: each has some of its
nodes, etcd has what they agree on, and certificates (softib ca) prove who they are.
docs/MACHINES.md says how.

Without TOPOLOGY it is ` + topo.DefaultSpec + `: 32 hosts.

` + topologyHelp(),
		Example: `  softib up                              # 32 hosts, until Ctrl-C
  softib up -d star:4 --name lab         # 4 hosts in the background
  softib up cluster.topo                 # the fabric that ibnetdiscover saw
  softib up fat-tree:radix=16,levels=2,speed=HDR
  softib up -d --partitions tenants.conf # then: softib partition show
  softib up --config /etc/opensm/opensm.conf
  softib up --join etcd://s1:2379/lab --machines s1,s2,s3 --certs certs fat-tree:radix=8,levels=2
  softib up -d --shared students         # they run: softib exec --name OWNER/default h1 -- CMD
  softib up -d --roce eth0 --name net    # then: softib exec --name net eth0 -- ib_write_bw`,
		Args: arguments(0, 1, "at most one TOPOLOGY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.fixed = cmd.Flags().Changed("http")
			o.topology = topo.DefaultSpec
			if len(args) == 1 {
				o.topology, o.named = args[0], true
			}
			if o.roce != "" {
				if err := checkRoCE(cmd, &o, args); err != nil {
					return err
				}
			}
			if _, base, ok := strings.Cut(o.name, "/"); ok {
				return next(&usageError{fmt.Errorf("--name %s is a fabric that somebody shares", o.name)},
					"softib up --name %s starts one of your own", base)
			}
			p, err := newPlace(o.name)
			if err != nil {
				return err
			}
			t := newTerminal(cmd.OutOrStdout())
			if asJSON {
				t = newTerminal(cmd.ErrOrStderr())
			}
			if o.reportFD != 0 {
				return upInBackground(cmd.Context(), p, o)
			}
			if o.detach {
				cmd.Flags().Visit(func(f *pflag.Flag) {
					if f.Name != "detach" && f.Name != "json" {
						o.args = append(o.args, "--"+f.Name+"="+f.Value.String())
					}
				})
				if err := detach(cmd.Context(), p, o, t); err != nil || !asJSON {
					return err
				}
				return p.printStatus(cmd.Context(), cmd.OutOrStdout())
			}
			isUp := false
			err = up(cmd.Context(), p, o, toTerminal(t), func() {
				isUp = true
				if asJSON {
					// the fabric that it asks is this one
					go func() { _ = p.printStatus(cmd.Context(), cmd.OutOrStdout()) }()
				}
				t.say("%s", t.green("up")+": Ctrl-C ends it; in another terminal: "+o.examples(p))
			})
			if err == nil && isUp {
				t.say("fabric %s is down", o.name)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "run in the background; return once the fabric is up")
	nameFlag(cmd, &o.name)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the fabric's status as JSON once it is up")
	cmd.Flags().BoolVar(&o.noSM, "no-sm", false,
		"start no subnet manager: leave the fabric to another, such as softib exec h1 -- opensm")
	o.sm.flags(cmd)
	cmd.Flags().StringVar(&o.adaptive, "adaptive", route.NoChoice.String(), "where cables have a rate or a fault, "+
		"switches choose the least busy way: "+strings.Join(route.ChoiceNames, ", "))
	cmd.Flags().StringVar(&o.trust, "trust-manager", "", "hosts, or GUIDs of ports, `H3,H4` at which other subnet "+
		"managers may run that know --m-key and --sm-key; from the first tenant on, and with --m-key, nowhere else")
	cmd.Flags().StringVar(&o.shared, "shared", "", "let users of `GROUP` run programs on hosts of tenants that they "+
		"are users of (softib tenant create --users), and do nothing else")
	cmd.Flags().StringVar(&o.state, "state", "", "keep tenants and history in `DIR`; none keeps nothing (default: "+
		"a folder of this name in the user's state folder)")
	o.join.flags(cmd)
	cmd.Flags().StringVar(&o.roce, "roce", "", "in place of TOPOLOGY: a fabric whose hosts are Ethernet interfaces "+
		"`DEV,DEV` of this machine, which speak RoCEv2; softib roce holds their ports")
	o.http.flags(cmd.Flags())
	cmd.Flags().IntVar(&o.reportFD, "report-fd", 0, "descriptor to report to the starting process on")
	_ = cmd.Flags().MarkHidden("report-fd")
	return cmd
}

type upOptions struct {
	name     string
	topology string
	named    bool // the topology was
	detach   bool
	reportFD int
	noSM     bool
	trust    string
	adaptive string
	shared   string
	state    string
	roce     string
	http     httpOptions
	fixed    bool     // the page's address was asked for
	args     []string // flags for the background process
	sm       smOptions
	join     joinOptions
}

// nameFlag gives a command its --name.
func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", defaultName, "`NAME` that tells this fabric from others")
}

// flag is how a command line names the fabric; nothing for the default one.
func (p place) flag() string {
	switch {
	case p.owner != "":
		return " --name " + p.owner + "/" + p.name
	case p.name == defaultName:
		return ""
	}
	return " --name " + p.name
}

// up runs a fabric until ctx ends or somebody asks it to; it calls ready once the
// fabric carries traffic and answers on its socket.
func up(ctx context.Context, p place, o upOptions, out *reporter, ready func()) (err error) {
	if o.roce != "" {
		return upRoCE(ctx, p, o, out, ready)
	}
	if o.http.alerts != "" {
		if _, err := notify.Check(o.http.alerts); err != nil {
			return next(&usageError{fmt.Errorf("--alerts: %w", err)}, "--alerts http://HOST:9093/api/v2/alerts")
		}
	}
	cfg, err := o.sm.config()
	if err != nil {
		return err
	}
	if cfg.Adaptive, err = route.ParseChoice(o.adaptive); err != nil {
		return next(&usageError{fmt.Errorf("--adaptive: %w", err)}, "--adaptive packet lets each packet choose")
	}
	others, err := newGuests(p, &o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// In a terminal the log goes on below what the fabric is; a file has it from the start.
	log := &heldLog{to: os.Stderr, open: o.reportFD != 0}
	book := newLogbook(log)
	journal := manager.NewJournal()
	var g *topo.Graph
	var odd []topo.Problem
	if o.join.url == "" || o.named {
		err = out.during("reading the topology", func() (err error) {
			if g, err = loadTopology(out, o.topology); err != nil {
				return err
			}
			if odd, err = checkTopology(o.topology, g); err != nil {
				return err
			}
			return onePlane(o.topology, g)
		})
		if err != nil {
			return err
		}
	}
	lock, err := p.claim()
	if errors.Is(err, errHeld) {
		return p.alreadyRunning()
	}
	if err != nil {
		return err
	}
	defer func() { p.leave(lock, err) }()
	var j *joined
	if o.join.url != "" {
		if j, err = o.enter(ctx, out, book, journal); err != nil {
			log.release(true)
			return err
		}
		defer func() { cancel(); j.close() }()
		g, o.topology = j.graph, j.topology
	}
	for _, w := range odd {
		out.say("%v", w)
	}
	for _, n := range o.sm.notes {
		out.say("note      %s", n)
	}
	tenants, err := newTenancy(p, o, j)
	if err != nil {
		return err
	}
	defer tenants.close()
	if others != nil {
		tenants.rights = others.rights
	}
	trusted, err := trustedPorts(g, o.trust)
	if err != nil {
		return err
	}
	// Who is not ours knows one key for all; ours give each port its own.
	cfg.MKeyPerPort = cfg.MKey != 0 && o.sm.given("m-key") && len(trusted) == 0
	subnet, err := tenants.config(g, cfg, trusted)
	if err != nil {
		return err
	}
	if o.noSM {
		subnet = nil
	}
	users, err := ufm.OpenCredentials(tenants.dir)
	if err != nil {
		return next(err, "softib up --state DIR with another folder, or --state none to keep nothing")
	}
	page, err := newWeb(o.http, o.fixed, users)
	if err != nil {
		return err
	}
	f := &fabric{name: o.name, topology: o.topology, started: time.Now(), log: book, journal: journal, joined: j}
	err = f.start(ctx, g, subnet, tenants, out)
	if err != nil {
		log.release(true)
		return err
	}
	defer f.Close()
	f.users = users
	_ = out.timed("looking at the ports", func() error { f.describe(out); return nil })
	log.release(f.lastSweep().Problems > 0)
	if err := out.during("restoring tenants", func() error { return tenants.open(ctx, f, out) }); err != nil {
		return err
	}
	var mgr *manager.Manager
	err = out.during("starting the management", func() (err error) {
		mgr, err = f.manage(p, o)
		return err
	})
	if err != nil {
		return err
	}
	defer mgr.Close()
	if aside := mgr.HistoryAside(); aside != "" {
		out.say("history   cannot be read and was put aside as %s; a new one begins", aside)
	}
	if !o.noSM && j == nil {
		if err := out.timed("mesh", func() error { return f.ping(ctx, out) }); err != nil {
			if ctx.Err() != nil {
				return nil // Ctrl-C meanwhile
			}
			return err
		}
	}
	if page != nil {
		var end func()
		_ = out.during("opening the page", func() error { end = f.servePage(ctx, page, mgr, o, out); return nil })
		defer end()
	}
	told, err := o.http.notify(mgr, f.page)
	if err != nil {
		return err
	}
	defer told()
	others.admit(f, mgr)
	programs, err := servePrograms(ctx, p, f.Fabric, others)
	if err != nil {
		return err
	}
	f.steps = out.steps
	startLines(f.steps, out.under("start"))
	s, err := serve(ctx, p, f, mgr, cancel)
	if err != nil {
		return err
	}
	if err := others.serve(ctx, s); err != nil {
		return err
	}
	if others != nil {
		out.say("shared    with group %s: softib exec%s HOST -- CMD", o.shared, others.place.flag())
	}
	if f.ruler != nil {
		f.ruler.tell(func(run *smrun.Runner) func() {
			return s.sms.add(&runningSM{run: run, opts: o.sm, tenants: tenants})
		})
	}
	for _, run := range f.managers() {
		x := &runningSM{run: run, opts: o.sm, tenants: tenants}
		s.sms.add(x)
		if o.reportFD != 0 {
			x.reloadOnHangup(ctx, os.Stderr)
		}
	}
	ready()
	s.wg.Go(s.world.warm)
	<-ctx.Done()
	others.close()
	s.close()
	programs()
	_ = os.Remove(p.socket())
	return nil
}

func (p place) alreadyRunning() error {
	return next(fmt.Errorf("a fabric named %q is running", p.name),
		"softib status%s shows it, softib down%s ends it; --name OTHER starts another beside it", p.flag(), p.flag())
}

// trustedPorts are the ports that --trust-manager names: of hosts by their names, or any by its GUID.
func trustedPorts(g *topo.Graph, names string) (list []topo.PortRef, err error) {
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if n := g.ByName(name); n != nil {
			for p := range n.Ports {
				list = append(list, topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
			}
			continue
		}
		guid, err := ib.ParseGUID(name)
		ref, ok := g.ByPortGUID(guid)
		if err != nil || !ok {
			return nil, next(&usageError{fmt.Errorf("--trust-manager %s: no host and no port's GUID", name)},
				"softib topo show lists names and GUIDs")
		}
		list = append(list, ref)
	}
	return list, nil
}
