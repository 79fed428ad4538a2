package hca

import (
	"errors"
	"testing"
)

// TestResizeSRQ changes the size of a shared queue to and fro; the receives that are posted stay, in order.
func TestResizeSRQ(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{srq: 4})
	posted := 0
	fill := func(most int) {
		t.Helper()
		for ; posted < most; posted++ {
			b.recv(uint64(posted), b.sge(0, 8))
		}
		if err := b.h.PostSRQRecv(b.srq, &RecvWR{}); !errors.Is(err, ErrFull) {
			t.Fatalf("receive %d of a queue for %d: %v, want %v", posted+1, most, err, ErrFull)
		}
	}
	fill(4)
	for _, n := range []int{5, 16, 17, 40} {
		ok(t, b.h.ResizeSRQ(b.srq, n))
		if got, _, _, err := b.h.QuerySRQ(b.srq); got != n || err != nil {
			t.Fatalf("query says %d (%v), want %d", got, err, n)
		}
		fill(n)
	}
	for _, n := range []int{39, 0, -1, b.h.cfg.Limits.MaxSRQWR + 1} {
		wantAttr(t, b.h.ResizeSRQ(b.srq, n), "modify_srq", "max_wr", ErrInvalid)
	}
	for i := range 38 {
		a.post(SendWR{Opcode: WRSend, SGList: []SGE{a.sge(0, 1)}})
		w.run()
		if c := poll(b.rcq); len(c) != 1 || c[0].WRID != uint64(i) {
			t.Fatalf("message %d came to %v", i, c)
		}
	}
	ok(t, b.h.ModifySRQ(b.srq, 3))
	b.h.drain()
	ok(t, b.h.ResizeSRQ(b.srq, 3))
	wantAttr(t, b.h.ResizeSRQ(b.srq, 2), "modify_srq", "max_wr", ErrInvalid)
	posted = 2
	fill(3)
}
