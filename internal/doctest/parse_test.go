package doctest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is a fenced block of commands.
type block struct {
	line       int // of its first command, for people
	directives []string
	steps      []step
}

// step is one command and what it is to print; nil is whatever it likes.
type step struct {
	line    int
	command string
	want    []string
}

const directiveMark = "<!-- doctest: "

// parse finds the blocks of a document.
func parse(text string) (blocks []block, err error) {
	var in *block
	var other bool // within a block that is none of ours
	var directives []string
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		switch {
		case in == nil && !other && strings.HasPrefix(line, directiveMark):
			directives = append(directives, strings.TrimSuffix(strings.TrimPrefix(line, directiveMark), " -->"))
		case in == nil && !other && line == "```console":
			in = &block{line: n + 1, directives: directives}
			directives = nil
		case in == nil && strings.HasPrefix(line, "```"):
			if len(directives) > 0 {
				return nil, fmt.Errorf("line %d: directives %q are not above a block of commands", n, directives)
			}
			other = !other
		case in == nil:
		case line == "```":
			if len(in.steps) == 0 {
				return nil, fmt.Errorf("line %d: a block without a command", n)
			}
			blocks = append(blocks, *in)
			in = nil
		case strings.HasPrefix(line, "$ "):
			in.steps = append(in.steps, step{line: n, command: strings.TrimPrefix(line, "$ ")})
		case len(in.steps) == 0:
			return nil, fmt.Errorf("line %d: output before the first command", n)
		default:
			s := &in.steps[len(in.steps)-1]
			if strings.HasPrefix(line, "> ") && len(s.want) == 0 {
				s.command += "\n" + strings.TrimPrefix(line, "> ")
				continue
			}
			s.want = append(s.want, line)
		}
	}
	if in != nil || other {
		return nil, fmt.Errorf("a block is not closed")
	}
	return pasted(blocks)
}

const pastedMark = "pasted"

// pasted joins to each block that is pasted what somebody pastes with it: the commands that begin the next one, up to
// the first whose output is shown.
func pasted(blocks []block) (out []block, err error) {
	for i := 0; i < len(blocks); i++ {
		b := blocks[i]
		if !slices.Contains(b.directives, pastedMark) {
			out = append(out, b)
			continue
		}
		if i+1 == len(blocks) || b.steps[len(b.steps)-1].want != nil {
			return nil, fmt.Errorf("line %d: nothing is pasted with this block", b.line)
		}
		next := &blocks[i+1]
		n := slices.IndexFunc(next.steps, func(s step) bool { return s.want != nil })
		if n < 0 {
			n = len(next.steps)
		}
		if n == 0 || n == len(next.steps) && len(next.directives) > 0 {
			return nil, fmt.Errorf("line %d: nothing of the next block to paste with this, or too much", b.line)
		}
		b.steps = slices.Concat(b.steps, next.steps[:n])
		out = append(out, b)
		if next.steps = next.steps[n:]; len(next.steps) == 0 {
			i++
		}
	}
	return out, nil
}

// figure is a number that need not be the same: group 2 is its unit.
var figure = regexp.MustCompile(
	`^([(~]*[-+]?[0-9][0-9.,:]*(?:e[-+]?[0-9]+)?)(%|/s|x|[kMGT]?i?B(?:/s)?|ns|us|µs|ms|s|m|h)?([).,;:]*)$`)

var times = map[string]bool{"ns": true, "us": true, "µs": true, "ms": true, "s": true, "m": true, "h": true}

// prefixes are those of units that stand after a space; which of them it is depends on the figure.
var prefixes = regexp.MustCompile(`^[kMGT](i?B|i?B/s|b/s)?$`)

// bar is a figure that is drawn.
var bar = regexp.MustCompile(`^#+$`)

// day is a date; the time beside it is a figure.
var day = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

// plain is a line as it is compared: words with one space between them, and figures by their kind.
func plain(line string) string {
	words := slices.DeleteFunc(strings.Fields(line), bar.MatchString)
	if len(words) == 1 {
		return words[0]
	}
	for i, w := range words {
		if day.MatchString(w) {
			words[i] = "#day"
			continue
		}
		m := figure.FindStringSubmatch(w)
		if m == nil {
			continue
		}
		if i+1 < len(words) && m[2] == "" && m[3] == "" {
			unit := strings.TrimRight(words[i+1], ").,;:")
			switch {
			case prefixes.MatchString(words[i+1]):
				words[i], words[i+1] = "#", "k"+words[i+1][1:]
				continue
			case times[unit], unit == "%":
				words[i] = "#"
				continue
			}
		}
		digits, unit := m[1], m[2]
		if unit == "" && len(strings.Trim(digits, "(~-+.,:")) < 3 &&
			!strings.ContainsAny(strings.Trim(digits, ".,:"), ".:e") {
			continue
		}
		if times[unit] {
			unit = "s"
		}
		words[i] = "#" + unit + m[3]
	}
	return strings.Join(words, " ")
}

const any = "..."

// sameLine compares one line, in which "..." is any text.
func sameLine(want, got string) bool {
	pieces := strings.Split(plain(strings.ReplaceAll(want, any, " "+any+" ")), any)
	got = plain(got)
	if len(pieces) == 1 {
		return pieces[0] == got
	}
	for i, p := range pieces {
		p = strings.TrimSpace(p)
		at := strings.Index(got, p)
		switch {
		case at < 0, i == 0 && at != 0:
			return false
		case i == len(pieces)-1:
			return strings.HasSuffix(got, p)
		}
		got = got[at+len(p):]
	}
	return true
}

