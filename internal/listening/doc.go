// Package listening says whether somebody listens on a TCP port of this machine, without connecting: to a server that
// waits for one peer, whoever connects is that peer. Tests and benchmarks wait with it for programs of others.
package listening
