package ibswitch

import (
	"errors"
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

var hdr = ib.LinkRate{Width: ib.Width4x, Speed: ib.HDR}

// managed is a switch with its agent, ports 1 and 2 trained.
func managed(t *testing.T) (*Switch, *Node, *agent.Agent) {
	t.Helper()
	s := New(Config{Ports: 4, Port: link.Config{MTUCap: ib.MTU4096, VLCap: 8}}, new(link.Pool))
	for p := ib.PortNum(1); p <= 2; p++ {
		s.Port(p).SetRate(hdr)
		s.Port(p).Train()
		s.Port(p).LinkUp(0)
	}
	n := NewNode(s, NodeConfig{
		Identity:  agent.Identity{GUID: 0x100, VendorID: 0x2c9, DeviceID: 54000, Desc: "leaf1"},
		Supported: []ib.LinkRate{{}, {}, {Width: ib.Width4x, Speed: ib.XDR}, hdr, hdr},
	})
	return s, n, agent.New(n)
}

type attr interface {
	Append([]byte) []byte
	Parse([]byte) (int, error)
}

// do makes a request; the answer's attribute is in a, if it is not nil.
func do(t *testing.T, g *agent.Agent, m mad.Method, id mad.AttrID, mod uint32, a attr) mad.Status {
	t.Helper()
	smp := mad.SMP{Method: m, Attr: id, Modifier: mod}
	if m == mad.MethodSet {
		smp.Data = a.Append(nil)
	}
	b, err := smp.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := g.HandleMAD(0, 0, b, b); !ok {
		t.Fatal("no answer")
	}
	if _, err := a.Parse(mad.View(b).Data()); err != nil {
		t.Fatal(err)
	}
	return mad.View(b).Status()
}

func mustDo(t *testing.T, g *agent.Agent, m mad.Method, id mad.AttrID, mod uint32, a attr) {
	t.Helper()
	if st := do(t, g, m, id, mod, a); st != mad.StatusOK {
		t.Fatalf("%v(%s): %v", m, mad.AttrName(mad.ClassSMLID, id), st)
	}
}

func portInfo(t *testing.T, g *agent.Agent, port uint32) (pi mad.PortInfo) {
	t.Helper()
	mustDo(t, g, mad.MethodGet, mad.AttrPortInfo, port, &pi)
	return pi
}

// writePort changes a port's PortInfo and returns what it is then.
func writePort(t *testing.T, g *agent.Agent, port uint32, change func(*mad.PortInfo)) mad.PortInfo {
	t.Helper()
	pi := portInfo(t, g, port)
	pi.PortState, pi.PortPhysicalState = 0, 0
	change(&pi)
	mustDo(t, g, mad.MethodSet, mad.AttrPortInfo, port, &pi)
	return pi
}

func TestNodeIdentity(t *testing.T) {
	_, _, g := managed(t)
	var ni mad.NodeInfo
	mustDo(t, g, mad.MethodGet, mad.AttrNodeInfo, 0, &ni)
	if ni.NodeType != ib.NodeSwitch || ni.NumPorts != 4 || ni.NodeGUID != 0x100 || ni.PortGUID != 0x100 ||
		ni.SystemImageGUID != 0x100 || ni.VendorID != 0x2c9 || ni.DeviceID != 54000 || ni.PartitionCap != partitionCap {
		t.Errorf("%+v", ni)
	}
	var d mad.NodeDescription
	mustDo(t, g, mad.MethodGet, mad.AttrNodeDescription, 0, &d)
	if d.String() != "leaf1" {
		t.Errorf("%q", d)
	}
	var guids mad.GUIDInfo
	mustDo(t, g, mad.MethodGet, mad.AttrGUIDInfo, 0, &guids)
	if guids != (mad.GUIDInfo{0x100}) {
		t.Errorf("%v", guids)
	}
	guids[1] = 5
	if st := do(t, g, mad.MethodSet, mad.AttrGUIDInfo, 0, &guids); st != mad.StatusInvalidField {
		t.Errorf("a second GUID: %v", st)
	}
}

func TestNodePortInfo(t *testing.T) {
	s, _, g := managed(t)
	pi := portInfo(t, g, 1)
	if pi.PortState != ib.PortInit || pi.PortPhysicalState != ib.PhysLinkUp || pi.Rate() != hdr ||
		pi.SupportedSpeed() != ib.HDR ||
		pi.LinkWidthSupported != ib.Width1x|ib.Width4x || pi.MTUCap != ib.MTU4096 || pi.VLCap.VLs() != 8 ||
		pi.OperationalVLs.VLs() != 8 ||
		pi.HOQLife != 20 || pi.VLStallCount != 7 || pi.LinkDownDefaultState != ib.PhysPolling || pi.GUIDCap != 0 ||
		pi.LID != 0 {
		t.Errorf("port 1: %+v", pi)
	}
	if pi.CapabilityMask2 != cap2HDR {
		t.Errorf("port 1: CapabilityMask2 0x%x", pi.CapabilityMask2)
	}
	if pi := portInfo(t, g, 2); pi.SupportedSpeed() != ib.XDR || pi.ActiveSpeed() != ib.HDR ||
		pi.CapabilityMask2 != cap2HDR|1<<10|1<<11|1<<12 {
		t.Errorf("port 2: %+v", pi)
	}
	if pi := portInfo(t, g, 3); pi.PortState != ib.PortDown || pi.PortPhysicalState != ib.PhysPolling ||
		pi.ActiveSpeed() != 0 {
		t.Errorf("port 3: %+v", pi)
	}

	got := writePort(t, g, 1, func(pi *mad.PortInfo) {
		pi.NeighborMTU, pi.HOQLife, pi.VLStallCount, pi.VLHighLimit = ib.MTU2048, 12, 3, 9
		pi.OperationalVLs, _ = mad.VLCountFor(4)
		pi.PartitionEnforcementInbound, pi.FilterRawOutbound = true, true
		pi.LocalPhyErrors, pi.OverrunErrors = 2, 3
		pi.PortState = ib.PortArmed
		pi.LID = 77 // not of an external port
	})
	p := s.Port(1)
	code, life := p.HOQLife()
	_, _, limit := p.ArbTables()
	if p.NeighborMTU() != ib.MTU2048 || code != 12 || life != ib.HOQLife(12) || p.VLStallCount() != 3 || limit != 9 ||
		p.OperVLs() != 4 ||
		p.Enforcement() != link.EnforcePKeyIn|link.EnforceRawOut || p.State() != ib.PortArmed {
		t.Errorf("the link did not get it all: %v %v %v %v", p.NeighborMTU(), code, p.OperVLs(), p.State())
	}
	if got.LID != 0 || got.PortState != ib.PortArmed || got.LocalPhyErrors != 2 || got.OverrunErrors != 3 ||
		!got.PartitionEnforcementInbound {
		t.Errorf("answer: %+v", got)
	}
	got = writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PortState = ib.PortActive })
	if got.PortState != ib.PortActive || got.NeighborMTU != ib.MTU2048 {
		t.Errorf("answer: %+v", got)
	}
	// Down goes to the state that was set for it.
	if got := writePort(t, g, 1, func(pi *mad.PortInfo) {
		pi.PortState, pi.LinkDownDefaultState = ib.PortDown, ib.PhysSleep
	}); got.PortState != ib.PortDown || got.PortPhysicalState != ib.PhysSleep {
		t.Errorf("answer: %+v", got)
	}
	got = writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PortPhysicalState = ib.PhysDisabled })
	if got.PortPhysicalState != ib.PhysDisabled {
		t.Errorf("answer: %+v", got)
	}
	// Port 0 has the switch's address.
	got = writePort(t, g, 0, func(pi *mad.PortInfo) {
		pi.LID, pi.MasterSMLID, pi.MasterSMSL, pi.SubnetTimeOut, pi.GidPrefix = 12, 1, 2, 18, 0xFEC0_0000_0000_0001
	})
	if lid, lmc := s.LID(); lid != 12 || lmc != 0 {
		t.Errorf("LID %v, LMC %d", lid, lmc)
	}
	if got.LID != 12 || got.MasterSMLID != 1 || got.MasterSMSL != 2 || got.SubnetTimeOut != 18 ||
		got.GidPrefix != 0xFEC0_0000_0000_0001 ||
		got.PortState != ib.PortActive {
		t.Errorf("port 0: %+v", got)
	}
}

