package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/driver/jobs"
	"softib/job"
	"softib/job/chakra"
	"softib/job/load"
	"softib/job/train"
	"softib/operate/experiment"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// simOptions are what softib sim was asked for.
type simOptions struct {
	loads                           []string
	routing, adaptive, level, place string
	network, prices                 string
	out, sweep, topology            string
	set                             []string
	share, alone                    bool
	ranks, cores                    int
	seed                            uint64
	asJSON                          bool
}

func newSim() *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "sim TOPOLOGY --load LOAD",
		Short: "Design a fabric and run a job on it, in virtual time",
		Long: `Builds a fabric, runs a load on it in virtual time, and says how long that takes, which
links are busy and who waits. With -o DIR there is a page with plots (report.html), and
the same as JSON and CSV; map.json is for the page of softib up, whose view Report draws
it. The same command gives the same hash.

By packets, complete adapters, switches, credits and lanes run, as in a real fabric of
softib's. By flows, messages share links max-min fair over the same ways: for tens of
thousands of hosts; with --adaptive they are spread over all ways, or take the ports
with the fewest others; with --network roce they take those of ECMP's hash, without
pauses and DCQCN. --level auto says which it takes, and why. --level ideal has no
network, but LogGOPSim's L, o, g, G and S (--set eager=S), and its end times.

LOAD is a pattern with its options, or a file with a schedule in GOAL, the language of
LogGOPSim and ATLAHS, as text or as txt2bin writes it:

` + loadHelp() + trainHelp() + `
Several --load run at once, each on as many hosts as the others or, with @N behind it, on N.

--set takes what else can be set:

` + settingsHelp() + `
--sweep KEY=A,B,C runs once for each value of a setting, or of topology, load, routing, adaptive, network,
level, place, ranks or seed, and lays the runs side by side. softib sim compare does that with any runs.

` + topologyHelp(),
		Example: `  softib sim fat-tree:radix=16,levels=3 --load permutation:size=1M
  softib sim fat-tree:radix=8,levels=2 --load all-reduce:size=64M,algorithm=ring -o run
  softib sim cluster.topo --load trace.goal --routing ftree,updn -o run
  softib sim fat-tree:radix=8,levels=2 --load incast:size=1M --sweep load=incast:senders=4,incast:senders=8 -o runs
  softib sim fat-tree:radix=8,levels=2 --load incast:size=1M --sweep network=ib,roce,roce-lossy,roce-irn -o both
  softib sim rail:gpus=8,servers=16,radix=32 --load step.train --sweep lost=0,1
  softib sim rail:gpus=8,servers=16,radix=32 --load ping-pong@64 --load permutation:size=1M,count=8 --alone
  softib sim compare run another -o both.html`,
		Args: arguments(1, 1, "one TOPOLOGY"),
		RunE: func(cmd *cobra.Command, args []string) error { return runSim(cmd, args[0], o) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.loads, "load", nil, "what to run: a `LOAD`, see above; said again, jobs run at once")
	f.BoolVar(&o.share, "share", false, "several loads run on the same hosts, not on hosts of their own")
	f.BoolVar(&o.alone, "alone", false, "each of several loads is run by itself too, for comparison")
	f.StringVar(&o.routing, "routing", jobs.DefaultRouting, "the chain of routing engines")
	f.StringVar(&o.adaptive, "adaptive", route.NoChoice.String(),
		"switches choose the least busy way: "+strings.Join(route.ChoiceNames, ", "))
	f.StringVar(&o.network, "network", jobs.InfiniBand, "InfiniBand, or RoCE on Ethernet: "+
		strings.Join(jobs.Kinds, ", "))
	f.StringVar(&o.level, "level", experiment.Auto, "packets, flows, ideal or auto")
	f.StringVar(&o.place, "place", "linear", "ranks on hosts: "+strings.Join(experiment.Places, ", "))
	f.IntVar(&o.ranks, "ranks", 0, "how many ranks (one for each host, or as many as the file has)")
	f.Uint64Var(&o.seed, "seed", 1, "of everything that is random")
	f.IntVar(&o.cores, "cores", 0, "how many processors may work on a run by packets, 0 for all; the result "+
		"does not depend on it")
	f.StringArrayVar(&o.set, "set", nil, "`KEY=VALUE`, may be said again")
	f.StringVar(&o.sweep, "sweep", "", "`KEY=A,B,C`: one run for each value")
	f.StringVarP(&o.out, "out", "o", "", "write report.html, report.json and tables to this `DIR`")
	pricesFlag(cmd, &o.prices)
	jsonFlag(cmd, &o.asJSON)
	cmd.AddCommand(newSimCompare())
	return cmd
}

