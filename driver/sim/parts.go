package sim

import (
	"errors"
	"slices"
	"sync"
	"time"

	"softib/fabric"
	"softib/node/link"
	"softib/proto/ib"
	"softib/subnet/sm"
)

// Parts is a simulation on which several processors work, each on the nodes of its part.
//
// Time is cut into windows so short that nothing which leaves a part within one can reach another before the next
// (conservative windows: Chandy, Misra; the time that is looked ahead is that of the shortest cable between parts, and
// of the switch at its end). Within a window parts know nothing of each other; between two they exchange what crosses.
// What happens to a node, and so the digest of the history, does not depend on how many parts there are, if
// Config.ByPlace was set.
type Parts struct {
	sims  []*Sim
	of    []uint8 // by node: its part
	ahead ib.Time
	next  ib.Time // when the next thing happens anywhere; that is where the next window begins
	round int     // counts windows
	boxes [][]box // by sender and receiver
	said  [2][]report
	meet  meeting
	pace  pace
}

// box is what a part has for another: of two windows, one that is filled while the other is read.
type box [2][]fabric.Away

// report is what a part says at the end of a window.
type report struct {
	next ib.Time
	err  error
	_    [40]byte // a cache line of its own
}

// ErrWhole: hosts that have to stay together are too many for a simulation to be divided.
var ErrWhole = errors.New("sim: most hosts have to stay together")

// Split divides a simulation among n processors. Hosts of one group stay together, if there are groups: they are
// numbered, by node, and -1 is none. The simulation must have been made with ByPlace; nothing but the credits of links
// that have come up may be under way in it, and from now on it is the first part, which counts for all. Parts may not
// be given what concerns several: managers, faults, captures, reductions.
func (s *Sim) Split(n int, groups []int32) (*Parts, error) {
	if s.reductions != nil || s.managed || len(s.timers) > 0 {
		return nil, errors.New("sim: Split with reductions, managers or timers")
	}
	p := &Parts{sims: make([]*Sim, n), of: divide(s.graph, n, groups), next: s.Now(), boxes: make([][]box, n)}
	hosts := make([]int, n)
	for i := range s.hosts {
		hosts[p.of[s.HostNode(i).Index]]++
	}
	if slices.Max(hosts) > len(s.hosts)*3/4 {
		return nil, ErrWhole
	}
	pools := make([]*link.Pool, n)
	for i := range p.sims {
		p.sims[i] = s
		if i > 0 {
			p.sims[i] = &Sim{cfg: s.cfg, hosts: s.hosts, lots: s.lots, graph: s.graph, nodes: s.nodes,
				saved: map[int]sm.Memory{}, groups: s.groups, autoActive: s.autoActive}
			p.sims[i].pool.BufSize = s.pool.BufSize
		}
		pools[i] = &p.sims[i].pool
		p.boxes[i] = make([]box, n)
	}
	engines, ahead, err := s.Engine.Split(p.of, pools)
	if err != nil {
		return nil, err
	}
	for i, e := range engines {
		p.sims[i].Engine = e
	}
	for range s.wakes.Len() { // of hosts alone: no timer was set
		w, _ := s.wakes.Pop()
		p.sims[p.of[s.HostNode(w.Host).Index]].wakes.Push(w)
	}
	p.ahead = ahead
	p.said = [2][]report{make([]report, n), make([]report, n)}
	p.meet.init(n)
	return p, nil
}

// Sim is a part. Its hosts are those that PartOf says.
func (p *Parts) Sim(part int) *Sim { return p.sims[part] }

// PartOf is the part that a node of the graph is of.
func (p *Parts) PartOf(node int) int { return int(p.of[node]) }

// Next is when the next thing happens, Never if nothing will. It is known after Run.
func (p *Parts) Next() ib.Time { return p.next }

// Work lets a part do what it has to do by then, and returns when it next has something to do.
type Work func(part int, until ib.Time) (next ib.Time, err error)

// Run lets some time pass: a number of windows, but not more than until limit, until nothing is left to happen, or
// until a part fails. Work is done for all parts at once, again and again; or, where that is quicker, for one after the
// other. Call it until Next is behind the limit.
func (p *Parts) Run(limit ib.Time, work Work) error {
	if p.next > limit {
		return nil
	}
	together, windows := p.pace.choose()
	start, hops := time.Now(), p.sims[0].Hops()
	var err error
	if together {
		err = p.together(limit, windows, work)
	} else {
		err = p.inTurn(limit, windows, work)
	}
	p.pace.note(together, time.Since(start), p.sims[0].Hops()-hops)
	return err
}

// together has a processor for each part.
func (p *Parts) together(limit ib.Time, windows int, work Work) error {
	var wg sync.WaitGroup
	run := func(part int) (next ib.Time, round int, err error) {
		next, round = p.next, p.round
		for n := windows; ; {
			p.window(part, round, next, limit, work)
			p.meet.wait()
			p.tidy(part, round)
			next, err = p.sum(round)
			round++
			if n--; n == 0 || err != nil || next == ib.Never || next > limit {
				return next, round, err
			}
		}
	}
	for part := 1; part < len(p.sims); part++ {
		wg.Go(func() { run(part) })
	}
	next, round, err := run(0)
	wg.Wait()
	p.next, p.round = next, round
	return err
}

// inTurn does all of it on one processor.
func (p *Parts) inTurn(limit ib.Time, windows int, work Work) (err error) {
	for {
		for part := range p.sims {
			p.window(part, p.round, p.next, limit, work)
		}
		for part := range p.sims {
			p.tidy(part, p.round)
		}
		p.next, err = p.sum(p.round)
		p.round++
		if windows--; windows == 0 || err != nil || p.next == ib.Never || p.next > limit {
			return err
		}
	}
}

// window is what a part does within one, which begins at next: it takes in what the others had for it by its beginning,
// and says what it has by its end.
func (p *Parts) window(part, round int, next, limit ib.Time, work Work) {
	s, now := p.sims[part], round&1
	for from := range p.boxes {
		s.HandleAway(p.boxes[from][part][1-now])
	}
	until := limit
	if next < limit-p.ahead {
		until = next + p.ahead - 1
	}
	said := &p.said[now][part]
	said.next, said.err = work(part, until)
	said.next = min(said.next, s.NextAway())
	for to := range p.boxes {
		p.boxes[part][to][now] = s.TakeAway(to, p.boxes[part][to][now])
	}
}

// tidy takes back what the others have read in the window that is over.
func (p *Parts) tidy(part, round int) {
	for to := range p.boxes {
		list := &p.boxes[part][to][1-round&1]
		p.sims[part].FreeAway(*list)
		*list = (*list)[:0]
	}
}

// sum is what all parts have said at the end of a window.
func (p *Parts) sum(round int) (next ib.Time, err error) {
	next = ib.Never
	for i := range p.sims {
		said := &p.said[round&1][i]
		next = min(next, said.next)
		if err == nil {
			err = said.err
		}
	}
	return next, err
}
