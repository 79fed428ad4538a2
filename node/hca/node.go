package hca

import (
	"errors"
	"fmt"
	"slices"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Sizes of the tables that management sees, of each port.
const (
	PartitionCap = 128
	GUIDCap      = 128
)

// AckDelay is how long an adapter may take to acknowledge (Local CA ACK Delay), 4.096 us * 2^n: 134 ms, since a process
// on a busy machine answers late.
const AckDelay = 15

// ErrNode is matched by every management write that an adapter refused.
var ErrNode = errors.New("adapter table")

// NodeConfig is what management is told of an adapter.
type NodeConfig struct {
	agent.Identity
	// Supported is the best rate of each port, by number; what the port's link
	// runs at where it is missing.
	Supported []ib.LinkRate
}

// Node shows an adapter and its links to their agent, and applies there
// what a manager writes.
type Node struct {
	hca   *HCA
	links []*link.Port // 0 is nil
	cfg   NodeConfig
	ports []nodePort
}

// nodePort is what PortInfo holds that neither the adapter nor the link need.
type nodePort struct {
	agent.LinkPort
	subnetTimeOut uint8
	alarms        link.Alarm // not yet told of
}

var _ agent.Node = (*Node)(nil)

// NewNode makes the view that agent.New takes. links are the adapter's ports'
// by number; their rates should have been set before.
func NewNode(h *HCA, links []*link.Port, cfg NodeConfig) *Node {
	if len(links) != len(h.ports) {
		panic(fmt.Sprintf("hca: %d links for %d ports: want one each, and none at 0", len(links)-1, h.NumPorts()))
	}
	if cfg.Type == 0 {
		cfg.Type = ib.NodeCA
	}
	if cfg.GUID == 0 {
		cfg.GUID = h.cfg.NodeGUID
	}
	if cfg.SystemGUID == 0 {
		cfg.SystemGUID = cfg.GUID
	}
	n := &Node{hca: h, links: links, cfg: cfg, ports: make([]nodePort, len(links))}
	for i := 1; i < len(links); i++ {
		r := links[i].Rate()
		if i < len(cfg.Supported) && cfg.Supported[i] != (ib.LinkRate{}) {
			r = cfg.Supported[i]
		}
		n.ports[i].LinkPort = agent.NewLinkPort(r)
	}
	return n
}

// TrainRate is the best rate that a manager lets a port train at.
func (n *Node) TrainRate(port ib.PortNum) ib.LinkRate { return n.ports[port].Best() }

// Sync tells the adapter the state of a port's link, after the link went up or
// down by itself.
func (n *Node) Sync(port ib.PortNum) {
	p := *n.hca.Port(port)
	p.State, p.MTU, p.Rate = n.links[port].State(), n.links[port].NeighborMTU(), n.links[port].Rate()
	n.hca.SetPort(port, p)
}

// NodeInfo is the adapter's identity, seen from a port.
func (n *Node) NodeInfo(port ib.PortNum) mad.NodeInfo {
	return n.cfg.Identity.NodeInfo(n.hca.NumPorts(), n.hca.ports[port].GUID, PartitionCap)
}

// NodeDescription is the adapter's name.
func (n *Node) NodeDescription() string { return n.cfg.Desc }

// PortInfo is a port's state, capabilities and configuration.
func (n *Node) PortInfo(port ib.PortNum) mad.PortInfo {
	p := &n.hca.ports[port]
	pi := mad.PortInfo{
		GidPrefix: p.prefix(), LID: p.LID, LMC: p.LMC, MasterSMLID: p.SMLID, MasterSMSL: p.SMSL,
		CapabilityMask: mad.CapAutomaticMigration | mad.CapSLMapping | mad.CapSystemImageGUID |
			mad.CapClientReregistration,
		PKeyViolations: p.PKeyViolations, QKeyViolations: p.QKeyViolations,
		GUIDCap: GUIDCap, SubnetTimeOut: n.ports[port].subnetTimeOut,
	}
	n.ports[port].Read(n.links[port], &pi)
	_, _, pi.VLHighLimit = n.links[port].ArbTables()
	return pi
}

// prefix is the subnet prefix of the port's GIDs.
func (p *Port) prefix() uint64 {
	if len(p.GIDs) == 0 {
		return ib.DefaultGIDPrefix
	}
	return p.GIDs[0].Prefix()
}

// SetPortInfo applies what a manager wrote. Programs hear of it by events.
func (n *Node) SetPortInfo(now ib.Time, port ib.PortNum, pi mad.PortInfo) error {
	l := n.links[port]
	if err := n.ports[port].Write(now, l, &pi); err != nil {
		return err
	}
	l.SetHighLimit(pi.VLHighLimit)
	n.ports[port].subnetTimeOut = pi.SubnetTimeOut
	p := n.hca.ports[port]
	p.State, p.MTU, p.Rate = l.State(), l.NeighborMTU(), l.Rate()
	p.LID, p.LMC = pi.LID, pi.LMC
	p.SMLID, p.SMSL = pi.MasterSMLID, pi.MasterSMSL
	if pi.PKeyViolations == 0 {
		p.PKeyViolations = 0
	}
	if pi.QKeyViolations == 0 {
		p.QKeyViolations = 0
	}
	if pi.GidPrefix != p.prefix() {
		p.GIDs = slices.Clone(p.GIDs)
		for i, g := range p.GIDs {
			if !g.IsZero() {
				p.GIDs[i] = ib.MakeGID(pi.GidPrefix, g.GUID())
			}
		}
	}
	n.hca.SetPort(port, p)
	if pi.ClientReregister {
		n.hca.Reregister(port)
	}
	return nil
}

// GUIDs is a block of the port's GUID table: the lower halves of its GIDs.
func (n *Node) GUIDs(port ib.PortNum, block int) (g mad.GUIDInfo) {
	for i := range g {
		if at := block*mad.GUIDsPerBlock + i; at < len(n.hca.ports[port].GIDs) {
			g[i] = n.hca.ports[port].GIDs[at].GUID()
		}
	}
	return g
}

// SetGUIDs writes a block of the GUID table, and so the port's GIDs. A GUID of 0
// leaves its place empty.
func (n *Node) SetGUIDs(_ ib.Time, port ib.PortNum, block int, g mad.GUIDInfo) error {
	p := n.hca.ports[port]
	gids := writeBlock(p.GIDs, block, mad.GUIDsPerBlock, func(i int) ib.GID {
		if g[i] == 0 {
			return ib.GID{}
		}
		return ib.MakeGID(p.prefix(), g[i])
	})
	if len(gids) == 0 || gids[0].IsZero() {
		return fmt.Errorf("hca: GUIDInfo: GUID 0 of port %d is 0: want the port's own: %w", port, ErrNode)
	}
	p.GIDs = gids
	n.hca.SetPort(port, p)
	return nil
}

// PKeys is a block of the port's partition table.
func (n *Node) PKeys(port ib.PortNum, block int) (t mad.PKeyTable) {
	if keys, at := n.hca.ports[port].PKeys, block*mad.PKeysPerBlock; at < len(keys) {
		copy(t[:], keys[at:])
	}
	return t
}

// SetPKeys writes a block of the partition table. Keys keep their places, since
// queue pairs name them by index.
func (n *Node) SetPKeys(_ ib.Time, port ib.PortNum, block int, t mad.PKeyTable) error {
	p := n.hca.ports[port]
	p.PKeys = writeBlock(p.PKeys, block, mad.PKeysPerBlock, func(i int) ib.PKey { return t[i] })
	n.hca.SetPort(port, p)
	return nil
}

// writeBlock is a copy of table with a block of n entries replaced and no empty
// entries at its end.
func writeBlock[T comparable](table []T, block, n int, entry func(int) T) []T {
	var none T
	out := make([]T, max(len(table), (block+1)*n))
	copy(out, table)
	for i := range n {
		out[block*n+i] = entry(i)
	}
	end := len(out)
	for end > 0 && out[end-1] == none {
		end--
	}
	return slices.Clip(out[:end])
}

// SLtoVL is the lane of each service level of what the port sends.
func (n *Node) SLtoVL(_, port ib.PortNum) mad.SLtoVL { return n.links[port].SL2VLMap() }

// SetSLtoVL writes it.
func (n *Node) SetSLtoVL(_ ib.Time, _, port ib.PortNum, t mad.SLtoVL) error {
	n.links[port].SetSL2VL(t)
	return nil
}

// VLArb is a part of a port's arbitration tables.
func (n *Node) VLArb(port ib.PortNum, block mad.VLArbBlock) mad.VLArb {
	high, low, _ := n.links[port].ArbTables()
	return agent.ReadArb(high[:], low[:], block)
}

// SetVLArb writes it.
func (n *Node) SetVLArb(_ ib.Time, port ib.PortNum, block mad.VLArbBlock, t mad.VLArb) error {
	high, low, _ := n.links[port].ArbTables()
	agent.WriteArb(high[:], low[:], block, t)
	if block >= mad.VLArbHigh0 {
		n.links[port].SetArbHigh(0, high[:])
	} else {
		n.links[port].SetArbLow(0, low[:])
	}
	return nil
}

// ReadCounter is a counter of a port's link.
func (n *Node) ReadCounter(port ib.PortNum, c ib.Counter) uint64 { return n.links[port].Counter(c) }

// ReadLaneCounter is a counter of a lane or a level of a port's link.
func (n *Node) ReadLaneCounter(port ib.PortNum, c ib.LaneCounter, i int) uint64 {
	if int(port) < len(n.hca.told) {
		switch t := &n.hca.told[port]; c {
		case ib.SLRcvFECN:
			return t.FECN[i&15]
		case ib.SLRcvBECN:
			return t.BECN[i&15]
		}
	}
	return n.links[port].LaneCounter(c, i)
}

// SetCongestion applies what a manager wrote of how a port slows down.
func (n *Node) SetCongestion(port ib.PortNum, c agent.CongestionSetting) {
	own := Congestion{Levels: c.ControlMap, ByLevel: c.PortControl&1 != 0, Limit: c.Limit}
	copy(own.Table[:], c.Table)
	for i, e := range c.Entries {
		own.Entries[i] = CongestionEntry{Timer: e.Timer, Increase: e.Increase, Min: e.Min}
	}
	n.hca.SetCongestion(port, own)
}

// MlnxExtPortInfo is a port's FDR10.
func (n *Node) MlnxExtPortInfo(port ib.PortNum) mad.MlnxExtPortInfo {
	return n.ports[port].ReadMlnx(n.links[port])
}

// SetMlnxExtPortInfo lets a port train at FDR10, or not.
func (n *Node) SetMlnxExtPortInfo(_ ib.Time, port ib.PortNum, pi mad.MlnxExtPortInfo) error {
	n.ports[port].WriteMlnx(pi)
	return nil
}

// ClearCounter sets it to 0.
func (n *Node) ClearCounter(port ib.PortNum, c ib.Counter) { n.links[port].SetCounter(c, 0) }
