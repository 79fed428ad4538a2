package mad

import "encoding/binary"

// SampleCounters is how many counters can be sampled at once.
const SampleCounters = 15

// SampleStatus says how far a sampling is (IBA 16.1.3.2).
type SampleStatus uint8

// States of a sampling.
const (
	SampleDone    SampleStatus = iota
	SampleStarted              // SampleStart has yet to pass
	SampleRunning
)

func (s SampleStatus) String() string {
	if s <= SampleRunning {
		return [...]string{"Done", "Started", "Running"}[s]
	}
	return "unknown"
}

// What can be sampled (IBA 16.1.3.4).
const (
	SampleXmitData uint16 = iota + 1
	SampleRcvData
	SampleXmitPkts
	SampleRcvPkts
	SampleXmitWait
)

// SampleWidth32 is CounterWidth's word for counters of 32 bits.
const SampleWidth32 = 4

// PortSamplesControlLayout starts a sampling of a port's counters (IBA 16.1.3.2).
var PortSamplesControlLayout = Layout{"PortSamplesControl", 80, []Field{
	{Name: "OpCode", Off: 0, Bits: 8, Kind: Hex},
	{Name: "PortSelect", Off: 8, Bits: 8},
	{Name: "Tick", Off: 16, Bits: 8, Kind: Hex},
	{Name: "CounterWidth", Off: 29, Bits: 3},
	{Name: "CounterMask", Off: 34, Bits: 3, Kind: Hex, Count: 10, Stride: 3},
	{Name: "CounterMask10", Off: 65, Bits: 3, Kind: Hex, Count: 5, Stride: 3},
	{Name: "SampleMechanisms", Off: 80, Bits: 8},
	{Name: "SampleStatus", Off: 94, Bits: 2, Kind: Enum,
		Enum: func(v uint64) string { return SampleStatus(v).String() }},
	{Name: "OptionMask", Off: 96, Bits: 64, Kind: Hex},
	{Name: "VendorMask", Off: 160, Bits: 64, Kind: Hex},
	{Name: "SampleStart", Off: 224, Bits: 32},
	{Name: "SampleInterval", Off: 256, Bits: 32},
	{Name: "Tag", Off: 288, Bits: 16, Kind: Hex},
	{Name: "CounterSelect", Off: 304, Bits: 16, Kind: Hex, Count: SampleCounters, Stride: 16},
	{Name: "SamplesOnlyOptionMask", Off: 576, Bits: 64, Kind: Hex},
}}

// PortSamples is the part of PortSamplesControl that a manager writes, and its status.
type PortSamples struct {
	OpCode         uint8
	PortSelect     uint8
	SampleStatus   SampleStatus
	SampleStart    uint32 // in ticks
	SampleInterval uint32 // in ticks
	Tag            uint16
	CounterSelect  [SampleCounters]uint16
}

// Parse reads the attribute and returns its length.
func (p *PortSamples) Parse(b []byte) (int, error) {
	if err := PortSamplesControlLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*p = PortSamples{
		OpCode: b[0], PortSelect: b[1], SampleStatus: SampleStatus(b[11] & 3), SampleStart: be.Uint32(b[28:]),
		SampleInterval: be.Uint32(b[32:]),
		Tag:            be.Uint16(b[36:]),
	}
	for i := range p.CounterSelect {
		p.CounterSelect[i] = be.Uint16(b[38+2*i:])
	}
	return PortSamplesControlLayout.Size, nil
}

// Append writes the attribute after b, with what this package's users can do: counters of 32 bits, all of
// which can count everything.
func (p *PortSamples) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, PortSamplesControlLayout.Size)...)
	to, be := b[at:], binary.BigEndian
	to[0], to[1], to[3], to[11] = p.OpCode, p.PortSelect, SampleWidth32, byte(p.SampleStatus)&3
	for _, name := range [...]string{"CounterMask", "CounterMask10"} {
		f := PortSamplesControlLayout.Field(name)
		for i := range f.Len() {
			f.Put(to, i, 1)
		}
	}
	be.PutUint32(to[28:], p.SampleStart)
	be.PutUint32(to[32:], p.SampleInterval)
	be.PutUint16(to[36:], p.Tag)
	for i, s := range p.CounterSelect {
		be.PutUint16(to[38+2*i:], s)
	}
	return b
}

// PortSamplesResultLayout is what a sampling counted.
var PortSamplesResultLayout = Layout{"PortSamplesResult", 64, []Field{
	{Name: "Tag", Off: 0, Bits: 16, Kind: Hex},
	{Name: "SampleStatus", Off: 30, Bits: 2, Kind: Enum,
		Enum: func(v uint64) string { return SampleStatus(v).String() }},
	{Name: "Counter", Off: 32, Bits: 32, Count: SampleCounters, Stride: 32},
}}

// SampleWidth64 is ExtendedWidth's word for counters of 64 bits.
const SampleWidth64 = 2

// PortSamplesResultExtLayout is the same in 64 bits.
var PortSamplesResultExtLayout = Layout{"PortSamplesResultExtended", 128, []Field{
	{Name: "Tag", Off: 0, Bits: 16, Kind: Hex},
	{Name: "SampleStatus", Off: 30, Bits: 2, Kind: Enum,
		Enum: func(v uint64) string { return SampleStatus(v).String() }},
	{Name: "ExtendedWidth", Off: 32, Bits: 2},
	{Name: "Counter", Off: 64, Bits: 64, Count: SampleCounters, Stride: 64},
}}
