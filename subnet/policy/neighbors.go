package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"softib/proto/ib"
)

// CableEnd is a port, by the GUID of the end port that answers for it: a switch's own for each of its ports.
type CableEnd struct {
	GUID ib.GUID
	Port ib.PortNum
}

// Neighbors is OpenSM's neighbors file: what is at the other end of each port's cable, so that a manager that was
// started anew knows whose M_Key it needs there.
type Neighbors map[CableEnd]CableEnd

// ParseNeighbors reads lines of two ports, each a GUID and a number with a colon between them. Lines that are wrong are
// reported; the others are still returned.
func ParseNeighbors(file string, data []byte) (Neighbors, error) {
	r := reporter{file: file}
	out := Neighbors{}
	for _, line := range lines(data) {
		line = line.uncomment(false).trim()
		f := line.fields()
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 {
			r.fail(line, ErrSyntax, "expected a port and the one at the other end of its cable")
			continue
		}
		a, ok := r.cableEnd(f[0])
		b, okB := r.cableEnd(f[1])
		if !ok || !okB {
			continue
		}
		if _, twice := out[a]; twice {
			r.fail(f[0], ErrDuplicate, "expected each port once")
			continue
		}
		out[a] = b
	}
	return out, r.errs.err()
}

func (r *reporter) cableEnd(w word) (e CableEnd, ok bool) {
	at := strings.IndexByte(w.text, ':')
	if at < 0 {
		r.fail(w, ErrSyntax, "expected a port: a GUID, a colon and a number")
		return e, false
	}
	num := w
	num.text, num.col = w.text[at+1:], w.col+at+1
	w.text = w.text[:at]
	g, ok := r.guid(w, "a port's GUID")
	n, okPort := r.number(num, "a port's number", 0, math.MaxUint8-1)
	return CableEnd{g, ib.PortNum(n)}, ok && okPort
}

// Append writes the file as OpenSM does, with an empty line after each entry, in order.
func (n Neighbors) Append(dst []byte) []byte {
	ends := make([]CableEnd, 0, len(n))
	for e := range n { // tidy: order-free
		ends = append(ends, e)
	}
	slices.SortFunc(ends, func(a, b CableEnd) int {
		return cmp.Or(cmp.Compare(a.GUID, b.GUID), cmp.Compare(a.Port, b.Port))
	})
	for _, e := range ends {
		dst = fmt.Appendf(dst, "%s:%d %s:%d\n\n", e.GUID, e.Port, n[e].GUID, n[e].Port)
	}
	return dst
}
