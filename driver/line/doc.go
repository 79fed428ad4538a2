// Package line is a process's ways to processes on other machines: one UDP socket, and for each way a tunnel
// (node/tunnel) whose keys two daemons have agreed upon. Packets go in whole and come out whole, in order, each once.
//
// It knows no fabric: which ways there are, and what may come by each, its user says. It is used under one lock, that
// of the endpoint whose packets it carries, and never waits.
//
// # Driving it
//
//	set := line.New(fd, report)                // a socket that is bound; report tells of lines that carry nothing
//	l, err := set.Add(now, line.Config{…})
//	if l.Room() { l.Put(&packet) }             // copied
//	set.Flush(now)                             // sent
//	set.Receive(now)                           // what the socket has
//	port, ok := set.Next(&packet)              // until there are no more
//	set.HandleTimer(now)                       // no later than set.NextDeadline()
//	set.End(now, l)                            // when it has delivered what it was given, or cannot
package line
