package mad

import "softib/proto/ib"

// CounterAttr is an attribute that shows counters: which, where, and by which
// bit of CounterSelect each is written.
type CounterAttr struct {
	ID     AttrID
	Layout *Layout
	Rows   []CounterRow

	portSelect, select1, select2 *Field
}

// CounterSource says what a row of an attribute shows.
type CounterSource uint8

// Sources.
const (
	FromCounter CounterSource = iota // Counter
	FromLane                         // Lane, of lane or level Elem
	FromLanes                        // Lane, the sum over all
	FromNothing                      // what no engine counts: always 0
)

// CounterRow is one counter of an attribute. Select is its bit in
// CounterSelect; where there is a CounterSelect2, from 16 on in that.
type CounterRow struct {
	Counter ib.Counter
	Select  uint8
	Field   *Field
	Elem    int // of an array
	Source  CounterSource
	Lane    ib.LaneCounter
}

// counterAttrs lists each attribute's counters in the order of their select
// bits, which is not that of the layout.
var counterAttrs = []*CounterAttr{
	newCounterAttr(AttrPortCounters, &PortCountersLayout, []ib.Counter{
		ib.SymbolErrorCounter, ib.LinkErrorRecoveryCounter, ib.LinkDownedCounter, ib.PortRcvErrors,
		ib.PortRcvRemotePhysicalErrors, ib.PortRcvSwitchRelayErrors, ib.PortXmitDiscards,
		ib.PortXmitConstraintErrors, ib.PortRcvConstraintErrors, ib.LocalLinkIntegrityErrors,
		ib.ExcessiveBufferOverrunErrors, ib.VL15Dropped, ib.PortXmitData, ib.PortRcvData,
		ib.PortXmitPkts, ib.PortRcvPkts,
	}, []ib.Counter{ib.PortXmitWait, ib.QP1Dropped}),
	newCounterAttr(AttrPortRcvErrorDetails, &PortRcvErrorDetailsLayout, []ib.Counter{
		ib.PortLocalPhysicalErrors, ib.PortMalformedPacketErrors, ib.PortBufferOverrunErrors,
		ib.PortDLIDMappingErrors, ib.PortVLMappingErrors, ib.PortLoopingErrors,
	}, nil),
	newCounterAttr(AttrPortXmitDiscardDetails, &PortXmitDiscardDetailsLayout, []ib.Counter{
		ib.PortInactiveDiscards, ib.PortNeighborMTUDiscards, ib.PortSwLifetimeLimitDiscards,
		ib.PortSwHOQLifetimeLimitDiscards,
	}, nil),
	newCounterAttr(AttrPortCountersExtended, &PortCountersExtendedLayout, []ib.Counter{
		ib.PortXmitData, ib.PortRcvData, ib.PortXmitPkts, ib.PortRcvPkts, ib.PortUnicastXmitPkts,
		ib.PortUnicastRcvPkts, ib.PortMulticastXmitPkts, ib.PortMulticastRcvPkts,
	}, []ib.Counter{
		ib.SymbolErrorCounter, ib.LinkErrorRecoveryCounter, ib.LinkDownedCounter, ib.PortRcvErrors,
		ib.PortRcvRemotePhysicalErrors, ib.PortRcvSwitchRelayErrors, ib.PortXmitDiscards,
		ib.PortXmitConstraintErrors, ib.PortRcvConstraintErrors, ib.LocalLinkIntegrityErrors,
		ib.ExcessiveBufferOverrunErrors, ib.VL15Dropped, ib.PortXmitWait, ib.QP1Dropped,
	}),
	newCounterAttr(AttrPortFlowCtlCounters, &PortFlowCtlCountersLayout, []ib.Counter{
		ib.PortXmitFlowPkts, ib.PortRcvFlowPkts,
	}, nil),
	newArrayAttr(AttrPortOpRcvCounters, &PortOpRcvCountersLayout, []arrayRow{
		{"PortOpRcvPkts", FromLanes, ib.VLRcvPkts}, {"PortOpRcvData", FromLanes, ib.VLRcvData},
	}),
	newArrayAttr(AttrPortVLOpPackets, &PortVLOpPacketsLayout, []arrayRow{{"PortVLOpPackets", FromLane, ib.VLRcvPkts}}),
	newArrayAttr(AttrPortVLOpData, &PortVLOpDataLayout, []arrayRow{{"PortVLOpData", FromLane, ib.VLRcvData}}),
	newArrayAttr(AttrPortVLXmitFlowCtlErrs, &PortVLXmitFlowCtlErrsLayout,
		[]arrayRow{{"PortVLXmitFlowCtlUpdateErrors", FromNothing, 0}}),
	newArrayAttr(AttrPortVLXmitWait, &PortVLXmitWaitLayout, []arrayRow{{"PortVLXmitWait", FromLane, ib.VLXmitWait}}),
	newArrayAttr(AttrPortExtSpeedsCounters, &PortExtSpeedsCountersLayout, []arrayRow{
		{"SyncHeaderErrorCounter", FromNothing, 0}, {"UnknownBlockCounter", FromNothing, 0},
		{"ErrorDetectionCounterLane", FromNothing, 0}, {"FECCorrectableBlockCtrLane", FromNothing, 0},
		{"FECUncorrectableBlockCtrLane", FromNothing, 0}, {"PortFECCorrectableBlockCtr", FromNothing, 0},
		{"PortFECUncorrectableBlockCtr", FromNothing, 0}, {"PortFECCorrectedSymbolCtr", FromNothing, 0},
	}),
	newArrayAttr(AttrSwPortVLCongestion, &SwPortVLCongestionLayout,
		[]arrayRow{{"SWPortVLCongestion", FromLane, ib.VLMarked}}),
	newArrayAttr(AttrPortRcvConCtrl, &PortRcvConCtrlLayout,
		[]arrayRow{{"PortPktRcvFECN", FromLanes, ib.SLRcvFECN}, {"PortPktRcvBECN", FromLanes, ib.SLRcvBECN}}),
	newArrayAttr(AttrPortSLRcvFECN, &PortSLRcvFECNLayout, []arrayRow{{"PortSLRcvFECN", FromLane, ib.SLRcvFECN}}),
	newArrayAttr(AttrPortSLRcvBECN, &PortSLRcvBECNLayout, []arrayRow{{"PortSLRcvBECN", FromLane, ib.SLRcvBECN}}),
	newArrayAttr(AttrPortXmitConCtrl, &PortXmitConCtrlLayout,
		[]arrayRow{{"PortXmitTimeCong", FromLanes, ib.VLXmitTimeCong}}),
	newArrayAttr(AttrPortVLXmitTimeCong, &PortVLXmitTimeCongLayout,
		[]arrayRow{{"PortVLXmitTimeCong", FromLane, ib.VLXmitTimeCong}}),
	newArrayAttr(AttrPortXmitDataSL, &PortXmitDataSLLayout, []arrayRow{{"XmtDataSL", FromLane, ib.SLXmitData}}),
	newArrayAttr(AttrPortRcvDataSL, &PortRcvDataSLLayout, []arrayRow{{"RcvDataSL", FromLane, ib.SLRcvData}}),
}

