package hca

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"softib/proto/ib"
)

// grower has a queue pair and its peer do what bytes say, and keeps plain lists of what has to come of it.
type grower struct {
	w        *world
	a, b     *end
	c        conf
	start    uint32   // that queues count from
	sends    []SendWR // under way, oldest first
	recvs    []uint64
	messages [][]byte // sent and not yet received
	fresh    int      // of the sends, those that the engine was not yet let go with
	adds     uint64
	// Ids, one after the other: each has memory of its own while it is under way.
	nextSend, nextRecv uint64
}

const (
	growSlots = 64
	growSlot  = 1000
	growFixed = growSlots * growSlot // memory of b that is read and that nobody writes to, and a counter
)

func newGrower(t testing.TB, c conf, start uint32) *grower {
	c.sigAll = true
	g := &grower{w: newWorld(t, 2, 1), c: c, start: start}
	g.a, g.b = g.w.newEnd(0, c), g.w.newEnd(1, c)
	g.begin()
	return g
}

// begin connects the two anew.
func (g *grower) begin() {
	g.w.flight, g.sends, g.messages, g.fresh = nil, nil, nil, 0
	for _, e := range []*end{g.a, g.b} {
		ok(g.w.t, e.h.ModifyQP(e.qp, QPAttr{State: StateReset}, MaskState))
		poll(e.scq)
		poll(e.rcq)
	}
	left := 0
	if g.b.srq != nil {
		left = g.b.srq.Len() // what is in a shared queue stays there
	}
	g.recvs = g.recvs[len(g.recvs)-left:]
	g.w.join(g.a, g.b, g.c, g.c)
	q, p := g.a.qp, g.b.qp
	q.sqOldest, q.sqCursor, q.sqNext = g.start, g.start, g.start
	p.respHead, p.respTail, p.rq.head, p.rq.tail = g.start, g.start, g.start, g.start
	g.adds = binary.LittleEndian.Uint64(g.b.mem[growFixed+64:])
}

// post posts a request of one of four kinds.
func (g *grower) post(kind, n int) {
	a, b, id := g.a, g.b, g.nextSend
	at := int(id%growSlots) * growSlot
	wr := SendWR{WRID: id, RemoteAddr: memVA + growFixed, RKey: b.mr.RKey()}
	switch kind {
	case 0, 1:
		if full := len(g.sends) == g.c.sendWR; !full {
			binary.LittleEndian.PutUint64(a.mem[at:], id)
			binary.LittleEndian.PutUint64(a.mem[at+n-8:], id)
		}
		if wr.Opcode = WRSend; kind == 0 && n <= 512 {
			wr.Flags, wr.InlineData = SendInline, a.mem[at:at+n]
		} else {
			wr.SGList = []SGE{a.sge(at, n/2), a.sge(at+n/2, n-n/2)}
		}
	case 2:
		wr.Opcode, wr.SGList = WRRDMARead, []SGE{a.sge(at, 64)}
	case 3:
		wr.Opcode, wr.SGList, wr.CompareAdd = WRAtomicFetchAdd, []SGE{a.sge(at, 8)}, 1
		wr.RemoteAddr += 64
	}
	err := a.h.PostSend(a.qp, &wr)
	if full := len(g.sends) == g.c.sendWR; full != errors.Is(err, ErrFull) || !full && err != nil {
		g.w.t.Fatalf("%d of %d under way: %v", len(g.sends), g.c.sendWR, err)
	}
	if err != nil {
		return
	}
	g.nextSend++
	g.fresh++
	g.sends = append(g.sends, wr)
	if wr.Opcode == WRSend {
		g.messages = append(g.messages, bytes.Clone(a.mem[at:at+n]))
	}
}

func (g *grower) recv() {
	b, most, id := g.b, g.c.recvWR, g.nextRecv
	at := int(id%growSlots) * growSlot
	wr := RecvWR{WRID: id, SGList: []SGE{b.sge(at, 1), b.sge(at+1, growSlot-1)}}
	var err error
	if b.srq != nil {
		most, err = g.c.srq, b.h.PostSRQRecv(b.srq, &wr)
	} else {
		err = b.h.PostRecv(b.qp, &wr)
	}
	if full := g.posted() == most; full != errors.Is(err, ErrFull) || !full && err != nil {
		g.w.t.Fatalf("%d of %d posted: %v", g.posted(), most, err)
	}
	if err == nil {
		g.nextRecv++
		g.recvs = append(g.recvs, id)
	}
}

