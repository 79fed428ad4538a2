// Package drivertest holds the drivers of hosts against each other: the same two hosts, in processes of their own, in
// the fabric's process and in virtual time, do the same script of work and faults, and everything that a program or an
// operator can see of it has to be the same: completions at both ends, counters of every port, and what a capture
// shows.
package drivertest
