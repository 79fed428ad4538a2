package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"softib/operate/control"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t := newTerminal(os.Stderr)
	ctx = control.WithDoing(control.WithWaiting(ctx, showWaiting(t)), showDoing(t))
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		printError(os.Stderr, err)
		os.Exit(exitCode(err))
	}
}

// newRoot is the command line. A new subcommand is a file of its own and a
// line here.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "softib",
		Short: "InfiniBand in software",
		Long: `softib is InfiniBand in software: host adapters, links with credits and virtual
lanes, switches, and the verbs that programs use. It needs no kernel module, no
root and no hardware.`,
		Example: `  softib up                          # 32 hosts in a fat tree, until Ctrl-C
  softib up -d                       # the same in the background
  softib status
  softib perf send_lat               # measure between h1 and h2
  softib down`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	family(root, newPerfSide(), newNetSide())
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"fabric", "A fabric:", []*cobra.Command{newUp(), newDown(), newStatus(), newTopo()}},
		{"programs", "Programs on it:", []*cobra.Command{newExec(), newRoCE(), newPerf()}},
		{"look", "Look at it:", []*cobra.Command{newTop(), newRoute(), newLog(), newCapture(), newDoctor(),
			newWatch()}},
		{"operate", "Operate it:", []*cobra.Command{newFault(), newTenant(), newQoS(), newPartition(), newNet(),
			newSM(), newUser(), newCA()}},
		{"prove", "Prove it:", []*cobra.Command{newSim(), newTorture()}},
		{"rest", "Else:", []*cobra.Command{newVersion(), newMan()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("rest")
	root.SetCompletionCommandGroupID("rest")
	complete(root)
	return root
}

// family makes a command of its subcommands, without which it does nothing. Whoever misspells one hears of that, rather
// than of flags that only the right one has.
func family(cmd *cobra.Command, members ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { // members inherit it
		if words := c.Flags().Args(); c == cmd && len(words) > 0 {
			return unknownCommand(c, words[0])
		}
		return usage(c, err)
	})
	cmd.AddCommand(members...)
	return cmd
}

// usage is a mistake on the command line of a subcommand.
func usage(cmd *cobra.Command, err error) error {
	return next(&usageError{err}, "%s --help", cmd.CommandPath())
}

// arguments checks how many arguments a subcommand was given.
func arguments(low, high int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usage(cmd, fmt.Errorf("%s takes %s, not %d arguments", cmd.CommandPath(), what, len(args)))
		}
		return nil
	}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	err := &usageError{fmt.Errorf("there is no subcommand %q", name)}
	if s := cmd.SuggestionsFor(name); len(s) > 0 {
		return next(err, "did you mean %s %s?", cmd.CommandPath(), strings.Join(s, " or "))
	}
	return next(err, "%s --help lists them", cmd.CommandPath())
}
