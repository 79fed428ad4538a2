// Package umad speaks to the management devices of Linux: /dev/infiniband/umadN,
// through which programs send and receive management datagrams on a real port, and
// issmN, which marks the port as a subnet manager's.
//
// Linux matches responses, repeats requests and does RMPP itself. So a Port here has
// the terms of package madrpc (Registration, Message, Delivery) and none of its work; it
// turns them into the kernel's structures and remembers cookies, which the kernel does not know.
//
//	port, err := umad.Open(ctx, "", 0)              // the first active port of this machine
//	id, err := port.Register(madrpc.Registration{Class: mad.ClassSMDirect, ClassVersion: 1})
//	err = port.Send(id, madrpc.Message{…})
//	d, err := port.Recv(ctx)                        // blocks
//
// Send may be called from anywhere; Recv from one goroutine at a time. Delivery.Data is the caller's
// until the next Recv.
//
// # What the kernel does otherwise than madrpc
//
//   - A request that times out comes back as its header alone, 24 bytes.
//   - A long message that the other side aborts is not reported at all. Who sends requests in segments keeps
//     a deadline of their own; Forget then drops the cookie.
//   - An open device has 32 agents at most.
//   - Times are in milliseconds, rounded up.
//
// System names where sysfs and the devices are, and how a device is opened. Tests put a double there
// that speaks the same bytes (internal/umadtest).
package umad
