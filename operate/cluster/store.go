package cluster

import (
	"fmt"

	"softib/proto/ib"
)

// LeaseID names a lease of the store; 0 is none.
type LeaseID int64

// Op is what a request asks of the store.
type Op uint8

// Operations.
const (
	OpGrant      Op = iota // a lease of TTL seconds
	OpKeepAlive            // Lease lives on for its whole time
	OpRevoke               // Lease ends, and all keys under it go
	OpTimeToLive           // how long Lease has left
	OpGet                  // Key, or with Prefix all keys that begin with it
	OpTxn                  // Txn
	OpWatch                // everything below Key from Rev on, in place of what was watched before
	NumOp
)

var opNames = [NumOp]string{"grant", "keep alive", "revoke", "time to live", "get", "transaction", "watch"}

func (o Op) String() string {
	if o < NumOp {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Request is what a member wants from the store. Whoever carries it answers each but OpWatch exactly once, with
// OutcomeUnknown when there was none for the time of Patience. Keys are relative to the fabric's own prefix.
type Request struct {
	ID       uint64
	Op       Op
	Lease    LeaseID
	TTL      int64
	Key      string
	Prefix   bool
	Rev      int64
	Txn      Txn
	Patience ib.Time
}

// Txn writes Then if all comparisons hold, and reads Else if not; in one moment, which is one revision.
type Txn struct {
	If   []Compare
	Then []Write
	Else []string
}

// Compare holds if Key was last changed at revision Mod; 0 stands for a key that is not there.
type Compare struct {
	Key string
	Mod int64
}

// Write puts a value, under a lease if there is one, or deletes the key.
type Write struct {
	Key    string
	Value  []byte
	Lease  LeaseID
	Delete bool
}

// Pair is a key with its value, and the revisions at which it was made and last changed.
type Pair struct {
	Key         string
	Value       []byte
	Create, Mod int64
	Lease       LeaseID
}

// Outcome is what became of a request.
type Outcome uint8

// Outcomes.
const (
	OutcomeDone      Outcome = iota
	OutcomeUnknown           // no answer: it may be done, or be done later
	OutcomeRefused           // certainly not done, and Text says why
	OutcomeFull              // certainly not done: the store has no room left
	OutcomeGone              // certainly not done: the lease has ended
	OutcomeCompacted         // what was asked for is older than what the store still has
	NumOutcome
)

var outcomeNames = [NumOutcome]string{"done", "unknown", "refused", "full", "lease gone", "compacted"}

func (o Outcome) String() string {
	if o < NumOutcome {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Answer is the store's to a request.
type Answer struct {
	ID      uint64
	Outcome Outcome
	Text    string // of what went wrong
	// Rev is the store's revision when it answered, and Term counts its leaders: a renewal is certain only if a
	// consistent read after it was answered in the same term.
	Rev  int64
	Term uint64
	// Lease and Granted answer OpGrant; TTL, whole seconds rounded down, and Granted answer OpTimeToLive.
	Lease        LeaseID
	TTL, Granted int64
	// Held says whether a transaction's comparisons did. Pairs are what was read.
	Held  bool
	Pairs []Pair
}

// Batch is all that changed at one revision, as a watch tells it. A watch that has ended says so by its Outcome:
// OutcomeCompacted, or OutcomeUnknown where it only broke off.
type Batch struct {
	Watch   uint64 // the request that began it
	Outcome Outcome
	Rev     int64
	Changes []PairChange
}

// PairChange is a pair as it is now, or the key alone if it was deleted.
type PairChange struct {
	Pair
	Deleted bool
}
