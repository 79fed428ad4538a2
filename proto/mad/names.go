package mad

import "fmt"

// Class is a management class (IBA 13.4.4).
type Class uint8

// Management classes.
const (
	ClassSMLID    Class = 0x01 // subnet management, LID-routed
	ClassSA       Class = 0x03
	ClassPerf     Class = 0x04
	ClassBM       Class = 0x05
	ClassDevMgt   Class = 0x06
	ClassCM       Class = 0x07
	ClassSNMP     Class = 0x08
	ClassMlnx9    Class = 0x09 // Mellanox devices' own
	ClassMlnx     Class = 0x0A // Mellanox devices' own
	ClassCC       Class = 0x21 // congestion control, annex A10
	ClassPing     Class = 0x32 // OpenIB's echo, of vendor range 2
	ClassSysStat  Class = 0x33 // OpenIB's system status, of vendor range 2
	ClassSMDirect Class = 0x81 // subnet management, directed route
)

// ClassInfo is one row of the class table: where its attributes lie.
type ClassInfo struct {
	Class   Class
	Name    string
	Version uint8 // the class version that this package lays out
	DataOff int   // of the attribute in the datagram
	DataLen int
}

// classes is the class table. Subnet management leaves the last 128 bytes of
// a datagram to the two paths of a directed route.
var classes = []ClassInfo{
	{ClassSMLID, "SubnLID", 1, SMPDataOff, SMPDataLen},
	{ClassSMDirect, "SubnDirected", 1, SMPDataOff, SMPDataLen},
	{ClassSA, "SubnAdm", 2, 56, 200},
	{ClassPerf, "Perf", 1, PMDataOff, PMDataLen},
	{ClassBM, "BM", 1, 64, 192},
	{ClassDevMgt, "DevMgt", 1, 64, 192},
	{ClassCM, "ComMgt", CMClassVersion, CMDataOff, CMDataLen},
	{ClassSNMP, "SNMP", 1, 64, 192},
	{ClassMlnx9, "Mlnx9", 1, VendorDataOff, VendorDataLen},
	{ClassMlnx, "Mlnx", 1, VendorDataOff, VendorDataLen},
	{ClassCC, "CongestionControl", 2, CCDataOff, CCDataLen},
	{ClassPing, "OpenIBPing", 1, Vendor2DataOff, Vendor2DataLen},
	{ClassSysStat, "OpenIBSysStat", 1, Vendor2DataOff, Vendor2DataLen},
}

// classRow finds a class's row: its number plus 1, or 0.
var classRow = func() (rows [256]uint8) {
	for i := range classes {
		rows[classes[i].Class] = uint8(i + 1)
	}
	return rows
}()

// Info is the class's row; nil for a class that the table does not have.
func (c Class) Info() *ClassInfo {
	if row := classRow[c]; row != 0 {
		return &classes[row-1]
	}
	return nil
}

// IsSubnet reports whether c is one of the two subnet management classes, the
// only ones that travel between QP0s.
func (c Class) IsSubnet() bool { return c == ClassSMLID || c == ClassSMDirect }

func (c Class) String() string {
	if i := c.Info(); i != nil {
		return i.Name
	}
	switch {
	case c >= 0x09 && c <= 0x0F || c >= 0x30 && c <= 0x4F:
		return fmt.Sprintf("Vendor(0x%02x)", uint8(c))
	case c >= 0x10 && c <= 0x2F:
		return fmt.Sprintf("Application(0x%02x)", uint8(c))
	}
	return fmt.Sprintf("Class(0x%02x)", uint8(c))
}

// Method is what a datagram asks for or answers (IBA 13.4.5). The upper bit
// marks a response.
type Method uint8