// same compares all that was printed; what says which line is missing.
func same(want, got []string) (missing string, ok bool) {
	want, got = full(want), full(got)
	at, loose := 0, false
	for i := 0; i < len(want); {
		if strings.TrimSpace(want[i]) == any {
			loose = true
			i++
			continue
		}
		run := i
		for run < len(want) && strings.TrimSpace(want[run]) != any {
			run++
		}
		found, furthest := -1, i
		for start := at; start+(run-i) <= len(got) && (loose || start == at); start++ {
			k := 0
			for k < run-i && sameLine(want[i+k], got[start+k]) {
				k++
			}
			furthest = max(furthest, min(i+k, run-1))
			if k == run-i && (run < len(want) || start+k == len(got)) {
				found = start
				break
			}
		}
		if found < 0 {
			return want[furthest], false
		}
		at, i, loose = found+run-i, run, false
	}
	if at < len(got) && !loose {
		return "the end, and not " + got[at], false
	}
	return "", true
}

// sameMixed is same for lines in any order, none of which is "...".
func sameMixed(want, got []string) (missing string, ok bool) {
	got = full(got)
	for _, w := range full(want) {
		at := slices.IndexFunc(got, func(g string) bool { return sameLine(w, g) })
		if at < 0 {
			return w, false
		}
		got = slices.Delete(got, at, at+1)
	}
	if len(got) > 0 {
		return "the end, and not " + got[0], false
	}
	return "", true
}

// full leaves out lines with nothing in them.
func full(lines []string) (out []string) {
	for _, l := range lines {
		if strings.TrimSpace(l) != "" {
			out = append(out, l)
		}
	}
	return out
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"links 64 ACTIVE", "links     64 ACTIVE", true},
		{"links 64 ACTIVE", "links 63 ACTIVE", false},
		{"up in 2.16ms: 770 datagrams", "up in 950µs: 771 datagrams", true},
		{"up in 2.16ms: 770 datagrams", "up in 950kB: 771 datagrams", false},
		{"leaf1[5]", "leaf1[6]", false},
		{"pkey 0x1001", "pkey 0x1002", false},
		{"about 1e-06;", "about 2e-07;", true},
		{"(93.8 %)", "(100.0 %)", true},
		{"4x NDR", "4x HDR", false},
		{"sent 12 G ## 24% of 64", "sent 253 k 0% of 64", true},
		{"hosts send 12 GB/s", "hosts send 1.2 MB/s", true},
		{"in 2.3 s, 5 %;", "in 2 s, 35 %;", true},
		{"in 2 s.", "in 3 ports.", false},
		{"401", "200", false},
		{"2026-11-15 12:08:48.229 sm trap", "2027-01-02 01:33:09.631 sm trap", true},
		{"2026-11-15 sm trap", "2026-11 sm trap", false},
		{"hosts send 12 GB/s", "hosts send 12 Gb/s", false},
		{"a\n...\nd", "a\nb\nc\nd", true},
		{"a\n...\nd", "a\nd", true},
		{"a\nd", "a\nb\nd", false},
		{"...\nd", "a\nd\ne", false},
		{"...\nd\n...", "a\nd\ne", true},
		{"...\nb\nc", "b\nx\nb\nc", true},
		{"a\n...", "a", true},
		{"a", "a\nb", false},
		{"a\nb", "a", false},
		{"page http://...", "page http://127.0.0.1:1/", true},
		{"a ... d", "a b c d", true},
		{"a ... d", "a b c e", false},
		{"...", "", true},
		{"a\n\nb", "a\nb\n", true},
	} {
		if _, ok := same(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); ok != c.same {
			t.Errorf("%q and %q: %v", c.want, c.got, ok)
		}
	}
}

func TestSameMixed(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{{"a\nb", "b\na", true}, {"a\na", "a\nb", false}, {"a", "a\nb", false}, {"a\nb", "a", false}} {
		if _, ok := sameMixed(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); ok != c.same {
			t.Errorf("%q and %q: %v", c.want, c.got, ok)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := parse("text\n<!-- doctest: after a --> b -->\n<!-- doctest: fails -->\n```console\n$ one \\\n> more\n" +
		"out\n$ two\n```\n```text\n$ not ours\n```\n")
	if err != nil || len(got) != 1 || len(got[0].steps) != 2 ||
		!slices.Equal(got[0].directives, []string{"after a --> b", "fails"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if s := got[0].steps[0]; s.command != "one \\\nmore" || len(s.want) != 1 || s.line != 5 {
		t.Errorf("%+v", s)
	}
	got, err = parse("<!-- doctest: pasted -->\n```console\n$ one &\n$ two\n```\n" +
		"<!-- doctest: mixed -->\n```console\n$ three &\n$ four\nout\n```\n" +
		"<!-- doctest: pasted -->\n```console\n$ five\n```\n```console\n$ six\n```\n")
	if err != nil || len(got) != 3 || len(got[0].steps) != 3 || got[0].steps[2].command != "three &" ||
		len(got[1].steps) != 1 || got[1].directives[0] != "mixed" || len(got[2].steps) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	const pasted = "<!-- doctest: pasted -->\n```console\n$ one\n```\n"
	for _, bad := range []string{pasted, pasted + "```console\n$ two\nout\n```\n",
		pasted + "<!-- doctest: fails -->\n```console\n$ two\n```\n", "```console\n$ x\n", "```console\n```\n",
		"```console\nout\n```\n",
		"<!-- doctest: fails -->\n```text\n```\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
