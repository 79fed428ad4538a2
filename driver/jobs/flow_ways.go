package jobs

import (
	"slices"

	"softib/fabric/flow"
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
