package mad

import (
	"encoding/binary"
	"errors"
)

// Where the data of vendors' own classes lie (IBA 16.5). Range 2, classes
// 0x30 to 0x4F, has the RMPP header and an OUI before them.
const (
	VendorDataOff  = 24
	VendorDataLen  = Size - VendorDataOff
	Vendor2DataOff = 40
	Vendor2DataLen = Size - Vendor2DataOff

	offOUI = 37
)

// OUIOpenIB is the vendor of ClassPing and ClassSysStat.
const OUIOpenIB = 0x001405

// OUI is the vendor that a datagram of vendor range 2 belongs to.
func (v View) OUI() uint32 { return binary.BigEndian.Uint32(v[offOUI-1:]) & 0xFFFFFF }

// SetOUI replaces it.
func (v View) SetOUI(oui uint32) {
	v[offOUI], v[offOUI+1], v[offOUI+2] = byte(oui>>16), byte(oui>>8), byte(oui)
}

// Attributes of ClassSysStat.
const (
	AttrSysStatPing AttrID = 0x0010
	AttrSysStatHost AttrID = 0x0011
	AttrSysStatCPU  AttrID = 0x0012
)

// Attributes of ClassMlnx.
const (
	AttrMlnxGeneralInfo        AttrID = 0x0017
	AttrMlnxConfigSpace        AttrID = 0x0050
	AttrMlnxCounterGroupInfo   AttrID = 0x0090
	AttrMlnxConfigCounterGroup AttrID = 0x0091
)

// MlnxGeneralInfoLayout is what a Mellanox device says of its hardware, its firmware and
// its software. The extended firmware version is that of devices which MlnxHasExtFW names;
// with others the software version stands in its place.
var MlnxGeneralInfoLayout = Layout{"MlnxGeneralInfo", 136, []Field{
	{Name: "HWRevision", Off: 64, Bits: 16, Kind: Hex},
	{Name: "HWDeviceID", Off: 80, Bits: 16, Kind: Hex},
	{Name: "Uptime", Off: 288, Bits: 32},
	{Name: "FWMajor", Off: 328, Bits: 8},
	{Name: "FWMinor", Off: 336, Bits: 8},
	{Name: "FWSubMinor", Off: 344, Bits: 8},
	{Name: "FWBuildID", Off: 352, Bits: 32, Kind: Hex},
	{Name: "FWMonth", Off: 384, Bits: 8, Kind: Hex},
	{Name: "FWDay", Off: 392, Bits: 8, Kind: Hex},
	{Name: "FWYear", Off: 400, Bits: 16, Kind: Hex},
	{Name: "FWHour", Off: 432, Bits: 16, Kind: Hex},
	{Name: "PSID", Off: 448, Bits: 128, Kind: String},
	{Name: "INIVersion", Off: 576, Bits: 32},
	{Name: "FWExtMajor", Off: 608, Bits: 32},
	{Name: "FWExtMinor", Off: 640, Bits: 32},
	{Name: "FWExtSubMinor", Off: 672, Bits: 32},
	{Name: "SWMajor", Off: 840, Bits: 8},
	{Name: "SWMinor", Off: 848, Bits: 8},
	{Name: "SWSubMinor", Off: 856, Bits: 8},
}}

// mlnxExtFW are the ranges of device IDs whose firmware versions take the extended form.
var mlnxExtFW = [...][2]uint16{
	{0x01B3, 0x01B3}, {0x0245, 0x0245}, {0x1003, 0x101B}, {0xA2D2, 0xA2D2}, {0xC738, 0xC73B}, {0xCB20, 0xCB20},
	{0xCF08, 0xCF08}, {0xD2F0, 0xD2F0},
	// The same devices as another vendor numbers them.
	{0x1B02, 0x1B02}, {0x1B33, 0x1B33}, {0x1B40, 0x1B41}, {0x1B50, 0x1B50}, {0x1B60, 0x1B61}, {0x1B73, 0x1B73},
	{0x1B83, 0x1B83}, {0x1B93, 0x1B94}, {0x1BA0, 0x1BA0}, {0x1BB4, 0x1BB5}, {0x1BC4, 0x1BC6}, {0x1BD0, 0x1BD5},
	{0x1BF0, 0x1BF0},
}

// MlnxHasExtFW reports whether a device's MlnxGeneralInfo has the extended firmware version.
func MlnxHasExtFW(device uint16) bool {
	for _, r := range mlnxExtFW {
		if r[0] <= device && device <= r[1] {
			return true
		}
	}
	return false
}

// MlnxDeviceIS3 is the InfiniScale III switch, the one whose PortXmitWait is read from its configuration
// space.
const MlnxDeviceIS3 = 47396

// Records of AttrMlnxConfigSpace.
const (
	MlnxConfigRecords    = 18
	mlnxConfigOff        = 8 // of the first record
	mlnxConfigLen        = 12
	mlnxConfigCountShift = 16
)

// ErrRecords is a configuration space request about more records than fit.
var ErrRecords = errors.New("mad: MlnxConfigSpace: the modifier's number of records is above 18")

// MlnxConfigRecord is one word of a device's configuration space.
type MlnxConfigRecord struct{ Address, Data, Mask uint32 }

// MlnxConfigCount is how many records a modifier of AttrMlnxConfigSpace is about.
func MlnxConfigCount(mod uint32) (int, error) {
	n := int(mod >> mlnxConfigCountShift & 0x3F)
	if n > MlnxConfigRecords {
		return 0, ErrRecords
	}
	return n, nil
}

// MlnxConfigModifier asks for n records.
func MlnxConfigModifier(n int) uint32 { return 2<<22 | uint32(n)<<mlnxConfigCountShift }

// MlnxConfigAt reads record i of the class's data.
func MlnxConfigAt(data []byte, i int) MlnxConfigRecord {
	b := data[mlnxConfigOff+i*mlnxConfigLen:]
	be := binary.BigEndian
	return MlnxConfigRecord{be.Uint32(b), be.Uint32(b[4:]), be.Uint32(b[8:])}
}

// PutMlnxConfig writes record i.
func PutMlnxConfig(data []byte, i int, r MlnxConfigRecord) {
	b := data[mlnxConfigOff+i*mlnxConfigLen:]
	be := binary.BigEndian
	be.PutUint32(b, r.Address)
	be.PutUint32(b[4:], r.Data)
	be.PutUint32(b[8:], r.Mask)
}

// MlnxCounterGroups is how many groups of counters a switch can be told to count.
const MlnxCounterGroups = 2

// MlnxCounterGroupInfoLayout says which selections each group knows.
var MlnxCounterGroupInfoLayout = Layout{"MlnxCounterGroupInfo", 20, []Field{
	{Name: "NumGroups", Off: 88, Bits: 8},
	{Name: "GroupMask", Off: 96, Bits: 32, Kind: Hex, Count: MlnxCounterGroups, Stride: 32},
}}

// MlnxConfigCounterGroupLayout is what each group counts.
var MlnxConfigCounterGroupLayout = Layout{"MlnxConfigCounterGroup", 20, []Field{
	{Name: "GroupSelect", Off: 120, Bits: 8, Count: MlnxCounterGroups, Stride: 32},
}}
