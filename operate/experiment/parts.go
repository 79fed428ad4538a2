package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"softib/driver/jobs"
	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Part is one of several jobs that run at once.
type Part struct {
	Name string
	// Ranks is how many; 0 is an equal share of the hosts that are left, or all where hosts are shared.
	Ranks int
	// Schedule makes the schedule for so many ranks.
	Schedule func(ranks int, seed uint64) (*job.Schedule, error)
	// Fit, if there is one, is told before that how many ranks follow each other in a server, 1 where they do not; and
	// Says tells after it what was made.
	Fit  func(perServer int)
	Says func() []string
}

// parts are the jobs; a Spec without any has one.
func (s *Spec) parts() []Part {
	if len(s.Jobs) > 0 {
		return slices.Clone(s.Jobs)
	}
	return []Part{{Name: s.Load, Ranks: s.Ranks, Schedule: s.Schedule}}
}

// built is the jobs' schedules.
type built struct {
	parts []Part
	list  []*job.Schedule
	first []int // the first rank of each, and behind the last
}

// build places the jobs' ranks and makes their schedules.
func (s *Spec) build() (*built, error) {
	hosts, err := s.hosts()
	if err != nil {
		return nil, err
	}
	b := &built{parts: s.parts()}
	if err := s.count(b.parts, len(hosts)); err != nil {
		return nil, err
	}
	of, _ := s.Graph.Servers()
	s.Options.Place, s.Options.Jobs = nil, nil
	at := 0
	for k := range b.parts {
		p := &b.parts[k]
		if s.Share {
			at = 0
		}
		places := hosts[at : at+p.Ranks]
		if p.Fit != nil {
			p.Fit(perServer(places, of))
		}
		sched, err := p.Schedule(p.Ranks, s.Seed+uint64(k))
		if err != nil {
			return nil, err
		}
		if len(sched.Ranks) > p.Ranks {
			return nil, fmt.Errorf("%w: the schedule has %d ranks and the fabric %d hosts; next: take a larger "+
				"topology", ErrSpec, len(sched.Ranks), p.Ranks)
		}
		b.list = append(b.list, sched)
		b.first = append(b.first, len(s.Options.Place))
		places = places[:len(sched.Ranks)]
		s.Options.Place = append(s.Options.Place, places...)
		for range places {
			s.Options.Jobs = append(s.Options.Jobs, uint8(k))
		}
		at += p.Ranks
	}
	b.first = append(b.first, len(s.Options.Place))
	if len(b.parts) == 1 {
		// One job has all places, as it may name more than it uses.
		s.Options.Place, s.Options.Jobs = hosts[:b.parts[0].Ranks], nil
	}
	return b, nil
}

// count gives ranks to the jobs that do not say how many.
func (s *Spec) count(parts []Part, hosts int) error {
	said, open := 0, 0
	for _, p := range parts {
		if p.Ranks == 0 {
			open++
		}
		said += p.Ranks
		if p.Ranks > hosts || p.Ranks < 0 {
			return fmt.Errorf("%w: %d ranks on %d hosts; next: take a larger topology or fewer ranks", ErrSpec, p.Ranks,
				hosts)
		}
	}
	share := hosts
	if !s.Share {
		if share = hosts - said; open > 0 {
			share /= open
		}
	}
	if share < 0 || open > 0 && share < 1 || len(parts) > maxJobs {
		return fmt.Errorf("%w: %d jobs do not fit on %d hosts; next: take a larger topology, fewer ranks, or --share",
			ErrSpec, len(parts), hosts)
	}
	for k := range parts {
		if parts[k].Ranks == 0 {
			parts[k].Ranks = share
		}
	}
	return nil
}

const maxJobs = 64

// whole is all jobs at once; only, if it is none of them, has the others do nothing.
func (b *built) whole(only int) (*job.Schedule, error) {
	if len(b.list) == 1 {
		return b.list[0], nil
	}
	list := slices.Clone(b.list)
	for k := range list {
		if only >= 0 && only != k {
			idle, err := job.NewBuilder(len(list[k].Ranks)).Schedule()
			if err != nil {
				return nil, err
			}
			list[k] = idle
		}
	}
	return job.Merge(list...), nil
}

