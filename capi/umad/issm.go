package umad

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"softib/internal/descriptors"
	"softib/proto/ib"
)

// isSMFiles are the FIFOs that programs hold open to set IsSM. A program
// opens one for reading; the server holds the other end. That somebody opened or closed one is told
// by inotify, which may merge or lose events; who reads is asked from epoll,
// which reports a write end that nobody reads from.
type isSMFiles struct {
	dir  string
	set  func(host string, port ib.PortNum, on bool)
	book *descriptors.Book

	mu     sync.Mutex
	events *os.File // inotify; nil until the first file
	epoll  int
	files  []*isSMFile // what epoll reports is an index
	done   chan struct{}
}

type isSMFile struct {
	host string
	port ib.PortNum
	path string
	end  *os.File
	on   bool
}

func newIsSMFiles(dir string, set func(string, ib.PortNum, bool)) *isSMFiles {
	return &isSMFiles{dir: dir, set: set, book: descriptors.Programs, epoll: -1, done: make(chan struct{})}
}

// path is the file of a port, made when it is first asked for.
func (s *isSMFiles) path(host string, port ib.PortNum) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.host == host && f.port == port {
			return f.path, nil
		}
	}
	if err := s.start(); err != nil {
		return "", fmt.Errorf("umad: IsSM of %s port %d: %w", host, port, err)
	}
	f := &isSMFile{host: host, port: port, path: filepath.Join(s.dir, fmt.Sprintf("issm%d", len(s.files)))}
	// Whoever asks, the file stays: it is on the account of programs, and of none of them.
	if err := s.book.Take(owner, 1); err != nil {
		return "", fmt.Errorf("umad: IsSM of %s port %d: %w", host, port, err)
	}
	if err := s.add(f); err != nil {
		s.book.Give(owner, 1)
		return "", fmt.Errorf("umad: IsSM of %s port %d: %s: %w", host, port, f.path, err)
	}
	return f.path, nil
}

// owner is whose the fabric is.
var owner = descriptors.Holder{UID: uint32(os.Geteuid())}

// start sets the watch up.
func (s *isSMFiles) start() error {
	if s.events != nil {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	in, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		syscall.Close(ep)
		return os.NewSyscallError("inotify_init1", err)
	}
	s.epoll, s.events = ep, os.NewFile(uintptr(in), "inotify")
	go s.watch(s.events)
	return nil
}

func (s *isSMFiles) add(f *isSMFile) (err error) {
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := syscall.Mkfifo(f.path, 0o600); err != nil {
		return os.NewSyscallError("mkfifo", err)
	}
	// A write end opens only while somebody reads, so the server does for a moment.
	r, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	f.end, err = os.OpenFile(f.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	r.Close()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.end.Close()
		}
	}()
	raw, err := f.end.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		ev := syscall.EpollEvent{Fd: int32(len(s.files))} // no events asked for: errors always come
		err = os.NewSyscallError("epoll_ctl", syscall.EpollCtl(s.epoll, syscall.EPOLL_CTL_ADD, int(fd), &ev))
	})
	if err := errors.Join(err, cerr); err != nil {
		return err
	}
	cerr = onFD(s.events, func(fd int) {
		_, err = syscall.InotifyAddWatch(fd, f.path, syscall.IN_OPEN|syscall.IN_CLOSE)
		err = os.NewSyscallError("inotify_add_watch", err)
	})
	if err := errors.Join(err, cerr); err != nil {
		return err
	}
	s.files = append(s.files, f)
	return nil
}

func onFD(f *os.File, use func(fd int)) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { use(int(fd)) })
}

// watch runs until the inotify descriptor is closed.
func (s *isSMFiles) watch(events *os.File) {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		// What the events say does not matter: they may have been merged, or too many.
		if _, err := events.Read(buf); err != nil {
			return
		}
		s.look()
	}
}

// look finds which files are read now and tells of the changes.
func (s *isSMFiles) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread := make([]bool, len(s.files))
	events := make([]syscall.EpollEvent, len(s.files))
	n, err := syscall.EpollWait(s.epoll, events, 0)
	for err == syscall.EINTR {
		n, err = syscall.EpollWait(s.epoll, events, 0)
	}
	if err != nil {
		return
	}
	for _, ev := range events[:n] {
		unread[ev.Fd] = true
	}
	for i, f := range s.files {
		if f.on == unread[i] {
			f.on = !unread[i]
			s.set(f.host, f.port, f.on)
		}
	}
}

// close clears IsSM where it is set and removes the files.
func (s *isSMFiles) close() {
	s.mu.Lock()
	events := s.events
	s.mu.Unlock()
	if events == nil {
		return
	}
	events.Close()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.on {
			f.on = false
			s.set(f.host, f.port, false)
		}
		f.end.Close()
		s.book.Give(owner, 1)
	}
	s.files = nil
	syscall.Close(s.epoll)
	os.RemoveAll(s.dir)
}
