package survey

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// listManagers lists the ports that say that a manager runs there.
func (e *Engine) listManagers() {
	for i, n := range e.s.Nodes {
		for p := range n.Ports {
			if x := &n.Ports[p]; x.Known && x.Info.CapabilityMask&mad.CapIsSM != 0 &&
				n.EndPort(ib.PortNum(p)) == ib.PortNum(p) {
				e.push(task{what: askManager, node: int32(i), port: ib.PortNum(p)})
			}
		}
	}
}

// listPartitions lists the blocks of partition tables: of end ports, and of switch ports that use theirs (IBA
// 14.2.5.7).
func (e *Engine) listPartitions() {
	blocks := func(keys uint16) int { return max(mad.PKeyBlocks(int(keys)), 1) }
	for i, n := range e.s.Nodes {
		for p := range n.Ports {
			x := &n.Ports[p]
			port, count := ib.PortNum(0), blocks(n.Info.PartitionCap)
			switch {
			case n.IsSwitch() && p > 0:
				if !x.Linked() || !x.Info.PartitionEnforcementInbound && !x.Info.PartitionEnforcementOutbound {
					continue
				}
				port, count = ib.PortNum(p), blocks(n.Switch.PartitionEnforcementCap)
			case p == 0 && !n.IsSwitch(), p > 0 && !x.Cabled() && !e.isFrom(i, p):
				continue
			}
			n = e.edit(int32(i))
			n.Ports[p].PKeys = make([]ib.PKey, count*mad.PKeysPerBlock)
			n.Ports[p].HasPKeys = true
			for b := range count {
				e.push(task{what: askKeys, node: int32(i), port: ib.PortNum(p), mod: mad.PKeyModifier(port, b)})
			}
		}
	}
}

func (e *Engine) isFrom(node, port int) bool {
	return node == e.s.From.Node && port == int(e.s.From.Port)
}

// listTables lists the blocks of forwarding tables. A switch that cannot say how long its table is has none that could
// be read.
func (e *Engine) listTables() {
	for i, n := range e.s.Nodes {
		if !n.IsSwitch() || !n.HasSwitch || n.Switch.LinearFDBTop > ib.LIDUnicastMax {
			continue
		}
		n = e.edit(int32(i))
		n.LFT = mad.NewLFT(n.Switch.LinearFDBTop)
		for b := range mad.LFTBlocks(len(n.LFT)) {
			e.push(task{what: askLFT, node: int32(i), mod: uint32(b)})
		}
	}
}

// listLanes lists what says which packets take which lanes, at ports that have more than one (IBA 14.2.5.8 and
// 14.2.5.9).
func (e *Engine) listLanes() {
	for i, n := range e.s.Nodes {
		for p := range n.Ports {
			x := &n.Ports[p]
			if p == 0 || !x.Linked() || x.Info.OperationalVLs.VLs() < 2 {
				continue
			}
			e.listSLtoVL(int32(i), n, ib.PortNum(p))
			e.listVLArb(int32(i), n, ib.PortNum(p))
			if len(e.tasks) > e.cfg.LanesMax {
				e.tasks = e.tasks[:0]
				e.s.Parts &^= Lanes
				return
			}
		}
	}
	for _, t := range e.tasks {
		x := &e.edit(t.node).Ports[t.port]
		if x.SLtoVL == nil {
			x.SLtoVL = make([]mad.SLtoVL, 1)
			if e.s.Nodes[t.node].IsSwitch() {
				x.SLtoVL = make([]mad.SLtoVL, len(e.s.Nodes[t.node].Ports))
			}
		}
		if t.what == askVLArb {
			high, _, size := arbPart(mad.VLArbBlock(t.mod>>16), &x.Info)
			if x.VLArb[high] == nil {
				x.VLArb[high] = make([]mad.VLArbEntry, size)
			}
		}
	}
}

func (e *Engine) listSLtoVL(i int32, n *Node, p ib.PortNum) {
	if !n.IsSwitch() {
		e.push(task{what: askSLtoVL, node: i, port: p})
		return
	}
	for in := range n.Ports {
		if ib.PortNum(in) != p && (in == 0 || n.Ports[in].Linked()) {
			e.push(task{what: askSLtoVL, node: i, port: p, mod: mad.SLtoVLModifier(ib.PortNum(in), p)})
		}
	}
}

func (e *Engine) listVLArb(i int32, n *Node, p ib.PortNum) {
	named := ib.PortNum(0)
	if n.IsSwitch() {
		named = p
	}
	for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
		if _, from, size := arbPart(k, &n.Ports[p].Info); from < size {
			e.push(task{what: askVLArb, node: i, port: p, mod: mad.VLArbModifier(named, k)})
		}
	}
}

// arbPart says which of the two tables a block is of, where it begins there, and how long the table is.
func arbPart(k mad.VLArbBlock, pi *mad.PortInfo) (high, from, size int) {
	size = int(pi.VLArbitrationLowCap)
	if k >= mad.VLArbHigh0 {
		high, size = 1, int(pi.VLArbitrationHighCap)
	}
	return high, int(k-mad.VLArbLow0) % 2 * mad.VLArbPerBlock, size
}

// tableReply takes a block of a table.
func (e *Engine) tableReply(t task, data []byte) {
	n := e.s.Nodes[t.node]
	x := &n.Ports[t.port]
	switch t.what {
	case askKeys:
		var b mad.PKeyTable
		if _, err := b.Parse(data); err == nil && x.PKeys != nil {
			copy(x.PKeys[int(t.mod&0xFFFF)*mad.PKeysPerBlock:], b[:])
		}
	case askLFT:
		var b mad.LFT
		if _, err := b.Parse(data); err == nil && n.LFT != nil {
			b.PutInto(n.LFT, int(t.mod))
		}
	case askSLtoVL:
		var b mad.SLtoVL
		if _, err := b.Parse(data); err == nil && x.SLtoVL != nil {
			x.SLtoVL[t.mod>>8&0xFF] = b
		}
	case askVLArb:
		var b mad.VLArb
		if _, err := b.Parse(data); err == nil {
			high, from, _ := arbPart(mad.VLArbBlock(t.mod>>16), &x.Info)
			if x.VLArb[high] != nil {
				copy(x.VLArb[high][from:], b[:])
			}
		}
	}
}

// tableFailed forgets a table of which a block is missing: half of it would read as if the other half were empty. Of a
// forwarding table the blocks that were read are kept, since its entries stand alone; the gap says which are missing.
func (e *Engine) tableFailed(t task) {
	switch x := &e.edit(t.node).Ports[t.port]; t.what {
	case askKeys:
		x.PKeys, x.HasPKeys = nil, false
	case askSLtoVL:
		x.SLtoVL = nil
	case askVLArb:
		x.VLArb = [2][]mad.VLArbEntry{}
	}
}
