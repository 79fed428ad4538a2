package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// claim makes a folder that was not there, which may be another user's, and locks it for as long as the file that it
// returns is open: what a fabric that was killed has left is thus known.
func claim(dir string) (*os.File, error) {
	for {
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		lock, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody who sweeps was faster
		}
		if err != nil {
			return nil, err
		}
		if err := flock(lock, syscall.LOCK_EX); err != nil {
			lock.Close()
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if is, err := isAt(lock, dir); is || err != nil {
			return lock, err
		}
		lock.Close()
	}
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
	st, err := os.Lstat(dir)
	if err != nil || !st.IsDir() {
		return nil //nolint:nilerr // it went by itself, or is none of ours
	}
	if s, ok := st.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Getuid() {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	defer f.Close()
	if flock(f, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil // it is in use
	}
	// The lock is that of the folder that was opened. Its owner may have gone with it meanwhile, and the next one have
	// claimed the name.
	if is, err := isAt(f, dir); !is {
		return err
	}
	return os.RemoveAll(dir)
}
