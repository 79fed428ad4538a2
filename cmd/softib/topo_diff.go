package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"softib/operate/wiring"
)

func newTopoDiff() *cobra.Command {
	var o struct {
		name        string
		all, asJSON bool
	}
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Say what differs between two topologies",
		Long: `Lists nodes and cables that only one of two topologies has, cables that have other
ends, swapped pairs, and other rates, lengths and names. Nodes are the same if their
GUIDs are, else if they are plugged in alike, else if their names are. The exit
status is 1 if anything differs.

` + topologyHelp() + liveHelp,
		Example: `  softib topo diff monday.topo today.topo
  softib topo diff cluster.topo live`,
		Args: arguments(2, 2, "two topologies"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := toTerminal(newTerminal(cmd.ErrOrStderr()))
			a, err := loadOrLive(cmd.Context(), out, args[0], o.name)
			if err != nil {
				return err
			}
			b, err := loadOrLive(cmd.Context(), out, args[1], o.name)
			if err != nil {
				return err
			}
			d := wiring.Diff(a.Graph, b.Graph)
			t := newTerminal(cmd.OutOrStdout())
			if o.asJSON {
				if err := printJSON(t.w, d); err != nil {
					return err
				}
			} else {
				printDifference(t, d, args[0], args[1], o.all)
			}
			if d.Same {
				return nil
			}
			return next(fmt.Errorf("%s and %s differ: %s", args[0], args[1],
				numbered(len(d.Changes), "difference", "differences")),
				"softib topo check %s --plan %s says what to do to get from B to A", args[1], args[0])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, fmt.Sprintf("list all differences, not only the first %d", findingsListed))
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	nameFlag(cmd, &o.name)
	return cmd
}

func printDifference(t *terminal, d *wiring.Difference, a, b string, all bool) {
	rows(t.under("A"), fmt.Sprintf("%s: %s", a, d.A))
	rows(t.under("B"), fmt.Sprintf("%s: %s", b, d.B))
	rows(t.under("of A in B"), d.Matched.String())
	if d.Same {
		t.say("%s", t.green("they are the same"))
		return
	}
	t.say("")
	for i, c := range d.Changes {
		if i == findingsListed && !all {
			t.say("and %d more: --all lists them", len(d.Changes)-i)
			return
		}
		for j, line := range wrapped(c.Text, 66) {
			word := ""
			if j == 0 {
				word = c.Kind.String()
			}
			t.say("%-12s %s", word, line)
		}
	}
}
