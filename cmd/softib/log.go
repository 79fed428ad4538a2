package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"softib/operate/control"
)

// logKept is how many lines a fabric remembers.
const logKept = 10_000

// logbook is the log of a fabric: what is written to it goes on to the log file or the terminal, and the last lines
// stay for softib log.
type logbook struct {
	to io.Writer

	mu    sync.Mutex
	lines []string
	first int           // number of lines[0]; those before are forgotten
	more  chan struct{} // closed when a line comes
}

func newLogbook(to io.Writer) *logbook { return &logbook{to: to, more: make(chan struct{})} }

// Write takes whole lines.
func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	for line := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n") {
		l.lines = append(l.lines, line)
	}
	if over := len(l.lines) - logKept; over > logKept/4 {
		l.lines = append([]string(nil), l.lines[over:]...)
		l.first += over
	}
	close(l.more)
	l.more = make(chan struct{})
	l.mu.Unlock()
	return l.to.Write(b)
}

// tail is the number of the line from which on the last n are there.
func (l *logbook) tail(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first + max(len(l.lines)-n, 0)
}

// from gives the lines from number at on, the number after them, and what is closed when there are more.
func (l *logbook) from(at int) (lines []string, next int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at = max(at, l.first)
	next = l.first + len(l.lines)
	return append(lines, l.lines[min(at, next)-l.first:]...), next, l.more
}

// heldLog keeps lines back until it is released.
type heldLog struct {
	to io.Writer

	mu   sync.Mutex
	held []byte
	open bool
}

func (l *heldLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		return l.to.Write(b)
	}
	l.held = append(l.held, b...)
	return len(b), nil
}

// release lets lines through from now on, and shows or drops those that were kept back; softib log has them all.
func (l *heldLog) release(show bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if show && len(l.held) > 0 {
		_, _ = l.to.Write(l.held)
	}
	l.held, l.open = nil, true
}

// logRequest asks for the last lines of a fabric's log, and with Follow for those that come.
type logRequest struct {
	Lines  int  `json:"lines"`
	Follow bool `json:"follow,omitempty"`
}

func newLog() *cobra.Command {
	var name string
	var asJSON bool
	r := logRequest{Lines: 20}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show the log of a running fabric's subnet manager",
		Long: `Shows what the subnet manager of a running fabric has to say: one line for each
event, with the time, what it is about, what changed and why.

  state      the manager's own state among managers
  sweep      the subnet was swept: why, what there is, how long it took
  topology   nodes and links that came or went
  routing    engines that refused, and why
  trap       what a node reported
  sa         groups and services of subnet administration
  policy     partitions, quality of service, keys
  problem    what does not work as it should`,
		Example: `  softib log
  softib log -n 100
  softib log -f --json
  softib log -f | grep -e topology -e problem`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.Lines < 0 {
				return usage(cmd, fmt.Errorf("-n %d: want 0 or more lines", r.Lines))
			}
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			some := false
			line := logLines(cmd.OutOrStdout(), asJSON)
			err = askFabric(cmd.Context(), p, opLog, r, func(text string) error {
				some = true
				return line(text)
			})
			if cmd.Context().Err() != nil && r.Follow {
				return nil // Ctrl-C is how following ends
			}
			if err == nil && !some && r.Lines > 0 {
				newTerminal(cmd.ErrOrStderr()).say("fabric %s has no log: no subnet manager of its own has run", name)
			}
			return err
		},
	}
	cmd.Flags().IntVarP(&r.Lines, "lines", "n", r.Lines, "show the last `N` lines")
	cmd.Flags().BoolVarP(&r.Follow, "follow", "f", false, "go on with the lines that come, until Ctrl-C")
	nameFlag(cmd, &name)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

// showLog answers a client that reads the log.
func (s *server) showLog(ctx context.Context, q logRequest, r *control.Reply[string]) error {
	if q.Lines < 0 {
		return fmt.Errorf("the request is for %d lines: want 0 or more", q.Lines)
	}
	ctx, cancel := r.Heard(ctx)
	defer cancel()
	for at := s.f.log.tail(q.Lines); ; {
		lines, next, more := s.f.log.from(at)
		at = next
		for _, l := range lines {
			if err := r.Say(l); err != nil {
				return err
			}
		}
		if !q.Follow {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}
