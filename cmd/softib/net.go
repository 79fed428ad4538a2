package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"softib/operate/control"
)

func newNet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net",
		Short: "Give hosts networks by IP over InfiniBand that stay",
		Long: `A host's network is an interface, ib0, with the host's address, whose packets travel the
fabric as IP over InfiniBand, and one for each other partition of the host (ib0.8001).
softib exec --net makes one for as long as programs run in it, and needs none of this.
softib net up makes one that stays, in a namespace of the machine or beside the
machine's own interfaces, and takes root.`,
		Example: `  ip netns add n1 && softib net up h1 --netns n1
  ip netns exec n1 ping 198.18.0.2
  softib net up h2 --mode connected      # ib0 beside the machine's own interfaces
  softib net list
  softib net down h1`,
	}
	return family(cmd, newNetUp(), newNetDown(), newNetList())
}

// netAsk asks for the networks that there are, after one was made or ended if it says so.
type netAsk struct {
	Up   string  `json:"up,omitempty"`
	Down string  `json:"down,omitempty"`
	Mode netMode `json:"mode,omitempty"`
	Dev  string  `json:"dev,omitempty"`
	// Space is a file of a network namespace; empty for the asker's.
	Space string `json:"space,omitempty"`
}

// netShown is a network.
type netShown struct {
	Host string  `json:"host"`
	Mode netMode `json:"mode"`
	// Programs counts those in it that softib exec has started, and Kept says that it stays without.
	Programs int  `json:"programs"`
	Kept     bool `json:"kept"`
}

// netCommand is what all of them have.
type netCommand struct {
	name   string
	asJSON bool
}

func (o *netCommand) flags(cmd *cobra.Command) {
	nameFlag(cmd, &o.name)
	jsonFlag(cmd, &o.asJSON)
}

// ask asks, and prints what there is then with line.
func (o *netCommand) ask(cmd *cobra.Command, q netAsk, line func([]netShown)) error {
	p, err := newPlace(o.name)
	if err != nil {
		return err
	}
	return askFabric(cmd.Context(), p, opNet, q, func(all []netShown) error {
		if o.asJSON {
			return printJSON(cmd.OutOrStdout(), all)
		}
		line(all)
		return nil
	})
}

// devShape is what an interface can be called (15 letters, of which those of a partition are five).
var devShape = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,9}$`)

func newNetUp() *cobra.Command {
	var o netCommand
	var space, mode, dev string
	cmd := &cobra.Command{
		Use:   "up HOST",
		Short: "Make the network of a host, which stays until softib net down",
		Example: `  ip netns add n1 && softib net up h1 --netns n1
  softib net up h2 --mode connected --dev ib1`,
		Args: arguments(1, 1, "a HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := netAsk{Up: args[0], Mode: netMode(mode), Dev: dev}
			if q.Mode != netDatagram && q.Mode != netConnected {
				return usage(cmd, fmt.Errorf("--mode %s: want datagram or connected", mode))
			}
			if !devShape.MatchString(dev) {
				return usage(cmd, fmt.Errorf("--dev %q: want at most 10 letters and digits, such as ib0", dev))
			}
			if space != "" {
				if space != filepath.Base(space) {
					return usage(cmd, fmt.Errorf("--netns %q: want a name, as ip netns add has it", space))
				}
				q.Space = filepath.Join(netnsDir, space)
				if _, err := os.Stat(q.Space); err != nil {
					return next(err, "ip netns add %s", space)
				}
			}
			return o.ask(cmd, q, func([]netShown) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is up at %s, in %s mode\n", dev, args[0], mode)
			})
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&space, "netns", "", "the namespace `NAME`, as ip netns has it; this shell's without")
	cmd.Flags().StringVar(&mode, "mode", string(netDatagram), "how packets travel: `datagram` or connected")
	cmd.Flags().StringVar(&dev, "dev", netDev, "what the interface is called")
	return cmd
}

// netnsDir is where ip netns keeps namespaces.
const netnsDir = "/run/netns"

func newNetDown() *cobra.Command {
	var o netCommand
	cmd := &cobra.Command{
		Use:     "down HOST",
		Short:   "End a network that softib net up has made",
		Example: "  softib net down h1",
		Args:    arguments(1, 1, "a HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd, netAsk{Down: args[0]}, func([]netShown) {
				fmt.Fprintf(cmd.OutOrStdout(), "the network of %s is down\n", args[0])
			})
		},
	}
	o.flags(cmd)
	return cmd
}

func newNetList() *cobra.Command {
	var o netCommand
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the hosts that have a network",
		Example: "  softib net list --json",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.ask(cmd, netAsk{}, func(all []netShown) {
				if len(all) == 0 {
					fmt.Fprintln(cmd.OutOrStdout(), "no host has a network: softib exec --net h1 -- CMD makes one")
				}
				for _, n := range all {
					stays := ""
					if n.Kept {
						stays = ", stays"
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s  %s, %s%s\n", n.Host, n.Mode,
						numbered(n.Programs, "program", "programs"), stays)
				}
			})
		},
	}
	o.flags(cmd)
	return cmd
}

// net answers softib net.
func (s *server) net(ctx context.Context, q netAsk, r *control.Reply[[]netShown]) error {
	switch {
	case q.Up != "":
		if err := s.netUp(ctx, q, int(r.Cred.Pid)); err != nil {
			return err
		}
	case q.Down != "":
		if was, err := s.world.nets.down(q.Down); err != nil || !was {
			if err == nil {
				err = next(fmt.Errorf("%s has no network that softib net up has made", q.Down), "softib net list%s",
					s.world.place.flag())
			}
			return err
		}
	}
	return r.Say(s.world.nets.list())
}

func (s *server) netUp(ctx context.Context, q netAsk, pid int) error {
	if os.Geteuid() != 0 {
		return next(errors.New("networks that stay take a fabric that root runs"), "softib exec --net %s -- CMD", q.Up)
	}
	e, _, release, err := s.world.open(q.Up, false)
	if err != nil {
		return err
	}
	release() // the files are for programs
	if e.Tree == "" {
		return next(fmt.Errorf("a network takes namespaces: %s", e.Why), "softib log%s", s.world.place.flag())
	}
	if q.Space == "" {
		q.Space = fmt.Sprintf("/proc/%d/ns/net", pid)
	}
	space, err := os.Open(q.Space)
	if err != nil {
		return err
	}
	defer space.Close()
	_, leave, err := s.world.nets.open(ctx, q.Up, netWanted{mode: q.Mode, dev: q.Dev, space: space,
		lib: s.world.set.Dir})
	if err == nil {
		leave() // it stays
	}
	return err
}

// list shows the networks.
func (x *nets) list() []netShown {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := []netShown{}
	for _, n := range x.byHost {
		all = append(all, netShown{Host: n.host, Mode: n.mode, Programs: n.users, Kept: n.kept})
	}
	slices.SortFunc(all, func(a, b netShown) int { return byNumber(a.Host, b.Host) })
	return all
}
