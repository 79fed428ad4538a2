package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/internal/files"
	"softib/operate/forwarding"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// lftsMax is more than the dump of a fat tree of 11,664 hosts has, which is some 1.7 GB.
const lftsMax = 4 << 30

func newRouteCheck() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [TOPOLOGY]",
		Short: "Judge forwarding tables: a fabric's, a file's, or an engine's",
		Long: `Judges forwarding tables, whoever made them: whether all pairs of hosts reach
each other, whether packets can go round in a loop or wait for each other in a
deadlock, how long the ways are, how evenly they use the links, and how much of
the bandwidth is left when everybody sends at once. The exit status is 1 if the
tables are not good.

Without TOPOLOGY these are the tables that the switches of a running fabric hold.
With one, they are what a routing engine gives for it (--engine), or the file that
OpenSM or dump_lfts left (--lfts). No fabric is needed then.

--adaptive also finds the groups of ports from which switches may choose, as with
softib sim --adaptive, and follows every choice that they have.

--compare judges several engines side by side, beside the tables in force if the
fabric runs.

` + topologyHelp(),
		Example: `  softib route check
  softib route check --compare ftree,updn,dfsssp
  softib route check fat-tree:radix=36,levels=3 --engine ftree --remove 1%
  softib route check fat-tree:radix=16,levels=3 --adaptive --remove 1%
  softib route check dragonfly:a=8,h=4,p=4 --engine dragonfly --adaptive
  softib route check torus:4x4x4 --compare all
  softib route check cluster.topo --lfts opensm-lfts.dump`,
		Args: arguments(0, 1, "at most one TOPOLOGY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.topo != "" && len(args) == 1 {
				return usage(cmd, errors.New("two topologies: name one, as TOPOLOGY or with --topo"))
			}
			if len(args) == 1 {
				o.topo = args[0]
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.topo, "topo", "", "the `TOPOLOGY`, if it is not an argument")
	f.StringVar(&o.engine, "engine", "", "judge what the first engine of `CHAIN` that fits gives: some of "+
		strings.Join(route.Names(), ", "))
	f.StringVar(&o.compare, "compare", "", "judge each of these `ENGINES`, or all, in one table")
	f.StringVar(&o.lfts, "lfts", "", "judge the tables in `FILE`, from opensm-lfts.dump or dump_lfts")
	f.StringVar(&o.remove, "remove", "", "take so many cables between switches away first, by chance: `1%` or a number")
	f.Uint64Var(&o.seed, "seed", 1, "what chance starts from")
	f.IntVar(&o.vls, "vls", 0, "data lanes that engines may use; 0 for 8")
	f.BoolVar(&o.adaptive, "adaptive", false, "what switches may choose from, too, beside the engine's tables")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	nameFlag(cmd, &o.name)
	return cmd
}

type checkOptions struct {
	name, topo, engine, compare, lfts, remove string
	seed                                      uint64
	vls                                       int
	adaptive, asJSON                          bool
}

