package cm

import (
	"fmt"

	"softib/proto/mad"
)

// EventKind is what happened to a connection. The kinds are those of Linux's ib_cm.
type EventKind uint8

// Kinds of event, with the calls that may follow.
const (
	// ReqReceived is a new connection that the other side asks for: Accept, Reject, Delay or Destroy.
	ReqReceived EventKind = iota
	// ReqError is a REQ that nobody answered: Destroy.
	ReqError
	// RepReceived is a REQ that was accepted: Ready, Reject, Delay or Destroy.
	RepReceived
	// RepError is a REP that nobody answered: Destroy.
	RepError
	// RTUReceived says that the connection stands, at the side that was asked.
	RTUReceived
	// Established says so too, by Port.Established: the RTU came late or never.
	Established
	// MRAReceived says that the other side needs longer; the connection manager waits as it asks.
	MRAReceived
	// RejReceived is a connection that the other side rejected, at any time: Destroy.
	RejReceived
	// DReqReceived is the other side's wish to end the connection: Disconnect answers it.
	DReqReceived
	// DReqError is a DREQ that nobody answered. The connection is over.
	DReqError
	// DRepReceived answers a DREQ. The connection is over.
	DRepReceived
	// TimewaitExit says that no packet of the connection can be on its way any more: the queue pair's number may be
	// used again.
	TimewaitExit
	// SIDRReqReceived asks for the queue pair of a datagram service: SIDRReply or Destroy.
	SIDRReqReceived
	// SIDRRepReceived answers a look-up: Destroy.
	SIDRRepReceived
	// SIDRReqError is a look-up that nobody answered: Destroy.
	SIDRReqError
	NumEventKind
)

var eventNames = [NumEventKind]string{"ReqReceived", "ReqError", "RepReceived", "RepError", "RTUReceived",
	"Established", "MRAReceived",
	"RejReceived", "DReqReceived", "DReqError", "DRepReceived", "TimewaitExit", "SIDRReqReceived", "SIDRRepReceived",
	"SIDRReqError"}

func (k EventKind) String() string {
	if k < NumEventKind {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that those above have to know. The message that caused it comes with it.
type Event struct {
	Kind   EventKind
	ID     ConnID
	Listen ListenID     // that the request came to, of ReqReceived and SIDRReqReceived
	From   mad.Envelope // of the message; zero if there was none

	// Private is the private data of the message, at its full length, nil if there was none.
	Private []byte
	// ECE is what the message has of a vendor's options, of ReqReceived and RepReceived.
	ECE ECE

	// The message itself; the others are nil.
	Req     *mad.CMReq
	MRA     *mad.CMMRA
	Rej     *mad.CMRej
	Rep     *mad.CMRep
	RTU     *mad.CMRTU
	DReq    *mad.CMDReq
	DRep    *mad.CMDRep
	SIDRReq *mad.SIDRReq
	SIDRRep *mad.SIDRRep
}
