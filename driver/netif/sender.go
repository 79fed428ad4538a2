package netif

import (
	"context"
	"fmt"
	"sync"

	"softib/node/ipoib"
	"softib/proto/ib"
	"softib/verbs"
)

// What the sender has: requests, headers of segments, one for each request, and buffers for packets of the host.
const (
	sendDepth   = 2048
	sendBuffers = 64

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
	mtu     int
	retired bool
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
}

// oldDest is one that is not used for what is posted after a number of requests.
type oldDest struct {
	*dest
	after uint64
}

func newSender(ctx *verbs.Context, pd *verbs.PD) (s *sender, err error) {
	s = &sender{wcs: make([]verbs.WC, 64), wrs: make([]verbs.SendWR, batchMax), sges: make([][2]verbs.SGE, batchMax)}
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
