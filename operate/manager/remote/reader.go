package remote

import (
	"context"
	"fmt"
	"time"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// run reads until ctx ends.
func (f *Fabric) run(ctx context.Context) {
	last := time.Now()
	timer := time.NewTimer(f.opts.Interval)
	defer timer.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-f.port.done:
			f.opts.Journal.Add(manager.Event{Kind: "watch", Severity: manager.Critical,
				Text: fmt.Sprintf("the fabric is watched no more: %v", f.Err())})
			return
		case <-f.wake:
			all = true
		case <-timer.C:
		}
		began := time.Now()
		all = all || f.view.Load().blind || began.Sub(last) >= f.opts.Survey-f.opts.Interval/2
		var err error
		if !all {
			all, err = f.count(ctx)
		}
		if err == nil && all {
			if err = f.survey(ctx); err == nil {
				last = began
			}
		}
		if err == nil {
			delete(f.told, "unread")
		} else if ctx.Err() == nil && f.Err() == nil {
			// What was found may make no sense while somebody moves cables. The next look is another one.
			f.once("unread", manager.Event{Kind: "watch", Severity: manager.Warning,
				Text: fmt.Sprintf("the fabric could not be looked at: %v", err)})
		}
		took := time.Since(began)
		timer.Reset(max(f.opts.Interval-took, took))
	}
}

func (f *Fabric) config(p survey.Parts) survey.Config {
	return survey.Config{Parts: p, Window: f.opts.Window, MKey: f.opts.MKey}
}

// survey looks at everything.
func (f *Fabric) survey(ctx context.Context) error {
	began := time.Now()
	s, err := f.surveys.Run(ctx, survey.New(f.config(survey.Tables|survey.Partitions|survey.Managers|survey.Counters)))
	if err != nil {
		return err
	}
	if len(s.Nodes) == 0 {
		f.once("silent", manager.Event{Kind: "watch", Severity: manager.Critical,
			Text: "the port from which this fabric is watched does not answer: what is shown is what was last seen"})
		return nil
	}
	delete(f.told, "silent")
	if f.opts.AsIs {
		takeAsIs(s)
	}
	if f.opts.Name != nil {
		s = s.Renamed(f.opts.Name)
	}
	at, news := f.shape.absorb(s)
	first := f.graph.Load() == nil
	if len(news) > 0 {
		g, err := f.shape.graph()
		if err != nil {
			return fmt.Errorf("remote: what was found makes no graph: %w", err)
		}
		f.grow()
		f.graph.Store(g)
	}
	was := f.view.Load()
	now := f.shape.look(s, at, was)
	if !now.sameAs(was) {
		now.epoch++
	}
	f.last, f.at = s, at
	f.counted(s)
	f.view.Store(now)
	for _, e := range f.shape.changes(was, now) {
		f.opts.Journal.Add(e)
	}
	if !first && len(news) > 0 {
		for i, text := range news {
			if i == eventsMax {
				text = fmt.Sprintf("and %d more nodes and cables are new", len(news)-i)
			}
			f.opts.Journal.Add(manager.Event{Kind: "topology", Text: text})
			if i == eventsMax {
				break
			}
		}
		ring(f.grown)
	}
	st := f.Stats()
	st.Surveys++
	st.SurveyTook, st.SurveyAsked, st.SurveyUnread, st.LastSurvey = time.Since(began), s.Asked, s.GapCount, time.Now()
	f.stats.Store(&st)
	f.tell()
	return nil
}

// takeAsIs makes ports of a survey that nobody else has yet capable of what they do, and no more.
func takeAsIs(s *survey.Survey) {
	for _, n := range s.Nodes {
		for p := range n.Ports {
			if x := &n.Ports[p]; x.Linked() {
				r := x.Info.Rate()
				x.Info.LinkWidthSupported = r.Width
				x.Info.SetSpeeds(r.Speed, r.Speed, r.Speed)
			}
		}
	}
}

// count reads the counters. The hint is that something is not as it was: a link went down, or somebody does not answer.
func (f *Fabric) count(ctx context.Context) (hint bool, err error) {
	began := time.Now()
	asked, gaps := f.last.Asked, f.last.GapCount
	s, err := f.surveys.Run(ctx, survey.Again(f.last, f.config(survey.Counters)))
	if err != nil {
		return false, err
	}
	st := f.Stats()
	st.Counts++
	st.CountTook, st.CountAsked, st.CountUnread = time.Since(began), s.Asked-asked, s.GapCount-gaps
	// What the next one shares with this is what was found, not what was missed: that would add up for ever.
	s.Gaps, s.GapCount, s.Asked = f.last.Gaps, gaps, asked
	f.last = s
	silent := f.silent
	hint = f.counted(s) || f.silent > silent
	st.LastCountersEnd = time.Now()
	f.stats.Store(&st)
	if !hint {
		f.tell()
	}
	return hint, nil
}

// grow makes room for the counters of new nodes.
func (f *Fabric) grow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.totals); i < len(f.shape.members); i++ {
		f.totals = append(f.totals, make([]total, len(f.shape.members[i].peers)))
	}
}

// counted adds readings up, and reports whether a link has been down meanwhile.
func (f *Fabric) counted(s *survey.Survey) (downed bool) {
	var resets, full []topo.PortRef
	silent := 0
	f.mu.Lock()
	for i := range s.Readings {
		for p := range s.Readings[i] {
			r := &s.Readings[i][p]
			ref := topo.PortRef{Node: f.at[i], Port: ib.PortNum(p)}
			if !r.Valid {
				if s.Nodes[i].Ports[p].Cabled() {
					silent++
				}
				continue
			}
			t := &f.totals[ref.Node][p]
			before, fresh := t.sum[ib.LinkDownedCounter], t.width[ib.LinkDownedCounter] == unread
			if t.add(r) {
				resets = append(resets, ref)
			}
			downed = downed || !fresh && t.sum[ib.LinkDownedCounter] > before
			if t.full() != 0 {
				full = append(full, ref)
			}
		}
	}
	f.mu.Unlock()
	f.silent = silent
	if len(resets) > 0 {
		f.opts.Journal.Add(manager.Event{Kind: "counters", Text: f.some("counters begin anew at ", resets) +
			": they were reset, or the node has restarted"})
	}
	f.clear(full)
	return downed
}

// some names ports, the first of them.
func (f *Fabric) some(what string, refs []topo.PortRef) string {
	text := what + f.shape.portName(refs[0])
	if n := len(refs) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// once writes something down that has not been said.
func (f *Fabric) once(key string, e manager.Event) {
	if !f.told[key] {
		f.told[key] = true
		f.opts.Journal.Add(e)
	}
}

// tell tells everybody that waits that counters were read: when, on average.
func (f *Fabric) tell() {
	var sum ib.Time
	n := 0
	base := f.last.Began
	for _, ports := range f.last.Readings {
		for i := range ports {
			if ports[i].Valid {
				sum += ports[i].At - base
				n++
			}
		}
	}
	at := time.Now()
	if n > 0 {
		at = at.Add(-time.Duration((f.s.Now() - base - sum/ib.Time(n)) / ib.Nanosecond))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.reads {
		select {
		case <-c: // nobody has taken the last one
		default:
		}
		c <- at
	}
}
