// Package roce joins a program's adapter to an IP network by RoCEv2: queue pairs of this process talk to those of any
// machine that speaks it, other softib processes, Linux's rxe or adapters of silicon, over ordinary UDP sockets.
//
// A Device is an endpoint whose one port is Ethernet's. Its ways all lead into one ring, and what lies there is sent by
// the thread that has put it there, many datagrams by one system call (link.Flush). Who looks for packets fetches them
// from the sockets first (link.Fetch): they are judged as bytes from anybody (wire.Packet.ParseRoCE), and put into a
// ring that the endpoint reads like every other. While nobody looks, a goroutine waits at each socket and wakes whoever
// sleeps.
//
// GIDs are the interface's addresses. The kernel has the headers of IP and UDP, and the ICRC covers both, so what the
// kernel does has to be known: a socket that is not connected and may not fragment sends IPv4's identification as 0.
package roce
