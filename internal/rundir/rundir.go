package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// DefaultName is the fabric that is meant unless another is named.
const DefaultName = "default"

// mounted is where a container has the folder of whoever started it. Only root makes folders beside it.
const mounted = "/run/softib"

// Dir is the folder of the user's fabrics.
func Dir() string {
	if x := os.Getenv("XDG_RUNTIME_DIR"); x != "" {
		return filepath.Join(x, "softib")
	}
	if Check(mounted) == nil {
		return mounted
	}
	return fmt.Sprintf("/tmp/softib-%d", os.Getuid())
}

// Verbs is the socket in dir at which programs attach to a fabric.
func Verbs(dir, name string) string { return filepath.Join(dir, name+".verbs") }

// Check refuses a folder that others could write to.
func Check(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner := -1
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(s.Uid)
	}
	if !info.IsDir() || owner != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %v and owner %d: want a folder with mode drwx------ and owner %d",
			dir, info.Mode(), owner, os.Getuid())
	}
	return nil
}
