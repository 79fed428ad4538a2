package ipoib

import (
	"encoding/binary"
	"fmt"

	"softib/proto/ib"
)

// ServiceID is what an interface listens on for connections, by its queue pair for datagrams (RFC 4755 section 5).
func ServiceID(q ib.QPN) uint64 { return 0x10<<56 | uint64(q&ib.QPNMask) }

// Greeting is the private data of a request for a connection, and of the answer: who speaks, and how long a message it
// takes (RFC 4755 section 5).
type Greeting struct {
	QPN ib.QPN // for datagrams
	MTU uint32 // with the header
}

const greetingSize = 8

// ParseGreeting reads a greeting, behind which there may be more.
func ParseGreeting(b []byte) (Greeting, error) {
	if len(b) < greetingSize {
		return Greeting{}, fmt.Errorf("ipoib: greeting of %d bytes, want %d: %w", len(b), greetingSize, ErrFormat)
	}
	be := binary.BigEndian
	return Greeting{QPN: ib.QPN(be.Uint32(b)) & ib.QPNMask, MTU: be.Uint32(b[4:])}, nil
}

// Append writes the greeting after b.
func (g Greeting) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(g.QPN))
	return binary.BigEndian.AppendUint32(b, g.MTU)
}
