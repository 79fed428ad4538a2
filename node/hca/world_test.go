package hca

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// world joins adapters by a wire in virtual time. It does what a driver does
// and nothing else: whatever the engines need, they must ask of it.
type world struct {
	t      testing.TB
	now    ib.Time
	hosts  []*host
	flight []flying
	seq    int
	delay  ib.Time
	// viaWire serialises every packet and parses it again.
	viaWire bool
	// fate decides what happens to a packet; nil delivers everything.
	fate func(f *flying) fate
	// far, if set, leaves payloads with their senders, and says each time
	// somebody asks for one whether it is still there.
	far func() bool
	// room, if set, says how large a buffer the next packet gets, and copies
	// whether it must not refer to memory.
	room   func() int
	copies func() bool
	// trace collects what happened, one line each, if tracing.
	tracing bool
	trace   []string
	watch   []*end
	buf     []byte
	steps   int
	// bundled and straddled count bundles that arrived, and those of them that
	// begin with what the receiver has and end with what it has not.
	bundled, straddled int
}

type host struct {
	*HCA
	name string
	idx  int
}

// flying is a packet on its way.
type flying struct {
	at   ib.Time
	seq  int
	from *host
	port ib.PortNum
	p    wire.Packet
}

// fate is what becomes of a packet.
type fate struct {
	drop    bool
	dup     int     // extra copies
	corrupt int     // flip this byte of the serialised packet, from 1
	extra   ib.Time // more delay
}

func newWorld(t testing.TB, hosts, ports int) *world {
	t.Helper()
	w := &world{t: t, delay: ib.Microsecond, buf: make([]byte, 1<<16)}
	for i := range hosts {
		h := &host{HCA: New(Config{NodeGUID: ib.GUID(0x1000 * (i + 1)), Ports: ports,
			FirstQPN: ib.QPN(0x100 * (i + 1))}), name: string(rune('a' + i)), idx: i}
		for n := 1; n <= ports; n++ {
			p := *h.Port(ib.PortNum(n))
			p.State, p.LID, p.SMLID = ib.PortActive, lidOf(i, n), 1
			h.SetPort(ib.PortNum(n), p)
		}
		for h.HasEvent() {
			h.PollEvent()
		}
		w.hosts = append(w.hosts, h)
	}
	return w
}

// lidOf is the address of a host's port: 11, 12 for a's, 21, 22 for b's.
func lidOf(host, port int) ib.LID { return ib.LID(10*(host+1) + port) }

// pump takes everything that the adapters want to send.
func (w *world) pump() {
	for _, h := range w.hosts {
		for {
			s, ok := h.NextSend()
			if !ok {
				break
			}
			var p wire.Packet
			if w.emit(h, s, &p) {
				w.launch(h, s.Port, p)
			}
		}
	}
	w.observe()
}

// emit takes one packet, and checks that it is what was announced.
func (w *world) emit(h *host, s *Send, p *wire.Packet) bool {
	w.t.Helper()
	buf := w.buf
	if w.room != nil {
		buf = buf[:w.room()]
	}
	// A packet of its own needs the path MTU, or less if there is less.
	buf = buf[:min(len(buf), s.Copied)]
	if w.copies != nil {
		s.Copy = w.copies()
	}
	if !h.Emit(w.now, s, p, buf) {
		return false
	}
	n := len(p.Payload)
	copied := n > 0 && len(buf) > 0 && &p.Payload[0] == &buf[0]
	if s.Copy && n > 0 && !copied || copied && n > s.Copied || s.Refers && !s.Copy && copied || s.Refers && n == 0 {
		w.t.Fatalf("%v of %d bytes, copied: %v: not what was said: %+v", p.BTH.Opcode, n, copied, s)
	}
	if p.BTH.DestQP != s.DQPN || p.LRH.DLID != s.DLID {
		w.t.Fatalf("a packet for %v at %v, not %v at %v", p.BTH.DestQP, p.LRH.DLID, s.DQPN, s.DLID)
	}
	if k := p.Packets(); k > max(1, h.cfg.MaxBundle) {
		w.t.Fatalf("%d packets in one, want %d at most", k, h.cfg.MaxBundle)
	}
	p.Payload = append([]byte(nil), p.Payload...)
	return true
}

