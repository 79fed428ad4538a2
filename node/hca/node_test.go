package hca

import (
	"slices"
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
)

// managed is an adapter of two ports with its agent; port 1's link is trained.
func managed(t *testing.T) (*HCA, []*link.Port, *agent.Agent) {
	t.Helper()
	h := New(Config{NodeGUID: 0x500, Ports: 2})
	ports := link.NewPorts(3, link.Config{MTUCap: ib.MTU4096, VLCap: 8,
		Rate: ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}})
	links := []*link.Port{nil, &ports[1], &ports[2]}
	links[1].Train()
	links[1].LinkUp(0)
	n := NewNode(h, links, NodeConfig{Identity: agent.Identity{VendorID: 1, DeviceID: 2, Desc: "h1 HCA-1"}})
	n.Sync(1)
	return h, links, agent.New(n)
}

type attr interface {
	Append([]byte) []byte
	Parse([]byte) (int, error)
}

func manage(t *testing.T, g *agent.Agent, m mad.Method, port ib.PortNum, id mad.AttrID, mod uint32, a attr) {
	t.Helper()
	smp := mad.SMP{Method: m, Attr: id, Modifier: mod}
	if m == mad.MethodSet {
		smp.Data = a.Append(nil)
	}
	b, err := smp.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := g.HandleMAD(0, port, b, b); !ok || mad.View(b).Status() != mad.StatusOK {
		t.Fatalf("%v(%s): %v", m, mad.AttrName(mad.ClassSMLID, id), mad.View(b).Status())
	}
	if _, err := a.Parse(mad.View(b).Data()); err != nil {
		t.Fatal(err)
	}
}

func writePort(t *testing.T, g *agent.Agent, port ib.PortNum, change func(*mad.PortInfo)) (pi mad.PortInfo) {
	t.Helper()
	manage(t, g, mad.MethodGet, port, mad.AttrPortInfo, 0, &pi)
	pi.PortState, pi.PortPhysicalState = 0, 0
	change(&pi)
	manage(t, g, mad.MethodSet, port, mad.AttrPortInfo, 0, &pi)
	return pi
}

// raised are the events since the last call.
func raised(h *HCA) (list []EventType) {
	for e, ok := h.PollEvent(); ok; e, ok = h.PollEvent() {
		if e.Port == 1 {
			list = append(list, e.Type)
		}
	}
	return list
}

func TestNodeIdentity(t *testing.T) {
	_, _, g := managed(t)
	var ni mad.NodeInfo
	manage(t, g, mad.MethodGet, 2, mad.AttrNodeInfo, 0, &ni)
	if ni.NodeType != ib.NodeCA || ni.NumPorts != 2 || ni.NodeGUID != 0x500 || ni.PortGUID != 0x502 ||
		ni.SystemImageGUID != 0x500 ||
		ni.LocalPortNum != 2 || ni.PartitionCap != PartitionCap {
		t.Errorf("%+v", ni)
	}
}

func TestNodePortInfo(t *testing.T) {
	h, links, g := managed(t)
	raised(h)
	got := writePort(t, g, 1, func(pi *mad.PortInfo) {
		if pi.PortState = 0; pi.GidPrefix != ib.DefaultGIDPrefix || pi.MTUCap != ib.MTU4096 ||
			pi.Rate().Speed != ib.NDR || pi.GUIDCap != GUIDCap {
			t.Errorf("before: %+v", pi)
		}
		pi.LID, pi.LMC, pi.MasterSMLID, pi.MasterSMSL = 8, 2, 1, 3
		pi.NeighborMTU, pi.SubnetTimeOut, pi.VLHighLimit = ib.MTU1024, 18, 4
		pi.PortState = ib.PortArmed
	})
	p := h.Port(1)
	if p.LID != 8 || p.LMC != 2 || p.SMLID != 1 || p.SMSL != 3 || p.MTU != ib.MTU1024 || p.State != ib.PortArmed {
		t.Errorf("%+v", *p)
	}
	if links[1].State() != ib.PortArmed || links[1].NeighborMTU() != ib.MTU1024 || got.SubnetTimeOut != 18 ||
		got.VLHighLimit != 4 {
		t.Errorf("%v, %v, %+v", links[1].State(), links[1].NeighborMTU(), got)
	}
	if ev := raised(h); !slices.Equal(ev, []EventType{EventLIDChange, EventSMChange}) {
		t.Errorf("events %v", ev)
	}
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PortState, pi.ClientReregister = ib.PortActive, true })
	if ev := raised(h); !slices.Equal(ev, []EventType{EventPortActive, EventClientReregister}) ||
		p.State != ib.PortActive {
		t.Errorf("events %v, %v", ev, p.State)
	}
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.GidPrefix = 0xFEC0_0000_0000_0007 })
	if ev := raised(h); !slices.Equal(ev, []EventType{EventGIDChange}) ||
		p.GIDs[0] != ib.MakeGID(0xFEC0_0000_0000_0007, 0x501) {
		t.Errorf("events %v, GIDs %v", ev, p.GIDs)
	}
	// Violations are read, kept and reset.
	p.PKeyViolations, p.QKeyViolations = 5, 6
	got = writePort(t, g, 1, func(pi *mad.PortInfo) { pi.QKeyViolations = 0 })
	if got.PKeyViolations != 5 || got.QKeyViolations != 0 || p.PKeyViolations != 5 || p.QKeyViolations != 0 {
		t.Errorf("violations %d, %d", p.PKeyViolations, p.QKeyViolations)
	}
	raised(h)
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.PortState = ib.PortDown })
	if ev := raised(h); !slices.Equal(ev, []EventType{EventPortErr}) || p.State != ib.PortDown ||
		links[1].State() != ib.PortDown || p.LID != 8 {
		t.Errorf("events %v, %+v", ev, *p)
	}
	if q := h.Port(2); q.LID != 0 || q.State != ib.PortDown {
		t.Errorf("the other port changed: %+v", *q)
	}
}

