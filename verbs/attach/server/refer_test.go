package server_test

import (
	"testing"

	"softib/internal/race"
	"softib/verbs"
)

// TestDeregisteredUnderWay: memory that is taken away from a request under way is not looked at any more, though
// packets that refer to it lie in a ring.
func TestDeregisteredUnderWay(t *testing.T) {
	if race.Enabled {
		t.Skip("the detector does not see what goes through shared memory")
	}
	takeAway := map[string]func(a *side, qa *verbs.QP) error{
		"memory":     func(a *side, qa *verbs.QP) error { return a.mr.Close() },
		"queue pair": func(a *side, qa *verbs.QP) error { return qa.Close() },
	}
	for name, take := range takeAway {
		t.Run(name, func(t *testing.T) {
			_, socket := fabric(t, "star:2")
			a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
			qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
			o := verbs.DefaultConnect
			o.Timeout = 17 // half a second, eight times
			join(t, qa, qb, o)
			exchange(t, a, b, qa, 100000) // there are rings, and they are pulled from
			if err := qb.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 100000)}); err != nil {
				t.Fatal(err)
			}
			clear(b.mr.Bytes())
			b.driver().Enter() // it takes nothing in meanwhile
			err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
				SGList: a.mr.SGEs(0, 100000)})
			if err == nil {
				err = take(a, qa)
			}
			for i := range a.mr.Bytes() {
				a.mr.Bytes()[i] = 0xEE
			}
			b.driver().Leave()
			if err != nil {
				t.Fatal(err)
			}
			if name == "memory" {
				a.want(verbs.WCLocProtErr)
			}
			// What is sent now comes after everything that was in the ring.
			qc, qd := a.qp(verbs.RC), b.qp(verbs.RC)
			join(t, qc, qd, o)
			if err := qc.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
				RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
				t.Fatal(err)
			}
			a.want(verbs.WCSuccess)
			var wc [1]verbs.WC
			if b.cq.Poll(wc[:]) != 0 {
				t.Errorf("what was given up has arrived: %+v, byte 0 is %#x", wc[0], b.mr.Bytes()[0])
			}
		})
	}
}