// bundles lets all adapters put up to n packets into one.
func (w *world) bundles(n int) {
	for _, h := range w.hosts {
		h.cfg.MaxBundle = n
	}
}

func (w *world) launch(h *host, port ib.PortNum, p wire.Packet) {
	if w.viaWire && p.Count > 1 {
		for i := range p.Packets() { // a wire has no bundles
			w.launch(h, port, p.Single(i))
		}
		return
	}
	f := flying{at: w.now + w.delay, seq: w.seq, from: h, port: port, p: p}
	w.seq++
	var ft fate
	if w.fate != nil {
		ft = w.fate(&f)
	}
	w.note(describe(w, &f, ft))
	if ft.corrupt > 0 && p.Count > 1 {
		return // damaged in one packet, lost as a whole
	}
	if w.viaWire || ft.corrupt > 0 {
		b := p.Append(nil)
		if ft.corrupt > 0 {
			b[(ft.corrupt-1)%len(b)] ^= 0x41
		}
		var q wire.Packet
		if err := q.Parse(b); err != nil {
			if ft.corrupt == 0 {
				w.t.Fatalf("an emitted packet does not parse: %v\n%s", err, wire.Sprint(b))
			}
			return
		}
		f.p = q
	}
	if ft.drop {
		return
	}
	if n := len(f.p.Payload); w.far != nil && n > 0 {
		f.p.Far, f.p.FarLen, f.p.Payload = &elsewhere{f.p.Payload, w.far}, n, nil
	}
	f.at += ft.extra
	for range 1 + ft.dup {
		w.flight = append(w.flight, f)
	}
}

// step delivers what comes next; false when nothing ever will.
func (w *world) step(until ib.Time) bool {
	w.steps++
	at := ib.Never
	for i := range w.flight {
		at = ib.Earlier(at, w.flight[i].at)
	}
	for _, h := range w.hosts {
		at = ib.Earlier(at, h.NextDeadline())
	}
	if at == ib.Never || at > until {
		return false
	}
	if at > w.now {
		w.now = at
	}
	var due, rest []flying
	for _, f := range w.flight {
		if f.at <= w.now {
			due = append(due, f)
		} else {
			rest = append(rest, f)
		}
	}
	w.flight = rest
	sort.SliceStable(due, func(i, j int) bool { return due[i].at < due[j].at })
	for i := range due {
		w.deliver(&due[i])
		w.observe()
	}
	for _, h := range w.hosts {
		if h.NextDeadline() <= w.now {
			h.HandleTimeout(w.now)
		}
	}
	w.pump()
	return true
}

func (w *world) deliver(f *flying) {
	if f.p.Count > 1 {
		w.bundled++
		for _, h := range w.hosts {
			if q := h.QP(f.p.BTH.DestQP); q != nil && q.isRC() {
				at := q.ePSN
				if !f.p.BTH.Opcode.Info().Is(wire.FlagRequest) {
					at = q.ackPSN
				}
				if f.p.BTH.PSN.Before(at) && pastPSN(&f.p).After(at) {
					w.straddled++
				}
			}
		}
	}
	dlid := f.p.LRH.DLID
	for _, h := range w.hosts {
		for n := 1; n <= h.NumPorts(); n++ {
			port := h.Port(ib.PortNum(n))
			switch {
			case dlid.IsMulticast() && h != f.from && n == 1, port.ownsLID(dlid):
				h.HandlePacket(w.now, ib.PortNum(n), &f.p)
			}
		}
	}
}

// run goes on until nothing is left to happen.
func (w *world) run() {
	w.t.Helper()
	w.pump()
	for start := w.steps; w.step(ib.Never); {
		if w.steps-start > 200000 {
			w.t.Fatalf("still busy after 200000 steps, at %v", w.now)
		}
	}
}

// runFor goes on for d.
func (w *world) runFor(d ib.Time) {
	w.t.Helper()
	end := w.now + d
	w.pump()
	for w.step(end) {
	}
	w.now = end
}

