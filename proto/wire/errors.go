package wire

import (
	"errors"
	"fmt"
)

// Kinds of failure. A port counts them differently, so each can be matched
// with errors.Is whatever layer found it: a bad VCRC is a receive error of the
// link (IBA 7.12.2), a bad ICRC is dropped silently at its destination
// (IBA 9.6), a bad version, length or opcode is a malformed packet.
var (
	ErrTruncated = errors.New("truncated")
	ErrLength    = errors.New("wrong length")
	ErrVersion   = errors.New("unknown version")
	ErrNext      = errors.New("unexpected next header")
	ErrOpcode    = errors.New("unknown opcode")
	ErrPad       = errors.New("wrong padding")
	ErrVCRC      = errors.New("VCRC mismatch")
	ErrICRC      = errors.New("ICRC mismatch")
	ErrLPCRC     = errors.New("LPCRC mismatch")
)

// ParseError says which field of which layer was wrong, what it held and what
// was expected. It unwraps to its Kind.
type ParseError struct {
	Kind  error
	Layer string
	Field string
	Got   uint64
	Want  uint64
}

func (e *ParseError) Error() string {
	format := "wire: %s.%s: %v: got %#x, want %#x"
	switch e.Kind {
	case ErrTruncated, ErrLength, ErrPad:
		format = "wire: %s.%s: %v: got %d, want %d" // counts, not codes
	case ErrOpcode:
		return fmt.Sprintf("wire: %s.%s: %v %#x", e.Layer, e.Field, e.Kind, e.Got)
	}
	return fmt.Sprintf(format, e.Layer, e.Field, e.Kind, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrVCRC) and its like work.
func (e *ParseError) Unwrap() error { return e.Kind }

// truncated is the error of a header that needs want bytes and got fewer.
func truncated(layer string, got, want int) error {
	return &ParseError{Kind: ErrTruncated, Layer: layer, Field: "bytes", Got: uint64(got), Want: uint64(want)}
}
