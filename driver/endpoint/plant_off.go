//go:build !plant

package endpoint

// Bugs that a build with the tag plant can switch on, to show that torture finds them. Here they are constants, and
// nothing is left of them.
const (
	plantVoid  = false // a payload is pulled whose request was given up
	plantGrant = false // what a peer may write ahead to is not taken back when memory is deregistered
	plantWake  = false // who sends to one that sleeps does not wake it
	plantClock = false // timers are started by a clock from before a standstill
	plantSends = false // nobody but who posts and polls looks at what was staged

	plantSleeper = false // a thread that sleeps in the library is not told of events
)