// elsewhere is a payload in another process, which may be gone.
type elsewhere struct {
	b     []byte
	there func() bool
}

// CopyTo leaves half of it behind if the owner is gone.
func (s *elsewhere) CopyTo(dst []byte, off int) bool {
	src := s.b[off : off+len(dst)]
	if !s.there() {
		copy(dst, src[:len(src)/2])
		return false
	}
	copy(dst, src)
	return true
}

func (w *world) note(s string) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%9.1f  %s", float64(w.now)/float64(ib.Microsecond), s))
	}
}

// observe writes completions and events into the trace.
func (w *world) observe() {
	if !w.tracing {
		return
	}
	for _, e := range w.watch {
		for _, cq := range e.cqs() {
			var wc [8]WC
			for n := cq.Poll(wc[:]); n > 0; n = cq.Poll(wc[:]) {
				for _, c := range wc[:n] {
					w.note(e.name + "    " + showWC(&c))
				}
			}
		}
	}
	for _, h := range w.hosts {
		for e, ok := h.PollEvent(); ok; e, ok = h.PollEvent() {
			w.note(h.name + "    event " + e.String())
		}
	}
}

func showWC(c *WC) string {
	s := fmt.Sprintf("wc %d %v %v", c.WRID, c.Opcode, c.Status)
	if c.Status == WCSuccess {
		s += fmt.Sprintf(" len=%d", c.ByteLen)
	}
	if c.Flags&WCWithImm != 0 {
		s += fmt.Sprintf(" imm=%#x", c.ImmData)
	}
	if c.Flags&WCWithInv != 0 {
		s += fmt.Sprintf(" inv=%#x", c.ImmData)
	}
	if c.Flags&WCGRH != 0 {
		s += " grh"
	}
	if c.Flags&WCTagSyncReq != 0 {
		s += " sync"
	}
	if c.Flags&WCTagMatch != 0 {
		tag, user := uint64(c.VendorErr)<<32|uint64(c.SrcQP), uint32(c.PKeyIndex)<<16|uint32(c.SLID)
		s += fmt.Sprintf(" match=%#x/%d", tag, user)
	}
	if c.Flags&WCTagDataValid != 0 {
		s += " data"
	}
	return s
}

// describe is a packet in one line.
func describe(w *world, f *flying, ft fate) string {
	p := &f.p
	to := "?"
	for _, h := range w.hosts {
		for n := 1; n <= h.NumPorts(); n++ {
			if h.Port(ib.PortNum(n)).ownsLID(p.LRH.DLID) {
				to = h.name
				if h.NumPorts() > 1 {
					to += fmt.Sprint(n)
				}
			}
		}
	}
	if p.LRH.DLID.IsMulticast() {
		to = "*"
	}
	s := fmt.Sprintf("%s>%s  %v psn=%d", f.from.name, to, p.BTH.Opcode, p.BTH.PSN)
	if p.Count > 1 {
		s += fmt.Sprintf("..%d", lastPSN(p))
	}
	info := p.BTH.Opcode.Info()
	if info.Has(wire.ExtRETH) {
		s += fmt.Sprintf(" va=%#x dmalen=%d", p.RETH.VA, p.RETH.DMALen)
	}
	if info.Has(wire.ExtAtomicETH) {
		s += fmt.Sprintf(" va=%#x", p.AtomicETH.VA)
	}
	if info.Has(wire.ExtAETH) {
		s += fmt.Sprintf(" msn=%d %v", p.AETH.MSN, p.AETH.Syndrome)
	}
	if info.Has(wire.ExtAtomicAckETH) {
		s += fmt.Sprintf(" orig=%d", p.AtomicAck)
	}
	if info.Has(wire.ExtXRCETH) {
		s += fmt.Sprintf(" srq=%d", p.XRCSRQ)
	}
	if len(p.Payload) > 0 {
		s += fmt.Sprintf(" [%d]", len(p.Payload))
	}
	for _, b := range []struct {
		on   bool
		name string
	}{{p.BTH.AckReq, " A"}, {p.BTH.Solicited, " SE"},
		{!p.BTH.Migrate && info.Kind != wire.KindCNP && p.BTH.Opcode.Service() != wire.UD, " armed"},
		{ft.drop, "  LOST"}, {ft.dup > 0, "  TWICE"}} {
		if b.on {
			s += b.name
		}
	}
	return s
}

