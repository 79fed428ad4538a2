package topo

import (
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// cursor reads one line of a file from left to right. The first mistake is
// kept in err, and everything read after it is empty.
type cursor struct {
	file string
	line int
	text string
	pos  int
	err  *ParseError
	odd  []Remark
}

func (c *cursor) warn(format string, v ...any) {
	c.odd = append(c.odd, Remark{c.line, fmt.Sprintf(format, v...)})
}

// failAt records a mistake at a byte offset of the line.
func (c *cursor) failAt(pos int, word string, kind error, format string, v ...any) {
	if c.err == nil {
		c.err = &ParseError{File: c.file, Line: c.line, Col: pos + 1, Word: word, Err: kind,
			Detail: fmt.Sprintf(format, v...)}
	}
}

// want records that something else stands here than was expected.
func (c *cursor) want(expected string) {
	word := c.peekWord()
	found := strconv.Quote(word)
	if word == "" {
		found = "end of line"
	}
	c.failAt(c.pos, word, ErrSyntax, "found %s: want %s", found, expected)
}

func (c *cursor) space() {
	for c.pos < len(c.text) && (c.text[c.pos] == ' ' || c.text[c.pos] == '\t') {
		c.pos++
	}
}

// peekWord is the text up to the next blank, for messages.
func (c *cursor) peekWord() string {
	rest := c.text[c.pos:]
	if i := strings.IndexAny(rest, " \t"); i > 0 {
		rest = rest[:i]
	}
	return rest
}

// done reports whether the line is read to its end or its comment.
func (c *cursor) done() bool {
	c.space()
	return c.err != nil || c.pos == len(c.text) || c.text[c.pos] == '#'
}

// next reports whether b stands here, without reading it.
func (c *cursor) next(b byte) bool {
	return c.err == nil && c.pos < len(c.text) && c.text[c.pos] == b
}

// accept reads b if it stands here.
func (c *cursor) accept(b byte) bool {
	if !c.next(b) {
		return false
	}
	c.pos++
	return true
}

// expect reads b, which must stand here.
func (c *cursor) expect(b byte, what string) {
	if c.err == nil && !c.accept(b) {
		c.want(what)
	}
}

// run reads as many bytes as belong.
func (c *cursor) run(belongs func(byte) bool) string {
	start := c.pos
	for c.err == nil && c.pos < len(c.text) && belongs(c.text[c.pos]) {
		c.pos++
	}
	return c.text[start:c.pos]
}

func isDigit(b byte) bool  { return '0' <= b && b <= '9' }
func isLetter(b byte) bool { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }
func isHex(b byte) bool    { return isDigit(b) || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F' }

// number reads a decimal number.
func (c *cursor) number(what string) int {
	start := c.pos
	s := c.run(isDigit)
	if c.err != nil {
		return 0
	}
	if s == "" {
		c.want(what)
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		c.failAt(start, s, ErrSyntax, "found %q: want %s", s, what)
	}
	return n
}

// hex reads a number in hex with or without 0x, of at most the given bits.
func (c *cursor) hex(what string, bits int) uint64 {
	start := c.pos
	if strings.HasPrefix(c.text[c.pos:], "0x") || strings.HasPrefix(c.text[c.pos:], "0X") {
		c.pos += 2
	}
	digits := c.run(isHex)
	if c.err != nil {
		return 0
	}
	v, err := strconv.ParseUint(digits, 16, bits)
	if err != nil {
		c.pos = start
		c.want(what)
	}
	return v
}

// uint reads a number as C does: in hex behind 0x, else in decimal.
func (c *cursor) uint(what string, bits int) uint64 {
	if strings.HasPrefix(c.text[c.pos:], "0x") || strings.HasPrefix(c.text[c.pos:], "0X") {
		return c.hex(what, bits)
	}
	start := c.pos
	v, err := strconv.ParseUint(c.run(isDigit), 10, bits)
	if err != nil {
		c.pos = start
		c.want(what)
	}
	return v
}

// guid reads a GUID in hex, which is never 0.
func (c *cursor) guid(what string) ib.GUID {
	start := c.pos
	v := ib.GUID(c.hex(what, 64))
	if c.err == nil && v == 0 {
		c.failAt(start, c.text[start:c.pos], ErrNoGUID, "found 0: want %s", what)
	}
	return v
}

// quoted reads a string in double quotes, which must not be empty.
func (c *cursor) quoted(what string) string {
	if c.err != nil {
		return ""
	}
	start := c.pos
	rest, ok := strings.CutPrefix(c.text[c.pos:], `"`)
	if !ok {
		c.want(what)
		return ""
	}
	s, _, ok := strings.Cut(rest, `"`)
	if !ok || s == "" {
		c.failAt(start, c.text[start:], ErrSyntax, "found %s: want %s", c.text[start:], what)
		return ""
	}
	c.pos += len(s) + 2
	return s
}

// comment is what follows the # at the end of the line, and where it starts.
func (c *cursor) comment() (text string, at int) {
	if !c.done() {
		c.want("a comment (#) or the end of the line")
	}
	if c.err != nil || c.pos == len(c.text) {
		return "", len(c.text)
	}
	return c.text[c.pos+1:], c.pos + 1
}
