package mad

import (
	"encoding/binary"

	"softib/proto/ib"
)

// MlnxSpeedFDR10 is the one speed of MlnxExtPortInfo's masks: 10 Gbps with FDR's
// encoding, which PortInfo cannot tell from QDR.
const MlnxSpeedFDR10 uint8 = 1

// MlnxExtPortInfoLayout is Mellanox' own addition to PortInfo, an attribute of the
// subnet management class.
var MlnxExtPortInfoLayout = Layout{"MlnxExtPortInfo", SMPDataLen, []Field{
	{Name: "StateChangeEnable", Off: 24, Bits: 8, Kind: Hex},
	{Name: "LinkSpeedSupported", Off: 56, Bits: 8, Kind: Hex},
	{Name: "LinkSpeedEnabled", Off: 88, Bits: 8, Kind: Hex},
	{Name: "LinkSpeedActive", Off: 120, Bits: 8, Kind: Hex},
}}

// MlnxExtPortInfo is Mellanox' own addition to PortInfo.
type MlnxExtPortInfo struct {
	StateChangeEnable  uint8
	LinkSpeedSupported uint8
	LinkSpeedEnabled   uint8
	LinkSpeedActive    uint8
}

// MayHaveFDR10 reports whether a node is to be asked for MlnxExtPortInfo of a port whose PortInfo says QDR: those of
// Mellanox' devices that know FDR10, from SwitchX and ConnectX-3 on, whoever sells them, and softib's own. Others need
// not answer an attribute that the standard does not have.
func (n *NodeInfo) MayHaveFDR10() bool {
	d := n.DeviceID
	switch {
	case n.VendorID == 0 || n.VendorID == vendorSoftib:
		return true
	case n.NodeType == ib.NodeSwitch:
		return d >= 0xc738 && d <= 0xc73b || d == 0xc839 || d == 0xcb20 || d == 0xcf08 || d == 0xd2f0
	}
	return d >= 0x1003 && d <= 0x101b
}

// vendorSoftib is the vendor of nodes that no dump names: a locally administered one.
const vendorSoftib = 0x0250f1

// Parse reads the attribute and returns its length.
func (p *MlnxExtPortInfo) Parse(b []byte) (int, error) {
	if err := MlnxExtPortInfoLayout.Check(b); err != nil {
		return 0, err
	}
	*p = MlnxExtPortInfo{b[3], b[7], b[11], b[15]}
	return SMPDataLen, nil
}

// Append writes the attribute after b.
func (p *MlnxExtPortInfo) Append(b []byte) []byte {
	for _, v := range [...]uint8{p.StateChangeEnable, p.LinkSpeedSupported, p.LinkSpeedEnabled, p.LinkSpeedActive} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return append(b, make([]byte, SMPDataLen-16)...)
}
