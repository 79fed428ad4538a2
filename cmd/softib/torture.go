package main

import (
	"io"
	"strings"

	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"softib/driver/machine"
	"softib/proof/check"
	"softib/proto/ib"
)

func newTorture() *cobra.Command {
	var asJSON bool
	var o check.Options
	var seed uint64
	var noShrink bool
	var capture, kind string
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Run random fabrics, loads and faults in virtual time, and check everything",
		Long: `Each seed is a history: a random topology, random verbs programs on its hosts, and
faults (lost, corrupted, doubled, late packets, lost credits, links that go down,
hosts that stop). It happens in virtual time, on all cores, while everything that must
be true of a fabric is checked: what RC delivers arrives once, in order and intact, no
byte is touched that no request may touch, credits return, partitions hold,
nothing is dropped without a cause, every request completes.

Every fourth history is about management: subnet managers bring fabrics up by packets, die
and come back at any moment, hand over to each other, while management packets are lost,
links flap, switches forget their tables and agents fall silent. Tables never lead packets
in a circle, nor make them wait for each other in one; when the faults are over one
manager rules, everything is reachable under the address that it had, and connections have survived.
In one of three, hosts have tenants, and root of some is hostile: it writes to tables of others,
commands managers, forges keys and answers, runs managers of its own. Nothing crosses tenants.

Beside one in four of the others a history of reductions happens: switches add what jobs'
hosts give, while packets get lost, links go down and switches start anew. Every sum is
right to the bit, and when a tree is lost all hosts of its job hear of it and repeat.

Histories of kind cluster are about machines that share a fabric through etcd: they join and
die, are cut off from the store or stand still, their clocks differ, the store is slow, full,
compacted, or led by one who was deposed. There are never two masters at one moment, a new
one is there within two seconds, what was acknowledged is never lost, and in the end all
know the same.

A seed that fails is made small and printed with its last packets and the
command that runs it again.`,
		Example: `  softib torture --seeds 2000
  softib torture --seeds 200 --hosts 12
  softib torture --kind management --seeds 1000
  softib torture --kind cluster --seeds 10000
  softib torture --seed 1234            # one history again
  softib torture --seed 1234 --kind data --capture history.pcapng   # and its packets, for Wireshark`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.First = 1; cmd.Flags().Changed("seed") {
				if o.First = seed; !cmd.Flags().Changed("seeds") {
					o.Seeds, o.Again = 1, 1
				}
			}
			o.NoShrink = noShrink
			var err error
			if o.Kind, err = check.ParseKind(kind); err != nil {
				return usage(cmd, fmt.Errorf("--kind is %q: want both, data, management, reductions or "+
					"cluster", kind))
			}
			switch {
			case o.Seeds < 1:
				return usage(cmd, fmt.Errorf("--seeds is %d: want at least 1", o.Seeds))
			case o.Hosts != 0 && (o.Hosts < 2 || o.Hosts > check.HostsMax):
				return usage(cmd, fmt.Errorf("--hosts is %d: want 2 to %d", o.Hosts, check.HostsMax))
			case o.Parallel < 0:
				return usage(cmd, fmt.Errorf("--parallel is %d: want 1 or more", o.Parallel))
			}
			if capture != "" {
				if o.Kind.IsManagement(o.First) || o.Kind > check.ManagementKind {
					return usage(cmd, fmt.Errorf("--capture takes a history of data, and seed %d is not one; add "+
						"--kind data", o.First))
				}
				if o.Seeds != 1 {
					return usage(cmd, fmt.Errorf("--capture takes one history: name it with --seed"))
				}
				if err := captureSeed(cmd, o, capture); err != nil {
					return err
				}
			}
			return runTorture(cmd, o, asJSON)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Seeds, "seeds", 200, "how many histories")
	f.Uint64Var(&seed, "seed", 1, "the first seed; alone, just that one")
	f.IntVar(&o.Hosts, "hosts", 0, "hosts in each fabric, about (2 to 16, as the seed will)")
	f.IntVar(&o.Parallel, "parallel", 0, "histories at once (one for each core)")
	f.BoolVar(&noShrink, "no-shrink", false, "do not make failing histories small")
	f.StringVar(&kind, "kind", "both",
		"what histories are about: data, management, reductions, cluster, or both (the first three)")
	jsonFlag(cmd, &asJSON)
	f.StringVar(&capture, "capture", "", "write the packets of the one history to this pcapng file")
	return cmd
}

// captureSeed runs one history for its packets.
func captureSeed(cmd *cobra.Command, o check.Options, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return next(fmt.Errorf("torture: %w", err), "name a file that can be written")
	}
	w := bufio.NewWriterSize(f, 1<<20)
	sc := check.Draw(o.First, o.Hosts)
	res := check.Capture(&sc, w)
	if err := errors.Join(res.CaptureErr, w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("torture: capture: %w", err)
	}
	newTerminal(cmd.OutOrStdout()).say("%d packet hops of seed %d in %s: tshark -r %s", res.Hops, o.First, name, name)
	return nil
}

