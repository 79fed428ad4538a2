// Package endpoint drives the engine of a program's queue pairs in real time, over rings in
// memory that two processes share, or two users of one process. There is no other driver of queue pairs in real time.
//
// An Endpoint is a verbs.Device. Whoever uses it does its work: posting sends the packets, polling takes in those that
// arrived, and no third party stands between two programs. When nobody polls, the endpoint's attendant (a goroutine
// that otherwise sleeps) takes in packets and keeps the timers; an idle endpoint uses no CPU.
//
// An Endpoint knows nothing of switches. A Router, which whoever makes the endpoint brings along, tells it for each
// destination into which rings its packets go, and gives it a Slot, in which the endpoint counts what it sent and
// through which it learns that the way is no more. The room in a ring is the credit: a sender never sends what the
// receiver cannot hold, so nothing is dropped for want of room.
//
// What lies in a ring was written by another process. It is looked at as packets from a
// wire are: whatever it says, nothing outside the ring is touched because of it.
//
// Files: ring.go, in.go and cell.go are the memory, page.go is how the two ends wake each other, peer.go knows the
// memory of the process at the other end and fetches payloads from it, pipe.go does so where the kernel forbids it,
// writeahead.go puts them there, endpoint.go and send.go do the work, attend.go does it when nobody else does and
// duty.go decides who that is, member.go hears what the fabric tells, ends.go has what a fabric that switches packets
// uses of rings, local.go is what is different within one process, machine.go what is different in virtual time,
// wait.go has those who sleep, hint.go what C code may look at, and ledger.go, histogram.go and meter.go what the
// fabric is told of all this.
package endpoint
