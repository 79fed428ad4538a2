package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// claim makes a folder and locks it for as long as the file that it returns is open: what a fabric that was killed has
// left is thus known, and goes first. A folder goes only under its own lock. Who removed one without would leave
// somebody who sweeps, and has just seen whose it was, with a name that is already the next one's.
func claim(dir string) (*os.File, error) {
	for {
		made := os.Mkdir(dir, 0o700)
		if made != nil && !errors.Is(made, fs.ErrExist) {
			return nil, made
		}
		lock, err := lockAt(dir, syscall.LOCK_EX)
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody who sweeps was faster
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if made == nil {
			return lock, nil
		}
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			return nil, err
		}
	}
}

// lockAt locks the folder of that name, which has to be this user's. It is fs.ErrNotExist if that has gone meanwhile,
// or is another one.
func lockAt(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(dir, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		if s, ok := st.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Getuid() {
			err = fs.ErrPermission
		}
	}
	if err == nil {
		err = flock(f, how)
	}
	if err == nil {
		var is bool
		if is, err = isAt(f, dir); err == nil && !is {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isAt reports whether an open folder is still the one of that name.
func isAt(f *os.File, dir string) (bool, error) {
	open, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(open, named), err
}

func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		for {
			if err = syscall.Flock(int(fd), how); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	})
	return errors.Join(cerr, err)
}

// Sweep removes the folders that match a pattern (filepath.Match), are this user's, and whose fabric is no more.
func Sweep(pattern string) error {
	dirs, err := filepath.Glob(pattern)
	for _, dir := range dirs {
		err = errors.Join(err, sweep(dir))
	}
	return err
}

func sweep(dir string) error {
	f, err := lockAt(dir, syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil //nolint:nilerr // it is in use, went by itself, or is none of ours
	}
	return errors.Join(os.RemoveAll(dir), f.Close())
}
