package dropin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoSpace is a kernel that gives no namespaces to this user.
var ErrNoSpace = errors.New("no namespaces")

// Spaces are the namespaces of a fabric's programs, as the fabric's daemon sees them.
type Spaces struct {
	enter string // softib-enter

	once sync.Once
	user *os.File // the programs' user namespace; nil if they need none
	err  error    // why there are no namespaces

	mu      sync.Mutex
	watcher *os.File // inotify; nil until the first Watch
	ended   map[int32]func()
	closed  bool
	wait    sync.WaitGroup
}

// NewSpaces needs a set that has softib-enter. Nothing happens before the first program.
func NewSpaces(s Set) *Spaces { return &Spaces{enter: s.Path(enterer), ended: make(map[int32]func())} }

// User is the user namespace that programs are to join, nil if they need none to see a tree. The first call finds out
// what this kernel allows, by showing the tree; ErrNoSpace if nothing. The file stays the Spaces'.
func (s *Spaces) User(tree string) (*os.File, error) {
	s.once.Do(func() {
		// Who may mount as they are gains nothing by a user namespace, and would lose what other users' files they may
		// use. Root that may not mount is root of a container, and in a user namespace would be root of even less.
		if os.Geteuid() == 0 || mayMount() {
			_, s.err = s.probe(tree, false)
			return
		}
		s.user, s.err = s.probe(tree, true)
	})
	return s.user, s.err
}

// mayMount reports whether this process has CAP_SYS_ADMIN.
func mayMount() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&head, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// probe lets softib-enter try; with fresh in a user namespace of its own, which is returned.
func (s *Spaces) probe(tree string, fresh bool) (user *os.File, err error) {
	args := []string{"-p", "-t", tree}
	if fresh {
		args = append(args, "-n")
	}
	cmd := exec.Command(s.enter, args...)
	var why bytes.Buffer
	cmd.Stderr = &why
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("dropin: %w: %w", ErrNoSpace, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("dropin: %w: %w", ErrNoSpace, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("dropin: %w: %w", ErrNoSpace, err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if line == "ok\n" && fresh {
		user, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	}
	stdin.Close()
	waitErr := cmd.Wait()
	if line != "ok\n" {
		return nil, fmt.Errorf("dropin: %w: %s", ErrNoSpace,
			strings.TrimSpace(strings.ReplaceAll(why.String()+" "+fmt.Sprint(waitErr), "\n", " ")))
	}
	if err != nil {
		return nil, fmt.Errorf("dropin: %w: %w", ErrNoSpace, err)
	}
	return user, nil
}

// Watch calls ended, once, when the mount namespace ends whose file system dir is of, as softib-enter sends it. It
// takes dir over. It may be called from any goroutine.
func (s *Spaces) Watch(dir *os.File, ended func()) error {
	defer dir.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("dropin: %w", os.ErrClosed)
	}
	if s.watcher == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return fmt.Errorf("dropin: inotify_init1: %w", err)
		}
		s.watcher = os.NewFile(uintptr(fd), "inotify")
		s.wait.Go(s.listen)
	}
	raw, err := dir.SyscallConn()
	if err != nil {
		return fmt.Errorf("dropin: %w", err)
	}
	var wd int
	if cerr := raw.Control(func(fd uintptr) {
		// Only the end is of interest, and that is always told; a mask must have something, and a folder that is sealed
		// is not moved.
		wd, err = unix.InotifyAddWatch(s.inotify(), fmt.Sprintf("/proc/self/fd/%d", fd),
			unix.IN_MOVE_SELF|unix.IN_ONLYDIR)
	}); cerr != nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("dropin: inotify_add_watch: %w", err)
	}
	if s.ended[int32(wd)] != nil {
		return fmt.Errorf("dropin: the same file system a second time")
	}
	s.ended[int32(wd)] = ended
	return nil
}

// inotify is the watcher's descriptor.
func (s *Spaces) inotify() (n int) {
	if raw, err := s.watcher.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n = int(fd) })
	}
	return n
}

// listen takes inotify's events until the watcher is closed.
func (s *Spaces) listen() {
	buf := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := s.watcher.Read(buf)
		if err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			e := parseEvent(b)
			b = b[min(unix.SizeofInotifyEvent+int(e.Len), len(b)):]
			// A watch that has ended is always told so, after IN_UNMOUNT.
			if e.Mask&unix.IN_IGNORED == 0 {
				continue
			}
			s.mu.Lock()
			f := s.ended[e.Wd]
			delete(s.ended, e.Wd)
			s.mu.Unlock()
			if f != nil {
				f()
			}
		}
	}
}

// Close lets go of the user namespace: it ends with the last program in it. Nobody is told of ends any more.
func (s *Spaces) Close() error {
	s.once.Do(func() { s.err = fmt.Errorf("dropin: %w", os.ErrClosed) })
	s.mu.Lock()
	s.closed = true
	w, u := s.watcher, s.user
	s.mu.Unlock()
	var err error
	if w != nil {
		err = w.Close()
		s.wait.Wait()
	}
	if u != nil {
		err = errors.Join(err, u.Close())
	}
	return err
}
