package hca

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"softib/proto/wire"
)

// farState is everything of a receiving end that a packet may change.
type farState struct {
	QP            QP
	RQ            recvQueue
	SRQ           uint32
	Limit         int
	CQs           [2]uint32
	Completions   uint64
	Events        int
	Resp          []respItem
	OldestRequest sendWQE
}

func stateOf(e *end) farState {
	s := farState{QP: *e.qp, RQ: e.qp.rq, CQs: [2]uint32{e.scq.tail, e.rcq.tail}, Completions: e.h.Stats.Completions,
		Events: len(e.h.events.buf)}
	q := &s.QP
	if e.srq != nil {
		s.SRQ, s.Limit = e.srq.rq.head, e.srq.limit
	}
	s.Resp = append([]respItem(nil), q.resp...)
	if q.sqOldest != q.sqNext {
		s.OldestRequest = q.sq[q.sqOldest&q.sqMask]
	}
	// What a packet leaves behind that means nothing until the next sets it.
	if q.msgOp == msgNone {
		q.writeVA, q.writeKey, q.writeLen, q.writeRem = 0, 0, 0, 0
	}
	if q.cur == nil {
		q.curDone, q.held, q.heldOf, q.curCQ = 0, recvWQE{}, 0, nil
	}
	q.curPD, q.heldSGE, q.commEst, q.next, q.onReady, q.sq, q.resp = nil, nil, true, nil, false, nil, nil
	q.rq = recvQueue{}
	return s
}

// TestFarGone: a payload whose owner is gone is a packet that never came. It
// leaves no trace but a count, and coming again it is taken as if for the first time.
func TestFarGone(t *testing.T) {
	for _, kind := range []struct {
		name string
		c    conf
	}{
		{"RC", conf{}}, {"RC with a shared queue", conf{srq: 8, srqLimit: 4}},
		{"XRC", conf{typ: XRCSend, srq: 8, srqLimit: 4}},
		{"UC", conf{typ: UC}}, {"UC with a shared queue", conf{typ: UC, srq: 8, srqLimit: 4}}, {"UD", conf{typ: UD}},
		{"UD with a shared queue", conf{typ: UD, srq: 8, srqLimit: 4}},
	} {
		for _, op := range []WROpcode{WRSend, WRSendImm, WRRDMAWrite, WRRDMAWriteImm, WRRDMARead} {
			for _, n := range []int{1, 200, 256, 700} {
				c := kind.c.filled()
				if wrTable[op].services&qpTypes[c.typ].ops == 0 || c.typ == UD && n > 256 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%d", kind.name, op, n), func(t *testing.T) { farGone(t, kind.c, op, n) })
			}
		}
	}
}

func farGone(t *testing.T, c conf, op WROpcode, n int) {
	w := newWorld(t, 2, 1)
	var a, b *end
	switch c.typ {
	case XRCSend:
		a, b = w.xrcPair(c)
	case UD:
		a, b = w.udEnd(0, c), w.udEnd(1, c)
	default:
		a, b = w.pair(c)
	}
	target := b
	wr := SendWR{WRID: 7, Opcode: op, Flags: SendSignaled, SGList: []SGE{a.sge(100, n)}, RemoteAddr: memVA + 5000,
		RKey: b.mr.RKey()}
	switch {
	case op == WRRDMARead:
		target = a
	case c.typ == UD:
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = a.ah(AHAttr{DLID: lidOf(1, 1)}), b.qp.num, 0x1234
	}
	if b.srq != nil {
		wr.RemoteSRQN = b.srq.Num()
	}
	for i := range 4 { // two pieces: the second may be the one that is gone
		b.recv(uint64(i), b.sge(5000+1000*i, 50), b.sge(5050+1000*i, 900))
	}
	want := append([]byte(nil), a.mem[100:100+n]...)
	if op == WRRDMARead {
		want = append([]byte(nil), b.mem[5000:5000+n]...)
	}
	a.post(wr)
	drops := uint64(0)
	for moved := true; moved; {
		moved = false
		for i, h := range w.hosts {
			for s, has := h.NextSend(); has; s, has = h.NextSend() {
				var p wire.Packet
				if !h.Emit(0, s, &p, w.buf) {
					continue
				}
				moved = true
				peer := w.hosts[1-i]
				if p.PayloadLen() == 0 {
					peer.HandlePacket(0, 1, &p)
					continue
				}
				// Nothing can be had, then one piece more each time, until all.
				far := &elsewhere{b: append([]byte(nil), p.Payload...)}
				p.Far, p.FarLen, p.Payload = far, len(p.Payload), nil
				for good := 0; ; good++ {
					calls := 0
					far.there = func() bool { calls++; return calls <= good }
					before := stateOf(target)
					peer.HandlePacket(0, 1, &p)
					if calls <= good {
						break
					}
					drops++
					if after := stateOf(target); !reflect.DeepEqual(before, after) ||
						peer.Stats.Drops[DropFar] != drops {
						t.Fatalf("%d dropped, and it left a trace:\n%+v\nbefore:\n%+v", peer.Stats.Drops[DropFar],
							after, before)
					}
				}
			}
		}
	}
	if drops == 0 {
		t.Fatal("nothing was ever gone")
	}
	a.sent(fmt.Sprintf("7 %v SUCCESS len=%d", wrTable[op].wc, n))
	got := b.mem[5000 : 5000+n]
	switch {
	case op == WRRDMARead:
		got = a.mem[100 : 100+n]
	case c.typ == UD:
		got = b.mem[5040 : 5040+n]
	}
	if !bytes.Equal(got, want) {
		t.Fatal("data differ")
	}
	if wcs := poll(b.rcq); op == WRRDMARead || op == WRRDMAWrite {
		if len(wcs) != 0 {
			t.Fatalf("%d receives completed", len(wcs))
		}
	} else if len(wcs) != 1 || wcs[0].WRID != 0 || wcs[0].Status != WCSuccess {
		t.Fatalf("receives: %+v", wcs)
	}
	w.close()
}
