package rdmacm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"softib/internal/descriptors"
	"softib/internal/packetsock"
	"softib/internal/patience"
	"softib/node/cm"
)

// helloPatience is how long a connection may take to say what it is, on an idle machine: nobody holds
// a descriptor for nothing.
const helloPatience = 10 * time.Second

// Listen makes the socket that Serve takes, for its owner only. A socket that nobody listens to any more is replaced.
func Listen(path string) (*packetsock.Listener, error) {
	l, err := packetsock.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("rdmacm: %w", err)
	}
	return l, nil
}

// Server is the fabric's side of librdmacm, and of who else joins multicast groups.
type Server struct {
	ports Ports
	cfg   config

	lastID atomic.Uint32 // of IDs and memberships, which are numbered together

	mu       sync.Mutex
	hosts    map[string]*host
	channels map[uint64]*channel
}

// config is what tests change.
type config struct {
	// responseTimeout is how long a message of connection management may stay unanswered: 4.096 µs · 2^n.
	responseTimeout uint8
	retries         uint8
}

// defaults are Linux's: more than a minute until a peer that says nothing is given up.
var defaults = config{responseTimeout: 20, retries: 15}

// New makes a server, which can be asked to join groups at once.
func New(ports Ports) *Server { return newServer(ports, defaults) }

// Serve answers the library until ctx ends, and then closes the listener and everything that programs have open.
func Serve(ctx context.Context, l *packetsock.Listener, ports Ports) error {
	return New(ports).Serve(ctx, l)
}

func newServer(ports Ports, cfg config) *Server {
	return &Server{ports: ports, cfg: cfg, hosts: map[string]*host{}, channels: map[uint64]*channel{}}
}

