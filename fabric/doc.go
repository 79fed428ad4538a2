// Package fabric is cables, ports and switches together, as one engine: what flies on a cable and when it arrives, flow
// control, life times, training, and what bad cables do to packets. The ports are those of link and the switches those
// of ibswitch; adapters, agents and managers are the driver's.
//
// It has no clock. In virtual time the driver lets one event happen after the other:
//
//	for e.Step() {
//		for n, ok := e.Poll(); ok; n, ok = e.Poll() {
//			...                       // what is left to the driver: see Note
//		}
//	}
//
// In real time it lets happen what is due, with Due in front of Step, sleeps until Next, and calls Advance before it
// does something of its own. An event that is handled late counts as of its own time, so that a rate is kept however
// coarsely the driver is woken. Between a call and the next Step the notes are to be polled.
//
// Time on a cable: a packet's first 64 bytes reach a switch after the cable's delay and the switch's own, and are
// forwarded at once (cut-through); a host, or a switch that has faster ports than the one the packet came in by, has it
// when its last byte came. Flow-control packets travel the same way and never overtake data. A receive buffer is given
// back as its packet begins to leave when the way out drains it as fast as the way in can fill it, and once the packet
// has left otherwise. With Config.Instant cables take no time but what their Faults say.
//
// A cable may end outside of the engine (JoinOutside): what leaves by it comes out of PollOutside, and what arrives
// goes in by HandleOutside. The same inputs at the same times give the same history, of which TraceHash is the digest.
package fabric
