package inspect

import (
	"errors"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// ErrFault is matched when a fault or a capture cannot be as asked.
var ErrFault = errors.New("no such fault")

// Fault is what a cable does beyond carrying packets, in both directions. Packets of programs in processes of their own
// have all of it; management packets, which are carried at once, are lost and corrupted but take no time.
type Fault struct {
	// BER is the probability of each bit to be flipped. A packet with a flipped bit fails its CRC and is discarded
	// where it comes in, and counts as an error there.
	BER float64
	// Drop is the probability of each packet to vanish.
	Drop float64
	// Rate is how many bits go over the cable in a second, headers and CRCs included; 0 is as many as this machine can.
	Rate int64
	// Delay is how long a packet is on its way, besides. As on any long cable, no more can be on the way than the
	// buffer at its end holds.
	Delay time.Duration
	// OneWay leaves what comes the other way alone: only what the port sends at which the fault is set meets it.
	OneWay bool
}

// FalseGUID is a node that answers with a GUID that is not its own.
type FalseGUID struct {
	Node  int
	GUID  ib.GUID
	Since time.Time
}

// FaultState is a fault that is set, and what it has done so far.
type FaultState struct {
	Port topo.PortRef // where it was set
	Fault
	Dropped, Corrupted uint64
}
