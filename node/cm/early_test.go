package cm

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// TestEarlyRequest: a request that comes before its listener waits for it, a while, and is rejected then.
func TestEarlyRequest(t *testing.T) {
	w := newWorld(t, 1)
	const grace = 100 * ib.Millisecond
	w.ports[1].cfg.Grace = grace
	patient := func(qpn ib.QPN) ReqParams {
		r := req(0, 1, qpn)
		r.RemoteCMTimeout = 20 // 4 s
		return r
	}
	a := w.connect(0, patient(0x10))
	for w.ports[1].firstEarly() == ib.Never {
		if !w.step() {
			t.Fatal("the request does not wait")
		}
	}
	w.state(0, a, ReqSent)
	w.listen(1)
	e := w.until(1, ReqReceived)
	w.must(w.ports[1].Accept(w.now, e.ID, rep(0x20)))
	w.until(0, RepReceived)
	w.must(w.ports[0].Ready(w.now, a, nil))
	w.until(1, RTUReceived)
	if w.ports[1].firstEarly() != ib.Never {
		t.Error("it still waits")
	}

	w = newWorld(t, 2)
	w.ports[1].cfg.Grace = grace
	start := w.now
	w.connect(0, patient(0x11))
	if r := w.until(0, RejReceived); r.Rej.Reason != mad.RejInvalidServiceID {
		t.Errorf("rejected for %v", r.Rej.Reason)
	}
	if d := w.now - start; d < grace || d > 2*grace {
		t.Errorf("rejected after %v: want about %v", d, grace)
	}
	w.idle()
}
