package netif

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"softib/node/ipoib"
	"softib/proto/ib"
	"softib/verbs"
)

// What the sender has: requests, headers of segments, one for each request, and buffers for packets of the host.
const (
	sendDepth   = 2048
	sendBuffers = 128

	// bufferSize is a packet of IP as long as any, with what is in front of it.
	bufferSize = vnetSize + 65536 + 64
	headSize   = 128
	// batchMax is how many requests are posted at once.
	batchMax = 64
)

// dest is where datagrams go.
type dest struct {
	ah      *verbs.AH
	qpn     ib.QPN
	qkey    ib.QKey
	mtu     int // of datagrams
	retired bool

	// conn is the connection, up or not; nil where there is to be none. connect begins to make it, once.
	conn    *conn
	connect func(context.Context)
	asked   bool
	// broken is closed when the connection carries nothing any more, ended when it is not used any more.
	broken, ended chan struct{}
}

// sender posts packets to a queue pair. Datagrams complete in the order in which they were posted, so that requests,
// and the headers of segments with them, are a ring.
type sender struct {
	cq      *verbs.CQ
	buffers *verbs.MR
	heads   *verbs.MR

	mu     sync.Mutex // guards what follows; held while there is no room
	qp     *verbs.QP
	free   []int
	posted uint64 // requests so far
	done   uint64 // of them complete
	wcs    []verbs.WC
	wrs    []verbs.SendWR
	sges   [][2]verbs.SGE
	old    []oldDest
	conns  map[ib.QPN]*dest // by our queue pair
}

// oldDest is one that is not used for what is posted after a number of requests.
type oldDest struct {
	*dest
	after uint64
}

func newSender(ctx *verbs.Context, pd *verbs.PD) (s *sender, err error) {
	s = &sender{wcs: make([]verbs.WC, 64), wrs: make([]verbs.SendWR, batchMax), sges: make([][2]verbs.SGE, batchMax),
		conns: map[ib.QPN]*dest{}}
	if s.cq, err = ctx.CreateCQ(sendDepth); err != nil {
		return nil, err
	}
	if s.buffers, err = pd.RegMR(make([]byte, sendBuffers*bufferSize), 0); err != nil {
		return nil, err
	}
	if s.heads, err = pd.RegMR(make([]byte, sendDepth*headSize), 0); err != nil {
		return nil, err
	}
	for i := range sendBuffers {
		s.free = append(s.free, i)
	}
	return s, nil
}

// WRIDs: the number of the request, and the buffer that is free when it is complete.
const (
	noBuffer   = 0xFFFF
	bufferBits = 16
	// byConn is set in those of connections, which are no part of the ring.
	byConn = 1 << 63
)

// buffer waits for a free buffer.
func (s *sender) buffer(ctx context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reclaim()
	for len(s.free) == 0 {
		if err := s.await(ctx); err != nil {
			return 0, err
		}
	}
	b := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return b, nil
}

// isIdle reports whether all that was sent is complete. Packets that wait for a connection are in those of all.
func (s *sender) isIdle(all []*dest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reclaim()
	for _, d := range all {
		if c := d.conn; c != nil && (c.flight > 0 || len(c.held) > 0 || c.moving) {
			return false
		}
	}
	return s.done == s.posted
}

// release gives a buffer back that was not sent.
func (s *sender) release(b int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, b)
}

// room is a buffer's memory.
func (s *sender) room(b int) []byte {
	return s.buffers.Bytes()[b*bufferSize:][: vnetSize+65536 : bufferSize]
}

// reclaim takes completions. The lock is held.
func (s *sender) reclaim() {
	for {
		n := s.cq.Poll(s.wcs)
		s.take(s.wcs[:n])
		if n < len(s.wcs) {
			return
		}
	}
}

// await waits for a completion. The lock is held.
func (s *sender) await(ctx context.Context) error {
	n, err := s.cq.Wait(ctx, s.wcs)
	s.take(s.wcs[:n])
	return err
}

