package server_test

import (
	"bytes"
	"testing"

	"softib/verbs"
)

// TestMixed: programs that are attached over the socket and programs of the fabric's own process talk to each other, on
// one host and across the fabric, and nobody has to poll for it.
func TestMixed(t *testing.T) {
	f, socket := fabric(t, "star:2")
	inside, err := f.Host("h2")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"h1", "h2"} {
		far, own := newSide(t, socket, host), sideOn(t, inside.Device())
		for _, x := range [][2]*side{{far, own}, {own, far}} {
			a, b := x[0], x[1]
			qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
			join(t, qa, qb, patient)
			for i, n := range []int{8, 1000, 10000, 1 << 20, 8} {
				pattern(a.mr.Bytes()[:n], byte(n+i))
				if err := qb.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, n)}); err != nil {
					t.Fatal(err)
				}
				if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
					SGList: a.mr.SGEs(0, n)}); err != nil {
					t.Fatal(err)
				}
				if wc := b.want(verbs.WCSuccess); int(wc.ByteLen) != n {
					t.Errorf("%s: %d bytes arrived: want %d", host, wc.ByteLen, n)
				}
				a.want(verbs.WCSuccess)
				if !bytes.Equal(a.mr.Bytes()[:n], b.mr.Bytes()[:n]) {
					t.Fatalf("%s: %d bytes: they differ", host, n)
				}
			}
		}
		// When the far one ends, what is sent to it is not answered, and others are not harmed.
		qa, qb := own.qp(verbs.RC), far.qp(verbs.RC)
		quick := patient
		quick.Timeout, quick.RetryCnt = 12, 1
		join(t, qa, qb, quick)
		if err := far.dev.Close(); err != nil {
			t.Fatal(err)
		}
		if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: own.mr.SGEs(0, 8), RemoteAddr: far.mr.Addr(), RKey: far.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		own.want(verbs.WCRetryExcErr)
	}
}