// end is one side of a conversation: a queue pair with everything around it.
type end struct {
	name string
	w    *world
	h    *host
	pd   *PD
	scq  *CQ
	rcq  *CQ
	srq  *SRQ
	xrcd *XRCD
	qp   *QP
	mr   *MR
	ahs  []*AH
	back []byte // mr's memory with guard bytes around it
	mem  []byte
}

const (
	guard  = 64
	memVA  = 0x10000
	memLen = 1 << 16
)

// conf says how an end shall be; zero values mean the defaults of newEnd.
type conf struct {
	typ                         QPType
	mtu                         ib.MTU
	psn                         ib.PSN // a sends from it; b from it + 0x1000
	timeout, retry, rnr         uint8
	rnrTimer                    uint8
	rd, destRD                  uint8
	access                      Access
	mrAccess                    Access
	sendWR, recvWR, sge, inline int
	cqe                         int
	srq                         int // receives in a shared queue
	srqLimit                    int
	tags                        int // and it matches so many
	sigAll                      bool
	blockSMC, ipoib             bool
	global                      bool
	noRetry, noRNR, noRD        bool
	noAccess, noMRAccess        bool
	noTimeout, noDestRD         bool
	memLen                      int
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c conf) filled() conf {
	def(&c.mtu, ib.MTU256)
	def(&c.timeout, 8) // 1.05 ms
	def(&c.retry, 7)
	def(&c.rnr, 7)
	def(&c.rnrTimer, 1)
	def(&c.rd, 4)
	def(&c.destRD, 4)
	def(&c.access, AccessRemoteWrite|AccessRemoteRead|AccessRemoteAtomic|AccessFlushGlobal)
	def(&c.mrAccess, AccessLocalWrite|AccessRemoteWrite|AccessRemoteRead|AccessRemoteAtomic|AccessMWBind|
		AccessFlushGlobal)
	def(&c.sendWR, 64)
	def(&c.recvWR, 64)
	def(&c.sge, 4)
	def(&c.inline, 512)
	def(&c.cqe, 256)
	def(&c.memLen, memLen)
	for _, z := range []struct {
		on bool
		v  *uint8
	}{{c.noRetry, &c.retry}, {c.noRNR, &c.rnr}, {c.noRD, &c.rd}, {c.noTimeout, &c.timeout}, {c.noDestRD, &c.destRD}} {
		if z.on {
			*z.v = 0
		}
	}
	if c.noAccess {
		c.access = 0
	}
	if c.noMRAccess {
		c.mrAccess = 0
	}
	return c
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newEnd makes a queue pair in RESET with its domain, queues and memory.
func (w *world) newEnd(hostIdx int, c conf) *end {
	t := w.t
	t.Helper()
	c = c.filled()
	h := w.hosts[hostIdx]
	e := &end{name: h.name, w: w, h: h}
	e.pd = must(h.AllocPD())(t)
	e.scq = must(h.CreateCQ(c.cqe))(t)
	e.rcq = must(h.CreateCQ(c.cqe))(t)
	if c.typ == XRCRecv {
		e.xrcd = h.OpenXRCD()
	}
	if c.srq > 0 {
		init := SRQInit{PD: e.pd, MaxWR: c.srq, MaxSGE: c.sge, Limit: c.srqLimit}
		if c.typ == XRCRecv {
			init.XRCD, init.CQ = e.xrcd, e.rcq
		}
		if c.tags > 0 {
			init.Tags, init.CQ = c.tags, e.rcq
		}
		e.srq = must(h.CreateSRQ(init))(t)
	}
	init := QPInit{
		Type: c.typ, PD: e.pd, SendCQ: e.scq, RecvCQ: e.rcq, SRQ: e.srq, XRCD: e.xrcd, SigAll: c.sigAll,
		BlockSelfMC: c.blockSMC, IPoIB: c.ipoib,
		Caps: Caps{MaxSendWR: c.sendWR, MaxRecvWR: c.recvWR, MaxSendSGE: c.sge, MaxRecvSGE: c.sge,
			MaxInline: c.inline},
	}
	if c.typ == XRCRecv {
		init.SRQ = nil
	}
	e.qp = must(h.CreateQP(init))(t)
	e.back = bytes.Repeat([]byte{0xCA}, c.memLen+2*guard)
	e.mem = e.back[guard : guard+c.memLen] // with room behind it that nobody may use
	for i := range e.mem {
		e.mem[i] = byte(i*7 + i>>8 + hostIdx)
	}
	e.mr = must(h.RegMR(e.pd, e.mem, memVA, c.mrAccess))(t)
	w.watch = append(w.watch, e)
	return e
}

// cqs are the end's completion queues, each once.
func (e *end) cqs() []*CQ { return []*CQ{e.scq, e.rcq} }

// initAttr is what RESET to INIT needs.
func initAttr(c conf) (QPAttr, AttrMask) {
	a := QPAttr{State: StateInit, Port: 1, Access: c.access, QKey: 0x1234}
	switch c.typ {
	case UD:
		return a, MaskState | pkPortQK
	case SMI, GSI:
		return a, MaskState | pkPortQK&^MaskPort
	}
	return a, MaskState | pkPortAcc
}

func (e *end) toInit(c conf) {
	e.w.t.Helper()
	a, m := initAttr(c)
	ok(e.w.t, e.h.ModifyQP(e.qp, a, m))
}

// connect takes an end from INIT to RTS, towards peer.
func (e *end) connect(c conf, peer *end, sq, rq ib.PSN) {
	t := e.w.t
	t.Helper()
	if e.qp.isUD() {
		ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateRTR}, MaskState))
		ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateRTS, SQPSN: sq}, MaskState|MaskSQPSN))
		return
	}
	ah := AHAttr{DLID: lidOf(peer.h.idx, 1), Port: 1}
	if c.global {
		ah.IsGlobal, ah.DGID, ah.HopLimit = true, peer.h.Port(1).GIDs[0], 1
	}
	a := QPAttr{State: StateRTR, AH: ah, PathMTU: c.mtu, DestQPN: peer.qp.num, RQPSN: rq, MaxDestRD: c.destRD,
		MinRNRTimer: c.rnrTimer}
	m := MaskState | ucRTR
	if e.qp.typ == RC || e.qp.typ == XRCRecv {
		m |= MaskMaxDestRD | MaskMinRNRTimer
	}
	ok(t, e.h.ModifyQP(e.qp, a, m))
	a = QPAttr{State: StateRTS, SQPSN: sq, Timeout: c.timeout, RetryCnt: c.retry, RNRRetry: c.rnr, MaxRDAtomic: c.rd}
	m = MaskState | MaskSQPSN
	switch e.qp.typ {
	case RC, XRCSend:
		m |= rtsRC
	case XRCRecv:
		m |= rtsTGT
	}
	ok(t, e.h.ModifyQP(e.qp, a, m))
}

