package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// report is one line of what a starting fabric tells the process that started it,
// as JSON, one object a line. The last one has Up or Error set.
type report struct {
	Say   string `json:"say,omitempty"`
	What  string `json:"what,omitempty"` // progress: Done of Total, or seconds if Total is 0
	Done  int    `json:"done,omitempty"`
	Total int    `json:"total,omitempty"`
	Up    bool   `json:"up,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
	Next  string `json:"next,omitempty"`
}

// reporter is where a starting fabric tells how far it is: the terminal, or
// the process that started it in the background.
type reporter struct {
	t    *terminal
	bar  *progress
	pipe *json.Encoder
}

func toTerminal(t *terminal) *reporter { return &reporter{t: t} }
func toPipe(w io.Writer) *reporter     { return &reporter{pipe: json.NewEncoder(w)} }

// show passes a report on. A pipe whose reader is gone loses it: there is nobody
// left to tell.
func (r *reporter) show(p report) {
	if r.pipe != nil {
		_ = r.pipe.Encode(p)
		return
	}
	if p.What != "" {
		if r.bar == nil {
			r.bar = r.t.progress(p.What)
		}
		r.bar.at(p.Done, p.Total)
		return
	}
	if r.bar != nil {
		r.bar.end()
		r.bar = nil
	}
	if p.Say != "" {
		r.t.say("%s", p.Say)
	}
}

func (r *reporter) say(format string, v ...any) { r.show(report{Say: fmt.Sprintf(format, v...)}) }

// during shows that something goes on while f runs.
func (r *reporter) during(what string, f func() error) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		started := time.Now()
		tick := time.NewTicker(ttyEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.progress(what, int(time.Since(started).Seconds()), 0)
			case <-stop:
				return
			}
		}
	})
	err := f()
	close(stop)
	wg.Wait()
	r.show(report{}) // wipes the line
	return err
}

func (r *reporter) progress(what string, done, total int) {
	r.show(report{What: what, Done: done, Total: total})
}
