package hca

import (
	"testing"

	"softib/proto/wire"
)

// TestPlacement lets a FLUSH and an atomic write be refused, at the post or by the peer.
func TestPlacement(t *testing.T) {
	global := func(n uint32) Flush { return Flush{Length: n, Type: wire.FlushGlobal} }
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	flush := SendWR{Opcode: WRFlush, RemoteAddr: memVA, RKey: b.mr.RKey(), Flush: global(100)}
	write := SendWR{Opcode: WRAtomicWrite, RemoteAddr: memVA, RKey: b.mr.RKey(), SGList: []SGE{a.sge(0, 8)}}
	for _, c := range []struct {
		attr   string
		wr     SendWR
		change func(*SendWR)
	}{
		{"flush", flush, func(wr *SendWR) { wr.Flush.Type = 0 }},
		{"flush", flush, func(wr *SendWR) { wr.Flush.Type = 4 }},
		{"flush", flush, func(wr *SendWR) { wr.Flush.Level = 2 }},
		{"sg_list", flush, func(wr *SendWR) { wr.SGList = []SGE{a.sge(0, 8)} }},
		{"sg_list", write, func(wr *SendWR) { wr.SGList = []SGE{a.sge(0, 4)} }},
		{"remote_addr", write, func(wr *SendWR) { wr.RemoteAddr += 4 }},
	} {
		wr := c.wr
		c.change(&wr)
		wantAttr(t, a.h.PostSend(a.qp, &wr), "post_send", c.attr, ErrInvalid)
	}
	w.close()

	for _, c := range []struct {
		what   string
		access Access // of the region
		wr     SendWR
		want   WCStatus
	}{
		{"a FLUSH of part", accessAll, flush, WCSuccess},
		{"a FLUSH beyond the end", accessAll, SendWR{Opcode: WRFlush, RemoteAddr: memVA + 4000, Flush: global(100)},
			WCRemAccessErr},
		{"a FLUSH of all, from nowhere", accessAll, SendWR{Opcode: WRFlush, RemoteAddr: 1,
			Flush: Flush{Length: 9, Type: wire.FlushGlobal, Level: wire.FlushRegion}}, WCSuccess},
		{"a FLUSH without the right", accessAll &^ AccessFlushGlobal, flush, WCRemAccessErr},
		{"a FLUSH against power cuts", accessAll, SendWR{Opcode: WRFlush, RemoteAddr: memVA,
			Flush: Flush{Length: 9, Type: wire.FlushPersistent}}, WCRemAccessErr},
		{"an atomic write without the right", AccessLocalWrite | AccessRemoteRead, write, WCRemAccessErr},
		{"an atomic write", AccessLocalWrite | AccessRemoteWrite, write, WCSuccess},
	} {
		w := newWorld(t, 2, 1)
		a, b := w.pair(conf{access: AccessRemoteWrite | AccessFlushGlobal | AccessFlushPersistent})
		mem := make([]byte, 4096)
		mr := must(b.h.RegMR(b.pd, mem, memVA, c.access&^AccessZeroBased))(t)
		wr := c.wr
		wr.RKey = mr.RKey()
		if wr.Opcode == WRAtomicWrite {
			wr.SGList = []SGE{a.sge(0, 8)}
		}
		if got := a.try(wr); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
