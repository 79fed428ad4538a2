package ib

import "fmt"

// Counter names one of a port's counters. Who keeps it counts to 64 bits;
// narrower views (PortCounters' 4 to 32 bits) are made, saturating, where they
// are read.
type Counter uint8

// The counters of PortCounters (IBA 16.1.3.5) and of the optional attributes
// PortCountersExtended, PortRcvErrorDetails and PortXmitDiscardDetails (IBA 16.1.4).
const (
	SymbolErrorCounter Counter = iota
	LinkErrorRecoveryCounter
	LinkDownedCounter
	PortRcvErrors
	PortRcvRemotePhysicalErrors
	PortRcvSwitchRelayErrors
	PortXmitDiscards
	PortXmitConstraintErrors
	PortRcvConstraintErrors
	LocalLinkIntegrityErrors
	ExcessiveBufferOverrunErrors
	VL15Dropped
	PortXmitData // in 4-byte words
	PortRcvData  // in 4-byte words
	PortXmitPkts
	PortRcvPkts
	PortXmitWait // in ticks of the sampling clock
	PortUnicastXmitPkts
	PortUnicastRcvPkts
	PortMulticastXmitPkts
	PortMulticastRcvPkts
	QP1Dropped

	// PortRcvErrorDetails: what PortRcvErrors and PortRcvSwitchRelayErrors
	// are made of.
	PortLocalPhysicalErrors
	PortMalformedPacketErrors
	PortBufferOverrunErrors
	PortDLIDMappingErrors
	PortVLMappingErrors
	PortLoopingErrors

	// PortXmitDiscardDetails: what PortXmitDiscards is made of.
	PortInactiveDiscards
	PortNeighborMTUDiscards
	PortSwLifetimeLimitDiscards
	PortSwHOQLifetimeLimitDiscards

	// PortFlowCtlCounters.
	PortXmitFlowPkts
	PortRcvFlowPkts

	NumCounter
)

var counterNames = [NumCounter]string{
	SymbolErrorCounter:             "SymbolErrorCounter",
	LinkErrorRecoveryCounter:       "LinkErrorRecoveryCounter",
	LinkDownedCounter:              "LinkDownedCounter",
	PortRcvErrors:                  "PortRcvErrors",
	PortRcvRemotePhysicalErrors:    "PortRcvRemotePhysicalErrors",
	PortRcvSwitchRelayErrors:       "PortRcvSwitchRelayErrors",
	PortXmitDiscards:               "PortXmitDiscards",
	PortXmitConstraintErrors:       "PortXmitConstraintErrors",
	PortRcvConstraintErrors:        "PortRcvConstraintErrors",
	LocalLinkIntegrityErrors:       "LocalLinkIntegrityErrors",
	ExcessiveBufferOverrunErrors:   "ExcessiveBufferOverrunErrors",
	VL15Dropped:                    "VL15Dropped",
	PortXmitData:                   "PortXmitData",
	PortRcvData:                    "PortRcvData",
	PortXmitPkts:                   "PortXmitPkts",
	PortRcvPkts:                    "PortRcvPkts",
	PortXmitWait:                   "PortXmitWait",
	PortUnicastXmitPkts:            "PortUnicastXmitPkts",
	PortUnicastRcvPkts:             "PortUnicastRcvPkts",
	PortMulticastXmitPkts:          "PortMulticastXmitPkts",
	PortMulticastRcvPkts:           "PortMulticastRcvPkts",
	QP1Dropped:                     "QP1Dropped",
	PortLocalPhysicalErrors:        "PortLocalPhysicalErrors",
	PortMalformedPacketErrors:      "PortMalformedPacketErrors",
	PortBufferOverrunErrors:        "PortBufferOverrunErrors",
	PortDLIDMappingErrors:          "PortDLIDMappingErrors",
	PortVLMappingErrors:            "PortVLMappingErrors",
	PortLoopingErrors:              "PortLoopingErrors",
	PortInactiveDiscards:           "PortInactiveDiscards",
	PortNeighborMTUDiscards:        "PortNeighborMTUDiscards",
	PortSwLifetimeLimitDiscards:    "PortSwLifetimeLimitDiscards",
	PortSwHOQLifetimeLimitDiscards: "PortSwHOQLifetimeLimitDiscards",
	PortXmitFlowPkts:               "PortXmitFlowPkts",
	PortRcvFlowPkts:                "PortRcvFlowPkts",
}

func (c Counter) String() string {
	if c < NumCounter {
		return counterNames[c]
	}
	return fmt.Sprintf("Counter(%d)", uint8(c))
}

// Counters is one port's set, indexed by Counter.
type Counters [NumCounter]uint64

// LaneCounter names a counter that a port keeps for each of its 16 virtual lanes or for each of the
// 16 service levels. It counts from when the port was made and is never reset: who shows it
// subtracts what it was at a reset.
type LaneCounter uint8

// The counters of the optional attributes that go by lane or level (IBA 16.1.4).
const (
	VLRcvPkts      LaneCounter = iota // packets received on a lane
	VLRcvData                         // the same in 4-byte words
	VLXmitWait                        // in ticks, as PortXmitWait
	SLXmitData                        // 4-byte words sent at a level
	SLRcvData                         // 4-byte words received at a level
	SLRcvFECN                         // packets of a level that had met congestion
	SLRcvBECN                         // packets of a level that told of it
	VLMarked                          // packets of a lane that a switch has marked because of congestion
	VLXmitTimeCong                    // how long its queue was so long that they are, in ticks, as PortXmitWait
	NumLaneCounter
)

var laneCounterNames = [NumLaneCounter]string{"VLRcvPkts", "VLRcvData", "VLXmitWait", "SLXmitData", "SLRcvData",
	"SLRcvFECN", "SLRcvBECN", "VLMarked", "VLXmitTimeCong"}

func (c LaneCounter) String() string {
	if c < NumLaneCounter {
		return laneCounterNames[c]
	}
	return fmt.Sprintf("LaneCounter(%d)", uint8(c))
}

// Errors is how much damage a link itself has done. A damaged symbol in a packet is counted as a symbol and, with the
// packet, once more, and so are those of which there were too many in a row: of the three the largest stands for all.
func (c *Counters) Errors() uint64 {
	return max(c[SymbolErrorCounter], c[PortRcvErrors], c[LocalLinkIntegrityErrors]) + c[LinkErrorRecoveryCounter] +
		c[ExcessiveBufferOverrunErrors]
}

// Discards is how many packets a port has given up or refused: they are no fault of the link.
func (c *Counters) Discards() uint64 {
	return c[PortXmitDiscards] + c[PortXmitConstraintErrors] + c[PortRcvConstraintErrors] +
		c[PortRcvSwitchRelayErrors] + c[VL15Dropped] + c[QP1Dropped]
}
