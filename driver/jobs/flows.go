package jobs

import (
	"fmt"

	"softib/fabric/flow"
	"softib/job/play"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Flows is a Network whose messages share links. Messages between the same two ports go one after the other, as through
// a queue pair; the next begins when the last has left.
type Flows struct {
	*flow.Net
	f *Fabric
	// Of the message that begins: its links, which part of it goes by each, nil for all, and room for such parts.
	path   []int32
	parts  []float64
	spread []float64

	pairs map[pair]uint32
	qps   []ib.QPN // by node: how many it has; nil where switches do not hash
	lines []line
	of    []uint32 // by message: its line
	out   int      // messages that their senders have not heard of
	ready ib.Queue[done]

	planes planeTurns

	trees *trees // that switches work for; nil until there are any
}

// line is what waits between two ports.
type line struct {
	from, to topo.PortRef
	busy     bool
	wait     ib.Queue[play.Message]
	rest     play.Message // of one that goes piece by piece, what has not left yet
	way      chosen
	qp       ib.QPN // the receiver's
}

// LocalLatency is how long a message within a host takes before its bytes, as sim has it.
const LocalLatency = 200 * ib.Nanosecond

// Flows makes a network of flows, with nothing on it.
func (f *Fabric) Flows() *Flows {
	return &Flows{Net: flow.New(f.Ways.Rates()), f: f, pairs: map[pair]uint32{}}
}

// onWire is how many bytes a message is on a link.
func (f *Fabric) onWire(bytes uint64) float64 {
	extra := 0
	if f.opt.Ethernet.isOn() {
		extra = link.EthernetExtra
	}
	return flow.OnWire(bytes, f.opt.MTU.Bytes(), extra)
}

// Send starts a message, or leaves it in its line.
func (n *Flows) Send(now ib.Time, m play.Message) error {
	if m.Group > 0 {
		return n.join(now, m)
	}
	from, to, err := n.f.ends(m, &n.planes)
	if err != nil {
		return err
	}
	key := n.f.pair(from, to, m.From)
	l, ok := n.pairs[key]
	if !ok {
		l = uint32(len(n.lines))
		n.lines = append(n.lines, line{from: from, to: to})
		n.connect(&n.lines[l])
		n.pairs[key] = l
	}
	for uint32(len(n.of)) <= m.ID {
		n.of = append(n.of, 0)
	}
	n.of[m.ID] = l
	n.out++
	if n.lines[l].busy {
		n.lines[l].wait.Push(m)
		return nil
	}
	return n.start(now, &n.lines[l], m)
}

// piece is the bit of a flow's number that says that it is not the last of its message.
const piece = 1 << 30

func (n *Flows) start(now ib.Time, l *line, m play.Message) (err error) {
	l.busy, l.rest.Size = true, 0
	if l.from.Node == l.to.Node {
		// By its adapter and back, as packets do: at its port's rate, but not on its cable.
		rate := n.f.Ways.Rates()[n.f.Ways.Link(l.from)]
		n.Start(now, m.ID, nil, nil, 0, LocalLatency+ib.Time(n.f.onWire(m.Size)/rate))
		return nil
	}
	id := m.ID
	if n.f.opt.Adaptive == route.ByMessage && m.Size > chunk {
		// Packets go as WRITEs of so many bytes, and what is a message to a switch is one of these.
		l.rest = m
		l.rest.Size -= chunk
		m.Size, id = chunk, id|piece
	}
	latency, err := n.way(now, l)
	if err != nil {
		return err
	}
	n.Start(now, id, n.path, n.parts, n.f.onWire(m.Size), latency)
	return nil
}

// ends are the ports that a message goes from and to.
func (f *Fabric) ends(m play.Message, t *planeTurns) (from, to topo.PortRef, err error) {
	if int64(max(m.From, m.To)) >= int64(len(f.opt.Place)) {
		return from, to, fmt.Errorf("rank %d has no host: there are %d places", max(m.From, m.To), len(f.opt.Place))
	}
	nic := m.NIC
	if planes := f.Graph.Planes; planes > 1 {
		nic = (nic + t.next(planes, m.From)) % uint8(planes)
	}
	from, to = f.place(m.From, nic), f.place(m.To, nic)
	if f.Graph.Port(from) == nil || f.Graph.Port(to) == nil {
		return from, to, fmt.Errorf("rank %d or %d has no port %d", m.From, m.To, nic+1)
	}
	return from, to, nil
}

// planeTurns is whose turn it is among the planes of a fabric: a rank's messages take one after the other.
type planeTurns struct{ sent map[uint32]uint32 }

func (t *planeTurns) next(planes int, rank uint32) uint8 {
	if t.sent == nil {
		t.sent = map[uint32]uint32{}
	}
	t.sent[rank]++
	return uint8((t.sent[rank] - 1) % uint32(planes))
}

// Advance goes to the next arrival.
func (n *Flows) Advance(until ib.Time) (ib.Time, error) {
	for {
		at := min(n.NextDeadline(), n.trees.nextDeadline(), until)
		if at == ib.Never {
			return at, nil
		}
		n.HandleTimeout(at)
		n.trees.handle(n, at)
		for {
			a, ok := n.Net.Poll()
			if !ok {
				break
			}
			if a.ID >= treeFlow {
				n.trees.step(n, at, a)
				continue
			}
			if a.Step != flow.Left {
				if a.ID&piece == 0 {
					n.ready.Push(done{id: a.ID, sent: a.Step == flow.Sent})
				}
				continue
			}
			l := &n.lines[n.of[a.ID&^piece]]
			l.busy, l.way.left = false, at
			m, ok := l.rest, l.rest.Size > 0
			if !ok {
				m, ok = l.wait.Pop()
			}
			if ok {
				if err := n.start(at, l, m); err != nil {
					return at, err
				}
			}
		}
		if n.ready.Len() > 0 || at == until {
			return at, nil
		}
	}
}

// Poll is the next message that has arrived.
func (n *Flows) Poll() (id uint32, sent, ok bool) {
	d, ok := n.ready.Pop()
	if d.sent {
		n.out--
	}
	return d.id, d.sent, ok
}

// Idle reports whether no message is on its way.
func (n *Flows) Idle() bool { return n.out == 0 }

// Stuck is never so: what is on its way shares links, and waits for nobody.
func (n *Flows) Stuck() error { return nil }

// Carried is how many bytes a link has carried.
func (n *Flows) Carried(link int32) float64 { return n.Net.Carried(int(link)) }
