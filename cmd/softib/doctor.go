package main

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"softib/driver/ibsim"
	"softib/driver/smrun"
	"softib/driver/umad"
	"softib/operate/control"
	"softib/operate/doctor"
	"softib/operate/forwarding"
	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/survey"
)

func newDoctor() *cobra.Command {
	var o doctorCommand
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with a fabric, and what to do about it",
		Long: `Looks at every node, link, table and counter of a fabric by management datagrams, waits
and looks at the counters again, and says what is wrong, where, by how much, and what to
do next: duplicate GUIDs and LIDs, links that are down, slow or unequal, cables that
damage signals, ports that drop packets or wait, pairs that do not reach each other, loops
and credit loops, partitions, managers, versions. It changes nothing.

--on says where:
  fabric[:HOST]      a running softib fabric (--name), from a host; the default. Of subnets
                     that routers join each is looked at, or with HOST that host's
  ibsim[:NODE]       ibsim's socket (IBSIM_SOCKNAME, IBSIM_SERVER_NAME as its own clients)
  umad[:CA[:PORT]]   a port of this machine: /dev/infiniband/umadN
Only a running softib fabric knows since when its counters have counted, and so that a link
which went down a few times flaps. Elsewhere --interval 10m sees those that do so now.

The exit status is 0 if the fabric is well, 1 if something was found, and 2 if it could
not be looked at.`,
		Example: `  softib doctor
  softib doctor --interval 10s
  softib doctor --on fabric:h7 --json
  softib doctor --counters-only
  softib doctor --on umad:mlx5_0:1`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.run(cmd)
			if _, unwell := errors.AsType[*unwellError](err); err != nil && !unwell &&
				!errors.Is(err, context.Canceled) {
				err = &usageError{err} // exit status 2
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.on, "on", "fabric", "what to look at: `WHERE` is fabric[:HOST], ibsim[:NODE] or umad[:CA[:PORT]]")
	f.DurationVar(&o.interval, "interval", doctor.Interval,
		"how long to watch counters; 0 judges what they have counted since their last reset")
	f.BoolVar(&o.countersOnly, "counters-only", false, "look only at counters: cables, errors, congestion")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	nameFlag(cmd, &o.name)
	return cmd
}

type doctorCommand struct {
	name, on             string
	interval             time.Duration
	countersOnly, asJSON bool
}

// unwellError is a fabric that was looked at and is not well.
type unwellError struct{ text string }

func (e *unwellError) Error() string { return e.text }

// intervalMax bounds how long a fabric's daemon watches for somebody.
const intervalMax = time.Hour

// surveyRequest asks a running fabric to be looked at.
type surveyRequest struct {
	Host         string `json:"host,omitempty"`
	IntervalMS   int64  `json:"interval_ms"`
	CountersOnly bool   `json:"counters_only,omitempty"`
}

// examination is a fabric that was looked at, with what only its own process knows. Its nodes are passed on apart, one
// after the other: of 45,056 hosts they are hundreds of megabytes.
type examination struct {
	Before *survey.Survey
	Routes *route.Report
	Nodes  int
	// Later is what the second look differs in: it would be twice as long otherwise.
	Later *laterLook
	Plan  []byte // in ibnetdiscover's format
	Known doctor.Options
}

// seenNode is a node with its counters at both looks.
type seenNode struct {
	Node          *survey.Node
	Before, Later []survey.Reading
}

type laterLook struct {
	Readings [][]survey.Reading
	Gaps     []survey.Gap
	GapCount int
	Asked    int
	Ended    ib.Time
}

func (o *doctorCommand) run(cmd *cobra.Command) error {
	if o.interval < 0 || o.interval > intervalMax {
		return usage(cmd, fmt.Errorf("--interval %v: want 0 to %v", o.interval, intervalMax))
	}
	reps, err := o.judgeAll(cmd)
	if err != nil {
		return err
	}
	t := newTerminal(cmd.OutOrStdout())
	switch {
	case o.asJSON && len(reps) == 1:
		err = printJSON(t.w, reps[0])
	case o.asJSON:
		err = printJSON(t.w, map[string][]*doctor.Report{"subnets": reps})
	default:
		for i, rep := range reps {
			if i > 0 {
				t.say("")
			}
			if len(reps) > 1 {
				t.say("%s", t.bold(fmt.Sprintf("subnet %d", i+1)))
			}
			printDoctor(t, rep)
		}
	}
	if err != nil {
		return err
	}
	for _, rep := range reps {
		if !rep.Healthy() {
			return next(&unwellError{"the fabric is not well: " + tally(rep)},
				"see what each finding says to do next; softib doctor --json lists them all")
		}
	}
	return nil
}

