package mad

import (
	"fmt"

	"softib/proto/ib"
)

// Where the messages of communication management lie: right behind the header, all of the same length (IBA 12.6).
const (
	CMDataOff = HeaderSize
	CMDataLen = Size - HeaderSize
	// CMClassVersion is the version of the class that is laid out here.
	CMClassVersion = 2
)

// Attributes of communication management, which are its messages (IBA 16.7.2).
const (
	AttrCMReq   AttrID = 0x0010
	AttrCMMRA   AttrID = 0x0011
	AttrCMRej   AttrID = 0x0012
	AttrCMRep   AttrID = 0x0013
	AttrCMRTU   AttrID = 0x0014
	AttrCMDReq  AttrID = 0x0015
	AttrCMDRep  AttrID = 0x0016
	AttrSIDRReq AttrID = 0x0017
	AttrSIDRRep AttrID = 0x0018
	AttrCMLAP   AttrID = 0x0019
	AttrCMAPR   AttrID = 0x001A
)

// Lengths in bytes of the parts that belong to whoever speaks above communication management.
const (
	CMReqPrivate   = 92
	CMMRAPrivate   = 222
	CMRejPrivate   = 148
	CMRepPrivate   = 196
	CMRTUPrivate   = 224
	CMDReqPrivate  = 220
	CMDRepPrivate  = 224
	CMLAPPrivate   = 168
	CMAPRPrivate   = 148
	SIDRReqPrivate = 216
	SIDRRepPrivate = 136
	// CMInfoLen is the room for additional information in a REJ, an APR and a SIDR_REP.
	CMInfoLen = 72
)

// CMTransport is the transport service that a REQ asks for (IBA 12.7.6).
type CMTransport uint8

// Transport services. CMExtended is one that CMReq.ExtendedTransport names.
const (
	CMReliable CMTransport = iota
	CMUnreliable
	CMReliableDatagram
	CMExtended
	NumCMTransport
)

// CMExtendedXRC is the extended transport type of XRC (annex A14).
const CMExtendedXRC = 1

func (t CMTransport) String() string {
	if t < NumCMTransport {
		return [...]string{"RC", "UC", "RD", "Extended"}[t]
	}
	return fmt.Sprintf("CMTransport(%d)", uint8(t))
}

// CMMessage says which message an MRA or a REJ is about.
type CMMessage uint8

// Messages. An MRA's CMOther is a LAP; a REJ's is anything else.
const (
	CMMessageReq CMMessage = iota
	CMMessageRep
	CMMessageOther
	NumCMMessage
)

func (m CMMessage) String() string {
	if m < NumCMMessage {
		return [...]string{"REQ", "REP", "other"}[m]
	}
	return fmt.Sprintf("CMMessage(%d)", uint8(m))
}

// CMReason is why a REJ rejects (IBA 12.6.7.2).
type CMReason uint16

// Reasons to reject.
const (
	RejNoQP                   CMReason = 1
	RejNoEEC                  CMReason = 2
	RejNoResources            CMReason = 3
	RejTimeout                CMReason = 4
	RejUnsupported            CMReason = 5
	RejInvalidCommID          CMReason = 6
	RejInvalidCommInstance    CMReason = 7
	RejInvalidServiceID       CMReason = 8
	RejInvalidTransport       CMReason = 9
	RejStaleConnection        CMReason = 10
	RejNoRDC                  CMReason = 11
	RejInvalidGID             CMReason = 12
	RejInvalidLID             CMReason = 13
	RejInvalidSL              CMReason = 14
	RejInvalidTrafficClass    CMReason = 15
	RejInvalidHopLimit        CMReason = 16
	RejInvalidPacketRate      CMReason = 17
	RejInvalidAltGID          CMReason = 18
	RejInvalidAltLID          CMReason = 19
	RejInvalidAltSL           CMReason = 20
	RejInvalidAltTrafficClass CMReason = 21
	RejInvalidAltHopLimit     CMReason = 22
	RejInvalidAltPacketRate   CMReason = 23
	RejPortAndCMRedirect      CMReason = 24
	RejPortRedirect           CMReason = 25
	RejInvalidMTU             CMReason = 26
	RejInsufficientResponder  CMReason = 27
	RejConsumer               CMReason = 28
	RejInvalidRNRRetry        CMReason = 29
	RejDuplicateCommID        CMReason = 30
	RejInvalidClassVersion    CMReason = 31
	RejInvalidFlowLabel       CMReason = 32
	RejInvalidAltFlowLabel    CMReason = 33
	RejInvalidServiceHandle   CMReason = 34
	RejVendorOption           CMReason = 35
)

