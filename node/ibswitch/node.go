package ibswitch

import (
	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Sizes of the tables that management sees.
const (
	partitionCap       = 32 // of port 0
	partitionEnforceSz = 32 // of each external port
)

// NodeConfig is what management is told of a switch.
type NodeConfig struct {
	agent.Identity
	// PortGUID of port 0, which stands for all; the node's GUID if zero.
	PortGUID ib.GUID
	// Supported is the best rate of each port, by number; what the port's link
	// runs at where it is missing.
	Supported []ib.LinkRate
}

// Node shows a switch to its agent, and applies there what a manager writes.
type Node struct {
	sw    *Switch
	cfg   NodeConfig
	ports []agent.LinkPort

	// Port 0 as a manager has set it up.
	prefix        uint64
	smLID         ib.LID
	smSL          ib.SL
	subnetTimeOut uint8

	// seen is the state of each port as last looked at, to tell SwitchInfo's
	// PortStateChange.
	seen     []ib.PortState
	changed  bool
	told     bool        // PollNotice has told of the last change
	overruns ib.PortMask // ports of whose overruns it has yet to tell
	// violations counts what partition enforcement refused up to a port's base.
	violations []violations
}

// violations turns two counters that may be cleared on their own into one that is
// cleared by PortInfo.
type violations struct{ held, base uint64 }

var _ agent.AdaptiveSwitch = (*Node)(nil)

// NewNode makes the view that agent.New takes. The ports' rates should have been
// set before.
func NewNode(s *Switch, cfg NodeConfig) *Node {
	cfg.Type = ib.NodeSwitch
	if cfg.PortGUID == 0 {
		cfg.PortGUID = cfg.GUID
	}
	if cfg.SystemGUID == 0 {
		cfg.SystemGUID = cfg.GUID
	}
	n := &Node{
		sw: s, cfg: cfg, prefix: ib.DefaultGIDPrefix, changed: true, told: true,
		ports: make([]agent.LinkPort, len(s.ports)), seen: make([]ib.PortState, len(s.ports)),
		violations: make([]violations, len(s.ports)),
	}
	for i := range n.ports {
		r := s.ports[i].Rate()
		if i > 0 && i < len(cfg.Supported) && cfg.Supported[i] != (ib.LinkRate{}) {
			r = cfg.Supported[i]
		}
		n.ports[i] = agent.NewLinkPort(r)
	}
	return n
}

// Switch is what the node shows.
func (n *Node) Switch() *Switch { return n.sw }

// TrainRate is the best rate that a manager lets a port train at.
func (n *Node) TrainRate(port ib.PortNum) ib.LinkRate { return n.ports[port].Best() }

// NodeInfo is the switch's identity.
func (n *Node) NodeInfo(ib.PortNum) mad.NodeInfo {
	return n.cfg.Identity.NodeInfo(n.sw.NumPorts(), n.cfg.PortGUID, partitionCap)
}

// NodeDescription is the switch's name.
func (n *Node) NodeDescription() string { return n.cfg.Desc }

// PortInfo is a port's state, capabilities and configuration.
func (n *Node) PortInfo(port ib.PortNum) mad.PortInfo {
	p := &n.sw.ports[port]
	pi := mad.PortInfo{PKeyViolations: n.readViolations(port)}
	n.ports[port].Read(p, &pi)
	_, _, pi.VLHighLimit = p.ArbTables()
	e := p.Enforcement()
	pi.PartitionEnforcementInbound = e&link.EnforcePKeyIn != 0
	pi.PartitionEnforcementOutbound = e&link.EnforcePKeyOut != 0
	pi.FilterRawInbound = e&link.EnforceRawIn != 0
	pi.FilterRawOutbound = e&link.EnforceRawOut != 0
	if port == 0 {
		pi.CapabilityMask |= mad.CapSLMapping | mad.CapSystemImageGUID
		pi.GidPrefix = n.prefix
		pi.LID, pi.LMC = n.sw.LID()
		pi.MasterSMLID, pi.MasterSMSL = n.smLID, n.smSL
		pi.SubnetTimeOut = n.subnetTimeOut
		pi.GUIDCap = 1
	}
	return pi
}

// SetPortInfo applies what a manager wrote.
func (n *Node) SetPortInfo(now ib.Time, port ib.PortNum, pi mad.PortInfo) error {
	p := &n.sw.ports[port]
	if port == 0 {
		n.prefix = pi.GidPrefix
		n.sw.SetLID(pi.LID, pi.LMC)
		n.smLID, n.smSL = pi.MasterSMLID, pi.MasterSMSL
		n.subnetTimeOut = pi.SubnetTimeOut
		if pi.PKeyViolations == 0 {
			n.clearViolations(port)
		}
		return nil
	}
	n.note(port)
	if err := n.ports[port].Write(now, p, &pi); err != nil {
		return err
	}
	// A change that a manager asked for is no news to it (IBA 14.2.5.4).
	n.seen[port] = p.State()
	p.SetHighLimit(pi.VLHighLimit)
	var e link.Enforce
	for _, f := range [...]struct {
		on  bool
		bit link.Enforce
	}{
		{pi.PartitionEnforcementInbound, link.EnforcePKeyIn},
		{pi.PartitionEnforcementOutbound, link.EnforcePKeyOut},
		{pi.FilterRawInbound, link.EnforceRawIn},
		{pi.FilterRawOutbound, link.EnforceRawOut},
	} {
		if f.on {
			e |= f.bit
		}
	}
	p.SetEnforcement(e)
	if pi.PKeyViolations == 0 {
		n.clearViolations(port)
	}
	return nil
}

// refused counts the packets that partition enforcement and raw filters of a port
// stopped; the link's counters tell them apart no further.
func (n *Node) refused(port ib.PortNum) uint64 {
	p := &n.sw.ports[port]
	return p.Counter(ib.PortRcvConstraintErrors) + p.Counter(ib.PortXmitConstraintErrors)
}

func (n *Node) readViolations(port ib.PortNum) uint16 {
	v := &n.violations[port]
	return uint16(min(v.held+n.refused(port)-v.base, 0xFFFF))
}

func (n *Node) clearViolations(port ib.PortNum) {
	n.violations[port] = violations{base: n.refused(port)}
}

// GUIDs is port 0's GUID table, which has the one entry that cannot be written.
func (n *Node) GUIDs(_ ib.PortNum, block int) (g mad.GUIDInfo) {
	if block == 0 {
		g[0] = n.cfg.PortGUID
	}
	return g
}

// SetGUIDs has nothing to write: the table's capacity is 1.
func (n *Node) SetGUIDs(_ ib.Time, _ ib.PortNum, block int, g mad.GUIDInfo) error {
	for i, guid := range g {
		if guid != 0 && (i > 0 || block > 0) {
			return &TableError{"GUIDInfo", "entry", block*mad.GUIDsPerBlock + i, 0}
		}
	}
	return nil
}

// PKeys is a block of a port's partition table.
func (n *Node) PKeys(port ib.PortNum, block int) (t mad.PKeyTable) {
	keys := n.sw.ports[port].PKeys()
	if at := block * mad.PKeysPerBlock; at < len(keys) {
		copy(t[:], keys[at:])
	}
	return t
}

// SetPKeys writes a block of a port's partition table. Keys keep their places:
// index 0 of port 0 is what its queue pairs send with.
func (n *Node) SetPKeys(_ ib.Time, port ib.PortNum, block int, t mad.PKeyTable) error {
	p := &n.sw.ports[port]
	keys := make([]ib.PKey, max(len(p.PKeys()), (block+1)*mad.PKeysPerBlock))
	copy(keys, p.PKeys())
	copy(keys[block*mad.PKeysPerBlock:], t[:])
	for len(keys) > 0 && keys[len(keys)-1] == 0 {
		keys = keys[:len(keys)-1]
	}
	p.SetPKeys(keys)
	return nil
}

// SLtoVL is the map for a pair of ports.
func (n *Node) SLtoVL(in, out ib.PortNum) mad.SLtoVL { return n.sw.SL2VL(in, out) }

// SetSLtoVL writes it.
func (n *Node) SetSLtoVL(_ ib.Time, in, out ib.PortNum, t mad.SLtoVL) error {
	return n.sw.SetSL2VL(in, out, t)
}

// SpreadSLtoVL writes it for many pairs at once: one of the ports or both are agent.AllPorts.
func (n *Node) SpreadSLtoVL(_ ib.Time, in, out ib.PortNum, t mad.SLtoVL) error {
	if in == agent.AllPorts && out == agent.AllPorts {
		n.sw.SetSL2VLAll(t)
		return nil
	}
	for i := range n.sw.ports {
		from, to := in, out
		if in == agent.AllPorts {
			from = ib.PortNum(i)
		} else {
			to = ib.PortNum(i)
		}
		if err := n.sw.SetSL2VL(from, to, t); err != nil {
			return err
		}
	}
	return nil
}

// MlnxExtPortInfo is a port's FDR10.
func (n *Node) MlnxExtPortInfo(port ib.PortNum) mad.MlnxExtPortInfo {
	return n.ports[port].ReadMlnx(&n.sw.ports[port])
}

// SetMlnxExtPortInfo lets a port train at FDR10, or not.
func (n *Node) SetMlnxExtPortInfo(_ ib.Time, port ib.PortNum, pi mad.MlnxExtPortInfo) error {
	n.ports[port].WriteMlnx(pi)
	return nil
}

// VLArb is a part of a port's arbitration tables.
func (n *Node) VLArb(port ib.PortNum, block mad.VLArbBlock) mad.VLArb {
	high, low, _ := n.sw.ports[port].ArbTables()
	return agent.ReadArb(high[:], low[:], block)
}

// SetVLArb writes it.
func (n *Node) SetVLArb(_ ib.Time, port ib.PortNum, block mad.VLArbBlock, t mad.VLArb) error {
	high, low, _ := n.sw.ports[port].ArbTables()
	agent.WriteArb(high[:], low[:], block, t)
	if block >= mad.VLArbHigh0 {
		n.sw.ports[port].SetArbHigh(0, high[:])
	} else {
		n.sw.ports[port].SetArbLow(0, low[:])
	}
	return nil
}

// ReadCounter is a counter of a port's link.
func (n *Node) ReadCounter(port ib.PortNum, c ib.Counter) uint64 {
	return n.sw.ports[port].Counter(c)
}

// ReadLaneCounter is a counter of a lane or a level of a port's link.
func (n *Node) ReadLaneCounter(port ib.PortNum, c ib.LaneCounter, i int) uint64 {
	return n.sw.ports[port].LaneCounter(c, i)
}

// ClearCounter sets it to 0.
func (n *Node) ClearCounter(port ib.PortNum, c ib.Counter) {
	v := &n.violations[port]
	v.held += n.refused(port) - v.base
	n.sw.ports[port].SetCounter(c, 0)
	v.base = n.refused(port)
}

// SwitchInfo is what the switch can do and how it forwards.
func (n *Node) SwitchInfo() mad.SwitchInfo {
	n.noteAll()
	i := n.sw.Info()
	return mad.SwitchInfo{
		LinearFDBCap: i.LinearFDBCap, MulticastFDBCap: i.MulticastFDBCap, LinearFDBTop: i.LinearFDBTop,
		DefaultPort: i.DefaultPort, DefaultMulticastPrimaryPort: i.DefaultMcastPrimary,
		DefaultMulticastNotPrimaryPort: i.DefaultMcastNotPrimary, LifeTimeValue: i.LifeTimeValue,
		PortStateChange: n.changed, PartitionEnforcementCap: partitionEnforceSz,
		InboundEnforcementCap: true, OutboundEnforcementCap: true,
		FilterRawInboundCap: true, FilterRawOutboundCap: true, EnhancedPortZero: i.EnhancedPort0,
		OptimizedSLtoVLMappingProgramming: 1,
	}
}

// SetSwitchInfo applies what a manager wrote. DefaultPort is of random
// forwarding tables alone, and this switch has a linear one.
func (n *Node) SetSwitchInfo(_ ib.Time, si mad.SwitchInfo) error {
	if err := n.sw.SetLinearFDBTop(si.LinearFDBTop); err != nil {
		return err
	}
	n.sw.SetDefaultMcast(si.DefaultMulticastPrimaryPort, si.DefaultMulticastNotPrimaryPort)
	n.sw.SetLifeTime(si.LifeTimeValue)
	if si.PortStateChange {
		n.changed = false
	}
	return nil
}

// LFT is a block of the linear forwarding table.
func (n *Node) LFT(block int) mad.LFT {
	t, err := n.sw.LFT(block)
	if err != nil {
		panic(err) // the agent asks for no block beyond LinearFDBCap
	}
	return t
}

// SetLFT writes it. A manager that writes one may not know of groups, so the switch stops choosing.
func (n *Node) SetLFT(_ ib.Time, block int, t mad.LFT) error {
	if a := n.sw.Adaptive(); a.On && !plantStays {
		a.On = false
		n.sw.SetAdaptive(a)
	}
	return n.sw.SetLFT(block, t)
}

// MFT is a block of the multicast forwarding table.
func (n *Node) MFT(block, position int) mad.MFT {
	t, err := n.sw.MFT(block, position)
	if err != nil {
		panic(err) // the agent asks for no block beyond MulticastFDBCap
	}
	return t
}

// SetMFT writes it.
func (n *Node) SetMFT(_ ib.Time, block, position int, t mad.MFT) error {
	return n.sw.SetMFT(block, position, t)
}

// SetCongestion applies what a manager wrote of how ports mark packets: one setting for all, and those of single ports.
func (n *Node) SetCongestion(all mad.SwitchCongestion, byPort []mad.SwitchPortEntry) {
	for p := 1; p < len(n.sw.ports); p++ {
		has := func(mask *[32]byte) bool { return mask[len(mask)-1-p/8]>>(p%8)&1 != 0 }
		m := link.Marking{Threshold: all.Threshold, PacketSize: all.PacketSize, Rate: all.MarkingRate,
			Victim: has(&all.VictimMask)}
		if has(&all.CreditMask) {
			m.Starvation = all.CSThreshold
		}
		if p < len(byPort) && byPort[p].Valid {
			switch e := &byPort[p]; e.ControlType {
			case false:
				m.Threshold, m.PacketSize, m.Rate = e.Threshold, e.PacketSize, e.MarkingRate
			case true:
				m.Starvation = e.Threshold
			}
		}
		n.sw.ports[p].SetMarking(m)
	}
}

// TakeMarked is what a port has marked since it was last asked.
func (n *Node) TakeMarked(port ib.PortNum) (count uint64, flows []agent.MarkedFlow) {
	count, marked := n.sw.ports[port].TakeMarked()
	for _, m := range marked {
		flows = append(flows, agent.MarkedFlow(m))
	}
	return count, flows
}

// ARInfo is how the switch chooses among ports.
func (n *Node) ARInfo() mad.ARInfo {
	a := n.sw.Adaptive()
	i := mad.ARInfo{Enabled: a.On, NoTransports: uint8(a.Fixed), TransportCap: true, BySL: a.Levels != 0xFFFF,
		BySLCap: true, SLMask: a.Levels, GroupCap: NumGroups, GroupTop: NumGroups - 1, GroupTableCap: 1, VersionCap: 1,
		AgeingTime: mad.ARNeverAges, DetourLanes: a.Detours}
	if a.Detours != 0 {
		i.SubGroupsActive = 1
	}
	if a.Ageing != ib.Never {
		i.AgeingTime = uint32(a.Ageing / ib.Microsecond)
	}
	return i
}

// SetARInfo applies what a manager wrote.
func (n *Node) SetARInfo(_ ib.Time, i mad.ARInfo) error {
	a := Adaptive{On: i.Enabled, Levels: 0xFFFF, Fixed: Transports(i.NoTransports), Ageing: ib.Never,
		Detours: i.DetourLanes, Bias: DetourBias}
	if i.BySL {
		a.Levels = i.SLMask
	}
	if i.AgeingTime != mad.ARNeverAges {
		a.Ageing = ib.Time(i.AgeingTime) * ib.Microsecond
	}
	n.sw.SetAdaptive(a)
	return nil
}

// ExtSwitchInfo is what lanes go by.
func (n *Node) ExtSwitchInfo() mad.ExtSwitchInfo {
	return mad.ExtSwitchInfo{ByLaneCap: true, ByLane: n.sw.ByLane()}
}

// SetExtSwitchInfo applies what a manager wrote.
func (n *Node) SetExtSwitchInfo(_ ib.Time, x mad.ExtSwitchInfo) error {
	n.sw.SetByLane(x.ByLane)
	return nil
}

// ARGroups is a block of the groups of ports.
func (n *Node) ARGroups(block int) (t mad.ARGroupTable) {
	for i := range t {
		t[i] = n.sw.Group(block*len(t) + i)
	}
	return t
}

// SetARGroups writes it.
func (n *Node) SetARGroups(_ ib.Time, block int, t mad.ARGroupTable) error {
	for i := range t {
		if err := n.sw.SetGroup(block*len(t)+i, t[i]); err != nil {
			return err
		}
	}
	return nil
}

// ARLFT is a block of the forwarding table with groups.
func (n *Node) ARLFT(block int) (t mad.ARLFT) {
	for i := range t {
		lid := ib.LID(block*len(t) + i)
		e := mad.AREntry{State: mad.ARStatic, Port: n.sw.Route(lid)}
		switch m := n.sw.GroupOf(lid); {
		case m.Group < 0:
			e.Group = uint16(e.Port)
		case m.Bounded:
			e.State, e.Group = mad.ARBounded, uint16(m.Group)
		default:
			e.State, e.Group = mad.ARFree, uint16(m.Group)
		}
		t[i] = e
	}
	return t
}

// SetARLFT writes it, the ports of packets that do not choose as well.
func (n *Node) SetARLFT(_ ib.Time, block int, t mad.ARLFT) error {
	for i, e := range t {
		lid := ib.LID(block*len(t) + i)
		m := Membership{Group: int(e.Group), Bounded: e.State == mad.ARBounded}
		port := e.Port
		if e.State == mad.ARStatic {
			m, port = Membership{Group: -1}, ib.PortNum(e.Group)
		}
		if err := n.sw.SetRoute(lid, port); err != nil {
			return err
		}
		if err := n.sw.SetGroupOf(lid, m); err != nil {
			return err
		}
	}
	return nil
}
