package umad

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"softib/internal/descriptors"
	"softib/internal/packetsock"
	"softib/internal/patience"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// requestPatience is how long a connection may take to say what it wants, on an idle machine: nobody holds
// a descriptor for nothing.
const requestPatience = 10 * time.Second

// Listen makes the socket that Serve takes, for its owner only. A socket that nobody listens to any more is replaced.
func Listen(path string) (*packetsock.Listener, error) {
	l, err := packetsock.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("umad: %w", err)
	}
	return l, nil
}

type server struct {
	ports Ports
	issm  *isSMFiles

	mu   sync.Mutex
	open map[uint64]*openPort // by token
}

// Serve answers the library until ctx ends, and then closes the listener and every session. Files
// for IsSM lie in a folder beside the listener's socket.
func Serve(ctx context.Context, l *packetsock.Listener, ports Ports) error {
	s := &server{ports: ports, open: make(map[uint64]*openPort)}
	s.issm = newIsSMFiles(l.Addr().String()+".issm", func(host string, port ib.PortNum, on bool) {
		// The port may have gone with its host; then nobody is left to tell.
		_ = ports.SetIsSM(host, port, on)
	})
	defer s.issm.close()
	err := packetsock.Serve(ctx, l, 1, s.serve)
	if err != nil {
		return fmt.Errorf("umad: %w", err)
	}
	return nil
}

// serve is the life of one connection.
func (s *server) serve(c packetsock.Guest) {
	answer := func(r reply) error {
		_, err := c.Write(appendReply(nil, &r))
		return err
	}
	refuse := func(o op, errno syscall.Errno, err error) {
		text := err.Error()
		_ = answer(reply{op: o, errno: uint32(errno), payload: []byte(text[:min(len(text), textMax)])})
	}

	if err := c.SetReadDeadline(time.Now().Add(patience.For(requestPatience))); err != nil {
		return
	}
	buf := make([]byte, requestSize+1)
	n, err := c.Read(buf)
	if err != nil {
		return
	}
	req, err := parseRequest(buf[:n])
	switch {
	case errors.Is(err, errVersion):
		refuse(req.op, syscall.EPROTO, err)
		return
	case err != nil:
		return
	}
	if c.Refused != nil {
		refuse(req.op, errnoOf(c.Refused), fmt.Errorf("umad: %w", c.Refused))
		return
	}
	if req.op != opRegister && req.op != opUnregister && req.op != opClosed { // which know the port by its token
		if err := c.Use(req.host); err != nil {
			refuse(req.op, errnoOf(err), fmt.Errorf("umad: %w", err))
			return
		}
	}
	if req.op == opOpen {
		p, err := s.openPort(c.UnixConn, &req)
		if err != nil {
			refuse(req.op, errnoOf(err), err)
			return
		}
		defer s.closePort(p)
		if c.SetReadDeadline(time.Time{}) == nil && answer(reply{op: req.op, token: p.token}) == nil {
			p.run()
		}
		return
	}
	r, err := s.handle(&req)
	if err != nil {
		refuse(req.op, errnoOf(err), err)
		return
	}
	r.op = req.op
	_ = answer(r)
}

// handle answers a request that leaves no connection behind.
func (s *server) handle(req *request) (reply, error) {
	switch req.op {
	case opCA:
		ca, err := s.ports.CA(req.host)
		if err != nil {
			return reply{}, err
		}
		return reply{payload: appendCA(nil, &ca)}, nil
	case opIsSM:
		port, err := s.portNum(req)
		if err != nil {
			return reply{}, err
		}
		path, err := s.issm.path(req.host, port)
		return reply{payload: []byte(path)}, err
	case opRegister:
		p, err := s.find(req.token)
		if err != nil {
			return reply{}, err
		}
		agent, err := p.register(req)
		return reply{agent: agent}, err
	case opUnregister:
		p, err := s.find(req.token)
		if err != nil {
			return reply{}, err
		}
		return reply{}, p.unregister(req.agent)
	case opClosed:
		if p, err := s.find(req.token); err == nil && p.settle() {
			<-p.ended
		}
		return reply{}, nil
	}
	return reply{}, fmt.Errorf("umad: %s: %w", req.op, errNotRequest)
}

