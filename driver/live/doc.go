// Package live drives the engines in real time, inside one process: every
// switch, every adapter, and the bytes that programs send.
//
// A Host is a verbs.Device. Whoever uses it does its work: posting sends the
// packets, polling takes in those that arrived, and no third party stands
// between two programs. When nobody polls, the host's attendant (a goroutine
// that otherwise sleeps) takes in packets and keeps the timers; an idle fabric
// uses no CPU.
//
// How packets travel. The first packet towards a destination makes the fabric
// walk the switches' own tables from the source port: link states, LFT or
// MFT, SL to VL, partition enforcement, MTU. The result is a route: the ring of
// the destination port that packets of this lane enter, and the list of ports
// on the way, to which the packets are attributed. The room in a ring is the
// credit: a sender never sends what the receiver cannot hold, so nothing is
// dropped for want of room. Whatever changes a table, a state or a key makes
// the fabric's epoch move on, and every route is walked anew; where the walk
// ends early the packets vanish, and the port where they did counts them.
//
// A ring cell holds a short packet in one cache line, which is all that crosses
// between two cores. A larger payload of an RC packet is referred to and copied
// once, by the receiver, as DMA would; see ring.go for why that is safe when the
// request is given up in between.
//
// A way of a program in a process of its own that crosses a cable with a fault, or a port that is
// captured (SetFault, Capture), is switched instead: the plane gives its packets, one by
// one, to package fabric's engine of cables, ports and switches, in real time; see plane.go. Packets of management go
// the same way from such a cable on.
package live
