package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"softib/topo"
)

func newTopo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Make and check topologies",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(newTopoGen(), newTopoCheck())
	return cmd
}

func newTopoGen() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "gen SPEC",
		Short: "Write a generated topology in ibnetdiscover's format",
		Long: `Writes a topology in ibnetdiscover's format, to change it by hand or to give it
to other tools. softib up FILE starts it.

` + topologyHelp(),
		Example: `  softib topo gen fat-tree:radix=8,levels=2 -o lab.topo
  softib up lab.topo`,
		Args: arguments(1, 1, "one SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := loadTopology(args[0])
			if err != nil {
				return err
			}
			if out == "" || out == "-" {
				return topo.Write(cmd.OutOrStdout(), g)
			}
			if err := os.WriteFile(out, topo.Append(nil, g), 0o666); err != nil {
				return next(err, "choose another file with -o")
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", out, topo.Describe(g))
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write instead of standard output")
	return cmd
}

func newTopoCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check TOPOLOGY",
		Short: "Say what a topology is and what is wrong with it",
		Long: `Reads a topology and lists what is odd or cannot work. The exit status is 1
if something cannot work.

` + topologyHelp(),
		Example: `  softib topo check lab.topo
  ibnetdiscover > cluster.topo; softib topo check cluster.topo`,
		Args: arguments(1, 1, "one TOPOLOGY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := loadTopology(args[0])
			if err != nil {
				return err
			}
			t := newTerminal(cmd.OutOrStdout())
			t.say("%s: %s", args[0], topo.Describe(g))
			problems := topo.Check(g)
			broken := 0
			for _, p := range problems {
				t.say("%v", p)
				if p.Severity == topo.Broken {
					broken++
				}
			}
			if broken > 0 {
				return next(fmt.Errorf("%s cannot work: %s", args[0], numbered(broken, "problem", "problems")), "mend what is called broken above")
			}
			t.say("%s", t.green("it can work")+odd(len(problems)))
			return nil
		},
	}
}

// odd mentions warnings.
func odd(n int) string {
	if n == 0 {
		return ""
	}
	return ", with " + numbered(n, "warning", "warnings")
}
