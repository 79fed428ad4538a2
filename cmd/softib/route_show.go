package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"softib/node/inspect"
	"softib/operate/control"
	"softib/operate/forwarding"
	"softib/proto/ib"
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
			list := []forwarding.Switch{}
			err = askFabric(cmd.Context(), p, opShow, r, func(s forwarding.Switch) error {
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
				for i := range list {
					printSwitch(&list[i], t)
				}
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// show answers with the tables that were asked for.
func (s *server) show(_ context.Context, q routeRequest, r *control.Reply[forwarding.Switch]) error {
	return asUsage(forwarding.Show(s.f.Fabric, q.Switch, q.To, q.Brief, r.Say))
}

// entryWords is where an entry leads, for people.
func entryWords(e *forwarding.Entry, t *terminal) (port, to string) {
	switch {
	case e.Port == route.NoPort:
		return "-", t.red("nowhere: dropped")
	case e.Port == 0:
		return "0", "itself"
	case e.State == "":
		return fmt.Sprint(e.Port), t.red(e.To)
	case e.State != inspect.StateName(ib.PortActive):
		return fmt.Sprint(e.Port), e.To + " " + t.red(e.State)
	}
	return fmt.Sprint(e.Port), e.To
}

func printSwitch(s *forwarding.Switch, t *terminal) {
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
		port, to := entryWords(&e, t)
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
func printEntries(t *terminal, list []forwarding.Switch) {
	t.say("to %s", t.bold(list[0].To))
	name := len("switch")
	for _, s := range list {
		name = max(name, len(s.Switch))
	}
	t.say("  %-*s  %4s  %s", name, "switch", "port", "leads to")
	for _, s := range list {
		port, to := entryWords(&s.Entries[0], t)
		t.say("  %-*s  %4s  %s", name, s.Switch, port, to)
	}
}

// printSwitches prints a line for each switch.
func printSwitches(t *terminal, list []forwarding.Switch) {
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
