package agent

import (
	"errors"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// fakeNode is a channel adapter that stores what it is told.
type fakeNode struct {
	info  mad.NodeInfo
	desc  string
	ports []mad.PortInfo // by number
	guids [][2]mad.GUIDInfo
	pkeys [][2]mad.PKeyTable
	sl    map[[2]ib.PortNum]mad.SLtoVL
	arb   map[ib.PortNum]*[mad.NumVLArbBlock]mad.VLArb
	ctr   []ib.Counters
	mlnx  []mad.MlnxExtPortInfo
	lanes [][ib.NumLaneCounter][16]uint64
	notes []Notice

	refuse     error // what Set methods return
	reregister int
	sets       []string
}

var errRefused = errors.New("fake: refused")

func newFakeNode(t ib.NodeType, ports uint8) *fakeNode {
	n := &fakeNode{
		info: mad.NodeInfo{
			BaseVersion: 1, ClassVersion: 1, NodeType: t, NumPorts: ports,
			SystemImageGUID: 0x100, NodeGUID: 0x101, PortGUID: 0x200, PartitionCap: 64,
			DeviceID: 0x1234, Revision: 1, VendorID: 0x2C9,
		},
		desc:  "fake",
		ports: make([]mad.PortInfo, ports+1),
		guids: make([][2]mad.GUIDInfo, ports+1),
		pkeys: make([][2]mad.PKeyTable, ports+1),
		sl:    map[[2]ib.PortNum]mad.SLtoVL{},
		arb:   map[ib.PortNum]*[mad.NumVLArbBlock]mad.VLArb{},
		ctr:   make([]ib.Counters, ports+1),
		mlnx:  make([]mad.MlnxExtPortInfo, ports+1),
		lanes: make([][ib.NumLaneCounter][16]uint64, ports+1),
	}
	for p := range n.ports {
		pi := &n.ports[p]
		*pi = mad.PortInfo{
			GidPrefix: ib.DefaultGIDPrefix, LinkWidthEnabled: 3, LinkWidthSupported: 3, LinkWidthActive: ib.Width4x,
			PortState: ib.PortInit, PortPhysicalState: ib.PhysLinkUp, LinkDownDefaultState: ib.PhysPolling,
			NeighborMTU: ib.MTU256, MTUCap: ib.MTU4096, VLCap: 4, OperationalVLs: 1,
			VLArbitrationHighCap: 8, VLArbitrationLowCap: 64, GUIDCap: 16,
			PKeyViolations: 3, QKeyViolations: 4,
		}
		pi.SetSpeeds(ib.EDR, ib.EDR, ib.EDR)
		n.guids[p][0][0] = ib.GUID(0x200 + p)
		n.arb[ib.PortNum(p)] = new([mad.NumVLArbBlock]mad.VLArb)
	}
	return n
}

func (n *fakeNode) did(what string) error {
	if n.refuse != nil {
		return n.refuse
	}
	n.sets = append(n.sets, what)
	return nil
}

func (n *fakeNode) NodeInfo(port ib.PortNum) mad.NodeInfo {
	i := n.info
	if i.NodeType != ib.NodeSwitch {
		i.PortGUID = ib.GUID(0x200 + int(port))
	}
	return i
}
func (n *fakeNode) NodeDescription() string               { return n.desc }
func (n *fakeNode) PortInfo(port ib.PortNum) mad.PortInfo { return n.ports[port] }

func (n *fakeNode) SetPortInfo(_ ib.Time, port ib.PortNum, pi mad.PortInfo) error {
	if err := n.did("PortInfo"); err != nil {
		return err
	}
	if pi.ClientReregister {
		n.reregister++
	}
	cur := &n.ports[port]
	switch {
	case pi.PortPhysicalState == ib.PhysDisabled:
		pi.PortState, pi.PortPhysicalState = ib.PortDown, ib.PhysDisabled
	case pi.PortState == ib.PortDown || pi.PortPhysicalState != ib.PhysNoChange:
		pi.PortState, pi.PortPhysicalState = ib.PortDown, ib.PhysPolling
	default:
		if pi.PortState == ib.PortNoChange {
			pi.PortState = cur.PortState
		}
		pi.PortPhysicalState = cur.PortPhysicalState
	}
	*cur = pi
	return nil
}

func (n *fakeNode) GUIDs(port ib.PortNum, block int) mad.GUIDInfo { return n.guids[port][block] }
func (n *fakeNode) SetGUIDs(_ ib.Time, port ib.PortNum, block int, g mad.GUIDInfo) error {
	if err := n.did("GUIDs"); err != nil {
		return err
	}
	n.guids[port][block] = g
	return nil
}
func (n *fakeNode) PKeys(port ib.PortNum, block int) mad.PKeyTable { return n.pkeys[port][block] }
func (n *fakeNode) SetPKeys(_ ib.Time, port ib.PortNum, block int, t mad.PKeyTable) error {
	if err := n.did("PKeys"); err != nil {
		return err
	}
	n.pkeys[port][block] = t
	return nil
}
func (n *fakeNode) SLtoVL(in, out ib.PortNum) mad.SLtoVL { return n.sl[[2]ib.PortNum{in, out}] }
func (n *fakeNode) SetSLtoVL(_ ib.Time, in, out ib.PortNum, t mad.SLtoVL) error {
	if err := n.did("SLtoVL"); err != nil {
		return err
	}
	n.sl[[2]ib.PortNum{in, out}] = t
	return nil
}
func (n *fakeNode) VLArb(port ib.PortNum, block mad.VLArbBlock) mad.VLArb { return n.arb[port][block] }
func (n *fakeNode) SetVLArb(_ ib.Time, port ib.PortNum, block mad.VLArbBlock, t mad.VLArb) error {
	if err := n.did("VLArb"); err != nil {
		return err
	}
	n.arb[port][block] = t
	return nil
}
func (n *fakeNode) ReadCounter(port ib.PortNum, c ib.Counter) uint64 { return n.ctr[port][c] }
func (n *fakeNode) ClearCounter(port ib.PortNum, c ib.Counter)       { n.ctr[port][c] = 0 }

func (n *fakeNode) ReadLaneCounter(port ib.PortNum, c ib.LaneCounter, i int) uint64 {
	return n.lanes[port][c][i]
}
func (n *fakeNode) MlnxExtPortInfo(port ib.PortNum) mad.MlnxExtPortInfo { return n.mlnx[port] }
func (n *fakeNode) SetMlnxExtPortInfo(_ ib.Time, port ib.PortNum, pi mad.MlnxExtPortInfo) error {
	if err := n.did("MlnxExtPortInfo"); err != nil {
		return err
	}
	n.mlnx[port] = pi
	return nil
}
func (n *fakeNode) PollNotice() (Notice, bool) {
	if len(n.notes) == 0 {
		return Notice{}, false
	}
	first := n.notes[0]
	n.notes = n.notes[1:]
	return first, true
}

// fakeSwitch adds forwarding tables, of the smallest capacities that have a last
// partial block.
type fakeSwitch struct {
	*fakeNode
	si  mad.SwitchInfo
	lfv [3]mad.LFT
	mfv [2][3]mad.MFT
}

func newFakeSwitch(ports uint8) *fakeSwitch {
	return &fakeSwitch{
		fakeNode: newFakeNode(ib.NodeSwitch, ports),
		si: mad.SwitchInfo{
			LinearFDBCap: 150, MulticastFDBCap: 40, DefaultPort: mad.LFTNone, PartitionEnforcementCap: 32,
			PortStateChange: true, InboundEnforcementCap: true, OutboundEnforcementCap: true,
		},
	}
}

func (s *fakeSwitch) SpreadSLtoVL(now ib.Time, in, out ib.PortNum, t mad.SLtoVL) error {
	for i := range ib.PortNum(len(s.ports)) {
		for o := range ib.PortNum(len(s.ports)) {
			if (in == AllPorts || in == i) && (out == AllPorts || out == o) {
				if err := s.SetSLtoVL(now, i, o, t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
func (s *fakeSwitch) SwitchInfo() mad.SwitchInfo { return s.si }
func (s *fakeSwitch) SetSwitchInfo(_ ib.Time, si mad.SwitchInfo) error {
	if err := s.did("SwitchInfo"); err != nil {
		return err
	}
	si.PortStateChange = s.si.PortStateChange && !si.PortStateChange
	s.si = si
	return nil
}
func (s *fakeSwitch) LFT(block int) mad.LFT { return s.lfv[block] }
func (s *fakeSwitch) SetLFT(_ ib.Time, block int, t mad.LFT) error {
	if err := s.did("LFT"); err != nil {
		return err
	}
	s.lfv[block] = t
	return nil
}
func (s *fakeSwitch) MFT(block, position int) mad.MFT { return s.mfv[block][position] }
func (s *fakeSwitch) SetMFT(_ ib.Time, block, position int, t mad.MFT) error {
	if err := s.did("MFT"); err != nil {
		return err
	}
	s.mfv[block][position] = t
	return nil
}

// bench is an agent with the fake behind it.
type bench struct {
	t *testing.T
	*Agent
	now  ib.Time
	port ib.PortNum // where requests come in
	mkey uint64
	tid  uint64
}

func benchCA(t *testing.T) (*bench, *fakeNode) {
	n := newFakeNode(ib.NodeCA, 2)
	return &bench{t: t, Agent: New(n), port: 1}, n
}

func benchSwitch(t *testing.T) (*bench, *fakeSwitch) {
	s := newFakeSwitch(36)
	return &bench{t: t, Agent: New(s), port: 5}, s
}

type appender interface{ Append([]byte) []byte }
type parser interface {
	Parse([]byte) (int, error)
}

// ask sends a request and checks that the response answers it; no answer is nil.
func (b *bench) ask(m mad.Method, attr mad.AttrID, mod uint32, a appender) mad.View {
	b.t.Helper()
	b.tid++
	smp := mad.SMP{Method: m, Attr: attr, Modifier: mod, TID: b.tid, MKey: b.mkey}
	if a != nil {
		smp.Data = a.Append(nil)
	}
	req, err := smp.Append(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp := make([]byte, mad.Size)
	n, ok := b.HandleMAD(b.now, b.port, req, resp)
	if !ok {
		if n != 0 {
			b.t.Fatalf("no answer of %d bytes", n)
		}
		return nil
	}
	v := mad.View(resp)
	if n != mad.Size || v.Method() != mad.MethodGetResp || v.TID() != b.tid || v.AttrID() != attr ||
		v.AttrMod() != mod {
		b.t.Fatalf("malformed answer:\n%s", mad.Dump(resp))
	}
	return v
}

// get asks for an attribute that must be there.
func (b *bench) get(attr mad.AttrID, mod uint32, into parser) {
	b.t.Helper()
	v := b.ask(mad.MethodGet, attr, mod, nil)
	if v == nil || v.Status() != mad.StatusOK {
		b.t.Fatalf("Get(%s, %#x) failed: %v", mad.AttrName(mad.ClassSMLID, attr), mod, v)
	}
	if _, err := into.Parse(v.Data()); err != nil {
		b.t.Fatal(err)
	}
}

// set writes an attribute and returns the status.
func (b *bench) set(attr mad.AttrID, mod uint32, a appender) mad.Status {
	b.t.Helper()
	v := b.ask(mad.MethodSet, attr, mod, a)
	if v == nil {
		b.t.Fatalf("Set(%s, %#x) has no answer", mad.AttrName(mad.ClassSMLID, attr), mod)
	}
	return v.Status()
}