// check compares what has completed with what was expected.
func (g *grower) check(status WCStatus) {
	t, a, b := g.w.t, g.a, g.b
	for _, c := range poll(a.scq) {
		if len(g.sends) == 0 || c.WRID != g.sends[0].WRID || c.Status != status {
			t.Fatalf("%d ended with %v: want %v of the first of %v", c.WRID, c.Status, status, g.sends)
		}
		wr := &g.sends[0]
		got := a.mem[int(wr.WRID%growSlots)*growSlot:]
		switch {
		case status != WCSuccess:
		case wr.Opcode == WRRDMARead && !bytes.Equal(got[:64], b.mem[growFixed:growFixed+64]):
			t.Fatalf("READ %d brought %x", wr.WRID, got[:64])
		case wr.Opcode == WRAtomicFetchAdd:
			if v := binary.LittleEndian.Uint64(got); v != g.adds {
				t.Fatalf("atomic %d found %d: want %d", wr.WRID, v, g.adds)
			}
			g.adds++
		}
		g.sends = g.sends[1:]
	}
	for _, c := range poll(b.rcq) {
		if c.Status != WCSuccess || len(g.recvs) == 0 || c.WRID != g.recvs[0] || len(g.messages) == 0 {
			t.Fatalf("received %+v: want the first of %v, for one of %d messages", c, g.recvs, len(g.messages))
		}
		at, want := int(c.WRID%growSlots)*growSlot, g.messages[0]
		if got := b.mem[at : at+int(c.ByteLen)]; !bytes.Equal(got, want) {
			t.Fatalf("receive %d holds %x: want %x", c.WRID, got, want)
		}
		g.recvs, g.messages = g.recvs[1:], g.messages[1:]
	}
	posted := b.qp.RecvPosted()
	if b.srq != nil {
		posted = b.srq.Len()
	}
	if a.qp.Outstanding() != len(g.sends) || posted != g.posted() {
		t.Fatalf("%d and %d are posted: want %d and %d", a.qp.Outstanding(), posted, len(g.sends), g.posted())
	}
}

// posted is how many receives are in the queue: one that was taken from a shared queue is not.
func (g *grower) posted() int {
	if g.b.qp.cur == &g.b.qp.held {
		return len(g.recvs) - 1
	}
	return len(g.recvs)
}

// do follows orders.
func (g *grower) do(orders []byte) {
	for _, o := range orders {
		switch arg := int(o >> 4); o & 15 {
		case 0, 1, 2, 3:
			g.post(int(o&3), 16+arg*60)
		case 4, 5, 6, 7:
			for range 1 + arg/4 {
				g.recv()
			}
		case 8:
			for range arg {
				g.post(arg&3, 16+arg*60)
			}
		case 9:
			k := min(arg/4, g.fresh)
			if got := g.a.h.Retract(g.a.qp, k); got != k {
				g.w.t.Fatalf("%d taken back: want %d", got, k)
			}
			g.fresh -= k
			for _, wr := range g.sends[len(g.sends)-k:] {
				if wr.Opcode == WRSend {
					g.messages = g.messages[:len(g.messages)-1]
				}
			}
			g.sends = g.sends[:len(g.sends)-k]
			g.nextSend -= uint64(k)
		case 10:
			if arg == 0 { // what was under way ends in its order
				ok(g.w.t, g.a.h.ModifyQP(g.a.qp, QPAttr{State: StateErr}, MaskState))
				g.check(WCWRFlushErr)
				if len(g.sends) != 0 {
					g.w.t.Fatalf("%d requests were not flushed", len(g.sends))
				}
			}
			if arg < 2 {
				g.begin()
			}
		default:
			g.fresh = 0
			g.w.pump()
			for range 1 + arg/2 {
				g.w.step(ib.Never)
			}
		}
		switch {
		case g.a.qp.state == StateRTS && g.b.qp.state == StateRTS:
			g.check(WCSuccess)
		case g.w.fate == nil:
			g.w.t.Fatal("they failed without a loss")
		default: // too many packets were lost
			g.begin()
		}
	}
}

// growing does what bytes say, the first of which say with what sizes.
func growing(t testing.TB, b []byte) {
	if len(b) < 4 || len(b) > 4096 {
		return
	}
	c := conf{sendWR: 1 + int(b[0])%(growSlots-1), recvWR: 1 + int(b[1])%(growSlots-1), rd: 16, destRD: 16, sge: 2}
	if b[2]&1 != 0 {
		c.srq = c.recvWR
	}
	g := newGrower(t, c, -uint32(b[3]%32))
	if n := int(b[2]) >> 3; n > 1 {
		k := 0
		g.w.fate = func(*flying) fate { k++; return fate{drop: k%n == 0} }
	}
	g.do(b[4:])
}

