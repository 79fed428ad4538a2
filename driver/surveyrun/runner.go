package surveyrun

import (
	"context"
	"slices"
	"time"

	"softib/driver/madloop"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/survey"
)

// Runner runs surveys at one port, one after the other.
type Runner struct {
	// Progress is told now and then how far a survey is; nil for nobody.
	Progress func(survey.Progress)

	t      madrpc.Transport
	agents madrpc.Agents
}

// classes are what surveys ask, and how that is registered: only to ask.
var classes = []madrpc.Registration{
	{Class: mad.ClassSMDirect, ClassVersion: 1},
	{Class: mad.ClassPerf, ClassVersion: 1},
	{Class: mad.ClassSA, ClassVersion: mad.SAVersion, RMPP: true},
}

// New registers at a port, under a name. The transport stays the caller's to close.
func New(t madrpc.Transport, name string) (*Runner, error) {
	list := slices.Clone(classes)
	for i := range list {
		list[i].Name = name
	}
	agents, err := madrpc.RegisterAll(list, t.Register)
	if err != nil {
		return nil, err
	}
	return &Runner{t: t, agents: agents}, nil
}

// progressEvery is how often progress is told, and how soon a port that is gone is noticed.
const progressEvery = 100 * time.Millisecond

// Run runs an engine to its end.
func (r *Runner) Run(ctx context.Context, e *survey.Engine) (*survey.Survey, error) {
	r.t.Poll(func(madrpc.Delivery) {}) // what one that was broken off has left
	told := time.Now()
	var s survey.Send
	l := madloop.Loop{Port: r.t, Every: progressEvery, Done: e.Done}
	l.Send = func(now ib.Time) (moved bool) {
		for e.PollSend(now, &s) {
			moved = true
			if err := r.t.Queue(now, r.agents.Of(&s), s); err != nil {
				e.HandleReply(now, s.Cookie, nil)
			}
		}
		if r.Progress != nil && time.Since(told) >= progressEvery {
			told = time.Now()
			r.Progress(e.Progress())
		}
		return moved
	}
	l.Take = func(d madrpc.Delivery) {
		switch d.Kind {
		case madrpc.Response:
			e.HandleReply(r.t.Now(), d.Cookie, d.Data)
		case madrpc.Unsolicited:
		default:
			e.HandleReply(r.t.Now(), d.Cookie, nil)
		}
	}
	if err := l.Run(ctx); err != nil {
		return nil, err
	}
	return e.Survey(), nil
}
