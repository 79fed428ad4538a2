package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"softib/operate/control"
	"softib/operate/manager"
)

func newFault() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fault",
		Short: "Break a cable or a node of a running fabric, to rehearse what happens",
		Long: `Sets faults on cables of a running fabric and lifts them again, reboots switches, and
gives nodes the GUIDs of others. Programs, the subnet manager and the counters see what a
real cable or node of that kind would show them.

A path that crosses a cable with a fault goes through the switches packet by packet;
that is slower than a path without one.`,
		Example: `  softib fault link leaf1 spine1 down
  softib fault link h3 ber=1e-7          # the only cable of h3: one bit in ten million is wrong
  softib fault link leaf1[5] rate=10G delay=5us
  softib fault switch leaf3 reboot
  softib fault node h9 guid=h5           # two nodes with one GUID
  softib fault list
  softib fault clear                     # all of them`,
	}
	return family(cmd, newFaultLink(), newFaultSwitch(), newFaultNode(), newFaultList(), newFaultClear())
}

// faultRequest sets faults on links or lifts them; without either it lists them.
type faultRequest struct {
	// Link is one port or two ends; none with Clear is all links.
	Link  []string `json:"link,omitempty"`
	Words []string `json:"words,omitempty"`
	Clear bool     `json:"clear,omitempty"`
	// Switch is rebooted, and off for a while.
	Switch string `json:"switch,omitempty"`
	OffMS  int64  `json:"off_ms,omitempty"`
	// Node answers with the GUID of another, or with its own again.
	Node string `json:"node,omitempty"`
	GUID string `json:"guid,omitempty"`
}

// linkArgument is how a command line names a cable.
const linkArgument = `A and B are the nodes that the cable joins (leaf1 spine1), or its two ports (leaf1[5] spine1[2]).
One port, or one host with one cable, is enough. Where several cables join two nodes, name a port.`

