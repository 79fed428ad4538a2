package policy

import (
	"errors"
	"fmt"
	"strings"
)

// Kinds of problems; match them with errors.Is.
var (
	ErrSyntax    = errors.New("syntax error")
	ErrUnknown   = errors.New("unknown word")
	ErrValue     = errors.New("bad value")
	ErrDuplicate = errors.New("said twice")
	ErrMissing   = errors.New("missing")
	ErrConflict  = errors.New("contradiction")
	ErrNoEffect  = errors.New("no effect")
	ErrTooMany   = errors.New("too many problems")
)

// problemsLimit is how many problems of a file are reported.
const problemsLimit = 100

// Problem is one mistake in a file, or one warning about it.
type Problem struct {
	File string
	// Line and Col count from 1.
	Line, Col int
	// Word is what stands there; empty at the end of a line or file.
	Word string
	// Kind is one of the errors above.
	Kind error
	// Want says what was expected, and what to do where that is not obvious.
	Want string
}

func (p *Problem) Error() string {
	word := "end of line"
	if p.Word != "" {
		word = fmt.Sprintf("%q", clip(p.Word))
	}
	return fmt.Sprintf("%s:%d:%d: %v: %s: %s", p.File, p.Line, p.Col, p.Kind, word, p.Want)
}

// Unwrap is the kind.
func (p *Problem) Unwrap() error { return p.Kind }

// clip keeps a message readable whatever the file holds.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// Problems are all that is wrong with a file, in the order of the file.
type Problems []*Problem

func (ps Problems) Error() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
	}
	return b.String()
}

// Unwrap gives each problem to errors.Is and errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// err is nil where there are none: a nil Problems in an error would not be nil.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// word is a piece of a file with its place.
type word struct {
	text      string
	line, col int
}

// reporter collects the problems of one file.
type reporter struct {
	file     string
	errs     Problems
	warnings Problems
}

func (r *reporter) fail(w word, kind error, format string, args ...any) {
	r.errs = r.add(r.errs, w, kind, format, args...)
}

func (r *reporter) warn(w word, kind error, format string, args ...any) {
	r.warnings = r.add(r.warnings, w, kind, format, args...)
}

// add stops at a limit: a file of the wrong kind has a problem in each line.
func (r *reporter) add(ps Problems, w word, kind error, format string, args ...any) Problems {
	switch {
	case len(ps) < problemsLimit:
		return append(ps, &Problem{File: r.file, Line: w.line, Col: w.col, Word: w.text, Kind: kind,
			Want: fmt.Sprintf(format, args...)})
	case len(ps) == problemsLimit:
		return append(ps, &Problem{File: r.file, Line: w.line, Col: w.col, Word: w.text, Kind: ErrTooMany,
			Want: "is this the right file?"})
	}
	return ps
}

// nearest is the known word that is most like w, or nothing if none is.
func nearest(w string, known []string) string {
	best, at := "", len(w)/3+2
	for _, k := range known {
		if d := distance(w, k, at); d < at {
			best, at = k, d
		}
	}
	return best
}

// hint is what a message says about the nearest word.
func hint(w string, known []string) string {
	if n := nearest(w, known); n != "" {
		return fmt.Sprintf("; did you mean %s?", n)
	}
	return ""
}

// distance is Levenshtein's, up to most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			sub := diag
			if a[i] != b[j] {
				sub++
			}
			diag = row[j+1]
			row[j+1] = min(sub, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}
