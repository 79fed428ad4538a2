package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/node/inspect"
	"softib/operate/control"
	"softib/operate/status"
	"softib/proto/ib"
)

func newStatus() *cobra.Command {
	var name string
	var asJSON bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a running fabric, its subnet and its manager",
		Long: `Shows what a running fabric is and how it is: links that are down or slower than
they could be, addresses and partitions, the subnet managers, whichever program
they are, routing, and the last sweep with the time of its phases; also where the
time of its start went, if that was more than a second.

What is said of links, addresses, partitions and managers is read from the nodes
themselves. The rest is what softib's own manager knows, if it is the master.`,
		Example: `  softib status
  softib status -w 1s
  softib status --name lab --json | jq .links_down`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			t := newTerminal(cmd.OutOrStdout())
			for first := true; ; first = false {
				st, err := p.status(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), st)
				} else {
					t.page(first)
					(*statusText)(st).print(t)
					for _, other := range p.running() {
						if other != name {
							t.say("also running: %s (softib status --name %s)", other, other)
						}
					}
				}
				if every <= 0 || err != nil {
					return err
				}
				select {
				case <-time.After(every):
				case <-cmd.Context().Done():
					return nil
				}
			}
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().DurationVarP(&every, "watch", "w", 0, "show it again every `TIME`, until Ctrl-C")
	return cmd
}

// printStatus prints a fabric's status for programs.
func (p place) printStatus(ctx context.Context, w io.Writer) error {
	st, err := p.status(ctx)
	if err != nil {
		return err
	}
	return printJSON(w, st)
}

// status asks a fabric how it is.
func (p place) status(ctx context.Context) (st *status.Status, err error) {
	err = askFabric(ctx, p, opStatus, control.None{}, func(s status.Status) error {
		st = &s
		return nil
	})
	if err == nil && st == nil {
		err = fmt.Errorf("fabric %s answered without a status", p.name)
	}
	return st, err
}

// page begins a page that replaces the one before, where it can.
func (t *terminal) page(first bool) {
	switch {
	case t.isTTY && !first:
		fmt.Fprint(t.w, "\x1b[H\x1b[2J")
	case !first:
		t.say("")
	}
}

// jsonFlag gives a command its --json.
func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// printJSON prints a value for programs.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// namedMost is how many links, partitions and the like are named one by one.
const namedMost = 8

// listing prints lines under one label.
type listing struct {
	to    interface{ say(string, ...any) }
	label string
}

// under starts the lines of a label.
func (t *terminal) under(label string) *listing { return &listing{t, label} }
func (r *reporter) under(label string) *listing { return &listing{r, label} }

func (l *listing) say(format string, v ...any) {
	l.to.say("%-9s %s", l.label, fmt.Sprintf(format, v...))
	l.label = ""
}

// few calls each for the first few of n things and says how many it left out.
func (l *listing) few(n int, what string, each func(i int)) {
	for i := range min(n, namedMost) {
		each(i)
	}
	if n > namedMost {
		l.say("and %d %s more: --json lists them", n-namedMost, what)
	}
}

// statusText prints a fabric's status for people.
type statusText status.Status

func (s *statusText) print(t *terminal) {
	t.say("fabric    %s, process %d, up %s", t.bold(s.Name), s.PID, uptime(s.UptimeSec))
	startLines(s.Start, t.under("start"))
	if l := t.under("topology"); 10+len(s.Topology)+2+len(s.Description) <= 80 {
		l.say("%s: %s", s.Topology, s.Description)
	} else {
		l.say("%s", s.Topology)
		rows(l, s.Description)
	}
	if s.Page != "" {
		t.under("page").say("%s", s.Page)
	}
	if s.Shared != "" {
		t.under("shared").say("with group %s: softib exec --name %s HOST -- CMD", s.Shared, s.As)
	}
	hosts := fmt.Sprintf("%d of %d ACTIVE", s.HostsActive, s.Hosts)
	if s.HostsActive == s.Hosts {
		hosts = t.green(hosts)
	} else {
		hosts = t.red(hosts)
	}
	t.under("hosts").say("%s", hosts)
	if len(s.Interfaces) > 0 {
		for i := range s.Interfaces {
			t.under(s.Interfaces[i].Name).say("%s", interfaceText(&s.Interfaces[i]))
		}
		t.under("sent").say("%s, %s", numbered(int(s.Packets), "packet", "packets"), bytesOf(s.Bytes))
		return
	}
	s.printMachines(t)
	s.printLinks(t)
	s.printSubnet(t)
	s.printManagers(t)
	s.printRouting(t)
	s.printSweep(t)
	if c := s.Manager; c != nil {
		problems := numbered(int(c.Problems), "problem", "problems")
		if c.Problems > 0 {
			problems = t.red(problems)
		}
		t.under("events").say("%s, %s, %s, %s: softib log", numbered(int(c.Sweeps), "sweep", "sweeps"),
			numbered(int(c.LightSweeps), "light sweep", "light sweeps"),
			numbered(int(c.Traps), "trap", "traps"), problems)
		a := c.SA
		text := fmt.Sprintf("%s, %s", numbered(int(a.Requests), "request", "requests"),
			numbered(int(a.Responses), "answer", "answers"))
		for _, x := range []struct {
			n    uint64
			what string
		}{{a.Errors, "with errors"}, {a.Malformed, "malformed"}, {a.BadSMKey, "with a wrong SM_Key"},
			{a.Strangers, "from strangers"}, {a.Reports, "reports sent"}} {
			if x.n > 0 {
				text += fmt.Sprintf(", %d %s", x.n, x.what)
			}
		}
		t.under("sa").say("%s", text)
	}
	s.printPrograms(t)
	t.under("carried").say("%s, %s", numbered(int(s.Packets), "packet", "packets"), bytesOf(s.Bytes))
}

