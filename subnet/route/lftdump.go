package route

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// ErrLFTDump is matched by the errors of ParseLFTDump.
var ErrLFTDump = errors.New("not a dump of forwarding tables")

// LFTDumpError says where a dump of forwarding tables stops making sense.
type LFTDumpError struct {
	File string
	Line int
	// Word is what was found, and Want what was expected.
	Word, Want string
}

func (e *LFTDumpError) Error() string {
	return fmt.Sprintf("route: %s:%d: %q: want %s; make the file with dump_lfts, or take opensm-lfts.dump, "+
		"which opensm writes with -D 0x43", e.File, e.Line, e.Word, e.Want)
}

// Unwrap makes errors.Is(err, ErrLFTDump) true.
func (e *LFTDumpError) Unwrap() error { return ErrLFTDump }

// SwitchLFT is the forwarding table of one switch in a dump.
type SwitchLFT struct {
	GUID ib.GUID
	// Line is where it starts.
	Line int
	// Ports are by LID; NoPort where the dump has no entry.
	Ports []ib.PortNum
}

// LFTDump is the text that opensm leaves in opensm-lfts.dump, and that dump_lfts and ibroute of infiniband-diags print.
type LFTDump struct {
	Switches []SwitchLFT
	// LIDs are the addresses of ports by GUID, where the dump says them; with several LIDs for a port, the lowest.
	LIDs map[ib.GUID]ib.LID
}

// ParseLFTDump reads a dump. The error is an *LFTDumpError.
func ParseLFTDump(file string, text []byte) (*LFTDump, error) {
	r := &lftReader{file: file, dump: &LFTDump{LIDs: map[ib.GUID]ib.LID{}}, seen: map[ib.GUID]int{}}
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		r.line++
		if err := r.read(strings.TrimRight(string(line), " \t\r")); err != nil {
			return nil, err
		}
	}
	if r.open {
		r.line++
		return nil, r.fail("end of the file", "the rest of the switch's table and \"lids dumped\"")
	}
	if len(r.dump.Switches) == 0 {
		return nil, r.fail("end of the file", "a line that starts with \"Unicast lids\"")
	}
	return r.dump, nil
}

type lftReader struct {
	file string
	line int
	dump *LFTDump
	// open is set inside a switch's table; valid counts its entries that have a port, and all counts all.
	open       bool
	valid, all int
	// top is the last LID of the switch's range as its first line says it, or -1.
	top  int
	seen map[ib.GUID]int
}

func (r *lftReader) fail(word, want string) error {
	return &LFTDumpError{File: r.file, Line: r.line, Word: word, Want: want}
}

func (r *lftReader) read(line string) error {
	rest := strings.TrimLeft(line, " \t")
	switch {
	case rest == "" || strings.HasPrefix(rest, "#"):
		return nil
	case strings.HasPrefix(rest, "Unicast lids ["):
		return r.head(rest)
	case strings.HasPrefix(rest, "Lid ") || strings.HasPrefix(rest, "Port "):
		return nil // the heads of columns
	case strings.HasPrefix(rest, "0x"):
		return r.entry(rest)
	case strings.HasSuffix(rest, "lids dumped"):
		return r.tail(rest)
	case strings.HasPrefix(rest, "Multicast "):
		return r.fail("Multicast", "unicast tables: this is a dump of multicast tables")
	}
	return r.fail(rest,
		"\"Unicast lids [...] of switch ... guid 0x...\", an entry such as \"0x0001 003\", or \"lids dumped\"")
}

