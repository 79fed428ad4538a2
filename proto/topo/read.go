package topo

import (
	"fmt"
	"slices"
	"strings"
)

// Format is a form in which the field's tools write a fabric down.
type Format uint8

// The formats that Read knows.
const (
	// Discovered is what ibnetdiscover prints, and what ibsim and softib read and write.
	Discovered Format = iota
	// PortList is ibnetdiscover -p: a line for each port.
	PortList
	// LinkInfo is iblinkinfo, with or without -l.
	LinkInfo
	// SubnetList is the .lst of ibdiagnet, and opensm-subnet.lst.
	SubnetList
	// NetDump is ibdiagnet2.net_dump: a table for each switch.
	NetDump
	// DBCSV is ibdiagnet2.db_csv: sections of comma-separated values.
	DBCSV
	NumFormat
)

// formats has what each is called, how a line looks that no other format has, and who reads it.
var formats = [NumFormat]struct {
	name string
	is   func(line string) bool
	read func(*lister, []numberedLine)
}{
	Discovered: {"ibnetdiscover", isDiscovered, nil},
	PortList:   {"ibnetdiscover -p", isPortLine, readPortList},
	LinkInfo:   {"iblinkinfo (with or without -l)", isLinkInfo, readLinkInfo},
	SubnetList: {"a .lst of ibdiagnet or opensm-subnet.lst", isListed, readSubnetList},
	NetDump:    {"ibdiagnet2.net_dump", isNetDump, readNetDump},
	DBCSV:      {"ibdiagnet2.db_csv", isDBCSV, readDBCSV},
}

func (f Format) String() string {
	if f < NumFormat {
		return formats[f].name
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// Remark is something of a file that was passed over.
type Remark struct {
	// Line counts from 1.
	Line int
	Text string
}

func (w Remark) String() string { return fmt.Sprintf("line %d: %s", w.Line, w.Text) }

// Reading is a fabric that was read from a file.
type Reading struct {
	*Graph
	Format Format
	// Remarks are in the order of the file.
	Remarks []Remark
}

// numberedLine is a line of a file without the blanks at its end.
type numberedLine struct {
	num  int
	text string
}

// Read reads a fabric in any of the formats. What the file itself says tells which one it is, not its name. Errors are
// *ParseError; the file name is only used in them.
func Read(file string, text []byte) (*Reading, error) {
	var lines []numberedLine
	for line := range strings.SplitSeq(string(text), "\n") {
		lines = append(lines, numberedLine{len(lines) + 1, strings.TrimRight(line, " \t\r")})
	}
	format, first := Discovered, len(lines)
	for i, l := range lines {
		f, ok := formatOf(strings.TrimLeft(l.text, " \t"))
		if ok {
			format, first = f, i
			break
		}
	}
	var odd []Remark
	for _, l := range lines[:first] {
		if !isBlank(l.text) {
			odd = append(odd, Remark{l.num, fmt.Sprintf("%s is nothing that %v writes, and was passed over",
				quoteShort(l.text), format)})
		}
	}
	if first == len(lines) {
		return nil, unknownFormat(file, lines)
	}
	if read := formats[format].read; read != nil {
		l := &lister{file: file, remarks: odd}
		read(l, lines[first:])
		g, err := l.build()
		if err != nil {
			return nil, err
		}
		return &Reading{g, format, l.remarks}, nil
	}
	g, odd, err := parseDiscovered(file, lines, first, odd)
	if err != nil {
		return nil, err
	}
	return &Reading{g, format, odd}, nil
}

// Parse is Read for those to whom only the fabric matters.
func Parse(file string, text []byte) (*Graph, error) {
	r, err := Read(file, text)
	if err != nil {
		return nil, err
	}
	return r.Graph, nil
}

// formatOf is the format that has such a line.
func formatOf(line string) (Format, bool) {
	for f := range formats {
		if line != "" && formats[f].is(line) {
			return Format(f), true
		}
	}
	return 0, false
}

// isBlank accepts what may stand anywhere: empty lines and comments.
func isBlank(line string) bool {
	line = strings.TrimLeft(line, " \t")
	return line == "" || line[0] == '#'
}

// isNoise accepts what tools write to standard error, which ends up in the file of those who redirect both:
// "src/query_smp.c:195; umad (DR path …) bad status 110" and "ibwarn: [4711] …".
func isNoise(line string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(line, " \t"), " ")
	source, _, isPlace := strings.Cut(first, ".c:")
	return isPlace && source != "" && strings.HasSuffix(first, ";") ||
		slices.Contains([]string{"ibwarn:", "ibpanic:", "ibdebug:"}, first)
}

// unknownFormat says of a file in none of the formats which ones there are.
func unknownFormat(file string, lines []numberedLine) *ParseError {
	var names []string
	for f := Format(1); f < NumFormat; f++ {
		names = append(names, f.String())
	}
	others := strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	for _, l := range lines {
		if isBlank(l.text) {
			continue
		}
		c := &cursor{file: file, line: l.num, text: l.text}
		c.space()
		c.want(wantStatement + "; or the output of " + others)
		return c.err
	}
	return &ParseError{File: file, Line: 1, Err: ErrNoSwitch, Detail: "the file has no node: want ibnetdiscover's " +
		"output, which starts a node with Switch or Ca; or the output of " + others}
}

// quoteShort quotes a line, of a long one its start.
func quoteShort(s string) string {
	const most = 60
	s = cleanDesc(strings.TrimSpace(s))
	if len(s) > most {
		s = s[:most] + "…"
	}
	return `"` + s + `"`
}
