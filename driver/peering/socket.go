package peering

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/internal/mmsg"
	"softib/node/tunnel"
	"softib/proto/ib"
)

// socket is the one that all peers' datagrams go through.
type socket struct {
	f    *os.File
	raw  syscall.RawConn
	cuts bool
	last atomic.Pointer[error] // of sending
}

func openSocket(at netip.AddrPort) (*socket, error) {
	fd, err := mmsg.Open(false)
	if err != nil {
		return nil, err
	}
	name := &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	zone, err := zoneOf(at.Addr())
	if err == nil {
		name.ZoneId = zone
		err = unix.Bind(fd, name)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s := &socket{f: os.NewFile(uintptr(fd), "udp"), cuts: mmsg.Cuts(fd)}
	s.raw, err = s.f.SyscallConn()
	return s, err
}

func zoneOf(a netip.Addr) (uint32, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("zone %s: %w", a.Zone(), err)
	}
	return uint32(i.Index), nil
}

func (s *socket) close() { s.f.Close() }

// lastError is what the kernel said of the last datagrams that it refused to send, if it did.
func (s *socket) lastError() error {
	if e := s.last.Load(); e != nil {
		return *e
	}
	return nil
}

// Bounds of what one call sends and receives. The kernel cuts a message into 64 datagrams at most, of 64 KiB together.
const (
	sendMessages = 16
	sendBytes    = 256 << 10
	cutBytes     = 65000
	cutMax       = 64

	receiveMessages = 16
	receiveBytes    = 1 << 16
	answerBytes     = 256 << 10 // that have come are acknowledged before more of them are looked at
)

// outgoing is what sendmmsg wants: messages of datagrams that lie side by side, all of one length but for the last.
type outgoing struct {
	name  unix.RawSockaddrInet6
	mtu   int
	cuts  bool
	buf   []byte
	msgs  [sendMessages]mmsg.Message
	iovs  [sendMessages]unix.Iovec
	ctrl  [sendMessages]mmsg.Control
	count int

	sent int
	err  error
	call func(fd uintptr) bool
}

func newOutgoing(to netip.AddrPort, mtu int, cuts bool) (*outgoing, error) {
	zone, err := zoneOf(to.Addr())
	if err != nil {
		return nil, err
	}
	o := &outgoing{name: mmsg.Name(to, zone), mtu: mtu, cuts: cuts, buf: make([]byte, max(sendBytes, 2*mtu))}
	o.call = func(fd uintptr) bool {
		var n int
		n, o.err = mmsg.Send(int(fd), o.msgs[o.sent:o.count])
		o.sent += n
		return !errors.Is(o.err, unix.EAGAIN)
	}
	return o, nil
}

// fill takes datagrams from a session.
func (o *outgoing) fill(s *tunnel.Session, now ib.Time) {
	o.count, o.sent = 0, 0
	at := 0
	for more := true; more && o.count < sendMessages && at+o.mtu <= len(o.buf); {
		begin, n, ok := at, 0, false
		for k := 0; k < cutMax && at+o.mtu <= len(o.buf) && at-begin+o.mtu <= cutBytes || k == 0; k++ {
			if n, ok = s.PollDatagram(now, o.buf[at:at+o.mtu]); !ok {
				more = false
				break
			}
			if at += n; n < o.mtu || !o.cuts {
				break
			}
		}
		if at == begin {
			return
		}
		i := o.count
		o.count++
		o.iovs[i] = unix.Iovec{Base: &o.buf[begin], Len: uint64(at - begin)}
		m := &o.msgs[i]
		m.Name, m.Namelen = (*byte)(unsafe.Pointer(&o.name)), unix.SizeofSockaddrInet6
		m.Iov, m.Iovlen = &o.iovs[i], 1
		c := 0
		if at-begin > o.mtu {
			o.ctrl[i].Cut(&c, o.mtu)
		}
		m.Set(&o.ctrl[i], c)
	}
}

// send sends what was filled. What the kernel refuses is lost, as on the way.
func (s *socket) send(o *outgoing) {
	for o.sent < o.count {
		if err := s.raw.Write(o.call); err != nil {
			return // closed
		}
		if o.err != nil {
			err := o.err
			s.last.Store(&err)
			o.sent++
			if errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) {
				o.cuts = false // an interface that cannot
			}
		}
	}
}

// read hands datagrams to their sessions until the socket is closed.
func (m *Machine) read() {
	type incoming struct {
		msgs [receiveMessages]mmsg.Message
		iovs [receiveMessages]unix.Iovec
		ctrl [receiveMessages]mmsg.Control
		data [receiveMessages][receiveBytes]byte
	}
	b := new(incoming)
	for i := range b.msgs {
		b.iovs[i] = unix.Iovec{Base: &b.data[i][0], Len: receiveBytes}
		b.msgs[i].Iov, b.msgs[i].Iovlen = &b.iovs[i], 1
	}
	var n int
	var failed error
	call := func(fd uintptr) bool {
		for i := range b.msgs {
			b.msgs[i].Set(&b.ctrl[i], len(b.ctrl[i]))
		}
		n, failed = mmsg.Receive(int(fd), b.msgs[:])
		return !errors.Is(failed, unix.EAGAIN)
	}
	var touched []*Peer
	flush := func() {
		for _, p := range touched {
			p.Flush()
		}
		clear(touched)
		touched = touched[:0]
	}
	for {
		if err := m.udp.raw.Read(call); err != nil || m.stopped.Err() != nil {
			return
		}
		if failed != nil {
			continue // an error that the network has told of a datagram that was sent
		}
		sessions := *m.sessions.Load()
		taken := 0
		for i := range n {
			data := b.data[i][:min(b.msgs[i].N, receiveBytes)]
			each := b.ctrl[i].Read(b.msgs[i].Controllen).Each
			if each <= 0 {
				each = max(1, len(data))
			}
			if taken += len(data); taken > answerBytes {
				flush()
				taken = 0
			}
			for len(data) > 0 {
				p, size := m.run(sessions, data, each)
				if p != nil {
					p.handle(data[:size], each)
					if len(touched) == 0 || touched[len(touched)-1] != p {
						touched = append(touched, p)
					}
				}
				data = data[size:]
			}
		}
		flush()
	}
}

// run is whose the first datagrams of a message are, and how many bytes they have: the kernel puts together what comes
// from one port, be it for one session or for several. Those of no session are counted.
func (m *Machine) run(sessions map[uint32]*Peer, data []byte, each int) (p *Peer, size int) {
	for size < len(data) {
		index, ok := tunnel.Index(data[size:min(len(data), size+each)])
		q := sessions[index]
		if !ok {
			q = nil
		}
		if size > 0 && q != p {
			return p, size
		}
		if p = q; p == nil {
			m.strays.Add(1)
		}
		size = min(len(data), size+each)
	}
	return p, size
}
