package endpoint

import (
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Watcher waits at sockets while nobody looks at what an endpoint has, and wakes its page when something comes. It is a
// thread of its own: the runtime's would be woken for each datagram that comes while somebody does look, which takes a
// core from those who do.
type Watcher struct {
	page  *Page
	rests chan struct{} // it is told here that nobody looks
	// set is what it waits for; the first descriptor says that it is another one now.
	set     atomic.Pointer[[]unix.PollFd]
	kick    int
	left    atomic.Bool // something was received and not handed in: no socket tells of it
	closing chan struct{}
	done    sync.WaitGroup
}

// NewWatcher makes one for a page, which is to have no other. It waits from Start on.
func NewWatcher(page *Page) (*Watcher, error) {
	kick, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &Watcher{page: page, rests: make(chan struct{}, 1), kick: kick, closing: make(chan struct{})}
	w.Watch()
	return w, nil
}

// Start lets it wait. It is called once, before the endpoint is used.
func (w *Watcher) Start() {
	w.done.Go(w.attend)
	w.page.OnRest(w.rest)
	w.rest() // nobody looks yet
}

// Watch says at which sockets.
func (w *Watcher) Watch(fds ...int) {
	set := []unix.PollFd{{Fd: int32(w.kick), Events: unix.POLLIN}}
	for _, fd := range fds {
		set = append(set, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	w.set.Store(&set)
	w.look()
}

// Leaves says whether something is left that was received and not handed in.
func (w *Watcher) Leaves(left bool) {
	if w.left.Load() != left {
		w.left.Store(left)
	}
}

// look has it look at its set again.
func (w *Watcher) look() {
	one := [8]byte{1}
	_, _ = unix.Write(w.kick, one[:])
}

// rest says that nobody looks.
func (w *Watcher) rest() {
	select {
	case w.rests <- struct{}{}:
	default:
	}
}

// End has it end, and Close gives back what it has, when the endpoint is not used any more.
func (w *Watcher) End() {
	close(w.closing)
	w.look()
}

// Close is for after End.
func (w *Watcher) Close() {
	w.done.Wait()
	unix.Close(w.kick)
}

// attend wakes whoever is to take in what comes, while nobody looks.
func (w *Watcher) attend() {
	for {
		select {
		case <-w.rests:
		case <-w.closing:
			return
		}
		for !w.left.Load() {
			set := slices.Clone(*w.set.Load())
			if _, err := unix.Poll(set, -1); err != nil || set[0].Revents == 0 {
				break
			}
			var b [8]byte
			_, _ = unix.Read(w.kick, b[:])
			select {
			case <-w.closing:
				return
			default:
			}
		}
		w.page.Wake()
	}
}
