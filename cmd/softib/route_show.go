package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"softib/driver/live"
	"softib/operate/control"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

func newRouteShow() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [SWITCH] [HOST|LID]",
		Short: "Show the forwarding tables of a running fabric's switches",
		Long: `Shows the entries that the switches themselves hold, whoever programmed them:
by which port packets leave for an address, and where that port leads.

Without arguments, a line for each switch. With a SWITCH, its whole table and its
multicast groups. With a HOST or LID alone, every switch's entry for it.`,
		Example: `  softib route show
  softib route show leaf1
  softib route show leaf1 h9
  softib route show h9
  softib route show spine1 --json | jq '.[].groups'`,
		Args: arguments(0, 2, "at most a SWITCH and a HOST or LID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := routeRequest{Brief: len(args) == 0 && !asJSON}
			switch len(args) {
			case 2:
				r.Switch, r.To = args[0], args[1]
			case 1:
				r.Switch = args[0]
			}
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			list := []switchShown{}
			err = askFabric(cmd.Context(), p, opShow, r, func(s switchShown) error {
				list = append(list, s)
				return nil
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			t := newTerminal(cmd.OutOrStdout())
			switch {
			case len(list) > 0 && list[0].To != "":
				printEntries(t, list)
			case r.Brief:
				printSwitches(t, list)
			default:
				for _, s := range list {
					s.print(t)
				}
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// switchShown is a switch's tables for people and programs.
type switchShown struct {
	Switch string `json:"switch"`
	GUID   string `json:"guid"`
	LID    ib.LID `json:"lid"`
	// To is the one destination that was asked for, where one was.
	To string `json:"to,omitempty"`
	// Top is the last LID that the switch forwards, Filled counts its entries that name a port, Missing the addresses
	// in use that it has none for.
	Top     ib.LID `json:"top"`
	Filled  int    `json:"filled"`
	Missing int    `json:"missing"`
	// Ports counts the ports with a link that entries lead to; LeastUsed and MostUsed are how many addresses go by one
	// of them.
	Ports     int          `json:"ports"`
	LeastUsed int          `json:"least_used"`
	MostUsed  int          `json:"most_used"`
	Entries   []entryShown `json:"entries,omitempty"`
	Groups    []groupShown `json:"groups,omitempty"`
	NumGroups int          `json:"num_groups"`
}

type entryShown struct {
	LID ib.LID `json:"lid"`
	// Name is who has the LID; empty if nobody has.
	Name string     `json:"name,omitempty"`
	Port ib.PortNum `json:"port"` // 255 drops
	// To is where the port leads, and State the state of its link.
	To    string `json:"to,omitempty"`
	State string `json:"state,omitempty"`
}

type groupShown struct {
	MLID  string       `json:"mlid"`
	Ports []ib.PortNum `json:"ports"`
	To    []string     `json:"to"`
}

// show answers with the tables that were asked for.
func (s *server) show(_ context.Context, r routeRequest, out *control.Reply[switchShown]) error {
	f := s.f
	book := f.addresses()
	g := f.Graph()
	switches := g.Switches()
	var to *target
	one := func(word string) error {
		t, err := book.find(word)
		if err == nil && t.lid == 0 {
			err = next(fmt.Errorf("%s has no LID", word),
				"softib status shows whether a manager has brought the subnet up")
		}
		to = &t
		return err
	}
	switch {
	case r.Switch != "" && r.To == "":
		// One word is a switch, or a destination at all of them.
		t, err := book.find(r.Switch)
		if err != nil {
			return err
		}
		if t.has && g.Nodes[t.ref.Node].IsSwitch() && g.ByName(r.Switch) != nil {
			switches = []*topo.Node{g.Nodes[t.ref.Node]}
		} else if err := one(r.Switch); err != nil {
			return err
		}
	case r.Switch != "":
		n, err := book.findSwitch(r.Switch)
		if err != nil {
			return err
		}
		switches = []*topo.Node{n}
		if err := one(r.To); err != nil {
			return err
		}
	}
	for _, n := range switches {
		if err := out.Say(f.showSwitch(book, n, to, r.Brief)); err != nil {
			return err
		}
	}
	return nil
}

func (f *fabric) showSwitch(book *addressBook, n *topo.Node, to *target, brief bool) switchShown {
	t, _ := f.Tables(n.Index)
	out := switchShown{Switch: n.Name, GUID: n.GUID.String(), LID: t.LID, Top: ib.LID(len(t.LFT) - 1),
		NumGroups: len(t.Groups)}
	if to != nil {
		out.To = fmt.Sprintf("LID %d", to.lid)
		if to.has {
			out.To = fmt.Sprintf("%s, LID %d", f.endName(to.ref), to.lid)
		}
		out.Entries = []entryShown{f.showEntry(book, n, &t, to.lid)}
		return out
	}
	use := make([]int, len(n.Ports))
	for l := range ib.LID(len(t.LFT)) {
		_, wanted := book.who(l)
		p := t.LFT[l]
		if int(p) < len(use) {
			out.Filled++
			use[p]++
		} else if wanted {
			out.Missing++
		}
		if !brief && (wanted || int(p) < len(use)) {
			out.Entries = append(out.Entries, f.showEntry(book, n, &t, l))
		}
	}
	for l := len(t.LFT); l < len(book.owner); l++ {
		if book.owner[l].Node >= 0 {
			out.Missing++
		}
	}
	for p := 1; p < len(use); p++ {
		if use[p] == 0 {
			continue
		}
		if out.Ports == 0 || use[p] < out.LeastUsed {
			out.LeastUsed = use[p]
		}
		out.MostUsed = max(out.MostUsed, use[p])
		out.Ports++
	}
	if brief {
		return out
	}
	for _, g := range t.Groups {
		x := groupShown{MLID: fmt.Sprintf("0x%04x", int(g.MLID)), Ports: g.Ports}
		for _, p := range g.Ports {
			to, _ := f.leadsTo(n, p)
			x.To = append(x.To, to)
		}
		out.Groups = append(out.Groups, x)
	}
	return out
}

// showEntry is one entry of a switch.
func (f *fabric) showEntry(book *addressBook, n *topo.Node, t *live.SwitchTables, l ib.LID) entryShown {
	e := entryShown{LID: l, Name: book.name(l), Port: route.NoPort}
	if int(l) < len(t.LFT) {
		e.Port = t.LFT[l]
	}
	e.To, e.State = f.leadsTo(n, e.Port)
	return e
}

// leadsTo is what is at the other end of a switch's port.
func (f *fabric) leadsTo(n *topo.Node, p ib.PortNum) (to, state string) {
	switch {
	case p == 0:
		return n.Name, ""
	case p == route.NoPort:
		return "", ""
	case int(p) >= len(n.Ports):
		return "no such port", ""
	}
	x := &n.Ports[p]
	if !x.Connected() {
		return "no cable", status.StateName(ib.PortDown)
	}
	far := topo.PortRef{Node: x.Peer, Port: x.PeerPort}
	return f.Graph().PortName(far), status.StateName(min(f.PortState(topo.PortRef{Node: n.Index, Port: p}), f.PortState(far)))
}

// words is where an entry leads, for people.
func (e *entryShown) words(t *terminal) (port, to string) {
	switch {
	case e.Port == route.NoPort:
		return "-", t.red("nowhere: dropped")
	case e.Port == 0:
		return "0", "itself"
	case e.State == "":
		return fmt.Sprint(e.Port), t.red(e.To)
	case e.State != status.StateName(ib.PortActive):
		return fmt.Sprint(e.Port), e.To + " " + t.red(e.State)
	}
	return fmt.Sprint(e.Port), e.To
}

func (s *switchShown) print(t *terminal) {
	t.say("%s, LID %d: %s, the table ends at LID %d", t.bold(s.Switch), s.LID, numbered(s.Filled, "entry", "entries"),
		s.Top)
	if s.Missing > 0 {
		t.say("%s", t.red(numbered(s.Missing, "address in use has no entry", "addresses in use have no entry")))
	}
	name := len("destination")
	for _, e := range s.Entries {
		name = max(name, len(e.Name))
	}
	t.say("%6s  %-*s  %4s  %s", "LID", name, "destination", "port", "leads to")
	for _, e := range s.Entries {
		port, to := e.words(t)
		who := e.Name
		if who == "" {
			who = "nobody"
		}
		t.say("%6d  %-*s  %4s  %s", e.LID, name, who, port, to)
	}
	if len(s.Groups) == 0 {
		return
	}
	t.say("%6s  %s", "group", "ports, and where they lead")
	for _, g := range s.Groups {
		var parts []string
		for i, p := range g.Ports {
			parts = append(parts, fmt.Sprintf("%d:%s", p, g.To[i]))
		}
		for i, line := range wrapped(strings.Join(parts, " "), 70) {
			id := ""
			if i == 0 {
				id = g.MLID
			}
			t.say("%6s  %s", id, line)
		}
	}
}

// printEntries prints the entry of each switch for one destination.
func printEntries(t *terminal, list []switchShown) {
	t.say("to %s", t.bold(list[0].To))
	name := len("switch")
	for _, s := range list {
		name = max(name, len(s.Switch))
	}
	t.say("  %-*s  %4s  %s", name, "switch", "port", "leads to")
	for _, s := range list {
		port, to := s.Entries[0].words(t)
		t.say("  %-*s  %4s  %s", name, s.Switch, port, to)
	}
}

// printSwitches prints a line for each switch.
func printSwitches(t *terminal, list []switchShown) {
	if len(list) == 0 {
		t.say("the fabric has no switch: its hosts are cabled to each other")
		return
	}
	name := len("switch")
	for _, s := range list {
		name = max(name, len(s.Switch))
	}
	t.say("%-*s  %5s  %7s  %7s  %5s  %13s  %6s", name, "switch", "LID", "entries", "missing", "ports", "LIDs per port",
		"groups")
	for _, s := range list {
		missing := fmt.Sprintf("%7d", s.Missing)
		if s.Missing > 0 {
			missing = t.red(missing)
		}
		spread := fmt.Sprint(s.MostUsed)
		if s.LeastUsed != s.MostUsed {
			spread = fmt.Sprintf("%d to %d", s.LeastUsed, s.MostUsed)
		}
		t.say("%-*s  %5d  %7d  %s  %5d  %13s  %6d", name, s.Switch, s.LID, s.Filled, missing, s.Ports, spread,
			s.NumGroups)
	}
}
