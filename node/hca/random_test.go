package hca

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

var seeds = flag.Int("seeds", 300, "how many seeds the randomised tests run")

// The memory of each end of a random conversation.
const (
	rndLen  = 1 << 19
	rndSrc  = 0         // what this end sends from and reads into
	rndDst  = 224 << 10 // where its peer's data land, each message in a place of its own
	rndAtom = 448 << 10
	rndHot  = 449 << 10 // written by its peer over and over
	rndHotN = 4 << 10
)

// direction is the traffic of one requester, with what must come of it.
type direction struct {
	from, to   *end
	src, dst   int // next free byte at either end
	posted     int
	total      int
	long       int    // some messages are up to so long
	fromModel  []byte // what the ends' memory must hold when all is done
	toModel    []byte
	written    []SGE // peer memory that is written and not written again
	recvs      []RecvWR
	wantSend   []string
	wantRecv   []string
	gotSend    int
	gotRecv    int
	exactReads bool // nothing is lost: a READ sees its own point in order
}

// next posts one random request.
func (d *direction) next(r *rand.Rand, mtu int) {
	t := d.from.w.t
	t.Helper()
	sz := sizes(mtu)
	n := sz[r.IntN(len(sz))]
	if r.IntN(3) == 0 {
		n = r.IntN(1500)
	}
	if d.long > 0 && r.IntN(4) == 0 {
		n = r.IntN(d.long)
	}
	id := uint64(d.posted)
	wr := SendWR{WRID: id, Flags: SendFlags(r.IntN(2)) * SendSignaled, RKey: d.to.mr.RKey(), Imm: uint32(id) ^ 0x5A5A}
	if d.posted == d.total-1 {
		wr.Flags |= SendSignaled
	}
	if r.IntN(8) == 0 {
		wr.Flags |= SendFence
	}
	if d.to.srq != nil {
		wr.RemoteSRQN = d.to.srq.Num()
	}
	// Fresh data in a fresh place, in up to three pieces.
	take := func(e *end, at *int, n int) ([]SGE, int) {
		off := *at
		*at += n
		if n < 3 || r.IntN(2) == 0 {
			return []SGE{e.sge(off, n)}, off
		}
		c := 1 + r.IntN(n-1)
		return []SGE{e.sge(off, c), e.sge(off, 0), e.sge(off+c, n-c)}, off
	}
	var data []byte
	fill := func() {
		var off int
		wr.SGList, off = take(d.from, &d.src, n)
		data = d.from.mem[off : off+n]
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		copy(d.fromModel[off:], data)
		if n <= 64 && r.IntN(3) == 0 {
			wr.Flags |= SendInline
		}
	}
	recvLine := ""
	kind := r.IntN(14)
	switch {
	case kind < 3: // SEND
		wr.Opcode = WRSend
		fill()
		list, off := take(d.to, &d.dst, n+r.IntN(20))
		copy(d.toModel[off:], data)
		d.recvs = append(d.recvs, RecvWR{WRID: id, SGList: list})
		recvLine = fmt.Sprintf("%d RECV SUCCESS len=%d", id, n)
		if r.IntN(2) == 0 {
			wr.Opcode = WRSendImm
			recvLine += fmt.Sprintf(" imm=%#x", wr.Imm)
		}
	case kind < 6: // WRITE to a place of its own
		wr.Opcode = WRRDMAWrite
		fill()
		list, off := take(d.to, &d.dst, n)
		_ = list
		wr.RemoteAddr = memVA + uint64(off)
		copy(d.toModel[off:], data)
		d.written = append(d.written, d.to.sge(off, n))
		if r.IntN(3) == 0 {
			wr.Opcode = WRRDMAWriteImm
			d.recvs = append(d.recvs, RecvWR{WRID: id})
			recvLine = fmt.Sprintf("%d RECV_RDMA_WITH_IMM SUCCESS len=%d imm=%#x", id, n, wr.Imm)
		}
	case kind < 8: // WRITE over what is there
		wr.Opcode = WRRDMAWrite
		n = min(n, 1000)
		fill()
		off := rndHot + r.IntN(rndHotN-1000)
		wr.RemoteAddr = memVA + uint64(off)
		copy(d.toModel[off:], data)
	case kind < 10: // READ
		wr.Opcode = WRRDMARead
		var from []byte
		switch {
		case d.exactReads && r.IntN(2) == 0:
			n = min(n, 1000)
			off := rndHot + r.IntN(rndHotN-1000)
			wr.RemoteAddr = memVA + uint64(off)
			from = d.toModel[off : off+n]
		case len(d.written) > 0:
			s := d.written[r.IntN(len(d.written))]
			n = int(s.Length)
			wr.RemoteAddr = s.Addr
			from = d.toModel[s.Addr-memVA:][:n]
		default:
			n = 0
			wr.RemoteAddr = memVA
		}
		var off int
		wr.SGList, off = take(d.from, &d.src, n)
		copy(d.fromModel[off:], from)
	case kind == 12: // ATOMIC WRITE over what atomics change
		wr.Opcode, n = WRAtomicWrite, 8
		fill()
		at := rndAtom + 8*r.IntN(4)
		wr.RemoteAddr = memVA + uint64(at)
		copy(d.toModel[at:], data)
	case kind == 13: // FLUSH
		wr.Opcode = WRFlush
		wr.RemoteAddr = memVA + uint64(rndDst)
		wr.Flush = Flush{Length: uint32(n), Type: wire.FlushGlobal, Level: uint8(r.IntN(2))}
	default: // atomics
		n = 8
		wr.Opcode = WRAtomicFetchAdd
		var off int
		wr.SGList, off = take(d.from, &d.src, 8)
		at := rndAtom + 8*r.IntN(4)
		wr.RemoteAddr = memVA + uint64(at)
		old := binary.LittleEndian.Uint64(d.toModel[at:])
		wr.CompareAdd = r.Uint64()
		now := old + wr.CompareAdd
		if r.IntN(2) == 0 {
			wr.Opcode, wr.Swap = WRAtomicCmpSwap, r.Uint64()
			now = old
			if r.IntN(2) == 0 {
				wr.CompareAdd = old
			}
			if wr.CompareAdd == old {
				now = wr.Swap
			}
		}
		binary.LittleEndian.PutUint64(d.fromModel[off:], old)
		binary.LittleEndian.PutUint64(d.toModel[at:], now)
	}
	if wr.Flags&SendSignaled != 0 {
		d.wantSend = append(d.wantSend, fmt.Sprintf("%d %v SUCCESS len=%d", id, wrTable[wr.Opcode].wc, n))
	}
	if recvLine != "" {
		d.wantRecv = append(d.wantRecv, recvLine)
	}
	d.from.post(wr)
	d.posted++
}

