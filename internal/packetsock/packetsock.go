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

	"softib/internal/descriptors"
)

// network is the kind of socket.
const network = "unixpacket"

// Listener is a socket, and who may connect to it.
type Listener struct {
	*net.UnixListener
	rights *Rights
}

// Listen makes a socket that only its owner may connect to. One that nobody listens to any more is replaced.
func Listen(path string) (*Listener, error) { return ListenFor(path, nil) }

// ListenFor does so for others too, if there are rights.
func ListenFor(path string, r *Rights) (*Listener, error) {
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
	if err := r.Open(path); err != nil {
		l.Close()
		return nil, err
	}
	return &Listener{l, r}, nil
}

// Guest is a connection and who is at its other end.
type Guest struct {
	*net.UnixConn
	Cred *syscall.Ucred
	// Refused is why it is not let in. It is to be told, and no more.
	Refused error
	// Keep makes the connection somebody else's, who closes it.
	Keep func()

	rights *Rights
}

// Serve calls each with every connection, in a goroutine of its own, until ctx ends; then it closes the listener and
// what connections there are, and waits. Each comes to hold so many descriptors of this process, itself among them, for
// as long as each runs.
func Serve(ctx context.Context, l *Listener, holds int, each func(Guest)) error {
	s := &server{each: each, conns: map[*net.UnixConn]struct{}{}, door: Door{Book: descriptors.Programs,
		Holds: holds, Rights: l.rights}}
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

// Door is where connections are let in: those of the user of this process, of root and of who has rights, as long as
// they hold no more descriptors than they may.
type Door struct {
	Book   *descriptors.Book
	Holds  int // by each connection
	Rights *Rights

	mu      sync.Mutex
	refused int // that are being told
}

// refusedMax bounds how many connections are there only to be told that they are not let in.
const refusedMax = 8

// Enter says who is there and why it is not let in, if it is not. Leave is called when the connection is done with. It
// is not ok if the connection is to be closed without a word.
func (d *Door) Enter(c *net.UnixConn) (cred *syscall.Ucred, leave func(), ok bool, refused error) {
	if cred, refused = Peer(c); refused != nil {
		refused = fmt.Errorf("who asks: %w", refused)
	} else if d.Rights == nil {
		refused = Check(cred)
	} else {
		refused = d.Rights.Check(cred, "")
	}
	if refused == nil {
		who := descriptors.Holder{PID: int(cred.Pid), UID: cred.Uid}
		if refused = d.Book.Take(who, d.Holds); refused == nil {
			return cred, func() { d.Book.Give(who, d.Holds) }, true, nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused >= refusedMax {
		return cred, nil, false, refused
	}
	d.refused++
	return cred, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.refused--
	}, true, refused
}

type server struct {
	each func(Guest)
	door Door

	mu    sync.Mutex
	conns map[*net.UnixConn]struct{}
	wait  sync.WaitGroup
}

func (s *server) admit(c *net.UnixConn) {
	cred, leave, ok, refused := s.door.Enter(c)
	if !ok {
		c.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	s.wait.Go(func() {
		s.each(Guest{c, cred, refused, func() { s.forget(c) }, s.door.Rights})
		s.door.Rights.leave(c)
		if s.forget(c) {
			c.Close()
		}
		leave()
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
