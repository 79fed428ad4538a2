package inspect

import (
	"time"

	"softib/node/hca"
	"softib/proto/topo"
)

// ProgramStats is a program that is attached.
type ProgramStats struct {
	Host string
	PID  int
	// Name is that of the process, as the kernel has it, and Library the release of softib's library in it.
	Name, Library string
	Since         time.Time
	Stats         hca.Stats
	QPs           hca.QPCounts
}

// HostStats is what all programs of a host have counted, those that have ended included.
type HostStats struct {
	Host string
	Node int // in the fabric's graph
	// Programs is how many are attached, Ended how many were.
	Programs int
	Ended    uint64
	Stats    hca.Stats
	QPs      hca.QPCounts // of those that are attached
}

// PathLatency is how long acknowledgements took on the way from one host to another and back: of a sample of the
// packets of reliable connections that ask for one, from when the packet was sent until the sender has taken in the
// answer.
type PathLatency struct {
	From, To string
	Times    Times
	// Last is when something was last counted.
	Last time.Time
}

// Times is how long something took, many times over.
type Times interface {
	// Count is how many times were counted, and Sum about what they add up to.
	Count() uint64
	Sum() time.Duration
	// Quantile is a time that a share q of all, from 0 to 1, do not exceed, 0 if nothing was counted.
	Quantile(q float64) time.Duration
	// Below is how many were shorter than a time. It is exact for powers of two of nanoseconds.
	Below(time.Duration) uint64
}

// BurstWindow is how long the moments are that peaks are of.
const BurstWindow = time.Millisecond

// PortPeak is the most that a port has carried in one BurstWindow.
type PortPeak struct {
	Port topo.PortRef
	// Xmit and Rcv are bytes, headers included.
	Xmit, Rcv uint64
}
