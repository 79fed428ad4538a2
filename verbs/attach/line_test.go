package attach

import (
	"testing"

	"softib/driver/endpoint"
	"softib/node/tunnel"
	"softib/proto/ib"
	"softib/proto/wire"
	"softib/verbs/attach/proto"
)

// TestAdmits: who has the keys of a line to this process, a tenant's program on another machine, may send by it what
// its own adapter could have sent by the way that was asked for, and speaks for nobody else.
func TestAdmits(t *testing.T) {
	secret := make([]byte, tunnel.SecretBytes)
	said := proto.Line{ID: 7, Port: 1, SendSecret: secret, RecvSecret: secret, From: proto.Origin{LID: 8, LMC: 2,
		DLID: 20, SL: 3, PKey: 0x9001, Block: 5, GIDs: []ib.GID{ib.MakeGID(ib.DefaultGIDPrefix, 7)}}}
	cfg, ok := lineConfig(&said)
	if !ok || cfg.Admits == nil {
		t.Fatalf("%+v of %+v", cfg, said)
	}
	own := func() *wire.Packet {
		return &wire.Packet{LRH: wire.LRH{SLID: 9, DLID: 20, SL: 3, LNH: wire.LNHLocal},
			BTH:  wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), PKey: 0x9001},
			DETH: wire.DETH{SrcQP: 5<<endpoint.BlockBits + 1}}
	}
	for _, c := range []struct {
		what  string
		forge func(*wire.Packet)
		want  bool
	}{
		{"its own", func(*wire.Packet) {}, true},
		{"a connection's", func(p *wire.Packet) { p.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpSendOnly) }, true},
		{"with its GID", func(p *wire.Packet) { p.LRH.LNH, p.GRH.SGID = wire.LNHGlobal, said.From.GIDs[0] }, true},
		{"from another's address", func(p *wire.Packet) { p.LRH.SLID = 12 }, false},
		{"from nobody's", func(p *wire.Packet) { p.LRH.SLID = 0 }, false},
		{"to another", func(p *wire.Packet) { p.LRH.DLID = 21 }, false},
		{"to a group", func(p *wire.Packet) { p.LRH.DLID = 0xC001 }, false},
		{"on another level", func(p *wire.Packet) { p.LRH.SL = 4 }, false},
		{"of another partition", func(p *wire.Packet) { p.BTH.PKey = 0x9002 }, false},
		{"of the default partition", func(p *wire.Packet) { p.BTH.PKey = 0xFFFF }, false},
		{"with another's GID", func(p *wire.Packet) {
			p.LRH.LNH, p.GRH.SGID = wire.LNHGlobal, ib.MakeGID(ib.DefaultGIDPrefix, 8)
		}, false},
		{"of another program's queue pair", func(p *wire.Packet) { p.DETH.SrcQP = 6<<endpoint.BlockBits + 1 }, false},
		{"of queue pair 1", func(p *wire.Packet) { p.DETH.SrcQP = 1 }, false},
		{"raw", func(p *wire.Packet) { p.LRH.LNH = wire.LNHRaw }, false},
	} {
		p := own()
		c.forge(p)
		if got := cfg.Admits(p); got != c.want {
			t.Errorf("%s: admitted %v, want %v", c.what, got, c.want)
		}
	}

	said.Sends = true
	if cfg, ok := lineConfig(&said); !ok || cfg.Admits != nil {
		t.Errorf("the end that sends admits packets: %+v", cfg)
	}
	for _, short := range []func(*proto.Line){
		func(l *proto.Line) { l.SendSecret = secret[1:] }, func(l *proto.Line) { l.RecvSecret = nil },
	} {
		l := said
		short(&l)
		if _, ok := lineConfig(&l); ok {
			t.Errorf("a line with secrets of %d and %d bytes", len(l.SendSecret), len(l.RecvSecret))
		}
	}
}
