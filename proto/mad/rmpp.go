package mad

import (
	"encoding/binary"
	"fmt"
)

// Places of the reliable multi-packet protocol's header in a datagram (IBA 13.6.2). Classes that use the
// protocol have it right after the common header.
const (
	RMPPOff  = HeaderSize
	RMPPSize = 12
	// RMPPClassOff is where the class's own header, or its data, start.
	RMPPClassOff = RMPPOff + RMPPSize
	// RMPPVersion is the only version there is.
	RMPPVersion = 1
)

// RMPPType is the kind of a packet of the protocol.
type RMPPType uint8

// Types of packet (IBA 13.6.2.1).
const (
	RMPPNone RMPPType = iota
	RMPPData
	RMPPAck
	RMPPStop
	RMPPAbort
	NumRMPPType
)

var rmppTypeNames = [NumRMPPType]string{"None", "Data", "Ack", "Stop", "Abort"}

func (t RMPPType) String() string {
	if t < NumRMPPType {
		return rmppTypeNames[t]
	}
	return fmt.Sprintf("RMPPType(%d)", uint8(t))
}

// Flags of the protocol (IBA 13.6.2.1).
const (
	RMPPActive uint8 = 1 << iota // the protocol is in use for this message
	RMPPFirst
	RMPPLast
)

// RMPPRespTimeDefault in RRespTime says that the response time of the class is meant.
const RMPPRespTimeDefault uint8 = 31

// RMPPStatus says why a transfer ends (IBA 13.6.2.1).
type RMPPStatus uint8

// Reasons. Only Stop carries RMPPResources; from RMPPTooLong on they are Abort's.
const (
	RMPPNormal             RMPPStatus = 0
	RMPPResources          RMPPStatus = 1
	RMPPTooLong            RMPPStatus = 118
	RMPPInconsistentLast   RMPPStatus = 119
	RMPPInconsistentFirst  RMPPStatus = 120
	RMPPBadType            RMPPStatus = 121
	RMPPNewWindowLastSmall RMPPStatus = 122
	RMPPSegmentNumberBig   RMPPStatus = 123
	RMPPIllegalStatus      RMPPStatus = 124
	RMPPUnsupportedVersion RMPPStatus = 125
	RMPPTooManyRetries     RMPPStatus = 126
	RMPPUnspecified        RMPPStatus = 127
)

var rmppStatusNames = map[RMPPStatus]string{
	RMPPNormal: "Normal", RMPPResources: "ResourcesExhausted", RMPPTooLong: "TotalTimeTooLong",
	RMPPInconsistentLast:  "InconsistentLastAndPayloadLength",
	RMPPInconsistentFirst: "InconsistentFirstAndSegmentNumber",
	RMPPBadType:           "BadRMPPType", RMPPNewWindowLastSmall: "NewWindowLastTooSmall",
	RMPPSegmentNumberBig: "SegmentNumberTooBig",
	RMPPIllegalStatus:    "IllegalStatus", RMPPUnsupportedVersion: "UnsupportedVersion",
	RMPPTooManyRetries: "TooManyRetries",
	RMPPUnspecified:    "Unspecified",
}

func (s RMPPStatus) String() string {
	if n, ok := rmppStatusNames[s]; ok {
		return n
	}
	return fmt.Sprintf("RMPPStatus(%d)", uint8(s))
}

// RMPPLayout is the protocol's header, counted from RMPPOff.
var RMPPLayout = Layout{"RMPP", RMPPSize, []Field{
	{Name: "RMPPVersion", Off: 0, Bits: 8},
	{Name: "RMPPType", Off: 8, Bits: 8, Kind: Enum, Enum: func(v uint64) string { return RMPPType(v).String() }},
	{Name: "RRespTime", Off: 16, Bits: 5},
	{Name: "RMPPFlags", Off: 21, Bits: 3, Kind: Hex},
	{Name: "RMPPStatus", Off: 24, Bits: 8, Kind: Enum, Enum: func(v uint64) string { return RMPPStatus(v).String() }},
	{Name: "Data1", Off: 32, Bits: 32},
	{Name: "Data2", Off: 64, Bits: 32},
}}

// RMPP is the protocol's header. All of it is zero in a datagram that stands alone.
type RMPP struct {
	RMPPVersion uint8
	RMPPType    RMPPType
	RRespTime   uint8 // 5 bits
	RMPPFlags   uint8 // 3 bits
	RMPPStatus  RMPPStatus
	// Data1 is the number of the segment, from 1 on, in Data and Ack.
	Data1 uint32
	// Data2 is PayloadLength in Data and NewWindowLast in Ack. PayloadLength counts what follows the RMPP header, the
	// class's header in every segment included: of the whole message in the first segment (0 where it is unknown), of
	// the last segment in the last, and 0 in between.
	Data2 uint32
}

// Active reports whether the protocol is in use for this message.
func (r *RMPP) Active() bool { return r.RMPPFlags&RMPPActive != 0 }

// First reports whether this is a message's first segment.
func (r *RMPP) First() bool { return r.RMPPFlags&RMPPFirst != 0 }

// Last reports whether this is a message's last segment.
func (r *RMPP) Last() bool { return r.RMPPFlags&RMPPLast != 0 }

// Parse reads the header, which starts at RMPPOff in a datagram, and returns its length.
func (r *RMPP) Parse(b []byte) (int, error) {
	if err := RMPPLayout.Check(b); err != nil {
		return 0, err
	}
	*r = RMPP{
		RMPPVersion: b[0], RMPPType: RMPPType(b[1]), RRespTime: b[2] >> 3, RMPPFlags: b[2] & 7,
		RMPPStatus: RMPPStatus(b[3]),
		Data1:      binary.BigEndian.Uint32(b[4:]), Data2: binary.BigEndian.Uint32(b[8:]),
	}
	return RMPPSize, nil
}

// Append writes the header after b.
func (r *RMPP) Append(b []byte) []byte {
	b = append(b, r.RMPPVersion, byte(r.RMPPType), r.RRespTime<<3|r.RMPPFlags&7, byte(r.RMPPStatus))
	b = binary.BigEndian.AppendUint32(b, r.Data1)
	return binary.BigEndian.AppendUint32(b, r.Data2)
}

// Put writes the header into a datagram.
func (r *RMPP) Put(dgram []byte) { r.Append(dgram[RMPPOff:RMPPOff:RMPPClassOff]) }
