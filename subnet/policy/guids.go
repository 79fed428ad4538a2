package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// GUIDList is a file with a GUID on each line: root_guid_file, cn_guid_file, io_guid_file and
// guid_routing_order_file. The order is the file's.
type GUIDList []ib.GUID

// ParseGUIDs reads a list of GUIDs. A GUID that is there twice is an error: in
// an order it would have two places.
func ParseGUIDs(file string, data []byte) (GUIDList, error) {
	r := reporter{file: file}
	var out GUIDList
	seen := map[ib.GUID]int{}
	for _, line := range lines(data) {
		f := line.uncomment(false).fields()
		if len(f) == 0 {
			continue
		}
		g, ok := r.guid(f[0], "a GUID")
		if len(f) > 1 {
			r.fail(f[1], ErrSyntax, "expected one GUID on a line")
		}
		if ok && r.first(seen, g, f[0]) {
			out = append(out, g)
		}
	}
	return out, r.errs.err()
}

// first reports a GUID that was there before.
func (r *reporter) first(seen map[ib.GUID]int, g ib.GUID, w word) bool {
	if line, twice := seen[g]; twice {
		r.fail(w, ErrDuplicate, "expected each GUID once; it is also in line %d", line)
		return false
	}
	seen[g] = w.line
	return true
}

// Append writes the file.
func (l GUIDList) Append(dst []byte) []byte {
	for _, g := range l {
		dst = fmt.Appendf(dst, "%s\n", g)
	}
	return dst
}

func (l GUIDList) String() string { return string(l.Append(nil)) }

// NodeName is a name that an operator gave a node.
type NodeName struct {
	GUID ib.GUID
	Name string
}

// NodeNameMap is a node-name-map file, as infiniband-diags and OpenSM read it, in the order of the file.
type NodeNameMap []NodeName

// ParseNodeNameMap reads lines of a GUID and a name. Quotes around the name are optional.
func ParseNodeNameMap(file string, data []byte) (NodeNameMap, error) {
	r := reporter{file: file}
	var out NodeNameMap
	seen := map[ib.GUID]int{}
	for _, line := range lines(data) {
		line = line.uncomment(true).trim()
		if line.text == "" {
			continue
		}
		guid, name, _ := line.cut(blanks)
		g, ok := r.guid(guid, "a node's GUID and then its name in quotes")
		if strings.HasPrefix(name.text, `"`) {
			i := strings.IndexByte(name.text[1:], '"')
			if i < 0 {
				r.fail(name, ErrSyntax, "expected a closing quote")
				continue
			}
			if rest := name.from(i + 2).trim(); rest.text != "" {
				r.fail(rest, ErrSyntax, "expected nothing after the name but a comment")
				continue
			}
			name = name.sub(1, i+1)
		}
		switch {
		case !ok:
		case strings.Trim(name.text, blanks) == "":
			r.fail(name, ErrMissing, "expected the node's name in quotes")
		case strings.Contains(name.text, `"`):
			r.fail(name, ErrSyntax, "expected a name without quotes in it")
		case r.first(seen, g, guid):
			out = append(out, NodeName{g, name.text})
		}
	}
	return out, r.errs.err()
}

// Append writes the file.
func (m NodeNameMap) Append(dst []byte) []byte {
	for _, n := range m {
		dst = fmt.Appendf(dst, "%s \"%s\"\n", n.GUID, n.Name)
	}
	return dst
}

func (m NodeNameMap) String() string { return string(m.Append(nil)) }

// LIDRange is what a port is addressed by: one LID, or 2^LMC of them.
type LIDRange struct {
	GUID     ib.GUID
	Min, Max ib.LID
}

// GUID2LID is OpenSM's guid2lid file, in the order of GUIDs: the LIDs that ports keep over restarts.
type GUID2LID []LIDRange

// ParseGUID2LID reads lines of a port GUID, its first and its last LID. LIDs that are no unicast LIDs, that are
// no aligned power of 2, or that two ports have are reported; the other lines are still returned, so that a damaged
// file costs as few ports as possible their LIDs.
func ParseGUID2LID(file string, data []byte) (GUID2LID, error) {
	r := reporter{file: file}
	var out GUID2LID
	seen := map[ib.GUID]int{}
	taken := make([]bool, int(ib.LIDUnicastMax)+1)
	for _, line := range lines(data) {
		line = line.uncomment(false).trim()
		f := line.fields()
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			r.fail(line, ErrSyntax, "expected a port's GUID, its first LID and its last LID")
			continue
		}
		g, ok := r.guid(f[0], "a port's GUID")
		lo, okLo := r.number(f[1], "the first LID", 1, uint64(ib.LIDUnicastMax))
		hi, okHi := r.number(f[2], "the last LID", 1, uint64(ib.LIDUnicastMax))
		if !ok || !okLo || !okHi {
			continue
		}
		// A port's LIDs differ in their lower LMC bits alone (IBA 4.1.3).
		if n := hi - lo + 1; hi < lo || n > 128 || n&(n-1) != 0 || lo&(n-1) != 0 {
			r.fail(f[2], ErrValue, "expected the last of 1, 2, 4 … 128 LIDs whose first is a multiple of their number")
			continue
		}
		if slices.Contains(taken[lo:hi+1], true) {
			r.fail(f[1], ErrConflict, "expected LIDs that no other port of the file has")
			continue
		}
		if !r.first(seen, g, f[0]) {
			continue
		}
		for lid := lo; lid <= hi; lid++ {
			taken[lid] = true
		}
		out = append(out, LIDRange{g, ib.LID(lo), ib.LID(hi)})
	}
	out.sort()
	return out, r.errs.err()
}

func (m GUID2LID) sort() {
	slices.SortFunc(m, func(a, b LIDRange) int { return cmp.Compare(a.GUID, b.GUID) })
}

// Append writes the file as OpenSM does, with an empty line after each entry.
func (m GUID2LID) Append(dst []byte) []byte {
	for _, e := range m {
		dst = fmt.Appendf(dst, "%s 0x%04x 0x%04x\n\n", e.GUID, uint16(e.Min), uint16(e.Max))
	}
	return dst
}

func (m GUID2LID) String() string { return string(m.Append(nil)) }
