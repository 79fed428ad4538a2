package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"softib/operate/status"
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
	pipe *json.Encoder

	mu    sync.Mutex // what goes on may have something to say
	bar   *progress
	steps []status.Step
}

func toTerminal(t *terminal) *reporter { return &reporter{t: t} }
func toPipe(w io.Writer) *reporter     { return &reporter{pipe: json.NewEncoder(w)} }

// show passes a report on. A pipe whose reader is gone loses it: there is nobody
// left to tell.
func (r *reporter) show(p report) {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// during shows that something goes on while f runs, and notes how long it took.
func (r *reporter) during(what string, f func() error) error {
	return r.timed(what, func() error { return r.ticking(what, f) })
}

// timed notes how long f took: on the clock, and of the processors, which also says how busy the machine was with
// others.
func (r *reporter) timed(what string, f func() error) error {
	began, worked := time.Now(), processorTime()
	err := f()
	r.steps = append(r.steps, status.Step{What: what, TookSec: time.Since(began).Seconds(),
		CPUSec: (processorTime() - worked).Seconds()})
	return err
}

// processorTime is what this process has had of all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stepsText says where the time of a start went, for one that took long enough to ask; nothing for others.
func stepsText(steps []status.Step) string {
	var all status.Step
	for _, s := range steps {
		all.TookSec += s.TookSec
		all.CPUSec += s.CPUSec
	}
	if all.TookSec < progressAfter.Seconds() {
		return ""
	}
	parts := []string{fmt.Sprintf("took %s, %s of the processors", seconds(all.TookSec), seconds(all.CPUSec))}
	for _, s := range steps {
		if s.TookSec >= all.TookSec/100 {
			parts = append(parts, fmt.Sprintf("%s %s (%s)", s.What, seconds(s.TookSec), seconds(s.CPUSec)))
		}
	}
	return parts[0] + ": " + strings.Join(parts[1:], ", ")
}

// ticking shows that something goes on while f runs.
func (r *reporter) ticking(what string, f func() error) error {
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
