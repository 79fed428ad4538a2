package main

import (
	"fmt"
	"strings"

	"softib/doctor"
)

// findingsShown is how many findings of one section are printed.
const findingsShown = 10

// printDoctor shows a report to a person.
func printDoctor(t *terminal, r *doctor.Report) {
	f := &r.Fabric
	watched := "counters since their last reset"
	if r.IntervalSec > 0 {
		watched = fmt.Sprintf("counters over %.3g s", r.IntervalSec)
	}
	nodes := []string{numbered(f.Hosts, "host", "hosts"), numbered(f.Switches, "switch", "switches")}
	if f.Routers > 0 {
		nodes = append(nodes, numbered(f.Routers, "router", "routers"))
	}
	t.say("%s, %s, seen from %s: %s, %s", strings.Join(nodes, ", "), numbered(f.Cables, "cable", "cables"), f.From, numbered(f.Questions, "question", "questions"), watched)
	t.say("")
	for i := range r.Sections {
		printSection(t, &r.Sections[i])
	}
	t.say("")
	if r.Healthy() {
		t.say("%s%s", t.green("the fabric is well"), notes(r))
		return
	}
	t.say("%s%s", t.red(tally(r)), notes(r))
}

func notes(r *doctor.Report) string {
	if n := r.Count(doctor.Note); n > 0 {
		return ", " + numbered(n, "note", "notes")
	}
	return ""
}

// tally counts what is wrong.
func tally(r *doctor.Report) string {
	var words []string
	if n := r.Count(doctor.Fail); n > 0 {
		words = append(words, numbered(n, "failure", "failures"))
	}
	if n := r.Count(doctor.Warn); n > 0 {
		words = append(words, numbered(n, "warning", "warnings"))
	}
	return strings.Join(words, ", ")
}

// printSection shows one check: a line, and its findings with what to do.
func printSection(t *terminal, s *doctor.Section) {
	looked := s.Looked
	if s.Severity == doctor.Skipped {
		looked = s.Why
	}
	t.say("%s  %-11s %-58s %s", severityWord(t, s.Severity), s.Check, s.Title, looked)
	for i := range s.Findings {
		if i == findingsShown {
			break
		}
		f := &s.Findings[i]
		t.say("        %s %s", severityWord(t, f.Severity), f.Measured)
		if f.Threshold != "" {
			t.say("                want  %s", f.Threshold)
		}
		t.say("                next  %s", f.Next)
	}
	if rest := len(s.Findings) + s.More - findingsShown; rest > 0 {
		t.say("        and %s: softib doctor --json", numbered(rest, "more finding", "more findings"))
	}
}

// severityWord is a severity in its colour, 7 characters wide.
func severityWord(t *terminal, s doctor.Severity) string {
	w := fmt.Sprintf("%-7s", s)
	switch s {
	case doctor.OK:
		return t.green(w)
	case doctor.Fail:
		return t.red(strings.ToUpper(w))
	case doctor.Warn:
		return t.paint("33", strings.ToUpper(w))
	}
	return w
}