// loadHelp lists the patterns.
func loadHelp() string {
	var b strings.Builder
	for _, k := range load.Kinds() {
		fmt.Fprintf(&b, "  %-16s %s\n", k.Name, k.Help)
		for _, opt := range k.Options {
			fmt.Fprintf(&b, "      %-14s %s", opt.Name+"=", opt.Help)
			if opt.Default != "" {
				fmt.Fprintf(&b, " (%s)", opt.Default)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// setting is something that --set can set.
type setting struct {
	key, help string
	set       func(*experiment.Spec, uint64) error
}

// settings are all of them. Times are in nanoseconds.
var settings = slices.Concat(fabricSettings, adapterSettings, lossSettings, ethernetSettings)

// fabricSettings are those of fabrics, switches and hosts.
var fabricSettings = []setting{
	{"mtu", "bytes of a packet: 256, 512, 1024, 2048 or 4096 (4096)", func(s *experiment.Spec, v uint64) error {
		for m := ib.MTU256; m <= ib.MTU4096; m++ {
			if uint64(m.Bytes()) == v {
				s.Options.MTU = m
				return nil
			}
		}
		return errors.New("want 256, 512, 1024, 2048 or 4096")
	}},
	{"buffer", "bytes of a port's receive buffer, for each lane (8 packets)", func(s *experiment.Spec, v uint64) error {
		s.Options.Buffer = int(min(v, 1<<30))
		return nil
	}},
	{"switch-latency", "ns that a switch takes (100)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Options.SwitchLatency
	})},
	{"flowlet-gap", "ns of silence after which --adaptive flowlet chooses anew (5000)",
		nanoseconds(func(s *experiment.Spec) *ib.Time { return &s.Options.FlowletGap })},
	{"cc", "1: switches mark packets in congestion, adapters slow down (0)", func(s *experiment.Spec, v uint64) error {
		s.Options.Congestion.On = v != 0
		return nil
	}},
	{"cc-cnp", "1: with cc, packets of their own tell of marked READ responses and ACKs (0)",
		func(s *experiment.Spec, v uint64) error {
			s.Options.Congestion.CNP = v != 0
			return nil
		}},
	{"cc-threshold", "1 to 15: how short a queue is in which packets are marked (12)", upTo(15,
		func(s *experiment.Spec, v uint64) { s.Options.Congestion.Threshold = uint8(v) })},
	{"cc-rate", "one of so many packets there is marked (4)", upTo(1<<16-1,
		func(s *experiment.Spec, v uint64) { s.Options.Congestion.Rate = uint16(v) })},
	{"cc-timer", "after so many times 1.024 us an adapter goes a step faster (4)", upTo(1<<16-1,
		func(s *experiment.Spec, v uint64) { s.Options.Congestion.Timer = uint16(v) })},
	{"cc-increase", "so many steps slower it goes when it is told (1)", upTo(1<<8-1,
		func(s *experiment.Spec, v uint64) { s.Options.Congestion.Increase = uint8(v) })},
	{"sharp-latency", "ns from a message being taken in by an aggregation node to the next, up or down (490)",
		nanoseconds(func(s *experiment.Spec) *ib.Time { return &s.Options.Reduction.Latency })},
	{"sharp-message", "ns that it takes to take in a message of short vectors, one after the other (16)",
		nanoseconds(func(s *experiment.Spec) *ib.Time { return &s.Options.Reduction.PerMessage })},
	{"sharp-byte", "ps that each byte of one takes besides (as on the fastest link)", upTo(1e6,
		func(s *experiment.Spec, v uint64) { s.Options.Reduction.PerByte = ib.Time(v) })},
	{"sharp-multicast", "1: results on short vectors go to all hosts at once, too (0)",
		func(s *experiment.Spec, v uint64) error {
			s.Options.Reduction.Multicast = v != 0
			return nil
		}},
	{"sharp-osts", "operations on short vectors that a group may have outstanding (8)", upTo(1<<10,
		func(s *experiment.Spec, v uint64) { s.Options.Reduction.OSTs = int(v) })},
	{"sharp-window", "packets of a stream that may be outstanding (64)", upTo(1<<8-2,
		func(s *experiment.Spec, v uint64) { s.Options.Reduction.StreamOSTs = int(v) })},
	{"lost", "switches of the top level that are missing (0)", func(s *experiment.Spec, v uint64) error {
		s.Lost = int(min(v, 1<<16))
		return nil
	}},
	{"nvlink", "GB/s that a GPU sends, and receives, to others of its server; 0 is by the fabric (450)",
		func(s *experiment.Spec, v uint64) error {
			if v > 1e6 {
				return errors.New("want at most 1000000")
			}
			s.Options.NVLink.Rate = float64(v) * 1e9 / float64(ib.Second)
			return nil
		}},
	{"nvlink-latency", "ns that such a message takes besides (600)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Options.NVLink.Latency
	})},
	{"o", "ns that a processor is busy with a message, at each end (0)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Model.Overhead
	})},
	{"O", "ps that it is busy with each byte of it besides, copying (0)", func(s *experiment.Spec, v uint64) error {
		s.Model.PerByte = ib.Time(min(v, 1e9))
		return nil
	}},
	{"g", "ns between two messages of a port, at least (0)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Model.Gap
	})},
	{"L", "ns that a message takes, at --level ideal (0)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Model.Latency
	})},
	{"G", "ps that a byte takes, at --level ideal (0)", func(s *experiment.Spec, v uint64) error {
		s.Model.GapPerByte = ib.Time(min(v, 1e9))
		return nil
	}},
	{"eager", "bytes up to which a message is over for its sender at once", func(s *experiment.Spec, v uint64) error {
		s.Model.Eager = v
		return nil
	}},
	{"handshake", "1: longer messages ask their receiver first (0)", func(s *experiment.Spec, v uint64) error {
		s.Model.Handshake = v != 0
		return nil
	}},
}

