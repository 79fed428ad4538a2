// Package netif drives interfaces of IP over InfiniBand (node/ipoib) in real time: packets go between a TUN device and
// a datagram queue pair of a host's adapter, and paths and groups are asked from the subnet's administrator.
//
//	n, err := netif.Open(dev, netif.Config{Name: "ib0", Tun: file, PKey: key})
//	err = n.Run(ctx)                       // until ctx or the device ends
//
// Whoever opens one has made the TUN device, in whatever namespace, with a struct virtio_net_hdr in front of packets,
// and tells SetAddrs and SetGroups what is so there; Watch does that from files of the namespace. Settle waits for what
// ended programs have left behind.
//
// Two goroutines have the packets, one for each direction; neither waits for the other. What the engine has kept while
// it looked for a neighbour is sent by a third. The engine's lock is never held where something is waited for.
package netif
