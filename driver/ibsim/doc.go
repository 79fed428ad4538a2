// Package ibsim is a port of a fabric that ibsim simulates: the driver through
// which our subnet manager runs on a simulator that neither we nor OpenSM's people
// wrote for it. It speaks the sockets of ibsim 0.10 itself and needs no preloaded library.
//
// A Port carries datagrams, one by one. A Session is a Port with the services of
// package madrpc, in the form that package smrun wants of a transport:
//
//	p, err := ibsim.Dial(ctx, ibsim.Config{Host: "Hca1"})     // ibsim -s netfile
//	s := ibsim.NewSession(p)
//	id, err := s.Register(madrpc.Registration{…})
//	s.Queue(s.Now(), id, message)
//	s.Poll(take)              // sends, receives, hands over; never waits
//	<-s.Bell()                // something has come, or is due
//
// # What ibsim is like
//
// One thread serves its clients, ten at most, one datagram for each turn of select(2). On the reference machine (2
// cores) it does this many round trips a second over Unix sockets, by the number of requests on their way:
//
//	1       4       16      32      64      256
//	65,000  143,000 182,000 238,000 196,000 116,000
//
// so more than InFlight pays nothing. The two sockets are connected to each other, and then Linux does not apply
// net.unix.max_dgram_qlen; the limit is the sender's buffer, some 200 datagrams. A datagram that finds it full waits
// here and nothing is lost. ibsim itself spins while its own buffer is full, which is why Poll empties ours before it
// sends more. Over UDP (half as fast) nothing is held back and what overflows is lost, so a window limits what is on
// its way.
//
// Standard input is its console: at the end of a file ibsim spins. Start it with a terminal, an open pipe, or -n.
//
// ibsim takes the upper 16 bits of a request's transaction ID for itself. The port puts zeros back
// into the answer, and refuses requests that have anything else there.
//
// A request that cannot be delivered comes back marked; it is counted and dropped, and
// whoever waits for an answer times out, as on a fabric.
//
// The package knows sockets and layouts, and nothing about what datagrams ask for.
package ibsim
