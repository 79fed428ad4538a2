package jobs

import (
	"slices"

	"softib/fabric/flow"
	"softib/node/ibswitch"
	"softib/proto/ib"
	"softib/subnet/route"
)

// chosen is the way that a line's last message took, and when it had left. Only flowlets are kept.
type chosen struct {
	path    []int32
	latency ib.Time
	left    ib.Time
}

// way finds the links of a line's next message, and which part of it goes by each.
func (n *Flows) way(now ib.Time, l *line) (latency ib.Time, err error) {
	n.path, n.parts = n.path[:0], nil
	switch {
	case n.f.Groups == nil:
		n.path, latency, err = n.f.Ways.Path(n.path, l.from, l.to, nil)
	case n.f.opt.hashes():
		from, to := n.f.Ways.LID(l.from), n.f.Ways.LID(l.to)
		n.path, latency, err = n.f.Ways.Path(n.path, l.from, l.to, func(c flow.Choice) ib.PortNum {
			k := ibswitch.HashFlow(from, to, l.qp, n.f.salt(c.Switch)) % uint64(c.Ports.Count())
			for ; k > 0; k-- {
				c.Ports.Pop()
			}
			p, _ := c.Ports.Pop()
			return p
		})
	case n.f.opt.Adaptive == route.ByPacket:
		n.path, n.spread, latency, err = n.f.Ways.Spread(n.path, n.spread[:0], l.from, l.to)
		n.parts = n.spread
	case n.f.opt.Adaptive == route.ByFlowlet:
		if l.way.path == nil || now-l.way.left > n.f.opt.FlowletGap {
			n.path, l.way.latency, err = n.f.Ways.Path(n.path, l.from, l.to, n.leastUsed)
			l.way.path = slices.Clone(n.path)
		}
		n.path, latency = append(n.path[:0], l.way.path...), l.way.latency
	default:
		n.path, latency, err = n.f.Ways.Path(n.path, l.from, l.to, n.leastUsed)
	}
	return latency, err
}

// connect numbers the receiver's queue pair of a line, which is what a hash tells flows apart by: as adapters do, in
// the order in which connections are made.
func (n *Flows) connect(l *line) {
	if !n.f.opt.hashes() {
		return
	}
	if n.qps == nil {
		n.qps = make([]ib.QPN, len(n.f.Graph.Nodes))
	}
	n.qps[l.from.Node]++
	l.qp = firstQPN + n.qps[l.to.Node]
	n.qps[l.to.Node]++
}

// firstQPN is the first number that is no special queue pair's.
const firstQPN = ib.QPNGSI + 1

// leastUsed is the port with the fewest messages on its link, as a switch takes the one where the fewest packets wait:
// that of the table where several are alike, or the next after it.
func (n *Flows) leastUsed(c flow.Choice) ib.PortNum {
	best, least := c.Home, int(^uint(0)>>1)
	if c.Ports.Has(c.Home) {
		least = n.On(c.First + int32(c.Home))
	}
	for _, after := range [...]bool{true, false} {
		rest := c.Ports
		for p, ok := rest.Pop(); ok; p, ok = rest.Pop() {
			if (p > c.Home) != after {
				continue
			}
			if k := n.On(c.First + int32(p)); k < least {
				best, least = p, k
			}
		}
	}
	return best
}
