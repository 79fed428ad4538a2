package link

import (
	"fmt"

	"softib/proto/ib"
)

// Reason says why a packet was dropped. A lossless fabric drops for no other.
type Reason uint8

// Reasons. OK and Behind are no drops.
const (
	OK     Reason = iota
	Behind        // queued behind another packet
	// At the receiver.
	Physical  // a CRC failed
	Malformed // LRH's version, length or VL cannot be
	Overrun   // no room in the VL's buffer: the sender ignored its credits
	VL15Full  // no room for a subnet management packet
	NotReady  // the port's state does not admit this packet
	PKeyIn    // inbound partition enforcement
	RawIn     // inbound raw packet filter
	Guarded   // subnet management from where no manager is trusted
	Forged    // from a machine that has no such sender
	// In the switch.
	UnknownDLID // no forwarding entry, or the entry says drop
	Looping     // the way out is the way in
	NoMember    // a multicast packet whose group has no other port here
	BadVLMap    // SL2VL names a lane that the way out does not have
	// In the router.
	NoRoute  // nobody knows the way to its GID
	HopLimit // it may not pass another router
	// At the transmitter.
	Inactive    // the port out is not Active
	NeighborMTU // longer than the neighbour takes
	HOQLife     // too long at the head of its queue
	SwitchLife  // too long in the switch
	VLStalled   // the lane is stalled after too many expiries
	PKeyOut     // outbound partition enforcement
	RawOut      // outbound raw packet filter
	LinkDown    // the link went down while the packet was queued
	// On Ethernet.
	BufferFull // no room in the receive buffer, and nothing keeps the sender from sending
	PauseStorm // the watchdog gives up what waits for a peer that pauses for ever
	NumReason
)

// reasonTable holds each reason's words and the counters that the standard has
// for it (IBA 16.1.3.5, 16.1.4.1, 16.1.4.2); NumCounter for none.
var reasonTable = [NumReason]struct {
	name            string
	counter, detail ib.Counter
}{
	OK:          {"ok", ib.NumCounter, ib.NumCounter},
	Behind:      {"queued behind another", ib.NumCounter, ib.NumCounter},
	Physical:    {"CRC error", ib.PortRcvErrors, ib.PortLocalPhysicalErrors},
	Malformed:   {"malformed packet", ib.PortRcvErrors, ib.PortMalformedPacketErrors},
	Overrun:     {"buffer overrun", ib.PortRcvErrors, ib.PortBufferOverrunErrors},
	VL15Full:    {"VL15 buffer full", ib.VL15Dropped, ib.NumCounter},
	NotReady:    {"port state admits no such packet", ib.NumCounter, ib.NumCounter},
	PKeyIn:      {"P_Key refused inbound", ib.PortRcvConstraintErrors, ib.NumCounter},
	RawIn:       {"raw packet refused inbound", ib.PortRcvConstraintErrors, ib.NumCounter},
	Guarded:     {"no manager is trusted here", ib.PortRcvConstraintErrors, ib.NumCounter},
	Forged:      {"the machine has no such sender", ib.PortRcvConstraintErrors, ib.NumCounter},
	UnknownDLID: {"no route to DLID", ib.PortRcvSwitchRelayErrors, ib.PortDLIDMappingErrors},
	Looping:     {"route leads back", ib.PortRcvSwitchRelayErrors, ib.PortLoopingErrors},
	NoMember:    {"no other member of the group", ib.NumCounter, ib.NumCounter},
	BadVLMap:    {"SL maps to no VL", ib.PortRcvSwitchRelayErrors, ib.PortVLMappingErrors},
	NoRoute:     {"no route to GID", ib.PortRcvSwitchRelayErrors, ib.PortDLIDMappingErrors},
	HopLimit:    {"no hops left", ib.PortRcvSwitchRelayErrors, ib.NumCounter},
	Inactive:    {"output port inactive", ib.PortXmitDiscards, ib.PortInactiveDiscards},
	NeighborMTU: {"longer than neighbour's MTU", ib.PortXmitDiscards, ib.PortNeighborMTUDiscards},
	HOQLife:     {"head-of-queue life time", ib.PortXmitDiscards, ib.PortSwHOQLifetimeLimitDiscards},
	SwitchLife:  {"switch life time", ib.PortXmitDiscards, ib.PortSwLifetimeLimitDiscards},
	VLStalled:   {"VL stalled", ib.PortXmitDiscards, ib.PortSwHOQLifetimeLimitDiscards},
	PKeyOut:     {"P_Key refused outbound", ib.PortXmitConstraintErrors, ib.NumCounter},
	RawOut:      {"raw packet refused outbound", ib.PortXmitConstraintErrors, ib.NumCounter},
	LinkDown:    {"link went down", ib.PortXmitDiscards, ib.PortInactiveDiscards},
	BufferFull:  {"buffer full", ib.PortRcvErrors, ib.PortBufferOverrunErrors},
	PauseStorm:  {"pause storm", ib.PortXmitDiscards, ib.NumCounter},
}

// IsDrop reports whether the packet goes no further.
func (r Reason) IsDrop() bool { return r > Behind }

func (r Reason) String() string {
	if r < NumReason {
		return reasonTable[r].name
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Count adds one drop to the counters that the standard has for r, and
// returns r.
func (p *Port) Count(r Reason) Reason {
	p.CountMany(r, 1)
	return r
}

// CountMany adds n drops.
func (p *Port) CountMany(r Reason, n uint64) {
	row := &reasonTable[r]
	if row.counter < ib.NumCounter {
		p.cold.count[row.counter] += n
	}
	if row.detail < ib.NumCounter {
		p.cold.count[row.detail] += n
	}
}
