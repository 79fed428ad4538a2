package trace

import (
	"testing"
	"unsafe"

	"softib/proto/ib"
	"softib/proto/wire"
)

func sum(payloads bool, events ...Event) uint64 {
	h := Hash{Payloads: payloads}
	for i := range events {
		h.Add(&events[i])
	}
	return h.Sum()
}

// TestHashGolden: the sum must not change by accident, for it stands in
// replay commands and in committed expectations.
func TestHashGolden(t *testing.T) {
	var h Hash
	if h.Sum() != 0 || h.Count() != 0 {
		t.Errorf("empty: %x, %d", h.Sum(), h.Count())
	}
	for _, e := range goldenEvents() {
		h.Add(&e)
	}
	if h.String() != "32bad7b75369a5b7" || h.Count() != 4 {
		t.Errorf("got %v after %d events", &h, h.Count())
	}
}

// TestHashSeesEverything changes one thing at a time, in every packet there
// is: each change must give another sum.
func TestHashSeesEverything(t *testing.T) {
	edits := map[string]func(e *Event, p *wire.Packet){
		"time":    func(e *Event, _ *wire.Packet) { e.Time++ },
		"node":    func(e *Event, _ *wire.Packet) { e.Node++ },
		"port":    func(e *Event, _ *wire.Packet) { e.Port++ },
		"dir":     func(e *Event, _ *wire.Packet) { e.Dir++ },
		"reason":  func(e *Event, _ *wire.Packet) { e.Kind, e.Reason = Drop, HOQLife },
		"note":    func(e *Event, _ *wire.Packet) { e.Note = "x" },
		"dlid":    func(_ *Event, p *wire.Packet) { p.LRH.DLID++ },
		"slid":    func(_ *Event, p *wire.Packet) { p.LRH.SLID++ },
		"vl":      func(_ *Event, p *wire.Packet) { p.LRH.VL++ },
		"sl":      func(_ *Event, p *wire.Packet) { p.LRH.SL++ },
		"length":  func(_ *Event, p *wire.Packet) { p.LRH.Length++ },
		"psn":     func(_ *Event, p *wire.Packet) { p.BTH.PSN++ },
		"qp":      func(_ *Event, p *wire.Packet) { p.BTH.DestQP++ },
		"pkey":    func(_ *Event, p *wire.Packet) { p.BTH.PKey++ },
		"se":      func(_ *Event, p *wire.Packet) { p.BTH.Solicited = !p.BTH.Solicited },
		"migrate": func(_ *Event, p *wire.Packet) { p.BTH.Migrate = !p.BTH.Migrate },
		"fecn":    func(_ *Event, p *wire.Packet) { p.BTH.FECN = !p.BTH.FECN },
		"becn":    func(_ *Event, p *wire.Packet) { p.BTH.BECN = !p.BTH.BECN },
		"ackreq":  func(_ *Event, p *wire.Packet) { p.BTH.AckReq = !p.BTH.AckReq },
		"payload": func(_ *Event, p *wire.Packet) { p.Payload = append([]byte{1}, p.Payload...) },
	}
	for _, x := range []struct {
		ext  wire.Ext
		edit func(p *wire.Packet)
	}{
		{wire.ExtRDETH, func(p *wire.Packet) { p.EEContext++ }},
		{wire.ExtDETH, func(p *wire.Packet) { p.DETH.QKey++ }},
		{wire.ExtDETH, func(p *wire.Packet) { p.DETH.SrcQP++ }},
		{wire.ExtXRCETH, func(p *wire.Packet) { p.XRCSRQ++ }},
		{wire.ExtRETH, func(p *wire.Packet) { p.RETH.VA++ }},
		{wire.ExtRETH, func(p *wire.Packet) { p.RETH.RKey++ }},
		{wire.ExtRETH, func(p *wire.Packet) { p.RETH.DMALen++ }},
		{wire.ExtAtomicETH, func(p *wire.Packet) { p.AtomicETH.VA++ }},
		{wire.ExtAtomicETH, func(p *wire.Packet) { p.AtomicETH.RKey++ }},
		{wire.ExtAtomicETH, func(p *wire.Packet) { p.AtomicETH.Swap++ }},
		{wire.ExtAtomicETH, func(p *wire.Packet) { p.AtomicETH.Compare++ }},
		{wire.ExtAETH, func(p *wire.Packet) { p.AETH.Syndrome++ }},
		{wire.ExtAETH, func(p *wire.Packet) { p.AETH.MSN++ }},
		{wire.ExtAtomicAckETH, func(p *wire.Packet) { p.AtomicAck++ }},
		{wire.ExtImmDt, func(p *wire.Packet) { p.Imm++ }},
		{wire.ExtIETH, func(p *wire.Packet) { p.Imm++ }},
	} {
		// A field counts in the packets that have it, and only there.
		for _, p := range everyOpcode() {
			q := *p
			x.edit(&q)
			has := p.BTH.Opcode.Info().Ext&x.ext != 0
			if x.ext == wire.ExtImmDt || x.ext == wire.ExtIETH {
				has = p.BTH.Opcode.Info().Ext&(wire.ExtImmDt|wire.ExtIETH) != 0
			}
			if differs := sum(false, Event{Packet: p}) != sum(false, Event{Packet: &q}); differs != has {
				t.Errorf("%v, header %#x: differs is %v", p.BTH.Opcode, x.ext, differs)
			}
		}
	}
	seen := map[uint64]string{}
	for _, p := range everyOpcode() {
		base := Event{Time: 5, Node: 1, Port: 2, Dir: In, Packet: p}
		all := map[string]Event{"as it is": base}
		for name, edit := range edits {
			q, e := *p, base
			edit(&e, &q)
			e.Packet = &q
			all[name] = e
		}
		if p.LRH.LNH == wire.LNHGlobal {
			for name, edit := range map[string]func(g *wire.GRH){
				"hop limit": func(g *wire.GRH) { g.HopLimit-- }, "tclass": func(g *wire.GRH) { g.TClass++ },
				"flow": func(g *wire.GRH) { g.Flow++ }, "sgid": func(g *wire.GRH) { g.SGID[3]++ },
				"dgid": func(g *wire.GRH) { g.DGID[12]++ },
			} {
				q, e := *p, base
				edit(&q.GRH)
				e.Packet = &q
				all[name] = e
			}
		}
		for name, e := range all {
			s := sum(false, e)
			label := p.BTH.Opcode.String() + ", " + name
			if other, ok := seen[s]; ok {
				t.Errorf("%s and %s have one sum", other, label)
			}
			seen[s] = label
		}
	}
}