var cmReasonNames = [...]string{
	RejNoQP: "no QP available", RejNoEEC: "no EEC available", RejNoResources: "no resources available",
	RejTimeout:     "timeout",
	RejUnsupported: "unsupported request", RejInvalidCommID: "invalid communication ID",
	RejInvalidCommInstance: "invalid communication instance", RejInvalidServiceID: "invalid service ID",
	RejInvalidTransport: "invalid transport service type", RejStaleConnection: "stale connection",
	RejNoRDC:      "RDC does not exist",
	RejInvalidGID: "primary remote port GID rejected", RejInvalidLID: "primary remote port LID rejected",
	RejInvalidSL: "invalid primary SL", RejInvalidTrafficClass: "invalid primary traffic class",
	RejInvalidHopLimit: "invalid primary hop limit", RejInvalidPacketRate: "invalid primary packet rate",
	RejInvalidAltGID: "alternate remote port GID rejected", RejInvalidAltLID: "alternate remote port LID rejected",
	RejInvalidAltSL: "invalid alternate SL", RejInvalidAltTrafficClass: "invalid alternate traffic class",
	RejInvalidAltHopLimit: "invalid alternate hop limit", RejInvalidAltPacketRate: "invalid alternate packet rate",
	RejPortAndCMRedirect: "port and CM redirection", RejPortRedirect: "port redirection",
	RejInvalidMTU:            "invalid path MTU",
	RejInsufficientResponder: "insufficient responder resources", RejConsumer: "consumer reject",
	RejInvalidRNRRetry: "RNR retry count rejected", RejDuplicateCommID: "duplicate local communication ID",
	RejInvalidClassVersion: "invalid class version", RejInvalidFlowLabel: "invalid primary flow label",
	RejInvalidAltFlowLabel: "invalid alternate flow label", RejInvalidServiceHandle: "invalid service handle",
	RejVendorOption: "vendor option not supported",
}

func (r CMReason) String() string {
	if int(r) < len(cmReasonNames) && cmReasonNames[r] != "" {
		return cmReasonNames[r]
	}
	return fmt.Sprintf("CMReason(%d)", uint16(r))
}

// APStatus is how a LAP was answered (IBA 12.8.2.1).
type APStatus uint8

// Answers to a LAP.
const (
	APOK APStatus = iota
	APInvalidCommID
	APUnsupported
	APRejected
	APRedirect
	APIsCurrent
	APInvalidQPN
	APInvalidLID
	APInvalidGID
	APInvalidFlowLabel
	APInvalidTrafficClass
	APInvalidHopLimit
	APInvalidPacketRate
	APInvalidSL
	NumAPStatus
)

func (s APStatus) String() string {
	if s < NumAPStatus {
		return [...]string{"OK", "invalid communication ID", "alternate paths not supported", "rejected", "redirect",
			"path is already the alternate", "invalid QPN or EECN", "invalid LID", "invalid GID", "invalid flow label",
			"invalid traffic class", "invalid hop limit", "invalid packet rate", "invalid SL"}[s]
	}
	return fmt.Sprintf("APStatus(%d)", uint8(s))
}

// SIDRStatus is how a SIDR_REQ was answered (IBA 12.11.2.1).
type SIDRStatus uint8

// Answers to a SIDR_REQ.
const (
	SIDROK SIDRStatus = iota
	SIDRUnsupported
	SIDRReject
	SIDRNoQP
	SIDRRedirect
	SIDRBadVersion
	NumSIDRStatus
)

func (s SIDRStatus) String() string {
	if s < NumSIDRStatus {
		return [...]string{"OK", "service ID not supported", "rejected by service", "no QP available", "redirect",
			"version not supported"}[s]
	}
	return fmt.Sprintf("SIDRStatus(%d)", uint8(s))
}

// cmField is a row of a message's table by its byte, and the bit in it.
func cmField(name string, off, bit, bits int, kind Kind) Field {
	return Field{Name: name, Off: off*8 + bit, Bits: bits, Kind: kind}
}

func cmEnum(name string, off, bit, bits int, names func(uint64) string) Field {
	return Field{Name: name, Off: off*8 + bit, Bits: bits, Kind: Enum, Enum: names}
}

func cmPrivate(off, n int) Field { return cmField("PrivateData", off, 0, n*8, Bytes) }

func cmReasonName(v uint64) string  { return CMReason(v).String() }
func cmMessageName(v uint64) string { return CMMessage(v).String() }
func rateName(v uint64) string      { return Rate(v).String() }
func mtuName(v uint64) string       { return ib.MTU(v).String() }
