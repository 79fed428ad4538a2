package roce

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Stats counts what a link did.
type Stats struct {
	Sent, Received atomic.Uint64 // datagrams
	Calls          atomic.Uint64 // that sent them
	Unsent         atomic.Uint64 // datagrams that the kernel did not take
	Malformed      atomic.Uint64 // received ones that are no RoCEv2, or were damaged
	Overrun        atomic.Uint64 // that came while the program took none in
}

// link is the other end of an endpoint's rings, and the sockets.
type link struct {
	socks []*socket
	page  *endpoint.Page
	out   *endpoint.In // what the endpoint sends
	tx    *batch
	from  [batchMax]*socket
	pkt   wire.Packet

	mu sync.Mutex // one socket at a time hands in
	in *endpoint.Out

	ends struct{ out, in *endpoint.Local } // the rings' memory
	Stats
	done sync.WaitGroup
}

// newLink makes the rings between an endpoint, which is woken by a page, and the sockets.
func newLink(socks []*socket, page *endpoint.Page) (l *link, err error) {
	l = &link{socks: socks, page: endpoint.NewLocalPage(), tx: newBatch()}
	if l.ends.out, err = endpoint.NewLocalRing(); err != nil {
		return nil, err
	}
	if l.ends.in, err = endpoint.NewLocalRing(); err != nil {
		return nil, err
	}
	if l.out, err = endpoint.NewLocalIn(l.ends.out, page, 0, 1); err != nil {
		return nil, err
	}
	l.in, err = endpoint.NewLocalOut(l.ends.in, page, 0)
	return l, err
}

// start receives until close.
func (l *link) start() {
	for _, s := range l.socks {
		l.done.Go(func() { l.receive(s) })
	}
}

func (l *link) close() {
	for _, s := range l.socks {
		_ = s.file.Close()
	}
	l.done.Wait()
}

// Flush sends what the endpoint has put into its ring.
func (l *link) Flush() bool {
	n, any := 0, false
	for l.out.Poll(&l.pkt) {
		any = true
		if s := l.socketOf(l.pkt.GRH.SGID); s != nil && l.pkt.LRH.LNH == wire.LNHGlobal && l.pkt.Packets() == 1 {
			d := l.pkt.AppendRoCE(l.tx.data[n][:0], wire.RoCEPort, 0)
			l.tx.put(n, len(d), s, l.pkt.GRH.DGID, l.pkt.GRH.TClass)
			l.from[n] = s
			n++
		} else {
			l.Unsent.Add(1)
		}
		l.out.Done()
		if n == batchMax {
			l.send(n)
			n = 0
		}
	}
	l.send(n)
	return any
}

func (l *link) socketOf(g ib.GID) *socket {
	for _, s := range l.socks {
		if s.gid == g {
			return s
		}
	}
	return nil
}

// sendPatience is how long a full socket is waited for; then its datagrams are lost, as on a full link.
const sendPatience = 5 * time.Millisecond

// send sends the first n datagrams of the batch: as many at once as have one source.
func (l *link) send(n int) {
	for first := 0; first < n; {
		s, last := l.from[first], first+1
		for last < n && l.from[last] == s {
			last++
		}
		sent, err := mmsg(unix.SYS_SENDMMSG, s.fd, l.tx.msgs[first:last])
		l.Calls.Add(1)
		l.Sent.Add(uint64(sent))
		first += sent
		switch {
		case err == nil:
		case (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS)) && s.awaitRoom():
		default:
			l.Unsent.Add(1) // the first of them; what is wrong with it need not be with the others
			first++
		}
	}
}

// awaitRoom waits until a socket takes something.
func (s *socket) awaitRoom() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(sendPatience/time.Millisecond))
	return err == nil && n == 1
}

// receive hands in what comes to a socket until that is closed.
func (l *link) receive(s *socket) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	b := newBatch()
	var p wire.Packet
	for {
		var n int
		var err error
		if raw.Read(func(uintptr) bool {
			n, err = s.receive(b)
			return !errors.Is(err, unix.EAGAIN)
		}) != nil {
			return
		}
		// An error is one of something that was sent, and sending it again is the queue pairs' business.
		for i := range n {
			d, from := b.datagram(i, s)
			if p.ParseRoCE(d, from) != nil {
				l.Malformed.Add(1)
				continue
			}
			l.Received.Add(1)
			hca.FromNetwork(&p)
			l.mu.Lock()
			l.put(&p)
			l.mu.Unlock()
		}
	}
}

// A program that takes nothing in is waited for in steps, for putPatience in all; the kernel keeps what comes then.
const (
	putStep     = 50 * time.Microsecond
	putPatience = 100 * time.Millisecond
)

func (l *link) put(p *wire.Packet) {
	for waited := time.Duration(0); !l.in.TryPut(p); waited += putStep {
		if waited >= putPatience || l.in.Gone() {
			l.Overrun.Add(1)
			return
		}
		time.Sleep(putStep)
	}
}
