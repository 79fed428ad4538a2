package fieldtest

import (
	"context"

	"softib/ib"
	"softib/topo"
	"softib/verbs"
)

const (
	grhBytes  = 40 // a datagram's buffer begins with room for a GRH (IBA 11.4.1.2)
	dgramSize = 256
	// dgramWords is such a datagram in the units of the data counters: LRH, BTH, DETH, payload and ICRC.
	dgramWords = (8 + 12 + 8 + dgramSize + 4) / 4
	dgramQKey  = ib.QKey(0x11111111)
)

// talker is a host with a datagram queue pair.
type talker struct {
	w    *world
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	node *topo.Node
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) talker(name string) *talker {
	w.Helper()
	h, err := w.Host(name)
	w.check(err)
	t := &talker{w: w, node: w.node(name)}
	ctx := verbs.Open(h)
	t.pd, err = ctx.AllocPD()
	w.check(err)
	t.cq, err = ctx.CreateCQ(512)
	w.check(err)
	t.mr, err = t.pd.RegMR(make([]byte, grhBytes+dgramSize), verbs.AccessLocalWrite)
	w.check(err)
	t.qp, err = t.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: t.cq, RecvCQ: t.cq, Caps: verbs.Caps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1}})
	w.check(err)
	w.check(t.qp.Ready(1, 0, dgramQKey))
	return t
}

// send sends datagrams to an address and waits until they have left.
func (t *talker) send(count int, to ib.LID, qpn ib.QPN, sl ib.SL) {
	t.w.Helper()
	a := verbs.AHAttr{DLID: to, SL: sl, Port: 1}
	if to.IsMulticast() {
		a.IsGlobal, a.DGID, qpn = true, ib.GID{0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, 12: 0xFF, 13: 0xFF, 14: 0xFF, 15: 0xFF}, ib.QPNMulticast
	}
	ah, err := t.pd.CreateAH(a)
	t.w.check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range count {
		t.w.check(t.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: t.mr.SGEs(0, dgramSize), AH: ah.Handle(), RemoteQPN: qpn, RemoteQKey: dgramQKey}))
		var wc [1]verbs.WC
		if _, err := t.cq.Wait(ctx, wc[:]); err != nil || wc[0].Status != verbs.WCSuccess {
			t.w.Fatalf("%s sends a datagram: %v, %v", t.node.Name, err, wc[0].Status)
		}
	}
}
