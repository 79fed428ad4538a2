// Command softib starts InfiniBand fabrics made of software, looks at them and
// measures them.
//
// One file holds one subcommand: a function that returns its cobra.Command,
// listed in main.go. What several of them need stands beside them:
//
//	rundir.go      where a running fabric leaves its socket, lock and log
//	control.go     what is asked on that socket (package control), and the asking
//	server.go      who answers it in the fabric's process
//	fabric.go      a fabric with its name, from topology to ACTIVE
//	mesh.go        every host sends to every other
//	perf_sides.go  a test as two processes of this program, perf_side.go
//	detach.go      a fabric as a process in the background
//	roce.go        who holds an Ethernet interface's port, and how exec starts it
//	terminal.go    colour, progress and plain lines
//	errors.go      errors that end in what to do next
//
// It knows no packet and no table: fabrics are package live's, measuring is
// workload/perf's, topologies are topo's.
package main