const cap2HDR = 1 << 5

func TestNodeTrainRate(t *testing.T) {
	_, n, g := managed(t)
	if r := n.TrainRate(2); r != (ib.LinkRate{Width: ib.Width4x, Speed: ib.XDR}) {
		t.Errorf("port 2: %v", r)
	}
	writePort(t, g, 2, func(pi *mad.PortInfo) {
		pi.LinkWidthEnabled, pi.LinkSpeedExtEnabled2, pi.LinkSpeedExtEnabled = ib.Width1x, 0, 3
	})
	// XDR's mask says no change; its bit stays.
	if r := n.TrainRate(2); r != (ib.LinkRate{Width: ib.Width1x, Speed: ib.XDR}) {
		t.Errorf("port 2: %v", r)
	}
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.LinkSpeedExtEnabled = mad.SpeedExtDisable })
	if r := n.TrainRate(1); r != (ib.LinkRate{Width: ib.Width4x, Speed: ib.QDR}) {
		t.Errorf("port 1: %v", r)
	}
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.LinkSpeedExtEnabled = mad.SpeedExtEnableAll })
	if r := n.TrainRate(1); r != hdr {
		t.Errorf("port 1: %v", r)
	}
	fdr10 := agent.NewLinkPort(ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR10})
	if r := fdr10.Best(); r.Speed != ib.FDR10 {
		t.Errorf("FDR10: %v", r)
	}
}

