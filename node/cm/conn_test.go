package cm

import (
	"bytes"
	"errors"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

func TestConnectAndDisconnect(t *testing.T) {
	w := newWorld(t, 1)
	l := w.listen(1)
	a := w.connect(0, req(0, 1, 0x10))
	w.state(0, a, ReqSent)
	e := w.until(1, ReqReceived)
	b := e.ID
	if e.Listen != l || e.Req.ServiceID != service || !bytes.HasPrefix(e.Private, []byte("hello")) ||
		len(e.Private) != mad.CMReqPrivate || e.From.LID != lid(0) {
		t.Errorf("event %+v", e)
	}
	info, _ := w.ports[1].Info(b)
	if !info.Passive || info.RemoteQPN != 0x10 || info.RemoteCommID != uint32(a) || info.RemoteCAGUID != caGUID(0) ||
		info.SQPSN != 0x111111 ||
		info.ResponderResources != 5 || info.InitiatorDepth != 3 || info.Primary.DLID != lid(0) ||
		info.Primary.SLID != lid(1) ||
		info.Primary.DGID != gidOf(0) || info.Primary.SGID != gidOf(1) || info.Primary.MTU != ib.MTU2048 ||
		info.HasAlternate {
		t.Errorf("B knows %+v", info)
	}
	w.must(w.ports[1].Accept(w.now, b, rep(0x20)))
	w.state(1, b, RepSent)
	e = w.until(0, RepReceived)
	if e.ID != a || e.Rep.LocalQPN != 0x20 || !bytes.HasPrefix(e.Private, []byte("welcome")) ||
		len(e.Private) != mad.CMRepPrivate {
		t.Errorf("event %+v", e)
	}
	w.must(w.ports[0].Ready(w.now, a, []byte("go")))
	e = w.until(1, RTUReceived)
	if e.ID != b || !bytes.HasPrefix(e.Private, []byte("go")) {
		t.Errorf("event %+v", e)
	}
	w.said("A REQ", "B REP", "A RTU")
	w.state(0, a, StateEstablished)
	w.state(1, b, StateEstablished)

	w.must(w.ports[0].Disconnect(w.now, a, []byte("bye")))
	e = w.until(1, DReqReceived)
	if !bytes.HasPrefix(e.Private, []byte("bye")) || e.DReq.RemoteQPN != 0x20 {
		t.Errorf("event %+v", e)
	}
	w.state(1, b, DReqRcvd)
	w.must(w.ports[1].Disconnect(w.now, b, []byte("so long")))
	if e = w.until(0, DRepReceived); !bytes.HasPrefix(e.Private, []byte("so long")) {
		t.Errorf("event %+v", e)
	}
	w.state(0, a, Timewait)
	w.state(1, b, Timewait)
	w.said("A DREQ", "B DREP")
	start := w.now
	w.until(0, TimewaitExit)
	w.until(1, TimewaitExit)
	// Twice a life of 2^8 units, and the target's delay of 2^10: one step apart, so one more.
	if waited := w.now - start; waited < span(11)-ms || waited > span(11)+ms {
		t.Errorf("time wait lasted %v, want about %v", waited, span(11))
	}
	w.state(0, a, Closed)
	w.must(w.ports[0].Destroy(w.now, a))
	w.must(w.ports[1].Destroy(w.now, b))
	if err := w.ports[0].Destroy(w.now, a); !errors.Is(err, ErrConn) {
		t.Errorf("destroyed twice: %v", err)
	}
	w.idle()
	w.said()
	w.drained()
}
