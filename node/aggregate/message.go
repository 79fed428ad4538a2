package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind says what a message is.
type Kind uint8

// Kinds of message.
const (
	Contribution Kind = iota + 1 // towards the root
	Result                       // from the root
	Abort                        // the tree has failed; Header.Why says why
)

// Everybody as a Target: all members get the result.
const Everybody = ^uint32(0)

// Header is what stands before the vector of a message, in network order.
type Header struct {
	Kind Kind
	Op   Op
	Type Type
	Why  Reason
	Tree uint32
	// Seq numbers the operations of a tree.
	Seq uint32
	// Target is the member that gets the result; others hear only that it is over.
	Target uint32
	// Count is how many elements follow. A contribution of none adds nothing.
	Count uint32
}

// HeaderLen is how long it is.
const HeaderLen = 20

// ErrMessage is matched by every refusal of a message.
var ErrMessage = errors.New("no message of a reduction")

// Append writes the header.
func (h *Header) Append(b []byte) []byte {
	b = append(b, byte(h.Kind), byte(h.Op), byte(h.Type), byte(h.Why))
	b = binary.BigEndian.AppendUint32(b, h.Tree)
	b = binary.BigEndian.AppendUint32(b, h.Seq)
	b = binary.BigEndian.AppendUint32(b, h.Target)
	return binary.BigEndian.AppendUint32(b, h.Count)
}

// Parse reads a message: its header, and the vector, which is not copied.
func Parse(b []byte) (h Header, vector []byte, err error) {
	if len(b) < HeaderLen {
		return h, nil, fmt.Errorf("%w: %d bytes: want %d at least", ErrMessage, len(b), HeaderLen)
	}
	h = Header{Kind: Kind(b[0]), Op: Op(b[1]), Type: Type(b[2]), Why: Reason(b[3]),
		Tree: binary.BigEndian.Uint32(b[4:]), Seq: binary.BigEndian.Uint32(b[8:]),
		Target: binary.BigEndian.Uint32(b[12:]), Count: binary.BigEndian.Uint32(b[16:])}
	vector = b[HeaderLen:]
	switch {
	case h.Kind < Contribution || h.Kind > Abort:
		return h, nil, fmt.Errorf("%w: kind %d: want 1 to 3", ErrMessage, h.Kind)
	case h.Why >= numReason:
		return h, nil, fmt.Errorf("%w: reason %d: want less than %d", ErrMessage, h.Why, numReason)
	case !Fits(h.Op, h.Type):
		return h, nil, fmt.Errorf("%w: %v of %v: want an operation that the type has", ErrMessage, h.Op, h.Type)
	case uint64(len(vector)) != uint64(h.Count)*uint64(h.Type.Size()):
		return h, nil, fmt.Errorf("%w: %d bytes follow: want %d elements of %v", ErrMessage, len(vector), h.Count,
			h.Type)
	}
	return h, vector, nil
}

// Reason is why a tree has failed.
type Reason uint8

// Reasons.
const (
	NoReason   Reason = iota
	Lost              // a connection to a neighbour is no more
	Mismatch          // members do not do the same operation, or vectors differ in length
	Sequence          // an operation that has no place, or comes twice
	Malformed         // what came is no message
	Late              // a member has waited for too long
	Reassigned        // the manager takes the tree away
	numReason
)

var reasonNames = [numReason]string{"none", "a connection was lost", "members or lengths do not agree",
	"an operation came out of its turn", "a message could not be read", "a member waited for too long",
	"the manager took the tree away"}

func (r Reason) String() string {
	if r < numReason {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}
