// Package check holds what must be true of a whole fabric, whatever happens in
// it, and tortures fabrics to find out whether it is.
//
// A Scenario is one seed's history as data: a topology, how it is routed, a load
// (package workload) and faults. Run lets it happen in virtual time (package sim) under
// a set of checkers. Each checker is a small type that guards one thing and says
// in words what it saw:
//
//	Delivery    reliable services deliver exactly once, in order, intact; the others intact
//	Completion  a signalled request completes exactly once; an error flushes the rest in order
//	Status      no request fails without a cause
//	Memory      no byte changes that no request may touch, and each holds what it should
//	Credit      credits are conserved on each lane of each link, and return at rest
//	Partition   no packet crosses a partition
//	Waits       what packets have waited for one after the other has no circle, where lanes promise that
//	Drops       nothing is dropped but by a fault, an expired life time or misuse
//	Progress    once the faults are over everything ends
//	Leak        what is closed is gone
//
// and a second run of the same scenario must have the same trace hash.
//
// A Management is a history of another kind: a fabric that subnet managers bring up by packets, managers that die, come
// back and hand over, management packets that are lost, links that flap, switches that forget, agents that fall silent,
// and some RC connections between programs. RunManagement lets it happen under
//
//	loop         after each write of a table or a port's state no LID leads packets round in a circle
//	credit loop  the channel dependencies of the tables in force have no cycle, between two tables and after each sweep
//	convergence  once the faults are over there is one master and all else stands by, every link is active, every end port has its address of before
//	             and knows the master's, and whatever is sent by the switches' own tables arrives
//	traffic      connections whose way no fault hits go on; patient ones survive everything
//
// A Reductions is a history in which switches add what jobs' hosts give, while packets get lost, links go down and
// switches start anew. Every result that a host gets is right to the bit, in order and once; when a tree is lost all
// hosts of its job hear of it and repeat; a job is given up only when a host of it has stopped; no place is left taken.
//
// Torture does this for many seeds on all cores. A seed that fails is cut down to
// a small scenario that still fails, and printed with its last packets and the
// command that runs it again.
//
// The package looks at engines only through what programs and management can see:
// completions, memory, counters. It never changes them.
package check
