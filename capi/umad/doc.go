// Package umad lets unmodified management programs run on a host of a fabric:
// everything that is built on libibumad, such as OpenSM and infiniband-diags. Its two
// halves are a drop-in libibumad.so.3 in plain C (folder clib), which `softib exec` puts
// in front of the system's, and the server that the library talks to, in the
// fabric's daemon.
//
// The package does not know how datagrams travel, what they mean or how requests are
// matched with responses: that is the Session's matter, which whoever drives the fabric
// provides through Ports (OnFabric for one of this process). What the server does itself is what Linux's
// umad devices do around that: agents numbered 0 to 31 for each open port, the head in front
// of a datagram, errors as completions, and IsSM while a file is open.
//
// # Driving it
//
//	l, err := umad.Listen(socketPath)
//	err = umad.Serve(ctx, l, ports)         // in the daemon, until ctx ends
//
// Package dropin finds the library and makes programs use it.
//
// # The protocol
//
// Records over a Unix SOCK_SEQPACKET socket whose path is in the environment variable
// SOFTIB_UMAD; SOFTIB_HOST names the host. Integers are in the machine's own byte
// order, but for those that libibumad itself shows big-endian. clib/protocol.h has the layouts, and tests
// compare them with protocol.go.
//
// Every connection begins with one request (184 bytes) and one reply (32 bytes and what the
// operation gives):
//
//	CA          the host's adapter and its ports
//	Open        a port; the connection then carries its datagrams, and the reply's token names it
//	Register    an agent on the port that the token names; the reply has its number
//	Unregister  that agent
//	IsSM        the path of a file: the port's IsSM bit is set while a program has it open
//	Closed      waits until the server has noticed that the port of the token is closed; answers at once if
//	            another process still has it open
//
// Requests are separate connections, so that a program can register while
// datagrams wait on the port's descriptor, and poll(2) on that descriptor says the truth.
// Magic and version come first in requests and replies of every version; a server that does not speak
// the library's version answers EPROTO with words that the library prints.
//
// On an open port one record is one datagram, in both directions: libibumad's struct ib_user_mad
// (64 bytes) and up to 256 bytes of datagram. A longer one, which RMPP carries,
// brings a descriptor of a file with what is beyond the first 256 bytes: a socket's buffer
// is too small for it, and the library can look at the first segment and leave the rest where it is until the
// program has a buffer large enough, as with the device. There is no
// reply to a record. A datagram that cannot be sent comes back as one that
// nobody answered does: its 24 bytes of header, with an errno in the status.
//
// IsSM's file is a FIFO that the server holds open for writing: whether anybody
// reads is a question that has an answer at any time, however the program ended.
//
// Only the user who runs the server, and root, are let in (SO_PEERCRED).
package umad
