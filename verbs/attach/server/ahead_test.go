package server_test

import (
	"testing"

	"softib/internal/race"
	"softib/proto/ib"
	"softib/verbs"
)

// A WRITE that its sender has put into the receiver's memory itself is complete; the receiver may learn of it much
// later.

// writeAhead writes twice: the first grants what the second uses. The receiver has not looked at the second's packet
// then.
func writeAhead(t testing.TB, a, b *side, qa *verbs.QP) {
	t.Helper()
	if race.Enabled {
		t.Skip("programs that write to each other's memory race by design")
	}
	for i := range 2 {
		pattern(a.mr.Bytes()[:100], byte(i))
		if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 100), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		a.want(verbs.WCSuccess)
	}
	if b.mr.Bytes()[1] != a.mr.Bytes()[1] {
		t.Fatal("the second WRITE is not there")
	}
}

// sendTo sends something over the queue pair and wants it to arrive.
func sendTo(t testing.TB, a, b *side, qa, qb *verbs.QP) {
	t.Helper()
	mr, err := b.pd.RegMR(make([]byte, 1000), allRights)
	if err != nil {
		t.Fatal(err)
	}
	if err := qb.PostRecv(&verbs.RecvWR{SGList: mr.SGEs(0, 1000)}); err != nil {
		t.Fatal(err)
	}
	if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: a.mr.SGEs(0, 500)}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCSuccess)
	if wc := b.want(verbs.WCSuccess); wc.ByteLen != 500 {
		t.Errorf("%d bytes arrived: want 500", wc.ByteLen)
	}
}

// TestAheadOfChange: what was complete before the receiver changed something stays complete.
func TestAheadOfChange(t *testing.T) {
	changes := map[string]func(b *side, qb *verbs.QP) error{
		"memory": func(b *side, qb *verbs.QP) error { return b.mr.Close() },
		"rights": func(b *side, qb *verbs.QP) error {
			return qb.Modify(verbs.QPAttr{Access: verbs.AccessLocalWrite}, verbs.MaskAccess)
		},
		"port": func(b *side, qb *verbs.QP) error {
			p, _ := b.driver().PortInfo(1)
			down := p.HCA
			down.LID = 0
			b.driver().SetPort(1, down)
			var wc [1]verbs.WC
			b.cq.Poll(wc[:]) // takes in what is there
			b.driver().SetPort(1, p.HCA)
			return nil
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			_, socket := fabric(t, "star:2")
			a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
			qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
			join(t, qa, qb, patient)
			writeAhead(t, a, b, qa)
			if err := change(b, qb); err != nil {
				t.Fatal(err)
			}
			sendTo(t, a, b, qa, qb)
		})
	}
}

// TestAheadGlobal: packets with a global header are written ahead as well.
func TestAheadGlobal(t *testing.T) {
	_, socket := fabric(t, "star:2")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	joinGlobal(t, a, b, qa, qb)
	writeAhead(t, a, b, qa)
	// What comes between must not lend the next one its header.
	qc, qd := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qc, qd, patient)
	sendTo(t, a, b, qc, qd)
	sendTo(t, a, b, qa, qb)
}

// joinGlobal connects two queue pairs whose packets have a global header.
func joinGlobal(t testing.TB, a, b *side, qa, qb *verbs.QP) {
	t.Helper()
	pa, _ := a.ctx.QueryPort(1)
	pb, _ := b.ctx.QueryPort(1)
	connect := func(q, peer *verbs.QP, to verbs.Port) {
		t.Helper()
		steps := []struct {
			attr verbs.QPAttr
			mask verbs.AttrMask
		}{
			{verbs.QPAttr{State: verbs.StateInit, Port: 1, Access: allRights},
				verbs.MaskState | verbs.MaskPort | verbs.MaskPKeyIndex | verbs.MaskAccess},
			{verbs.QPAttr{
				State: verbs.StateRTR, PathMTU: ib.MTU4096, DestQPN: peer.Num(), MaxDestRD: 1, MinRNRTimer: 12,
				AH: verbs.AHAttr{DLID: to.LID, Port: 1, IsGlobal: true, DGID: to.GIDs[0], HopLimit: 1},
			}, verbs.MaskState | verbs.MaskPathMTU | verbs.MaskDestQPN | verbs.MaskRQPSN | verbs.MaskMaxDestRD |
				verbs.MaskMinRNRTimer | verbs.MaskAV},
			{verbs.QPAttr{State: verbs.StateRTS, Timeout: patient.Timeout, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1},
				verbs.MaskState | verbs.MaskTimeout | verbs.MaskRetryCnt | verbs.MaskRNRRetry | verbs.MaskSQPSN |
					verbs.MaskMaxRDAtomic},
		}
		for _, s := range steps {
			if err := q.Modify(s.attr, s.mask); err != nil {
				t.Fatal(err)
			}
		}
	}
	connect(qa, qb, pb)
	connect(qb, qa, pa)
}