// Methods of all classes; those that only one class has are named after it.
const (
	MethodGet           Method = 0x01
	MethodSet           Method = 0x02
	MethodSend          Method = 0x03
	MethodTrap          Method = 0x05
	MethodReport        Method = 0x06
	MethodTrapRepress   Method = 0x07
	MethodGetTable      Method = 0x12 // SA
	MethodGetTraceTable Method = 0x13 // SA
	MethodGetMulti      Method = 0x14 // SA
	MethodDelete        Method = 0x15 // SA
	MethodGetResp       Method = 0x81
	MethodReportResp    Method = 0x86
	MethodGetTableResp  Method = 0x92 // SA
	MethodGetMultiResp  Method = 0x94 // SA
	MethodDeleteResp    Method = 0x95 // SA

	methodResponse Method = 0x80
)

var methodNames = map[Method]string{
	MethodGet: "Get", MethodSet: "Set", MethodSend: "Send", MethodTrap: "Trap",
	MethodReport: "Report", MethodTrapRepress: "TrapRepress",
	MethodGetTable: "GetTable", MethodGetTraceTable: "GetTraceTable",
	MethodGetMulti: "GetMulti", MethodDelete: "Delete",
	MethodGetResp: "GetResp", MethodReportResp: "ReportResp",
	MethodGetTableResp: "GetTableResp", MethodGetMultiResp: "GetMultiResp",
	MethodDeleteResp: "DeleteResp",
}

// IsResponse reports whether m answers a request.
func (m Method) IsResponse() bool { return m&methodResponse != 0 }

// Request is the method without its response bit.
func (m Method) Request() Method { return m &^ methodResponse }

func (m Method) String() string {
	if s, ok := methodNames[m]; ok {
		return s
	}
	return fmt.Sprintf("Method(0x%02x)", uint8(m))
}

// Status is the status of a response (IBA 13.4.7). In directed-route SMPs its
// upper bit is not status but direction.
type Status uint16

// Status codes of all classes.
const (
	StatusOK                Status = 0x0000
	StatusBusy              Status = 0x0001
	StatusRedirect          Status = 0x0002
	StatusBadVersion        Status = 0x0004
	StatusUnsupMethod       Status = 0x0008
	StatusUnsupMethodAttr   Status = 0x000C
	StatusInvalidField      Status = 0x001C
	StatusSANoResources     Status = 0x0100
	StatusSAReqInvalid      Status = 0x0200
	StatusSANoRecords       Status = 0x0300
	StatusSATooManyRecords  Status = 0x0400
	StatusSAInvalidGID      Status = 0x0500
	StatusSAInsufComponents Status = 0x0600
	StatusSADenied          Status = 0x0700

	// StatusDirection is the D bit of directed-route SMPs: set on the
	// way back (IBA 14.2.1.2).
	StatusDirection Status = 0x8000
)

var statusNames = map[Status]string{
	StatusOK: "OK", StatusBusy: "Busy", StatusRedirect: "Redirect",
	StatusBadVersion: "BadVersion", StatusUnsupMethod: "UnsupportedMethod",
	StatusUnsupMethodAttr: "UnsupportedMethodAttribute", StatusInvalidField: "InvalidField",
	StatusSANoResources: "SANoResources", StatusSAReqInvalid: "SARequestInvalid",
	StatusSANoRecords: "SANoRecords", StatusSATooManyRecords: "SATooManyRecords",
	StatusSAInvalidGID: "SAInvalidGID", StatusSAInsufComponents: "SAInsufficientComponents",
	StatusSADenied: "SARequestDenied",
}

func (s Status) String() string {
	if n, ok := statusNames[s&^StatusDirection]; ok {
		return n
	}
	return fmt.Sprintf("Status(0x%04x)", uint16(s))
}

// AttrID names an attribute within its class.
type AttrID uint16