// portNum checks that the host has the port that the request names.
func (s *server) portNum(req *request) (ib.PortNum, error) {
	ca, err := s.ports.CA(req.host)
	if err != nil {
		return 0, err
	}
	for i := range ca.Ports {
		if uint32(ca.Ports[i].Num) == req.port {
			return ca.Ports[i].Num, nil
		}
	}
	return 0, fmt.Errorf("umad: %s port %d: %w", req.host, req.port, ErrNoPort)
}

func (s *server) openPort(c *net.UnixConn, req *request) (*openPort, error) {
	port, err := s.portNum(req)
	if err != nil {
		return nil, err
	}
	var token [8]byte
	if _, err := io.ReadFull(rand.Reader, token[:]); err != nil {
		return nil, err
	}
	session, err := s.ports.Open(req.host, port)
	if err != nil {
		return nil, err
	}
	p := newOpenPort(c, session, binary.NativeEndian.Uint64(token[:]))
	p.name = fmt.Sprintf("program on %s port %d", req.host, port)
	s.mu.Lock()
	s.open[p.token] = p
	s.mu.Unlock()
	return p, nil
}

func (s *server) closePort(p *openPort) {
	s.mu.Lock()
	delete(s.open, p.token)
	s.mu.Unlock()
	_ = p.session.Close()
	close(p.ended)
}

func (s *server) find(token uint64) (*openPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.open[token]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("umad: token 0x%016x: %w", token, errNotOpen)
}

// Reasons of the server itself.
var (
	errNotOpen = errors.New("no such open port")
	errAgent   = errors.New("no such agent")
	errAgents  = errors.New("too many agents")
)

// errnos is what the library makes of errors; the first that matches counts.
var errnos = []struct {
	err   error
	errno syscall.Errno
}{
	{packetsock.ErrPeer, syscall.EPERM},
	{descriptors.ErrMany, syscall.EMFILE},
	{ErrNoHost, syscall.ENODEV},
	{ErrNoPort, syscall.EINVAL},
	{ErrClosed, syscall.EIO},
	{errNotOpen, syscall.EBADF},
	{errAgent, syscall.EINVAL},
	{errAgents, syscall.ENOMEM},
	{errNotRequest, syscall.EINVAL},
	{madrpc.ErrAgent, syscall.EIO},
	{madrpc.ErrInUse, syscall.EINVAL},
	{madrpc.ErrRegistration, syscall.EINVAL},
	{madrpc.ErrLength, syscall.EINVAL},
	{madrpc.ErrClass, syscall.EINVAL},
	{madrpc.ErrDuplicate, syscall.EINVAL},
}

func errnoOf(err error) syscall.Errno {
	for i := range errnos {
		if errors.Is(err, errnos[i].err) {
			return errnos[i].errno
		}
	}
	return syscall.EIO
}

// registration is what a request asks for, checked as Linux does (IBA knows no agents).
func registration(req *request) (madrpc.Registration, error) {
	bad := func(format string, args ...any) (madrpc.Registration, error) {
		return madrpc.Registration{}, fmt.Errorf("umad: class 0x%02x: %w: %s", req.class, madrpc.ErrRegistration,
			fmt.Sprintf(format, args...))
	}
	const (
		userRMPP        = 1    // flag: the program cuts and joins messages itself
		rmppVersion     = 1    // the only one there is
		classVersionMax = 0x83 // exclusive, of Linux
	)
	switch {
	case req.flags&^userRMPP != 0:
		return bad("flags 0x%x, known are 0x%x", req.flags, userRMPP)
	case req.rmppVersion > rmppVersion:
		return bad("RMPP version %d, want 0 or %d", req.rmppVersion, rmppVersion)
	case req.classVersion >= classVersionMax:
		return bad("class version 0x%x, want less than 0x%x", req.classVersion, classVersionMax)
	}
	r := madrpc.Registration{
		Class: mad.Class(req.class), ClassVersion: req.classVersion, Methods: req.methods,
		OUI:  [3]byte{byte(req.oui >> 16), byte(req.oui >> 8), byte(req.oui)},
		RMPP: req.rmppVersion == rmppVersion && req.flags&userRMPP == 0,
	}
	if r.Class == 0 {
		r.Methods = madrpc.Methods{} // as Linux does: an agent of no class only sends
	}
	return r, nil
}
