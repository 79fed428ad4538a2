package netif

import (
	"context"

	"softib/proto/ib"
	"softib/verbs"
)

// What the receiver has: room for datagrams of 2,048 bytes, each with what verbs keep for a global route header.
const (
	recvDepth = 4096
	recvBatch = 256
	grhSize   = 40
	recvSize  = 4096 + grhSize + 24
)

type receiver struct {
	cq    *verbs.CQ
	mr    *verbs.MR
	qp    *verbs.QP
	wcs   []verbs.WC
	wrs   []verbs.RecvWR
	sges  []verbs.SGE
	again []verbs.RecvWR
}

func newReceiver(ctx *verbs.Context, pd *verbs.PD) (r *receiver, err error) {
	r = &receiver{wcs: make([]verbs.WC, recvBatch), wrs: make([]verbs.RecvWR, recvDepth),
		sges: make([]verbs.SGE, recvDepth), again: make([]verbs.RecvWR, recvBatch)}
	if r.cq, err = ctx.CreateCQ(recvDepth + 2*connRecvs); err != nil {
		return nil, err
	}
	if r.mr, err = pd.RegMR(make([]byte, recvDepth*recvSize), verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	for i := range r.wrs {
		r.sges[i] = r.mr.SGE(i*recvSize, recvSize)
		r.wrs[i] = verbs.RecvWR{WRID: uint64(i), SGList: r.sges[i : i+1]}
	}
	return r, nil
}

// post posts all receives.
func (r *receiver) post() error {
	_, err := r.qp.PostRecvs(r.wrs)
	return err
}

// wait waits for datagrams.
func (r *receiver) wait(ctx context.Context) ([]verbs.WC, error) {
	n, err := r.cq.Wait(ctx, r.wcs)
	return r.wcs[:n], err
}

// bytes is what a completion has brought.
func (r *receiver) bytes(wc *verbs.WC) []byte {
	return r.mr.Bytes()[int(wc.WRID)*recvSize:][:wc.ByteLen]
}

// repost makes receives of a batch that was looked at: those of datagrams, and those of connections.
func (r *receiver) repost(batch []verbs.WC, own ib.QPN, l *listener) error {
	again := r.again[:0]
	for i := range batch {
		if batch[i].QPN == own {
			again = append(again, r.wrs[batch[i].WRID])
		} else if err := l.srq.PostRecv(&l.wrs[batch[i].WRID]); err != nil {
			return err
		}
	}
	_, err := r.qp.PostRecvs(again)
	return err
}
