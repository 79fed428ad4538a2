// Package span makes one fabric of the parts that several machines have: each drives the nodes that are placed on it
// (driver/live), and this package is how it sees, and is asked about, the rest.
//
// What a node is like is told by the machine that has it. Each machine keeps a copy of what the others have last said
// of their ports, which they say again when something changes; counters, tables, ways and what programs do are asked
// for when somebody wants to know. What is done to a cable is done by the machines that have its ends. A machine that
// is not reached has nodes that are down.
//
// It is driven by whoever is connected to the other machines:
//
//	f.Reached(machine, true)          it can be spoken to, by a way that is new
//	f.Message(machine, cable, bytes)  something has come over a cable; then
//	f.Turn()                          that was all for now
//	f.Answer(machine, method, bytes)  it asks something
//
// and speaks to them by Machines. Datagrams of management go over the cables like everything else, so that subnet
// managers need none of this.
package span
