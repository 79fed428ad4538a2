// Package ipoib is an interface of IP over InfiniBand: packets of a host go in, datagrams come out, and the reverse
// (RFC 4391, 4392 and 4755). It finds neighbours by ARP and neighbour discovery with link-layer addresses of 20 bytes,
// paths to them from the subnet's administrator, joins the broadcast group of its partition and the groups that its
// host listens to or sends to, and cuts and puts together segments of TCP as an adapter with offloads does.
//
// The host's side is layer 3: a TUN device, whose kernel knows no link-layer addresses, so that resolving them is done
// here. Whatever the host sends is for a neighbour on the link; gateways are not known.
//
// The package knows no queue pairs, sockets or clocks. Who drives it posts what it says, and asks the administrator.
//
// # Driving it
//
//	i := ipoib.New(now, ipoib.Config{Self: self, PKey: key})
//	i.SetAddrs(now, prefixes)                  // and again when they change; SetGroups likewise
//	way := i.HandlePacket(now, packet, o)      // from the host: if there is a way, send the packet there
//	packet := i.HandleDatagram(now, &d)        // from the fabric: if there is a packet, it is the host's
//	i.HandlePath(now, gid, record, ok)         // the administrator's answers
//	i.HandleJoined(now, mgid, record, ok)
//	i.HandleLink(now, self)                    // the port or its manager has changed
//	i.HandleRefused(now, way, ended)           // a connection could not be made, or is over
//	i.HandleTimer(now)                         // no later than i.NextDeadline()
//	for {
//		a, ok := i.Poll()                      // send, deliver, ask, join, leave, close a way
//		…
//	}
//
// A packet that the host has left whole (Offload.Kind) is cut by Splitter; Complete writes the checksums of others.
// Coalescer does the reverse for what is handed to the host.
//
// # Whom to believe
//
// Anybody in the partition can answer for any address, as on an Ethernet. But nobody can speak for another's queue
// pair: link-layer addresses in ARP and neighbour discovery have to be those of the datagram that brought them.
package ipoib
