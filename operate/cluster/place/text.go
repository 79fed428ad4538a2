package place

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"softib/proto/topo"
)

// Error says where a file is wrong, and what was expected there.
type Error struct {
	File   string
	Line   int // from 1; 0 when the whole file is meant
	Err    error
	Detail string
}

func (e *Error) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	return fmt.Sprintf("%s: %v: %s", at, e.Err, e.Detail)
}

// Unwrap is the kind of mistake.
func (e *Error) Unwrap() error { return e.Err }

// rangeMax is how many names one pattern may stand for: more than a subnet has addresses.
const rangeMax = 1 << 16

// Parse reads a file of lines "NODES MACHINE", NODES being one or more names or patterns:
//
//	# what          where
//	leaf[1-4]       east          leaf1 to leaf4; [01-12] counts with zeros in front, [1-3,7] has gaps
//	h1 h2 h[9-16]   east
//	spine?          west          * is any text, ? any character
//	*               west          everything that no line above has
//
// The first line that fits a node has it. A name, or a pattern without * and ?, must be nodes of the graph, and have
// none that a line above gave to another machine: that would be a mistake, not a wish. Nodes that no line fits have no
// place in what is returned; whoever wants a whole placement asks Missing.
func Parse(file string, text []byte, g *topo.Graph) (Placement, error) {
	p := Placement{}
	num := 0
	for line := range strings.Lines(string(text)) {
		num++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		bad := func(kind error, format string, args ...any) error {
			return &Error{file, num, kind, fmt.Sprintf(format, args...)}
		}
		if len(words) == 1 {
			return nil, bad(ErrSyntax, "found %q alone: want names of nodes, then a machine", words[0])
		}
		machine := words[len(words)-1]
		if err := CheckMachine(machine); err != nil {
			return nil, bad(ErrName, "%q: want letters, digits, dots, underscores or hyphens", machine)
		}
		for _, w := range words[:len(words)-1] {
			parts, err := compile(w)
			if err != nil {
				return nil, bad(ErrSyntax, "%q: %v", w, err)
			}
			if slices.ContainsFunc(parts, part.isWild) {
				for _, n := range g.Nodes {
					if _, has := p[n.Name]; !has && fits(parts, n.Name) {
						p[n.Name] = machine
					}
				}
				continue
			}
			names := expand(parts)
			if len(names) > rangeMax {
				return nil, bad(ErrSyntax, "%q stands for more than %d names", w, rangeMax)
			}
			for _, name := range names {
				if g.ByName(name) == nil {
					return nil, bad(ErrNoNode, "%s is not in the topology", name)
				}
				if was, has := p[name]; has && was != machine {
					return nil, bad(ErrOverlapped, "%s is on %s by a line above", name, was)
				}
				p[name] = machine
			}
		}
	}
	return p, nil
}

