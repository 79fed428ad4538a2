// Package collective makes schedules of collective operations, as MPI libraries and NCCL do them: all-reduce,
// all-gather, reduce-scatter, broadcast, reduce, scatter, gather, all-to-all and barrier, each by several algorithms.
//
// A Group is some ranks of a job.Builder that do one collective after the other; what a rank does next waits for its
// part in the last:
//
//	g := collective.NewGroup(b, ranks)
//	err := g.AllReduce(1<<20, "ring")
//	g.Compute(1500)
//	err = g.AllReduce(1<<20, "")      // an algorithm by size and number, see Choose
//
// Every message is noted with what it carries (Group.Note), so that a test can follow the contents and want the right
// sums at the right ranks, whatever the algorithm.
package collective