// check compares the completions that came with those that must.
func (d *direction) check(what string, cq *CQ, got *int, want []string) {
	t := d.from.w.t
	t.Helper()
	for _, c := range poll(cq) {
		line := showWC(&c)[3:]
		if *got >= len(want) || want[*got] != line {
			w := "nothing"
			if *got < len(want) {
				w = want[*got]
			}
			t.Fatalf("%s>%s %s completion %d: %s, want %s", d.from.name, d.to.name, what, *got, line, w)
		}
		*got++
	}
}

func (d *direction) done() bool {
	return d.posted == d.total && d.gotSend == len(d.wantSend) && d.gotRecv == len(d.wantRecv) &&
		d.from.qp.Outstanding() == 0
}

// TestRandom posts random requests both ways under loss, doubling and delay,
// and compares every completion and all memory with what a perfect wire
// would have brought about.
func TestRandom(t *testing.T) { runRandom(t, onePacket) }

// TestRandomBundles does the same where packets travel in bundles, with buffers
// of all sizes, so that bundles that come again begin and end elsewhere.
func TestRandomBundles(t *testing.T) { runRandom(t, inBundles) }

// TestRandomOrder does the same where every packet takes a way of its own, and adapters keep what comes before its
// turn. Where nothing is lost nothing may be sent twice.
func TestRandomOrder(t *testing.T) { runRandom(t, anyOrder) }

// travel is how packets travel.
type travel int

const (
	onePacket travel = iota
	inBundles
	anyOrder
)

