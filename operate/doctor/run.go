package doctor

import (
	"context"
	"fmt"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/survey"
)

// RunOptions say how to look at a fabric.
type RunOptions struct {
	// Interval is how long counters count between two looks; 0: one look, and counters since their last reset are what
	// there is.
	Interval time.Duration
	// CountersOnly leaves tables, partitions and managers alone.
	CountersOnly bool
	// Window, MKey and Timeout are the survey's.
	Window  int
	MKey    uint64
	Timeout ib.Time
	// Progress is told how far it is, now and then.
	Progress func(survey.Progress)
}

// Surveys is what Judge judges.
type Surveys struct {
	Before, After *survey.Survey
}

// classes are what a survey sends, and how it registers for that: only to ask.
var classes = []madrpc.Registration{
	{Class: mad.ClassSMDirect, ClassVersion: 1, Name: "softib doctor"},
	{Class: mad.ClassPerf, ClassVersion: 1, Name: "softib doctor"},
	{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true, Name: "softib doctor"},
}

// Run looks at a fabric through a port. The transport stays the caller's to close.
func Run(ctx context.Context, t madrpc.Transport, o RunOptions) (Surveys, error) {
	d := driver{t: t, agents: map[mad.Class]madrpc.AgentID{}, progress: o.Progress}
	for _, c := range classes {
		id, err := t.Register(c)
		if err != nil {
			return Surveys{}, fmt.Errorf("doctor: class %s: %w", c.Class, err)
		}
		d.agents[c.Class] = id
	}
	cfg := survey.Config{Parts: survey.Counters, Window: o.Window, MKey: o.MKey, Timeout: o.Timeout}
	if !o.CountersOnly {
		cfg.Parts |= survey.Tables | survey.Partitions | survey.Managers
	}
	var s Surveys
	var err error
	if s.Before, err = d.drive(ctx, survey.New(cfg)); err != nil {
		return s, err
	}
	if len(s.Before.Nodes) == 0 {
		return s, ErrNoAnswer
	}
	if !o.CountersOnly {
		cfg.Parts, cfg.LanesMax = survey.Lanes, lanesAnyway
		if wantsLanes(s.Before) {
			cfg.Parts, cfg.LanesMax = survey.Lanes|survey.Levels, 0
		}
		if s.Before, err = d.drive(ctx, survey.Again(s.Before, cfg)); err != nil {
			return s, err
		}
	}
	if o.Interval <= 0 {
		return s, nil
	}
	if err = d.wait(ctx, counted(s.Before)+ib.Time(o.Interval)*ib.Nanosecond); err != nil {
		return s, err
	}
	cfg.Parts = survey.Counters
	s.After, err = d.drive(ctx, survey.Again(s.Before, cfg))
	return s, err
}

// lanesAnyway is up to how many questions lanes are read for even if the tables are free of deadlock without them.
const lanesAnyway = 20_000

// counted is when the last counter was read.
func counted(s *survey.Survey) (at ib.Time) {
	for _, ports := range s.Readings {
		for i := range ports {
			at = max(at, ports[i].At)
		}
	}
	return at
}

// driver runs surveys on a transport.
type driver struct {
	t        madrpc.Transport
	agents   map[mad.Class]madrpc.AgentID
	progress func(survey.Progress)
}

// progressEvery is how often progress is told.
const progressEvery = 100 * time.Millisecond

// drive runs an engine to its end.
func (d *driver) drive(ctx context.Context, e *survey.Engine) (*survey.Survey, error) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	failing, _ := d.t.(interface{ Err() error })
	told := time.Now()
	take := func(x madrpc.Delivery) {
		switch x.Kind {
		case madrpc.Response:
			e.HandleReply(d.t.Now(), x.Cookie, x.Data)
		case madrpc.Unsolicited:
		default:
			e.HandleReply(d.t.Now(), x.Cookie, nil)
		}
	}
	var s survey.Send
	for !e.Done() {
		now := d.t.Now()
		moved := false
		for e.PollSend(now, &s) {
			moved = true
			m := madrpc.Message{Env: s.Env, Data: s.Data, Timeout: s.Timeout, Retries: s.Retries, Cookie: s.Cookie}
			if err := d.t.Queue(now, d.agents[mad.View(s.Data).Class()], m); err != nil {
				e.HandleReply(now, s.Cookie, nil)
			}
		}
		if d.t.Poll(take) {
			moved = true
		}
		if d.progress != nil && time.Since(told) >= progressEvery {
			told = time.Now()
			d.progress(e.Progress())
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if moved || e.Done() {
			continue
		}
		if failing != nil && failing.Err() != nil {
			return nil, fmt.Errorf("doctor: the port is gone: %w", failing.Err())
		}
		select {
		case <-d.t.Bell():
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return e.Survey(), nil
}

// wait waits until the transport's clock shows a time.
func (d *driver) wait(ctx context.Context, until ib.Time) error {
	left := time.Duration((until - d.t.Now()) / ib.Nanosecond)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
