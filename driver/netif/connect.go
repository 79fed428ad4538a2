package netif

import (
	"context"
	"time"

	"softib/internal/patience"
	"softib/node/ipoib"
	"softib/proto/ib"
	"softib/verbs"
	"softib/verbs/attach"
)

// Connected mode (RFC 4755): packets for a neighbour go by a connection that their sender has made, and which it alone
// sends on, as Linux does it. Packets of any length that IP has are one message.

const (
	// messageMax is the longest message: a packet as long as IP can say, and its header.
	messageMax = 65535 + ipoib.HeaderSize
	// connRecvs is how many messages have room, of all neighbours together. Who finds none waits: nothing is lost.
	connRecvs    = 128
	connRecvSize = 65600
	// connFlight is how many messages may be on their way to one neighbour, out of the buffers that all share.
	connFlight = sendBuffers / 2
	// connPatience is how long the connection manager may take, flightPatience how long a full connection is waited
	// for before packets are lost.
	connPatience   = 10 * time.Second
	flightPatience = 20 * time.Millisecond
	// connsMax bounds the connections that others have made.
	connsMax = 1024
	// heldMax is how many packets wait for a connection.
	heldMax = 32
)

// conn is a connection to a neighbour. The sender's lock guards it.
type conn struct {
	qp     *verbs.QP
	mtu    int // of a message, as the neighbour says
	isUp   bool
	dying  bool // is closed when nothing is on its way any more
	flight int
	held   []queuedPacket
	moving bool // those that were held are being sent
}

// caller is somebody who has made a connection to us.
type caller struct {
	qp  *verbs.QP
	ud  ib.QPN
	gid ib.GID
}

// listener takes connections.
type listener struct {
	srq   *verbs.SRQ
	mr    *verbs.MR
	wrs   []verbs.RecvWR
	sges  []verbs.SGE
	from  map[ib.QPN]*caller // guarded by the interface's lock
	count int
}

func newListener(pd *verbs.PD) (l *listener, err error) {
	l = &listener{wrs: make([]verbs.RecvWR, connRecvs), sges: make([]verbs.SGE, connRecvs),
		from: map[ib.QPN]*caller{}}
	if l.srq, err = pd.CreateSRQ(verbs.SRQInit{MaxWR: connRecvs, MaxSGE: 1}); err != nil {
		return nil, err
	}
	if l.mr, err = pd.RegMR(make([]byte, connRecvs*connRecvSize), verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	for i := range l.wrs {
		l.sges[i] = l.mr.SGE(i*connRecvSize, connRecvSize)
		l.wrs[i] = verbs.RecvWR{WRID: uint64(i), SGList: l.sges[i : i+1]}
		if err := l.srq.PostRecv(&l.wrs[i]); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// newRC makes a queue pair for a connection, whichever side asks for it.
func (n *Interface) newRC(sends int) (*verbs.QP, error) {
	return n.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: n.send.cq, RecvCQ: n.recv.cq, SRQ: n.listener.srq,
		IPoIB: true, Caps: verbs.Caps{MaxSendWR: sends, MaxSendSGE: 1}})
}

func (n *Interface) greeting() []byte {
	return ipoib.Greeting{QPN: n.qp.Num(), MTU: messageMax}.Append(nil)
}

// listen takes requests of neighbours.
func (n *Interface) listen(ctx context.Context) error {
	return n.dev.Listen(ctx, n.cfg.Port, ipoib.ServiceID(n.qp.Num()), func(r *attach.Request) {
		g, err := ipoib.ParseGreeting(r.Private)
		n.mu.Lock()
		full := n.listener.count >= connsMax
		if !full {
			n.listener.count++
		}
		n.mu.Unlock()
		if err != nil || full || ctx.Err() != nil {
			r.Reject()
			return
		}
		done := func() {
			n.mu.Lock()
			n.listener.count--
			n.mu.Unlock()
		}
		qp, err := n.newRC(1)
		if err != nil {
			r.Reject()
			done()
			return
		}
		n.mu.Lock()
		n.listener.from[qp.Num()] = &caller{qp: qp, ud: g.QPN, gid: r.GID}
		n.mu.Unlock()
		c, err := r.Accept(qp, true, n.greeting())
		n.work.Go(func() {
			if err == nil {
				select {
				case <-c.Gone():
				case <-ctx.Done():
				}
			}
			n.mu.Lock()
			delete(n.listener.from, qp.Num())
			n.mu.Unlock()
			_ = qp.Close()
			done()
		})
	})
}

// bytes is what a completion has brought, and who has sent it. The interface's lock is held.
func (l *listener) bytes(wc *verbs.WC) ([]byte, *caller) {
	return l.mr.Bytes()[int(wc.WRID)*connRecvSize:][:wc.ByteLen], l.from[wc.QPN]
}

// connect makes the connection that a way asks for, and sends what waits for it.
func (n *Interface) connect(ctx context.Context, w *ipoib.Way, d *dest) {
	qp, err := n.newRC(connFlight)
	if err != nil {
		n.refused(ctx, w, d)
		return
	}
	asking, cancel := patience.Context(ctx, connPatience)
	defer cancel()
	c, private, err := n.dev.Connect(asking, n.cfg.Port, w.Path, ipoib.ServiceID(w.QPN), qp, true, n.greeting())
	if err != nil {
		_ = qp.Close()
		n.refused(ctx, w, d)
		return
	}
	mtu := messageMax
	if g, err := ipoib.ParseGreeting(private); err == nil {
		mtu = min(mtu, int(g.MTU))
	}
	broken := n.send.connected(ctx, d, qp, mtu)
	n.work.Go(func() {
		select {
		case <-c.Gone():
		case <-broken:
		case <-d.ended:
		case <-ctx.Done():
		}
		c.Close()
		n.send.disconnect(d)
		n.with(ctx, func(now ib.Time) { n.engine.HandleRefused(now, w, true) })
	})
}

// refused has packets go as datagrams.
func (n *Interface) refused(ctx context.Context, w *ipoib.Way, d *dest) {
	n.send.disconnect(d)
	n.with(ctx, func(now ib.Time) { n.engine.HandleRefused(now, w, false) })
}