// judgeAll looks at a fabric and judges it: at each subnet of a running one that routers join, unless a host was named.
func (o *doctorCommand) judgeAll(cmd *cobra.Command) (reps []*doctor.Report, err error) {
	one := *o
	froms := []string{o.on}
	out := toTerminal(newTerminal(cmd.ErrOrStderr()))
	for i := 0; i < len(froms); i++ {
		one.on = froms[i]
		bar := &stageBar{t: newTerminal(cmd.ErrOrStderr())}
		x, opts, err := one.examine(cmd, bar)
		bar.end()
		if err != nil {
			return nil, err
		}
		opts.CountersOnly, opts.Routes = o.countersOnly, x.Routes
		_ = out.during("judging", func() error {
			reps = append(reps, doctor.Judge(x.Before, x.After, opts))
			return nil
		})
		if i == 0 && o.on == "fabric" && opts.Plan != nil && len(opts.Plan.Routers()) > 0 {
			froms = append(froms, otherSubnets(opts.Plan)...)
		}
	}
	return reps, nil
}

// otherSubnets are where to look at the subnets of a fabric but the first: from the first host of each.
func otherSubnets(g *topo.Graph) (froms []string) {
	s := g.Subnets()
	for _, h := range g.Hosts() {
		if k := s.Of(topo.PortRef{Node: h.Index, Port: forwarding.CabledPort(h)}); k == len(froms)+1 {
			froms = append(froms, "fabric:"+h.Name)
		}
	}
	return froms
}

// examine looks at whatever --on names.
func (o *doctorCommand) examine(cmd *cobra.Command, bar *stageBar) (doctor.Surveys, doctor.Options, error) {
	ctx := cmd.Context()
	run := doctor.RunOptions{Interval: o.interval, CountersOnly: o.countersOnly, Progress: bar.show}
	limits := health.Default()
	opts := doctor.Options{Thresholds: &limits}
	kind, at, _ := strings.Cut(o.on, ":")
	switch kind {
	case "fabric":
		p, err := newPlace(o.name)
		if err != nil {
			return doctor.Surveys{}, opts, err
		}
		x, err := o.ask(ctx, p, at, bar)
		if err != nil {
			return doctor.Surveys{}, opts, err
		}
		opts = x.Known
		// None is not the same as not known.
		opts.Programs, opts.Hosts = append([]doctor.ProgramFacts{}, opts.Programs...),
			append([]doctor.HostTraffic{}, opts.Hosts...)
		if opts.Plan, err = topo.Parse("the fabric's topology", x.Plan); err != nil {
			return doctor.Surveys{}, opts, err
		}
		return x.surveys().Named(opts.Plan), opts, nil
	case "ibsim":
		port, err := ibsim.Dial(ctx, ibsim.Config{Host: at, Socket: os.Getenv("IBSIM_SOCKNAME"),
			Server: os.Getenv("IBSIM_SERVER_NAME")})
		if err != nil {
			return doctor.Surveys{}, opts, next(err,
				"ibsim -s NETFILE simulates a fabric; IBSIM_SOCKNAME names its socket")
		}
		t := smrun.OnIBSim(ibsim.NewSession(port))
		defer t.Close()
		run.Window = ibsim.InFlight
		s, err := doctor.Run(ctx, t, run)
		return s, opts, err
	case "umad":
		ca, num, _ := strings.Cut(at, ":")
		n := 0
		if num != "" {
			var err error
			if n, err = strconv.Atoi(num); err != nil || n < 1 {
				return doctor.Surveys{}, opts, usage(cmd, fmt.Errorf("--on %s: %q is no port: want a number from 1 on",
					o.on, num))
			}
		}
		port, err := umad.Open(ctx, ca, n)
		if err != nil {
			return doctor.Surveys{}, opts, next(err,
				"softib doctor --on umad needs a port of InfiniBand hardware here; softib up has one in software")
		}
		t := smrun.OnDevice(port)
		defer t.Close()
		run.Window = umadWindow
		limits.IdleCarries = true // real cables carry symbols all the time
		s, err := doctor.Run(ctx, t, run)
		return s, opts, err
	}
	return doctor.Surveys{}, opts, usage(cmd, fmt.Errorf("--on %s: want fabric, ibsim or umad", o.on))
}

// ask lets a running fabric's own process look: it has the ports, and datagrams cost it next to nothing. What it saw is
// judged here, because that takes a while and the fabric has packets to carry.
func (o *doctorCommand) ask(ctx context.Context, p place, host string, bar *stageBar) (*examination, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := surveyRequest{Host: host, IntervalMS: o.interval.Milliseconds(), CountersOnly: o.countersOnly}
	var x *examination
	var unread error
	from, to := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		x, unread = readExamination(from)
		_, _ = io.Copy(io.Discard, from) // what is wrong is known when the fabric has said all
	})
	err = opSurvey.CallTo(ctx, conn, r, to, func(s survey.Progress) error {
		bar.show(s)
		return nil
	})
	to.Close()
	wg.Wait()
	if err != nil {
		return nil, p.failed(err)
	}
	if unread != nil {
		return nil, next(fmt.Errorf("what fabric %s has seen cannot be read: %w", p.name, unread),
			"restart the fabric with the softib that you use now: softib down, softib up -d")
	}
	return x, nil
}

