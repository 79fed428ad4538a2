package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"softib/proto/ib"
)

// GUIDKey is a port and its M_Key.
type GUIDKey struct {
	GUID ib.GUID
	MKey uint64
}

// GUID2MKey is OpenSM's guid2mkey file, in the order of GUIDs: the M_Keys that ports hold, so that a manager that was
// started anew can speak to them.
type GUID2MKey []GUIDKey

// ParseGUID2MKey reads lines of a port GUID and its key. Lines that are wrong are reported; the others are still
// returned, so that a damaged file costs as few keys as possible.
func ParseGUID2MKey(file string, data []byte) (GUID2MKey, error) {
	r := reporter{file: file}
	var out GUID2MKey
	seen := map[ib.GUID]int{}
	for _, line := range lines(data) {
		line = line.uncomment(false).trim()
		f := line.fields()
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 {
			r.fail(line, ErrSyntax, "expected a port's GUID and its M_Key")
			continue
		}
		g, ok := r.guid(f[0], "a port's GUID")
		key, okKey := r.number(f[1], "an M_Key", 0, math.MaxUint64)
		if ok && okKey && r.first(seen, g, f[0]) {
			out = append(out, GUIDKey{g, key})
		}
	}
	slices.SortFunc(out, func(a, b GUIDKey) int { return cmp.Compare(a.GUID, b.GUID) })
	return out, r.errs.err()
}

// Append writes the file as OpenSM does, with an empty line after each entry.
func (m GUID2MKey) Append(dst []byte) []byte {
	for _, e := range m {
		dst = fmt.Appendf(dst, "%s 0x%016x\n\n", e.GUID, e.MKey)
	}
	return dst
}

func (m GUID2MKey) String() string { return string(m.Append(nil)) }