func FuzzGrow(f *testing.F) {
	f.Add([]byte{15, 15, 0, 3, 0xf8, 0xf4, 0xf4, 0xf4, 0xf4, 0xfb, 0xfb, 0x0a, 0xf8, 0xfb})
	f.Fuzz(func(t *testing.T, b []byte) { growing(t, b) })
}

// TestGrow: whatever is posted, completed, flushed, taken back and reset while queues grow and their numbers wrap,
// requests end once and in order, and with their own data.
func TestGrow(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 100
	}
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 4+r.IntN(400))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		growing(t, b)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestQPIsSmall: a queue pair costs what it uses, whatever it is allowed.
func TestQPIsSmall(t *testing.T) {
	const n = 256
	for _, c := range []struct {
		depth, recvs int
		most         uint64
	}{{16, 0, 1024}, {16, 16, 1024 + 16*32}, {1 << 15, 16, 1024 + 16*32}} {
		w := newWorld(t, 1, 1)
		h := w.hosts[0].HCA
		e := w.newEnd(0, conf{})
		qps := make([]*QP, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range qps {
			qps[i] = must(h.CreateQP(QPInit{PD: e.pd, SendCQ: e.scq, RecvCQ: e.rcq, Caps: Caps{MaxSendWR: c.depth,
				MaxRecvWR: c.depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 64}}))(t)
			a, m := initAttr(conf{})
			ok(t, h.ModifyQP(qps[i], a, m))
			for range c.recvs {
				ok(t, h.PostRecv(qps[i], &RecvWR{SGList: []SGE{e.sge(0, 8)}}))
			}
		}
		runtime.ReadMemStats(&after)
		each := (after.TotalAlloc - before.TotalAlloc) / n
		if t.Logf("%d bytes", each); each > c.most+64 { // the table of queue pairs grows too
			t.Errorf("of depth %d with %d receives: %d bytes, want %d", c.depth, c.recvs, each, c.most)
		}
	}
}

// TestResizeQP: queues that are full take more once they are resized, as much as was asked for, in their order; queues
// that are another's stay as they are.
func TestResizeQP(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{sendWR: 3, recvWR: 3})
	sent, posted := 0, 0
	fill := func(want int) {
		t.Helper()
		for ; a.h.PostSend(a.qp, &SendWR{WRID: uint64(sent), Opcode: WRSend, Flags: SendSignaled,
			SGList: []SGE{a.sge(0, 8)}}) == nil; sent++ {
		}
		for ; b.h.PostRecv(b.qp, &RecvWR{WRID: uint64(posted), SGList: []SGE{b.sge(0, 8)}}) == nil; posted++ {
		}
		if sent != want || posted != want {
			t.Fatalf("%d sends and %d receives were taken, want %d", sent, posted, want)
		}
	}
	fill(3)
	for _, n := range []int{7, 100, 5} {
		ok(t, a.h.ResizeQP(a.qp, n, 0))
		ok(t, b.h.ResizeQP(b.qp, 0, n))
		fill(max(n, sent))
	}
	if c := a.qp.Caps(); c.MaxSendWR != 100 || c.MaxRecvWR != 3 {
		t.Errorf("%+v, want sends for 100", c)
	}
	w.run()
	for name, wcs := range map[string][]WC{"send": poll(a.scq), "receive": poll(b.rcq)} { // tidy: order-free
		if len(wcs) != 100 {
			t.Fatalf("%d completions of %ss", len(wcs), name)
		}
		for i, wc := range wcs {
			if wc.WRID != uint64(i) || wc.Status != WCSuccess {
				t.Fatalf("%s %d: %+v", name, i, wc)
			}
		}
	}
	most := a.h.cfg.Limits.MaxQPWR
	wantAttr(t, a.h.ResizeQP(a.qp, most+1, 0), "modify_qp", "cap.max_send_wr", ErrInvalid)
	wantAttr(t, a.h.ResizeQP(a.qp, 0, most+1), "modify_qp", "cap.max_recv_wr", ErrInvalid)
	wantAttr(t, a.h.ResizeQP(nil, 1, 1), "modify_qp", "qp", ErrDestroyed)
	x, y := w.xrcPair(conf{})
	ok(t, y.h.ResizeQP(y.qp, 10, 10))
	ok(t, x.h.ResizeQP(x.qp, 10, 10))
	if c := y.qp.Caps(); c != (Caps{}) {
		t.Errorf("a target has %+v", c)
	}
	if c := x.qp.Caps(); c.MaxRecvWR != 0 {
		t.Errorf("an initiator has %+v", c)
	}
	w.close()
}
