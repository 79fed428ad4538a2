package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// terminal is where a command prints, and what may be printed there.
type terminal struct {
	w     io.Writer
	isTTY bool
	color bool
}

func newTerminal(w io.Writer) *terminal {
	t := &terminal{w: w}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			t.isTTY = os.Getenv("TERM") != "dumb"
		}
	}
	t.color = t.isTTY && os.Getenv("NO_COLOR") == ""
	return t
}

// say prints a line.
func (t *terminal) say(format string, v ...any) {
	fmt.Fprintf(t.w, format+"\n", v...)
}

// Colours, where there may be any.
func (t *terminal) bold(s string) string  { return t.paint("1", s) }
func (t *terminal) red(s string) string   { return t.paint("31", s) }
func (t *terminal) green(s string) string { return t.paint("32", s) }
func (t *terminal) paint(code, s string) string {
	if !t.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

const (
	// progressAfter is how long something runs before its progress shows.
	progressAfter = time.Second
	ttyEvery      = 100 * time.Millisecond
	lineEvery     = 2 * time.Second
	barWidth      = 30
)

// progress shows how far something that takes a while has come: a bar that
// moves on a terminal, a line now and then elsewhere. What is over soon shows nothing.
type progress struct {
	t       *terminal
	what    string
	started time.Time
	shown   time.Time
	drawn   bool
}

func (t *terminal) progress(what string) *progress {
	return &progress{t: t, what: what, started: time.Now()}
}

// at shows that done of total are done; without a total, that done seconds have passed.
func (p *progress) at(done, total int) {
	if time.Since(p.started) < progressAfter {
		return
	}
	switch {
	case total <= 0:
		p.show("%s: %d s", p.what, done)
	case !p.t.isTTY:
		p.show("%s: %d of %d", p.what, done, total)
	default:
		full := min(barWidth*done/total, barWidth)
		p.show("%s [%s%s] %d of %d", p.what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), done,
			total)
	}
}

// show is the bar, or the line, unless there was one just now.
func (p *progress) show(format string, v ...any) {
	now := time.Now()
	every := lineEvery
	if p.t.isTTY {
		every = ttyEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	if !p.t.isTTY {
		p.t.say(format, v...)
		return
	}
	fmt.Fprintf(p.t.w, "\r\x1b[K"+format, v...)
	p.drawn = true
}

// end wipes the bar away.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.t.w, "\r\x1b[K")
		p.drawn = false
	}
}

// waitingAfter is how long a fabric may say nothing before that is worth a word.
const waitingAfter = 3 * time.Second

// showWaiting shows that a fabric says nothing, for as long as it does.
func showWaiting(t *terminal) func(silent time.Duration) {
	var mu sync.Mutex
	var p *progress
	return func(silent time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case silent == 0 && p != nil:
			p.end()
			p = nil
		case p != nil:
			p.at(int(silent.Seconds()), 0)
		case silent >= waitingAfter:
			p = t.progress("the fabric does not answer")
		}
	}
}

// showDoing shows what a fabric says that it does, until it is done.
func showDoing(t *terminal) func(what string) {
	var mu sync.Mutex
	p := t.progress("")
	return func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if what == "" {
			p.end()
			return
		}
		p.show("%s", what)
	}
}
