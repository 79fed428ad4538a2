package wire

import "fmt"

// Service is the transport service, the upper three bits of an opcode.
type Service uint8

// The services of IBA table 38.
const (
	RC  Service = 0
	UC  Service = 1
	RD  Service = 2
	UD  Service = 3
	CNP Service = 4
	XRC Service = 5
)

func (s Service) String() string {
	switch s {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case RD:
		return "RD"
	case UD:
		return "UD"
	case CNP:
		return "CNP"
	case XRC:
		return "XRC"
	}
	return fmt.Sprintf("Service(%d)", uint8(s))
}

// Opcode is BTH's opcode: service in bits 7-5, operation in bits 4-0.
type Opcode uint8

// Operations, the lower five bits of an opcode (IBA table 38).
const (
	OpSendFirst          Opcode = 0x00
	OpSendMiddle         Opcode = 0x01
	OpSendLast           Opcode = 0x02
	OpSendLastImm        Opcode = 0x03
	OpSendOnly           Opcode = 0x04
	OpSendOnlyImm        Opcode = 0x05
	OpWriteFirst         Opcode = 0x06
	OpWriteMiddle        Opcode = 0x07
	OpWriteLast          Opcode = 0x08
	OpWriteLastImm       Opcode = 0x09
	OpWriteOnly          Opcode = 0x0A
	OpWriteOnlyImm       Opcode = 0x0B
	OpReadRequest        Opcode = 0x0C
	OpReadResponseFirst  Opcode = 0x0D
	OpReadResponseMiddle Opcode = 0x0E
	OpReadResponseLast   Opcode = 0x0F
	OpReadResponseOnly   Opcode = 0x10
	OpAck                Opcode = 0x11
	OpAtomicAck          Opcode = 0x12
	OpCmpSwap            Opcode = 0x13
	OpFetchAdd           Opcode = 0x14
	OpResync             Opcode = 0x15 // RD only
	OpSendLastInv        Opcode = 0x16
	OpSendOnlyInv        Opcode = 0x17
	OpFlush              Opcode = 0x1C // memory placement extensions (IBA 1.5, annex A19)
	OpAtomicWrite        Opcode = 0x1D

	opMask Opcode = 0x1F
)

// MakeOpcode joins a service and an operation.
func MakeOpcode(s Service, op Opcode) Opcode { return Opcode(s)<<5 | op }

// Service is the opcode's transport service.
func (o Opcode) Service() Service { return Service(o >> 5) }

// Op is the operation without the service.
func (o Opcode) Op() Opcode { return o & opMask }

// Ext is the set of extended headers that follow BTH, in wire order.
type Ext uint16

// Extended transport headers, in the order in which they stand in a packet.
const (
	ExtRDETH Ext = 1 << iota
	ExtDETH
	ExtXRCETH
	ExtFETH
	ExtRETH
	ExtAtomicETH
	ExtAETH
	ExtAtomicAckETH
	ExtImmDt
	ExtIETH
)

// Kind sorts operations by what a responder or completer does with them.
type Kind uint8

// Kinds of operation.
const (
	KindNone Kind = iota
	KindSend
	KindWrite
	KindReadRequest
	KindReadResponse
	KindAck
	KindAtomicAck
	KindAtomic
	KindResync
	KindCNP
	KindFlush
	KindAtomicWrite
)

// Flags say where in a message an operation stands and what it asks for.
type Flags uint8

// Flags of an operation.
const (
	FlagStart   Flags = 1 << iota // first or only packet of its message
	FlagEnd                       // last or only packet of its message
	FlagPayload                   // may carry payload
	FlagRequest                   // flows from requester to responder
	FlagRecv                      // consumes a receive work request at its end
)

// OpcodeInfo is one row of the opcode table.
type OpcodeInfo struct {
	Name    string
	Kind    Kind
	Flags   Flags
	Ext     Ext
	ExtSize uint8 // bytes of extended headers
}

// Valid reports whether the row describes an opcode that exists.
func (i *OpcodeInfo) Valid() bool { return i.Kind != KindNone }

// Has reports whether all of the given extended headers are present.
func (i *OpcodeInfo) Has(e Ext) bool { return i.Ext&e == e }

// Is reports whether all of the given flags are set.
func (i *OpcodeInfo) Is(f Flags) bool { return i.Flags&f == f }

// extSizes is each extended header's length in bytes.
var extSizes = map[Ext]uint8{
	ExtRDETH: RDETHSize, ExtDETH: DETHSize, ExtXRCETH: XRCETHSize,
	ExtFETH: FETHSize, ExtRETH: RETHSize, ExtAtomicETH: AtomicETHSize, ExtAETH: AETHSize,
	ExtAtomicAckETH: AtomicAckETHSize, ExtImmDt: ImmDtSize, ExtIETH: IETHSize,
}

