package cm

import (
	"bytes"
	"testing"

	"softib/proto/mad"
)

func TestSIDR(t *testing.T) {
	w := newWorld(t, 1)
	l := w.listen(1)
	ask := SIDRParams{Path: path(0, 1), ServiceID: service, Timeout: 20 * ms, Retries: 3, Private: []byte("who")}
	a, err := w.ports[0].SIDRRequest(w.now, ask)
	w.must(err)
	e := w.until(1, SIDRReqReceived)
	b := e.ID
	if e.Listen != l || e.SIDRReq.PKey != 0xFFFF || e.SIDRReq.ServiceID != service ||
		!bytes.HasPrefix(e.Private, []byte("who")) || len(e.Private) != mad.SIDRReqPrivate {
		t.Errorf("event %+v", e.SIDRReq)
	}
	if info, ok := w.ports[1].Info(b); !ok || !info.SIDR || !info.Passive || info.ServiceID != service {
		t.Errorf("B knows %+v", info)
	}
	// The answer is lost; the question comes again and gets the same one, though the ID is gone.
	lost := 1
	w.each = func(to int, _ []byte) bool {
		if to == 0 && lost > 0 {
			lost--
			return false
		}
		return true
	}
	w.must(w.ports[1].SIDRReply(w.now, b, SIDRReplyParams{QPN: 0x77, QKey: 0x1234567, Info: []byte{9},
		Private: []byte("me")}))
	w.must(w.ports[1].Destroy(w.now, b))
	e = w.until(0, SIDRRepReceived)
	if e.ID != a || e.SIDRRep.Status != mad.SIDROK || e.SIDRRep.QPN != 0x77 || e.SIDRRep.QKey != 0x1234567 ||
		e.SIDRRep.ServiceID != service ||
		e.SIDRRep.InfoLength != 1 || !bytes.HasPrefix(e.Private, []byte("me")) {
		t.Errorf("event %+v", e.SIDRRep)
	}
	w.said("A SIDR_REQ", "B SIDR_REP", "A SIDR_REQ", "B SIDR_REP")
	w.state(0, a, Closed)
	w.must(w.ports[0].Destroy(w.now, a))
	w.idle()
	w.drained()
}

func TestSIDRRefused(t *testing.T) {
	w := newWorld(t, 1)
	a, err := w.ports[0].SIDRRequest(w.now, SIDRParams{Path: path(0, 1), ServiceID: service, Timeout: ms})
	w.must(err)
	if e := w.until(0, SIDRRepReceived); e.SIDRRep.Status != mad.SIDRUnsupported {
		t.Errorf("status %v", e.SIDRRep.Status)
	}
	w.must(w.ports[0].Destroy(w.now, a))
	w.listen(1)
	a, err = w.ports[0].SIDRRequest(w.now, SIDRParams{Path: path(0, 1), ServiceID: service, Timeout: ms})
	w.must(err)
	w.must(w.ports[1].Destroy(w.now, w.until(1, SIDRReqReceived).ID))
	if e := w.until(0, SIDRRepReceived); e.SIDRRep.Status != mad.SIDRReject || e.SIDRRep.QPN != 0 {
		t.Errorf("status %v", e.SIDRRep.Status)
	}
	w.must(w.ports[0].Destroy(w.now, a))
	w.drop = 1
	start := w.now
	a, err = w.ports[0].SIDRRequest(w.now, SIDRParams{Path: path(0, 1), ServiceID: service, Timeout: ms, Retries: 2})
	w.must(err)
	w.until(0, SIDRReqError)
	if w.now-start != 3*ms {
		t.Errorf("given up after %v", w.now-start)
	}
	w.must(w.ports[0].Destroy(w.now, a))
	a, err = w.ports[0].SIDRRequest(w.now, SIDRParams{Path: path(0, 1), ServiceID: service, Timeout: ms, Retries: 2})
	w.must(err)
	w.must(w.ports[0].Destroy(w.now, a))
	w.idle()
	w.drained()
}
