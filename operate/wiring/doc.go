// Package wiring judges how a fabric is cabled: whether it is the fat tree that
// it should be, how it differs from a plan or from another fabric, and what its
// cables and switches amount to when somebody has to buy them.
//
// Check is the whole of the first question. Without a plan the tree is inferred:
// levels are distances from the hosts, brothers are switches whose neighbours
// above are the same, and what most brothers do is what all of them
// should do (shape.go, pattern.go). That gives a list of expected links, with
// ports where most agree on ports. With a plan the list comes from the plan, after its nodes were found in the
// fabric (match.go). Either way the same comparison (compare.go) turns expected and
// actual cables into findings: missing, extra, swapped, miswired, in a wrong port.
//
// What no structure shows, no inference finds: two hosts that changed places, or a whole level that is wired
// otherwise. DetectableWithoutPlan says of each kind of mistake whether the
// structure shows it.
//
// Diff compares two fabrics as equals. Bill counts switches, ports and cables by
// kind and length, over a Layout of racks that ParseLayout reads or
// DefaultLayout makes up.
//
// The package knows graphs (topo) and tables (route) and nothing that runs:
// no datagram, no daemon, no file. Everything is a function of its arguments, and
// the same fabric gives the same findings in the same order.
package wiring