// hosts are the end ports of all hosts, in the order in which ranks are placed.
func (s *Spec) hosts() ([]topo.PortRef, error) {
	hosts := s.Graph.Hosts()
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
	case "by-rail":
		order = byRail(s.Graph)
	default:
		return nil, fmt.Errorf("%w: place %q: want one of %v", ErrSpec, s.Place, Places)
	}
	var list []topo.PortRef
	for _, i := range order {
		port := ib.PortNum(1)
		for int(port) < len(hosts[i].Ports)-1 && !hosts[i].Ports[port].Connected() {
			port++
		}
		list = append(list, topo.PortRef{Node: hosts[i].Index, Port: port})
	}
	return list, nil
}

// byRail orders hosts by which adapter of its server each is: the first of every server, then the second and so on.
func byRail(g *topo.Graph) []int {
	of, count := g.Servers()
	seen := make([]int, count)
	var rails [][]int
	for i, h := range g.Hosts() {
		rail := 0
		if s := of[h.Index]; s >= 0 {
			rail = seen[s]
			seen[s]++
		}
		for len(rails) <= rail {
			rails = append(rails, nil)
		}
		rails[rail] = append(rails[rail], i)
	}
	return slices.Concat(rails...)
}

// perServer is how many ranks that follow each other are in one server, if that is so for all of them, else 1.
func perServer(places []topo.PortRef, of []int32) int {
	n := 0
	for n < len(places) && of[places[n].Node] >= 0 && of[places[n].Node] == of[places[0].Node] {
		n++
	}
	if n < 2 || len(places)%n != 0 {
		return 1
	}
	for i := range places {
		if of[places[i].Node] < 0 || of[places[i].Node] != of[places[i-i%n].Node] {
			return 1
		}
	}
	return n
}

// lose takes switches of the top level out: the first ones.
func lose(g *topo.Graph, count int) (*topo.Graph, error) {
	level := levels(g)
	top := slices.Max(level)
	g = g.Clone()
	lost := 0
	for _, n := range g.Switches() {
		if level[n.Index] != top || lost == count {
			continue
		}
		lost++
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Connected() {
				if err := g.Disconnect(n.Index, ib.PortNum(p)); err != nil {
					return nil, err
				}
			}
		}
	}
	if lost < count || top < 2 {
		return nil, fmt.Errorf("%w: %d switches of the top level cannot be lost: there are %d; next: --set lost=less",
			ErrSpec, count, lost)
	}
	return g, nil
}

// step works out what the ranks' calculations leave of the time, where there are any: how long the job would take on a
// network that takes no time, and how busy its processors are.
func (r *Report) step(ctx context.Context, s *job.Schedule, res *jobs.Result) error {
	work, ranks := 0.0, 0
	for i := range s.Ranks {
		sum := uint64(0)
		for _, o := range s.Ranks[i].Ops {
			if o.Kind == job.Calc && o.CPU == 0 {
				sum += o.Size
			}
		}
		if sum > 0 {
			ranks++
			work += float64(sum) / 1e9
		}
	}
	if ranks == 0 || !res.Whole {
		return nil
	}
	ideal, err := jobs.Run(ctx, s, play.Model{Ideal: true}, jobs.Ideal{}, jobs.Watch{})
	if err != nil {
		return err
	}
	r.Step = &Step{Compute: work / float64(ranks), Alone: seconds(ideal.End), Exposed: seconds(res.End - ideal.End)}
	if res.End > 0 {
		r.Step.Utilisation = r.Step.Compute / seconds(res.End)
	}
	return nil
}

// perJob says what each of several jobs had.
func (r *Report) perJob(b *built, res *jobs.Result) {
	for k := range b.parts {
		j := Job{Name: b.parts[k].Name, Ranks: b.first[k+1] - b.first[k]}
		j.End, j.Took = b.times(k, res)
		r.Jobs = append(r.Jobs, j)
	}
}

// times are a job's end and how long its messages took.
func (b *built) times(k int, res *jobs.Result) (end float64, took Spread) {
	for rank := b.first[k]; rank < b.first[k+1]; rank++ {
		end = max(end, seconds(res.Ranks[rank]))
	}
	var list []float64
	for i := range res.Messages {
		if m := &res.Messages[i]; int(m.From) >= b.first[k] && int(m.From) < b.first[k+1] && m.Arrived != ib.Never {
			list = append(list, seconds(m.Arrived-m.Start))
		}
	}
	return end, spread(list)
}
