// Package live drives a fabric in real time, inside one process: every switch, every port, their tables and agents, and
// the ways between programs.
//
// The engines of queue pairs are in the programs, each driven by an endpoint.Endpoint. A program in a process of its
// own is a Process here, which its socket's server speaks for (package attach/server). One in this process is a Process
// too, with a Device in front of it, which asks by calls.
//
// How packets travel. The first packet towards a destination makes the fabric walk the switches' own tables from the
// source port: link states, LFT or MFT, SL to VL, partition enforcement, MTU. The result is a route: the ring of the
// destination port that packets of this lane enter, and the list of ports on the way, to which the packets are
// attributed. Whatever changes a table, a state or a key makes the fabric's epoch move on, and every route is walked
// anew; where the walk ends early the packets vanish, and the port where they did counts them.
//
// A way that crosses a cable with a fault, or a port that is captured (SetFault, Capture), is switched instead: the
// plane gives its packets, one by one, to package fabric's engine of cables, ports and switches, in real time; see
// plane.go. Packets of management go the same way from such a cable on.
package live
