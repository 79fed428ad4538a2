//go:build !plant

package cluster

// Bugs that a build with the tag plant can switch on, to show that torture finds them.
const (
	beliefTime  = belief
	plantTwice  = false // a revision that is known is applied again
	plantFence  = false // a change is not held against who is the master
	plantTerm   = false // a renewal is believed though the store's leader may have been another
	plantRevive = false // a renewal that comes late makes a master of one who has lapsed
)