// Attributes of all classes, of subnet management (IBA 14.2.5) and of
// performance management (IBA 16.1.2).
const (
	AttrClassPortInfo AttrID = 0x0001
	AttrNotice        AttrID = 0x0002
	AttrInformInfo    AttrID = 0x0003

	AttrNodeDescription     AttrID = 0x0010
	AttrNodeInfo            AttrID = 0x0011
	AttrSwitchInfo          AttrID = 0x0012
	AttrGUIDInfo            AttrID = 0x0014
	AttrPortInfo            AttrID = 0x0015
	AttrPKeyTable           AttrID = 0x0016
	AttrSLtoVL              AttrID = 0x0017
	AttrVLArb               AttrID = 0x0018
	AttrLFT                 AttrID = 0x0019
	AttrRFT                 AttrID = 0x001A
	AttrMFT                 AttrID = 0x001B
	AttrLinkSpeedWidthPairs AttrID = 0x001C
	AttrSMInfo              AttrID = 0x0020
	AttrVendorDiag          AttrID = 0x0030
	AttrLedInfo             AttrID = 0x0031
	AttrPortInfoExtended    AttrID = 0x0033
	AttrARInfo              AttrID = 0xFF20
	AttrARGroupTable        AttrID = 0xFF21
	AttrARLFT               AttrID = 0xFF23
	AttrMlnxExtPortInfo     AttrID = 0xFF90
	AttrExtSwitchInfo       AttrID = 0xFF91
	AttrRouterInfo          AttrID = 0xFFD0
	AttrNextHopTable        AttrID = 0xFFD1
	AttrRouterGUIDs         AttrID = 0xFFE0 // softib's own
	AttrRouterPeers         AttrID = 0xFFE1 // softib's own
	AttrRouterGroups        AttrID = 0xFFE2 // softib's own
	AttrGroupsWanted        AttrID = 0xFFE3 // softib's own

	AttrPortSamplesControl     AttrID = 0x0010
	AttrPortSamplesResult      AttrID = 0x0011
	AttrPortCounters           AttrID = 0x0012
	AttrPortRcvErrorDetails    AttrID = 0x0015
	AttrPortXmitDiscardDetails AttrID = 0x0016
	AttrPortOpRcvCounters      AttrID = 0x0017
	AttrPortFlowCtlCounters    AttrID = 0x0018
	AttrPortVLOpPackets        AttrID = 0x0019
	AttrPortVLOpData           AttrID = 0x001A
	AttrPortVLXmitFlowCtlErrs  AttrID = 0x001B
	AttrPortVLXmitWait         AttrID = 0x001C
	AttrPortCountersExtended   AttrID = 0x001D
	AttrPortSamplesResultExt   AttrID = 0x001E
	AttrPortExtSpeedsCounters  AttrID = 0x001F
	AttrSwPortVLCongestion     AttrID = 0x0030
	AttrPortRcvConCtrl         AttrID = 0x0031
	AttrPortSLRcvFECN          AttrID = 0x0032
	AttrPortSLRcvBECN          AttrID = 0x0033
	AttrPortXmitConCtrl        AttrID = 0x0034
	AttrPortVLXmitTimeCong     AttrID = 0x0035
	AttrPortXmitDataSL         AttrID = 0x0036
	AttrPortRcvDataSL          AttrID = 0x0037
)

// Attributes of subnet administration (IBA 15.2.4).
const (
	AttrNodeRecord       AttrID = 0x0011
	AttrPortInfoRecord   AttrID = 0x0012
	AttrSLtoVLRecord     AttrID = 0x0013
	AttrSwitchInfoRecord AttrID = 0x0014
	AttrLFTRecord        AttrID = 0x0015
	AttrMFTRecord        AttrID = 0x0017
	AttrSMInfoRecord     AttrID = 0x0018
	AttrLinkRecord       AttrID = 0x0020
	AttrGUIDInfoRecord   AttrID = 0x0030
	AttrServiceRecord    AttrID = 0x0031
	AttrPKeyTableRecord  AttrID = 0x0033
	AttrPathRecord       AttrID = 0x0035
	AttrVLArbRecord      AttrID = 0x0036
	AttrMCMemberRecord   AttrID = 0x0038
	AttrTraceRecord      AttrID = 0x0039
	AttrMultiPathRecord  AttrID = 0x003A
	AttrInformInfoRecord AttrID = 0x00F3
)

// AttrInfo is one row of the attribute table.
type AttrInfo struct {
	Class  Class // ClassSMLID stands for both subnet management classes
	ID     AttrID
	Name   string
	Layout *Layout // nil if only the name is known
}

