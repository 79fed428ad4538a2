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

// FromNetwork makes a packet that has come by a network one for the port.
func FromNetwork(p *wire.Packet) {
	p.LRH.SLID, p.LRH.DLID = LIDNetwork, LIDPort
	if isGroup(p.GRH.DGID) {
		p.LRH.DLID = LIDGroup
	}
}
