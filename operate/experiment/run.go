package experiment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"softib/driver/jobs"
	"softib/job"
	"softib/job/play"
	"softib/operate/wiring"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Levels at which a run can be done.
const (
	Auto    = "auto"
	Packets = "packets"
	Flows   = "flows"
	// IdealNet is no network: every message takes Model.Latency, as in LogGOPSim.
	IdealNet = "ideal"
)

// Spec is what to build and what to run.
type Spec struct {
	// Topology is how the graph was asked for, Load how the schedule was, Command how the whole was.
	Topology, Load, Command string
	Graph                   *topo.Graph
	// Schedule makes the schedule for so many ranks.
	Schedule func(ranks int, seed uint64) (*job.Schedule, error)
	// Ranks is how many; 0 is one for each host. Place says on which hosts: see Places.
	Ranks int
	Place string
	// Jobs are several that run at once, instead of Schedule; each on hosts of its own, or with Share all on the same.
	// Alone runs each of them by itself too.
	Jobs         []Part
	Share, Alone bool
	// Lost is how many switches of the top level are missing.
	Lost int
	// Level is Auto, Packets, Flows or IdealNet.
	Level   string
	Seed    uint64
	Options jobs.Options
	Model   play.Model
	// Prices is what the fabric costs, in dollars and in watts; nil are the default ones.
	Prices *wiring.Prices
}

// Places are the ways to place ranks on hosts: one after the other in the order of the graph, by chance, each on
// another leaf than the one before, or the first adapter of every server, then the second and so on.
var Places = []string{"linear", "random", "by-leaf", "by-rail"}

// Progress is how far a run has come.
type Progress struct {
	Level      string
	Now        ib.Time
	Ended, All int // operations
	Messages   int
	Hops       uint64
}

// ErrSpec is what every refusal is.
var ErrSpec = errors.New("not an experiment that can be run")

// Run does it. If ctx or the watch ends the run, the report is of what there was by then.
func Run(ctx context.Context, s Spec, watch func(Progress)) (*Report, error) {
	began := time.Now()
	var err error
	if s.Lost > 0 {
		if s.Graph, err = lose(s.Graph, s.Lost); err != nil {
			return nil, err
		}
	}
	b, err := s.build()
	if err != nil {
		return nil, err
	}
	sched, err := b.whole(everyJob)
	if err != nil {
		return nil, err
	}
	s.Options.Seed = s.Seed
	f, err := jobs.NewFabric(s.Graph, s.Options)
	if err != nil {
		return nil, err
	}
	r := &Report{Command: s.Command, Seed: s.Seed, Level: s.Level, Why: "asked for"}
	r.describe(&s, f, sched)
	for _, p := range b.parts {
		if p.Says != nil {
			r.Load.Says = append(r.Load.Says, p.Says()...)
		}
	}
	if s.Level == Auto || s.Level == "" {
		r.Level, r.Why = choose(f, sched)
		if why := cmp.Or(s.queues(), s.choices()); why != "" {
			r.Level, r.Why = Packets, why
		}
	}
	if r.Level == Flows {
		if why := s.queues(); why != "" {
			return nil, fmt.Errorf("%w: %s; next: --level packets", ErrSpec, why)
		}
		if why := s.choices(); why != "" {
			r.Why += "; " + why + s.instead()
		}
	}
	if s.isEthernet() && r.Level == IdealNet {
		return nil, fmt.Errorf("%w: --level ideal has no network, of Ethernet neither; next: --level packets", ErrSpec)
	}
	net, packets, err := s.network(f, r.Level)
	if err != nil {
		return nil, err
	}
	hops := func() uint64 { return 0 }
	if packets != nil {
		start := packets.Hops()
		hops = func() uint64 { return packets.Hops() - start }
	}
	look := newSampler(f, net)
	res, err := jobs.Run(ctx, sched, s.Model, net, jobs.Watch{Sample: look.sample, Interval: look.every,
		Look: func(p jobs.Progress) error {
			if watch != nil {
				watch(Progress{r.Level, p.Now, p.Ended, p.All, p.Messages, hops()})
			}
			return nil
		}})
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		r.Stopped = "somebody ended the run before its end"
	case err != nil:
		return nil, err
	}
	r.Whole, r.Hops, r.Hash = res.Whole, hops(), hash(r.Level, res)
	if packets != nil {
		r.ethernet(&s, packets)
		r.adapters(packets)
	}
	r.figures(f, res, look)
	if err := r.costs(&s, f, look); err != nil {
		return nil, err
	}
	if err := r.step(ctx, sched, res); err != nil {
		return nil, err
	}
	if len(b.parts) > 1 {
		r.perJob(b, res)
		if err := r.alone(ctx, &s, b, f); err != nil {
			return nil, err
		}
	}
	r.Wall = time.Since(began).Seconds()
	return r, nil
}

// everyJob is no job in particular.
const everyJob = -1

