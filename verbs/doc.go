// Package verbs is InfiniBand's verbs for Go programs: Context, PD, MR, MW, CQ,
// QP, SRQ, AH and XRCD, named and ordered as in libibverbs, with Go's manners:
// typed errors that name the attribute, contexts for calls that block, slices
// for memory, and no allocation per message on the data path.
//
// A program imports this package, softib/verbs/attach for its Device, and
// softib/proto/ib for the types of LIDs, GIDs and the like:
//
//	dev, err := attach.Open(attach.Options{Host: "h1"})
//	defer dev.Close()
//	ctx := verbs.Open(dev)
//	pd, err := ctx.AllocPD()
//	mr, err := pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite)
//	cq, err := ctx.CreateCQ(128)
//	qp, err := pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Caps: verbs.DefaultCaps})
//	self, err := qp.Info(1, 0)                   // tell it to the peer, get the peer's
//	err = qp.Connect(self, peer, verbs.DefaultConnect)
//	err = qp.PostRecv(&verbs.RecvWR{SGList: mr.SGEs(0, 64)})
//	err = qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, SGList: mr.SGEs(64, 8), Flags: verbs.SendSignaled})
//	n, err := cq.Wait(ctx, wcs)                  // or cq.Poll(wcs), which does not sleep
//
// # Connecting
//
// RC, UC and XRC: each side makes an Info, the sides exchange them by whatever
// they have (a socket, a file), and each calls Connect. A peer that is to
// write or read memory is told MR.Addr and MR.RKey likewise. UD: Ready, and
// an AH for each destination, with the peer's LID, queue pair number and Q_Key.
// Multicast: attach.Device.JoinMulticast makes the port a member of a group,
// QP.AttachMcast the queue pair. What Connect and Ready do not set, Modify does.
//
// # Completions
//
// A send request makes a completion if it has SendSignaled or if it fails; a
// receive always makes one. CQ.Poll is for who spins, CQ.Wait for who sleeps.
// A completion whose Status is not WCSuccess tells how the request ended, and
// the queue pair is in StateErr: what follows is flushed with WCWRFlushErr.
// WC.Err is that as an error.
//
// # The end
//
// What is in use is not closed but refused with ErrBusy, so users go first: QP, SRQ,
// CQ, MW, MR, AH, PD. Context.Close does that for all that is left, and closing
// the Device takes everything with it. Calls that wait end when their context
// does, or with ErrClosed.
//
// The objects may be used by many goroutines at once. The package holds no
// engine and no thread of its own: everything goes through the Device.
package verbs