// arrayRow names a field of a layout, each element of which is a counter with a select bit of its own, and
// says what it shows.
type arrayRow struct {
	field  string
	source CounterSource
	lane   ib.LaneCounter
}

// newArrayAttr makes an attribute whose select bits follow its fields and their elements.
func newArrayAttr(id AttrID, l *Layout, rows []arrayRow) *CounterAttr {
	a := newCounterAttr(id, l, nil, nil)
	for _, r := range rows {
		f := l.Field(r.field)
		for e := range f.Len() {
			a.Rows = append(a.Rows, CounterRow{
				Counter: ib.NumCounter, Select: uint8(len(a.Rows)), Field: f, Elem: e, Source: r.source, Lane: r.lane,
			})
		}
	}
	return a
}

func newCounterAttr(id AttrID, l *Layout, sel1, sel2 []ib.Counter) *CounterAttr {
	a := &CounterAttr{
		ID: id, Layout: l,
		portSelect: l.Field("PortSelect"), select1: l.Field("CounterSelect"), select2: l.Field("CounterSelect2"),
	}
	for i, c := range sel1 {
		a.Rows = append(a.Rows, CounterRow{Counter: c, Select: uint8(i), Field: l.Field(c.String())})
	}
	for i, c := range sel2 {
		a.Rows = append(a.Rows, CounterRow{Counter: c, Select: uint8(16 + i), Field: l.Field(c.String())})
	}
	return a
}

// CounterAttrByID finds a counter attribute; nil if id is not one.
func CounterAttrByID(id AttrID) *CounterAttr {
	for _, a := range counterAttrs {
		if a.ID == id {
			return a
		}
	}
	return nil
}

// HasOpCode reports whether the attribute is about packets of the opcode in its first byte.
func (a *CounterAttr) HasOpCode() bool { return a.Layout.Field("OpCode") != nil }

// PortSelect is the port that a request is about.
func (a *CounterAttr) PortSelect(b []byte) uint8 { return uint8(a.portSelect.Get(b, 0)) }

// SetPortSelect names the port that a request is about.
func (a *CounterAttr) SetPortSelect(b []byte, port uint8) { a.portSelect.Put(b, 0, uint64(port)) }

// Select is the mask of counters that a Set is about, indexed as
// CounterRow.Select is.
func (a *CounterAttr) Select(b []byte) uint64 {
	m := a.select1.Get(b, 0)
	if a.select2 != nil {
		m |= a.select2.Get(b, 0) << 16
	}
	return m
}

// SetSelect writes the mask of counters that a Set is about.
func (a *CounterAttr) SetSelect(b []byte, mask uint64) {
	a.select1.Put(b, 0, mask)
	if a.select2 != nil {
		a.select2.Put(b, 0, mask>>16)
	}
}

// SelectAll is the mask of all counters of the attribute.
func (a *CounterAttr) SelectAll() uint64 {
	var m uint64
	for i := range a.Rows {
		m |= 1 << a.Rows[i].Select
	}
	return m
}

// PutCounter writes a counter at row i, stopping at the most that its field holds:
// counters never wrap (IBA 16.1.3.5).
func (a *CounterAttr) PutCounter(b []byte, i int, v uint64) {
	f := a.Rows[i].Field
	f.Put(b, a.Rows[i].Elem, min(v, f.max()))
}

// Counters reads the attribute's counters of the port as a whole; those that it does not show
// stay 0.
func (a *CounterAttr) Counters(b []byte) (c ib.Counters, err error) {
	if err := a.Layout.Check(b); err != nil {
		return c, err
	}
	for i := range a.Rows {
		if a.Rows[i].Source == FromCounter {
			c[a.Rows[i].Counter] = a.Rows[i].Field.Get(b, 0)
		}
	}
	return c, nil
}
