// Package verbs is InfiniBand's verbs for Go programs: Context, PD, MR, MW, CQ,
// QP, SRQ, AH and XRCD, named and ordered as in libibverbs, with Go's manners:
// typed errors that name the attribute, contexts for calls that block, slices
// for memory, and no allocation per message on the data path.
//
//	ctx := verbs.Open(host)                        // host: a live.Host, …
//	pd, _ := ctx.AllocPD()
//	mr, _ := pd.RegMR(buf, verbs.AccessLocalWrite)
//	cq, _ := ctx.CreateCQ(128)
//	qp, _ := pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.DefaultCaps})
//	…  exchange qp.Info() with the peer, qp.Connect(peer)
//	qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, SGList: mr.SGEs(0, 8), Flags: verbs.SendSignaled})
//	n := cq.Poll(wcs)                              // or cq.Wait(ctx, wcs), which sleeps
//
// It holds no engine and no thread of its own: everything goes through the
// Device that it was opened on. The objects may be used by many goroutines at
// once as far as the Device allows, and the drivers' devices do.
package verbs