// errTorture is a torture that has found something.
var errTorture = errors.New("torture: a fabric has broken its rules")

func runTorture(cmd *cobra.Command, o check.Options, asJSON bool) error {
	// Histories are short and make much garbage: collecting it half as often costs
	// little memory.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	t := newTerminal(cmd.OutOrStdout())
	shown := t
	if asJSON {
		shown = newTerminal(cmd.ErrOrStderr())
	}
	bar := shown.progress("torture")
	r := check.Torture(cmd.Context(), o, func(p check.Progress) { bar.at(p.Done, p.Seeds) })
	bar.end()
	if asJSON {
		return tortureJSON(t.w, &r)
	}
	for i := range r.Failures {
		if err := r.Failures[i].Write(t.w); err != nil {
			return err
		}
		t.say("")
	}
	t.say("%d of %d seeds in %.1f s: %d requests, %d packet hops, %d faults, %d runs compared with a second one",
		r.Done, r.Seeds, r.Elapsed.Seconds(), r.Ops, r.Hops, r.Faults(), r.Runs-r.Done)
	n := &r.Histories
	t.say("histories: %d of programs (%d with ways from ring to ring), %d of management, %d of reductions, %d of "+
		"machines", n[check.DataKind], r.Direct, n[check.ManagementKind], n[check.ReductionKind], n[check.ClusterKind])
	if m := &r.Tally.Machine; n[check.DataKind] > 0 {
		t.say("programs: %d packets from ring to ring and %d into the fabric, %d payloads by reference, "+
			"%d full rings, %d standstills, %d new ways under load, %d killed", m[machine.Direct], m[machine.Switched],
			m[machine.ByRef], m[machine.Full], m[machine.Stills], m[machine.Generations], m[machine.Kills])
	}
	if m := &r.Tally.Mgmt; m.Sweeps > 0 {
		t.say("management: %d sweeps, %d changes of state, %d table blocks, %d checks for loops and %d for "+
			"credit loops, %d messages that had to arrive",
			m.Sweeps, m.Masters, m.TableWrites, m.LoopChecks, m.CreditChecks, m.Messages)
	}
	if c := &r.Tally.Cluster; o.Kind == check.ClusterKind {
		t.say("cluster: %d changes acknowledged and %d rejected, %d masters, %d leases lost, %d machines refused, "+
			"at most %.2f s without a master", c.Changes, c.Rejected, c.Masters, c.Lost, c.Refused,
			float64(c.Gap)/float64(ib.Second))
	}
	if err := tortureVerdict(&r); err != nil {
		return err
	}
	t.say("%s", t.green("no violation"))
	return nil
}

// tortureVerdict is an error if anything was found, or not everything was done.
func tortureVerdict(r *check.Report) error {
	switch {
	case r.Failed > 0:
		return next(fmt.Errorf("%w: %d of %d seeds failed", errTorture, r.Failed, r.Done), "%s",
			r.Failures[0].Command())
	case r.Done < r.Seeds:
		return fmt.Errorf("torture: stopped after %d of %d seeds", r.Done, r.Seeds)
	}
	return nil
}

// tortureJSON prints what came of it for programs.
func tortureJSON(w io.Writer, r *check.Report) error {
	type failure struct {
		Command string `json:"command"`
		Text    string `json:"text"`
	}
	n := &r.Histories
	out := struct {
		Seeds    int       `json:"seeds"`
		Done     int       `json:"done"`
		Failed   int       `json:"failed"`
		Seconds  float64   `json:"seconds"`
		Ops      uint64    `json:"requests"`
		Hops     uint64    `json:"packet_hops"`
		Faults   uint64    `json:"faults"`
		Programs int       `json:"histories_of_programs"`
		Direct   int       `json:"histories_with_direct_ways"`
		Mgmt     int       `json:"histories_of_management"`
		Adding   int       `json:"histories_of_reductions"`
		Machines int       `json:"histories_of_machines"`
		Failures []failure `json:"failures"`
	}{r.Seeds, r.Done, r.Failed, r.Elapsed.Seconds(), uint64(r.Ops), uint64(r.Hops), uint64(r.Faults()),
		n[check.DataKind], r.Direct, n[check.ManagementKind], n[check.ReductionKind], n[check.ClusterKind], []failure{}}
	for i := range r.Failures {
		var b strings.Builder
		if err := r.Failures[i].Write(&b); err != nil {
			return err
		}
		out.Failures = append(out.Failures, failure{r.Failures[i].Command(), b.String()})
	}
	if err := printJSON(w, out); err != nil {
		return err
	}
	return tortureVerdict(r)
}