func runRandom(t *testing.T, how travel) {
	bundles := how == inBundles
	n := *seeds
	if testing.Short() {
		n = 30
	}
	var sum Stats
	var bundled, straddled int
	for seed := range n {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := random(t, uint64(seed), how)
			for _, h := range w.hosts {
				sum.Reordered += h.Stats.Reordered
				sum.Retransmits += h.Stats.Retransmits
				sum.SeqNAKsRcvd += h.Stats.SeqNAKsRcvd
				sum.Duplicates += h.Stats.Duplicates
				sum.Timeouts += h.Stats.Timeouts
				sum.RNRNAKs += h.Stats.RNRNAKs
				sum.Drops[DropFar] += h.Stats.Drops[DropFar]
			}
			bundled += w.bundled
			straddled += w.straddled
		})
		if !ok {
			break
		}
	}
	t.Logf("%d retransmits, %d sequence NAKs, %d RNR NAKs, %d duplicates, %d timeouts, %d payloads gone, %d "+
		"bundles, %d neither old nor new",
		sum.Retransmits, sum.SeqNAKsRcvd, sum.RNRNAKs, sum.Duplicates, sum.Timeouts, sum.Drops[DropFar], bundled,
		straddled)
	if t.Failed() || n < 30 {
		return
	}
	want := map[string]uint64{
		"retransmits": sum.Retransmits, "sequence NAKs": sum.SeqNAKsRcvd, "RNR NAKs": sum.RNRNAKs,
		"duplicates": sum.Duplicates,
		"timeouts":   sum.Timeouts, "payloads gone": sum.Drops[DropFar],
	}
	if how == anyOrder {
		delete(want, "payloads gone")
		want["packets before their turn"] = sum.Reordered
	}
	for what, n := range want {
		if n == 0 {
			t.Errorf("no %s: the faults did not do what they are for", what)
		}
	}
	if bundles != (bundled > 0) || bundles && n >= 300 && straddled == 0 {
		t.Errorf("%d bundles, %d of them neither old nor new", bundled, straddled)
	}
}

func random(t *testing.T, seed uint64, how travel) *world {
	bundles := how == inBundles
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, 2, 1)
	long := 0
	if bundles {
		w.bundles([]int{16, 2, 3, 16, 5}[r.IntN(5)])
		if r.IntN(3) == 0 {
			w.copies = func() bool { return r.IntN(3) == 0 }
		}
		long = 10000
	}
	w.viaWire = seed%4 == 0
	if seed%3 == 0 {
		w.hosts[0].cfg.ByRefMin, w.hosts[1].cfg.ByRefMin = 100, 1
	}
	c := conf{
		mtu: ib.MTU(1 + r.IntN(3)), psn: ib.PSN(0xFFFFFF - r.IntN(60)), timeout: uint8(4 + r.IntN(3)),
		rd:     uint8(1 + r.IntN(4)),
		sendWR: 1 + r.IntN(16), memLen: rndLen, sigAll: false, rnrTimer: uint8(1 + r.IntN(3)),
	}
	c.destRD = c.rd + uint8(r.IntN(3))
	if bundles && r.IntN(2) == 0 {
		w.room = func() int { return c.mtu.Bytes() * (1 + r.IntN(16)) }
	}
	loss, dup, late := 0.0, 0.0, 0.0
	mode := seed % 5
	if mode != 0 {
		loss = r.Float64() * 0.08
		dup = r.Float64() * 0.04
	}
	if mode == 4 { // packets overtake each other, which no fabric does to RC
		late = 0.03
	}
	if how == anyOrder {
		late = 1
		for _, h := range w.hosts {
			h.cfg.Reorder, h.cfg.ReorderTime = 64, 10*ib.Microsecond
		}
	}
	w.fate = func(f *flying) fate {
		x := fate{drop: r.Float64() < loss}
		if r.Float64() < dup {
			x.dup = 1
		}
		if r.Float64() < late {
			x.extra = ib.Time(r.IntN(5000)) * ib.Nanosecond
		}
		if seed%4 == 0 && r.Float64() < loss/2 {
			x.corrupt = 1 + r.IntN(300)
		}
		return x
	}
	if seed%6 == 2 && how != anyOrder { // payloads stay with their senders, some of whom are gone
		loss /= 2
		w.far = func() bool { return mode == 0 || r.Float64() >= 0.03 }
	}
	xrc := seed%7 == 3
	var a, b *end
	if xrc {
		a, b = w.xrcPair(c)
	} else {
		if seed%7 == 5 {
			c.srq = 64
		}
		a, b = w.pair(c)
	}
	models := [2][]byte{append([]byte(nil), a.mem...), append([]byte(nil), b.mem...)}
	total := 20 + r.IntN(20)
	dirs := []*direction{{from: a, to: b, dst: rndDst, total: total, long: long, fromModel: models[0],
		toModel: models[1], exactReads: mode == 0}}
	if !xrc {
		dirs = append(dirs, &direction{from: b, to: a, dst: rndDst, total: total, long: long, fromModel: models[1],
			toModel: models[0], exactReads: mode == 0})
	}
	all := func(f func(*direction) bool) bool {
		res := true
		for _, d := range dirs {
			res = f(d) && res
		}
		return res
	}
	for steps := 0; !all((*direction).done); steps++ {
		if steps > 30000 {
			t.Fatalf("not done after %d steps, at %v", steps, w.now)
		}
		for _, d := range dirs {
			for d.posted < d.total && d.from.qp.Outstanding() < c.sendWR && r.IntN(3) > 0 {
				d.next(r, c.mtu.Bytes())
			}
			for len(d.recvs) > 0 && r.IntN(3) > 0 {
				d.to.recv(d.recvs[0].WRID, d.recvs[0].SGList...)
				d.recvs = d.recvs[1:]
			}
		}
		w.pump()
		if !w.step(ib.Never) && all(func(d *direction) bool { return d.posted == d.total && len(d.recvs) == 0 }) &&
			!all((*direction).done) {
			for _, d := range dirs {
				d.check("send", d.from.scq, &d.gotSend, d.wantSend)
				d.check("recv", d.to.rcq, &d.gotRecv, d.wantRecv)
			}
			if !all((*direction).done) {
				t.Fatalf("stuck at %v", w.now)
			}
		}
		for _, d := range dirs {
			d.check("send", d.from.scq, &d.gotSend, d.wantSend)
			d.check("recv", d.to.rcq, &d.gotRecv, d.wantRecv)
		}
	}
	w.run()
	if how == anyOrder && mode == 0 {
		for _, h := range w.hosts {
			if s := &h.Stats; s.SeqNAKsRcvd+s.ImpliedNAKs+s.Timeouts > 0 {
				t.Fatalf("nothing was lost: %d sequence NAKs, %d implied ones, %d timeouts", s.SeqNAKsRcvd,
					s.ImpliedNAKs, s.Timeouts)
			}
		}
	}
	for i, e := range []*end{a, b} {
		if !bytes.Equal(e.mem, models[i]) {
			for j := range e.mem {
				if e.mem[j] != models[i][j] {
					t.Fatalf("%s: byte %d is %#x, want %#x", e.name, j, e.mem[j], models[i][j])
				}
			}
		}
		if e.qp.rdOut != 0 || e.qp.rdQueued != 0 || e.qp.state != StateRTS {
			t.Fatalf("%s at rest: %d READs out, %d answers queued, %v", e.name, e.qp.rdOut, e.qp.rdQueued, e.qp.state)
		}
	}
	w.close()
	return w
}

