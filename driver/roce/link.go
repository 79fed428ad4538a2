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
}

// link is the other end of an endpoint's rings, and the sockets. But for its watchers it is used with the endpoint's
// lock held.
type link struct {
	socks []*socket
	page  *endpoint.Page // the link's own, at which nobody sleeps
	host  *endpoint.Page // the endpoint's
	out   *endpoint.In   // what the endpoint sends
	tx    *outgoing
	pkt   wire.Packet

	in *endpoint.Out // what the endpoint receives
	rx *incoming
	// Of that, by which socket it came, how many messages it has, how many of them were handed in, and where in the
	// next one to go on.
	source       *socket
	n, taken, at int
	// hot is the socket that something came by last; the others have their turn now and then.
	hot, turn int

	ends struct{ out, in *endpoint.Local } // the rings' memory
	Stats
	watch []chan struct{} // a socket's watcher is told here that nobody looks
	done  sync.WaitGroup
}

// newLink makes the rings between an endpoint, which is woken by a page, and the sockets.
func newLink(socks []*socket, page *endpoint.Page) (l *link, err error) {
	l = &link{socks: socks, page: endpoint.NewLocalPage(), host: page, tx: new(outgoing), rx: new(incoming)}
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

// start watches the sockets until close.
func (l *link) start() {
	for _, s := range l.socks {
		c := make(chan struct{}, 1)
		c <- struct{}{} // nobody looks yet
		l.watch = append(l.watch, c)
		l.done.Go(func() { l.attend(s, c) })
	}
	l.host.OnRest(func() {
		for _, c := range l.watch {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	})
}

// close ends it. Nobody uses the endpoint any more.
func (l *link) close() {
	for i, s := range l.socks {
		_ = s.file.Close()
		close(l.watch[i])
	}
	l.done.Wait()
}

// attend wakes whoever is to take in what comes to a socket, while nobody looks there. While somebody does it sleeps:
// to be woken for each datagram would take the core from those who look.
func (l *link) attend(s *socket, rests <-chan struct{}) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	for range rests {
		if raw.Read(func(uintptr) bool { return s.has() }) != nil {
			return
		}
		l.host.Wake()
	}
}

// has reports whether something has come.
func (s *socket) has() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(fds, 0)
	return n > 0
}

// Flush sends what the endpoint has put into its ring.
func (l *link) Flush() bool {
	any := false
	for p := &l.pkt; l.out.Poll(p); l.out.Done() {
		any = true
		s := l.socketOf(p.GRH.SGID)
		if s == nil || p.LRH.LNH != wire.LNHGlobal || p.Packets() > 1 {
			l.Unsent.Add(1)
			continue
		}
		size := p.RoCESize()
		b, id := l.tx.buffer(s, p.GRH.DGID, p.GRH.TClass, size)
		p.AppendRoCE(b, wire.RoCEPort, id)
		l.tx.add(s, p.GRH.DGID, p.GRH.TClass, size)
		if l.tx.n == sendMax {
			l.send()
		}
	}
	l.send()
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

// send sends what was gathered: as many messages at once as have one source.
func (l *link) send() {
	o := l.tx
	o.seal()
	for first := 0; first < o.count; {
		s, last := o.from[first], first+1
		for last < o.count && o.from[last] == s {
			last++
		}
		sent, err := mmsg(unix.SYS_SENDMMSG, s.fd, o.msgs[first:last])
		l.Calls.Add(1)
		for range sent {
			l.Sent.Add(o.msgs[first].Iovlen)
			first++
		}
		switch {
		case err == nil:
		case (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS)) && s.awaitRoom():
		default:
			// The first of them; what is wrong with it need not be with the others. Where an interface cannot send what
			// is to be cut, queue pairs send it again, one by one.
			if o.msgs[first].Iovlen > 1 {
				s.cuts = false
			}
			l.Unsent.Add(o.msgs[first].Iovlen)
			first++
		}
	}
	o.n, o.count = 0, 0
}

// awaitRoom waits until a socket takes something.
func (s *socket) awaitRoom() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(sendPatience/time.Millisecond))
	return err == nil && n == 1
}

// othersEvery is how many looks at the socket that something comes by are one at another.
const othersEvery = 8

// Fetch takes in what has come, as far as the endpoint's ring has room: the kernel keeps the rest.
func (l *link) Fetch() {
	if l.taken == l.n && !l.receive() {
		return
	}
	for l.taken < l.n {
		d, from, next := l.rx.datagram(l.taken, l.at, l.source)
		if l.pkt.ParseRoCE(d, from) != nil {
			l.Malformed.Add(1)
		} else {
			hca.FromNetwork(&l.pkt)
			if !l.in.TryPut(&l.pkt) {
				return
			}
			l.Received.Add(1)
		}
		if l.at = next; next == 0 {
			l.taken++
		}
	}
}

// receive takes in what one of the sockets has.
func (l *link) receive() bool {
	at := l.hot
	if l.turn++; l.turn%othersEvery == 0 {
		at = l.turn / othersEvery % len(l.socks)
	}
	l.source, l.taken, l.n, l.at = l.socks[at], 0, 0, 0
	// An error is one of something that was sent, and sending it again is the queue pairs' business.
	if n, err := l.source.receive(l.rx); err == nil && n > 0 {
		l.hot, l.n = at, n
		return true
	}
	return false
}
