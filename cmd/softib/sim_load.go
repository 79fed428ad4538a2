package main

import (
	"fmt"
	"strconv"
	"strings"

	"softib/internal/files"
	"softib/job"
	"softib/job/goal"
	"softib/job/load"
	"softib/job/train"
	"softib/operate/experiment"
)

// trainHelp lists what a file with a training step may say.
func trainHelp() string {
	var b strings.Builder
	b.WriteString("\nor a file with a training step, lines of key = value. FILE:key=value,… sets some otherwise:\n\n")
	for _, k := range train.Keys() {
		fmt.Fprintf(&b, "  %-18s %s", k.Name, k.Help)
		if k.Default != "" {
			fmt.Fprintf(&b, " (%s)", k.Default)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// jobs has what each --load says.
func (o *simOptions) jobs(s *experiment.Spec) error {
	s.Share, s.Alone = o.share, o.alone
	for _, word := range o.loads {
		p, err := part(word)
		if err != nil {
			return err
		}
		if len(o.loads) == 1 && o.ranks != 0 {
			p.Ranks = o.ranks
		}
		s.Jobs = append(s.Jobs, p)
	}
	return nil
}

// part is one job: a file, or a pattern, which may end in the number of its hosts.
func part(word string) (experiment.Part, error) {
	p := experiment.Part{Name: word}
	text, err := files.ReadText(word, goalMax)
	name, sets := word, ""
	if err != nil {
		// FILE:key=value,…
		if name, sets, _ = strings.Cut(word, ":"); sets != "" {
			text, err = files.ReadText(name, goalMax)
		}
	}
	switch {
	case err == nil && train.Is(text):
		return trainPart(p, name, sets, text)
	case err == nil && sets == "":
		return goalPart(p, name, text)
	}
	if pattern, hosts, ok := strings.Cut(word, "@"); ok {
		n, err := strconv.ParseUint(hosts, 10, 31)
		if err != nil || n == 0 {
			return p, next(fmt.Errorf("%w: %q: want a number of hosts behind the @", load.ErrLoad, word),
				"softib sim --help lists patterns and options")
		}
		word, p.Ranks = pattern, int(n)
	}
	l, err := load.Parse(word)
	if err != nil {
		return p, next(err, "name a pattern or a file with a schedule: softib sim --help")
	}
	p.Schedule, p.Fit, p.Says = l.Schedule, l.Fit, l.Says
	return p, nil
}

func goalPart(p experiment.Part, name string, text []byte) (experiment.Part, error) {
	sched, err := goal.Parse(name, text)
	if err != nil {
		if strings.Contains(err.Error(), "; next: ") {
			return p, simError(err)
		}
		return p, next(err, "mend the file, or name a pattern: softib sim --help")
	}
	p.Ranks = len(sched.Ranks)
	p.Schedule = func(int, uint64) (*job.Schedule, error) { return sched, nil }
	return p, nil
}

func trainPart(p experiment.Part, name, sets string, text []byte) (experiment.Part, error) {
	m, err := train.Parse(name, text)
	if err != nil {
		return p, simError(err)
	}
	for set := range strings.SplitSeq(sets, ",") {
		if set == "" {
			continue
		}
		key, value, _ := strings.Cut(set, "=")
		if err := m.Set(key, value); err != nil {
			return p, next(fmt.Errorf("%w: %s: %w", train.ErrTrain, p.Name, err), "softib sim --help lists the keys")
		}
	}
	if err := m.Check(); err != nil {
		return p, next(fmt.Errorf("%w: %s: %w", train.ErrTrain, p.Name, err), "say it otherwise behind the file's name")
	}
	p.Ranks, p.Says = m.Ranks(), m.Says
	p.Schedule = func(int, uint64) (*job.Schedule, error) { return m.Schedule() }
	return p, nil
}
