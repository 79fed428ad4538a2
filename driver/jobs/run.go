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
	// Messages are in the order in which they were sent.
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
	p := play.New(s, m)
	if len(s.Groups) > 0 {
		if err := net.SetGroups(s.Groups); err != nil {
			return result(s, p), err
		}
	}
	every := w.Every
	if every == 0 {
		every = 4096
	}
	now, sampled := ib.Time(0), ib.Time(0)
	var err error
	for turn := 1; !p.Done() && err == nil; turn++ {
		for m, ok := p.Poll(); ok && err == nil; m, ok = p.Poll() {
			err = net.Send(now, m)
		}
		if err != nil {
			break
		}
		until := p.NextDeadline()
		if until == ib.Never && net.Idle() {
			err = &StuckError{At: now, What: p.Stuck()}
			break
		}
		if w.Sample != nil {
			until = min(until, sampled+w.Interval())
		}
		if now, err = net.Advance(until); err != nil {
			break
		}
		for id, sent, ok := net.Poll(); ok; id, sent, ok = net.Poll() {
			if sent {
				p.HandleSent(now, id)
			} else {
				p.HandleArrival(now, id)
			}
		}
		p.HandleTimeout(now)
		if w.Sample != nil && now >= sampled+w.Interval() {
			sampled = now
			w.Sample(now)
		}
		if turn%every == 0 {
			err = ctx.Err()
			if err == nil && w.Look != nil {
				err = w.Look(progress(p, now))
			}
		}
	}
	if w.Sample != nil && now > sampled {
		w.Sample(now)
	}
	if w.Look != nil && err == nil {
		err = w.Look(progress(p, now))
	}
	return result(s, p), err
}

func progress(p *play.Player, now ib.Time) Progress {
	ended, all := p.Progress()
	return Progress{Now: now, Ended: ended, All: all, Messages: p.Messages()}
}

func result(s *job.Schedule, p *play.Player) *Result {
	r := &Result{Ranks: make([]ib.Time, len(s.Ranks)), Messages: make([]play.Record, p.Messages()),
		Whole: p.Done()}
	for i := range r.Ranks {
		r.Ranks[i] = p.End(i)
		r.End = max(r.End, r.Ranks[i])
	}
	for i := range r.Messages {
		r.Messages[i] = p.Record(i)
	}
	return r
}
