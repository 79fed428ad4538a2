// Package flow is a fabric at the level of flows: messages share the links on their ways, each link's rate is given out
// max-min fair, and a message is there when its bytes have passed at the rates that it had, and its path's latency is
// over. There are no packets, no credits and no queues; in exchange tens of thousands of end ports are no trouble.
//
// Net is an engine: messages go in by Start, those that have arrived come out of Poll, and NextDeadline says when to
// come back. Ways finds the links between two end ports by the forwarding tables that packets would follow.
//
// Rates are max-min fair at every moment, not approximately: when messages come and go, others are computed anew as far
// as the change reaches, and no others (solve.go says why that is enough). Messages that end within Net.Quantum of each
// other end together.
package flow
