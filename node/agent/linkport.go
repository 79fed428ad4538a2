package agent

import (
	"errors"
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// ErrLink is matched by every PortInfo that a link refused.
var ErrLink = errors.New("link refused")

// Identity is what a node says of itself in NodeInfo and NodeDescription.
type Identity struct {
	Type ib.NodeType
	GUID ib.GUID
	// SystemGUID is shared by the nodes of one chassis.
	SystemGUID ib.GUID
	VendorID   uint32
	DeviceID   uint16
	Revision   uint32
	Desc       string
}

// IdentityOf is the identity of a node of a graph.
func IdentityOf(n *topo.Node) Identity {
	return Identity{Type: n.Type, GUID: n.GUID, SystemGUID: n.SystemGUID, VendorID: n.VendorID, DeviceID: n.DeviceID,
		Desc: n.Desc}
}

// NodeInfo is the identity of a node of so many ports, seen from a port that
// has this GUID.
func (id *Identity) NodeInfo(ports int, port ib.GUID, partitions uint16) mad.NodeInfo {
	return mad.NodeInfo{
		BaseVersion: mad.BaseVersion, ClassVersion: 1, NodeType: id.Type, NumPorts: uint8(ports),
		SystemImageGUID: id.SystemGUID, NodeGUID: id.GUID, PortGUID: port, PartitionCap: partitions,
		DeviceID: id.DeviceID, Revision: id.Revision, VendorID: id.VendorID,
	}
}

// Link is the engine of a port, as far as PortInfo reads and writes it.
type Link interface {
	Rate() ib.LinkRate
	MTUCap() ib.MTU
	VLCap() uint8
	State() ib.PortState
	Phys() ib.PhysState
	NeighborMTU() ib.MTU
	OperVLs() uint8
	HOQLife() (code uint8, t ib.Time)
	VLStallCount() uint8
	ErrorThresholds() (phy, overrun uint8)

	Command(now ib.Time, to ib.PortState) error
	CommandPhys(now ib.Time, to ib.PhysState) error
	SetNeighborMTU(ib.MTU) error
	SetOperVLs(now ib.Time, n uint8) error
	SetHOQLife(code uint8)
	SetVLStallCount(n uint8)
	SetErrorThresholds(phy, overrun uint8)
}

// Bits of CapabilityMask2 (IBA 14.2.5.6).
const (
	cap2LinkWidth2x     = 1 << 4
	cap2LinkSpeedHDR    = 1 << 5
	cap2LinkSpeedNDR    = 1 << 10
	cap2ExtendedSpeeds2 = 1 << 11
	cap2LinkSpeedXDR    = 1 << 12
)

// arbCap is how many slots each arbitration table of a port has, the most that
// there can be (IBA 7.6.9).
const arbCap = 2 * mad.VLArbPerBlock

// LinkPort is the part of PortInfo that is about a link. What the link's engine
// holds is read from there and written there; what no engine needs (masks of
// enabled widths and speeds) is kept here. A node has one for each port.
type LinkPort struct {
	supported   ib.LinkRate
	width       ib.Width // enabled, a set
	speed       uint8    // enabled, three sets
	speedExt    uint8
	speedExt2   uint8
	downDefault ib.PhysState
	mlnxSpeed   uint8 // enabled, Mellanox' own set
	mlnxChange  uint8 // StateChangeEnable, which nothing depends on
}

// NewLinkPort is the state after power-on of a port that can do no better than
// supported.
func NewLinkPort(supported ib.LinkRate) LinkPort {
	if supported.Width == 0 {
		supported.Width = ib.Width4x
	}
	if supported.Speed == 0 {
		supported.Speed = ib.SDR
	}
	var pi mad.PortInfo
	pi.SetSpeeds(supported.Speed, supported.Speed, 0)
	return LinkPort{
		supported: supported, width: widthsUpTo(supported.Width),
		speed: pi.LinkSpeedEnabled, speedExt: pi.LinkSpeedExtEnabled, speedExt2: pi.LinkSpeedExtEnabled2,
		downDefault: ib.PhysPolling, mlnxSpeed: mlnxSpeeds(supported.Speed),
	}
}

// widthsUpTo is the set of widths that a port of width w falls back to.
func widthsUpTo(w ib.Width) ib.Width {
	set := ib.Width1x | w
	if w.Lanes() > 4 {
		set |= ib.Width4x
	}
	return set
}

// Best is the fastest rate that the masks let the port train at.
func (p *LinkPort) Best() ib.LinkRate {
	var best ib.Width
	for w := ib.Width1x; w <= ib.Width2x; w <<= 1 {
		if p.width&w != 0 && w.Lanes() > best.Lanes() {
			best = w
		}
	}
	pi := mad.PortInfo{LinkSpeedEnabled: p.speed, LinkSpeedExtEnabled: p.speedExt, LinkSpeedExtEnabled2: p.speedExt2}
	speed := pi.EnabledSpeed()
	if speed == ib.QDR && p.mlnxSpeed&mad.MlnxSpeedFDR10 != 0 {
		speed = ib.FDR10 // PortInfo has no bit of its own for it
	}
	return ib.LinkRate{Width: best, Speed: speed}
}

// mlnxSpeeds is MlnxExtPortInfo's set of what a port of some speed can do. Devices that are
// faster than FDR10 do not fall back to it.
func mlnxSpeeds(s ib.Speed) uint8 {
	if s == ib.FDR10 {
		return mad.MlnxSpeedFDR10
	}
	return 0
}

// ReadMlnx is the port's MlnxExtPortInfo.
func (p *LinkPort) ReadMlnx(l Link) mad.MlnxExtPortInfo {
	m := mad.MlnxExtPortInfo{
		StateChangeEnable: p.mlnxChange, LinkSpeedSupported: mlnxSpeeds(p.supported.Speed),
		LinkSpeedEnabled: p.mlnxSpeed,
	}
	if l.State() != ib.PortDown {
		m.LinkSpeedActive = mlnxSpeeds(l.Rate().Speed)
	}
	return m
}

// WriteMlnx applies a MlnxExtPortInfo: the next training goes by it.
func (p *LinkPort) WriteMlnx(m mad.MlnxExtPortInfo) {
	p.mlnxSpeed = m.LinkSpeedEnabled & mlnxSpeeds(p.supported.Speed)
	p.mlnxChange = m.StateChangeEnable
}

// lanes encodes a number of lanes, rounded down to one that PortInfo has.
func lanes(n uint8) mad.VLCount {
	c := mad.VLCount(1)
	for c < 5 && (c+1).VLs() <= int(n) {
		c++
	}
	return c
}

// Read fills in the fields of pi that are about the link.
func (p *LinkPort) Read(l Link, pi *mad.PortInfo) {
	pi.PortState, pi.PortPhysicalState = l.State(), l.Phys()
	pi.LinkDownDefaultState = p.downDefault
	pi.LinkWidthSupported, pi.LinkWidthEnabled = widthsUpTo(p.supported.Width), p.width
	active := l.Rate()
	if pi.PortState == ib.PortDown {
		// The last link's rate says nothing; the standard wants some value.
		active = ib.LinkRate{Width: ib.Width1x}
	}
	pi.LinkWidthActive = active.Width
	pi.SetSpeeds(p.supported.Speed, p.supported.Speed, active.Speed)
	pi.LinkSpeedEnabled, pi.LinkSpeedExtEnabled, pi.LinkSpeedExtEnabled2 = p.speed, p.speedExt, p.speedExt2
	if pi.LinkWidthSupported&ib.Width2x != 0 {
		pi.CapabilityMask |= mad.CapCapabilityMask2
		pi.CapabilityMask2 |= cap2LinkWidth2x
	}
	for _, s := range [...]struct {
		from ib.Speed
		bits uint16
	}{{ib.HDR, cap2LinkSpeedHDR}, {ib.NDR, cap2LinkSpeedNDR}, {ib.XDR, cap2ExtendedSpeeds2 | cap2LinkSpeedXDR}} {
		if p.supported.Speed >= s.from {
			pi.CapabilityMask2 |= s.bits
		}
	}
	pi.MTUCap, pi.NeighborMTU = l.MTUCap(), l.NeighborMTU()
	pi.VLCap, pi.OperationalVLs = lanes(l.VLCap()), lanes(l.OperVLs())
	pi.VLArbitrationHighCap, pi.VLArbitrationLowCap = arbCap, arbCap
	pi.HOQLife, _ = l.HOQLife()
	pi.VLStallCount = l.VLStallCount()
	pi.LocalPhyErrors, pi.OverrunErrors = l.ErrorThresholds()
}

// LinkError says what a link refused, with nothing of the PortInfo applied.
type LinkError struct {
	Field string
	Got   fmt.Stringer
	Want  string
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("agent: PortInfo: %s %v: want %s", e.Field, e.Got, e.Want)
}

// Unwrap makes errors.Is(err, ErrLink) true.
func (e *LinkError) Unwrap() error { return ErrLink }

// Write applies a PortInfo that the agent has merged and checked: all of it, or
// nothing and an error.
func (p *LinkPort) Write(now ib.Time, l Link, pi *mad.PortInfo) error {
	switch s, from := pi.PortState, l.State(); {
	case s == ib.PortArmed && from != ib.PortInit && from != ib.PortArmed,
		s == ib.PortActive && from != ib.PortArmed && from != ib.PortActive:
		return &LinkError{"PortState", s, "a state that can follow " + from.String()}
	case !pi.NeighborMTU.IsValid() || pi.NeighborMTU > l.MTUCap():
		return &LinkError{"NeighborMTU", pi.NeighborMTU, "at most " + l.MTUCap().String()}
	case !pi.OperationalVLs.IsValid() || pi.OperationalVLs.VLs() > int(l.VLCap()):
		return &LinkError{"OperationalVLs", pi.OperationalVLs, "at most " + lanes(l.VLCap()).String()}
	}
	p.width = pi.LinkWidthEnabled
	p.speed, p.speedExt, p.speedExt2 = pi.LinkSpeedEnabled, pi.LinkSpeedExtEnabled, pi.LinkSpeedExtEnabled2
	p.downDefault = pi.LinkDownDefaultState
	l.SetErrorThresholds(pi.LocalPhyErrors, pi.OverrunErrors)
	if pi.NeighborMTU != l.NeighborMTU() {
		if err := l.SetNeighborMTU(pi.NeighborMTU); err != nil {
			return err
		}
	}
	if pi.OperationalVLs != lanes(l.OperVLs()) {
		if err := l.SetOperVLs(now, uint8(pi.OperationalVLs.VLs())); err != nil {
			return err
		}
	}
	l.SetHOQLife(pi.HOQLife)
	l.SetVLStallCount(pi.VLStallCount)
	phys := pi.PortPhysicalState
	if pi.PortState == ib.PortDown && phys == ib.PhysNoChange {
		phys = p.downDefault
	}
	if phys != ib.PhysNoChange {
		return l.CommandPhys(now, phys)
	}
	return l.Command(now, pi.PortState)
}

// arbEntry is an entry of an arbitration table, whatever the node calls it.
type arbEntry interface {
	~struct {
		VL     ib.VL
		Weight uint8
	}
}

// arbPart is the part of a pair of tables that a block stands for.
func arbPart[E arbEntry](high, low []E, block mad.VLArbBlock) []E {
	t := low
	if block >= mad.VLArbHigh0 {
		t = high
	}
	if block == mad.VLArbLow1 || block == mad.VLArbHigh1 {
		t = t[mad.VLArbPerBlock:]
	}
	return t[:mad.VLArbPerBlock]
}

// ReadArb is one block of a port's arbitration tables.
func ReadArb[E arbEntry](high, low []E, block mad.VLArbBlock) (t mad.VLArb) {
	for i, e := range arbPart(high, low, block) {
		t[i] = mad.VLArbEntry(e)
	}
	return t
}

// WriteArb replaces one block of a port's arbitration tables.
func WriteArb[E arbEntry](high, low []E, block mad.VLArbBlock, t mad.VLArb) {
	part := arbPart(high, low, block)
	for i := range t {
		part[i] = E(t[i])
	}
}
