package jobs

import (
	"fmt"
	"math"
	"math/rand/v2"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Loss is cables between switches that go down while a run by packets lasts.
type Loss struct {
	// Part of all cables between switches, such as 0.01; one at least, if it is not 0. The seed chooses which.
	Part float64
	// At is when they go down, and Sweep how long it takes until a manager has written other tables; 0 is for ever.
	At, Sweep ib.Time
	// Timeout is the Local ACK Timeout of all queue pairs: 4.096 us times 2 to the power of it (IBA 9.7.6.1.3); 0 is
	// 14, or 67 ms. A message is given up after seven retries.
	Timeout uint8
	// Mute: switches that choose do not tell each other where there is no way.
	Mute bool
}

const defaultTimeout = 14

// timeout of the queue pairs. There is none where nothing gets lost: who waits for ever is found by the fabric being at
// rest.
func (l *Loss) timeout() uint8 {
	switch {
	case l.Part == 0:
		return 0
	case l.Timeout == 0:
		return defaultTimeout
	}
	return l.Timeout
}

// lose plans what gets lost, and has the fabric ready that is left.
func (n *Packets) lose(l Loss) error {
	if l.Part == 0 {
		return nil
	}
	if n.f.Tables.SL != nil {
		return fmt.Errorf("the tables of %s have service levels, and would not be written again when links are lost; "+
			"next: choose another routing, such as ftree or updn", n.f.Engine)
	}
	var between []topo.Cable
	for _, c := range n.f.Graph.Cables() {
		if n.f.Graph.Nodes[c.A.Node].IsSwitch() && n.f.Graph.Nodes[c.B.Node].IsSwitch() {
			between = append(between, c)
		}
	}
	if len(between) == 0 {
		return fmt.Errorf("no two switches are joined, so that no link between switches can be lost; next: take a " +
			"larger topology")
	}
	r := rand.New(rand.NewPCG(n.f.opt.Seed, 0x105E))
	r.Shuffle(len(between), func(i, j int) { between[i], between[j] = between[j], between[i] })
	count := min(int(math.Ceil(l.Part*float64(len(between)))), len(between))
	left := n.f.Graph.Clone()
	for _, c := range between[:count] {
		n.PlanDown(l.At, c.A)
		if err := left.Disconnect(c.A.Node, c.A.Port); err != nil {
			return err
		}
	}
	n.lost = count
	if l.Sweep == 0 {
		return nil
	}
	f := *n.f
	f.Graph, f.Net = left, route.FromGraph(left)
	res, err := route.Compute(f.Net, f.opt.Routing, route.Options{Adaptive: f.Groups != nil})
	if err != nil {
		return fmt.Errorf("routing %s without %d links: %w", f.opt.Routing, count, err)
	}
	if f.Tables = res.Tables; f.Tables.SL != nil {
		return fmt.Errorf("without %d links %s needs service levels, which are not written again; next: lose fewer, "+
			"or choose another routing", count, f.Tables.Engine)
	}
	if f.Groups != nil {
		if f.Groups, err = route.Adaptive(f.Net, f.Tables); err != nil {
			return err
		}
	}
	n.healed = &f
	n.At(l.At+l.Sweep, 0)
	return nil
}

// heal writes the tables of the fabric that is left, as a manager's sweep ends.
func (n *Packets) heal() error {
	m := *n
	m.f = n.healed
	return m.writeTables()
}

// Lost is how many links went down, and what that has cost: acknowledgements that did not come in time, and packets
// that were sent again.
func (n *Packets) Lost() (links int, timeouts, again uint64) {
	for i := range n.hosts {
		timeouts += n.hosts[i].Stats.Timeouts
		again += n.hosts[i].Stats.Retransmits
	}
	return n.lost, timeouts, again
}
