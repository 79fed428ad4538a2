package hca

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
)

// tagPair is a sender on host 0 and, on host 1, a queue pair whose shared queue matches tags.
func (w *world) tagPair(c conf) (*end, *end) {
	w.t.Helper()
	cb := c
	cb.srq, cb.tags, cb.sigAll = 64, 32, true
	a, b := w.newEnd(0, c), w.newEnd(1, cb)
	w.join(a, b, c, cb)
	return a, b
}

// tagOp changes the list of tags.
func (e *end) tagOp(op TagOp) uint32 {
	e.w.t.Helper()
	op.Signaled = true
	ok(e.w.t, e.h.PostSRQOp(e.srq, &op))
	return op.Handle
}

func (e *end) addTag(id, tag uint64, list ...SGE) uint32 {
	e.w.t.Helper()
	return e.tagOp(TagOp{WRID: 1000 + id, Kind: WCTagAdd, RecvWRID: id, Tag: tag, Mask: 0xFFFF, SGList: list})
}

// message writes a message with its header to the sender's memory.
func (e *end) message(off int, op uint8, tag uint64, data []byte) SGE {
	h := e.mem[off : off+tmhSize]
	clear(h)
	h[0] = op
	binary.BigEndian.PutUint32(h[tmhUser:], 77)
	binary.BigEndian.PutUint64(h[tmhTag:], tag)
	copy(e.mem[off+tmhSize:], data)
	return e.sge(off, tmhSize+len(data))
}

// offer writes a rendezvous for n bytes at some place of the sender's memory.
func (e *end) offer(off int, tag uint64, at, n int) SGE {
	var r [rvhSize]byte
	binary.BigEndian.PutUint64(r[:], memVA+uint64(at))
	binary.BigEndian.PutUint32(r[rvhRKey:], e.mr.RKey())
	binary.BigEndian.PutUint32(r[rvhLen:], uint32(n))
	return e.message(off, tmRendezvous, tag, r[:])
}

func (e *end) send(s SGE) {
	e.w.t.Helper()
	e.post(SendWR{Opcode: WRSend, SGList: []SGE{s}})
	e.w.run()
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*3 + seed
	}
	return b
}

func TestTagMatching(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.tagPair(conf{})
	wantAttr(t, b.h.PostSend(b.qp, &SendWR{Opcode: WRSend}), "post_send", "opcode", ErrInvalid) // its queue is not ours
	wantAttr(t, b.h.PostSend(b.qp, &SendWR{Opcode: wrTagRead}), "post_send", "opcode", ErrInvalid)
	for i := range 8 {
		b.recv(uint64(900+i), b.sge(40000+i*1000, 1000))
		a.recv(uint64(800+i), a.sge(40000+i*1000, 1000))
	}

	// One packet, with a tag of which the mask takes a part; then several.
	b.addTag(1, 0x11, b.sge(0, 100))
	b.addTag(2, 0x22, b.sge(1000, 300), b.sge(2000, 700))
	b.received("1001 TM_ADD SUCCESS len=0", "1002 TM_ADD SUCCESS len=0")
	a.send(a.message(0, tmEager, 0xABC0022, pattern(900, 1)))
	b.received("2 TM_RECV SUCCESS len=240 match=0xabc0022/77", "2 TM_RECV SUCCESS len=900 data")
	if got := append(slices.Clone(b.mem[1000:1300]), b.mem[2000:2600]...); !bytes.Equal(got, pattern(900, 1)) {
		t.Fatal("data differ")
	}
	a.send(a.message(0, tmEager, 0x11, pattern(100, 2)))
	b.received("1 TM_RECV SUCCESS len=100 match=0x11/77 data")
	if !bytes.Equal(b.mem[:100], pattern(100, 2)) || b.mem[100] == pattern(101, 2)[100] {
		t.Fatal("data differ")
	}

	// A message without a tag, and one whose tag nobody waits for: as they came, into what there is for all.
	a.send(a.message(0, tmNoTag, 0x33, pattern(50, 3)))
	a.send(a.message(0, tmEager, 0x33, pattern(50, 4)))
	a.send(a.sge(0, 3))
	b.received("900 TM_NO_TAG SUCCESS len=66", "901 TM_RECV SUCCESS len=66", "902 TM_RECV SUCCESS len=3")
	if !bytes.Equal(b.mem[41016:41066], pattern(50, 4)) || b.mem[41000] != tmEager {
		t.Fatal("a message that nobody waited for is not whole")
	}
	// What is added now may be for one of those: it is out of force until the program knows of both.
	b.addTag(3, 0x33, b.sge(0, 100))
	b.received("1003 TM_ADD SUCCESS len=0 sync")
	a.send(a.message(0, tmEager, 0x33, pattern(20, 5)))
	b.received("903 TM_RECV SUCCESS len=36")
	b.tagOp(TagOp{WRID: 7, Kind: WCTagSync, Sync: true, Missed: 2})
	b.received("7 TM_SYNC SUCCESS len=0 sync")
	b.tagOp(TagOp{WRID: 8, Kind: WCTagSync, Sync: true, Missed: 3})
	b.received("8 TM_SYNC SUCCESS len=0")
	a.send(a.message(0, tmEager, 0x33, pattern(30, 6)))
	b.received("3 TM_RECV SUCCESS len=30 match=0x33/77 data")

	// A rendezvous: the data are fetched, and the sender is told with its own header.
	copy(a.mem[20000:], pattern(5000, 7))
	b.addTag(4, 0x44, b.sge(10000, 3000), b.sge(14000, 3000))
	a.send(a.offer(0, 0x44, 20000, 5000))
	b.received("1004 TM_ADD SUCCESS len=0", "4 TM_RECV SUCCESS len=0 match=0x44/77", "4 TM_RECV SUCCESS len=5000 data")
	a.received("800 RECV SUCCESS len=32")
	if a.mem[40000] != tmFinished || !bytes.Equal(a.mem[40001:40032], a.mem[1:32]) {
		t.Fatal("the sender was not told with its own header")
	}
	if got := append(slices.Clone(b.mem[10000:13000]), b.mem[14000:16000]...); !bytes.Equal(got, pattern(5000, 7)) {
		t.Fatal("data differ")
	}
	// One that does not fit is left to the program, with what it needs.
	b.addTag(5, 0x55, b.sge(10000, 100))
	a.send(a.offer(0, 0x55, 20000, 101))
	b.received("1005 TM_ADD SUCCESS len=0", "5 TM_RECV TM_RNDV_INCOMPLETE match=0x55/77")
	if !bytes.Equal(b.mem[10000:10032], a.mem[:32]) {
		t.Fatal("the headers are not there")
	}

	// Entries that are taken back, and one that is gone.
	h := b.addTag(6, 0x66, b.sge(0, 100))
	b.tagOp(TagOp{WRID: 9, Kind: WCTagDel, Handle: h})
	b.tagOp(TagOp{WRID: 10, Kind: WCTagDel, Handle: h})
	b.received("1006 TM_ADD SUCCESS len=0", "9 TM_DEL SUCCESS len=0", "10 TM_DEL TM_ERR")

	// Refusals.
	for _, c := range []struct {
		attr string
		kind error
		op   TagOp
	}{
		{"opcode", ErrInvalid, TagOp{Kind: WCRecv}},
		{"num_sge", ErrInvalid, TagOp{Kind: WCTagAdd, SGList: make([]SGE, 1000)}},
		{"sg_list", ErrInvalid, TagOp{Kind: WCTagAdd, SGList: []SGE{{Length: 1<<32 - 1}}}},
	} {
		wantAttr(t, b.h.PostSRQOp(b.srq, &c.op), "post_srq_ops", c.attr, c.kind)
	}
	for i := range 32 {
		ok(t, b.h.PostSRQOp(b.srq, &TagOp{Kind: WCTagAdd, RecvWRID: uint64(i), Tag: 1 << 40}))
	}
	wantAttr(t, b.h.PostSRQOp(b.srq, &TagOp{Kind: WCTagAdd}), "post_srq_ops", "tags", ErrFull)
	a.sent()

	// A message that is too long for its entry ends the connection, as with other receives.
	w.close()
	w = newWorld(t, 2, 1)
	a, b = w.tagPair(conf{})
	b.addTag(1, 1, b.sge(0, 99))
	a.send(a.message(0, tmEager, 1, pattern(100, 1)))
	b.received("1001 TM_ADD SUCCESS len=0", "1 RECV LOC_LEN_ERR")
	a.sent("0 SEND REM_INV_REQ_ERR")

	// So does one whose data may not be read.
	w = newWorld(t, 2, 1)
	a, b = w.tagPair(conf{})
	b.addTag(1, 1, b.sge(0, 100))
	a.send(a.offer(0, 1, memLen-50, 100))
	b.received("1001 TM_ADD SUCCESS len=0", "1 TM_RECV SUCCESS len=0 match=0x1/77", "1 TM_RECV REM_ACCESS_ERR",
		"0 SEND WR_FLUSH_ERR")
}

