package jobs

import "softib/node/hca"

// Connections says by what two ports talk to each other in a run by packets.
type Connections struct {
	// QPs is how many queue pairs two ports that talk have, which take turns with their messages; 0 is 1. Batch is how
	// many messages one takes in its turn; 0 is 1.
	QPs, Batch int
	// Read lets the receiver of a message fetch it by RDMA READ as soon as its sender has it, instead of the sender
	// writing it. That somebody has to tell the receiver costs nothing here.
	Read bool
}

// remote is what a peer may do with a message's memory.
const remote = hca.AccessRemoteWrite | hca.AccessRemoteRead

// turn is by which of their queue pairs the next message of two ports goes.
func (n *Packets) turn(p pair) pair {
	if n.f.opt.QPs > 1 {
		k := n.turns[p]
		n.turns[p]++
		p.number = k / max(n.f.opt.Batch, 1) % n.f.opt.QPs
	}
	return p
}

// QueuePairs is how many the adapter with the most has.
func (n *Packets) QueuePairs() (most int) {
	for i := range n.hosts {
		counts := n.hosts[i].QPCounts()
		most = max(most, counts.Total())
	}
	return most
}