// ledger follows one queue's completions when things may fail: those before
// the first error succeed, those from it on all complete, flushed, in order.
type ledger struct {
	posted   []uint64
	signaled map[uint64]bool
	next     int // in posted
	failed   bool
}

func (l *ledger) take(t testing.TB, who string, wcs []WC) {
	t.Helper()
	for _, c := range wcs {
		// Successes that were not signaled are silent.
		for !l.failed && l.next < len(l.posted) && l.posted[l.next] != c.WRID && !l.signaled[l.posted[l.next]] {
			l.next++
		}
		if l.next == len(l.posted) || l.posted[l.next] != c.WRID {
			t.Fatalf("%s: completion of %d (%v) out of order, after %d of %v", who, c.WRID, c.Status, l.next, l.posted)
		}
		l.next++
		if l.failed && c.Status != WCWRFlushErr {
			t.Fatalf("%s: %d %v after a failure", who, c.WRID, c.Status)
		}
		l.failed = l.failed || c.Status != WCSuccess
		if c.Status == WCSuccess && !l.signaled[c.WRID] {
			t.Fatalf("%s: %d completed unasked", who, c.WRID)
		}
	}
}

// end checks that nothing is missing once the queue pair has failed.
func (l *ledger) end(t testing.TB, who string, broken bool) {
	t.Helper()
	if !broken {
		return
	}
	for ; l.next < len(l.posted); l.next++ {
		if l.failed || l.signaled[l.posted[l.next]] {
			t.Fatalf("%s: %d never completed", who, l.posted[l.next])
		}
	}
}

