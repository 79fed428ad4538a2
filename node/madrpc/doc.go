// Package madrpc is the management service of one port: what lies between the
// programs that speak in management datagrams and the wire. Programs register as
// agents, for a class and the methods they want to be asked, or only to ask; requests are
// matched with their responses, repeated and given up; long messages are cut into
// segments and put together again by RMPP (IBA 13.6).
//
// Its behaviour is that of Linux's ib_mad layer as umad shows it, because the
// programs that run above were written for it: the upper half of a transaction ID is the
// layer's and leads a response to its agent, a request that nobody answers comes back, a
// message in many segments arrives as one, its header once and then all of its payload.
//
// It knows nothing about packets, queue pairs, links or what a datagram asks for. A directed-route SMP is
// sent as it is: hop rules, and requests that the node itself answers, are the driver's
// matter (package agent).
//
// # Driving it
//
//	p := madrpc.New(madrpc.Config{})
//	id, err := p.Register(madrpc.Registration{Class: mad.ClassSMDirect, ClassVersion: 1})
//	err = p.Send(now, id, madrpc.Message{Env: env, Data: smp, Timeout: 200 * ib.Millisecond, Retries: 3, Cookie: 7})
//
//	for { // whenever something was put in
//		env, dgram, ok := p.PollSend()    // onto the wire
//		…
//		d, ok := p.PollRecv()             // to agent d.Agent
//	}
//	taken := p.Handle(now, env, dgram)    // what came from the wire
//	p.HandleTimer(now)                    // no later than p.NextDeadline()
//
// A timeout counts from when PollSend gave the datagram out, by the latest time that
// the port was told. So a long queue in front of a slow wire makes no request time out.
//
// # Who owns which bytes
//
//   - Message.Data is copied by Send; the caller may reuse it at once.
//   - The datagram passed to Handle is copied too.
//   - The datagram that PollSend returns is the caller's to read and to change until the next PollSend. A retry
//     is made from the port's own copy.
//   - Delivery.Data is the caller's to read and to change until the next PollRecv.
//
// # Where it is stricter or kinder than Linux
//
//   - No limit on agents; an agent whose message a peer stops or aborts is told (Aborted).
//   - A segment of a response that arrives restarts the timeout of its request: a long table does not
//     time out while it comes in.
//   - Windows open when half of them has arrived, so a sender need not pause.
//   - A repeated request whose response is still on its way in segments is dropped.
//   - A response in segments that nobody waits for is aborted, and its sender need not try again.
//   - A request that reuses a transaction ID forgets the finished response of the former one.
package madrpc