// attrs is the attribute table.
var attrs = []AttrInfo{
	{ClassSMLID, AttrNotice, "Notice", &NoticeLayout},
	{ClassSMLID, AttrNodeDescription, "NodeDescription", &NodeDescriptionLayout},
	{ClassSMLID, AttrNodeInfo, "NodeInfo", &NodeInfoLayout},
	{ClassSMLID, AttrSwitchInfo, "SwitchInfo", &SwitchInfoLayout},
	{ClassSMLID, AttrGUIDInfo, "GUIDInfo", &GUIDInfoLayout},
	{ClassSMLID, AttrPortInfo, "PortInfo", &PortInfoLayout},
	{ClassSMLID, AttrPKeyTable, "P_KeyTable", &PKeyTableLayout},
	{ClassSMLID, AttrSLtoVL, "SLtoVLMappingTable", &SLtoVLLayout},
	{ClassSMLID, AttrVLArb, "VLArbitrationTable", &VLArbLayout},
	{ClassSMLID, AttrLFT, "LinearForwardingTable", &LFTLayout},
	{ClassSMLID, AttrRFT, "RandomForwardingTable", nil},
	{ClassSMLID, AttrMFT, "MulticastForwardingTable", &MFTLayout},
	{ClassSMLID, AttrLinkSpeedWidthPairs, "LinkSpeedWidthPairsTable", nil},
	{ClassSMLID, AttrSMInfo, "SMInfo", &SMInfoLayout},
	{ClassSMLID, AttrVendorDiag, "VendorDiag", nil},
	{ClassSMLID, AttrLedInfo, "LedInfo", nil},
	{ClassSMLID, AttrPortInfoExtended, "PortInfoExtended", &PortInfoExtLayout},
	{ClassSMLID, AttrARInfo, "AdaptiveRoutingInfo", &ARInfoLayout},
	{ClassSMLID, AttrARGroupTable, "AdaptiveRoutingGroupTable", &ARGroupTableLayout},
	{ClassSMLID, AttrARLFT, "AdaptiveRoutingLinearForwardingTable", &ARLFTLayout},
	{ClassSMLID, AttrMlnxExtPortInfo, "MlnxExtPortInfo", &MlnxExtPortInfoLayout},
	{ClassSMLID, AttrExtSwitchInfo, "ExtendedSwitchInfo", &ExtSwitchInfoLayout},
	{ClassSMLID, AttrRouterInfo, "RouterInfo", &RouterInfoLayout},
	{ClassSMLID, AttrNextHopTable, "NextHopTable", &NextHopTableLayout},
	{ClassSMLID, AttrRouterGUIDs, "RouterGUIDs", &RouterGUIDsLayout},
	{ClassSMLID, AttrRouterPeers, "RouterPeers", &RouterPeersLayout},
	{ClassSMLID, AttrRouterGroups, "RouterGroups", &RouterGroupLayout},
	{ClassSMLID, AttrGroupsWanted, "GroupsWanted", &RouterGroupLayout},
	{ClassPerf, AttrClassPortInfo, "ClassPortInfo", &ClassPortInfoLayout},
	{ClassPerf, AttrPortSamplesControl, "PortSamplesControl", &PortSamplesControlLayout},
	{ClassPerf, AttrPortSamplesResult, "PortSamplesResult", &PortSamplesResultLayout},
	{ClassPerf, AttrPortCounters, "PortCounters", &PortCountersLayout},
	{ClassPerf, AttrPortRcvErrorDetails, "PortRcvErrorDetails", &PortRcvErrorDetailsLayout},
	{ClassPerf, AttrPortXmitDiscardDetails, "PortXmitDiscardDetails", &PortXmitDiscardDetailsLayout},
	{ClassPerf, AttrPortOpRcvCounters, "PortOpRcvCounters", &PortOpRcvCountersLayout},
	{ClassPerf, AttrPortFlowCtlCounters, "PortFlowCtlCounters", &PortFlowCtlCountersLayout},
	{ClassPerf, AttrPortVLOpPackets, "PortVLOpPackets", &PortVLOpPacketsLayout},
	{ClassPerf, AttrPortVLOpData, "PortVLOpData", &PortVLOpDataLayout},
	{ClassPerf, AttrPortVLXmitFlowCtlErrs, "PortVLXmitFlowCtlUpdateErrors", &PortVLXmitFlowCtlErrsLayout},
	{ClassPerf, AttrPortVLXmitWait, "PortVLXmitWaitCounters", &PortVLXmitWaitLayout},
	{ClassPerf, AttrPortCountersExtended, "PortCountersExtended", &PortCountersExtendedLayout},
	{ClassPerf, AttrPortSamplesResultExt, "PortSamplesResultExtended", &PortSamplesResultExtLayout},
	{ClassPerf, AttrPortExtSpeedsCounters, "PortExtendedSpeedsCounters", &PortExtSpeedsCountersLayout},
	{ClassPerf, AttrSwPortVLCongestion, "SwPortVLCongestion", &SwPortVLCongestionLayout},
	{ClassPerf, AttrPortRcvConCtrl, "PortRcvConCtrl", &PortRcvConCtrlLayout},
	{ClassPerf, AttrPortSLRcvFECN, "PortSLRcvFECN", &PortSLRcvFECNLayout},
	{ClassPerf, AttrPortSLRcvBECN, "PortSLRcvBECN", &PortSLRcvBECNLayout},
	{ClassPerf, AttrPortXmitConCtrl, "PortXmitConCtrl", &PortXmitConCtrlLayout},
	{ClassPerf, AttrPortVLXmitTimeCong, "PortVLXmitTimeCong", &PortVLXmitTimeCongLayout},
	{ClassPerf, AttrPortXmitDataSL, "PortXmitDataSL", &PortXmitDataSLLayout},
	{ClassPerf, AttrPortRcvDataSL, "PortRcvDataSL", &PortRcvDataSLLayout},
	{ClassCC, AttrClassPortInfo, "ClassPortInfo", &ClassPortInfoLayout},
	{ClassCC, AttrCongestionInfo, "CongestionInfo", &CongestionInfoLayout},
	{ClassCC, AttrCongestionKeyInfo, "CongestionKeyInfo", &CongestionKeyInfoLayout},
	{ClassCC, AttrCongestionLog, "CongestionLog", nil}, // of two layouts, and where no other attribute is
	{ClassCC, AttrSwitchCongestion, "SwitchCongestionSetting", &SwitchCongestionLayout},
	{ClassCC, AttrSwitchPortCongestion, "SwitchPortCongestionSetting", &SwitchPortCongestionLayout},
	{ClassCC, AttrCACongestion, "CACongestionSetting", &CACongestionLayout},
	{ClassCC, AttrCongestionControlTable, "CongestionControlTable", &CongestionTableLayout},
	{ClassCC, AttrCCTimeStamp, "TimeStamp", &CCTimeStampLayout},
	{ClassMlnx, AttrClassPortInfo, "ClassPortInfo", &ClassPortInfoLayout},
	{ClassMlnx, AttrMlnxGeneralInfo, "MlnxGeneralInfo", &MlnxGeneralInfoLayout},
	{ClassMlnx, AttrMlnxConfigSpace, "MlnxConfigSpace", nil},
	{ClassMlnx, AttrMlnxCounterGroupInfo, "MlnxCounterGroupInfo", &MlnxCounterGroupInfoLayout},
	{ClassMlnx, AttrMlnxConfigCounterGroup, "MlnxConfigCounterGroup", &MlnxConfigCounterGroupLayout},
	{ClassSysStat, AttrSysStatPing, "SysStatPing", nil},
	{ClassSysStat, AttrSysStatHost, "SysStatHost", nil},
	{ClassSysStat, AttrSysStatCPU, "SysStatCPU", nil},
	{ClassCM, AttrClassPortInfo, "ClassPortInfo", &ClassPortInfoLayout},
	{ClassCM, AttrCMReq, "REQ", &CMReqLayout},
	{ClassCM, AttrCMMRA, "MRA", &CMMRALayout},
	{ClassCM, AttrCMRej, "REJ", &CMRejLayout},
	{ClassCM, AttrCMRep, "REP", &CMRepLayout},
	{ClassCM, AttrCMRTU, "RTU", &CMRTULayout},
	{ClassCM, AttrCMDReq, "DREQ", &CMDReqLayout},
	{ClassCM, AttrCMDRep, "DREP", &CMDRepLayout},
	{ClassCM, AttrSIDRReq, "SIDR_REQ", &SIDRReqLayout},
	{ClassCM, AttrSIDRRep, "SIDR_REP", &SIDRRepLayout},
	{ClassCM, AttrCMLAP, "LAP", &CMLAPLayout},
	{ClassCM, AttrCMAPR, "APR", &CMAPRLayout},
	{ClassSA, AttrClassPortInfo, "ClassPortInfo", &ClassPortInfoLayout},
	{ClassSA, AttrNotice, "Notice", &NoticeLayout},
	{ClassSA, AttrInformInfo, "InformInfo", &InformInfoTable.Layout},
	{ClassSA, AttrNodeRecord, "NodeRecord", &NodeRecordTable.Layout},
	{ClassSA, AttrPortInfoRecord, "PortInfoRecord", &PortInfoRecordTable.Layout},
	{ClassSA, AttrSLtoVLRecord, "SLtoVLMappingTableRecord", &SLtoVLRecordTable.Layout},
	{ClassSA, AttrSwitchInfoRecord, "SwitchInfoRecord", &SwitchInfoRecordTable.Layout},
	{ClassSA, AttrLFTRecord, "LinearForwardingTableRecord", &LFTRecordTable.Layout},
	{ClassSA, AttrMFTRecord, "MulticastForwardingTableRecord", &MFTRecordTable.Layout},
	{ClassSA, AttrSMInfoRecord, "SMInfoRecord", &SMInfoRecordTable.Layout},
	{ClassSA, AttrLinkRecord, "LinkRecord", &LinkRecordTable.Layout},
	{ClassSA, AttrGUIDInfoRecord, "GUIDInfoRecord", &GUIDInfoRecordTable.Layout},
	{ClassSA, AttrServiceRecord, "ServiceRecord", &ServiceRecordTable.Layout},
	{ClassSA, AttrPKeyTableRecord, "P_KeyTableRecord", &PKeyTableRecordTable.Layout},
	{ClassSA, AttrPathRecord, "PathRecord", &PathRecordTable.Layout},
	{ClassSA, AttrVLArbRecord, "VLArbitrationTableRecord", &VLArbRecordTable.Layout},
	{ClassSA, AttrMCMemberRecord, "MCMemberRecord", &MCMemberRecordTable.Layout},
	{ClassSA, AttrTraceRecord, "TraceRecord", &TraceRecordTable.Layout},
	{ClassSA, AttrMultiPathRecord, "MultiPathRecord", &MultiPathRecordTable.Layout},
	{ClassSA, AttrInformInfoRecord, "InformInfoRecord", &InformInfoRecordTable.Layout},
}

// Attr finds an attribute's row; nil for one that the table does not have.
func Attr(c Class, id AttrID) *AttrInfo {
	if c == ClassSMDirect {
		c = ClassSMLID
	}
	for i := range attrs {
		if attrs[i].Class == c && attrs[i].ID == id {
			return &attrs[i]
		}
	}
	return nil
}

// AttrByName finds an attribute's row by its name.
func AttrByName(c Class, name string) *AttrInfo {
	if c == ClassSMDirect {
		c = ClassSMLID
	}
	for i := range attrs {
		if attrs[i].Class == c && attrs[i].Name == name {
			return &attrs[i]
		}
	}
	return nil
}

// AttrName is the attribute's name, or its number if it has none.
func AttrName(c Class, id AttrID) string {
	if a := Attr(c, id); a != nil {
		return a.Name
	}
	return fmt.Sprintf("Attr(0x%04x)", uint16(id))
}
