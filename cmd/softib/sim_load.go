package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"softib/internal/files"
	"softib/job"
	"softib/job/chakra"
	"softib/job/goal"
	"softib/job/load"
	"softib/job/train"
	"softib/operate/experiment"
)

// trainHelp lists what a file with a training step may say.
func trainHelp() string {
	var b strings.Builder
	b.WriteString("\nor the name of a Chakra trace, the part before .0.et, .1.et and so on; " +
		"NAME:gpu=400T,algorithm=ring\nsays how fast GPUs are and how they all-reduce;\n")
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
	text, err := files.Read(word, goalMax)
	name, sets := word, ""
	if err != nil {
		// FILE:key=value,…
		if name, sets, _ = strings.Cut(word, ":"); sets != "" {
			text, err = files.Read(name, goalMax)
		}
	}
	if len(traces(name)) > 0 {
		return chakraPart(p, name, sets)
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

// traces are the files of a Chakra trace by rank, NAME.0.et and so on; nil if there are none.
func traces(name string) (list []chakra.File) {
	found, err := filepath.Glob(regexp.MustCompile(`[\[*?\\]`).ReplaceAllString(name, "\\$0") + ".*.et")
	if err != nil {
		return nil
	}
	ranks := 0
	for _, f := range found {
		if n, err := strconv.Atoi(strings.TrimSuffix(f[len(name)+1:], ".et")); err == nil && n < 1<<17 {
			ranks = max(ranks, n+1)
		}
	}
	for i := range ranks {
		list = append(list, chakra.File{Name: fmt.Sprintf("%s.%d.et", name, i)})
	}
	return list
}

func chakraPart(p experiment.Part, name, sets string) (experiment.Part, error) {
	list := traces(name)
	for i := range list {
		text, err := files.Read(list[i].Name, goalMax)
		if err != nil {
			return p, next(fmt.Errorf("%w: %w", chakra.ErrTrace, err), "there has to be a file for each rank, 0 to %d",
				len(list)-1)
		}
		list[i].Data = text
	}
	var opt chakra.Options
	for set := range strings.SplitSeq(sets, ",") {
		key, value, _ := strings.Cut(set, "=")
		switch {
		case key == "gpu":
			v, err := train.Amount(value)
			if err != nil {
				return p, next(fmt.Errorf("%w: gpu=%s: %w", chakra.ErrTrace, value, err), "say gpu=400T")
			}
			opt.GPU = v
		case key == "algorithm":
			opt.Algorithm = value
		case set != "":
			return p, next(fmt.Errorf("%w: %s: %q", chakra.ErrTrace, name, set), "say gpu= or algorithm=")
		}
	}
	sched, err := chakra.Schedule(list, opt)
	if err != nil {
		return p, simError(err)
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