// Missing is an error that names the first nodes without a machine.
func (p Placement) Missing(file string, g *topo.Graph) error {
	var names []string
	for _, n := range g.Nodes {
		if _, ok := p[n.Name]; !ok {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if len(names) > 3 {
		more = fmt.Sprintf(" and %d more", len(names)-3)
	}
	return &Error{file, 0, ErrUnplaced, strings.Join(names[:min(3, len(names))], ", ") + more +
		": a last line \"* MACHINE\" has what no other line has"}
}

// part is a piece of a pattern: text, a wildcard, or numbers.
type part struct {
	text  string // '*' and '?' stand for themselves where wild is set
	wild  byte
	spans []span
}

func (p part) isWild() bool { return p.wild != 0 }

type span struct{ from, to, width int }

// compile reads a pattern.
func compile(s string) (parts []part, err error) {
	for s != "" {
		i := strings.IndexAny(s, "*?[]")
		switch {
		case i < 0:
			return append(parts, part{text: s}), nil
		case i > 0:
			parts, s = append(parts, part{text: s[:i]}), s[i:]
		case s[0] == '[':
			end := strings.IndexByte(s, ']')
			if end < 0 {
				return nil, fmt.Errorf("[ has no ]")
			}
			var spans []span
			for w := range strings.SplitSeq(s[1:end], ",") {
				x, err := parseSpan(w)
				if err != nil {
					return nil, err
				}
				spans = append(spans, x)
			}
			parts, s = append(parts, part{spans: spans}), s[end+1:]
		case s[0] == ']':
			return nil, fmt.Errorf("] has no [")
		default:
			parts, s = append(parts, part{wild: s[0]}), s[1:]
		}
	}
	return parts, nil
}

// parseSpan reads "7" or "1-12"; zeros in front of the first number say how many digits there are.
func parseSpan(w string) (span, error) {
	a, b, isRange := strings.Cut(w, "-")
	if !isRange {
		b = a
	}
	number := func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && digits(s) == len(s) && len(s) <= 9
	}
	x, okA := number(a)
	y, okB := number(b)
	if !okA || !okB || y < x {
		return span{}, fmt.Errorf("found %q in brackets: want a number, or two with the smaller first, as in [1-18]", w)
	}
	s := span{from: x, to: y}
	if a[0] == '0' && len(a) > 1 {
		s.width = len(a)
	}
	return s, nil
}

func (s span) name(n int) string {
	if s.width > 0 {
		return fmt.Sprintf("%0*d", s.width, n)
	}
	return strconv.Itoa(n)
}

// expand is every name that a pattern without wildcards stands for, or more than rangeMax.
func expand(parts []part) []string {
	names := []string{""}
	for _, p := range parts {
		if p.spans == nil {
			for i := range names {
				names[i] += p.text
			}
			continue
		}
		var next []string
		for _, n := range names {
			for _, s := range p.spans {
				for k := s.from; k <= s.to && len(next) <= rangeMax; k++ {
					next = append(next, n+s.name(k))
				}
			}
		}
		names = next
	}
	return names
}

// fits matches a name against a pattern, in time proportional to the product of their lengths: at holds, for the parts
// so far, at which places of the name one may be.
func fits(parts []part, name string) bool {
	at := make([]bool, len(name)+1)
	next := make([]bool, len(name)+1)
	at[0] = true
	for _, p := range parts {
		clear(next)
		for i, here := range at {
			if !here {
				continue
			}
			switch {
			case p.wild == '*':
				for j := i; j <= len(name); j++ {
					next[j] = true
				}
			case p.wild == '?':
				if i < len(name) {
					next[i+1] = true
				}
			case p.spans != nil:
				for n := 1; n <= min(9, digits(name[i:])); n++ {
					text := name[i : i+n]
					v, _ := strconv.Atoi(text)
					if slices.ContainsFunc(p.spans, func(s span) bool {
						return s.from <= v && v <= s.to && s.name(v) == text
					}) {
						next[i+n] = true
					}
				}
			case strings.HasPrefix(name[i:], p.text):
				next[i+len(p.text)] = true
			}
		}
		at, next = next, at
	}
	return at[len(name)]
}

// Text writes a placement as Parse reads it: a line for each machine, names that count on as ranges. Names that a file
// cannot have are refused, which those of topo never are.
func (p Placement) Text() ([]byte, error) {
	by := map[string][]string{}
	for name, m := range p { // tidy: order-free
		if f := strings.Fields(name); len(f) != 1 || f[0] != name || strings.ContainsAny(name, "#*?[]") {
			return nil, fmt.Errorf("place: node %q: %w: a file cannot name it", name, ErrSyntax)
		}
		by[m] = append(by[m], name)
	}
	var machines []string
	for m := range by { // tidy: order-free
		if err := CheckMachine(m); err != nil {
			return nil, err
		}
		machines = append(machines, m)
	}
	slices.SortFunc(machines, Natural)
	var b []byte
	for _, m := range machines {
		slices.SortFunc(by[m], Natural)
		for _, word := range ranges(by[m]) {
			b = append(append(b, word...), ' ')
		}
		b = append(append(b, m...), '\n')
	}
	return b, nil
}

// ranges writes sorted names with their last numbers drawn together: h1 h2 h3 is h[1-3].
func ranges(names []string) (out []string) {
	for i := 0; i < len(names); {
		stem, first, ok := lastNumber(names[i])
		j := i + 1
		for last := first; ok && j < len(names); j++ {
			s, n, isNumber := lastNumber(names[j])
			if !isNumber || s != stem || n != last+1 || j-i >= rangeMax {
				break
			}
			last = n
		}
		if j-i < 2 {
			out = append(out, names[i])
			i++
			continue
		}
		out = append(out, fmt.Sprintf("%s[%d-%d]", stem, first, first+j-i-1))
		i = j
	}
	return out
}

// lastNumber cuts a name before the number at its end, if that has no zeros in front.
func lastNumber(s string) (stem string, n int, ok bool) {
	i := len(s)
	for i > 0 && isDigit(s[i-1]) {
		i--
	}
	if i == len(s) || len(s)-i > 9 || s[i] == '0' && len(s)-i > 1 {
		return s, 0, false
	}
	n, _ = strconv.Atoi(s[i:])
	return s[:i], n, true
}
