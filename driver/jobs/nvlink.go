package jobs

import (
	"softib/fabric/flow"
	"softib/job/play"
	"softib/proto/ib"
	"softib/proto/topo"
)

// NVLink is what joins the GPUs of a server beside the fabric: each has a link to a switch that lets all of them talk
// at their full rate, as NVSwitch does. Servers are those of the graph (topo.Graph.Servers).
type NVLink struct {
	// Rate is what a GPU sends and receives, in bytes a picosecond; 0 is no NVLink.
	Rate    float64
	Latency ib.Time
}

// DefaultNVLink is an H100's: 900 GB/s for both directions together (its data sheet), and the 0.6 us that NCCL's tuning
// table has for a hop of its protocol for short messages.
var DefaultNVLink = NVLink{Rate: 450e9 / float64(ib.Second), Latency: 600 * ib.Nanosecond}

// inServer reports whether messages between two nodes go by NVLink.
func (f *Fabric) inServer(a, b int) bool {
	return f.servers != nil && a != b && f.servers[a] >= 0 && f.servers[a] == f.servers[b]
}

// InServer reports whether messages between two ranks go by NVLink.
func (f *Fabric) InServer(a, b uint32) bool {
	return f.servers != nil && f.inServer(f.opt.Place[a].Node, f.opt.Place[b].Node)
}

// Joined is a network with what joins the GPUs of a server; the network itself where nothing does.
func (f *Fabric) Joined(n Network) Network {
	if f.servers == nil {
		return n
	}
	rates := make([]float64, 2*len(f.Graph.Nodes))
	for i, s := range f.servers {
		if s >= 0 {
			rates[2*i], rates[2*i+1] = f.opt.NVLink.Rate, f.opt.NVLink.Rate
		}
	}
	return &joined{Network: n, f: f, links: flow.New(rates)}
}

// joined takes messages within a server from the network that it is around. They share the links of their GPUs, link 2i
// out of node i and 2i+1 into it, max-min fair, whatever the network's level.
type joined struct {
	Network
	f     *Fabric
	links *flow.Net
	out   int // messages that their senders have not heard of
	ready ib.Queue[done]
}

// Send starts a message.
func (n *joined) Send(now ib.Time, m play.Message) error {
	if m.Group > 0 {
		return n.Network.Send(now, m)
	}
	from, to, err := n.f.ends(m, new(planeTurns)) // which port does not matter
	if err != nil {
		return err
	}
	if !n.f.inServer(from.Node, to.Node) {
		return n.Network.Send(now, m)
	}
	n.out++
	path := [2]int32{int32(2 * from.Node), int32(2*to.Node + 1)}
	n.links.Start(now, m.ID, path[:], nil, float64(m.Size), n.f.opt.NVLink.Latency)
	return nil
}

// Advance goes to what happens first, here or there.
func (n *joined) Advance(until ib.Time) (ib.Time, error) {
	now, err := n.Network.Advance(min(until, n.links.NextDeadline()))
	if err != nil || now == ib.Never {
		return now, err
	}
	n.links.HandleTimeout(now)
	for a, ok := n.links.Poll(); ok; a, ok = n.links.Poll() {
		if a.Step != flow.Left {
			n.ready.Push(done{id: a.ID, sent: a.Step == flow.Sent})
		}
	}
	return now, nil
}

// Poll is the next message that has arrived.
func (n *joined) Poll() (id uint32, sent, ok bool) {
	d, ok := n.ready.Pop()
	if !ok {
		return n.Network.Poll()
	}
	if d.sent {
		n.out--
	}
	return d.id, d.sent, true
}

// Stuck says why nothing moves.
func (n *joined) Stuck() error {
	if n.links.NextDeadline() != ib.Never {
		return nil
	}
	return n.Network.Stuck()
}

// Idle reports whether no message is on its way.
func (n *joined) Idle() bool { return n.out == 0 && n.Network.Idle() }

// servers are the servers of the graph, nil if there are none or nothing joins their GPUs.
func servers(g *topo.Graph, opt *Options) []int32 {
	if opt.NVLink.Rate <= 0 {
		return nil
	}
	of, count := g.Servers()
	if count == 0 {
		return nil
	}
	return of
}
