package hca

import "testing"

// TestRetract: what was posted and not begun can be taken back; what is under
// way stays.
func TestRetract(t *testing.T) {
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{})
	for i := range 3 {
		a.write(uint64(i), b, 8, SendSignaled)
	}
	if n := a.h.Retract(a.qp, 2); n != 2 || a.qp.Outstanding() != 1 {
		t.Fatalf("%d taken back, %d left", n, a.qp.Outstanding())
	}
	w.run()
	a.sent("0 RDMA_WRITE SUCCESS len=8")

	// Everything, then more of the same.
	a.write(7, b, 8, SendSignaled)
	if n := a.h.Retract(a.qp, 5); n != 1 || a.qp.Outstanding() != 0 {
		t.Fatalf("%d taken back, %d left", n, a.qp.Outstanding())
	}
	w.run()
	a.sent()
	a.write(8, b, 8, SendSignaled)
	w.run()
	a.sent("8 RDMA_WRITE SUCCESS len=8")

	// A request whose first packet has gone.
	a.write(9, b, 3000, SendSignaled)
	a.write(10, b, 8, SendSignaled)
	s, more := a.h.NextSend()
	if !more {
		t.Fatal("nothing to send")
	}
	var p flying
	a.h.Emit(w.now, s, &p.p, w.buf)
	if n := a.h.Retract(a.qp, 2); n != 1 {
		t.Fatalf("%d taken back, want the one that had not begun", n)
	}
	if a.h.Retract(nil, 1) != 0 || a.h.Retract(a.qp, -1) != 0 {
		t.Fatal("nothing can be taken back from nowhere")
	}

	// A queue pair that failed has completed what was posted.
	ok(t, a.h.ModifyQP(a.qp, QPAttr{State: StateErr}, MaskState))
	a.sent("9 RDMA_WRITE WR_FLUSH_ERR")
	a.write(11, b, 8, SendSignaled)
	if n := a.h.Retract(a.qp, 1); n != 0 {
		t.Fatalf("%d taken back from a failed queue pair", n)
	}
	a.sent("11 RDMA_WRITE WR_FLUSH_ERR")
}
