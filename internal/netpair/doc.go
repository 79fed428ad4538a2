// Package netpair is two machines that a cable of Ethernet joins, for tests and benchmarks: network namespaces with a
// veth pair, made by whoever may (root, or a user where namespaces of users are allowed).
package netpair
