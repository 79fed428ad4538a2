package play

import (
	"slices"

	"softib/job"
	"softib/proto/ib"
)

// Model is what messages cost at their ends, and on an ideal network.
type Model struct {
	// Overhead is o: how long a processor is busy with a message, at the sender and at the receiver; PerByte is O,
	// which each byte but the first adds: it copies. On a network that is not ideal a message leaves when it is copied.
	Overhead, PerByte ib.Time
	// Gap is g: the least time between two messages of a port; GapPerByte is G, which each byte but the first adds.
	Gap, GapPerByte ib.Time
	// Eager is S: up to so many bytes a message is over for its sender when its processor has done its part, a longer
	// one when the receiver has it.
	Eager uint64
	// Handshake makes a longer one ask its receiver first, and go when it has posted the receive.
	Handshake bool
	// Ideal is a network on which every message takes Latency, L; its bytes are paid for at the receiver by G.
	Ideal   bool
	Latency ib.Time
}

// Message is one that leaves a rank.
type Message struct {
	ID       uint32
	From, To uint32
	Size     uint64
	NIC      uint8
	// Group is, for a rank's part in an operation of the network, 1 + the number of the group; From and To are the rank
	// then, and it arrives when the rank has the result. Way and Peer are the operation's.
	Group uint32
	Peer  uint32
	Way   job.Way
}

// Record is what became of a message, for those who ask how long messages take.
type Record struct {
	From, To uint32
	Size     uint64
	// Start is when the sender's processor began with it, Arrived when its last byte was there; Never if it was not.
	Start, Arrived ib.Time
}

// kinds of events, in the order in which operations of one moment begin.
const (
	opSend  = uint8(job.Send)
	opRecv  = uint8(job.Recv)
	opCalc  = uint8(job.Calc)
	opGroup = uint8(job.Aggregate)
	arrival = 16 // a message is at its receiver and wants its processor
	leave   = 17 // a message's processor has done its part, and it goes into the network
)

// parts of a rendezvous that a message may be.
const (
	whole   = uint8(iota) // it is none, but all of it
	request               // the sender asks
	answer                // the receiver has a place
	data
)

type message struct {
	Record
	tag  uint32
	op   uint32 // the sender's
	recv uint32 // the receiver's, once a rendezvous has found it
	cpu  uint8
	nic  uint8
	part uint8
	asks uint8 // the short messages of its rendezvous whose senders have not heard that they have come
	all  bool  // it is a part in an operation of the network
}

// host is what a rank's processors and ports are busy with.
type host struct {
	cpu, out, in []ib.Time // free again, by processor and by port
	left         []uint32  // what each operation still waits for
	ready        []ib.Time // the latest end of what each operation waited for
	freed        []uint32  // that wait for nothing any more, not yet put into the queue
	undone       int
	end          ib.Time
	first, sent  uint32 // the number of its first message, and how many it has begun
	wild         bool   // some receive is open to any sender or tag
	touched      bool   // it is in Player.touch
}

// Player runs one schedule once.
type Player struct {
	s     *job.Schedule
	m     Model
	hosts []host
	msgs  []message
	queue ib.Heap[event, *event]
	ts    uint64
	now   ib.Time
	out   ib.Queue[Message]
	touch []uint32 // ranks with something in freed

	posted, early pending // receives without a message, messages without a receive
	undone        int
	sent          int
}

// New starts a schedule at time 0.
func New(s *job.Schedule, m Model) *Player {
	p := &Player{s: s, m: m, hosts: make([]host, len(s.Ranks))}
	_, messages, _ := s.Count()
	p.msgs = make([]message, messages)
	first := uint32(0)
	for i := range s.Ranks {
		r, h := &s.Ranks[i], &p.hosts[i]
		times := make([]ib.Time, s.CPUs+2*s.NICs)
		h.cpu, h.out, h.in = times[:s.CPUs], times[s.CPUs:s.CPUs+s.NICs], times[s.CPUs+s.NICs:]
		h.left = make([]uint32, len(r.Ops))
		h.ready = make([]ib.Time, len(r.Ops))
		h.undone, h.first = len(r.Ops), first
		p.undone += h.undone
		for n := range r.Ops {
			h.left[n] = r.Waits(uint32(n))
			if h.left[n] == 0 {
				h.freed = append(h.freed, uint32(n))
			}
			o := &r.Ops[n]
			h.wild = h.wild || o.Kind == job.Recv && (o.Peer == job.Any || o.Tag == job.Any)
			if o.Kind == job.Send || o.Kind == job.Aggregate {
				first++
			}
		}
		p.touched(uint32(i))
	}
	p.settle()
	return p
}