// network is one of the level, with the packets in it, if there are any.
func (s *Spec) network(f *jobs.Fabric, level string) (net jobs.Network, packets *jobs.Packets, err error) {
	switch level {
	case Packets:
		if packets, err = f.Packets(); err != nil {
			return nil, nil, err
		}
		net = packets
	case IdealNet:
		s.Model.Ideal = true
		return jobs.Ideal{}, nil, nil
	default:
		net = f.Flows()
	}
	return f.Joined(net), packets, nil
}

// alone runs each job by itself, on the hosts that it has.
func (r *Report) alone(ctx context.Context, s *Spec, b *built, f *jobs.Fabric) error {
	for k := range b.parts {
		if !s.Alone {
			return nil
		}
		sched, err := b.whole(k)
		if err != nil {
			return err
		}
		net, _, err := s.network(f, r.Level)
		if err != nil {
			return err
		}
		res, err := jobs.Run(ctx, sched, s.Model, net, jobs.Watch{})
		if err != nil {
			return err
		}
		end, took := b.times(k, res)
		r.Jobs[k].Alone = &Alone{End: end, Took: took}
	}
	return nil
}

// queues says what needs the queues of packets, if anything does.
func (s *Spec) queues() string {
	switch e := &s.Options.Ethernet; {
	case s.Options.Congestion.On:
		return "switches mark packets in long queues, which flows do not have"
	case s.isEthernet() && (e.Kind != jobs.RoCE || e.Storm > 0 || e.Watchdog > 0):
		return "losses and storms of pauses come from queues, which flows do not have"
	case s.Options.Adapter.On():
		return "adapters pay for packets, which flows do not have"
	case s.Options.Loss.Part > 0:
		return "packets get lost with links, and flows have none"
	case s.Options.QPs > 1, s.Options.Read:
		return "queue pairs carry packets, which flows do not have"
	}
	return ""
}

// choices says what packets do that flows do after a fashion, if anything.
func (s *Spec) choices() string {
	switch {
	case s.isEthernet():
		return "pauses and DCQCN come from queues, which flows do not have"
	case s.Options.Adaptive != route.NoChoice:
		return "switches choose by their queues, which flows do not have"
	}
	return ""
}

// instead is what flows do of that.
func (s *Spec) instead() string {
	says := ""
	if s.isEthernet() {
		says = ": nobody is paused, and senders have their fair rates at once"
	}
	switch {
	case s.Options.Adaptive == route.ByPacket:
		says += ": messages are spread evenly over their ways; read it as the best case"
	case s.Options.Adaptive != route.NoChoice:
		says += ": messages take the ports with the fewest others"
	}
	return says
}

// byLeaf orders hosts so that one after the other is on another switch.
func byLeaf(hosts []*topo.Node) []int {
	var leafs []int
	of := map[int][]int{}
	for i, h := range hosts {
		leaf := h.Ports[1].Peer
		if of[leaf] == nil {
			leafs = append(leafs, leaf)
		}
		of[leaf] = append(of[leaf], i)
	}
	order := make([]int, 0, len(hosts))
	for k := 0; len(order) < len(hosts); k++ {
		for _, l := range leafs {
			if k < len(of[l]) {
				order = append(order, of[l][k])
			}
		}
	}
	return order
}

// What packets may take at most where nobody has said: about half a minute, and a few GiB for queue pairs.
const (
	maxHops  = 30e6
	maxPairs = 60_000
)

// choose says at which level to run, and why.
func choose(f *jobs.Fabric, s *job.Schedule) (level, why string) {
	const mtu, acks = 4096, 1.25
	packets := 0.0
	pairs := map[uint64]struct{}{}
	for i := range s.Ranks {
		for _, o := range s.Ranks[i].Ops {
			if o.Kind != job.Send || f.InServer(uint32(i), o.Peer) {
				continue
			}
			packets += float64(o.Size)/mtu + 1
			if len(pairs) <= maxPairs {
				pairs[uint64(i)<<32|uint64(o.Peer)] = struct{}{}
			}
		}
	}
	hops := acks * packets * 2 * float64(depth(f.Graph)+1)
	switch {
	case hops > maxHops:
		return Flows, fmt.Sprintf("packets would cross links some %.0f million times; --level packets does it all "+
			"the same", hops/1e6)
	case len(pairs) > maxPairs:
		return Flows, fmt.Sprintf("more than %d pairs of ranks talk, each with queue pairs of its own; --level "+
			"packets does it all the same", maxPairs)
	}
	return Packets, fmt.Sprintf("some %.1f million crossings of links are quickly done", math.Max(hops/1e6, 0.1))
}

// hash is over all that happened.
func hash(level string, res *jobs.Result) string {
	h := sha256.New()
	h.Write([]byte(level))
	var b []byte
	for _, t := range res.Ranks {
		b = binary.LittleEndian.AppendUint64(b, uint64(t))
	}
	h.Write(b)
	for i := range res.Messages {
		m := &res.Messages[i]
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(m.From)<<32|uint64(m.To))
		b = binary.LittleEndian.AppendUint64(b, m.Size)
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Start))
		h.Write(binary.LittleEndian.AppendUint64(b, uint64(m.Arrived)))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}