// Serve is the function of this name for a server that was made before. It may have several listeners.
func (s *Server) Serve(ctx context.Context, listeners ...*packetsock.Listener) error {
	defer s.end()
	var wg sync.WaitGroup
	errs := make([]error, len(listeners))
	for i, l := range listeners {
		wg.Go(func() { errs[i] = packetsock.Serve(ctx, l, channelHolds, s.greet) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rdmacm: %w", err)
	}
	return nil
}

// end closes what hosts have open, after the last connection.
func (s *Server) end() {
	s.mu.Lock()
	hosts := s.hosts
	s.hosts = nil
	s.mu.Unlock()
	for _, h := range hosts {
		h.close()
	}
}

// channelHolds are the descriptors of a channel: its two connections, and the far end of one of them.
const channelHolds = 3

// greet answers a connection's hello. A connection of commands is served here until it ends; one of events is kept by
// its channel, which has counted it.
func (s *Server) greet(c packetsock.Guest) {
	refuse := func(err error) {
		_, _ = c.Write(appendWelcome(nil, -int32(errnoOf(err)), 0, err.Error()))
	}
	if err := c.SetReadDeadline(time.Now().Add(patience.For(helloPatience))); err != nil {
		return
	}
	buf, oob := make([]byte, helloSize+1), make([]byte, syscall.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return
	}
	farEnd, err := descriptorOf(oob[:oobn])
	keepFarEnd := false
	defer func() {
		if farEnd >= 0 && !keepFarEnd {
			syscall.Close(farEnd)
		}
	}()
	if err != nil {
		return
	}
	hi, err := parseHello(buf[:n])
	switch {
	case errors.Is(err, errVersion):
		refuse(err)
		return
	case err != nil:
		return
	}
	if c.Refused != nil {
		refuse(fmt.Errorf("rdmacm: %w", c.Refused))
		return
	}
	if c.SetReadDeadline(time.Time{}) != nil {
		return
	}
	if hi.role == roleEvents {
		ch, err := s.find(hi.channel)
		if err == nil && farEnd < 0 {
			err = fmt.Errorf("rdmacm: %w: the event connection's hello brings no descriptor", errNotHello)
		}
		if err != nil {
			refuse(err)
			return
		}
		ch.host.mu.Lock()
		defer ch.host.mu.Unlock()
		if ch.events != nil || ch.ended {
			refuse(fmt.Errorf("rdmacm: channel 0x%016x: %w", ch.number, errBusy))
			return
		}
		// Before any event; a new connection has room for it.
		if _, err := c.Write(appendWelcome(nil, 0, ch.number, "")); err != nil {
			return
		}
		if ch.attach(c.UnixConn, farEnd) != nil {
			return
		}
		keepFarEnd = true
		c.Keep()
		return
	}
	if err := c.Use(hi.host); err != nil {
		refuse(fmt.Errorf("rdmacm: %w", err))
		return
	}
	ch, err := s.open(hi.host, c.UnixConn)
	if err != nil {
		refuse(err)
		return
	}
	defer s.close(ch)
	if _, err := c.Write(appendWelcome(nil, 0, ch.number, "")); err == nil {
		ch.serve()
	}
}

// serve answers a channel's commands until the program hangs up.
func (c *channel) serve() {
	buf := make([]byte, recordMax+1)
	out := make([]byte, 0, recordMax)
	for {
		n, err := c.conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		resp, err := c.host.s.command(c, buf[:n])
		status := int32(0)
		if err != nil {
			status, resp = -int32(errnoOf(err)), nil
		}
		out = native.AppendUint32(out[:0], uint32(status))
		out = native.AppendUint32(out, 0)
		if _, err := c.conn.Write(append(out, resp...)); err != nil {
			return
		}
	}
}

// open makes a channel on a host.
func (s *Server) open(name string, conn *net.UnixConn) (*channel, error) {
	name, ports, err := s.ports.View(name)
	if err != nil {
		return nil, err
	}
	h, err := s.host(name)
	if err != nil {
		return nil, err
	}
	if err := h.reopen(); err != nil {
		return nil, err
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	c := newChannel(h, ports, binary.NativeEndian.Uint64(b[:])|1, conn)
	s.mu.Lock()
	s.channels[c.number] = c
	s.mu.Unlock()
	return c, nil
}

// close ends a channel and all that is in it.
func (s *Server) close(c *channel) {
	s.mu.Lock()
	delete(s.channels, c.number)
	s.mu.Unlock()
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.host.closeChannel(c)
}

func (s *Server) find(number uint64) (*channel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[number]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("rdmacm: channel 0x%016x: %w", number, errNoChannel)
}

// host is a host that programs use or talk to; it is opened when it is first needed and stays.
func (s *Server) host(name string) (*host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts == nil {
		return nil, ErrClosed
	}
	if h := s.hosts[name]; h != nil {
		return h, nil
	}
	h, err := openHost(s, name)
	if err != nil {
		return nil, err
	}
	s.hosts[name] = h
	return h, nil
}

// newID gives out a number for an ID or a membership. It is not one that is in use: the program counts them in
// thousands, and it would take years to come around.
func (s *Server) newID() uint32 {
	for {
		if n := s.lastID.Add(1); n != 0 && n <= math.MaxInt32 {
			return n
		}
		s.lastID.Store(0)
	}
}

// descriptorOf is the descriptor that came with a hello, -1 if none did.
func descriptorOf(oob []byte) (int, error) {
	if len(oob) == 0 {
		return -1, nil
	}
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return -1, err
	}
	fd := -1
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, f := range fds {
			if fd >= 0 {
				syscall.Close(f)
				continue
			}
			fd = f
			syscall.CloseOnExec(f)
		}
	}
	return fd, nil
}

// Reasons of the server itself.
var (
	errNoChannel = errors.New("no such channel")
	errBusy      = errors.New("the channel has its event connection")
)

// errnos is what the library makes of errors that are no errno themselves; the first that matches counts.
var errnos = []struct {
	err   error
	errno syscall.Errno
}{
	{packetsock.ErrPeer, syscall.EPERM},
	{descriptors.ErrMany, syscall.EMFILE},
	{errVersion, syscall.EPROTO},
	{errNotHello, syscall.EINVAL},
	{errNotCommand, syscall.EINVAL},
	{errNoChannel, syscall.ENOENT},
	{errBusy, syscall.EBUSY},
	{cm.ErrInUse, syscall.EADDRINUSE},
	{cm.ErrParam, syscall.EINVAL},
	{cm.ErrState, syscall.EINVAL},
	{cm.ErrConn, syscall.EINVAL},
	{ErrNoHost, syscall.ENODEV},
	{ErrClosed, syscall.EIO},
}

func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	for i := range errnos {
		if errors.Is(err, errnos[i].err) {
			return errnos[i].errno
		}
	}
	return syscall.EIO
}