func (s *sender) take(wcs []verbs.WC) {
	for i := range wcs {
		if wcs[i].WRID&byConn != 0 {
			s.carried(&wcs[i])
			continue
		}
		s.done = wcs[i].WRID >> bufferBits
		if b := wcs[i].WRID & (1<<bufferBits - 1); b != noBuffer {
			s.free = append(s.free, int(b))
		}
	}
	for len(s.old) > 0 && s.old[0].after <= s.done {
		_ = s.old[0].ah.Close()
		s.old = s.old[1:]
	}
}

// retire ends the use of a destination.
func (s *sender) retire(d *dest) {
	// The engine's lock is held, and whoever has this one may wait for room: not here.
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		d.retired = true
		if d.conn != nil {
			s.hangUp(d)
			close(d.ended)
		}
		s.old = append(s.old, oldDest{d, s.posted})
		s.reclaim()
	}()
}

// packet sends a packet that is in a buffer, with room for a header in front, and takes the buffer over.
func (s *sender) packet(ctx context.Context, b int, to *dest, proto ipoib.Protocol, data []byte,
	o *ipoib.Offload) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to.retired {
		s.free = append(s.free, b)
		return nil
	}
	if to.conn != nil {
		if sent, err := s.byConnection(ctx, b, to, proto, data, o); sent || err != nil {
			return err
		}
	}
	if o.Kind == ipoib.Whole {
		if err := ipoib.Complete(data, o); err != nil || len(data) > to.mtu {
			s.free = append(s.free, b)
			return nil // what makes no sense is lost
		}
		at := b*bufferSize + vnetSize - ipoib.HeaderSize
		ipoib.AppendHeader(s.buffers.Bytes()[:at], proto)
		s.sges[0] = [2]verbs.SGE{s.buffers.SGE(at, ipoib.HeaderSize+len(data))}
		s.wrs[0] = verbs.SendWR{SGList: s.sges[0][:1]}
		return s.post(ctx, to, 1, b)
	}
	var cut ipoib.Splitter
	if err := cut.Reset(data, o); err != nil {
		s.free = append(s.free, b)
		return nil
	}
	base := b*bufferSize + vnetSize
	at := 0 // of the payload in the packet
	n := 0
	for {
		slot := int((s.posted+uint64(n))%sendDepth) * headSize
		head := s.heads.Bytes()[slot:][:headSize]
		size, payload, ok := cut.Next(head[ipoib.HeaderSize:])
		if !ok {
			break
		}
		if at == 0 {
			at = size
		}
		ipoib.AppendHeader(head[:0], proto)
		s.sges[n] = [2]verbs.SGE{s.heads.SGE(slot, ipoib.HeaderSize+size), s.buffers.SGE(base+at, len(payload))}
		s.wrs[n] = verbs.SendWR{SGList: s.sges[n][:2]}
		at += len(payload)
		if n++; n == batchMax && at < len(data) {
			if err := s.post(ctx, to, n, noBuffer); err != nil {
				return err
			}
			n = 0
		}
		if n == 0 || s.posted+uint64(n)-s.done < sendDepth {
			continue
		}
		if err := s.await(ctx); err != nil { // the next header is in use
			return err
		}
	}
	return s.post(ctx, to, n, b)
}

