//go:build !plant

package endpoint

// Bugs that a build with the tag plant can switch on, to show that torture finds them. Here they are constants, and
// nothing is left of them.
const (
	plantClock = false // timers count although the clock that started them was from before a standstill
	plantVoid  = false // a payload is pulled whose request was given up
	plantGrant = false // what a peer may write ahead to is not taken back when memory is deregistered
	plantWake  = false // the attendant says that it sleeps after its last look, not before
)