// upTo is a number from 1 on.
func upTo(most uint64, set func(*experiment.Spec, uint64)) func(*experiment.Spec, uint64) error {
	return func(s *experiment.Spec, v uint64) error {
		if v < 1 || v > most {
			return fmt.Errorf("want 1 to %d", most)
		}
		set(s, v)
		return nil
	}
}

func nanoseconds(field func(*experiment.Spec) *ib.Time) func(*experiment.Spec, uint64) error {
	return func(s *experiment.Spec, v uint64) error {
		if v > 1e9 {
			return errors.New("want at most a second")
		}
		*field(s) = ib.Time(v) * ib.Nanosecond
		return nil
	}
}

func settingsHelp() string {
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "  %-16s %s\n", s.key+"=", s.help)
	}
	fmt.Fprintf(&b, "  %-16s %s\n", adapterKey+"=", adapterHelp())
	return b.String()
}

// apply sets one KEY=VALUE of --set or --sweep.
func (o *simOptions) apply(s *experiment.Spec, word string) error {
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		return fmt.Errorf("%q: want KEY=VALUE", word)
	}
	if key == adapterKey {
		return setAdapter(s, value)
	}
	i := slices.IndexFunc(settings, func(x setting) bool { return x.key == key })
	if i < 0 {
		var keys []string
		for _, x := range settings {
			keys = append(keys, x.key)
		}
		return fmt.Errorf("%q: want one of %s", key, strings.Join(append(keys, adapterKey), ", "))
	}
	v, err := load.Bytes(value)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if err := settings[i].set(s, v); err != nil {
		return fmt.Errorf("%s=%s: %w", key, value, err)
	}
	return nil
}

