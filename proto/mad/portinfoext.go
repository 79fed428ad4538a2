package mad

import "encoding/binary"

// FECMode is the forward error correction that a link runs with
// (IBA 14.2.5.19).
type FECMode uint16

// Modes of FEC. The supported and enabled fields are sets: bit n stands for mode n.
const (
	FECNone FECMode = iota
	FECFirecode
	FECReedSolomon
	FECReedSolomon2 // of low latency
	NumFECMode
)

func (m FECMode) String() string {
	if m < NumFECMode {
		return [...]string{"none", "Firecode", "RS-FEC", "LL RS-FEC"}[m]
	}
	return "unknown"
}

// PortExtFEC in PortInfoExtended's CapMask says that the FEC fields mean something.
const PortExtFEC uint32 = 1

// PortInfoExtLayout is the part of a port's state that PortInfo has no room for
// (IBA 14.2.5.19).
var PortInfoExtLayout = Layout{"PortInfoExtended", SMPDataLen, []Field{
	{Name: "CapMask", Off: 0, Bits: 32, Kind: Hex},
	{Name: "FECModeActive", Off: 32, Bits: 16, Kind: Enum, Enum: func(v uint64) string { return FECMode(v).String() }},
	{Name: "FDRFECModeSupported", Off: 48, Bits: 16, Kind: Hex},
	{Name: "FDRFECModeEnabled", Off: 64, Bits: 16, Kind: Hex},
	{Name: "EDRFECModeSupported", Off: 80, Bits: 16, Kind: Hex},
	{Name: "EDRFECModeEnabled", Off: 96, Bits: 16, Kind: Hex},
	{Name: "HDRFECModeSupported", Off: 112, Bits: 16, Kind: Hex},
	{Name: "HDRFECModeEnabled", Off: 128, Bits: 16, Kind: Hex},
	{Name: "NDRFECModeSupported", Off: 144, Bits: 16, Kind: Hex},
	{Name: "NDRFECModeEnabled", Off: 160, Bits: 16, Kind: Hex},
}}

// PortInfoExt is the part of a port's state that PortInfo has no room for.
type PortInfoExt struct {
	CapMask             uint32
	FECModeActive       FECMode
	FDRFECModeSupported uint16
	FDRFECModeEnabled   uint16
	EDRFECModeSupported uint16
	EDRFECModeEnabled   uint16
	HDRFECModeSupported uint16
	HDRFECModeEnabled   uint16
	NDRFECModeSupported uint16
	NDRFECModeEnabled   uint16
}

// Parse reads the attribute and returns its length.
func (p *PortInfoExt) Parse(b []byte) (int, error) {
	if err := PortInfoExtLayout.Check(b); err != nil {
		return 0, err
	}
	be := binary.BigEndian
	*p = PortInfoExt{
		CapMask:             be.Uint32(b),
		FECModeActive:       FECMode(be.Uint16(b[4:])),
		FDRFECModeSupported: be.Uint16(b[6:]),
		FDRFECModeEnabled:   be.Uint16(b[8:]),
		EDRFECModeSupported: be.Uint16(b[10:]),
		EDRFECModeEnabled:   be.Uint16(b[12:]),
		HDRFECModeSupported: be.Uint16(b[14:]),
		HDRFECModeEnabled:   be.Uint16(b[16:]),
		NDRFECModeSupported: be.Uint16(b[18:]),
		NDRFECModeEnabled:   be.Uint16(b[20:]),
	}
	return PortInfoExtLayout.Size, nil
}

// Append writes the attribute after b.
func (p *PortInfoExt) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, p.CapMask)
	for _, v := range [...]uint16{
		uint16(p.FECModeActive), p.FDRFECModeSupported, p.FDRFECModeEnabled, p.EDRFECModeSupported, p.EDRFECModeEnabled,
		p.HDRFECModeSupported, p.HDRFECModeEnabled, p.NDRFECModeSupported, p.NDRFECModeEnabled,
	} {
		b = be.AppendUint16(b, v)
	}
	return append(b, make([]byte, SMPDataLen-22)...)
}
