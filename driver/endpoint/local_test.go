package endpoint

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
)

// TestRingNumbersWrap: the cells of a ring are numbered around a circle, and nothing is special about the places where
// the numbers wrap or change their sign, for payloads in the ring as for those by reference.
func TestRingNumbersWrap(t *testing.T) {
	x, y := twins(t, func() *Ledger { return nil })
	var wc [8]hca.WC
	write := func(round byte) {
		t.Helper()
		for i := range x.mr.Bytes() {
			x.mr.Bytes()[i] = byte(i) ^ round
		}
		for i := range 700 { // more packets than a ring has cells
			n := uint32(x.mr.Len())
			if i%2 == 0 {
				n = 100
			}
			h := x.Enter()
			if err := h.PostSend(x.qp, &hca.SendWR{Opcode: hca.WRRDMAWrite, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey(),
				SGList: []hca.SGE{{Addr: x.mr.Addr(), Length: n, LKey: x.mr.LKey()}}}); err != nil {
				t.Fatal(err)
			}
			x.Leave()
			for got := 0; got == 0; got = x.Poll(x.cq, wc[:]) {
				y.Poll(y.cq, wc[:])
			}
			if wc[0].Status != hca.WCSuccess {
				t.Fatalf("round %d, write %d: %+v", round, i, wc[0])
			}
		}
		if !bytes.Equal(x.mr.Bytes(), y.mr.Bytes()) {
			t.Fatalf("round %d: bytes differ", round)
		}
	}
	y.in[0].far.peer = newPeer(x.page, os.Getpid()) // it can read what is referred to
	x.out.pid = os.Getpid()
	for _, refers := range []uint32{0, 1} {
		atomic.StoreUint32(&x.out.head.pull, refers)
		write(0)
		for round, at := range []uint32{1<<31 - 300, 1<<32 - 300} {
			for range 100 { // what is owed is sent and taken in
				x.Poll(x.cq, wc[:])
				y.Poll(y.cq, wc[:])
			}
			// Everything is at rest: move both ends of the rings to just before the place.
			for _, w := range []*twin{x, y} {
				w.in[0].next, w.in[0].lastTold = at, at
				out := w.out
				for i := range out.cells {
					out.cells[i].seq = at - ringCells // of the round before
				}
				out.head.taken = at
				out.tail, out.heard, out.limit, out.seen = at, at, at+ringCells, at
				for i := range out.ends {
					out.ends[i] = out.ptail
				}
			}
			write(byte(round + 1))
			if s := x.eng.Stats; s.Retransmits != 0 {
				t.Fatalf("round %d: %d packets were sent again", round, s.Retransmits)
			}
		}
	}
}

// TestLocalRevoke: within one process nobody reads memory that a sender has taken back, not even to forget it.
func TestLocalRevoke(t *testing.T) {
	mem, err := NewLocalRing()
	if err != nil {
		t.Fatal(err)
	}
	here, there := NewLocalPage(), NewLocalPage()
	here.sign()
	there.sign()
	out, err := NewLocalOut(mem, there, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewLocalIn(mem, here, os.Getpid(), 1)
	if err != nil {
		t.Fatal(err)
	}
	payload, dst := make([]byte, 1<<18), make([]byte, 1<<18)
	p := wire.Packet{Payload: payload}
	p.LRH.LNH = wire.LNHLocal
	p.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpSendMiddle)
	taken := bytes.Repeat([]byte{0x55}, len(payload))
	for range 200 {
		clear(payload)
		if !out.canRefer(true) || !out.room(0) {
			t.Fatal("no room")
		}
		p.Payload, out.from = payload, new(hca.QP)
		out.publish(&p, false)
		if out.owners[(out.tail-1)%ringCells] == nil {
			t.Fatal("the payload does not go by reference")
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			var got wire.Packet
			c := in.ready()
			if c != nil && in.get(c, &got) && got.Far != nil {
				got.Far.CopyTo(dst, 0)
			}
			in.Done()
			in.tell()
		})
		out.revoke(nil)
		copy(payload, taken)
		wg.Wait()
		if i := bytes.IndexByte(dst, 0x55); i >= 0 {
			t.Fatalf("byte %d was read after the sender had taken its memory back", i)
		}
	}
}

// TestLocalSleep: who sleeps at a page of this process wakes when it is knocked at, even if that came first, and when
// the time is over.
func TestLocalSleep(t *testing.T) {
	p := NewLocalPage()
	p.Rest()
	p.Knock()
	p.Rest()
	p.Wait(ib.Never) // the knock was not lost
	done := make(chan struct{})
	go func() {
		p.Wait(ib.Never)
		close(done)
	}()
	p.wake()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("nobody woke up")
	}
	start := time.Now()
	p = NewLocalPage()
	p.Rest()
	p.Wait(2 * ib.Millisecond)
	if took := time.Since(start); took < 2*time.Millisecond {
		t.Errorf("slept for %v: want 2ms", took)
	}
	p.Attend()
	p.Wait(ib.Never) // somebody looks: there is nothing to wait for
}
