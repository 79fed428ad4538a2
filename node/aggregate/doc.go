// Package aggregate is in-network reduction, after SHARP (Graham and others, Scalable Hierarchical Aggregation
// Protocol, COMHPC 2016; streaming: ISC 2020): switches add the vectors of a job's hosts on their way up a tree, and
// send the result down again.
//
//   - Node is the aggregation node of a switch. For each tree it knows its children, in an order, and whether there is
//     a parent. It gathers what the children contribute to an operation, adds it in the order of the children,
//     whichever comes first, and sends it on: the same vectors give the same bits.
//   - Member is a host's part in a job: it cuts vectors into operations of one payload each, has no more of them
//     outstanding than the tree has places for, and repeats them in another tree when one has failed.
//
// Both stand on connections that are reliable and in order, one between any two neighbours of a tree; they do not know
// what these are. The driver says which of a tree's connections a message came by (Up for the parent's, or the number
// of the child), and when one is lost.
//
// Short vectors (SHARP's low-latency trees) and long ones (streaming) differ in payload and in how many operations are
// outstanding: with a window of as many bytes as a tree's round trip takes, links are full. A node lets few trees
// stream at a time (Limits.Streams), as the hardware does.
//
// Results may go to all members at once besides, by a multicast of the root (Tree.Multicast): a member has each from
// whichever is first, and what a multicast loses the tree brings. Places are free when the tree has brought it, so that
// nodes know nothing of this.
//
// A tree that has lost a connection, or whose messages do not fit together, has failed: its node says so to all
// neighbours, forgets the operations, and takes nothing more from it. Whoever waits hears of it; nobody gets a sum that
// is not whole. A tree never heals: the manager makes another, with another number.
//
// The driver's loop, for a Node:
//
//	n.HandleMessage(now, tree, child, message)     what came
//	n.HandleLost(now, tree, child)                 a connection is no more
//	for o, ok := n.Poll(now); ok; o, ok = n.Poll(now) { send o.Data by connection o.To of o.Tree }
//	come back at n.NextDeadline()
package aggregate