// startLines says where the time of a start went, a line at a time.
func startLines(steps []status.Step, l *listing) {
	if text := stepsText(steps); text != "" {
		for _, line := range wrapped(text, 70) {
			l.say("%s", line)
		}
	}
}

func (s *statusText) printLinks(t *terminal) {
	l := t.under("links")
	if len(s.LinkKinds) == 0 {
		l.say("none")
	}
	for _, k := range s.LinkKinds {
		text := fmt.Sprintf("%d %s", k.Count, k.State)
		switch k.State {
		case inspect.StateName(ib.PortActive):
			text = t.green(text)
		case inspect.StateName(ib.PortDown):
			l.say("%s", t.red(text))
			continue
		}
		l.say("%s at %s, %g Gb/s of data", text, k.Rate, k.Gbps)
	}
	l.few(len(s.LinksDown), "down", func(i int) { l.say("  DOWN      %s - %s", s.LinksDown[i].A, s.LinksDown[i].B) })
	l.few(len(s.LinksDegraded), "degraded", func(i int) {
		d := s.LinksDegraded[i]
		why := ""
		if d.Why != "" {
			why = ", " + d.Why
		}
		l.say("  %s  %s - %s: %s of %s%s", t.red("degraded"), d.A, d.B, d.Rate, d.Best, why)
	})
}

func (s *statusText) printSubnet(t *terminal) {
	n := &s.Subnet
	if n.LIDs == 0 {
		t.under("subnet").say("%s", t.red("no port has an address"))
		return
	}
	lids := fmt.Sprintf("%s in use", numbered(n.LIDs, "LID", "LIDs"))
	if n.LIDs > 1 {
		lids += fmt.Sprintf(", %d to %d", n.LIDMin, n.LIDMax)
	} else {
		lids += fmt.Sprintf(": %d", n.LIDMin)
	}
	lmc := "LMC " + fmt.Sprint(n.LMCMax)
	if n.LMCMin != n.LMCMax {
		lmc = fmt.Sprintf("LMC %d to %d", n.LMCMin, n.LMCMax)
	}
	if len(s.Subnets) == 0 {
		t.under("subnet").say("%s/64, %s, %s", n.Prefix, lids, lmc)
	}
	l := t.under("subnets")
	l.few(len(s.Subnets), "subnets", func(i int) {
		x := &s.Subnets[i]
		l.say("%s/64: %s, %s, %s, LIDs %d to %d", x.Prefix, numbered(x.Hosts, "host", "hosts"),
			numbered(x.Switches, "switch", "switches"), numbered(x.Routers, "router", "routers"), x.LIDMin, x.LIDMax)
	})
	l = t.under("partition")
	l.few(len(n.Partitions), "partitions", func(i int) {
		p := n.Partitions[i]
		text := p.Key
		if p.Name != "" {
			text += " " + p.Name
		}
		members := numbered(p.Full, "full member", "full members")
		if p.Limited > 0 {
			members += ", " + numbered(p.Limited, "limited one", "limited ones")
		}
		l.say("%s: %s", text, members)
	})
	if n.MKeyProtect >= 2 {
		whose := "one for all ports"
		if n.MKeyPerPort {
			whose = "one for each port"
		}
		t.under("guard").say("M_Keys of level %d, %s: nodes answer who manages them, and no host's smpquery or opensm",
			n.MKeyProtect, whose)
	}
}

