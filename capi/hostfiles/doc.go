// Package hostfiles writes the files by which an unmodified program knows the host that it runs on: what
// /sys/class/infiniband, infiniband_verbs and infiniband_mad say of its adapter, and an /etc/hosts with the names of
// all hosts.
//
// A host's files are a tree of plain files in the fabric's runtime folder, laid out as they are to appear. Package
// dropin puts the tree over the machine's own files for the programs that run there; hostfiles knows nothing of that,
// nor of programs: Open and release say whose files are looked at.
//
// # How fresh they are
//
// The kernel makes such a file when it is read; a plain file has what was last written. While a host is open its
// states, addresses and keys are written anew within a tenth of a second of a change, and everything once a second, in
// place, so that a program that keeps a file open sees it too. Only what differs is written. That costs the daemon
// about 7 µs per open host and second when nothing changes, some 80 µs when traffic flows, and nothing while no program
// runs; the benchmarks say how much on this machine. A file system of our own (FUSE) would be exact, but containers
// seldom have its device, and a daemon that is stopped would make every reader hang.
//
// # Driving it
//
//	trees, err := hostfiles.New(fabric, dir, config)
//	path, release, err := trees.Open("h1")     // fresh now, and until release
//	trees.Close()                              // removes everything
package hostfiles
