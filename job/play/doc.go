// Package play runs a job.Schedule: an engine that says which message leaves which rank when, and is told when each of
// them has arrived. What carries the messages is the driver's: packets on simulated cables, flows that share links,
// live hosts. Without any of them (Model.Ideal) messages take the same time between any two ranks, as in the LogGOPS
// model.
//
// What a message costs at its two ends is LogGOPS's too (Hoefler, Schneider, Lumsdaine, HPDC 2010): a processor is busy
// for o, and O for each further byte, at the sender and at the receiver; a port lets the next message go g, and G for
// each byte, after the last; a message of more than S bytes is over for its sender when the receiver has it. With a
// network that has rates of its own L and G are 0, and a rendezvous may be one (Model.Handshake): a request goes there,
// an answer comes back when the receive is posted, and then the data leave.
//
// The driver's loop:
//
//	for {
//		for m, ok := p.Poll(); ok; m, ok = p.Poll() { … m goes into the network now … }
//		now = the earlier of p.NextDeadline() and the network's
//		p.HandleTimeout(now)
//		… p.HandleArrival(now, id) for what has come, p.HandleSent(now, id) for what its sender may forget …
//	}
//
// When nothing is left to do and the network is empty, Done says whether the schedule has ended; if it has not, Stuck
// says who waits for whom.
package play