// printMachines says which machines have a part of the fabric.
func (s *statusText) printMachines(t *terminal) {
	l := t.under("machines")
	for i := range s.Machines {
		l.say("%s", machineText(&s.Machines[i]))
	}
}

// machineText says what a machine has of the fabric, and whether it is there.
func machineText(m *status.Machine) string {
	text := fmt.Sprintf("%s: %s, %s", m.Name, numbered(m.Hosts, "host", "hosts"),
		numbered(m.Switches, "switch", "switches"))
	switch {
	case m.Here:
		text += "; this one"
	case m.Reached:
		text += "; reached"
	default:
		text += "; not reached"
	}
	if m.Master {
		text += ", manages the subnet"
	}
	if m.Lines > 0 {
		text += fmt.Sprintf(", %s of programs here lead there directly", numbered(m.Lines, "way", "ways"))
	}
	if !m.Reached && m.Why != "" {
		text += ": " + m.Why
	}
	return text
}

func (s *statusText) printManagers(t *terminal) {
	l := t.under("manager")
	if len(s.Managers) == 0 {
		l.say("%s", t.red("none runs on this fabric")+": softib sm, or softib exec HOST -- opensm")
	}
	for _, m := range s.Managers {
		text := m.State
		if m.State == "Master" {
			text = t.green(text)
		}
		who := "another program"
		switch {
		case m.Own:
			who = "softib's"
		case m.Machine != "":
			who = "of machine " + m.Machine
		}
		at := "no LID yet"
		if m.LID != 0 {
			at = fmt.Sprintf("LID %d", m.LID)
		}
		key := "no SM_Key"
		if m.SMKeySet {
			key = "SM_Key set"
		}
		if m.State == "" {
			l.say("%s on %s, %s: %s", t.red("silent"), m.Port, at, who)
			continue
		}
		l.say("%s on %s, %s: %s, priority %d, %s", text, m.Port, at, who, m.Priority, key)
	}
	for _, p := range s.Subnet.MasterLIDs {
		if p.Known {
			continue
		}
		l.say("%s", t.red(fmt.Sprintf("%s for master LID %d, where none answers",
			numbered(p.Ports, "port takes", "ports take"), p.LID)))
	}
}

func (s *statusText) printRouting(t *terminal) {
	l := t.under("routing")
	r := s.Routing
	if r == nil {
		for _, m := range s.Managers {
			if m.State == "Master" {
				l.say("up to the manager on %s: softib route check judges its tables", m.Port)
				return
			}
		}
		l.say("none")
		return
	}
	l.say("%s on %s, of the chain %s", t.bold(r.Engine), numbered(r.VLs, "lane", "lanes"), r.Chain)
	for _, why := range r.Refused {
		for i, line := range wrapped(why, 70-len("refused: ")) {
			if i == 0 {
				line = "refused: " + line
			} else {
				line = "         " + line
			}
			l.say("%s", line)
		}
	}
}

// wrapped cuts a text into lines at its spaces.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for w := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(w) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return append(lines, line)
}

func (s *statusText) printSweep(t *terminal) {
	w := s.Sweep
	if w == nil {
		return
	}
	l := t.under("sweep")
	kind := "of a few switches"
	if w.Full {
		kind = "of everything"
	}
	l.say("%s ago, %s, in %s with %s", uptime(w.AgoSec), kind, seconds(w.TookSec),
		numbered(w.Datagrams, "datagram", "datagrams"))
	for i, line := range wrapped(w.Why, 65) {
		if i == 0 {
			line = "why: " + line
		} else {
			line = "     " + line
		}
		l.say("%s", line)
	}
	if w.Problems > 0 {
		l.say("%s: softib log", t.red(numbered(w.Problems, "problem", "problems")))
	}
	l.say("%s", t.bold(fmt.Sprintf("  %-20s %10s %10s", "phase", "time", "datagrams")))
	after := false
	for _, p := range w.Phases {
		if p.Datagrams > 0 || p.TookSec > w.TookSec/100 {
			if p.After && !after {
				after = true
				l.say("  then, with the subnet up:")
			}
			l.say("  %-20s %10s %10d", p.Name, seconds(p.TookSec), p.Datagrams)
		}
	}
}

// seconds prints a time in the unit that suits it, with three digits.
func seconds(s float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}} {
		if s >= u.size {
			return fmt.Sprintf("%.3g%s", s/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0fµs", s*1e6)
}

func uptime(sec float64) string {
	d := time.Duration(sec * float64(time.Second))
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// bytesOf prints a size in the largest fitting unit.
func bytesOf(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