// head is "Unicast lids [0-32] of switch Lid 2 guid 0x0250f11b02000100 ('sw16'):"; dump_lfts says a directed route
// instead of the LID.
func (r *lftReader) head(line string) error {
	if r.open {
		return r.fail("Unicast lids", fmt.Sprintf("%q of the switch that starts at line %d first", "lids dumped",
			r.dump.Switches[len(r.dump.Switches)-1].Line))
	}
	_, after, ok := strings.Cut(line, " guid ")
	if !ok {
		return r.fail(line, "the switch's \"guid 0x...\"")
	}
	word, _, _ := strings.Cut(after, " ")
	guid, err := strconv.ParseUint(strings.TrimPrefix(word, "0x"), 16, 64)
	if err != nil || !strings.HasPrefix(word, "0x") || guid == 0 {
		return r.fail(word, "a GUID such as 0x0250f11b02000100")
	}
	if at, twice := r.seen[ib.GUID(guid)]; twice {
		return r.fail(word, fmt.Sprintf("a switch that was not at line %d already", at))
	}
	r.seen[ib.GUID(guid)] = r.line
	r.dump.Switches = append(r.dump.Switches, SwitchLFT{GUID: ib.GUID(guid), Line: r.line})
	r.open, r.valid, r.all, r.top = true, 0, 0, -1
	if _, span, ok := strings.Cut(line, "["); ok {
		span, _, _ = strings.Cut(span, "]")
		_, last, _ := strings.Cut(span, "-")
		if top, err := strconv.ParseUint(last, 0, 16); err == nil {
			r.top = int(top)
		}
	}
	return nil
}

// entry is "0x0001 003 # Channel Adapter portguid 0x0250f11b01000011: 'h1 HCA-1'"; dump_lfts has a colon and brackets.
func (r *lftReader) entry(line string) error {
	if !r.open {
		return r.fail(line, "\"Unicast lids [...] of switch ...\" before the first entry")
	}
	word, rest, _ := strings.Cut(line, " ")
	lid, err := strconv.ParseUint(word[2:], 16, 16)
	if err != nil || ib.LID(lid) >= 0xC000 {
		return r.fail(word, "a unicast LID, 0x0000 to 0xbfff")
	}
	word, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	port, err := strconv.ParseUint(word, 10, 8)
	if err != nil {
		return r.fail(word, "a port, 000 to 255")
	}
	sw := &r.dump.Switches[len(r.dump.Switches)-1]
	for len(sw.Ports) <= int(lid) {
		sw.Ports = append(sw.Ports, NoPort)
	}
	if sw.Ports[lid] != NoPort {
		return r.fail(line, fmt.Sprintf("one entry for LID %d: it has port %d already", lid, sw.Ports[lid]))
	}
	sw.Ports[lid] = ib.PortNum(port)
	r.all++
	if ib.PortNum(port) != NoPort {
		r.valid++
	}
	_, after, ok := strings.Cut(rest, " portguid 0x")
	if !ok {
		return nil
	}
	digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789abcdefABCDEF"))]
	guid, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return r.fail("portguid 0x"+digits, "a GUID such as 0x0250f11b02000100")
	}
	if old, known := r.dump.LIDs[ib.GUID(guid)]; !known || ib.LID(lid) < old {
		r.dump.LIDs[ib.GUID(guid)] = ib.LID(lid)
	}
	return nil
}

// tail is "32 lids dumped" or "32 valid lids dumped": it tells a whole table from one that was cut off. OpenSM leaves
// out LIDs that the switch has no way to, as its ftree does at spines, and counts them all the same.
func (r *lftReader) tail(line string) error {
	word, _, _ := strings.Cut(line, " ")
	count, err := strconv.Atoi(word)
	switch {
	case err != nil:
		return r.fail(line, "the number of entries before \"lids dumped\"")
	case !r.open:
		return r.fail(line, "\"Unicast lids [...] of switch ...\" before the end of a table")
	case count != r.valid && count != r.all && count != r.top:
		return r.fail(line, fmt.Sprintf("%d, which is how many entries were before", r.all))
	}
	r.open = false
	return nil
}

// Tables are the dump's tables for a network whose switches have the dump's GUIDs and whose destinations have the
// dump's LIDs. Switches that the dump lacks drop everything; missing lists them. A dump holds no service levels.
func (d *LFTDump) Tables(n *Network) (t *Tables, missing []int32) {
	at := make(map[ib.GUID]int, len(d.Switches))
	for i := range d.Switches {
		at[d.Switches[i].GUID] = i
	}
	t = &Tables{VLs: 1, LFT: make([][]ib.PortNum, len(n.Switches))}
	for s := range n.Switches {
		row := make([]ib.PortNum, int(n.Top)+1)
		for i := range row {
			row[i] = NoPort
		}
		if i, ok := at[n.Switches[s].GUID]; ok {
			copy(row, d.Switches[i].Ports)
		} else {
			missing = append(missing, int32(s))
		}
		t.LFT[s] = row
	}
	return t, missing
}
