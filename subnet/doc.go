// Package subnet is what a subnet manager knows about its subnet: nodes,
// ports, cables, addresses, and every table as it stands in the nodes.
//
// A Subnet is a value that one sweep fills and that nobody changes once it is
// published: the next sweep makes a new one, which shares the nodes that have
// not changed. Whoever answers questions (the administrator, commands, a
// page) works on the last published one and never sees half of a sweep.
//
// The package knows neither how the facts were learned nor what they are used
// for: no datagrams in flight, no routing, no policy.
package subnet
