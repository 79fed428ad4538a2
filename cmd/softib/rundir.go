package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"softib/internal/rundir"
)

// defaultName is the fabric that commands mean unless told otherwise.
const defaultName = rundir.DefaultName

// nameShape keeps names usable as parts of file names.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$`)

// socketPathMax is the room for a path in the kernel's sockaddr_un.
const socketPathMax = 107

// place is where the fabric of one name leaves its files: NAME.lock, which the running fabric holds locked for as long
// as it lives, NAME.sock, on which it listens, NAME.umad for management programs, NAME.verbs for attached ones, and
// NAME.log, which has what a fabric in the background prints.
type place struct {
	dir  string
	name string
	// owner is who shares the fabric with us; empty if it is our own.
	owner string
}

// newPlace makes the folder if there is none, and refuses one that others
// could write to.
func newPlace(name string) (place, error) {
	theirs, base, shared, trouble := rundir.Shared(name)
	if !nameShape.MatchString(base) {
		return place{}, next(&usageError{fmt.Errorf("%q cannot be the name of a fabric", name)},
			"use 1 to 32 letters, digits, dots, dashes or underscores, such as --name lab1; --name USER/lab1 is one "+
				"that another user shares")
	}
	dir := rundir.Dir()
	p := place{dir: dir, name: base}
	if longest := p.rdmacm(); len(longest) > socketPathMax {
		return place{}, next(fmt.Errorf("%s is %d bytes long: a socket's path has at most %d", longest, len(longest),
			socketPathMax),
			"use a shorter --name, or set XDG_RUNTIME_DIR to a folder with a shorter path")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return place{}, next(err, "set XDG_RUNTIME_DIR to a folder that you may write to")
	}
	if err := rundir.Check(dir); err != nil {
		return place{}, next(err, "remove it, or set XDG_RUNTIME_DIR to a folder of your own; in a container, be the "+
			"user whose fabric it is: docker run --user UID:GID, podman run without sudo")
	}
	if shared {
		p.dir, p.owner = theirs, strings.TrimSuffix(name, "/"+base)
		if trouble != nil {
			return place{}, next(fmt.Errorf("%s shares no fabric: %w", p.owner, trouble),
				"its owner starts it with softib up --shared GROUP")
		}
	}
	return p, nil
}

// forOthers is where others find a fabric that this user shares.
func (p place) forOthers() (place, error) {
	dir, err := rundir.MakeShared()
	if err != nil {
		return place{}, next(err, "remove it, or set SOFTIB_SHARED_DIR to the same folder for all who share it")
	}
	p.dir, p.owner = dir, rundir.UserName(uint32(os.Geteuid()))
	return p, nil
}

func (p place) socket() string { return filepath.Join(p.dir, p.name+".sock") }
func (p place) lock() string   { return filepath.Join(p.dir, p.name+".lock") }
func (p place) umad() string   { return filepath.Join(p.dir, p.name+".umad") }
func (p place) verbs() string  { return rundir.Verbs(p.dir, p.name) }

func (p place) rdmacm() string { return filepath.Join(p.dir, p.name+".rdmacm") }

// stateNone keeps nothing beyond the fabric's life.
const stateNone = "none"

// state is the folder in which a fabric keeps what outlives it: the one that was asked for, or one of its name in the
// user's state folder. A fabric in a runtime folder of somebody's own keeps it there: whoever sets that wants to be
// apart from all others.
func (p place) state(asked string) (string, error) {
	switch {
	case asked == stateNone:
		return "", nil
	case asked != "":
		return filepath.Abs(asked)
	}
	if x := os.Getenv("XDG_STATE_HOME"); x != "" {
		return filepath.Join(x, "softib", p.name), nil
	}
	if x := os.Getenv("XDG_RUNTIME_DIR"); x != "" && x != fmt.Sprintf("/run/user/%d", os.Getuid()) {
		return filepath.Join(p.dir, p.name+".state"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(p.dir, p.name+".state"), nil //nolint:nilerr // nowhere better
	}
	return filepath.Join(home, ".local", "state", "softib", p.name), nil
}

// libraries is the folder of the drop-in libraries, the same for all fabrics. Programs load what is there: it is this
// user's own, also for a fabric of somebody else's.
func (p place) libraries() string {
	if p.owner != "" {
		return filepath.Join(rundir.Dir(), "lib")
	}
	return filepath.Join(p.dir, "lib")
}

func (p place) log() string { return filepath.Join(p.dir, p.name+".log") }

// errHeld means that a fabric of this name is running.
var errHeld = errors.New("a fabric of this name is running")

// Locks that belong to an open file rather than to a process (fcntl_locking(2)).
// Package syscall does not name their commands.
const (
	ofdGetLock = 36
	ofdSetLock = 37
)

// claim takes the name for as long as the file stays open. A lock ends with its
// process, so what a dead fabric left behind is known to be stale, and goes.
func (p place) claim() (f *os.File, err error) {
	for {
		if f, err = os.OpenFile(p.lock(), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return nil, err
		}
		if err := syscall.FcntlFlock(f.Fd(), ofdSetLock, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
			f.Close()
			if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
				return nil, errHeld
			}
			return nil, fmt.Errorf("%s: %w", p.lock(), err)
		}
		// A fabric that ended meanwhile has taken its file away: who comes next makes another, and would hold that.
		open, err := f.Stat()
		if named, e := os.Stat(p.lock()); err == nil && e == nil && os.SameFile(open, named) {
			break
		}
		f.Close()
	}
	if err := os.Remove(p.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Close()
		return nil, err
	}
	return f, nil
}

// leave gives the name back, with all files of a fabric that ended as it should; what another says why it failed stays.
func (p place) leave(lock *os.File, failed error) {
	if failed == nil {
		_ = os.Remove(p.log()) // there is none of a fabric in a terminal
		_ = os.Remove(p.lock())
	}
	lock.Close()
}

// isRunning reports whether a fabric holds the name. It takes no lock itself,
// so it disturbs none that is about to start.
func (p place) isRunning() bool {
	if p.owner != "" { // the lock is none of ours
		_, err := os.Stat(p.socket())
		return err == nil
	}
	f, err := os.OpenFile(p.lock(), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	l := syscall.Flock_t{Type: syscall.F_WRLCK}
	return syscall.FcntlFlock(f.Fd(), ofdGetLock, &l) == nil && l.Type != syscall.F_UNLCK
}

// running lists the names of the fabrics that run.
func (p place) running() []string {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".lock"); ok && nameShape.MatchString(name) &&
			(place{dir: p.dir, name: name}).isRunning() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// notRunning is the error of a command that needs a fabric.
func (p place) notRunning() error {
	if p.owner != "" {
		return next(fmt.Errorf("%s shares no fabric named %q that is running", p.owner, p.name),
			"its owner starts it with softib up -d --name %s --shared GROUP", p.name)
	}
	err := fmt.Errorf("no fabric named %q is running", p.name)
	suffix := ""
	if p.name != defaultName {
		suffix = " --name " + p.name
	}
	if others := p.running(); len(others) > 0 {
		return next(err, "softib up -d%s, or use one that runs: --name %s", suffix, strings.Join(others, ", --name "))
	}
	return next(err, "softib up -d%s", suffix)
}
