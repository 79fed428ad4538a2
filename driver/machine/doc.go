// Package machine is a computer in virtual time: programs, each a process on a host of a simulated fabric, whose
// adapters are driven by package endpoint exactly as those of real programs are. Rings, bundles, payloads by reference,
// writing ahead, attendants and completions that are moved to where C looks are the code that users run; the clock, the
// kernel's wake-ups and the order of steps are the machine's, and follow from its seed.
//
// A process does its work in steps: a turn of its attendant, a look at its completion queues, a post. Between any two
// of them it may stand still, for microseconds or seconds, or be killed; its peers go on. Ways through the fabric are
// direct, from ring to ring, or switched: then a ring ends at the host's port in package sim, which has cables,
// switches and their faults, and a process that leaves its rings full holds packets up there. A way may change under
// load. Ports count what passes them by either kind of way.
//
// A Machine is used like a sim.Sim, and drives one. It knows nothing of the load that runs on it. It counts what
// happens to rings and processes (Count), so that a test can want everything to have happened.
package machine
