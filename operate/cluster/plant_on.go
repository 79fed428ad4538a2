//go:build plant

package cluster

import "softib/proto/ib"

var (
	beliefTime                                     = belief
	plantTwice, plantFence, plantTerm, plantRevive bool
)

// Bug is one that torture has to find. It exists in builds with the tag plant only.
type Bug uint8

// Bugs.
const (
	LongBelief Bug = iota // a renewal is believed for three times as long as it may be
	AppliedTwice
	NoFence
	AnyTerm
	Revival
)

// Plant switches a bug on or off.
func Plant(b Bug, on bool) {
	switch b {
	case LongBelief:
		beliefTime = belief
		if on {
			beliefTime = 3 * ib.Time(belief)
		}
	case AppliedTwice:
		plantTwice = on
	case NoFence:
		plantFence = on
	case AnyTerm:
		plantTerm = on
	case Revival:
		plantRevive = on
	}
}
