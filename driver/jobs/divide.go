package jobs

import (
	"errors"

	"softib/driver/sim"
	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
)

// What is divided among so many processors at most: hosts, some at least in each part, and connections, which must all
// be there before.
const (
	maxCores = 64
	minPart  = 16
	maxConns = 1 << 17
)

// divisible reports whether hosts learn of each other by packets alone, as far as the fabric's options go. Not so are
// messages that their receivers fetch, who know of them at once, links that get lost, and what mends tables then, and
// Ethernet, whose pauses are watched over the whole fabric.
func (o *Options) divisible() bool { return !o.Read && o.Loss.Part == 0 && !o.Ethernet.isOn() }

// divisible is the network of a run on which several processors can work; nil if it is not such a run. Nor is one with
// a rendezvous, which a message's two ends keep account of together, or with reductions. All connections are made here,
// since each concerns two hosts at once.
func divisible(s *job.Schedule, m play.Model, net Network) (*Packets, error) {
	if j, ok := net.(*joined); ok {
		net = j.Network
	}
	n, ok := net.(*Packets)
	if !ok || !n.f.opt.divisible() || len(s.Groups) > 0 || m.Handshake {
		return nil, nil
	}
	count := 0
	for i := range s.Ranks {
		to := map[uint32]bool{}
		for _, o := range s.Ranks[i].Ops {
			if o.Kind == job.Send && !to[o.Peer] {
				to[o.Peer] = true
				count++
			}
		}
	}
	if count*max(n.f.opt.QPs, 1)*max(n.f.Graph.Planes, 1) > maxConns {
		return nil, nil
	}
	return n, n.connectAll(s)
}

// connectAll makes the queue pairs of all messages that there will be.
func (n *Packets) connectAll(s *job.Schedule) error {
	for i := range s.Ranks {
		for _, o := range s.Ranks[i].Ops {
			if o.Kind != job.Send || n.f.InServer(uint32(i), o.Peer) {
				continue
			}
			from, to, err := n.f.ends(play.Message{From: uint32(i), To: o.Peer, NIC: o.NIC}, &n.planes)
			if err == nil {
				_, err = n.conn(from, to, uint32(i))
			}
			if err != nil {
				return err
			}
		}
	}
	n.planes = planeTurns{}
	clear(n.turns)
	return nil
}

// rest lets what is still on its way come to an end: acknowledgements, and credits.
func (n *Packets) rest() error {
	for w := n.Next(ib.Never); w.Kind != sim.WakeIdle; w = n.Next(ib.Never) {
		if w.Kind == sim.WakeHost {
			if err := n.completions(w.Host); err != nil {
				return err
			}
		}
	}
	return nil
}

// undivided runs all of it on one processor, to the end of what is on its way.
func (r *running) undivided(n *Packets) error {
	if err := r.alone(); err != nil {
		return err
	}
	return n.rest()
}

// divided runs all of it on several processors. Each has some hosts with their ranks.
func (r *running) divided(n *Packets) error {
	cores := min(n.f.opt.Cores, len(n.hosts)/minPart, maxCores)
	if cores < 2 {
		return r.undivided(n)
	}
	parts, nets, err := n.divide(cores)
	if errors.Is(err, sim.ErrWhole) {
		return r.undivided(n)
	}
	if err != nil {
		return err
	}
	stages, players := make([]stage, cores), r.p.Split(cores, func(rank uint32) int {
		return parts.PartOf(n.f.Place(rank).Node)
	})
	for i := range stages {
		stages[i] = stage{p: players[i], net: n.f.Joined(nets[i])}
	}
	work := func(i int, until ib.Time) (ib.Time, error) {
		for s := &stages[i]; ; {
			err := s.send()
			still := false
			if err == nil {
				still, err = s.turn(until)
			}
			if still || err != nil {
				return min(s.p.NextDeadline(), s.net.(nexter).next()), err
			}
		}
	}
	for parts.Next() != ib.Never {
		limit := ib.Never
		if !r.p.Done() {
			limit = r.sampleAt()
		}
		err := parts.Run(limit, work)
		r.p.Tally(players)
		if err != nil {
			return err
		}
		if r.now = min(parts.Next(), limit); parts.Next() > limit && !r.p.Done() {
			r.sample(limit)
		}
		if err := r.look(); err != nil {
			return err
		}
	}
	if r.p.Done() {
		return nil
	}
	r.now = 0
	for _, q := range nets {
		n.out += q.out // none by NVLink, which always comes to an end
		r.now = max(r.now, q.Now())
	}
	if n.out > 0 {
		return &StuckError{At: r.now, What: n.jam()}
	}
	r.p.Join(players)
	return &StuckError{At: r.now, What: r.p.Stuck()}
}

// nexter knows when something happens next.
type nexter interface{ next() ib.Time }

func (n *Packets) next() ib.Time { return n.Engine.Next() }
func (n *joined) next() ib.Time  { return min(n.links.NextDeadline(), n.Network.(nexter).next()) }

// divide makes a network for each part. They share what is not written any more: connections, and where they are.
func (n *Packets) divide(cores int) (*sim.Parts, []*Packets, error) {
	parts, err := n.Split(cores, n.f.servers)
	if err != nil {
		return nil, nil, err
	}
	nets := make([]*Packets, cores)
	for i := range nets {
		q := &Packets{Sim: parts.Sim(i), f: n.f, hosts: n.hosts, index: n.index, pairs: n.pairs, turns: map[pair]int{},
			conns: n.conns, mem: n.mem, rep: n.rep}
		q.groups = &groups{net: q}
		nets[i] = q
		sink := make([]byte, chunk) // of its own: what two processors write to is slow for both
		for k := range n.hosts {
			if node := n.HostNode(k).Index; parts.PartOf(node) == i {
				if err := n.hosts[k].setSink(sink); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	return parts, nets, nil
}
