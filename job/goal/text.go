package goal

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"softib/job"
)

// MaxRanks is how many ranks a file may have.
const MaxRanks = 1 << 18

// What a message and a calculation may be at most: an hour of the fastest link, a month.
const (
	maxBytes = 1 << 50
	maxCalc  = 1 << 52
)

// Error is what is wrong with a file.
type Error struct {
	File string
	Line int // 0 in a binary file
	What string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.What
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// Is makes it one of job.ErrSchedule.
func (e *Error) Is(target error) bool { return target == job.ErrSchedule }

// Parse reads a schedule, in whichever form it is. The file's name is for errors.
func Parse(file string, data []byte) (*job.Schedule, error) {
	if isBinary(data) {
		return parseBinary(file, data)
	}
	return parseText(file, data)
}

// reader goes through a text word by word.
type reader struct {
	file string
	text []byte
	line int
	b    *job.Builder
	rank int // -1 outside of a rank
	seen []bool
	// labels of the rank, and waits whose labels may still come
	labels map[string]uint32
	waits  []wait
}

type wait struct {
	op, on string
	begun  bool
	line   int
}

func (r *reader) wrong(format string, args ...any) error {
	return &Error{File: r.file, Line: r.line, What: fmt.Sprintf(format, args...)}
}

func parseText(file string, text []byte) (*job.Schedule, error) {
	r := &reader{file: file, text: text, rank: -1}
	for {
		words, ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if err := r.statement(words); err != nil {
			return nil, err
		}
	}
	switch {
	case r.b == nil:
		return nil, r.wrong("there is no num_ranks; next: is it a GOAL file?")
	case r.rank >= 0:
		return nil, r.wrong("rank %d has no closing brace", r.rank)
	}
	s, err := r.b.Schedule()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// next is the words of the next line that has any. Braces and colons are words of their own.
func (r *reader) next() (words []string, ok bool, err error) {
	comment := false
	for len(r.text) > 0 {
		r.line++
		line := r.text
		if end := bytes.IndexByte(r.text, '\n'); end >= 0 {
			line, r.text = r.text[:end], r.text[end+1:]
		} else {
			r.text = nil
		}
		for i := 0; i < len(line); {
			c := line[i]
			switch {
			case comment:
				if bytes.HasPrefix(line[i:], []byte("*/")) {
					comment = false
					i++
				}
				i++
			case c == ' ' || c == '\t' || c == '\r':
				i++
			case bytes.HasPrefix(line[i:], []byte("//")):
				i = len(line)
			case bytes.HasPrefix(line[i:], []byte("/*")):
				comment = true
				i += 2
			case c == '{' || c == '}' || c == ':':
				words = append(words, string(c))
				i++
			case wordByte(c):
				from := i
				for i < len(line) && wordByte(line[i]) {
					i++
				}
				words = append(words, string(line[from:i]))
			default:
				return nil, false, r.wrong("%q is no part of GOAL", c)
			}
		}
		if len(words) > 0 && !comment {
			return words, true, nil
		}
	}
	if comment {
		return nil, false, r.wrong("the comment has no end")
	}
	return words, len(words) > 0, nil
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// statement does what a line says. A closing brace may follow on it.
func (r *reader) statement(w []string) error {
	if w[0] == "num_ranks" {
		return r.numRanks(w)
	}
	if r.b == nil {
		return r.wrong("want num_ranks first, not %q", w[0])
	}
	if r.rank < 0 {
		return r.begin(w)
	}
	if w[len(w)-1] == "}" {
		if len(w) > 1 {
			if err := r.inside(w[:len(w)-1]); err != nil {
				return err
			}
		}
		return r.end()
	}
	return r.inside(w)
}

func (r *reader) numRanks(w []string) error {
	if r.b != nil {
		return r.wrong("num_ranks was said before")
	}
	if len(w) != 2 {
		return r.wrong("want num_ranks N")
	}
	n, err := r.number(w[1], MaxRanks)
	if err != nil {
		return err
	}
	if n == 0 {
		return r.wrong("want at least one rank")
	}
	r.b, r.seen = job.NewBuilder(int(n)), make([]bool, n)
	return nil
}

func (r *reader) begin(w []string) error {
	if len(w) < 3 || w[0] != "rank" || w[2] != "{" {
		return r.wrong("want rank N {")
	}
	n, err := r.number(w[1], uint64(len(r.seen))-1)
	if err != nil {
		return err
	}
	if r.seen[n] {
		return r.wrong("rank %d was there before", n)
	}
	r.seen[n], r.rank, r.labels = true, int(n), map[string]uint32{}
	if len(w) > 3 {
		return r.statement(w[3:])
	}
	return nil
}

func (r *reader) end() error {
	for _, w := range r.waits {
		op, ok := r.labels[w.op]
		on, ok2 := r.labels[w.on]
		if !ok || !ok2 {
			name := w.op
			if ok {
				name = w.on
			}
			return &Error{File: r.file, Line: w.line, What: fmt.Sprintf("rank %d has no label %q", r.rank, name)}
		}
		if w.begun {
			r.b.AfterBegun(r.rank, op, on)
		} else {
			r.b.After(r.rank, op, on)
		}
	}
	r.waits, r.rank = r.waits[:0], -1
	return nil
}

// inside is an operation, with or without a label, or a wait.
func (r *reader) inside(w []string) error {
	if len(w) == 3 && (w[1] == "requires" || w[1] == "irequires") {
		r.waits = append(r.waits, wait{op: w[0], on: w[2], begun: w[1] == "irequires", line: r.line})
		return nil
	}
	label := ""
	if len(w) > 2 && w[1] == ":" {
		label, w = w[0], w[2:]
		if _, twice := r.labels[label]; twice {
			return r.wrong("label %q is there twice in rank %d", label, r.rank)
		}
	}
	o, err := r.op(w)
	if err != nil {
		return err
	}
	r.b.Line(r.line)
	n := r.b.Add(r.rank, o)
	if label != "" {
		r.labels[label] = n
	}
	return nil
}

func (r *reader) op(w []string) (job.Op, error) {
	switch w[0] {
	case "calc":
		if len(w) < 2 {
			return job.Op{}, r.wrong("want calc NANOSECONDS [cpu N]")
		}
		size, err := r.number(w[1], maxCalc)
		if err != nil {
			return job.Op{}, err
		}
		return r.options(job.Op{Kind: job.Calc, Size: size}, w[2:])
	case "send":
		return r.message(job.Op{Kind: job.Send}, w[1:], "to")
	case "recv":
		return r.message(job.Op{Kind: job.Recv}, w[1:], "from")
	}
	return job.Op{}, r.wrong("%q: want send, recv, calc, or A requires B", w[0])
}

// message is "4096b to 1" and what may follow.
func (r *reader) message(o job.Op, w []string, direction string) (job.Op, error) {
	size := ""
	switch {
	case len(w) > 1 && w[1] == "b":
		size, w = w[0], w[2:]
	case len(w) > 0 && strings.HasSuffix(w[0], "b"):
		size, w = strings.TrimSuffix(w[0], "b"), w[1:]
	}
	if size == "" || len(w) < 2 || w[0] != direction {
		return o, r.wrong("want %v BYTESb %s RANK [tag N] [cpu N] [nic N]", o.Kind, direction)
	}
	var err error
	if o.Size, err = r.number(size, maxBytes); err != nil {
		return o, err
	}
	if w[1] == "-1" && o.Kind == job.Recv {
		o.Peer = job.Any
	} else {
		n, err := r.number(w[1], uint64(len(r.seen))-1)
		if err != nil {
			return o, err
		}
		o.Peer = uint32(n)
	}
	return r.options(o, w[2:])
}

// options are what may stand after an operation.
func (r *reader) options(o job.Op, w []string) (job.Op, error) {
	for ; len(w) > 1; w = w[2:] {
		most := uint64(255)
		if w[0] == "tag" && o.Kind != job.Calc {
			if w[1] == "-1" && o.Kind == job.Recv {
				o.Tag = job.Any
				continue
			}
			most = uint64(job.Any) - 1
		}
		n, err := r.number(w[1], most)
		if err != nil {
			return o, err
		}
		switch {
		case w[0] == "tag" && o.Kind != job.Calc:
			o.Tag = uint32(n)
		case w[0] == "cpu":
			o.CPU = uint8(n)
		case w[0] == "nic" && o.Kind != job.Calc:
			o.NIC = uint8(n)
		default:
			return o, r.wrong("%q: what may follow is tag, cpu and nic, each with a number", w[0])
		}
	}
	if len(w) > 0 {
		return o, r.wrong("%q has nothing after it", w[0])
	}
	return o, nil
}

func (r *reader) number(word string, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || n > most {
		return 0, r.wrong("%q: want a number from 0 to %d", word, most)
	}
	return n, nil
}
