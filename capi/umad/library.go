package umad

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// LibraryName is the drop-in's file and SONAME.
const LibraryName = "libibumad.so.3"

// ErrNoLibrary is a softib that was built without the drop-in.
var ErrNoLibrary = errors.New("no drop-in library")

// Library is the path of the drop-in: of the copy inside this program, which is written to dir if it is not there yet;
// else of the one in a folder lib beside this program.
func Library(dir string) (string, error) {
	if len(embedded) > 0 {
		return writeLibrary(dir)
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("umad: %w", err)
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	path := filepath.Join(filepath.Dir(exe), "lib", LibraryName)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("umad: %w: this softib was built without %s, and %s is not there; next: make build", ErrNoLibrary, LibraryName, path)
	}
	return path, nil
}

// writeLibrary puts the embedded copy into dir. It is renamed into place: programs that run have the former one
// mapped, and two that start at once both find a whole one.
func writeLibrary(dir string) (string, error) {
	path := filepath.Join(dir, LibraryName)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, embedded) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("umad: %w", err)
	}
	f, err := os.CreateTemp(dir, LibraryName+".*")
	if err != nil {
		return "", fmt.Errorf("umad: %w", err)
	}
	_, err = f.Write(embedded)
	err = errors.Join(err, f.Chmod(0o755), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("umad: %w", err)
	}
	return path, nil
}

// Environment is env with what makes a program use the library at libPath, on a host of the fabric whose server
// listens at socket. What env preloads and where it looks for libraries stays, after ours.
func Environment(env []string, libPath, socket, host string) []string {
	front := map[string]string{"LD_LIBRARY_PATH": filepath.Dir(libPath)}
	if !strings.ContainsAny(libPath, " :") {
		// Also wins over a path that the program itself was linked with; but the list has no quoting.
		front["LD_PRELOAD"] = libPath
	}
	out := make([]string, 0, len(env)+4)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if ours, ok := front[name]; ok {
			out = append(out, name+"="+prepend(ours, value))
			delete(front, name)
			continue
		}
		if name != "SOFTIB_UMAD" && name != "SOFTIB_HOST" {
			out = append(out, kv)
		}
	}
	for _, name := range [...]string{"LD_LIBRARY_PATH", "LD_PRELOAD"} {
		if ours, ok := front[name]; ok {
			out = append(out, name+"="+ours)
		}
	}
	return append(out, "SOFTIB_UMAD="+socket, "SOFTIB_HOST="+host)
}

// prepend puts ours in front of a list, once.
func prepend(ours, list string) string {
	if list == "" {
		return ours
	}
	rest := make([]string, 0, 4)
	for _, v := range strings.Split(list, ":") {
		if v != ours {
			rest = append(rest, v)
		}
	}
	return strings.Join(append([]string{ours}, rest...), ":")
}