// TestTagRandom sends messages of all kinds while packets are lost, doubled and late: each comes to what was posted for
// its tag, once.
func TestTagRandom(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 2, 1)
		w.hosts[1].cfg.ByRefMin, w.viaWire = int(seed%3)*100, seed%4 == 0
		w.hosts[0].cfg.ByRefMin = w.hosts[1].cfg.ByRefMin
		w.fate = func(*flying) fate {
			return fate{drop: r.IntN(20) == 0, dup: r.IntN(20) / 19, extra: ib.Time(r.IntN(3000)) * ib.Nanosecond}
		}
		a, b := w.tagPair(conf{})
		const n, room = 20, 1500
		want := map[string]bool{}
		for _, i := range r.Perm(n) {
			b.addTag(uint64(i), uint64(i), b.sge(i*room, 700), b.sge(i*room+700, room-700))
			a.recv(uint64(i), a.sge(60000, 64))
		}
		poll(b.rcq)
		var data [n][]byte
		for i := range n {
			data[i] = pattern(1+r.IntN(1200), byte(seed)+byte(i))
			at := i * room
			s := a.message(at, tmEager, uint64(i), data[i])
			if r.IntN(2) == 0 {
				copy(a.mem[at+100:], data[i])
				s = a.offer(at, uint64(i), at+100, len(data[i]))
			}
			a.post(SendWR{Opcode: WRSend, SGList: []SGE{s}})
			want[fmt.Sprintf("%d TM_RECV SUCCESS len=%d", i, len(data[i]))] = true
		}
		w.run()
		for _, c := range poll(b.rcq) {
			if c.Flags&WCTagDataValid == 0 {
				continue
			}
			line, _, _ := strings.Cut(strings.TrimPrefix(showWC(&c), "wc "), " data")
			line, _, _ = strings.Cut(line, " match")
			if !want[line] {
				t.Fatalf("seed %d: %q, which was not to come, or came before", seed, line)
			}
			delete(want, line)
		}
		if len(want) > 0 {
			t.Fatalf("seed %d: did not come: %v", seed, want)
		}
		for i := range n {
			if got := b.mem[i*room:][:len(data[i])]; !bytes.Equal(got, data[i]) {
				t.Fatalf("seed %d: message %d differs", seed, i)
			}
		}
	}
}
