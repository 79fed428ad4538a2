// Package tunnel is one machine's end of the tunnel to another: what lies between cables that run from machine to
// machine and the datagrams that carry them. Messages go in at one end and come out at the other in order, each exactly
// once and unchanged, or the session is dead. Whatever a network does to datagrams (loses, doubles, reorders, cuts or
// forges them) ends here, so that InfiniBand above sees cables that lose nothing.
//
// It knows no sockets, no clock, no names of machines, and not what messages mean. The secrets come from a handshake
// that somebody else has made (driver/peering, by TLS 1.3).
//
// # How it works
//
// Messages are laid end to end into one stream of bytes, each behind a header of 6 bytes. A datagram carries a piece of
// that stream and says at which offset it lies, so small messages share datagrams and large ones are cut without more
// ado. Recovery is QUIC's (RFC 9000, RFC 9002): each datagram has a number of its own that is never used again,
// acknowledgements name ranges of numbers, what is missing is sent again under a new number. A datagram is lost when a
// third later one has been acknowledged, or when one later has been and 9/8 of a round trip passed; if nothing is
// acknowledged, probes are sent. The receiver tells up to which offset it has room (its window), so an end that is not
// read from stops its peer.
//
// Congestion is answered as NewReno does (RFC 9002 section 7): machines of a fabric are a fraction of a millisecond
// apart, so a halved window is back after a few milliseconds, which is what CUBIC would be better at. On a way of tens
// of milliseconds with losses CUBIC or BBR would carry more.
//
// Datagrams are sealed with AES-256-GCM. The number is the nonce, the header is authenticated, and the number is
// checked against a window of those that have come, so nothing is taken twice. After 2^32 bytes or 2^24 datagrams a
// sender goes on with the next key, which is derived from its last (HKDF-Expand); the number of the key (epoch) is in
// the header, and the last key is kept for a few round trips only. Both directions have secrets of their own.
//
// The first datagrams of a session are as long as any may be, so that a way on which only short ones pass is not taken
// for one; if it becomes one later, the session is dead because nothing of the stream arrives.
//
// # Driving it
//
//	s, err := tunnel.New(now, tunnel.Config{SendSecret: a, RecvSecret: b, SendIndex: theirs, MTU: 1452})
//	err = s.Send(now, stream, message)        // copied; ErrFull if !s.Room()
//	err = s.HandleDatagram(now, data)         // what has come; data is overwritten. An error is a datagram refused
//	s.HandleTimer(now)                        // no later than s.NextDeadline()
//	for {
//		stream, message, ok := s.PollMessage() // message is good until the next HandleDatagram
//		…
//	}
//	for {
//		n, ok := s.PollDatagram(now, buf)      // buf[:n] is to be sent; buf has room for MTU
//		…
//	}
//	s.Dead(now)                               // the peer has been silent for too long: give the session up
//
// It pays to hand in all datagrams that have come before PollDatagram is asked: they are acknowledged together.
package tunnel
