// Command hello writes from the memory of one host into that of another.
package main

import (
	"context"
	"fmt"
	"log"

	"softib/verbs"
	"softib/verbs/attach"
)

// side is what a host needs for a connection.
type side struct {
	mr *verbs.MR
	cq *verbs.CQ
	qp *verbs.QP
	verbs.Info
}

func open(host string) (s side) {
	dev := must(attach.Open(attach.Options{Host: host})) // of the fabric that softib up runs
	ctx := verbs.Open(dev)
	pd := must(ctx.AllocPD())
	s.mr = must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
	s.cq = must(ctx.CreateCQ(16))
	s.qp = must(pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.DefaultCaps}))
	s.Info = must(s.qp.Info(1, 0))
	return s
}

func main() {
	a, b := open("h1"), open("h9")
	check(a.qp.Connect(a.Info, b.Info, verbs.DefaultConnect))
	check(b.qp.Connect(b.Info, a.Info, verbs.DefaultConnect))

	n := copy(a.mr.Bytes(), "hello, h9")
	check(a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, n),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
	var wc [1]verbs.WC
	must(a.cq.Wait(context.Background(), wc[:]))
	check(wc[0].Err())
	fmt.Printf("LID %d wrote to LID %d: %s\n", a.LID, b.LID, b.mr.Bytes()[:n])
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
