package trace

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/wire"
)

// Kind says what happened.
type Kind uint8

// Kinds of event.
const (
	Packet Kind = iota // a data packet passed a port
	Link               // a flow-control packet passed a port
	Drop               // a packet was discarded; Reason says why
	State              // something changed state; What, From and To say it
	NumKind
)

var kindNames = [NumKind]string{"packet", "link", "drop", "state"}

func (k Kind) String() string {
	if k < NumKind {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Dir is the direction of a packet, seen from the port's node.
type Dir uint8

// Directions.
const (
	NoDir Dir = iota
	In
	Out
	NumDir
)

var dirNames = [NumDir]string{"", "in", "out"}

func (d Dir) String() string {
	if d < NumDir {
		return dirNames[d]
	}
	return fmt.Sprintf("Dir(%d)", uint8(d))
}

// Reason is why a packet was dropped.
type Reason uint8

// Reasons for a drop, from the cable inwards.
const (
	NoReason     Reason = iota
	Fault               // a declared fault took it
	LinkDown            // the port or its peer was down
	BadVCRC             // receive error at the link
	BadICRC             // receive error at the destination
	Malformed           // version, length, next header or opcode
	NotActive           // the port's logical state lets no data pass
	TooLong             // longer than the MTU of port or VL
	BadVL               // VL that is not configured
	VL15Full            // management packets have no credits
	NoCredit            // more than was granted
	NoRoute             // the forwarding table has no port for DLID
	Loopback            // would leave by the port it came in on
	HOQLife             // waited too long at the head of a queue
	Lifetime            // waited too long in a switch
	InPKey              // partition enforcement, inbound
	OutPKey             // partition enforcement, outbound
	Guarded             // subnet management from where no manager is trusted
	WrongLID            // reached a port that does not have DLID
	WrongGID            // GRH names another port
	HopLimit            // GRH's hop limit ran out
	NoQP                // no such queue pair, or not the right kind
	QPState             // the queue pair does not receive
	PKeyMismatch        // queue pair of another partition
	QKeyMismatch        // datagram with a wrong Q_Key
	WrongSource         // connected to another peer
	NoReceive           // no receive was posted, on a service that may lose
	LengthError         // does not fit the receive, on a service that may lose
	Unexpected          // sequence or operation out of order
	Duplicate           // seen before
	NumReason
)

// reasonNames are short and without spaces, so that they can be looked for
// in a capture: frame.comment contains "no-route".
var reasonNames = [NumReason]string{
	"", "fault", "link-down", "bad-vcrc", "bad-icrc", "malformed", "not-active", "too-long", "bad-vl", "vl15-full",
	"no-credit", "no-route", "loopback", "hoq-life", "lifetime", "in-pkey", "out-pkey", "guarded", "wrong-lid",
	"wrong-gid", "hop-limit", "no-qp", "qp-state", "pkey-mismatch", "qkey-mismatch", "wrong-source", "no-receive",
	"length-error", "unexpected", "duplicate",
}

func (r Reason) String() string {
	if r < NumReason {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Event is one thing that happened. Which fields have a meaning follows from
// Kind; Note is free words for any of them.
type Event struct {
	Time ib.Time
	Node uint32 // the driver's number of the node
	Port ib.PortNum
	Kind Kind
	Dir  Dir

	Reason Reason // Drop

	// Packet is the decoded packet of Packet and Drop. It is read during the
	// call and not kept.
	Packet *wire.Packet
	// Bytes are the packet as it stood on the cable, where it did. They win over
	// Packet: only they can show a corrupted one.
	Bytes []byte

	Link wire.LinkPacket // Link

	// What changed state, from what, to what: "port", "Armed", "Active".
	What string
	From string
	To   string
	QP   ib.QPN // State of a queue pair

	Note string
}

// appendBytes writes the event's packet as it stands on the cable.
func (e *Event) appendBytes(b []byte) []byte {
	switch {
	case e.Bytes != nil:
		return append(b, e.Bytes...)
	case e.Packet != nil:
		return e.Packet.Append(b)
	case e.Kind == Link:
		return e.Link.Append(b)
	}
	return b
}