func TestNodeTables(t *testing.T) {
	h, links, g := managed(t)
	raised(h)
	p := h.Port(1)
	// P_Keys keep their places; empty ones at the end are gone.
	keys := mad.PKeyTable{0: 0x7FFF, 3: 0x8003}
	manage(t, g, mad.MethodSet, 1, mad.AttrPKeyTable, 0, &keys)
	if !slices.Equal(p.PKeys, []ib.PKey{0x7FFF, 0, 0, 0x8003}) || keys[3] != 0x8003 {
		t.Errorf("%v", p.PKeys)
	}
	more := mad.PKeyTable{1: 0x8022}
	manage(t, g, mad.MethodSet, 1, mad.AttrPKeyTable, 1, &more)
	if len(p.PKeys) != 34 || p.PKeys[33] != 0x8022 || p.PKeys[3] != 0x8003 {
		t.Errorf("%v", p.PKeys)
	}
	more = mad.PKeyTable{}
	manage(t, g, mad.MethodSet, 1, mad.AttrPKeyTable, 1, &more)
	if len(p.PKeys) != 4 {
		t.Errorf("%v", p.PKeys)
	}
	if ev := raised(h); !slices.Equal(ev, []EventType{EventPKeyChange, EventPKeyChange, EventPKeyChange}) {
		t.Errorf("events %v", ev)
	}
	manage(t, g, mad.MethodSet, 1, mad.AttrPKeyTable, 0, &keys)
	if ev := raised(h); len(ev) != 0 {
		t.Errorf("events %v for a write that changed nothing", ev)
	}

	var guids mad.GUIDInfo
	manage(t, g, mad.MethodGet, 1, mad.AttrGUIDInfo, 0, &guids)
	if guids != (mad.GUIDInfo{0x501}) {
		t.Errorf("%v", guids)
	}
	guids[2] = 0xABC
	manage(t, g, mad.MethodSet, 1, mad.AttrGUIDInfo, 0, &guids)
	if len(p.GIDs) != 3 || !p.GIDs[1].IsZero() || p.GIDs[2] != ib.MakeGID(ib.DefaultGIDPrefix, 0xABC) ||
		guids[2] != 0xABC {
		t.Errorf("%v", p.GIDs)
	}
	if ev := raised(h); !slices.Equal(ev, []EventType{EventGIDChange}) {
		t.Errorf("events %v", ev)
	}
	// The port's own GUID is not to be written, and a new prefix reaches all.
	guids[0] = 0
	manage(t, g, mad.MethodSet, 1, mad.AttrGUIDInfo, 0, &guids)
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.GidPrefix = 0xFEC0 << 48 })
	if p.GIDs[0].GUID() != 0x501 || p.GIDs[2].Prefix() != 0xFEC0<<48 || !p.GIDs[1].IsZero() {
		t.Errorf("%v", p.GIDs)
	}

	sl := mad.SLtoVL{7, 6}
	manage(t, g, mad.MethodSet, 1, mad.AttrSLtoVL, 0, &sl)
	if links[1].SL2VL(0) != 7 || links[1].SL2VL(1) != 6 || sl[1] != 6 || links[2].SL2VL(0) != 0 {
		t.Errorf("%v", links[1].SL2VLMap())
	}
	for k := mad.VLArbLow0; k < mad.NumVLArbBlock; k++ {
		arb := mad.VLArb{1: {VL: ib.VL(k), Weight: 9}}
		manage(t, g, mad.MethodSet, 1, mad.AttrVLArb, mad.VLArbModifier(0, k), &arb)
		if arb[1].VL != ib.VL(k) {
			t.Errorf("VLArb %v reads %v", k, arb[1])
		}
	}
	high, low, _ := links[1].ArbTables()
	if low[1].VL != 1 || low[33].VL != 2 || high[1].VL != 3 || high[33].VL != 4 {
		t.Errorf("%v, %v", low[1], high[1])
	}
}

func TestNodeCounters(t *testing.T) {
	_, links, g := managed(t)
	links[1].SymbolError()
	links[1].SymbolError()
	attr := mad.CounterAttrByID(mad.AttrPortCounters)
	read := func(m mad.Method) uint64 {
		t.Helper()
		var b [mad.Size]byte
		h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: m,
			AttributeID: mad.AttrPortCounters}
		h.Append(b[:0])
		data := mad.View(b[:]).Data()
		attr.SetPortSelect(data, 1)
		attr.SetSelect(data, attr.SelectAll())
		if _, ok := g.HandleMAD(0, 1, b[:], b[:]); !ok || mad.View(b[:]).Status() != mad.StatusOK {
			t.Fatal(mad.View(b[:]).Status())
		}
		c, err := attr.Counters(data)
		if err != nil {
			t.Fatal(err)
		}
		return c[ib.SymbolErrorCounter]
	}
	if n := read(mad.MethodGet); n != 2 {
		t.Errorf("SymbolErrorCounter %d", n)
	}
	read(mad.MethodSet)
	if n := read(mad.MethodGet); n != 0 {
		t.Errorf("SymbolErrorCounter %d after it was cleared", n)
	}
}
