//go:build plant

package endpoint

var plantVoid, plantGrant, plantWake, plantClock, plantSends, plantSleeper bool

// Bug is one that can be switched on in builds with the tag plant.
type Bug int

// Bugs.
const (
	LatePull Bug = iota
	LateGrant
	LostWake
	OldClock
	LostSends
	LostSleeper
)

// Plant switches a bug on or off: a payload is pulled after its request was given up, a grant is used after memory was
// deregistered, a wake-up is lost, a timer is started by a clock from before a standstill, requests that were staged
// are left to a program that does not call, a thread that sleeps in the library is not woken.
func Plant(b Bug, on bool) {
	*[...]*bool{&plantVoid, &plantGrant, &plantWake, &plantClock, &plantSends, &plantSleeper}[b] = on
}