// post posts the first n requests, the last of which frees a buffer when it is complete.
func (s *sender) post(ctx context.Context, to *dest, n, buffer int) error {
	for i := range n {
		w := &s.wrs[i]
		w.Opcode, w.AH, w.RemoteQPN, w.RemoteQKey = verbs.WRSend, to.ah, to.qpn, to.qkey
	}
	s.posted += uint64(n)
	last := &s.wrs[n-1]
	last.Flags, last.WRID = verbs.SendSignaled, s.posted<<bufferBits|uint64(buffer)
	for s.posted-s.done > sendDepth {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	if took, err := s.qp.PostSends(s.wrs[:n]); err != nil {
		return fmt.Errorf("sending packet %d of %d: %w", took, n, err)
	}
	return nil
}

// byConnection sends a packet by the connection of its destination, or has it wait for that. It reports false if the
// packet may go as a datagram, which takes no longer than a connection that has yet to be made. The lock is held.
func (s *sender) byConnection(ctx context.Context, b int, to *dest, proto ipoib.Protocol, data []byte,
	o *ipoib.Offload) (bool, error) {
	c := to.conn
	if !c.isUp {
		if !to.asked {
			to.asked = true
			to.connect(ctx)
		}
		if o.Kind == ipoib.Whole && len(data) <= to.mtu {
			return false, nil
		}
		if len(c.held) < heldMax {
			c.held = append(c.held, queuedPacket{to, proto, slices.Clone(data), *o})
		}
		s.free = append(s.free, b)
		return true, nil
	}
	// One message has room for all that the host leaves to be cut, which IP can say the length of.
	whole := *o
	whole.Kind = ipoib.Whole
	if err := ipoib.Complete(data, &whole); err != nil || ipoib.HeaderSize+len(data) > c.mtu || !s.flies(ctx, c) {
		s.free = append(s.free, b)
		return true, ctx.Err()
	}
	at := b*bufferSize + vnetSize - ipoib.HeaderSize
	ipoib.AppendHeader(s.buffers.Bytes()[:at], proto)
	s.sges[0] = [2]verbs.SGE{s.buffers.SGE(at, ipoib.HeaderSize+len(data))}
	s.wrs[0] = verbs.SendWR{WRID: byConn | uint64(b), Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: s.sges[0][:1]}
	if err := c.qp.PostSend(&s.wrs[0]); err != nil {
		s.free = append(s.free, b)
		s.hangUp(to)
		return true, nil
	}
	c.flight++
	return true, nil
}

// flies waits until a connection takes another message, but not for ever: others have to send too. The lock is held.
func (s *sender) flies(ctx context.Context, c *conn) bool {
	if c.flight < connFlight {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, flightPatience)
	defer cancel()
	for c.flight >= connFlight && s.await(ctx) == nil {
	}
	return c.isUp && c.flight < connFlight
}

// carried takes the completion of a message. The lock is held.
func (s *sender) carried(wc *verbs.WC) {
	s.free = append(s.free, int(wc.WRID&(1<<bufferBits-1)))
	d := s.conns[wc.QPN]
	if d == nil {
		return
	}
	d.conn.flight--
	if wc.Status != verbs.WCSuccess {
		s.hangUp(d)
	}
	s.bury(d)
}

// connected has packets go by a connection, first those that have waited. What it returns is closed when the connection
// carries nothing any more.
func (s *sender) connected(ctx context.Context, d *dest, qp *verbs.QP, mtu int) <-chan struct{} {
	s.mu.Lock()
	c, broken := d.conn, d.broken
	c.qp, c.mtu = qp, mtu
	s.conns[qp.Num()] = d
	if d.retired {
		s.hangUp(d)
		s.mu.Unlock()
		return broken
	}
	c.isUp = true
	held := c.held
	c.held, c.moving = nil, true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		c.moving = false
		s.mu.Unlock()
	}()
	for _, p := range held {
		b, err := s.buffer(ctx)
		if err != nil {
			break
		}
		data := s.room(b)[vnetSize:]
		data = data[:copy(data, p.data)]
		if s.packet(ctx, b, d, p.proto, data, &p.offload) != nil {
			break
		}
	}
	return broken
}

// disconnect ends a destination's connection, or the wait for one. Whoever sends there next makes another.
func (s *sender) disconnect(d *dest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUp(d)
	s.reclaim()
}

// hangUp ends a connection: what is on its way is flushed. The lock is held.
func (s *sender) hangUp(d *dest) {
	c := d.conn
	c.isUp, c.held = false, nil
	if c.qp == nil || c.dying {
		return
	}
	c.dying = true
	_ = c.qp.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.MaskState)
	if !d.retired {
		close(d.broken)
	}
	s.bury(d)
}

// bury closes a queue pair on which nothing is any more.
func (s *sender) bury(d *dest) {
	c := d.conn
	if !c.dying || c.flight > 0 {
		return
	}
	delete(s.conns, c.qp.Num())
	_ = c.qp.Close()
	d.conn, d.asked = &conn{}, false
	if !d.retired {
		d.broken = make(chan struct{})
	}
}
