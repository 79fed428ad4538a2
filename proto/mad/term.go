package mad

import (
	"crypto/sha256"
	"encoding/binary"

	"softib/proto/ib"
)

// Managers that rule a subnet in turn, by an agreement of their own, have terms, and speak to nodes with M_Keys of
// their terms. A node that knows the secret of which these are made takes no request of an earlier term than it has
// heard of: what a manager had on its way when it stood still, or was cut off, is not carried out when another has
// come after it. To all others, and to nodes without the secret, such a key is one as any: 64 bits without a meaning
// (IBA 14.2.4).

// termBits is how much of a key is its term; the rest proves that it was made with the secret.
const termBits = 24

// TermKey is a port's key of a term, or with GUID 0 what is shown to ports that have no key. Of the term only the lower
// bits count.
func TermKey(secret uint64, g ib.GUID, term uint32) uint64 {
	term &= 1<<termBits - 1
	var b [20]byte
	binary.BigEndian.PutUint64(b[:], secret)
	binary.BigEndian.PutUint64(b[8:], uint64(g))
	binary.BigEndian.PutUint32(b[16:], term)
	sum := sha256.Sum256(b[:])
	proof := max(binary.BigEndian.Uint64(sum[:])>>termBits, 1) // or term 0 might have no key
	return uint64(term)<<(64-termBits) | proof
}

// TermOf is the term of a key; false if it was not made with the secret for that port.
func TermOf(secret uint64, g ib.GUID, key uint64) (term uint32, ok bool) {
	term = uint32(key >> (64 - termBits))
	return term, TermKey(secret, g, term) == key
}

// TermAfter reports whether a comes after b. They go round: what is less than half of all terms ahead comes after.
func TermAfter(a, b uint32) bool {
	ahead := (a - b) & (1<<termBits - 1)
	return ahead != 0 && ahead < 1<<(termBits-1)
}
