package hca

import (
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// TestKeyNotices: packets with wrong keys reach the port's manager as traps.
func TestKeyNotices(t *testing.T) {
	h, links, g := managed(t)
	writePort(t, g, 1, func(pi *mad.PortInfo) { pi.LID, pi.MasterSMLID, pi.MasterSMSL = 7, 3, 2 })
	q := &QP{h: h, typ: UD, state: StateRTS, num: 9}
	q.path.pkey = ib.PKeyDefault
	q.attr.QKey = 5
	p := wire.Packet{
		LRH:  wire.LRH{SLID: 4, DLID: 7, SL: 6, LNH: wire.LNHGlobal},
		GRH:  wire.GRH{SGID: ib.GID{1}, DGID: ib.GID{2}},
		BTH:  wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), PKey: 0x8001, DestQP: 9},
		DETH: wire.DETH{QKey: 8, SrcQP: 44},
	}
	if d := q.checkDatagram(1, h.Port(1), &p); d != DropPKey {
		t.Fatal(d)
	}
	p.BTH.PKey = ib.PKeyDefault
	if d := q.checkDatagram(1, h.Port(1), &p); d != DropQKey {
		t.Fatal(d)
	}
	buf := make([]byte, mad.Size)
	now := ib.Time(0)
	for _, want := range []struct {
		trap uint16
		key  uint32
	}{{mad.TrapBadPKey, 0x8001}, {mad.TrapBadQKey, 8}} {
		to, ok := g.PollTrap(now, buf)
		if !ok || to.Port != 1 || to.DLID != 3 || to.SL != 2 || to.SLID != 7 {
			t.Fatalf("trap %d: to %+v, %v", want.trap, to, ok)
		}
		var n mad.Notice
		var d mad.KeyDetails
		if _, err := n.Parse(mad.View(buf).Data()); err != nil || n.TrapNumberDeviceID != want.trap ||
			n.Type != mad.NoticeSecurity {
			t.Fatalf("%+v, %v", n, err)
		}
		if _, err := d.Parse(n.DataDetails[:]); err != nil ||
			d != (mad.KeyDetails{LID1: 4, LID2: 7, Key: want.key, SL: 6, QP1: 44, QP2: 9, GID1: ib.GID{1},
				GID2: ib.GID{2}}) {
			t.Errorf("trap %d: %+v, %v", want.trap, d, err)
		}
		now = g.NextDeadline()
	}
	for range 100 {
		q.checkDatagram(1, h.Port(1), &p)
	}
	if len(h.violations) != maxViolations || h.Port(1).QKeyViolations != 101 {
		t.Errorf("%d violations kept, %d counted", len(h.violations), h.Port(1).QKeyViolations)
	}
	// Errors of the link.
	links[1].SetErrorThresholds(0, 0)
	f := (&link.Pool{BufSize: 256}).Get()
	f.Flags |= link.BadVCRC
	links[1].Receive(0, f)
	seen := map[uint16]bool{}
	for range 10 {
		if _, ok := g.PollTrap(now, buf); !ok {
			t.Fatal("no trap, though none was answered")
		}
		seen[uint16(buf[mad.SMPDataOff+4])<<8|uint16(buf[mad.SMPDataOff+5])] = true
		now += ib.Second
	}
	if !seen[mad.TrapLinkIntegrity] {
		t.Errorf("traps %v, want link integrity among them", seen)
	}
}

// TestViolationElsewhere: what came to one part of an adapter counts at the part that is managed.
func TestViolationElsewhere(t *testing.T) {
	managed := New(Config{})
	v := agent.Notice{Trap: mad.TrapBadQKey, Port: 1, Packet: mad.KeyDetails{LID1: 5}}
	managed.HandleViolation(v)
	managed.HandleViolation(agent.Notice{Trap: mad.TrapBadPKey, Port: 9})
	managed.HandleViolation(agent.Notice{Trap: 1, Port: 1})
	if p := managed.Port(1); p.QKeyViolations != 1 || p.PKeyViolations != 0 {
		t.Errorf("violations %d, %d: want 0 of P_Keys, 1 of Q_Keys", p.PKeyViolations, p.QKeyViolations)
	}
	if got, ok := managed.PollViolation(); !ok || got != v {
		t.Errorf("got %+v, %v", got, ok)
	}
	if _, ok := managed.PollViolation(); ok {
		t.Error("told twice")
	}
}
