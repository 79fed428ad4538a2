package play

import (
	"softib/job"
	"softib/proto/ib"
)

// step lets one event happen.
func (p *Player) step(e event) {
	h := &p.hosts[e.rank]
	switch e.kind {
	case opCalc:
		o := &p.s.Ranks[e.rank].Ops[e.what]
		if at := h.cpu[o.CPU]; at > e.at {
			p.later(e, at)
			return
		}
		end := e.at + ib.Time(o.Size)*ib.Nanosecond
		h.cpu[o.CPU] = end
		p.begun(e.rank, e.what, e.at)
		p.ended(e.rank, e.what, end)
	case opSend, opGroup:
		p.send(e, h)
	case opRecv:
		p.receive(e)
	case arrival:
		p.arrive(e, h)
	case leave:
		p.leaves(e.what, whole)
	}
}

// beyond is the part of a cost that grows with the bytes: all but the first pay.
func beyond(size uint64, each ib.Time) ib.Time { return ib.Time(max(size, 1)-1) * each }

// send begins a message when its processor and port are free.
func (p *Player) send(e event, h *host) {
	o := &p.s.Ranks[e.rank].Ops[e.what]
	if at := max(h.cpu[o.CPU], h.out[o.NIC]); at > e.at {
		p.later(e, at)
		return
	}
	p.begun(e.rank, e.what, e.at)
	h.cpu[o.CPU] = e.at + p.m.Overhead + beyond(o.Size, p.m.PerByte)
	h.out[o.NIC] = e.at + p.m.Gap + beyond(o.Size, p.m.GapPerByte)
	id := h.first + h.sent
	h.sent++
	p.sent++
	p.msgs[id] = message{Record: Record{From: e.rank, To: o.Peer, Size: o.Size, Start: e.at, Arrived: ib.Never},
		tag: o.Tag, op: e.what, cpu: o.CPU, nic: o.NIC}
	if o.Kind == job.Aggregate {
		p.msgs[id].To, p.msgs[id].all = e.rank, true
		p.push(event{at: h.cpu[o.CPU], kind: leave, rank: e.rank, what: id})
		return
	}
	switch {
	case p.m.Ideal:
		p.push(event{at: e.at + p.m.Overhead + p.m.Latency, kind: arrival, rank: o.Peer, what: id})
	case o.Size > p.m.Eager && p.m.Handshake:
		p.msgs[id].part = request
		p.push(event{at: e.at + p.m.Overhead, kind: leave, rank: e.rank, what: id})
	default:
		p.push(event{at: h.cpu[o.CPU], kind: leave, rank: e.rank, what: id})
	}
	if o.Size <= p.m.Eager {
		p.ended(e.rank, e.what, h.cpu[o.CPU])
	}
}

// leaves hands a message, or the next part of its rendezvous, to the network.
func (p *Player) leaves(id uint32, part uint8) {
	m := &p.msgs[id]
	if part != whole {
		m.part = part
	}
	out := Message{ID: id, From: m.From, To: m.To, Size: m.Size, NIC: m.nic}
	if m.all {
		o := &p.s.Ranks[m.From].Ops[m.op]
		out.Group, out.Peer, out.Way = m.tag+1, o.Peer, o.Way
	}
	switch m.part {
	case request:
		out.Size = 0
		m.asks++
	case answer:
		out.From, out.To, out.Size = m.To, m.From, 0
		m.asks++
	}
	p.out.Push(out)
}

// receive posts one: for a message that is here already, or for one to come.
func (p *Player) receive(e event) {
	p.begun(e.rank, e.what, e.at)
	o := &p.s.Ranks[e.rank].Ops[e.what]
	id, ok := p.early.take(e.rank, o.Peer, o.Tag, p.hosts[e.rank].wild)
	if !ok {
		p.posted.add(e.rank, o.Peer, o.Tag, e.what, p.hosts[e.rank].wild)
		return
	}
	if m := &p.msgs[id]; m.part == request {
		m.recv = e.what
		p.leaves(id, answer)
		return
	}
	p.meet(id, e.what, e.at, e.at)
}