func TestNodeTables(t *testing.T) {
	s, n, g := managed(t)
	lft := mad.LFT{3, 1, 2}
	mustDo(t, g, mad.MethodSet, mad.AttrLFT, 2, &lft)
	if s.Route(129) != 1 || s.Route(130) != 2 || lft[0] != 3 {
		t.Errorf("LFT: %v", lft)
	}
	mft := mad.MFT{0, 0b110}
	mustDo(t, g, mad.MethodSet, mad.AttrMFT, mad.MFTModifier(1, 0), &mft)
	if m := s.MulticastPorts(0xC021); !m.Has(1) || !m.Has(2) || m.Has(3) || mft[1] != 0b110 {
		t.Errorf("MFT: %v", m)
	}
	keys := mad.PKeyTable{0: 0xFFFF, 5: 0x8005}
	mustDo(t, g, mad.MethodSet, mad.AttrPKeyTable, mad.PKeyModifier(2, 0), &keys)
	if k := s.Port(2).PKeys(); len(k) != 6 || k[0] != 0xFFFF || k[5] != 0x8005 || keys[5] != 0x8005 {
		t.Errorf("P_Keys: %v, %v", k, keys)
	}
	keys = mad.PKeyTable{}
	mustDo(t, g, mad.MethodSet, mad.AttrPKeyTable, mad.PKeyModifier(2, 0), &keys)
	if k := s.Port(2).PKeys(); len(k) != 0 {
		t.Errorf("P_Keys: %v", k)
	}
	sl := mad.SLtoVL{1, 2, 3, 4}
	mustDo(t, g, mad.MethodSet, mad.AttrSLtoVL, mad.SLtoVLModifier(1, 2), &sl)
	if m := s.SL2VL(1, 2); m[0] != 1 || m[3] != 4 || sl[3] != 4 {
		t.Errorf("SL2VL: %v", m)
	}
	if m := s.SL2VL(2, 1); m[0] != 0 {
		t.Errorf("SL2VL of another pair: %v", m)
	}
	for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
		arb := mad.VLArb{2: {VL: ib.VL(k), Weight: 10 + uint8(k)}}
		mustDo(t, g, mad.MethodSet, mad.AttrVLArb, mad.VLArbModifier(2, k), &arb)
	}
	high, low, _ := s.Port(2).ArbTables()
	for _, c := range []struct {
		got  link.ArbEntry
		want uint8
	}{{low[2], 1}, {low[34], 2}, {high[2], 3}, {high[34], 4}} {
		if c.got != (link.ArbEntry{VL: ib.VL(c.want), Weight: 10 + c.want}) {
			t.Errorf("VLArb: %v, want VL %d", c.got, c.want)
		}
	}
	for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
		if e := n.VLArb(2, k)[2]; e.VL != ib.VL(k) {
			t.Errorf("VLArb %v reads %v", k, e)
		}
	}
	if err := n.SetLFT(0, 1<<20, lft); !errors.Is(err, ErrTable) {
		t.Errorf("LFT far out: %v", err)
	}
}

