// Package server is the daemon's side of attached processes: it listens on a Unix socket, makes sure who is there, and
// lets each process take part in a live fabric for as long as its connection lasts. However a process ends, its
// connection ends with it, and so does everything that it had.
package server