// opRows describes the operations once; services add their own headers.
var opRows = [32]OpcodeInfo{
	OpSendFirst:  {"SEND First", KindSend, FlagRequest | FlagStart | FlagPayload, 0, 0},
	OpSendMiddle: {"SEND Middle", KindSend, FlagRequest | FlagPayload, 0, 0},
	OpSendLast:   {"SEND Last", KindSend, FlagRequest | FlagEnd | FlagPayload | FlagRecv, 0, 0},
	OpSendLastImm: {"SEND Last with Immediate", KindSend, FlagRequest | FlagEnd | FlagPayload | FlagRecv,
		ExtImmDt, 0},
	OpSendOnly: {"SEND Only", KindSend, FlagRequest | FlagStart | FlagEnd | FlagPayload | FlagRecv, 0, 0},
	OpSendOnlyImm: {"SEND Only with Immediate", KindSend,
		FlagRequest | FlagStart | FlagEnd | FlagPayload | FlagRecv, ExtImmDt, 0},
	OpWriteFirst:  {"RDMA WRITE First", KindWrite, FlagRequest | FlagStart | FlagPayload, ExtRETH, 0},
	OpWriteMiddle: {"RDMA WRITE Middle", KindWrite, FlagRequest | FlagPayload, 0, 0},
	OpWriteLast:   {"RDMA WRITE Last", KindWrite, FlagRequest | FlagEnd | FlagPayload, 0, 0},
	OpWriteLastImm: {"RDMA WRITE Last with Immediate", KindWrite, FlagRequest | FlagEnd | FlagPayload | FlagRecv,
		ExtImmDt, 0},
	OpWriteOnly: {"RDMA WRITE Only", KindWrite, FlagRequest | FlagStart | FlagEnd | FlagPayload, ExtRETH, 0},
	OpWriteOnlyImm: {"RDMA WRITE Only with Immediate", KindWrite,
		FlagRequest | FlagStart | FlagEnd | FlagPayload | FlagRecv, ExtRETH | ExtImmDt, 0},
	OpReadRequest:        {"RDMA READ Request", KindReadRequest, FlagRequest | FlagStart | FlagEnd, ExtRETH, 0},
	OpReadResponseFirst:  {"RDMA READ Response First", KindReadResponse, FlagStart | FlagPayload, ExtAETH, 0},
	OpReadResponseMiddle: {"RDMA READ Response Middle", KindReadResponse, FlagPayload, 0, 0},
	OpReadResponseLast:   {"RDMA READ Response Last", KindReadResponse, FlagEnd | FlagPayload, ExtAETH, 0},
	OpReadResponseOnly:   {"RDMA READ Response Only", KindReadResponse, FlagStart | FlagEnd | FlagPayload, ExtAETH, 0},
	OpAck:                {"Acknowledge", KindAck, FlagStart | FlagEnd, ExtAETH, 0},
	OpAtomicAck:          {"ATOMIC Acknowledge", KindAtomicAck, FlagStart | FlagEnd, ExtAETH | ExtAtomicAckETH, 0},
	OpCmpSwap:            {"CmpSwap", KindAtomic, FlagRequest | FlagStart | FlagEnd, ExtAtomicETH, 0},
	OpFetchAdd:           {"FetchAdd", KindAtomic, FlagRequest | FlagStart | FlagEnd, ExtAtomicETH, 0},
	OpResync:             {"RESYNC", KindResync, FlagRequest | FlagStart | FlagEnd, 0, 0},
	OpSendLastInv: {"SEND Last with Invalidate", KindSend, FlagRequest | FlagEnd | FlagPayload | FlagRecv,
		ExtIETH, 0},
	OpSendOnlyInv: {"SEND Only with Invalidate", KindSend,
		FlagRequest | FlagStart | FlagEnd | FlagPayload | FlagRecv, ExtIETH, 0},
	OpFlush:       {"FLUSH", KindFlush, FlagRequest | FlagStart | FlagEnd, ExtFETH | ExtRETH, 0},
	OpAtomicWrite: {"ATOMIC WRITE", KindAtomicWrite, FlagRequest | FlagStart | FlagEnd | FlagPayload, ExtRETH, 0},
}

// opcodes is the table of all 256 opcodes, made from opRows: which operations
// a service has, and which headers it adds, is IBA table 38 and annex A14.
var opcodes = buildOpcodes()

func buildOpcodes() (t [256]OpcodeInfo) {
	serves := func(s Service, op Opcode) bool {
		if opRows[op].Kind == KindNone {
			return false
		}
		switch s {
		case RC, XRC:
			return op != OpResync
		case UC:
			return op <= OpWriteOnlyImm
		case RD:
			return op <= OpResync
		case UD:
			return op == OpSendOnly || op == OpSendOnlyImm
		}
		return false
	}
	for _, s := range []Service{RC, UC, RD, UD, XRC} {
		for op := Opcode(0); op < 32; op++ {
			if !serves(s, op) {
				continue
			}
			row := opRows[op]
			row.Name = s.String() + " " + row.Name
			switch {
			case s == XRC && row.Is(FlagRequest):
				row.Ext |= ExtXRCETH
			case s == RD:
				row.Ext |= ExtRDETH
				if row.Is(FlagRequest) {
					row.Ext |= ExtDETH
				}
			case s == UD:
				row.Ext |= ExtDETH
			}
			for e := ExtRDETH; e <= ExtIETH; e <<= 1 {
				if row.Ext&e != 0 {
					row.ExtSize += extSizes[e]
				}
			}
			t[MakeOpcode(s, op)] = row
		}
	}
	t[OpcodeCN] = OpcodeInfo{Name: "CN", Kind: KindCNP, Flags: FlagStart | FlagEnd}
	t[OpcodeCNP] = OpcodeInfo{Name: "CNP", Kind: KindCNP, Flags: FlagStart | FlagEnd | FlagPayload}
	return t
}

// Congestion notification packets. InfiniBand's ends with its BTH (IBA A10.3.2); RoCE's has 16 reserved bytes behind it
// (IBA A17).
const (
	OpcodeCN  Opcode = 0x80
	OpcodeCNP Opcode = 0x81
)

// Info is the opcode's row in the table; rows of opcodes that do not exist
// are zero.
func (o Opcode) Info() *OpcodeInfo { return &opcodes[o] }

func (o Opcode) String() string {
	if i := o.Info(); i.Valid() {
		return i.Name
	}
	return fmt.Sprintf("Opcode(0x%02x)", uint8(o))
}
