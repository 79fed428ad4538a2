package cluster

import (
	"errors"
	"fmt"
)

// EventKind is what a driver hears of.
type EventKind uint8

// Kinds of event.
const (
	EventJoined     EventKind = iota // this machine is a member, again perhaps
	EventRefused                     // another machine has the name: Member says who. The engine is done
	EventLost                        // the lease has ended, and others may have been told so; it joins again by itself
	EventLeft                        // as it was asked to. The engine is done
	EventMemberUp                    // Member has come, or is another process now
	EventMemberDown                  // Member has gone
	EventMaster                      // Name is the master from now on; empty if there is none
	EventApplied                     // the fabric is now what Revision says; Sections have changed
	EventMade                        // Change is in the store, as Revision
	EventRejected                    // Change is not made and never will be, and Err says why
	EventTrouble                     // Text: the store does not answer, or says no
	EventCalm                        // it answers again
	NumEventKind
)

var eventNames = [NumEventKind]string{"joined", "refused", "lost", "left", "member up", "member down", "master",
	"applied", "made", "rejected", "trouble", "calm"}

func (k EventKind) String() string {
	if k < NumEventKind {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that has happened to this member, or that it has heard of.
type Event struct {
	Kind     EventKind
	Member   Member
	Name     string
	Revision int64
	Sections []string // in order; after a gap, all of them
	Change   string
	Text     string
	Err      error
}

// Why a change was rejected; match with errors.Is.
var (
	ErrNotMaster = errors.New("this machine is not the master")
	ErrStale     = errors.New("the fabric has changed since")
	ErrBusy      = errors.New("another change is under way")
	ErrFull      = errors.New("the store is full")
	ErrRefused   = errors.New("the store refuses")
)
