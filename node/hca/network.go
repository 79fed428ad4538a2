package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// An adapter of Ethernet whose ways depend on GIDs alone (RoCE.ByGID) has LIDs all the same, because packets inside of
// a machine do: a port has LIDPort, all others on the network have LIDNetwork, groups LIDGroup. No program sees them.
const (
	LIDPort    ib.LID = 1
	LIDNetwork ib.LID = 2
	LIDGroup   ib.LID = 0xC000
)

// networkLID is that of a GID on the network.
func networkLID(g ib.GID) ib.LID {
	if isGroup(g) {
		return LIDGroup
	}
	return LIDNetwork
}

// isGroup reports whether a GID is a group's, of IPv4 as well.
func isGroup(g ib.GID) bool {
	return g.IsMulticast() || wire.IsIPv4(g) && g[12]>>4 == 0xE
}

// networkKind is what a datagram's completion has in place of a service level: which headers came before (A17.4.5.1),
// in the code of ConnectX adapters, 8 for UDP and 1 for IPv6 or 2 for IPv4. UCX finds its own address by it.
func networkKind(from ib.GID) ib.SL {
	if wire.IsIPv4(from) {
		return 8 | 2
	}
	return 8 | 1
}

// Codes of a traffic class's lowest two bits (RFC 3168): what routers may do with a packet that meets congestion.
const (
	ecnMask    = 3
	ecnCapable = 2 // mark it, in place of losing it
	ecnMarked  = 3
)

// ToNetwork is the traffic class of a packet that a network gets. Queue pairs that are connected slow down when they
// are told of marks, so their packets may be marked, but not what tells.
func ToNetwork(p *wire.Packet) uint8 {
	class := p.GRH.TClass
	if i := p.BTH.Opcode.Info(); i.Ext&wire.ExtDETH == 0 && i.Kind != wire.KindCNP {
		class = class&^ecnMask | ecnCapable
	}
	return class
}

// FromNetwork makes a packet that has come by a network one for the port.
func FromNetwork(p *wire.Packet) {
	if p.GRH.TClass&ecnMask == ecnMarked {
		p.BTH.FECN = true
	}
	p.LRH.SLID, p.LRH.DLID = LIDNetwork, LIDPort
	if isGroup(p.GRH.DGID) {
		p.LRH.DLID = LIDGroup
	}
}
