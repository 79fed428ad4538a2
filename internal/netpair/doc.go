// Package netpair is machines that Ethernet joins, for tests and benchmarks: network namespaces with two cables
// between two, with routers between two, or with a bridge between any number, made by whoever may (root, or a user
// where namespaces of users are allowed).
package netpair
