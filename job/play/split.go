package play

import "maps"

// Split divides a player that has just been made among n: of says for each rank whose it is. Each plays its own ranks
// with the messages of all, and they may do so at the same time, as long as what one does with a message reaches the
// driver of another only by that message. A rendezvous of three messages does not keep to that, nor does a network that
// is ideal.
//
// Join makes one of them again, to ask for what has become of all; Tally does so for what is counted, in between.
func (p *Player) Split(n int, of func(rank uint32) int) []*Player {
	parts := make([]*Player, n)
	for i := range parts {
		parts[i] = &Player{s: p.s, m: p.m, hosts: p.hosts, msgs: p.msgs}
	}
	for i := range p.hosts {
		parts[of(uint32(i))].undone += p.hosts[i].undone
	}
	for len(p.queue) > 0 {
		e := p.queue.Pop()
		parts[of(e.rank)].push(e)
	}
	return parts
}

// Tally counts what has become of all, for Done, Progress and Messages.
func (p *Player) Tally(parts []*Player) {
	p.undone, p.sent = 0, 0
	for _, q := range parts {
		p.undone += q.undone
		p.sent += q.sent
		p.now = max(p.now, q.now)
	}
}

// Join takes back what Split has given away.
func (p *Player) Join(parts []*Player) {
	p.Tally(parts)
	for _, q := range parts {
		p.posted.join(&q.posted)
		p.early.join(&q.early)
	}
}

func (q *pending) join(o *pending) {
	if q.lots == nil {
		q.lots = o.lots
	} else {
		maps.Copy(q.lots, o.lots)
	}
	if q.wild == nil {
		q.wild = o.wild
	} else {
		maps.Copy(q.wild, o.wild)
	}
}