// arrive lets a message have its receiver's processor, and a receive if there is one.
func (p *Player) arrive(e event, h *host) {
	m := &p.msgs[e.what]
	if m.part == answer { // its adapter does that
		p.leaves(e.what, data)
		return
	}
	// The processor is the one that has the sender's number, since the receive may not be known yet. LogGOPSim does so.
	if at := max(h.cpu[m.cpu], h.in[m.nic]); at > e.at && m.part != request {
		p.later(e, at)
		return
	}
	end := e.at
	if m.part != request {
		h.cpu[m.cpu] = e.at + p.m.Overhead + max(beyond(m.Size, p.m.PerByte), beyond(m.Size, p.m.GapPerByte))
		h.in[m.nic] = e.at + p.m.Gap + beyond(m.Size, p.m.GapPerByte)
		end = h.cpu[m.cpu]
	}
	if m.all {
		m.Arrived = end
		p.ended(m.To, m.op, end)
		return
	}
	if m.part == data {
		p.meet(e.what, m.recv, e.at, end)
		return
	}
	recv, ok := p.posted.take(e.rank, m.From, m.tag, h.wild)
	if !ok {
		p.early.add(e.rank, m.From, m.tag, e.what, h.wild)
		return
	}
	if m.part == request {
		m.recv = recv
		p.leaves(e.what, answer)
		return
	}
	p.meet(e.what, recv, e.at, end)
}

// meet ends a receive whose message is there. On an ideal network it ends the sender's part of a rendezvous too, and
// leaves its processor and port no earlier moment than this, as LogGOPSim does.
func (p *Player) meet(id, recv uint32, now, end ib.Time) {
	m := &p.msgs[id]
	m.Arrived = end
	if p.m.Ideal && m.Size > p.m.Eager {
		src := &p.hosts[m.From]
		src.cpu[m.cpu], src.out[m.nic] = max(src.cpu[m.cpu], now), max(src.out[m.nic], now)
		p.ended(m.From, m.op, now)
	}
	p.ended(m.To, recv, end)
}

// pending are receives or messages that wait for each other, first come, first served.
type pending struct {
	lots map[key]*ib.Queue[uint32]
	wild map[uint32][]waiting // by rank, of those who take from anybody
	free []*ib.Queue[uint32]
}

type key struct{ at, from, tag uint32 }

type waiting struct{ from, tag, what uint32 }

func (q *pending) add(at, from, tag, what uint32, wild bool) {
	if wild {
		if q.wild == nil {
			q.wild = map[uint32][]waiting{}
		}
		q.wild[at] = append(q.wild[at], waiting{from, tag, what})
		return
	}
	if q.lots == nil {
		q.lots = map[key]*ib.Queue[uint32]{}
	}
	k := key{at, from, tag}
	lot := q.lots[k]
	if lot == nil {
		if n := len(q.free); n > 0 {
			lot, q.free = q.free[n-1], q.free[:n-1]
		} else {
			lot = &ib.Queue[uint32]{}
		}
		q.lots[k] = lot
	}
	lot.Push(what)
}

func (q *pending) take(at, from, tag uint32, wild bool) (uint32, bool) {
	if wild {
		fits := func(a, b uint32) bool { return a == job.Any || b == job.Any || a == b }
		for i, w := range q.wild[at] {
			if fits(w.from, from) && fits(w.tag, tag) {
				q.wild[at] = append(q.wild[at][:i], q.wild[at][i+1:]...)
				return w.what, true
			}
		}
		return 0, false
	}
	k := key{at, from, tag}
	lot := q.lots[k]
	if lot == nil {
		return 0, false
	}
	what, _ := lot.Pop()
	if lot.Len() == 0 {
		delete(q.lots, k)
		q.free = append(q.free, lot)
	}
	return what, true
}
