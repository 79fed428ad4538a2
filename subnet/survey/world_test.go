package survey

import (
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// world is a fabric that answers as a test wants it to: two nodes may have one GUID, and some say nothing.
type world struct {
	nodes []*thing
	from  topo.PortRef
	now   ib.Time
	asked map[question]int
	// twist may change an answer, or take it away by returning false.
	twist func(node int, req mad.View, resp []byte) bool
}

// question is what was asked for.
type question struct {
	class mad.Class
	attr  mad.AttrID
}

// thing is a node of the world.
type thing struct {
	info  mad.NodeInfo
	desc  string
	peers []topo.PortRef // by port; Node -1: none
	ports []mad.PortInfo
	lft   []ib.PortNum
	keys  []ib.PKey
	// count is what each port has counted; narrow has no counters of 64 bits.
	count  ib.Counters
	narrow bool
	sm     *mad.SMInfo
}

func (w *world) add(name string, typ ib.NodeType, guid ib.GUID, ports int) int {
	i := len(w.nodes)
	n := &thing{desc: name, info: mad.NodeInfo{BaseVersion: 1, ClassVersion: 1, NodeType: typ, NumPorts: uint8(ports),
		SystemImageGUID: guid, NodeGUID: guid, PortGUID: guid + 1, PartitionCap: 32}}
	for range ports + 1 {
		pi := mad.PortInfo{PortState: ib.PortDown, PortPhysicalState: ib.PhysPolling, LinkWidthSupported: 3,
			LinkWidthEnabled: 3, OperationalVLs: 1}
		pi.SetSpeeds(ib.HDR, ib.HDR, 0)
		n.ports = append(n.ports, pi)
		n.peers = append(n.peers, topo.PortRef{Node: -1})
	}
	if typ == ib.NodeSwitch {
		n.ports[0].PortState = ib.PortActive
	}
	for p := range n.ports {
		n.ports[p].LID = ib.LID(i + 1)
		n.ports[p].MasterSMLID = 1
	}
	n.lft = make([]ib.PortNum, 64)
	n.keys = []ib.PKey{ib.PKeyDefault}
	w.nodes = append(w.nodes, n)
	return i
}

func (w *world) connect(a int, pa ib.PortNum, b int, pb ib.PortNum) {
	for _, e := range [][2]topo.PortRef{{{Node: a, Port: pa}, {Node: b, Port: pb}},
		{{Node: b, Port: pb}, {Node: a, Port: pa}}} {
		n := w.nodes[e[0].Node]
		n.peers[e[0].Port] = e[1]
		pi := &n.ports[e[0].Port]
		pi.PortState, pi.PortPhysicalState, pi.LinkWidthActive = ib.PortActive, ib.PhysLinkUp, ib.Width4x
		pi.SetSpeeds(ib.HDR, ib.HDR, ib.HDR)
	}
}

// answer is what comes back for a datagram; nil if nothing does.
func (w *world) answer(s *Send) []byte {
	req := mad.View(s.Data)
	w.asked[question{req.Class(), req.AttrID()}]++
	resp := append([]byte(nil), s.Data...)
	mad.View(resp).SetMethod(mad.MethodGetResp)
	node, in := w.from.Node, w.from.Port
	switch req.Class() {
	case mad.ClassSMDirect:
		for h := uint8(1); h <= req.HopCount(); h++ {
			n := w.nodes[node]
			out := req.InitialPath(h)
			if int(out) >= len(n.peers) || n.peers[out].Node < 0 || h > 1 && n.info.NodeType != ib.NodeSwitch {
				return nil
			}
			node, in = n.peers[out].Node, n.peers[out].Port
		}
		if !w.smp(node, in, req, resp[mad.SMPDataOff:][:mad.SMPDataLen]) {
			mad.View(resp).SetStatus(mad.StatusInvalidField)
		}
	case mad.ClassPerf:
		node = -1
		for i, n := range w.nodes {
			for p := range n.ports {
				if n.ports[p].LID == s.Env.LID {
					node = i
				}
			}
		}
		if node < 0 || !w.perf(node, req, resp[mad.PMDataOff:][:mad.PMDataLen]) {
			return nil
		}
	default:
		return nil
	}
	if w.twist != nil && !w.twist(node, req, resp) {
		return nil
	}
	return resp
}

func (w *world) smp(node int, in ib.PortNum, req mad.View, data []byte) bool {
	n := w.nodes[node]
	clear(data)
	switch req.AttrID() {
	case mad.AttrNodeInfo:
		info := n.info
		info.LocalPortNum = in
		if info.NodeType != ib.NodeSwitch {
			info.PortGUID = info.NodeGUID + ib.GUID(in)
		}
		info.Append(data[:0])
	case mad.AttrNodeDescription:
		d := mad.MakeNodeDescription(n.desc)
		copy(data, d[:])
	case mad.AttrPortInfo:
		p := int(req.AttrMod())
		if p == 0 && n.info.NodeType != ib.NodeSwitch {
			p = int(in)
		}
		if p >= len(n.ports) {
			return false
		}
		n.ports[p].Append(data[:0])
	case mad.AttrSwitchInfo:
		(&mad.SwitchInfo{LinearFDBCap: 0xBFFF, LinearFDBTop: ib.LID(len(n.lft) - 1),
			PartitionEnforcementCap: 32}).Append(data[:0])
	case mad.AttrLFT:
		for i := range data {
			data[i] = byte(mad.LFTNone)
			if l := int(req.AttrMod())*mad.LFTPerBlock + i; l < len(n.lft) {
				data[i] = byte(n.lft[l])
			}
		}
	case mad.AttrPKeyTable:
		var b mad.PKeyTable
		copy(b[:], n.keys)
		b.Append(data[:0])
	case mad.AttrSMInfo:
		if n.sm == nil {
			return false
		}
		n.sm.Append(data[:0])
	case mad.AttrMlnxExtPortInfo:
		n.ports[req.AttrMod()].Mlnx.Append(data[:0])
		return n.info.MayHaveFDR10()
	case mad.AttrSLtoVL, mad.AttrVLArb:
	default:
		return false
	}
	return true
}

func (w *world) perf(node int, req mad.View, data []byte) bool {
	n := w.nodes[node]
	if req.AttrID() == mad.AttrClassPortInfo {
		c := mad.ClassPortInfo{BaseVersion: 1, ClassVersion: 1}
		if !n.narrow {
			c.CapabilityMask, c.CapabilityMask2 = mad.PMCapExtendedWidth|mad.PMCapXmitWait, mad.PMCap2AdditionalExtCtrs
		}
		c.Append(data[:0])
		return true
	}
	a := mad.CounterAttrByID(req.AttrID())
	if a == nil || n.narrow && req.AttrID() == mad.AttrPortCountersExtended {
		return false
	}
	for i := range a.Rows {
		if a.Rows[i].Source == mad.FromCounter {
			a.PutCounter(data, i, n.count[a.Rows[i].Counter])
		}
	}
	return true
}

// survey runs an engine against the world.
func (w *world) survey(t testing.TB, e *Engine) *Survey {
	t.Helper()
	w.asked = map[question]int{}
	type flight struct {
		cookie uint64
		data   []byte
	}
	var air []flight
	var s Send
	for steps := 0; !e.Done(); steps++ {
		if steps > 1_000_000 {
			t.Fatal("the survey does not end")
		}
		w.now += ib.Microsecond
		for e.PollSend(w.now, &s) {
			air = append(air, flight{s.Cookie, w.answer(&s)})
		}
		if len(air) == 0 {
			if !e.Done() {
				t.Fatalf("nothing is under way in %v", e.Progress())
			}
			break
		}
		// The last is answered first: nothing may depend on the order.
		f := air[len(air)-1]
		air = air[:len(air)-1]
		e.HandleReply(w.now, f.cookie, f.data)
	}
	return e.Survey()
}

// tree is two spines, two leaves and four hosts.
func tree() *world {
	w := &world{}
	for i := range 2 {
		w.add(fmt.Sprintf("spine%d", i+1), ib.NodeSwitch, ib.GUID(0x1000*(i+1)), 4)
	}
	for i := range 2 {
		leaf := w.add(fmt.Sprintf("leaf%d", i+1), ib.NodeSwitch, ib.GUID(0x10000*(i+1)), 4)
		w.connect(leaf, 3, 0, ib.PortNum(i+1))
		w.connect(leaf, 4, 1, ib.PortNum(i+1))
	}
	for i := range 4 {
		h := w.add(fmt.Sprintf("h%d HCA-1", i+1), ib.NodeCA, ib.GUID(0x100000*(i+1)), 1)
		w.connect(h, 1, 2+i/2, ib.PortNum(i%2+1))
	}
	w.from = topo.PortRef{Node: 4, Port: 1}
	w.nodes[4].sm = &mad.SMInfo{GUID: 5, SMState: mad.SMMaster}
	w.nodes[4].ports[1].CapabilityMask |= mad.CapIsSM
	return w
}
