// Package sim drives the engines in virtual time: every switch, port and
// adapter of a topo.Graph, joined by cables that have a length, a rate, an error
// rate and faults. One seed gives one history, byte for byte.
//
// It holds no protocol: what a packet means is decided by the engines of
// link, ibswitch and hca. It owns the time, the order of events, what flies
// on the cables, and randomness.
//
// How it is used:
//
//	s, err := sim.New(graph, sim.Config{Seed: 1})
//	s.BringUp()                       // LIDs, tables, all ports Active
//	s.Host(i)                         // the engine of a host; post work there
//	s.Wake(i)                         // after posting
//	for w := s.Next(until); w.Kind != sim.WakeLimit; w = s.Next(until) {
//		...                           // a host has completions, or a timer came
//	}
//
// A fabric can be brought up by subnet managers instead, which sit at hosts and speak by packets:
//
//	s.LinksUp()
//	s.StartManager(i, sim.ManagerConfig{...}) // and StopManager, which kills it
//	s.Manager(i).State()
//
// From then on links that train become active by a manager alone, and agents send their traps. Watch tells of every Set
// that an agent has carried out.
//
// Time on a cable: a packet's first 64 bytes reach a switch after the cable's delay
// and the switch's own, and are forwarded at once (cut-through); a host, or a
// switch that has faster ports than the one the packet came in by, has it when
// its last byte came. Flow-control packets travel the same way and never
// overtake data. A receive buffer is given back as its packet begins to leave
// when the way out drains it as fast as the way in can fill it, and once the
// packet has left otherwise.
package sim
