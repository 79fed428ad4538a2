package fieldtest

import (
	"fmt"
	"net/netip"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// How libibmad writes values.

func dec[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int](v T) string { return fmt.Sprint(uint64(v)) }

func hex[T ~uint8 | ~uint16 | ~uint32 | ~uint64](digits int, v T) string {
	return fmt.Sprintf("0x%0*x", digits, uint64(v))
}

func bit(v bool) string {
	if v {
		return "1"
	}
	return "0"
}

// word is the v-th of some words.
func word[T ~uint8](v T, words ...string) string {
	if int(v) < len(words) {
		return words[v]
	}
	return fmt.Sprintf("?(%d)", v)
}

// either lists the words of the bits that are set.
func either(v uint8, words ...string) string {
	var set []string
	for i, s := range words {
		if v>>i&1 != 0 {
			set = append(set, s)
		}
	}
	return strings.Join(set, " or ")
}

func nodeType(t ib.NodeType) string { return word(t, "", "Channel Adapter", "Switch", "Router") }

func mtu(v ib.MTU) string { return word(v, "", "256", "512", "1024", "2048", "4096") }

func lanes(v mad.VLCount) string { return word(v, "", "VL0", "VL0-1", "VL0-3", "VL0-7", "VL0-14") }

func portState(v ib.PortState) string {
	return word(v, "NoChange", "Down", "Initialize", "Armed", "Active")
}

func physState(v ib.PhysState) string {
	return word(v, "NoChange", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
		"LinkErrorRecovery", "PhyTest")
}

func widths(v ib.Width) string {
	// A width that is no power of two above 1x is called an extension only among the supported ones, and ports here
	// support 1x.
	return either(uint8(v), "1X", "4X", "8X", "12X", "2X")
}

func speeds(v uint8) string {
	s := either(v, "2.5 Gbps", "5.0 Gbps", "10.0 Gbps")
	if v&1 == 0 && v != 0 {
		s += " (IBA extension)"
	}
	return s
}

func activeSpeed(v uint8) string {
	if v == 0 {
		return "Extended speed"
	}
	return either(v, "2.5 Gbps", "5.0 Gbps", "10.0 Gbps")
}

func speedsExt(v uint8) string {
	switch v {
	case 0:
		return "0"
	case mad.SpeedExtDisable:
		return "Extended link speeds disabled"
	}
	return either(v, "14.0625 Gbps", "25.78125 Gbps", "53.125 Gbps", "106.25 Gbps")
}

func activeSpeedExt(v uint8) string {
	if v == 0 {
		return "No Extended Speed"
	}
	return speedsExt(v)
}

// capability writes a capability mask as the first of its lines is written; the words of its bits follow on lines of
// their own.
func capability[T ~uint16 | ~uint32](v T) string { return fmt.Sprintf("0x%x", uint32(v)) }

// portSheet is all of a PortInfo.
func portSheet(pi *mad.PortInfo, keys bool) sheet {
	s := sheet{
		"Mkey":            "<not displayed>",
		"GidPrefix":       hex(16, pi.GidPrefix),
		"Lid":             dec(pi.LID),
		"SMLid":           dec(pi.MasterSMLID),
		"CapMask":         capability(pi.CapabilityMask),
		"DiagCode":        hex(4, pi.DiagCode),
		"MkeyLeasePeriod": dec(pi.MKeyLeasePeriod),
		"LocalPort":       dec(pi.LocalPortNum),

		"LinkWidthEnabled":   widths(pi.LinkWidthEnabled),
		"LinkWidthSupported": widths(pi.LinkWidthSupported),
		"LinkWidthActive":    widths(pi.LinkWidthActive),
		"LinkSpeedSupported": speeds(pi.LinkSpeedSupported),
		"LinkSpeedEnabled":   speeds(pi.LinkSpeedEnabled),
		"LinkSpeedActive":    activeSpeed(pi.LinkSpeedActive),
		"LinkState":          portState(pi.PortState),
		"PhysLinkState":      physState(pi.PortPhysicalState),
		"LinkDownDefState":   physState(pi.LinkDownDefaultState),
		"ProtectBits":        dec(pi.MKeyProtectBits),
		"LMC":                dec(pi.LMC),
		"NeighborMTU":        mtu(pi.NeighborMTU),
		"SMSL":               dec(pi.MasterSMSL),
		"VLCap":              lanes(pi.VLCap),
		"InitType":           hex(2, pi.InitType),
		"VLHighLimit":        dec(pi.VLHighLimit),
		"VLArbHighCap":       dec(pi.VLArbitrationHighCap),
		"VLArbLowCap":        dec(pi.VLArbitrationLowCap),
		"InitReply":          hex(2, pi.InitTypeReply),
		"MtuCap":             mtu(pi.MTUCap),
		"VLStallCount":       dec(pi.VLStallCount),
		"HoqLife":            dec(pi.HOQLife),
		"OperVLs":            lanes(pi.OperationalVLs),
		"PartEnforceInb":     bit(pi.PartitionEnforcementInbound),
		"PartEnforceOutb":    bit(pi.PartitionEnforcementOutbound),
		"FilterRawInb":       bit(pi.FilterRawInbound),
		"FilterRawOutb":      bit(pi.FilterRawOutbound),
		"MkeyViolations":     dec(pi.MKeyViolations),
		"PkeyViolations":     dec(pi.PKeyViolations),
		"QkeyViolations":     dec(pi.QKeyViolations),
		"GuidCap":            dec(pi.GUIDCap),
		"ClientReregister":   bit(pi.ClientReregister),
		"SubnetTimeout":      dec(pi.SubnetTimeOut),
		"RespTimeVal":        dec(pi.RespTimeValue),
		"LocalPhysErr":       dec(pi.LocalPhyErrors),
		"OverrunErr":         dec(pi.OverrunErrors),
		"MaxCreditHint":      dec(pi.MaxCreditHint),
		"RoundTrip":          dec(pi.LinkRoundTripLatency),

		"McastPkeyTrapSuppressionEnabled": dec(pi.MulticastPKeyTrapSuppression),
	}
	if keys {
		s["Mkey"] = hex(16, pi.MKey)
	}
	if pi.CapabilityMask&mad.CapCapabilityMask2 != 0 {
		s["CapabilityMask2"] = capability(pi.CapabilityMask2)
	}
	if pi.CapabilityMask&mad.CapExtendedSpeeds != 0 {
		s["LinkSpeedExtActive"] = activeSpeedExt(pi.LinkSpeedExtActive)
		s["LinkSpeedExtSupported"] = speedsExt(pi.LinkSpeedExtSupported)
		s["LinkSpeedExtEnabled"] = speedsExt(pi.LinkSpeedExtEnabled)
	}
	return s
}

// nodeSheet is a NodeInfo as the graph has it, asked for through port in.
func nodeSheet(n *topo.Node, in int) sheet {
	caps := "128" // P_Keys of an adapter's port
	if n.IsSwitch() {
		caps = "32"
	}
	return sheet{
		"BaseVers": "1", "ClassVers": "1", "NodeType": nodeType(n.Type), "NumPorts": dec(n.NumPorts()),
		"SystemGuid": hex(16, n.SystemGUID), "Guid": hex(16, n.GUID), "PortGuid": hex(16, n.PortGUID(ib.PortNum(in))),
		"PartCap": caps, "DevId": hex(4, n.DeviceID), "Revision": "0x00000000", "LocalPort": dec(in),
		"VendorId": hex(6, n.VendorID),
	}
}

// shortGID is how inet_ntop writes a GID.
func shortGID(g ib.GID) string { return netip.AddrFrom16(g).String() }