// spec is an experiment of these options.
func (o *simOptions) spec(arg string, g *topo.Graph) (experiment.Spec, error) {
	s := experiment.Spec{Topology: arg, Graph: g, Load: strings.Join(o.loads, " + "), Ranks: o.ranks, Place: o.place,
		Level: o.level, Seed: o.seed, Options: jobs.Options{Routing: o.routing, NVLink: jobs.DefaultNVLink,
			Ethernet: jobs.Ethernet{Kind: o.network}, Cores: cmp.Or(o.cores, runtime.GOMAXPROCS(0))}}
	if o.cores < 0 {
		return s, fmt.Errorf("--cores is %d: want 1 at least, or 0 for all that there are", o.cores)
	}
	levels := []string{experiment.Auto, experiment.Packets, experiment.Flows, experiment.IdealNet}
	if !slices.Contains(levels, o.level) {
		return s, fmt.Errorf("--level is %q: want one of %s", o.level, strings.Join(levels, ", "))
	}
	if !slices.Contains(jobs.Kinds, o.network) {
		return s, fmt.Errorf("--network is %q: want one of %s", o.network, strings.Join(jobs.Kinds, ", "))
	}
	var err error
	if s.Options.Adaptive, err = route.ParseChoice(o.adaptive); err != nil {
		return s, fmt.Errorf("--adaptive: %w", err)
	}
	if s.Prices, err = loadPrices(o.prices); err != nil {
		return s, err
	}
	for _, word := range o.set {
		if err := o.apply(&s, word); err != nil {
			return s, fmt.Errorf("--set %w", err)
		}
	}
	s.Command = o.command(arg)
	return s, o.jobs(&s)
}

// goalMax is how long a file with a schedule may be.
const goalMax = 1 << 30

// command is what repeats a run.
func (o *simOptions) command(arg string) string {
	words := []string{"softib sim", arg}
	for _, l := range o.loads {
		words = append(words, "--load", l)
	}
	words = append(words, "--seed", strconv.FormatUint(o.seed, 10))
	if o.share {
		words = append(words, "--share")
	}
	if o.alone {
		words = append(words, "--alone")
	}
	for _, w := range []struct{ flag, value, usual string }{{"--routing", o.routing, jobs.DefaultRouting},
		{"--adaptive", o.adaptive, route.NoChoice.String()}, {"--level", o.level, experiment.Auto},
		{"--network", o.network, jobs.InfiniBand}, {"--place", o.place, "linear"}, {"--prices", o.prices, ""}} {
		if w.value != w.usual {
			words = append(words, w.flag, w.value)
		}
	}
	if o.ranks != 0 {
		words = append(words, "--ranks", strconv.Itoa(o.ranks))
	}
	for _, s := range o.set {
		words = append(words, "--set", s)
	}
	return strings.Join(words, " ")
}

func runSim(cmd *cobra.Command, arg string, o simOptions) error {
	if len(o.loads) == 0 {
		return usage(cmd, errors.New("there is no --load: name what to run, such as --load permutation:size=1M"))
	}
	g, err := loadTopology(newTerminal(cmd.ErrOrStderr()), arg)
	if err != nil {
		return err
	}
	if _, err := checkTopology(arg, g); err != nil {
		return err
	}
	if len(g.Routers()) > 0 {
		return next(fmt.Errorf("%s has routers, and a job runs in one subnet", arg),
			"softib sim with what is behind each=, or softib up %s", arg)
	}
	runs, err := o.runs()
	if err != nil {
		return usage(cmd, err)
	}
	out := newTerminal(cmd.OutOrStdout())
	shown := out
	if o.asJSON {
		shown = newTerminal(cmd.ErrOrStderr())
	}
	var reports []*experiment.Report
	for _, run := range runs {
		at, on := arg, g
		if run.topology != "" {
			if at = run.topology; at != arg {
				if on, err = loadTopology(newTerminal(cmd.ErrOrStderr()), at); err != nil {
					return err
				}
			}
		}
		s, err := run.spec(at, on)
		switch {
		case errors.Is(err, load.ErrLoad), errors.Is(err, job.ErrSchedule), errors.Is(err, train.ErrTrain),
			errors.Is(err, chakra.ErrTrace), run.prices != "" && s.Prices == nil:
			return err
		case err != nil:
			return usage(cmd, err)
		}
		r, err := simulate(cmd.Context(), shown, s)
		if err != nil {
			return simError(err)
		}
		reports = append(reports, r)
		if !o.asJSON {
			printRun(out, r)
		}
		if run.out != "" {
			if err := writeRun(run.out, &s, r); err != nil {
				return err
			}
			shown.say("%s", filepath.Join(run.out, "report.html"))
		}
		if !r.Whole {
			break
		}
	}
	if len(reports) > 1 && o.out != "" {
		name := filepath.Join(o.out, "compare.html")
		if err := writeTo(name, func(w io.Writer) error { return experiment.WriteComparison(w, reports) }); err != nil {
			return err
		}
		shown.say("%s", name)
	}
	if !o.asJSON {
		return nil
	}
	if len(runs) == 1 {
		return printJSON(out.w, reports[0])
	}
	return printJSON(out.w, reports)
}

