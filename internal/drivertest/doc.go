// Package drivertest holds the drivers of hosts against each other: the same two hosts, in processes of their own, in
// the fabric's process and in virtual time, do the same scripts of work and faults, over ways from ring to ring and
// through the switches, and everything that a program or an operator can see of it has to be the same: completions at
// both ends, what is in memory afterwards, what adapters and ports have counted, and what a capture shows. Scripts are
// such that this does not depend on time: where two packets could meet, one waits.
package drivertest