func newFaultLink() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "link A [B] down|up|retrain|ber=P|drop=P|rate=R|delay=T…",
		Short: "Set a fault on a cable, in place of what it had",
		Long: `Sets a fault on a cable, in place of whatever it had:

  down       the link is down, as with the cable pulled out
  up         no fault any more
  ber=P      each bit is wrong with probability P, such as ber=1e-7
  drop=P     each packet vanishes with probability P, such as drop=0.01
  rate=R     at most R bits a second, such as rate=10G
  delay=T    every packet takes longer by T, such as delay=5us
  from=N     beside the last four: only what the end N sends meets the fault
  retrain    the link recovers from an error once, without going down; what is set
             stays. LinkErrorRecovery counts it at both ends

All but down, up and retrain can be combined.

` + linkArgument,
		Example: `  softib fault link leaf1 spine1 down
  softib fault link leaf1 spine1 up
  softib fault link h3 ber=1e-7
  softib fault link leaf1 spine1 ber=1e-6 from=leaf1
  softib fault link leaf1 spine1 retrain
  softib fault link leaf2[7] rate=25G delay=2us`,
		Args: arguments(2, 8, "a link and what is wrong with it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := faultRequest{Link: args[:1], Words: args[1:]}
			if !isFaultWord(args[1]) {
				r.Link, r.Words = args[:2], args[2:]
			}
			if _, err := manager.ParseFault(r.Words); err != nil {
				return usage(cmd, err)
			}
			return askFaults(cmd, name, r, asJSON)
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// isFaultWord tells what is wrong with a link from the name of its other end.
func isFaultWord(s string) bool {
	return s == "down" || s == "up" || s == "retrain" || strings.Contains(s, "=")
}

func newFaultSwitch() *cobra.Command {
	var name string
	var asJSON bool
	var off time.Duration
	cmd := &cobra.Command{
		Use:   "switch NAME reboot",
		Short: "Take a switch's power away for a while",
		Long: `Reboots a switch: its links go down, it forgets all that managers wrote (addresses,
tables, partitions, keys), and after a while the links come up again. The manager has
to bring it back. The command returns when the links are up; they are listed as faults
until then. Links that were down before stay down.`,
		Example: `  softib fault switch leaf3 reboot
  softib fault switch spine1 reboot --off 30s`,
		Args: arguments(2, 2, "a switch and reboot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] != "reboot" {
				return usage(cmd, fmt.Errorf("%q: want reboot", args[1]))
			}
			return askFaults(cmd, name, faultRequest{Switch: args[0], OffMS: off.Milliseconds()}, asJSON)
		},
	}
	cmd.Flags().DurationVar(&off, "off", 2*time.Second, "how long it is without power")
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newFaultNode() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "node NAME guid=OTHER|up",
		Short: "Give a node the GUID of another, as cloned firmware does",
		Long: `Has a host or a switch answer with the node GUID of another, as after a firmware image
was copied whole; its ports keep their own GUIDs. It starts anew with that: its links go
down and up, and a switch has forgotten what managers wrote. The manager leaves out one
of the two, so programs of one of them lose the fabric.

  guid=OTHER   the GUID of that node, in place of its own
  up           its own GUID again; so do softib fault clear and softib fault clear NAME`,
		Example: `  softib fault node h9 guid=h5
  softib fault node spine3 guid=spine1
  softib fault node h9 up`,
		Args: arguments(2, 2, "a node, and guid=OTHER or up"),
		RunE: func(cmd *cobra.Command, args []string) error {
			other, ok := strings.CutPrefix(args[1], "guid=")
			if args[1] != "up" && (!ok || other == "") {
				return usage(cmd, fmt.Errorf("%q: want guid=OTHER, with the name of another node, or up", args[1]))
			}
			r := faultRequest{Node: args[0]}
			if ok {
				r.GUID = other
			}
			return askFaults(cmd, name, r, asJSON)
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newFaultList() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the faults that are set, and what they have done",
		Example: `  softib fault list --json`,
		Args:    arguments(0, 0, "no argument"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return askFaults(cmd, name, faultRequest{}, asJSON) },
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newFaultClear() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clear [A [B]]",
		Short: "Lift the fault of a cable or a node, or all faults",
		Long: "Lifts the fault of a cable or a node, or without an argument all faults.\n\n" +
			linkArgument,
		Example: `  softib fault clear
  softib fault clear leaf1 spine1`,
		Args: arguments(0, 2, "nothing, a link or a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return askFaults(cmd, name, faultRequest{Link: args, Clear: true}, asJSON)
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// askFaults asks a fabric, and shows the faults that are then set.
func askFaults(cmd *cobra.Command, name string, r faultRequest, asJSON bool) error {
	p, err := newPlace(name)
	if err != nil {
		return err
	}
	list := []manager.Fault{}
	err = askFabric(cmd.Context(), p, opFault, r, func(faults []manager.Fault) error {
		list = append(list, faults...)
		return nil
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), list)
	}
	t := newTerminal(cmd.OutOrStdout())
	if len(list) == 0 {
		t.say("no fault is set on fabric %s", p.name)
		return nil
	}
	w := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "link\tfault\tsince\tdropped\tcorrupted")
	for _, f := range list {
		fmt.Fprintf(w, "%s\t%v\t%s\t%d\t%d\n", f.Link, f.FaultSpec, f.Since.Local().Format(time.TimeOnly), f.Dropped,
			f.Corrupted)
	}
	return w.Flush()
}

// fault answers a client.
func (s *server) fault(ctx context.Context, q faultRequest, r *control.Reply[[]manager.Fault]) error {
	if err := s.setFault(ctx, &q); err != nil {
		return err
	}
	return r.Say(s.mgr.Faults())
}

func (s *server) setFault(ctx context.Context, r *faultRequest) error {
	const who = "softib fault"
	if r.Switch != "" {
		err := s.mgr.Reboot(ctx, r.Switch, time.Duration(r.OffMS)*time.Millisecond, who)
		if errors.Is(err, manager.ErrUnknown) {
			return next(&usageError{err}, "softib route show lists the switches")
		}
		return s.faultTrouble(err)
	}
	if r.Node != "" {
		err := s.mgr.SetNodeGUID(r.Node, r.GUID, who)
		if errors.Is(err, manager.ErrUnknown) {
			return next(&usageError{err}, "softib topo gen %s lists all nodes", s.f.topology)
		}
		if errors.Is(err, manager.ErrFault) {
			return next(&usageError{err}, "softib fault node --help")
		}
		return err
	}
	if !r.Clear && len(r.Words) == 0 {
		return nil
	}
	if r.Clear {
		return s.faultTrouble(s.mgr.LiftFaults(who, r.Link...))
	}
	ref, err := s.mgr.LinkOf(r.Link...)
	if err != nil {
		return s.faultTrouble(err)
	}
	spec, err := manager.ParseFault(r.Words)
	if err != nil {
		return &usageError{err}
	}
	return s.faultTrouble(s.mgr.SetFault(ref, spec, who))
}

// faultTrouble adds what to do next to an error.
func (s *server) faultTrouble(err error) error {
	switch {
	case errors.Is(err, manager.ErrUnknown):
		return s.unknownLink(err)
	case errors.Is(err, manager.ErrFault):
		return next(&usageError{err}, "softib fault link --help")
	}
	return err
}

// unknownLink adds how links are named to an error.
func (s *server) unknownLink(err error) error {
	g := s.f.Graph()
	example := ""
	for _, c := range g.Cables() {
		example = g.PortName(c.A) + " " + g.PortName(c.B)
		if g.Nodes[c.A.Node].IsSwitch() == g.Nodes[c.B.Node].IsSwitch() {
			break
		}
	}
	return next(&usageError{err}, "name both ends, such as %s; softib topo gen %s lists all cables", example,
		s.f.topology)
}
