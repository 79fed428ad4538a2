package dropin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoLibrary is a softib that was built without the drop-in libraries.
var ErrNoLibrary = errors.New("no drop-in libraries")

// Files of a set.
const (
	UMAD    = "libibumad.so.3"
	Verbs   = "libibverbs.so.1"
	RDMACM  = "librdmacm.so.1"
	Engine  = "libsoftib.so" // what the others load
	enterer = "softib-enter"
	// Suppressions is what valgrind is not to say of Engine.
	Suppressions = "valgrind.supp"
)

// preloaded are the libraries that programs get whether they ask or not. librdmacm comes before libibverbs, which it
// needs.
var preloaded = [...]string{UMAD, RDMACM, Verbs}

// linkName is the other name of a library, without the version: NCCL opens libibverbs.so first, and would get the
// system's where that is installed for development.
func linkName(name string) string {
	base, _, _ := strings.Cut(name, ".so.")
	return base + ".so"
}

// sumFile has the name of the set that is embedded.
const sumFile = "SUM"

// Set is the drop-in libraries in a folder.
type Set struct{ Dir string }

// Ready finds the libraries: those inside this program, which are written to a folder in dir if they are not there yet;
// else those in a folder lib beside this program.
func Ready(dir string) (Set, error) {
	if files := embedded(); files != nil {
		return write(files, dir)
	}
	exe, err := os.Executable()
	if err != nil {
		return Set{}, fmt.Errorf("dropin: %w", err)
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	s := Set{filepath.Join(filepath.Dir(exe), "lib")}
	for _, name := range [...]string{UMAD, Verbs, RDMACM, Engine, enterer, linkName(UMAD), linkName(Verbs),
		linkName(RDMACM)} {
		if _, err := os.Stat(s.Path(name)); err != nil {
			return Set{}, fmt.Errorf("dropin: %w: this softib was built without them, and %s is not there; "+
				"next: make build", ErrNoLibrary, s.Path(name))
		}
	}
	return s, nil
}

// Path is where a file of the set is.
func (s Set) Path(name string) string { return filepath.Join(s.Dir, name) }

// write puts the embedded set into a folder of dir that is named after what it contains. The whole folder is renamed
// into place: two programs that start at once both find a whole one.
func write(files fs.FS, dir string) (Set, error) {
	sum, err := fs.ReadFile(files, sumFile)
	if err != nil {
		return Set{}, fmt.Errorf("dropin: %w", err)
	}
	dir, err = executable(dir)
	if err != nil {
		return Set{}, fmt.Errorf("dropin: %w", err)
	}
	s := Set{filepath.Join(dir, strings.TrimSpace(string(sum)))}
	if isWhole(files, s) {
		return s, nil
	}
	temp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return Set{}, fmt.Errorf("dropin: %w", err)
	}
	defer os.RemoveAll(temp)
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return Set{}, fmt.Errorf("dropin: %w", err)
	}
	for _, e := range entries {
		if err := copyFile(files, e.Name(), filepath.Join(temp, e.Name())); err != nil {
			return Set{}, fmt.Errorf("dropin: %w", err)
		}
	}
	for _, name := range preloaded {
		if err := os.Symlink(name, filepath.Join(temp, linkName(name))); err != nil {
			return Set{}, fmt.Errorf("dropin: %w", err)
		}
	}
	err = os.Rename(temp, s.Dir)
	if err != nil && !isWhole(files, s) { // nobody else was faster: what is there is damaged
		if err = os.Rename(s.Dir, filepath.Join(temp, "damaged")); err == nil {
			err = os.Rename(temp, s.Dir)
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(s.Dir, "damaged"))
		}
		if err != nil {
			return Set{}, fmt.Errorf("dropin: %w", err)
		}
	}
	return s, nil
}

// Clean removes sets from dir but the one that is named; programs that would load one of them later must have ended.
func Clean(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != keep {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// isWhole reports whether the set has all files in their sizes, and all links. Contents are not looked at: the folder's
// name says what they are, and it appears when they are written.
func isWhole(files fs.FS, s Set) bool {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return false
	}
	for _, e := range entries {
		want, err := e.Info()
		if err != nil {
			return false
		}
		if have, err := os.Lstat(s.Path(e.Name())); err != nil || !have.Mode().IsRegular() ||
			have.Size() != want.Size() {
			return false
		}
	}
	for _, name := range preloaded {
		if to, err := os.Readlink(s.Path(linkName(name))); err != nil || to != name {
			return false
		}
	}
	return true
}

func copyFile(files fs.FS, name, to string) error {
	in, err := files.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// executable is dir, or a folder of the user's cache if nothing in dir may be executed. It is made.
func executable(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return dir, nil //nolint:nilerr // the dynamic linker will say what is wrong
	}
	dir = filepath.Join(cache, "softib", "lib")
	return dir, os.MkdirAll(dir, 0o700)
}
