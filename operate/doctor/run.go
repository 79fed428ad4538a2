package doctor

import (
	"context"
	"time"

	"softib/driver/surveyrun"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/subnet"
	"softib/subnet/route"
	"softib/subnet/survey"
)

// RunOptions say how to look at a fabric.
type RunOptions struct {
	// Interval is how long counters count between two looks; 0: one look, and counters since their last reset are what
	// there is.
	Interval time.Duration
	// CountersOnly leaves tables, partitions and managers alone.
	CountersOnly bool
	// Window, MKey, Keys and Timeout are the survey's.
	Window  int
	MKey    uint64
	Keys    *subnet.Keys
	Timeout ib.Time
	// Progress is told how far it is, now and then.
	Progress func(survey.Progress)
}

// Surveys is what Judge judges.
type Surveys struct {
	Before, After *survey.Survey
	// Routes are the tables of both, judged with one lane for all packets; nil with CountersOnly.
	Routes *route.Report
}

// Run looks at a fabric through a port. The transport stays the caller's to close.
func Run(ctx context.Context, t madrpc.Transport, o RunOptions) (Surveys, error) {
	d, err := surveyrun.New(t, "softib doctor")
	if err != nil {
		return Surveys{}, err
	}
	d.Progress = o.Progress
	cfg := survey.Config{Parts: survey.Counters, Window: o.Window, MKey: o.MKey, Keys: o.Keys,
		Timeout: o.Timeout}
	if !o.CountersOnly {
		cfg.Parts |= survey.Tables | survey.Partitions | survey.Managers
	}
	var s Surveys
	if s.Before, err = d.Run(ctx, survey.New(cfg)); err != nil {
		return s, err
	}
	if len(s.Before.Nodes) == 0 {
		return s, ErrNoAnswer
	}
	if !o.CountersOnly {
		cfg.Parts, cfg.LanesMax = survey.Lanes, lanesAnyway
		// Lanes and levels decide whether the tables can deadlock where they could with one lane for all packets.
		if s.Routes = judgeTables(s.Before.Routing(false)); s.Routes.Cycle != nil {
			cfg.Parts, cfg.LanesMax = survey.Lanes|survey.Levels, 0
		}
		if s.Before, err = d.Run(ctx, survey.Again(s.Before, cfg)); err != nil {
			return s, err
		}
	}
	if o.Interval <= 0 {
		return s, nil
	}
	if err = wait(ctx, t, counted(s.Before)+ib.Time(o.Interval)*ib.Nanosecond); err != nil {
		return s, err
	}
	cfg.Parts = survey.Counters
	s.After, err = d.Run(ctx, survey.Again(s.Before, cfg))
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

// wait waits until the transport's clock shows a time.
func wait(ctx context.Context, t madrpc.Transport, until ib.Time) error {
	left := time.Duration((until - t.Now()) / ib.Nanosecond)
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
