package mad

import "softib/proto/ib"

// pmHead is the head of most attributes that show counters, and what follows it.
func pmHead(name string, size int, fields ...Field) Layout {
	return Layout{name, size, append([]Field{
		{Name: "PortSelect", Off: 8, Bits: 8},
		{Name: "CounterSelect", Off: 16, Bits: 16, Kind: Hex},
	}, fields...)}
}

// ofOpcode is the same of attributes that are about one opcode.
func ofOpcode(name string, size int, fields ...Field) Layout {
	l := pmHead(name, size, fields...)
	l.Fields = append([]Field{{Name: "OpCode", Off: 0, Bits: 8, Kind: Hex}}, l.Fields...)
	return l
}

// each is an array of so many counters, one after the other.
func each(name string, bits, count int) Field {
	return Field{Name: name, Off: 32, Bits: bits, Count: count, Stride: bits}
}

// Optional counters of ports, lanes and levels (IBA 16.1.4 and A10.5).
var (
	PortOpRcvCountersLayout = ofOpcode("PortOpRcvCounters", 12,
		Field{Name: "PortOpRcvPkts", Off: 32, Bits: 32}, Field{Name: "PortOpRcvData", Off: 64, Bits: 32})
	PortFlowCtlCountersLayout = pmHead("PortFlowCtlCounters", 12,
		counter(ib.PortXmitFlowPkts, 32, 32), counter(ib.PortRcvFlowPkts, 64, 32))
	PortVLOpPacketsLayout       = ofOpcode("PortVLOpPackets", 36, each("PortVLOpPackets", 16, ib.NumVL))
	PortVLOpDataLayout          = ofOpcode("PortVLOpData", 68, each("PortVLOpData", 32, ib.NumVL))
	PortVLXmitFlowCtlErrsLayout = pmHead("PortVLXmitFlowCtlUpdateErrors", 8,
		each("PortVLXmitFlowCtlUpdateErrors", 2, ib.NumVL))
	PortVLXmitWaitLayout     = pmHead("PortVLXmitWaitCounters", 36, each("PortVLXmitWait", 16, ib.NumVL))
	SwPortVLCongestionLayout = pmHead("SwPortVLCongestion", 36, each("SWPortVLCongestion", 16, ib.NumVL))
	PortRcvConCtrlLayout     = pmHead("PortRcvConCtrl", 12,
		Field{Name: "PortPktRcvFECN", Off: 32, Bits: 32}, Field{Name: "PortPktRcvBECN", Off: 64, Bits: 32})
	PortSLRcvFECNLayout      = pmHead("PortSLRcvFECN", 68, each("PortSLRcvFECN", 32, ib.NumSL))
	PortSLRcvBECNLayout      = pmHead("PortSLRcvBECN", 68, each("PortSLRcvBECN", 32, ib.NumSL))
	PortXmitConCtrlLayout    = pmHead("PortXmitConCtrl", 8, Field{Name: "PortXmitTimeCong", Off: 32, Bits: 32})
	PortVLXmitTimeCongLayout = pmHead("PortVLXmitTimeCong", 64, each("PortVLXmitTimeCong", 32, ib.NumVL-1))
	PortXmitDataSLLayout     = pmHead("PortXmitDataSL", 68, each("XmtDataSL", 32, ib.NumSL))
	PortRcvDataSLLayout      = pmHead("PortRcvDataSL", 68, each("RcvDataSL", 32, ib.NumSL))
)

// physLanes is how many physical lanes a link has at most.
const physLanes = 12

// PortExtSpeedsCountersLayout is the errors that the encodings of extended speeds find and correct
// (IBA 16.1.4.12). With Reed-Solomon FEC the correctable ones are symbols, and the last three mean something.
var PortExtSpeedsCountersLayout = Layout{"PortExtendedSpeedsCounters", 152, []Field{
	{Name: "PortSelect", Off: 8, Bits: 8},
	{Name: "CounterSelect", Off: 64, Bits: 64, Kind: Hex},
	{Name: "SyncHeaderErrorCounter", Off: 128, Bits: 16},
	{Name: "UnknownBlockCounter", Off: 144, Bits: 16},
	{Name: "ErrorDetectionCounterLane", Off: 160, Bits: 16, Count: physLanes, Stride: 16},
	{Name: "FECCorrectableBlockCtrLane", Off: 352, Bits: 32, Count: physLanes, Stride: 32},
	{Name: "FECUncorrectableBlockCtrLane", Off: 736, Bits: 32, Count: physLanes, Stride: 32},
	{Name: "PortFECCorrectableBlockCtr", Off: 1120, Bits: 32},
	{Name: "PortFECUncorrectableBlockCtr", Off: 1152, Bits: 32},
	{Name: "PortFECCorrectedSymbolCtr", Off: 1184, Bits: 32},
}}
