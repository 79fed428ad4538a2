package jobs

import (
	"context"
	"fmt"

	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
)

// Network carries messages in virtual time.
type Network interface {
	// Send puts a message on its way.
	Send(now ib.Time, m play.Message) error
	// SetGroups says which groups of ranks have operations done by the network.
	SetGroups(list []job.Group) error
	// Advance lets time pass until something arrives, or until then, and returns the moment. If nothing is left to
	// happen it returns at once, with the moment of the last event.
	Advance(until ib.Time) (ib.Time, error)
	// Poll is a message that has arrived by now, or, later, whose sender has heard that it did.
	Poll() (id uint32, sent, ok bool)
	// Idle reports whether no message is on its way.
	Idle() bool
	// Stuck says why nothing will happen any more by itself though messages are on their way; nil if something will.
	Stuck() error
	// Carried is how many bytes a link has carried so far.
	Carried(link int32) float64
}

// Watch is who looks on while a run goes on.
type Watch struct {
	// Every is how many events pass between two calls of Look; 0 is 4096. Look may end the run by an error.
	Every int
	Look  func(Progress) error
	// Sample, if there is one, is called when Interval of virtual time has passed.
	Sample   func(now ib.Time)
	Interval func() ib.Time
}

// Progress is how far a run has come.
type Progress struct {
	Now        ib.Time
	Ended, All int // operations
	Messages   int
}

// Result is what became of a run.
type Result struct {
	End   ib.Time   // of the last rank
	Ranks []ib.Time // each one's
	// Messages are those of the ranks, one rank after the other, each in the order in which it began with them.
	Messages []play.Record
	// Whole is false if somebody ended the run before its end.
	Whole bool
}

// StuckError is a schedule that does not come to its end.
type StuckError struct {
	At   ib.Time
	What string
}

func (e *StuckError) Error() string { return fmt.Sprintf("deadlock at %v: %s", e.At, e.What) }

// Run runs a schedule. If ctx or the watch ends it, what there is by then is returned with the error.
func Run(ctx context.Context, s *job.Schedule, m play.Model, net Network, w Watch) (*Result, error) {
	r := &running{ctx: ctx, w: w, stage: stage{p: play.New(s, m), net: net}}
	if len(s.Groups) > 0 {
		if err := net.SetGroups(s.Groups); err != nil {
			return r.result(), err
		}
	}
	if r.w.Every == 0 {
		r.w.Every = 4096
	}
	n, err := divisible(s, m, net)
	switch {
	case err != nil:
	case n != nil && n.f.opt.Cores > 1:
		err = r.divided(n)
	case n != nil:
		err = r.undivided(n)
	default:
		err = r.alone()
	}
	if r.w.Sample != nil {
		if r.p.Done() {
			r.now = r.end()
		}
		if r.now > r.sampled {
			r.w.Sample(r.now)
		}
	}
	if r.w.Look != nil && err == nil {
		err = r.w.Look(r.progress())
	}
	return r.result(), err
}

// stage is ranks, and the network that they send by.
type stage struct {
	p   *play.Player
	net Network
	now ib.Time
}

// send gives the network what leaves now.
func (s *stage) send() error {
	for m, ok := s.p.Poll(); ok; m, ok = s.p.Poll() {
		if err := s.net.Send(s.now, m); err != nil {
			return err
		}
	}
	return nil
}

// turn goes on until something has happened, and reports whether nothing is left to happen by then. What ranks have to
// do at a moment comes after all that the network does by then, so that the order is the same for each rank whoever
// else there is.
func (s *stage) turn(until ib.Time) (still bool, err error) {
	if s.now, err = s.net.Advance(min(until, s.p.NextDeadline())); err != nil {
		return true, err
	}
	came := false
	for id, sent, ok := s.net.Poll(); ok; id, sent, ok = s.net.Poll() {
		came = true
		if sent {
			s.p.HandleSent(s.now, id)
		} else {
			s.p.HandleArrival(s.now, id)
		}
	}
	if !came && s.p.NextDeadline() <= s.now {
		s.p.HandleTimeout(s.now)
		came = true
	}
	return !came, nil
}

// running is a run, with all its ranks, and who looks on.
type running struct {
	stage
	ctx     context.Context
	w       Watch
	sampled ib.Time
}

// alone runs all of it on one processor.
func (r *running) alone() error {
	for turn := 1; !r.p.Done(); turn++ {
		if err := r.send(); err != nil {
			return err
		}
		if r.p.NextDeadline() == ib.Never {
			if r.net.Idle() {
				return &StuckError{At: r.now, What: r.p.Stuck()}
			}
			if err := r.net.Stuck(); err != nil {
				return err
			}
		}
		still, err := r.turn(r.sampleAt())
		if err != nil {
			return err
		}
		if still && r.now >= r.sampleAt() {
			r.sample(r.now)
		}
		if turn%r.w.Every == 0 {
			if err := r.look(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sampleAt is when somebody wants to look at the network next.
func (r *running) sampleAt() ib.Time {
	if r.w.Sample == nil {
		return ib.Never
	}
	return r.sampled + r.w.Interval()
}

func (r *running) sample(at ib.Time) {
	r.sampled = at
	r.w.Sample(at)
}

// look tells how far the run has come, and asks whether it is to go on.
func (r *running) look() error {
	if err := r.ctx.Err(); err != nil || r.w.Look == nil {
		return err
	}
	return r.w.Look(r.progress())
}

func (r *running) progress() Progress {
	ended, all := r.p.Progress()
	return Progress{Now: r.now, Ended: ended, All: all, Messages: r.p.Messages()}
}

// end is when the last rank ends, as far as it has come.
func (r *running) end() (end ib.Time) {
	for i := range r.p.Ranks() {
		end = max(end, r.p.End(i))
	}
	return end
}

func (r *running) result() *Result {
	res := &Result{End: r.end(), Ranks: make([]ib.Time, r.p.Ranks()), Messages: r.p.Records(), Whole: r.p.Done()}
	for i := range res.Ranks {
		res.Ranks[i] = r.p.End(i)
	}
	return res
}
