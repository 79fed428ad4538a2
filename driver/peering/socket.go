package peering

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"softib/internal/mmsg"
	"softib/node/tunnel"
)

// socket is the one that all peers' datagrams go through.
type socket struct {
	f    *os.File
	raw  syscall.RawConn
	cuts bool
	last atomic.Pointer[error] // of sending
}

func openSocket(at netip.AddrPort) (*socket, error) {
	fd, err := bindSocket(at)
	if err != nil {
		return nil, err
	}
	s := &socket{f: os.NewFile(uintptr(fd), "udp"), cuts: mmsg.Cuts(fd)}
	s.raw, err = s.f.SyscallConn()
	return s, err
}

// bindSocket makes a socket at an address.
func bindSocket(at netip.AddrPort) (int, error) {
	fd, err := mmsg.Open(false)
	if err != nil {
		return -1, err
	}
	name := &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	zone, err := mmsg.Zone(at.Addr())
	if err == nil {
		name.ZoneId = zone
		err = unix.Bind(fd, name)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Socket makes a socket for datagrams of somebody else at the machine's address, on a port of the kernel's choice, and
// says which, and how long they may be.
func (m *Machine) Socket() (fd int, port uint16, mtu int, err error) {
	if fd, err = bindSocket(netip.AddrPortFrom(m.Addr().Addr(), 0)); err != nil {
		return -1, 0, 0, fmt.Errorf("peering: %w", err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return -1, 0, 0, errors.Join(err, unix.Close(fd))
	}
	return fd, uint16(at.(*unix.SockaddrInet6).Port), m.cfg.MTU, nil
}

func (s *socket) close() { s.f.Close() }

// lastError is what the kernel said of the last datagrams that it refused to send, if it did.
func (s *socket) lastError() error {
	if e := s.last.Load(); e != nil {
		return *e
	}
	return nil
}

// answerBytes is how much of what has come is acknowledged before more of it is looked at.
const answerBytes = 256 << 10

// outgoing is what goes to one peer.
type outgoing struct {
	*mmsg.Batch
	err  error
	call func(fd uintptr) bool
}

func newOutgoing(to netip.AddrPort, mtu int, cuts bool) (*outgoing, error) {
	b, err := mmsg.NewBatch(to, mtu, cuts)
	if err != nil {
		return nil, err
	}
	o := &outgoing{Batch: b}
	o.call = func(fd uintptr) bool {
		o.err = o.Send(int(fd))
		return !errors.Is(o.err, unix.EAGAIN)
	}
	return o, nil
}

// send sends what was filled. What the kernel refuses is lost, as on the way.
func (s *socket) send(o *outgoing) {
	for o.Unsent() {
		if err := s.raw.Write(o.call); err != nil {
			return // closed
		}
		if o.err != nil {
			err := o.err
			s.last.Store(&err)
			o.Skip(err)
		}
	}
}

// read hands datagrams to their sessions until the socket is closed.
func (m *Machine) read() {
	b := new(mmsg.Inbox)
	var failed error
	call := func(fd uintptr) bool {
		failed = b.Receive(int(fd))
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
		for i := range b.Len() {
			data, each := b.At(i)
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
