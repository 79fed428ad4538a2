// Package attach makes a program's process part of a running fabric: the engine of the program's queue pairs
// runs in the program, the daemon is its control plane, and packets go through memory that it shares with its peers.
//
// Open gives a verbs.Device. One process has one for each host that it is on; it takes part under its own block of
// the adapter's queue pair numbers. When the daemon goes, the device fails as an adapter would whose
// slot lost power: a fatal event, and every queue pair in the error state.
package attach