// join connects two ends made by newEnd.
func (w *world) join(a, b *end, ca, cb conf) {
	w.t.Helper()
	ca, cb = ca.filled(), cb.filled()
	a.toInit(ca)
	b.toInit(cb)
	a.connect(ca, b, ca.psn, ca.psn.Add(0x1000))
	b.connect(cb, a, ca.psn.Add(0x1000), ca.psn)
}

// pair is two connected ends on hosts 0 and 1.
func (w *world) pair(c conf) (*end, *end) {
	w.t.Helper()
	a, b := w.newEnd(0, c), w.newEnd(1, c)
	w.join(a, b, c, c)
	return a, b
}

// xrcPair is an XRC initiator on host 0 and a target on host 1.
func (w *world) xrcPair(c conf) (*end, *end) {
	w.t.Helper()
	ca, cb := c, c
	ca.typ, cb.typ = XRCSend, XRCRecv
	ca.srq = 0
	def(&cb.srq, 64)
	a, b := w.newEnd(0, ca), w.newEnd(1, cb)
	w.join(a, b, ca, cb)
	return a, b
}

// sge names part of the end's memory.
func (e *end) sge(off, n int) SGE {
	return SGE{Addr: memVA + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

func (e *end) post(wr SendWR) {
	e.w.t.Helper()
	ok(e.w.t, e.h.PostSend(e.qp, &wr))
}

func (e *end) recv(id uint64, sges ...SGE) {
	e.w.t.Helper()
	if e.srq != nil {
		ok(e.w.t, e.h.PostSRQRecv(e.srq, &RecvWR{WRID: id, SGList: sges}))
		return
	}
	ok(e.w.t, e.h.PostRecv(e.qp, &RecvWR{WRID: id, SGList: sges}))
}

func poll(c *CQ) []WC {
	out := make([]WC, c.Len())
	return out[:c.Poll(out)]
}

// sent polls the send queue's completions and expects these, in order.
func (e *end) sent(want ...string) {
	e.w.t.Helper()
	expectWCs(e.w.t, e.name+" send", poll(e.scq), want)
}

func (e *end) received(want ...string) {
	e.w.t.Helper()
	expectWCs(e.w.t, e.name+" recv", poll(e.rcq), want)
}

func expectWCs(t testing.TB, who string, got []WC, want []string) {
	t.Helper()
	var g []string
	for i := range got {
		g = append(g, strings.TrimPrefix(showWC(&got[i]), "wc "))
	}
	if strings.Join(g, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%s completions:\n  %s\nwant:\n  %s", who, strings.Join(g, "\n  "), strings.Join(want, "\n  "))
	}
}

// events drains a host's events, by name.
func (h *host) drain() []string {
	var out []string
	for e, ok := h.PollEvent(); ok; e, ok = h.PollEvent() {
		out = append(out, e.Type.String())
	}
	return out
}

func (e *end) wantEvents(want ...string) {
	e.w.t.Helper()
	if got := e.h.drain(); strings.Join(got, " ") != strings.Join(want, " ") {
		e.w.t.Fatalf("%s events: %v, want %v", e.name, got, want)
	}
}

// intact fails if a byte around the registered memory changed.
func (e *end) intact() {
	e.w.t.Helper()
	for i, b := range e.back {
		if (i < guard || i >= len(e.back)-guard) && b != 0xCA {
			e.w.t.Fatalf("%s: guard byte %d was overwritten", e.name, i-guard)
		}
	}
}

// close destroys everything and expects that nothing is left.
func (w *world) close() {
	for _, h := range w.hosts {
		wantQPCounts(w.t, h.HCA)
	}
	w.t.Helper()
	for _, e := range w.watch {
		ok(w.t, e.h.DestroyQP(e.qp))
	}
	for _, e := range w.watch {
		e.intact()
		if e.srq != nil {
			ok(w.t, e.h.DestroySRQ(e.srq))
		}
		if e.xrcd != nil {
			ok(w.t, e.h.CloseXRCD(e.xrcd))
		}
		for _, ah := range e.ahs {
			ok(w.t, e.h.DestroyAH(ah))
		}
		ok(w.t, e.h.DestroyCQ(e.scq))
		ok(w.t, e.h.DestroyCQ(e.rcq))
		ok(w.t, e.h.DeregMR(e.mr))
		ok(w.t, e.h.DeallocPD(e.pd))
	}
	for _, h := range w.hosts {
		if h.npd != 0 || h.ncq != 0 || h.nah != 0 || h.keys.live != 0 || h.xrcds != 0 || len(h.mcast) != 0 {
			w.t.Fatalf("%s: left over: %d PD, %d CQ, %d AH, %d keys, %d XRCD, %d groups", h.name, h.npd, h.ncq, h.nah,
				h.keys.live, h.xrcds, len(h.mcast))
		}
		for _, q := range h.qps {
			if q != nil {
				w.t.Fatalf("%s: QP %v is left", h.name, q.num)
			}
		}
	}
}
