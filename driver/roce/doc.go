// Package roce joins a program's adapter to an IP network by RoCEv2: queue pairs of this process talk to those of any
// machine that speaks it, other softib processes, Linux's rxe or adapters of silicon, over ordinary UDP sockets.
//
// A Device is an endpoint whose one port is Ethernet's, and whose packets go to a network in place of rings (link):
// many datagrams by one system call, sent by the thread that has made them. Who looks for packets takes them from the
// sockets; they are judged as bytes from anybody (wire.Packet.ParseRoCE). While nobody looks, a goroutine waits at
// each socket and wakes whoever sleeps.
//
// A Server holds the port of an interface for the programs of a machine, each of which has a Device in its own process
// (Dial), and has queue pair 1 (Session). Interfaces are all servers of a process.
//
// GIDs are the interface's addresses. The kernel has the headers of IP and UDP, and the ICRC covers both, so what the
// kernel does has to be known: a socket that is not connected and may not fragment sends IPv4's identification as 0.
package roce
