// Package sim drives the engines in virtual time: every switch, port and adapter of a topo.Graph, joined by cables that
// have a length, a rate, an error rate and faults. One seed gives one history, byte for byte.
//
// It holds no protocol: what a packet means is decided by the engines of link, ibswitch and hca, and what flies on
// cables is fabric's. It owns the time, the hosts and randomness.
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
// Several processors can work on one: Split divides it, and Parts.Run lets time pass.
//
// A fabric can be brought up by subnet managers instead, which sit at hosts and speak by packets:
//
//	s.LinksUp()
//	s.StartManager(i, sim.ManagerConfig{...}) // and StopManager, which kills it
//	s.Manager(i).State()
//
// From then on links that train become active by a manager alone, and agents send their traps. Watch tells of every Set
// that an agent has carried out.
package sim
