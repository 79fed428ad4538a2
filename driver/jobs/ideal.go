package jobs

import (
	"fmt"

	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
)

// Ideal is a Network for schedules that need none: play.Model.Ideal carries the messages itself.
type Ideal struct{}

// Send is never called.
func (Ideal) Send(ib.Time, play.Message) error { return nil }

// SetGroups refuses: who would do the work?
func (Ideal) SetGroups([]job.Group) error {
	return fmt.Errorf("%w: an ideal network has no switches that could add; next: take packets or flows, or another "+
		"algorithm than sharp", ErrReduction)
}

// Advance lets time pass.
func (Ideal) Advance(until ib.Time) (ib.Time, error) { return until, nil }

// Poll has nothing.
func (Ideal) Poll() (id uint32, sent, ok bool) { return 0, false, false }

// Idle is always so.
func (Ideal) Idle() bool { return true }

// Stuck is never so.
func (Ideal) Stuck() error { return nil }

// Carried is nothing: there are no links.
func (Ideal) Carried(int32) float64 { return 0 }
