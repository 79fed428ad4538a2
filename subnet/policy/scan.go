package policy

import (
	"bytes"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// blanks are what separates words on a line; a carriage return is one, so that
// files from elsewhere read as they are.
const blanks = " \t\r\v\f"

// lines cuts a file into lines, each with its place.
func lines(data []byte) []word {
	out := make([]word, 0, bytes.Count(data, []byte{'\n'})+1)
	for n := 1; len(data) > 0; n++ {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		out = append(out, word{string(line), n, 1})
		data = rest
	}
	return out
}

// sub is the part of w from byte i up to byte j.
func (w word) sub(i, j int) word { return word{w.text[i:j], w.line, w.col + i} }

// from is the part of w from byte i on.
func (w word) from(i int) word { return w.sub(i, len(w.text)) }

// end is the place just after w.
func (w word) end() word { return w.from(len(w.text)) }

// trim is w without blanks around it.
func (w word) trim() word {
	t := strings.TrimLeft(w.text, blanks)
	w.col += len(w.text) - len(t)
	w.text = strings.TrimRight(t, blanks)
	return w
}

// uncomment is w up to the first # that no quotes enclose.
func (w word) uncomment(quotes bool) word {
	quoted := false
	for i := range len(w.text) {
		switch w.text[i] {
		case '"':
			quoted = quotes && !quoted
		case '#':
			if !quoted {
				return w.sub(0, i)
			}
		}
	}
	if quoted { // no closing quote: then a # is a comment after all
		return w.uncomment(false)
	}
	return w
}

// cut splits w at the first of the bytes in seps, trims both parts and says which byte it was,
// 0 if none is there.
func (w word) cut(seps string) (before, after word, sep byte) {
	i := strings.IndexAny(w.text, seps)
	if i < 0 {
		return w.trim(), w.end(), 0
	}
	return w.sub(0, i).trim(), w.from(i + 1).trim(), w.text[i]
}

// split cuts w at each sep outside quotes and trims the pieces. Nothing gives one empty piece.
func (w word) split(sep byte, quotes bool) []word {
	var out []word
	quoted, at := false, 0
	for i := range len(w.text) {
		switch c := w.text[i]; {
		case c == '"' && quotes:
			quoted = !quoted
		case c == sep && !quoted:
			out = append(out, w.sub(at, i).trim())
			at = i + 1
		}
	}
	return append(out, w.from(at).trim())
}

// fields cuts w at blanks.
func (w word) fields() []word {
	var out []word
	at := -1
	for i := range len(w.text) {
		if strings.IndexByte(blanks, w.text[i]) >= 0 {
			if at >= 0 {
				out = append(out, w.sub(at, i))
			}
			at = -1
		} else if at < 0 {
			at = i
		}
	}
	if at >= 0 {
		out = append(out, w.from(at))
	}
	return out
}

// number reads a number as C's strtoul with base 0 does: 0x is hexadecimal, a leading 0 octal.
func number(s string) (uint64, bool) {
	base, t := 10, s
	switch {
	case len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		base, t = 16, s[2:]
	case len(s) > 1 && s[0] == '0':
		base = 8
	}
	if t == "" || strings.ContainsAny(t[:1], "+-_") || strings.Contains(t, "_") {
		return 0, false
	}
	v, err := strconv.ParseUint(t, base, 64)
	return v, err == nil
}

// number reads w as a number from lo to hi, and reports what it is otherwise.
func (r *reporter) number(w word, what string, lo, hi uint64) (uint64, bool) {
	v, ok := number(w.text)
	if !ok || v < lo || v > hi {
		r.fail(w, ErrValue, "expected %s, a number from %s to %s", what, bound(lo, hi), bound(hi, hi))
		return 0, false
	}
	return v, true
}

// bound prints a limit in the base that people write such numbers in.
func bound(v, hi uint64) string {
	if hi > 0xFFFF {
		return "0x" + strconv.FormatUint(v, 16)
	}
	return strconv.FormatUint(v, 10)
}

// guid reads a GUID: hexadecimal with 0x, or decimal. A leading 0 without x is a GUID whose 0x was
// forgotten rather than an octal number.
func (r *reporter) guid(w word, what string) (ib.GUID, bool) {
	v, ok := number(w.text)
	if !ok || v == 0 || (w.text[0] == '0' && len(w.text) > 1 && w.text[1]|0x20 != 'x') {
		r.fail(w, ErrValue, "expected %s: up to 16 hex digits after 0x, not all 0", what)
		return 0, false
	}
	return ib.GUID(v), true
}

// abbreviated finds the first of the known words that w begins or is, as OpenSM compares
// words; -1 if there is none.
func abbreviated(w string, known []string) int {
	if w == "" {
		return -1
	}
	for i, k := range known {
		if strings.HasPrefix(k, w) {
			return i
		}
	}
	return -1
}
