package experiment

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"softib/driver/jobs"
	"softib/job"
	"softib/job/play"
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
	// Level is Auto, Packets, Flows or IdealNet.
	Level   string
	Seed    uint64
	Options jobs.Options
	Model   play.Model
}

// Places are the ways to place ranks on hosts: one after the other in the order of the graph, by chance, or each on
// another leaf than the one before.
var Places = []string{"linear", "random", "by-leaf"}

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
	ranks, err := s.place()
	if err != nil {
		return nil, err
	}
	sched, err := s.Schedule(ranks, s.Seed)
	if err != nil {
		return nil, err
	}
	if len(sched.Ranks) > len(s.Options.Place) {
		return nil, fmt.Errorf("%w: the schedule has %d ranks and the fabric %d hosts; next: take a larger "+
			"topology", ErrSpec, len(sched.Ranks), len(s.Options.Place))
	}
	s.Options.Seed = s.Seed
	f, err := jobs.NewFabric(s.Graph, s.Options)
	if err != nil {
		return nil, err
	}
	r := &Report{Command: s.Command, Seed: s.Seed, Level: s.Level, Why: "asked for"}
	r.describe(&s, f, sched)
	if s.Level == Auto || s.Level == "" {
		r.Level, r.Why = choose(f, sched)
		if why := s.queues(); why != "" {
			r.Level, r.Why = Packets, why
		}
	}
	if why := s.queues(); why != "" && r.Level == Flows {
		return nil, fmt.Errorf("%w: %s; next: --level packets", ErrSpec, why)
	}
	var net jobs.Network
	hops := func() uint64 { return 0 }
	switch r.Level {
	case Packets:
		p, err := f.Packets()
		if err != nil {
			return nil, err
		}
		start := p.Hops()
		net, hops = p, func() uint64 { return p.Hops() - start }
	case IdealNet:
		s.Model.Ideal = true
		net = jobs.Ideal{}
	default:
		net = f.Flows()
	}
	if r.Level != IdealNet {
		net = f.Joined(net)
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
	r.figures(f, res, look)
	r.Wall = time.Since(began).Seconds()
	return r, nil
}

// queues says what needs the queues of packets, if anything does.
func (s *Spec) queues() string {
	switch {
	case s.Options.Adaptive != route.NoChoice:
		return "switches choose by their queues, which flows do not have"
	case s.Options.Congestion.On:
		return "switches mark packets in long queues, which flows do not have"
	}
	return ""
}

// place puts ranks on hosts, and returns how many there are.
func (s *Spec) place() (int, error) {
	hosts := s.Graph.Hosts()
	ranks := s.Ranks
	if ranks == 0 {
		ranks = len(hosts)
	}
	if ranks > len(hosts) || ranks < 1 {
		return 0, fmt.Errorf("%w: %d ranks on %d hosts; next: take a larger topology or fewer ranks", ErrSpec, ranks,
			len(hosts))
	}
	order := make([]int, len(hosts))
	for i := range order {
		order[i] = i
	}
	switch s.Place {
	case "", "linear":
	case "random":
		rand.New(rand.NewPCG(s.Seed, 0x97ACE)).Shuffle(len(order), func(a, b int) {
			order[a], order[b] = order[b], order[a]
		})
	case "by-leaf":
		order = byLeaf(hosts)
	default:
		return 0, fmt.Errorf("%w: place %q: want one of %v", ErrSpec, s.Place, Places)
	}
	s.Options.Place = nil
	for _, i := range order[:ranks] {
		port := ib.PortNum(1)
		for int(port) < len(hosts[i].Ports)-1 && !hosts[i].Ports[port].Connected() {
			port++
		}
		s.Options.Place = append(s.Options.Place, topo.PortRef{Node: hosts[i].Index, Port: port})
	}
	return ranks, nil
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
