package metrics

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is a family's type as the text format names it.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
	summary   kind = "summary"
)

// appendHead begins a family. The format wants each family's samples together, after this.
func appendHead(b []byte, name, help string, k kind) []byte {
	b = append(b, "# HELP "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, helpEscapes.Replace(help)...)
	b = append(b, "\n# TYPE "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, k...)
	return append(b, '\n')
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// appendLabel adds name="value" and a comma where something is before it. Descriptions come from files and from other
// people's hardware: what is not UTF-8 is replaced, because a scrape with one such label is refused whole.
func appendLabel(b []byte, name, value string) []byte {
	if n := len(b); n > 0 && b[n-1] == '"' {
		b = append(b, ',')
	}
	b = append(b, name...)
	b = append(b, `="`...)
	if !utf8.ValidString(value) {
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	if strings.ContainsAny(value, "\\\n\"") {
		value = valueEscapes.Replace(value)
	}
	b = append(b, value...)
	return append(b, '"')
}

// appendCount is a count and the end of its line. Most counters of most ports are 0.
func appendCount(b []byte, v uint64) []byte {
	if v < 10 {
		return append(b, '0'+byte(v), '\n')
	}
	return append(strconv.AppendUint(b, v, 10), '\n')
}

// number is a value as a label has it.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// appendValue is any other value and the end of its line.
func appendValue(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		b = append(b, "NaN"...)
	case math.IsInf(v, 1):
		b = append(b, "+Inf"...)
	case math.IsInf(v, -1):
		b = append(b, "-Inf"...)
	default:
		b = strconv.AppendFloat(b, v, 'g', -1, 64)
	}
	return append(b, '\n')
}

// sheet is text of families that have few samples, where speed does not matter.
type sheet struct{ b []byte }

// family begins one.
func (s *sheet) family(name, help string, k kind) { s.b = appendHead(s.b, name, help, k) }

// add is one sample; labels are names and values in turn.
func (s *sheet) add(name string, v float64, labels ...string) {
	s.b = append(s.b, name...)
	if len(labels) > 0 {
		s.b = append(s.b, '{')
		for i := 0; i+1 < len(labels); i += 2 {
			s.b = appendLabel(s.b, labels[i], labels[i+1])
		}
		s.b = append(s.b, '}')
	}
	s.b = append(s.b, ' ')
	s.b = appendValue(s.b, v)
}

// one is a family with one sample and no labels.
func (s *sheet) one(name, help string, k kind, v float64) {
	s.family(name, help, k)
	s.add(name, v)
}
