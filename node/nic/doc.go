// Package nic is what an adapter costs besides its protocol: two pipelines that take so many packets a second, a PCI
// Express link with a rate and a round trip, and on-chip caches of queue pair contexts, of requests and of memory
// translations, whose misses are fetched from the host's memory, so many at a time.
//
// It decides nothing about packets: node/hca makes and takes them, and this package says when. It knows no cables and
// no time of its own. The driver asks before and after each packet:
//
//	a.NextSend() <= now      the sending pipeline takes a packet: let hca make one
//	leave := a.Send(now, …)  it is at the port by then
//	a.NextReceive() <= now   the receiving pipeline takes a packet that has arrived, whose buffer is free then
//	ready := a.Receive(…)    hca gets it by then
//
// Packets of one queue pair keep their order, in both directions.
package nic