// write passes an examination on, which it takes apart.
func (x *examination) write(w io.Writer) error {
	before := *x.Before
	seen := make([]seenNode, len(before.Nodes))
	readings := func(of *[][]survey.Reading, put func(*seenNode, []survey.Reading)) {
		for i, ports := range *of {
			put(&seen[i], ports)
		}
		*of = nil
	}
	for i, n := range before.Nodes {
		seen[i].Node = n
	}
	readings(&before.Readings, func(n *seenNode, ports []survey.Reading) { n.Before = ports })
	if x.Later != nil {
		readings(&x.Later.Readings, func(n *seenNode, ports []survey.Reading) { n.Later = ports })
	}
	before.Nodes, x.Before, x.Nodes = nil, &before, len(seen)
	b := bufio.NewWriterSize(w, 256<<10)
	enc := gob.NewEncoder(b)
	err := enc.Encode(x)
	for i := 0; err == nil && i < len(seen); i++ {
		err = enc.Encode(&seen[i])
	}
	return errors.Join(err, b.Flush())
}

// readExamination reads what write wrote.
func readExamination(r io.Reader) (*examination, error) {
	var x examination
	dec := gob.NewDecoder(r)
	if err := dec.Decode(&x); err != nil {
		return nil, err
	}
	if x.Before == nil {
		return nil, errors.New("it has no first look")
	}
	for range x.Nodes {
		var n seenNode
		if err := dec.Decode(&n); err != nil {
			return nil, err
		}
		if n.Node == nil {
			return nil, errors.New("it has counters of no node")
		}
		x.Before.Nodes, x.Before.Readings = append(x.Before.Nodes, n.Node), append(x.Before.Readings, n.Before)
		if x.Later != nil {
			x.Later.Readings = append(x.Later.Readings, n.Later)
		}
	}
	return &x, nil
}

// surveys are the two looks.
func (x *examination) surveys() doctor.Surveys {
	s := doctor.Surveys{Routes: x.Routes, Before: x.Before}
	if l := x.Later; l != nil {
		after := *s.Before
		after.Readings, after.Gaps, after.GapCount, after.Asked, after.Ended = l.Readings, l.Gaps, l.GapCount, l.Asked,
			l.Ended
		s.After = &after
	}
	return s
}

// survey looks at this fabric for a client.
func (s *server) survey(ctx context.Context, q surveyRequest, r *control.Reply[survey.Progress]) error {
	interval := time.Duration(q.IntervalMS) * time.Millisecond
	if interval < 0 || interval > intervalMax {
		return &usageError{fmt.Errorf("interval %v: want 0 to %v", interval, intervalMax)}
	}
	ref, keys, guarded := s.mgr.ReadFrom()
	var err error
	switch {
	case guarded && q.Host != "":
		return next(fmt.Errorf("the nodes are guarded: they answer their manager, not %s", q.Host),
			"without naming a host the fabric is read from the manager's port")
	case !guarded:
		if ref, err = endPort(s.f.Fabric, q.Host); err != nil {
			return err
		}
	}
	session, err := s.f.OpenMgmt(ref)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := r.Heard(ctx)
	defer cancel()
	found, err := doctor.Run(ctx, session, doctor.RunOptions{
		Interval: interval, CountersOnly: q.CountersOnly, Window: surveyWindow, Keys: keys,
		Progress: func(p survey.Progress) { _ = r.Say(p) },
	})
	if err != nil {
		return err
	}
	x := examination{Before: found.Before, Routes: found.Routes, Plan: topo.Append(nil, s.f.Graph()),
		Known: doctor.Known(s.mgr)}
	x.Known.Plan = nil
	if a := found.After; a != nil {
		x.Later = &laterLook{a.Readings, a.Gaps, a.GapCount, a.Asked, a.Ended}
	}
	return x.write(r)
}

// surveyWindow is how many questions this fabric's own nodes are asked at once.
const surveyWindow = 1024

// stageBar shows the progress of a survey, stage by stage.
type stageBar struct {
	t              *terminal
	bar            *progress
	stage          survey.Stage
	started, shown time.Time
}

func (b *stageBar) show(p survey.Progress) {
	if p.Stage == survey.StageDone {
		return
	}
	if b.started.IsZero() {
		b.started = time.Now()
	}
	if b.bar == nil || b.stage != p.Stage {
		b.end()
		b.bar, b.stage = b.t.progress(p.Stage.String()), p.Stage
		b.bar.started, b.bar.shown = b.started, b.shown // it is the whole that takes long
	}
	b.bar.at(p.Done, max(p.Total, 1))
	b.shown = b.bar.shown
}

func (b *stageBar) end() {
	if b.bar != nil {
		b.bar.end()
		b.bar = nil
	}
}
