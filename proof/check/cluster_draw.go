package check

import (
	"fmt"
	"math/rand/v2"

	"softib/proto/ib"
)

// Cluster is a history of machines that agree by a store: their clocks, what they change, and what happens to them, the
// store and what is between them.
type Cluster struct {
	Seed    uint64
	Members []ClusterMember
	Faults  []ClusterFault
	// Latency is the most that a message takes one way when nothing is slow.
	Latency ib.Time
	// Every is how often the master changes something, about.
	Every ib.Time
}

// ClusterMember is a machine; its clock gains Permille thousandths of a second each second.
type ClusterMember struct {
	At       ib.Time
	Permille int64
}

// ClusterFaultKind is what goes wrong.
type ClusterFaultKind uint8

// Kinds of fault.
const (
	CutRequests   ClusterFaultKind = iota // what a member asks does not reach the store
	CutAnswers                            // it does and is done, and the member does not hear of it
	SlowStore                             // everything takes up to Delay longer
	LateWatch                             // a member's watch lags by Delay
	BrokenWatch                           // a member's watch breaks off
	Compaction                            // the store forgets its past
	Standstill                            // a member does nothing for a while, and then all at once
	DeposedLeader                         // some members talk to a leader that is none any more and does not know
	Crash                                 // a member dies; another process with its name comes right after For
	Twin                                  // another machine comes that has the same name
	FullStore                             // the store takes no writes
	NumClusterFaultKind
)

var clusterFaultNames = [NumClusterFaultKind]string{"requests are lost", "answers are lost", "the store is slow",
	"the watch lags", "the watch breaks off", "the store is compacted", "it stands still",
	"it talks to a deposed leader", "it dies", "a twin comes", "the store is full"}

// ClusterFault is one of them.
type ClusterFault struct {
	Kind    ClusterFaultKind
	Member  int
	At, For ib.Time
	Delay   ib.Time
	Others  uint64 // members as bits, of DeposedLeader
}

func (f ClusterFault) String() string {
	return fmt.Sprintf("%v, for %v: m%d: %s, %v, %b", f.At, f.For, f.Member+1, clusterFaultNames[f.Kind], f.Delay,
		f.Others)
}

// clusterSpan is how long faults happen.
const clusterSpan = 20 * ib.Second

// DrawCluster draws a history. Five machines at most: then each looks after the master, however many of them are dead.
func DrawCluster(seed uint64) Cluster {
	rng := rand.New(rand.NewPCG(seed, 0xC1))
	upTo := func(t ib.Time) ib.Time { return ib.Time(rng.Int64N(int64(t))) }
	c := Cluster{Seed: seed, Latency: ib.Millisecond + upTo(10*ib.Millisecond<<rng.IntN(3)),
		Every: 50*ib.Millisecond + upTo(ib.Second)}
	for range 2 + rng.IntN(4) {
		c.Members = append(c.Members, ClusterMember{upTo(ib.Second << rng.IntN(4)), int64(rng.IntN(21) - 10)})
	}
	// Some histories are about one kind, so that it meets itself.
	only := ClusterFaultKind(rng.IntN(2 * int(NumClusterFaultKind)))
	for range rng.IntN(16) {
		f := ClusterFault{Kind: ClusterFaultKind(rng.IntN(int(NumClusterFaultKind))), Member: rng.IntN(len(c.Members)),
			At: upTo(clusterSpan), For: upTo(ib.Second << rng.IntN(5)), Delay: upTo(ib.Second << rng.IntN(3)),
			Others: rng.Uint64() & 31}
		if only < NumClusterFaultKind && rng.IntN(2) == 0 {
			f.Kind = only
		}
		if f.Kind == DeposedLeader {
			f.For = ib.Second/2 + upTo(2*ib.Second) // about as long as it takes one to notice
		}
		f.For = ib.Earlier(f.For, clusterSpan-f.At)
		c.Faults = append(c.Faults, f)
	}
	return c
}