func TestNodeSwitchInfo(t *testing.T) {
	s, _, g := managed(t)
	var si mad.SwitchInfo
	mustDo(t, g, mad.MethodGet, mad.AttrSwitchInfo, 0, &si)
	if si.LinearFDBCap != 0xC000 || si.MulticastFDBCap == 0 || !si.InboundEnforcementCap || !si.PortStateChange ||
		si.PartitionEnforcementCap == 0 {
		t.Errorf("%+v", si)
	}
	si.LinearFDBTop, si.LifeTimeValue, si.DefaultMulticastPrimaryPort = 100, 9, 2
	mustDo(t, g, mad.MethodSet, mad.AttrSwitchInfo, 0, &si)
	if i := s.Info(); i.LinearFDBTop != 100 || i.LifeTimeValue != 9 || i.DefaultMcastPrimary != 2 ||
		si.PortStateChange {
		t.Errorf("%+v, %+v", i, si)
	}
	// What a manager does is no news, what happens by itself is.
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PortState = ib.PortArmed })
	if mustDo(t, g, mad.MethodGet, mad.AttrSwitchInfo, 0, &si); si.PortStateChange {
		t.Error("PortStateChange after a manager's own change")
	}
	s.Port(2).Down(0)
	if mustDo(t, g, mad.MethodGet, mad.AttrSwitchInfo, 0, &si); !si.PortStateChange {
		t.Error("no PortStateChange after a link went down")
	}
}

func TestNodeCounters(t *testing.T) {
	s, n, g := managed(t)
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PartitionEnforcementInbound = true })
	pkt := &wire.Packet{LRH: wire.LRH{LNH: wire.LNHLocal}}
	pkt.BTH.PKey = 0x8001
	for range 3 {
		if r := s.Port(1).Count(s.Port(1).RefusesIn(&link.Frame{Packet: pkt, LRH: pkt.LRH})); r != link.PKeyIn {
			t.Fatalf("%v", r)
		}
	}
	if c := n.ReadCounter(1, ib.PortRcvConstraintErrors); c != 3 {
		t.Errorf("PortRcvConstraintErrors %d", c)
	}
	// The two kinds of clearing do not disturb each other.
	n.ClearCounter(1, ib.PortRcvConstraintErrors)
	if c, v := n.ReadCounter(1, ib.PortRcvConstraintErrors), portInfo(t, g, 1).PKeyViolations; c != 0 || v != 3 {
		t.Errorf("cleared: %d; P_KeyViolations %d", c, v)
	}
	s.Port(1).Count(s.Port(1).RefusesIn(&link.Frame{Packet: pkt, LRH: pkt.LRH}))
	if got := writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PKeyViolations = 0 }); got.PKeyViolations != 0 {
		t.Errorf("P_KeyViolations %d", got.PKeyViolations)
	}
	if c := n.ReadCounter(1, ib.PortRcvConstraintErrors); c != 1 {
		t.Errorf("PortRcvConstraintErrors %d", c)
	}
}
