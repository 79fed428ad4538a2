package surveyrun

import (
	"context"
	"fmt"
	"time"

	"softib/node/madrpc"
	"softib/proto/mad"
	"softib/subnet/survey"
)

// Runner runs surveys at one port, one after the other.
type Runner struct {
	// Progress is told now and then how far a survey is; nil for nobody.
	Progress func(survey.Progress)

	t      madrpc.Transport
	agents map[mad.Class]madrpc.AgentID
}

// classes are what surveys ask, and how that is registered: only to ask.
var classes = []madrpc.Registration{
	{Class: mad.ClassSMDirect, ClassVersion: 1},
	{Class: mad.ClassPerf, ClassVersion: 1},
	{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true},
}

// New registers at a port, under a name. The transport stays the caller's to close.
func New(t madrpc.Transport, name string) (*Runner, error) {
	r := &Runner{t: t, agents: map[mad.Class]madrpc.AgentID{}}
	for _, c := range classes {
		c.Name = name
		id, err := t.Register(c)
		if err != nil {
			return nil, fmt.Errorf("%s: class %s: %w", name, c.Class, err)
		}
		r.agents[c.Class] = id
	}
	return r, nil
}

// progressEvery is how often progress is told, and how soon a port that is gone is noticed.
const progressEvery = 100 * time.Millisecond

// Run runs an engine to its end.
func (r *Runner) Run(ctx context.Context, e *survey.Engine) (*survey.Survey, error) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	failing, _ := r.t.(interface{ Err() error })
	take := func(d madrpc.Delivery) {
		switch d.Kind {
		case madrpc.Response:
			e.HandleReply(r.t.Now(), d.Cookie, d.Data)
		case madrpc.Unsolicited:
		default:
			e.HandleReply(r.t.Now(), d.Cookie, nil)
		}
	}
	r.t.Poll(func(madrpc.Delivery) {}) // what one that was broken off has left
	told := time.Now()
	var s survey.Send
	for !e.Done() {
		now := r.t.Now()
		moved := false
		for e.PollSend(now, &s) {
			moved = true
			m := madrpc.Message{Env: s.Env, Data: s.Data, Timeout: s.Timeout, Retries: s.Retries, Cookie: s.Cookie}
			if err := r.t.Queue(now, r.agents[mad.View(s.Data).Class()], m); err != nil {
				e.HandleReply(now, s.Cookie, nil)
			}
		}
		if r.t.Poll(take) {
			moved = true
		}
		if r.Progress != nil && time.Since(told) >= progressEvery {
			told = time.Now()
			r.Progress(e.Progress())
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if failing != nil && failing.Err() != nil {
			return nil, fmt.Errorf("the port is gone: %w", failing.Err())
		}
		if moved || e.Done() {
			continue
		}
		select {
		case <-r.t.Bell():
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return e.Survey(), nil
}
