package dropin

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// Entry is how a program gets to see a host.
type Entry struct {
	// Tree has the host's files; the program runs without if empty.
	Tree string
	// User is the fabric's user namespace; nil if none is needed.
	User *os.File
	// Report is a socket to the fabric's daemon, which then hears of the program's namespace; nil if nobody listens.
	Report *os.File
	// Net is the network namespace that the program is to be in; nil for the caller's. It takes a Tree.
	Net *os.File
	// Verbose says what does not work.
	Verbose bool
}

// Exec becomes the program at path, with an environment that Environment made. It returns only if that fails.
func (s Set) Exec(e Entry, path string, argv, env []string) error {
	if e.Tree == "" {
		return fmt.Errorf("%s: %w", path, syscall.Exec(path, argv, env))
	}
	user, report, network := -1, -1, -1
	for _, f := range []struct {
		fd   *int
		file *os.File
	}{{&user, e.User}, {&report, e.Report}, {&network, e.Net}} {
		if f.file == nil {
			continue
		}
		fd := f.file.Fd()
		// softib-enter closes it before it becomes the program.
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, 0); errno != 0 {
			return fmt.Errorf("dropin: fcntl: %w", errno)
		}
		*f.fd = int(fd)
	}
	err := syscall.Exec(s.Path(enterer), e.arguments(user, report, network, path, argv), env)
	runtime.KeepAlive(e) // until then: files that nobody holds any more, the collector closes
	return fmt.Errorf("%s: %w", s.Path(enterer), err)
}

// arguments is how softib-enter is called; user, report and network are descriptors, or -1.
func (e Entry) arguments(user, report, network int, path string, argv []string) []string {
	args := []string{enterer, "-t", e.Tree}
	if e.Verbose {
		args = append(args, "-v")
	}
	if user >= 0 {
		args = append(args, "-u", strconv.Itoa(user))
	}
	if report >= 0 {
		args = append(args, "-r", strconv.Itoa(report))
	}
	if network >= 0 {
		args = append(args, "-w", strconv.Itoa(network))
	}
	return append(append(args, "--", path), argv...)
}
