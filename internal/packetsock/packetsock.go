package packetsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// network is the kind of socket.
const network = "unixpacket"

// Listen makes a socket that only its owner may connect to. One that nobody listens to any more is replaced.
func Listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: network}
	if c, err := net.DialUnix(addr.Net, nil, addr); err == nil {
		c.Close()
		return nil, fmt.Errorf("%s: another fabric listens there; next: softib down, or a fabric of another name", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix(addr.Net, addr)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Serve calls each with every connection, in a goroutine of its own, until ctx ends; then it closes the listener and
// what connections there are, and waits. A connection for which each has called keep is somebody else's from then on,
// who closes it.
func Serve(ctx context.Context, l *net.UnixListener, each func(c *net.UnixConn, keep func())) error {
	s := &server{each: each, conns: map[*net.UnixConn]struct{}{}}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer s.end()
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
			s.admit(c)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			// Somebody will close something.
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		default:
			return err
		}
	}
}

type server struct {
	each func(*net.UnixConn, func())

	mu    sync.Mutex
	conns map[*net.UnixConn]struct{}
	wait  sync.WaitGroup
}

func (s *server) admit(c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	s.wait.Go(func() {
		s.each(c, func() { s.forget(c) })
		if s.forget(c) {
			c.Close()
		}
	})
}

// forget takes a connection out, and reports whether it was among those that end with the server.
func (s *server) forget(c *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, had := s.conns[c]
	delete(s.conns, c)
	return had
}

// end closes every connection and waits for what they had to be gone.
func (s *server) end() {
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// Peer is who is at the other end, according to the kernel.
func Peer(c *net.UnixConn) (cred *syscall.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	return cred, errors.Join(err, ctlErr)
}

// ErrPeer is matched when somebody else's user is at the other end.
var ErrPeer = errors.New("may not use a fabric")

// Check lets in the user of this process, and root.
func Check(cred *syscall.Ucred) error {
	if me := os.Geteuid(); cred.Uid != 0 && int(cred.Uid) != me {
		return fmt.Errorf("user %d %w of user %d; next: run the program as that user, or start a fabric of "+
			"your own: softib up", cred.Uid, ErrPeer, me)
	}
	return nil
}

// CheckPeer does so with who is at the other end, and says who that is.
func CheckPeer(c *net.UnixConn) (*syscall.Ucred, error) {
	cred, err := Peer(c)
	if err != nil {
		return nil, fmt.Errorf("who asks: %w", err)
	}
	return cred, Check(cred)
}
