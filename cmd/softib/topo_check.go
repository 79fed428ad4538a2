package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"softib/operate/wiring"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// findingsListed is how many findings are listed unless all are wanted.
const findingsListed = 20

func newTopoCheck() *cobra.Command {
	var o topoCheckOptions
	cmd := &cobra.Command{
		Use:   "check TOPOLOGY|live",
		Short: "Say whether a fabric is the fat tree that it should be",
		Long: `Looks for missing, extra, swapped and miswired cables, for links that run slower
than they should, and for switches with too many or too few cables, and says how
oversubscribed each level is and what is left of the bisection bandwidth, as wired
and as routed. The exit status is 1 if there is anything to mend; notes are none.

With --plan the fabric is compared with what it should be, cable by cable. Nodes
are found by GUID, else by where they are plugged in, else by name. Without a plan
the tree is inferred: what most switches of a level do, all of them should do. That
shows everything that costs bandwidth, but not two hosts that changed places, nor a
host in another leaf than it belongs to, if leaves have different numbers of hosts.

Bisection as wired is the largest flow between two halves of the hosts, each as few
whole subtrees as can be: no routing can do better. As routed it is what random
permutations get with the tables in force, or with those of the manager's engines.

` + topologyHelp() + liveHelp,
		Example: `  softib topo check live
  softib topo check live --plan cluster.topo
  softib topo check cluster.topo --plan fat-tree:radix=40,levels=2,speed=HDR
  ibnetdiscover > cluster.topo; softib topo check cluster.topo`,
		Args: arguments(1, 1, "one TOPOLOGY"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.plan, "plan", "", "compare with `TOPOLOGY`, the fabric as it should be")
	f.BoolVar(&o.all, "all", false, fmt.Sprintf("list all findings, not only the first %d", findingsListed))
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	nameFlag(cmd, &o.name)
	return cmd
}

type topoCheckOptions struct {
	plan, name  string
	all, asJSON bool
}

// checked is what --json prints.
type checked struct {
	Subject string `json:"subject"`
	Plan    string `json:"plan,omitempty"`
	*wiring.Report
}

func (o *topoCheckOptions) run(cmd *cobra.Command, subject string) error {
	out := toTerminal(newTerminal(cmd.ErrOrStderr()))
	l, err := loadOrLive(cmd.Context(), out, subject, o.name)
	if err != nil {
		return err
	}
	opts := wiring.Options{Engines: sm.DefaultEngines, Seed: 1}
	if l.held != nil && len(l.held.Network.Net.Dests) > 0 {
		opts.Net, opts.Tables = l.held.Network.Net, l.held.Tables()
	}
	if o.plan != "" {
		plan, err := loadOrLive(cmd.Context(), out, o.plan, o.name)
		if err != nil {
			return err
		}
		opts.Plan = plan.Graph
	}
	x := checked{Subject: l.title, Plan: o.plan}
	if err := checkWiring(cmd.Context(), out, &x, l.Graph, opts); err != nil {
		return err
	}
	t := newTerminal(cmd.OutOrStdout())
	if o.asJSON {
		if err := printJSON(t.w, x); err != nil {
			return err
		}
	} else {
		x.print(t, l.held != nil, o.all)
	}
	if x.OK {
		return nil
	}
	advice := fmt.Sprintf("mend what is listed, then softib topo check %s again", subject)
	if !x.Planned {
		advice += "; --plan TOPOLOGY compares it with a plan"
	}
	return next(fmt.Errorf("%s is not wired as it should be: %s", l.title, x.counts()), "%s", advice)
}

// checkWiring checks while the user may interrupt.
func checkWiring(ctx context.Context, out *reporter, x *checked, g *topo.Graph, o wiring.Options) error {
	c := &checking{out: out}
	return c.during(ctx, "checking the wiring", func() { x.Report = wiring.Check(g, o) })
}

// counts sums the findings up.
func (x *checked) counts() string {
	var parts []string
	if n := x.Count(wiring.Broken); n > 0 {
		parts = append(parts, fmt.Sprintf("%d broken", n))
	}
	if n := x.Count(wiring.Warning); n > 0 {
		parts = append(parts, numbered(n, "warning", "warnings"))
	}
	if n := x.Count(wiring.Note); n > 0 {
		parts = append(parts, numbered(n, "note", "notes"))
	}
	if len(parts) == 0 {
		return "no findings"
	}
	return strings.Join(parts, ", ")
}

func (x *checked) print(t *terminal, isLive, all bool) {
	for i, line := range wrapped(fmt.Sprintf("%s: %s", x.Subject, x.Describe), 78) {
		if i == 0 {
			line = strings.Replace(line, x.Subject, t.bold(x.Subject), 1)
		}
		t.say("%s", line)
	}
	verdict := t.green("it can work as it is wired") + ", " + x.counts()
	if !x.OK {
		verdict = t.red("NOT AS IT SHOULD BE") + ": " + x.counts()
	}
	t.under("verdict").row("%s", verdict)
	if x.Planned {
		rows(t.under("plan"), fmt.Sprintf("%s; found there: %v", x.Plan, *x.Matched))
	}
	if x.IsTree {
		words := numbered(len(x.Levels), "level", "levels")
		if !x.Planned {
			words += "; inferred from what most switches do"
			if !x.PortRules && len(x.Levels) > 1 {
				words += ", by nodes only: ports follow no rule"
			}
		}
		rows(t.under("fat tree"), words)
		x.printLevels(t)
	} else {
		rows(t.under("fat tree"), "no: "+x.NotATree)
	}
	x.printBisection(t, isLive)
	x.printFindings(t, all)
}

// rows prints a text under a label, wrapped.
func rows(l *listing, text string) {
	for _, line := range wrapped(text, 66) {
		l.row("%s", line)
	}
}

func (x *checked) printLevels(t *terminal) {
	for i, v := range x.Levels {
		what := "cables down"
		if i == 0 {
			what = "host ports"
		}
		text := fmt.Sprintf("%s, %d %s (%s)", numbered(v.Switches, "switch", "switches"), v.Down, what,
			bandwidth(v.DownMbps))
		if i+1 < len(x.Levels) {
			text += fmt.Sprintf(", %d up (%s)", v.Up, bandwidth(v.UpMbps))
		}
		l := t.under(v.Name)
		rows(l, text)
		if v.Oversubscription > 0 {
			text = fmt.Sprintf("%.2f:1 oversubscribed", v.Oversubscription)
			switch {
			case v.Oversubscription <= 1:
				text = "1:1, not oversubscribed"
			case v.Oversubscription < 1.005:
				text = "about 1:1"
			}
			if v.Worst > v.Oversubscription*1.001 {
				text += fmt.Sprintf(", %.2f:1 at %s", v.Worst, v.WorstAt)
			}
			rows(l, text)
		}
		if v.Cut > 0 {
			rows(l, fmt.Sprintf("%s no cable up", numbered(v.Cut, "switch has", "switches have")))
		}
	}
}

// bandwidth writes Mbit/s with the unit that suits.
func bandwidth(mbps int64) string {
	switch v := float64(mbps); {
	case v >= 1e6:
		return fmt.Sprintf("%.4g Tbit/s", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.4g Gbit/s", v/1e3)
	}
	return fmt.Sprintf("%d Mbit/s", mbps)
}

func (x *checked) printBisection(t *terminal, isLive bool) {
	b := x.Bisection
	if b == nil {
		return
	}
	l := t.under("bisection")
	half := numbered(b.Hosts, "host", "hosts")
	if 2*b.Hosts > x.Hosts { // some have several
		half = numbered(b.Hosts, "host port", "host ports")
	}
	rows(l, fmt.Sprintf("as wired %s of %s between two halves of %s (%.1f %%)", bandwidth(b.WiredMbps),
		bandwidth(b.FullMbps), half, 100*b.Wired))
	how := "as routed by " + b.Engine
	if isLive {
		how = "as routed with the tables in force"
		if b.Engine != "" {
			how += ", by " + b.Engine
		}
	}
	if b.Routed != nil {
		rows(l, fmt.Sprintf("%s: %.1f %% under random permutations, %.1f %% under shifts", how, 100**b.Routed,
			100**b.Shift))
	}
	if b.RoutedBad != "" {
		rows(l, "the tables are not good: "+b.RoutedBad)
	}
}

func (x *checked) printFindings(t *terminal, all bool) {
	for i, f := range x.Findings {
		if i == findingsListed && !all {
			t.say("and %d more: --all lists them", len(x.Findings)-i)
			return
		}
		if i == 0 {
			t.say("")
		}
		word := fmt.Sprintf("%-8v", f.Severity)
		if f.Severity != wiring.Note {
			word = t.red(word)
		}
		for j, line := range wrapped(fmt.Sprintf("%v: %s", f.Kind, f.Text), 70) {
			if j > 0 {
				word = strings.Repeat(" ", 8)
			}
			t.say("%s %s", word, line)
		}
		if f.Do != "" {
			for _, line := range wrapped("-> "+f.Do, 70) {
				t.say("%8s %s", "", line)
			}
		}
	}
}