// TestRandomFailures breaks connections at random: by loss that lasts, by
// moving an end to ERR, by taking memory back, by asking for what is not
// allowed; and checks that every request still ends once, in order.
func TestRandomFailures(t *testing.T) { runFailures(t, 0) }

// TestRandomFailuresBundles breaks connections whose packets travel in bundles, and
// payloads with them.
func TestRandomFailuresBundles(t *testing.T) { runFailures(t, 16) }

func runFailures(t *testing.T, bundle int) {
	n := *seeds
	if testing.Short() {
		n = 30
	}
	statuses := map[WCStatus]int{}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		w := newWorld(t, 2, 1)
		w.bundles(bundle)
		if bundle > 1 {
			w.room = func() int { return 256 * (1 + r.IntN(8)) }
			w.hosts[r.IntN(2)].cfg.ByRefMin = 300
			if seed%2 == 0 {
				w.far = func() bool { return r.IntN(50) > 0 }
			}
		}
		c := conf{mtu: ib.MTU256, psn: ib.PSN(0xFFFFFF - r.IntN(20)), timeout: 3, retry: 1, rnr: uint8(1 + r.IntN(7)),
			rd: uint8(1 + r.IntN(3)), sendWR: 8, recvWR: 8}
		if r.IntN(3) == 0 {
			c.typ = UC
		}
		a, b := w.pair(c)
		ends := []*end{a, b}
		loss := 0.02
		w.fate = func(f *flying) fate { return fate{drop: r.Float64() < loss} }
		var sends, recvs [2]*ledger
		for i := range ends {
			sends[i], recvs[i] = &ledger{signaled: map[uint64]bool{}}, &ledger{signaled: map[uint64]bool{}}
		}
		id := uint64(0)
		look := func() {
			for i, e := range ends {
				for j, l := range []*ledger{sends[i], recvs[i]} {
					wcs := poll(e.cqs()[j])
					for _, c := range wcs {
						statuses[c.Status]++
					}
					l.take(t, fmt.Sprintf("seed %d %s %d", seed, e.name, j), wcs)
				}
			}
		}
		gone := [2]bool{}
		doom := 5 + r.IntN(60)
		for step := range 90 {
			for i, e := range ends {
				peer := ends[1-i]
				for e.qp.Outstanding() < 8 && r.IntN(2) == 0 {
					id++
					ops := []WROpcode{WRSend, WRRDMAWrite, WRRDMAWriteImm, WRRDMARead, WRAtomicFetchAdd}
					if c.typ == UC {
						ops = ops[:3]
					}
					op := ops[r.IntN(len(ops))]
					k := 8
					if op != WRAtomicFetchAdd {
						k = r.IntN(900)
					}
					wr := SendWR{WRID: id, Opcode: op, SGList: []SGE{e.sge(r.IntN(100), k)}, RemoteAddr: memVA +
						8*uint64(r.IntN(10)), RKey: peer.mr.RKey()}
					if r.IntN(2) == 0 {
						wr.Flags |= SendSignaled
					}
					if step > doom && r.IntN(20) == 0 {
						switch r.IntN(3) {
						case 0:
							wr.RKey ^= 1
						case 1:
							wr.SGList[0].LKey ^= 1
						case 2:
							wr.RemoteAddr = memVA + memLen - 8
						}
					}
					sends[i].posted = append(sends[i].posted, id)
					sends[i].signaled[id] = wr.Flags&SendSignaled != 0
					e.post(wr)
				}
				for e.qp.RecvPosted() < 8 && r.IntN(2) == 0 {
					id++
					e.recv(id, e.sge(2000, 850+r.IntN(100)))
					recvs[i].posted = append(recvs[i].posted, id)
					recvs[i].signaled[id] = true
				}
			}
			if step == doom {
				i := r.IntN(2)
				switch r.IntN(4) {
				case 0:
					loss = 1
				case 1:
					ok(t, ends[i].h.ModifyQP(ends[i].qp, QPAttr{State: StateErr}, MaskState))
				case 2:
					ok(t, ends[i].h.DeregMR(ends[i].mr))
					gone[i] = true
				case 3:
					if ends[i].qp.state == StateRTS {
						ok(t, ends[i].h.ModifyQP(ends[i].qp, QPAttr{State: StateSQD, EnSQDNotify: true},
							MaskState|MaskEnSQDNotify))
					}
				}
			}
			w.pump()
			w.step(ib.Never)
			look()
		}
		for _, e := range ends {
			if e.qp.state == StateSQD {
				ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateRTS}, MaskState))
			}
		}
		// What is left ends one way or the other.
		loss = 1
		w.runFor(10 * ib.Millisecond)
		look()
		for i, e := range ends {
			who := fmt.Sprintf("seed %d %s", seed, e.name)
			if e.qp.typ == RC && e.qp.state != StateErr && e.qp.Outstanding() > 0 || e.qp.state == StateErr &&
				e.qp.Outstanding()+e.qp.RecvPosted() > 0 {
				t.Fatalf("%s: in %v with %d requests left", who, e.qp.state, e.qp.Outstanding())
			}
			sends[i].end(t, who, e.qp.state == StateErr || e.qp.state == StateSQE)
			recvs[i].end(t, who, e.qp.state == StateErr)
			if gone[i] {
				e.mr = must(e.h.RegMR(e.pd, e.mem, memVA, 0))(t)
			}
		}
		w.close()
	}
	t.Logf("%v", statuses)
	for _, s := range []WCStatus{WCSuccess, WCWRFlushErr, WCRetryExcErr, WCRemAccessErr, WCLocProtErr, WCRemOpErr,
		WCRNRRetryExcErr} {
		if n >= 300 && bundle == 0 && statuses[s] == 0 {
			t.Errorf("no request ended in %v", s)
		}
	}
}

