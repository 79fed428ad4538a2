package survey

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// perfState is what is needed to ask performance management, which is reached by LID (IBA 16.1).
type perfState struct {
	pkeyIndex uint16
	// owners counts the end ports of each LID: what two have reaches one of them.
	owners []uint8
	// asked, answered and silent count questions of the stage; see hopeless.
	answered, silent int
}

// perfCaps is what a node's performance management says that it can do.
type perfCaps struct {
	known          bool
	wide, wideErrs bool
	none           bool // it does not answer
}

// hopelessAfter is after how many questions in succession from the start without any answer nobody is asked any more:
// our own port is not active, say, or its manager has not come this far.
const hopelessAfter = 64

func (p *perfState) hopeless() bool { return p.answered == 0 && p.silent >= hopelessAfter }

// defaultKey is the place of the default partition's key in a table, 0 if it is not there.
func defaultKey(keys []ib.PKey) uint16 {
	for i, k := range keys {
		if k.Base() == ib.PKeyDefault.Base() {
			return uint16(i)
		}
	}
	return 0
}

func defaultKeyAt(nodes []*Node, r topo.PortRef) uint16 {
	if r.Node < 0 || r.Node >= len(nodes) {
		return 0
	}
	return defaultKey(nodes[r.Node].Ports[r.Port].PKeys)
}

// countOwners notes how many end ports each LID has.
func (e *Engine) countOwners() {
	e.perf.owners = make([]uint8, int(ib.LIDUnicastMax)+1)
	e.s.EndPorts(func(_ topo.PortRef, p *Port) {
		if !p.Known || !p.Info.LID.IsUnicast() {
			return
		}
		for k := range 1 << p.Info.LMC {
			if l := int(p.Info.LID) + k; l < len(e.perf.owners) && e.perf.owners[l] < 2 {
				e.perf.owners[l]++
			}
		}
	})
}

// perfLID is the address by which a port's counters can be read; 0 if there is none that is the port's alone.
func (e *Engine) perfLID(i int32, p ib.PortNum) ib.LID {
	n := e.s.Nodes[i]
	x := &n.Ports[n.EndPort(p)]
	if !x.Known || !x.Info.LID.IsUnicast() || e.perf.owners[x.Info.LID] != 1 {
		return 0
	}
	return x.Info.LID
}

// listClasses asks each node what its performance management can do, unless it has said so before.
func (e *Engine) listClasses() {
	e.countOwners()
	e.s.Readings = make([][]Reading, len(e.s.Nodes))
	for i, n := range e.s.Nodes {
		e.s.Readings[i] = make([]Reading, len(n.Ports))
		for p := range n.Ports {
			if e.nodes[i].perf.known {
				break
			}
			if e.countable(int32(i), ib.PortNum(p)) {
				e.push(task{what: askClass, node: int32(i), port: n.EndPort(ib.PortNum(p))})
				break
			}
		}
	}
}

// countable reports whether a port's counters are worth reading: an adapter's ports with a link, and all ports of
// switches, since one that has lost its link has counted that.
func (e *Engine) countable(i int32, p ib.PortNum) bool {
	n := e.s.Nodes[i]
	if p == 0 || e.perfLID(i, p) == 0 {
		return false
	}
	return n.IsSwitch() || n.Ports[p].Cabled() || e.isFrom(int(i), int(p))
}

// listCounters lists the counters of all ports.
func (e *Engine) listCounters() {
	e.perf.answered, e.perf.silent = 0, 0
	for i, n := range e.s.Nodes {
		c := &e.nodes[i].perf
		if c.none {
			continue
		}
		for p := range n.Ports {
			if !e.countable(int32(i), ib.PortNum(p)) {
				continue
			}
			if c.wide {
				e.push(task{what: askWide, node: int32(i), port: ib.PortNum(p)})
			}
			if !c.wide || !c.wideErrs {
				e.push(task{what: askNarrow, node: int32(i), port: ib.PortNum(p)})
			}
		}
	}
}

// perfRequest writes a question to performance management. When nobody answers it is empty, and fails at once.
func (e *Engine) perfRequest(t task, env *mad.Envelope) []byte {
	*env = mad.Envelope{LID: e.perfLID(t.node, t.port), QPN: ib.QPNGSI, QKey: ib.QKeyGSI, PKeyIndex: e.perf.pkeyIndex}
	a := attrs[t.what]
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: a.class, ClassVersion: 1, Method: mad.MethodGet,
		AttributeID: a.id}
	h.Append(e.buf[:0])
	if c := mad.CounterAttrByID(a.id); c != nil {
		c.SetPortSelect(e.buf[mad.PMDataOff:], uint8(t.port))
	}
	return e.buf[:]
}

// perfReply takes an answer of performance management.
func (e *Engine) perfReply(now ib.Time, t task, data []byte) {
	e.perf.answered++
	caps := &e.nodes[t.node].perf
	if t.what == askClass {
		var c mad.ClassPortInfo
		if _, err := c.Parse(data); err == nil {
			caps.known = true
			caps.wide = c.CapabilityMask&(mad.PMCapExtendedWidth|mad.PMCapExtendedWidthNoMC) != 0
			caps.wideErrs = c.CapabilityMask2&mad.PMCap2AdditionalExtCtrs != 0
		}
		return
	}
	counters, err := mad.CounterAttrByID(attrs[t.what].id).Counters(data)
	if err != nil {
		return
	}
	r := &e.s.Readings[t.node][t.port]
	r.Valid, r.At = true, now
	switch {
	case t.what == askWide && caps.wideErrs:
		r.Counters, r.Wide, r.WideData = counters, true, true
	case t.what == askWide:
		r.WideData = true
		for _, c := range wideAlways {
			r.Counters[c] = counters[c]
		}
	default:
		r.Narrow = true
		for c, v := range counters {
			if !r.WideData || !isWideAlways(ib.Counter(c)) {
				r.Counters[c] = v
			}
		}
	}
}

// wideAlways are the counters that PortCountersExtended has at every node that has it (IBA 16.1.4.11); others have been
// added since.
var wideAlways = []ib.Counter{
	ib.PortXmitData, ib.PortRcvData, ib.PortXmitPkts, ib.PortRcvPkts,
	ib.PortUnicastXmitPkts, ib.PortUnicastRcvPkts, ib.PortMulticastXmitPkts, ib.PortMulticastRcvPkts,
}

func isWideAlways(c ib.Counter) bool {
	for _, w := range wideAlways {
		if w == c {
			return true
		}
	}
	return false
}

// perfFailed: a node without a class's ClassPortInfo may still have the counters that every node must have.
func (e *Engine) perfFailed(t task) {
	e.perf.silent++
	if t.what == askClass && e.nodes[t.node].strikes > 0 {
		e.nodes[t.node].perf.none = true
	}
	if e.perf.hopeless() {
		for ; e.at < len(e.tasks); e.at++ {
			left := e.tasks[e.at]
			e.answered++
			e.gap(left, mad.StatusOK, "")
			e.nodes[left.node].perf.none = true
		}
	}
}

// Has says whether a reading has a counter, and whether in 64 bits.
func (r *Reading) Has(c ib.Counter) (read, wide bool) {
	wide = r.Wide || r.WideData && isWideAlways(c)
	return r.Valid && (wide || r.Narrow), wide
}