// Poll is the next message that leaves now.
func (p *Player) Poll() (Message, bool) { return p.out.Pop() }

// NextDeadline is when HandleTimeout wants to be called.
func (p *Player) NextDeadline() ib.Time {
	if len(p.queue) == 0 {
		return ib.Never
	}
	return p.queue[0].at
}

// HandleTimeout does what is due.
func (p *Player) HandleTimeout(now ib.Time) {
	for len(p.queue) > 0 && p.queue[0].at <= now {
		e := p.queue.Pop()
		p.now = e.at
		p.step(e)
		p.settle()
	}
}

// HandleArrival says that the last byte of a message has come to its receiver's port.
func (p *Player) HandleArrival(now ib.Time, id uint32) {
	m := &p.msgs[id]
	to := m.To
	if m.part == answer {
		to = m.From
	}
	p.push(event{at: now, kind: arrival, rank: to, what: id})
}

// HandleSent says that the sender has nothing more to do for a message. The driver tells so of each that it was given,
// those of one number in their order: the two short ones of a rendezvous come before the data.
func (p *Player) HandleSent(now ib.Time, id uint32) {
	m := &p.msgs[id]
	if m.asks > 0 {
		m.asks--
		return
	}
	if m.Size > p.m.Eager && !m.all {
		p.now = max(p.now, now)
		p.ended(m.From, m.op, now)
		p.settle()
	}
}

// Done reports whether every operation has ended.
func (p *Player) Done() bool { return p.undone == 0 }

// Progress is how many operations have ended, and how many there are.
func (p *Player) Progress() (ended, all int) {
	for i := range p.s.Ranks {
		all += len(p.s.Ranks[i].Ops)
	}
	return all - p.undone, all
}

// Ranks is how many ranks there are.
func (p *Player) Ranks() int { return len(p.hosts) }

// End is when a rank's last operation ended, as far as it has come.
func (p *Player) End(rank int) ib.Time { return p.hosts[rank].end }

// Messages counts the messages so far.
func (p *Player) Messages() int { return p.sent }

// Records is what became of the messages so far: by rank, and of one rank in the order in which it began with them.
func (p *Player) Records() []Record {
	list := make([]Record, 0, p.sent)
	for i := range p.hosts {
		h := &p.hosts[i]
		for _, m := range p.msgs[h.first : h.first+h.sent] {
			list = append(list, m.Record)
		}
	}
	return list
}

// touched notes that a rank has operations that can begin.
func (p *Player) touched(rank uint32) {
	if h := &p.hosts[rank]; !h.touched {
		h.touched = true
		p.touch = append(p.touch, rank)
	}
}

// settle puts what can begin into the queue: by rank, of one rank by kind.
func (p *Player) settle() {
	if len(p.touch) > 1 {
		slices.Sort(p.touch)
	}
	for _, rank := range p.touch {
		h, ops := &p.hosts[rank], p.s.Ranks[rank].Ops
		if len(h.freed) > 1 {
			slices.SortStableFunc(h.freed, func(a, b uint32) int { return int(ops[a].Kind) - int(ops[b].Kind) })
		}
		for _, n := range h.freed {
			o := &ops[n]
			at := max(h.cpu[o.CPU], h.ready[n])
			if o.Kind == job.Send || o.Kind == job.Aggregate {
				at = max(at, h.out[o.NIC])
			}
			p.push(event{at: at, kind: uint8(o.Kind), rank: rank, what: n})
		}
		h.freed, h.touched = h.freed[:0], false
	}
	p.touch = p.touch[:0]
}

// push puts a new event into the queue, behind others of its time.
func (p *Player) push(e event) {
	e.ts = p.ts
	p.ts++
	p.queue.Push(e)
}

// later puts an event back that finds its processor or port busy; its turn among others is what it was.
func (p *Player) later(e event, at ib.Time) {
	e.at = at
	p.queue.Push(e)
}

// begun is told when an operation begins, ended when it ends.
func (p *Player) begun(rank, op uint32, at ib.Time) {
	for _, n := range p.s.Ranks[rank].Begun(op) {
		p.free(rank, n, at)
	}
}

func (p *Player) ended(rank, op uint32, at ib.Time) {
	h := &p.hosts[rank]
	h.undone--
	p.undone--
	h.end = max(h.end, at)
	for _, n := range p.s.Ranks[rank].Ended(op) {
		p.free(rank, n, at)
	}
}

// free takes one wait from an operation.
func (p *Player) free(rank, op uint32, at ib.Time) {
	h := &p.hosts[rank]
	h.ready[op] = max(h.ready[op], at)
	if h.left[op]--; h.left[op] == 0 {
		h.freed = append(h.freed, op)
		p.touched(rank)
	}
}
