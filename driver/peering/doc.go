// Package peering is a machine's connections to other machines in real time: who they are is proven by certificates,
// messages go through tunnels (node/tunnel) over UDP, and small questions over the TLS connection by which the two have
// met. It knows nothing of fabrics: what messages and questions mean is for others to say.
//
// # How two machines meet
//
// One dials the other's TCP port. TLS 1.3 proves to each that the other has a certificate of the CA, and that it is of
// the name that it says. They exchange a hello each, and derive the tunnel's secrets from the TLS session's
// (RFC 8446 section 7.5), so that what goes over UDP is of the one who was proven. The UDP port has the number of the
// TCP port, and one socket serves all peers: a datagram begins with the index that its receiver gave to the session. A
// peer is up when datagrams have passed in both directions.
//
// Two that dial each other at once would have two connections: the one with the lesser name decides which is taken, and
// when they lose each other it dials, at once and then ever less often. The other one dials too if it was told to
// connect, but later, in case only it can.
//
// # How they lose each other
//
// A process that ends closes TCP, and its peer is told at once. A machine or a network that falls silent is noticed by
// the tunnel, within two seconds and a half, or by TCP, within five; then it is looked whether the other still works,
// so that Down says which of the two does not (ErrNoDatagrams, ErrNoControl) or that neither does (ErrSilent).
//
// # Driving it
//
//	m, err := peering.New(peering.Config{Name: "a", TLS: certificates, Listen: ":7471", Handler: h})
//	m.Answer("ping", func(ctx context.Context, peer string, in json.RawMessage) (any, error) { … })
//	err = m.Connect("b", "192.0.2.2:7471")
//	// h.Up(p), then h.Messages(p, batch) until h.Down(p, why)
//	err = p.Send(stream, message)  // queued; tunnel.ErrFull until h.Room(p)
//	p.Flush()                      // sent
//	err = m.Call(ctx, "b", "ping", in, &out)
//
// A handler is called by one goroutine at a time for each peer and must not wait: datagrams of all peers wait for it.
// It may send and flush; it disconnects peers from another goroutine.
package peering
