package main

import (
	"fmt"
	"strings"

	"softib/operate/doctor"
)

// findingsShown is how many findings of one section are printed.
const findingsShown = 10

// printDoctor shows a report to a person.
func printDoctor(t *terminal, r *doctor.Report) {
	f := &r.Fabric
	watched := "as they stand"
	if r.IntervalSec > 0 {
		watched = fmt.Sprintf("over %.2g s", r.IntervalSec)
	}
	nodes := []string{numbered(f.Hosts, "host", "hosts")}
	if f.ServiceNodes > 0 {
		nodes = append(nodes, numbered(f.ServiceNodes, "aggregation node", "aggregation nodes"))
	}
	nodes = append(nodes, numbered(f.Switches, "switch", "switches"))
	if f.Routers > 0 {
		nodes = append(nodes, numbered(f.Routers, "router", "routers"))
	}
	t.say("%s, %s, seen from %s", strings.Join(nodes, ", "), numbered(f.Cables, "cable", "cables"), f.From)
	t.say("%s, counters %s", numbered(f.Questions, "question", "questions"), watched)
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

// Columns of a report: that of what was looked at, those of findings, and the last.
const (
	lookedColumn  = 20
	findingColumn = 8
	detailColumn  = 22
	lastColumn    = 80
)

// printSection shows one check: a line, and its findings with what to do.
func printSection(t *terminal, s *doctor.Section) {
	looked := s.Looked
	switch {
	case s.Severity == doctor.Skipped:
		looked = s.Why
	case s.Severity >= doctor.Warn:
		looked += "; should be: " + s.Title
	}
	t.block(fmt.Sprintf("%s %-11s ", severityWord(t, s.Severity), s.Check), lookedColumn, looked)
	for i := range s.Findings {
		if i == findingsShown {
			break
		}
		f := &s.Findings[i]
		t.block(strings.Repeat(" ", findingColumn)+severityWord(t, f.Severity)+" ", findingColumn+8, f.Measured)
		if f.Threshold != "" {
			t.block(strings.Repeat(" ", findingColumn+8)+"want  ", detailColumn, f.Threshold)
		}
		t.block(strings.Repeat(" ", findingColumn+8)+"next  ", detailColumn, f.Next)
	}
	if rest := len(s.Findings) + s.More - findingsShown; rest > 0 {
		t.say("%sand %s: softib doctor --json", strings.Repeat(" ", findingColumn),
			numbered(rest, "more finding", "more findings"))
	}
}

// block prints a text beside what stands to its left, from a column on.
func (t *terminal) block(left string, column int, text string) {
	for i, line := range wrapped(text, lastColumn-column) {
		if i > 0 {
			left = strings.Repeat(" ", column)
		}
		t.say("%s%s", left, line)
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