// TestRandomUnreliable: whatever arrives by UC under loss arrives whole, once
// and in order, and a RDMA WRITE never reaches past its target.
func TestRandomUnreliable(t *testing.T) { runUnreliable(t, 0) }

// TestRandomUnreliableBundles: in bundles too.
func TestRandomUnreliableBundles(t *testing.T) { runUnreliable(t, 16) }

func runUnreliable(t *testing.T, bundle int) {
	lost, came := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, 2, 1)
		w.bundles(bundle)
		if bundle > 1 {
			w.room = func() int { return 256 * (1 + r.IntN(3)) }
			if seed%2 == 0 {
				w.far = func() bool { return r.IntN(30) > 0 }
			}
		}
		c := conf{typ: UC, psn: ib.PSN(0xFFFFFF - r.IntN(20)), recvWR: 16}
		if seed%4 == 0 {
			c.srq = 64
		}
		a, b := w.pair(c)
		loss := r.Float64() * 0.2
		w.fate = func(f *flying) fate { return fate{drop: r.Float64() < loss} }
		var msgs [][]byte
		last := -1
		for i := range 60 {
			for b.qp.RecvPosted() < 4 && b.srq == nil || b.srq != nil && b.srq.Len() < 4 {
				b.recv(uint64(i), b.sge(0, 2000))
			}
			n := r.IntN(900)
			data := make([]byte, n)
			for j := range data {
				data[j] = byte(r.Uint32())
			}
			copy(a.mem, data)
			msgs = append(msgs, data)
			op := WRSendImm
			if r.IntN(3) == 0 {
				op = WRRDMAWriteImm
			}
			before := append([]byte(nil), b.mem...)
			a.post(SendWR{WRID: uint64(i), Opcode: op, Flags: SendSignaled, Imm: uint32(i), SGList: []SGE{a.sge(0, n)},
				RemoteAddr: memVA + 3000, RKey: b.mr.RKey()})
			w.run()
			a.sent(fmt.Sprintf("%d %v SUCCESS len=%d", i, wrTable[op].wc, n))
			if !bytes.Equal(before[3000+900:], b.mem[3000+900:]) || !bytes.Equal(before[2000:3000], b.mem[2000:3000]) {
				t.Fatalf("seed %d: memory beside the target changed", seed)
			}
			lost++
			for _, c := range poll(b.rcq) {
				if c.Status == WCWRFlushErr && b.srq != nil {
					continue // held by a message that broke
				}
				off := 0
				if c.Opcode == WCRecvRDMAWithImm {
					off = 3000
				}
				if c.Status != WCSuccess || int(c.ImmData) != i || i <= last || int(c.ByteLen) != n ||
					!bytes.Equal(b.mem[off:off+n], msgs[i]) {
					t.Fatalf("seed %d: message %d: %+v", seed, i, c)
				}
				last = i
				lost--
				came++
			}
		}
		w.close()
	}
	if lost == 0 || came == 0 {
		t.Fatalf("%d lost, %d came", lost, came)
	}
}
