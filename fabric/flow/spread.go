package flow

import (
	"softib/proto/ib"
	"softib/proto/topo"
)

// spread is what Ways.Spread needs and nobody else.
type spread struct {
	here, there []stand
	place       []int32 // by node: 1 + where in there
}

// stand is the part of a message that comes to a switch.
type stand struct {
	node int32
	part float64
}

// Spread appends all links that the packets of a message may take to path, if each switch gives as many to each port
// that it may choose, and to parts which part of the message goes there. The latency is that of the longest way.
func (w *Ways) Spread(path []int32, parts []float64, from, to topo.PortRef) ([]int32, []float64, ib.Time, error) {
	if from == to {
		return path, parts, 0, nil
	}
	if w.place == nil {
		w.place = make([]int32, len(w.g.Nodes))
	}
	goal := w.Link(to)
	latency, longest := ib.Time(0), ib.Time(0)
	w.there = w.there[:0]
	// take goes by a link with a part of the message.
	take := func(at int32, part float64, hops int) error {
		if err := w.passable(at, hops, from, to); err != nil {
			return err
		}
		path, parts = append(path, at), append(parts, part)
		longest = max(longest, w.delay[at])
		if w.into[at] == goal {
			return nil
		}
		node := w.next[at]
		if w.place[node] == 0 {
			w.there = append(w.there, stand{node: node})
			w.place[node] = int32(len(w.there))
		}
		w.there[w.place[node]-1].part += part
		return nil
	}
	err := take(w.Link(from), 1, 0)
	for hops := 1; err == nil && len(w.there) > 0; hops++ {
		w.here, w.there = w.there, w.here[:0]
		latency, longest = latency+longest+w.timing.Switch, 0
		for _, s := range w.here {
			w.place[s.node] = 0
		}
		for _, s := range w.here {
			var c Choice
			if c, err = w.choice(s.node, goal, from, to); err != nil {
				break
			}
			if c.Ports.Empty() {
				c.Ports.Set(c.Home)
			}
			each := s.part / float64(c.Ports.Count())
			for p, ok := c.Ports.Pop(); ok && err == nil; p, ok = c.Ports.Pop() {
				err = take(c.First+int32(p), each, hops)
			}
		}
	}
	for _, s := range w.there {
		w.place[s.node] = 0
	}
	return path, parts, latency + longest, err
}
