// Package job is what runs on a fabric, as data: for each rank operations (a message to another rank, one from another
// rank, a calculation, a part in an operation that the network does for a group) and what each of them waits for.
//
// It is the one form that everything takes which is to be run: collectives and patterns are made as schedules
// (package collective, package load), traces are read as schedules (package goal), and package play runs them, whatever
// carries the messages.
//
// A Builder makes a Schedule:
//
//	b := job.NewBuilder(2)
//	send := b.Send(0, 1, 4096, 7)           // rank 0 sends 4096 bytes with tag 7 to rank 1
//	recv := b.Recv(1, 0, 4096, 7)
//	calc := b.Calc(1, 1500)                 // 1.5 us of work
//	b.After(1, calc, recv)                  // which begins when the message is there
//	s, err := b.Schedule()
//
// Schedule checks what can be known before a run: every peer exists, no operation waits for itself in a circle, every
// receive has a message that may come to it.
package job