// judged is one table set and what it is worth.
type judged struct {
	Subject string `json:"subject"`
	Engine  string `json:"engine"`
	// Refused is why an engine gave no tables; there is no report then.
	Refused []string `json:"refused,omitempty"`
	OK      bool     `json:"ok"`
	// TookSec is how long an engine took.
	TookSec float64       `json:"took_sec,omitempty"`
	Report  *route.Report `json:"report,omitempty"`
	// Switches are the names behind the numbers in the report; Loop and Deadlock are written out.
	Switches []string `json:"switches,omitempty"`
	Loop     []string `json:"loop,omitempty"`
	Deadlock []string `json:"deadlock,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	// Mended is what --remove changes in tables that were there before.
	Mended *mending `json:"mended,omitempty"`
	// Choices are what switches may choose from, with --adaptive.
	Choices *route.Choices `json:"choices,omitempty"`

	w *forwarding.Network
}

// checking is one run of the command.
type checking struct {
	o     *checkOptions
	w     *forwarding.Network
	title string
	out   *reporter
	notes []string
	whole *route.Network // before cables were taken away
}

// during does something that takes a while and cannot be interrupted; if the user will not wait, nobody waits for it.
func (c *checking) during(ctx context.Context, what string, do func()) error {
	return c.out.during(what, func() error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			do()
		}()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (o *checkOptions) run(cmd *cobra.Command) error {
	if o.vls < 0 || o.vls > 15 {
		return usage(cmd, fmt.Errorf("--vls %d: want 1 to 15 data lanes, or 0", o.vls))
	}
	if o.engine != "" && o.compare != "" || o.lfts != "" && o.engine != "" {
		return usage(cmd, errors.New("--engine, --compare and --lfts each say what to judge: use one of them, "+
			"or --lfts with --compare"))
	}
	if o.topo == "" && (o.lfts != "" || o.remove != "") {
		return usage(cmd,
			errors.New("--lfts and --remove need a TOPOLOGY: a running fabric has its own tables and links"))
	}
	if o.adaptive && (o.lfts != "" || o.topo == "") {
		return usage(cmd, errors.New("--adaptive goes with the tables of an engine: name a TOPOLOGY"))
	}
	engines, err := o.engines()
	if err != nil {
		return next(&usageError{err}, "softib route check --compare all")
	}
	c := &checking{o: o, out: toTerminal(newTerminal(cmd.ErrOrStderr()))}
	var list []*judged
	if o.topo == "" {
		p, err := newPlace(o.name)
		if err != nil {
			return err
		}
		var h *forwarding.Held
		err = c.out.during("reading the tables", func() (err error) {
			h, err = p.heldTables(cmd.Context(), routeRequest{})
			return err
		})
		if err != nil {
			return err
		}
		c.w, c.title = h.Network, "fabric "+o.name
		if len(h.Network.Net.Dests) == 0 || len(h.Network.Net.Switches) == 0 {
			return p.nothingToJudge(h.Network)
		}
		if o.engine == "" {
			x, err := c.judge(cmd.Context(), "in force", h.Tables(), 0)
			if err != nil {
				return err
			}
			if o.compare == "" {
				x.Notes = append(x.Notes, "service levels: "+h.Network.Levels)
			}
			list = append(list, x)
		}
	} else if list, err = c.topology(cmd.Context()); err != nil {
		return err
	}
	for _, chain := range engines {
		x, err := c.engine(cmd.Context(), chain)
		if err != nil {
			return err
		}
		list = append(list, x)
	}
	return c.print(newTerminal(cmd.OutOrStdout()), list)
}

// nothingToJudge is the error of a fabric without tables.
func (p place) nothingToJudge(w *forwarding.Network) error {
	if len(w.Net.Switches) == 0 {
		return next(fmt.Errorf("fabric %s has no switch: there is nothing to judge", p.name),
			"softib route trace%s shows the way between two hosts", p.flag())
	}
	return next(fmt.Errorf("no port of fabric %s has an address: its subnet is not up", p.name),
		"softib sm%s, or softib exec%s HOST -- opensm", p.flag(), p.flag())
}

// engines are the chains to judge one by one.
func (o *checkOptions) engines() ([]string, error) {
	switch {
	case o.compare == "all":
		return route.Names(), nil
	case o.compare != "":
		_, err := route.ParseChain(o.compare)
		var list []string
		for name := range strings.SplitSeq(o.compare, ",") {
			list = append(list, strings.TrimSpace(name))
		}
		return list, err
	case o.engine != "":
		_, err := route.ParseChain(o.engine)
		return []string{o.engine}, err
	case o.topo != "" && o.lfts == "":
		return []string{sm.DefaultEngines}, nil
	}
	return nil, nil
}

// topology makes the network of a topology and, where a file has its tables, judges those.
func (c *checking) topology(ctx context.Context) ([]*judged, error) {
	o := c.o
	g, err := loadTopology(c.out, o.topo)
	if err != nil {
		return nil, err
	}
	c.title = o.topo
	var dump *route.LFTDump
	if o.lfts == "" {
		c.w = forwarding.Named(route.FromGraph(g), g)
	} else {
		text, err := files.ReadText(o.lfts, lftsMax)
		if err != nil {
			return nil, next(err,
				"opensm -D 0x43 leaves opensm-lfts.dump in its dump folder; dump_lfts prints the like")
		}
		if dump, err = route.ParseLFTDump(o.lfts, text); err != nil {
			return nil, err
		}
		c.w = forwarding.Named(route.FromGraphLIDs(g, dumpLIDs(g, dump)), g)
	}
	if len(c.w.Net.Switches) == 0 {
		return nil, next(fmt.Errorf("%s has no switch: there is nothing to route", o.topo),
			"softib route check fat-tree:radix=8,levels=2")
	}
	if err := c.removeLinks(); err != nil {
		return nil, err
	}
	if dump == nil {
		return nil, nil
	}
	t, missing := dump.Tables(c.w.Net)
	if len(missing) == len(c.w.Net.Switches) {
		return nil, next(fmt.Errorf("%s has no switch of %s", o.lfts, o.topo),
			"take both files from one fabric: the switches' GUIDs have to be the same")
	}
	x, err := c.judge(ctx, filepath.Base(o.lfts), t, 0)
	if err != nil {
		return nil, err
	}
	for i, s := range missing {
		if i == namedMost {
			x.Notes = append(x.Notes, fmt.Sprintf("and %d more have no table in the file", len(missing)-i))
			break
		}
		x.Notes = append(x.Notes, c.w.Switches[s]+" has no table in the file: it drops everything")
	}
	x.Notes = append(x.Notes, "the file has no service levels: one lane is assumed in the search for deadlocks")
	return []*judged{x}, nil
}

// dumpLIDs are the addresses of a dump of tables, or else those of the topology's file.
func dumpLIDs(g *topo.Graph, d *route.LFTDump) func(topo.PortRef) (ib.LID, uint8) {
	return func(r topo.PortRef) (ib.LID, uint8) {
		hint := g.Port(r)
		if l, ok := d.LIDs[g.Nodes[r.Node].PortGUID(r.Port)]; ok {
			return l, hint.LMC
		}
		return hint.LID, hint.LMC
	}
}

// removeLinks takes cables away as --remove says.
func (c *checking) removeLinks() error {
	text := c.o.remove
	if text == "" {
		return nil
	}
	links := len(c.w.Net.Links())
	fraction := 0.0
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		v, err := strconv.ParseFloat(percent, 64)
		if err != nil || v < 0 || v > 100 {
			return next(&usageError{fmt.Errorf("--remove %s: want 0%% to 100%%", text)}, "--remove 1%%")
		}
		fraction = v / 100
	} else {
		v, err := strconv.Atoi(text)
		if err != nil || v < 0 || v > links {
			return next(&usageError{fmt.Errorf("--remove %s: want a percentage, or a number of the %d cables "+
				"between switches", text, links)}, "--remove 1%%")
		}
		fraction = float64(v) / float64(max(links, 1))
	}
	c.whole = c.w.Net
	c.w.Net = route.RemoveLinks(c.whole, fraction, rand.New(rand.NewPCG(c.o.seed, 0)))
	c.notes = append(c.notes, fmt.Sprintf("taken away: %d of %s between switches (seed %d)", links-len(c.w.Net.Links()),
		numbered(links, "cable", "cables"), c.o.seed))
	return nil
}

// engine computes and judges.
func (c *checking) engine(ctx context.Context, chain string) (*judged, error) {
	var res route.Result
	var err error
	opts := route.Options{VLs: c.o.vls, Adaptive: c.o.adaptive}
	began := time.Now()
	if stopped := c.during(ctx, "routing by "+chain,
		func() { res, err = route.Compute(c.w.Net, chain, opts) }); stopped != nil {
		return nil, stopped
	}
	took := time.Since(began)
	var refused []string
	for _, e := range res.Refused {
		why := e.Error()
		if unfit, ok := errors.AsType[*route.UnfitError](e); ok {
			why = unfit.Engine + ": " + unfit.Named(func(s int32) string { return c.w.Switches[s] })
		}
		refused = append(refused, why)
	}
	if err != nil {
		if !errors.Is(err, route.ErrUnfit) {
			return nil, err
		}
		return &judged{Subject: c.title, Engine: chain, Refused: refused, w: c.w}, nil
	}
	x, err := c.judge(ctx, res.Tables.Engine, res.Tables, took)
	if err != nil {
		return nil, err
	}
	x.Refused = refused
	if c.o.adaptive {
		if err := c.during(ctx, "following every choice", func() {
			var g *route.Groups
			if g, err = route.Adaptive(c.w.Net, res.Tables); err == nil {
				choices := route.JudgeGroups(c.w.Net, res.Tables, g)
				x.Choices, x.OK = &choices, x.OK && choices.OK()
			}
		}); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, err
		}
	}
	if c.whole != nil {
		err = c.during(ctx, "mending", func() { x.Mended = c.mend(res.Tables.Engine, opts) })
	}
	return x, err
}

// mend routes the whole network and says what changes when the cables go: what a manager has to write.
func (c *checking) mend(engine string, o route.Options) *mending {
	before, err := route.Compute(c.whole, engine, o)
	if err != nil {
		return nil
	}
	began := time.Now()
	r, err := route.Repair(c.w.Net, before.Tables, o)
	if err != nil {
		return nil
	}
	m := &mending{TookSec: time.Since(began).Seconds(), Whole: r.Full, Change: route.Diff(before.Tables, r.Tables)}
	m.BySwitch = nil
	return m
}

// mending is what changes in tables of a whole network when its cables go.
type mending struct {
	route.Change
	TookSec float64 `json:"took_sec"`
	// Whole says that the engine had to start over.
	Whole bool `json:"whole"`
}

// judge judges one table set.
func (c *checking) judge(ctx context.Context, label string, t *route.Tables, took time.Duration) (*judged, error) {
	x := &judged{Subject: c.title, Engine: label, TookSec: took.Seconds(), w: c.w, Switches: c.w.Switches,
		Notes: c.notes}
	var r route.Report
	if err := c.during(ctx, "judging "+label, func() {
		r = route.Judge(c.w.Net, t,
			route.JudgeOptions{Seed: c.o.seed})
	}); err != nil {
		return nil, err
	}
	x.Report, x.OK = &r, r.OK()
	for _, s := range x.Report.Loop {
		x.Loop = append(x.Loop, c.w.Step(s.Switch, s.Port))
	}
	for _, ch := range x.Report.Cycle {
		x.Deadlock = append(x.Deadlock, fmt.Sprintf("%s on VL %d", c.w.Step(ch.Switch, ch.Port), ch.VL))
	}
	return x, nil
}

// print shows everything, and is an error if something is broken.
func (c *checking) print(t *terminal, list []*judged) error {
	if c.o.asJSON {
		if err := printJSON(t.w, list); err != nil {
			return err
		}
	} else if len(list) == 1 {
		list[0].print(t)
	} else {
		c.printTable(t, list)
	}
	bad, tried := "", 0
	for _, x := range list {
		if x.Report != nil {
			tried++
		}
		if x.Report != nil && !x.OK && bad == "" {
			bad = x.Engine
		}
	}
	switch {
	case tried == 0:
		return next(fmt.Errorf("no engine fits %s", c.title),
			"softib route check %s --engine updn or dfsssp, which fit everything", c.o.topo)
	case bad != "" && c.o.topo == "" && bad == "in force":
		return next(fmt.Errorf("the tables in force on %s are not good", c.title),
			"softib log says what the manager did; softib route trace follows one way; softib route check%s "+
				"--compare all finds an engine that does better", place{name: c.o.name}.flag())
	case bad != "":
		return next(fmt.Errorf("the tables of %s are not good for %s", bad, c.title),
			"softib route check %s --compare all finds an engine that does better", c.o.topo)
	}
	return nil
}