// runs are the options of each run of a sweep; without one, there is one.
func (o *simOptions) runs() ([]simOptions, error) {
	if o.sweep == "" {
		return []simOptions{*o}, nil
	}
	key, list, ok := strings.Cut(o.sweep, "=")
	if !ok || list == "" {
		return nil, fmt.Errorf("--sweep %q: want KEY=A,B,C", o.sweep)
	}
	values := strings.Split(list, ",")
	if key == "load" || key == "topology" {
		values = splitLoads(list)
	}
	var all []simOptions
	for _, v := range values {
		run := *o
		switch key {
		case "load":
			run.loads = []string{v}
		case "topology":
			run.topology = v
		case "routing":
			run.routing = v
		case "adaptive":
			run.adaptive = v
		case "level":
			run.level = v
		case "network":
			run.network = v
		case "place":
			run.place = v
		case "ranks", "seed":
			n, err := strconv.ParseUint(v, 10, 31)
			if err != nil {
				return nil, fmt.Errorf("--sweep %s: %q: want a number", key, v)
			}
			if key == "ranks" {
				run.ranks = int(n)
			} else {
				run.seed = n
			}
		default:
			run.set = append(slices.Clone(o.set), key+"="+v)
		}
		if o.out != "" {
			run.out = filepath.Join(o.out, strings.NewReplacer("/", "_", ":", "_").Replace(key+"="+v))
		}
		all = append(all, run)
	}
	return all, nil
}

// splitLoads cuts a list of loads, which have commas themselves: a new one begins where a word has no equals sign
// before its colon or end.
func splitLoads(list string) (loads []string) {
	for word := range strings.SplitSeq(list, ",") {
		head, _, _ := strings.Cut(word, ":")
		if len(loads) > 0 && strings.Contains(head, "=") {
			loads[len(loads)-1] += "," + word
		} else {
			loads = append(loads, word)
		}
	}
	return loads
}

// simulate runs one experiment and shows how far it is.
func simulate(ctx context.Context, t *terminal, s experiment.Spec) (*experiment.Report, error) {
	bar := t.progress(s.Load)
	defer bar.end()
	began := time.Now()
	return experiment.Run(ctx, s, func(p experiment.Progress) {
		spent := time.Since(began).Seconds()
		bar.what = fmt.Sprintf("%s by %s, at %v, %d messages", s.Load, p.Level, p.Now, p.Messages)
		if p.Hops > 0 {
			bar.what += fmt.Sprintf(", %.1f M hops/s", float64(p.Hops)/spent/1e6)
		}
		if done := float64(p.Ended) / float64(max(p.All, 1)); done > 0.01 {
			bar.what += fmt.Sprintf(", about %.0f s left", spent/done-spent)
		}
		bar.at(p.Ended, p.All)
	})
}

// simError adds what to do next. Packages that know it say it at the end of their text.
func simError(err error) error {
	var stuck *jobs.StuckError
	text, advice, ok := strings.Cut(err.Error(), "; next: ")
	switch {
	case ok:
		return next(&simProblem{text, err}, "%s", advice)
	case errors.As(err, &stuck):
		return next(err, "mend the schedule: what a rank receives has to be sent before its sender waits for it")
	case errors.Is(err, load.ErrLoad), errors.Is(err, job.ErrSchedule), errors.Is(err, experiment.ErrSpec):
		return next(err, "softib sim --help lists patterns and options")
	}
	return next(err, "choose another routing with --routing: softib route --help lists the engines")
}

// simProblem is an error without its advice.
type simProblem struct {
	text string
	err  error
}

func (e *simProblem) Error() string { return e.text }
func (e *simProblem) Unwrap() error { return e.err }
