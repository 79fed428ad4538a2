// Package rdmacm is the daemon's side of rdma_cm: what Linux does in its cma and ucma modules for programs that
// use librdmacm. Programs resolve addresses and routes, listen, connect, join multicast groups and get events; the
// C library (folder clib) only carries their commands here.
//
// The package owns identifiers and their states, IP addresses and ports, event channels, and what becomes of all that
// when a program dies. It does not know how a connection is established (package cm), how datagrams travel or are
// answered (a Session of the host's port, which whoever drives the fabric provides through Ports), nor anything about
// queue pairs: those live in the program, which moves them with the attributes that InitQPAttr gives.
//
// # Driving it
//
//	l, err := rdmacm.Listen(socketPath)
//	err = rdmacm.Serve(ctx, l, rdmacm.OnFabric(fabric)) // until ctx ends
//
// # The protocol
//
// Records over Unix SOCK_SEQPACKET connections, in the machine's own byte order. A program's event
// channel is a command connection and an event connection, joined by the channel's number.
//
// Each connection begins with a hello and its answer; protocol.go has the layouts, and a test compares them with the
// headers of the kernel. After that, on a command connection, every record is struct rdma_ucm_cmd_hdr and the command's
// own struct, as in rdma/rdma_user_cm.h, and is answered by one record: status (0 or a negative errno), 4 bytes of
// nothing, and the command's response, cut to what the header's out has room for. Fields called response are not looked
// at. Three commands differ from the kernel's:
//
//   - SET_OPTION: the option's value follows the struct, optlen bytes of it; optval is not looked at.
//   - MIGRATE_ID is sent on the channel that the ID goes to, as with the kernel. The channel that it leaves is named by
//     its number, in the 64 bits that the kernel's struct calls response; fd is not looked at.
//   - GET_EVENT does not exist: events come on the event connection, one record each, struct rdma_ucm_event_resp.
//
// An event of an ID that is destroyed, or that goes to another channel, must not be read any more where it waits. So
// the hello of an event connection brings a descriptor of the program's own end of it (SCM_RIGHTS): the server takes
// back through it what the program has not read. DESTROY_ID, LEAVE_MCAST and MIGRATE_ID tell how many events of the ID
// the program has read, as the kernel does, and the library waits until as many are acknowledged.
//
// A channel ends with its command connection, and everything in it too: connections are disconnected, listeners end,
// groups are left. Only the user who runs the server, and root, are let in (SO_PEERCRED).
//
// # The library
//
// Folder clib has the drop-in librdmacm.so.1 in plain C. It moves the program's queue pairs, on our libibverbs, with
// the attributes that the server gives, waits where a program wants to, and counts acknowledgements. A uid of an event
// is a number that is never used again, not an address. The files rs*.c and riomap.c are rsockets, which need nothing
// of the server but connections: rs.h says how bytes travel.
package rdmacm