func TestHashOrderAndPayload(t *testing.T) {
	a, b := Event{Time: 1, Packet: ack()}, Event{Time: 2, Packet: ack()}
	if sum(false, a, b) == sum(false, b, a) {
		t.Error("order does not count")
	}
	c, d := Event{Time: 1, Packet: ack()}, Event{Time: 2, Packet: ack()}
	if sum(false, a, b) != sum(false, c, d) {
		t.Error("equal events in equal order give another sum")
	}
	p := ack()
	p.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpSendOnly)
	p.Payload = make([]byte, 21)
	q := *p
	for i := range p.Payload {
		q.Payload = append([]byte(nil), p.Payload...)
		q.Payload[i] = 1
		if sum(true, Event{Packet: p}) == sum(true, Event{Packet: &q}) {
			t.Errorf("payload byte %d does not count", i)
		}
		if sum(false, Event{Packet: p}) != sum(false, Event{Packet: &q}) {
			t.Errorf("payload byte %d counts without Payloads", i)
		}
	}
	states := []Event{
		{Kind: State, What: "port", From: "Armed", To: "Active"},
		{Kind: State, What: "port", From: "Armed", To: "Down"},
		{Kind: State, What: "portA", From: "rmed", To: "Active"}, {Kind: State, What: "port", From: "ArmedActive"},
		{Kind: State, What: "port", From: "Armed", To: "Active", QP: 3},
		{Kind: Link, Link: wire.LinkPacket{FCCL: 1}}, {Kind: Link, Link: wire.LinkPacket{FCTBS: 1}},
		{Kind: Link, Link: wire.LinkPacket{VL: 1}},
		{Kind: Drop, Bytes: []byte{1, 2, 3}}, {Kind: Drop, Bytes: []byte{1, 2, 3, 0}},
	}
	seen := map[uint64]int{}
	for i, e := range states {
		s := sum(false, e)
		if j, ok := seen[s]; ok {
			t.Errorf("events %d and %d have one sum", i, j)
		}
		seen[s] = i
	}
}

func TestHashNoAllocation(t *testing.T) {
	var h Hash
	e := Event{Packet: ack()}
	if n := testing.AllocsPerRun(100, func() { h.Add(&e) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if n := unsafe.Sizeof(h); n > 24 {
		t.Errorf("Hash has %d bytes", n)
	}
}

func BenchmarkHash(b *testing.B) {
	var h Hash
	p := ack()
	p.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpSendOnly)
	p.Payload = make([]byte, 4096)
	e := Event{Packet: p}
	for b.Loop() {
		e.Time += ib.Nanosecond
		h.Add(&e)
	}
}
