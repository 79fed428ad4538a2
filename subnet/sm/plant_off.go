//go:build !plant

package sm

// Bugs that a build with the tag plant can switch on, to show that the checks over a whole fabric find them. Here they
// are constants, and nothing is left of them.
const (
	plantOrder  = false // the rounds of a transition are written in the wrong order
	plantForget = false // a switch that has started anew is taken to hold its tables
	plantKeep   = false // who has handed over goes on as a master

	plantChoosing = false // switches choose while their tables change
)
