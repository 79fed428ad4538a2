package packetsock

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"softib/internal/patience"
)

// Rights let others use a fabric than the user of this process and root: a group of users who may connect, each for
// some hosts. Nil lets nobody.
type Rights struct {
	// Group is who may connect at all, by the rights of the socket's file.
	Group int
	// May says why a user may not use a host; without a host, why it may use none.
	May func(uid uint32, host string) error

	mu sync.Mutex
	in map[*net.UnixConn]use
}

type use struct {
	cred *syscall.Ucred
	host string
	left chan struct{} // closed when it is over
}

// Open gives a socket's file the rights.
func (r *Rights) Open(path string) error {
	if r == nil {
		return os.Chmod(path, 0o600)
	}
	// Not before it is the group's: the group of a new file is that of the folder, or of this process.
	if err := os.Chown(path, -1, r.Group); err != nil {
		return err
	}
	return os.Chmod(path, 0o660)
}

// Check says why somebody may not use a host; without a host, why it may use none.
func (r *Rights) Check(cred *syscall.Ucred, host string) error {
	if Check(cred) == nil {
		return nil
	}
	return r.May(cred.Uid, host)
}

// Use says why the guest may not use a host. A guest who may is one until it leaves, or until Review finds that it may
// not any more.
func (g *Guest) Use(host string) error {
	r := g.rights
	if r == nil {
		return nil
	}
	// It is noted first: a right that is taken away meanwhile is seen here or by Review.
	r.mu.Lock()
	if r.in == nil {
		r.in = map[*net.UnixConn]use{}
	}
	left := make(chan struct{})
	if was, in := r.in[g.UnixConn]; in {
		left = was.left
	}
	r.in[g.UnixConn] = use{g.Cred, host, left}
	r.mu.Unlock()
	err := r.Check(g.Cred, host)
	if err != nil {
		r.leave(g.UnixConn)
	}
	return err
}

func (r *Rights) leave(c *net.UnixConn) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u, in := r.in[c]; in {
		delete(r.in, c)
		close(u.left)
	}
}

// reviewPatience is how long Review waits for guests to be gone, on an idle machine.
const reviewPatience = 10 * time.Second

// Review ends the connections of guests who may not use their hosts any more, and returns when all that they had is
// gone.
func (r *Rights) Review() {
	if r == nil {
		return
	}
	var going []chan struct{}
	r.mu.Lock()
	for c, u := range r.in {
		if r.Check(u.cred, u.host) != nil {
			// Who has a copy of the descriptor is not asked: the conversation ends for both sides.
			_ = c.CloseRead()
			_ = c.CloseWrite()
			going = append(going, u.left)
		}
	}
	r.mu.Unlock()
	late, cancel := patience.Context(context.Background(), reviewPatience)
	defer cancel()
	for _, left := range going {
		select {
		case <-left:
		case <-late.Done():
			return
		}
	}
}
